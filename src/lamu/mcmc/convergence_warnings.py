"""Convergence warnings of chains, from split R-hat, effective sample sizes and transition statistics, without ArviZ."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.convergence import LARGEST_R_HAT, Convergence
from lamu.density import Density
from lamu.target import Target
from lamu.typing import Belief, Params

__all__ = ["UnreliableChains", "complaints", "in_one_place", "mixing", "split_r_hat"]

_FEWEST = 100  # draws a chain; fewer are not informative
# Shares of proposals, of divergent paths and of exchanges; not measured.
_REFUSES, _TAKES_ALL, _DIVERGES, _EXCHANGES = 0.01, 0.999, 0.01, 0.02
_FEWEST_OF_A_CYCLE = 5  # draws; fewer do not show the spread within a mode
_MOST = 10_000  # largest number of coordinates that are tested
_MOST_MIXED = 256  # of them for an effective sample size
_LONGER = "take more warm-up and draws, and see lamu.mcmc.diagnose(posterior)"


class UnreliableChains(UserWarning):
    """Warns of draws that should not be trusted, with the reasons and a remedy."""


def complaints(belief: Belief, model: Target) -> list[str]:
    """Returns the reasons not to trust draws, each with a remedy; empty where there are none."""
    # Weights are compared between chains where they are identified: in a density, and in a network that is linear in
    # them. Where hidden units can be permuted, chains that agree may have permuted weights, so that the log density
    # alone is compared.
    leaves = jax.tree.leaves(belief.samples)
    if not leaves or leaves[0].shape[1] < _FEWEST:
        return []
    statistics = {name: np.asarray(values) for name, values in (belief.statistics or {}).items()}
    values = _coordinates(leaves)
    reasons = _refusals(statistics, belief, model) + _stillness(statistics, values) + _divergences(statistics)
    reasons += _loneliness(statistics)
    return reasons or _disagreement(statistics, values, model)


def mixing(belief: Belief, model: Target) -> Convergence | None:
    """Returns the mixing of chains as a `Convergence`; None for too few draws."""
    # It is measured for the log density and, where weights are identified, for the weights.
    from numpyro.diagnostics import effective_sample_size

    leaves = jax.tree.leaves(belief.samples)
    if not leaves or leaves[0].shape[1] < _FEWEST:
        return None
    statistics = belief.statistics or {}
    named = [np.asarray(statistics["log_density"], np.float64)[:, :, None]] if "log_density" in statistics else []
    if model.identified:
        named.append(_coordinates(leaves)[:, :, :_MOST_MIXED])
    if not named:
        return None
    values = np.concatenate(named, axis=2)
    still = values.std(axis=(0, 1)) == 0  # a constant coordinate has neither
    values = values[:, :, ~still]
    if not values.shape[2]:
        return None
    ess = effective_sample_size(values)
    return Convergence(r_hat=float(np.max(split_r_hat(values))), ess=float(np.min(ess)), remedy=_LONGER)


def split_r_hat(values: np.ndarray) -> np.ndarray:
    r"""Returns R-hat, \(\sqrt{\widehat{\mathrm{var}}^+ / W}\), of halves of chains: near one where they agree."""
    # Source: Gelman et al. (2013), section 11.4, by NumPyro; `diagnose` uses ArviZ's rank-based version.
    from numpyro.diagnostics import split_gelman_rubin

    ratio = split_gelman_rubin(np.asarray(values, np.float64))
    return np.where(np.isnan(ratio), 1.0, ratio)


def in_one_place(samples: Params, cycles: int) -> bool:
    """Whether the draws of all cycles of all chains are around one point."""
    # They are where the means of the cycles differ by at most a few times the spread within a cycle: in every
    # coordinate the variance between cycles is below nine times that within.
    values = _coordinates(jax.tree.leaves(samples))
    apart = values.reshape(values.shape[0] * cycles, -1, values.shape[2])
    if cycles < 2 or apart.shape[1] < _FEWEST_OF_A_CYCLE:
        return False
    within = np.mean(apart.var(axis=1), axis=0)
    return bool(np.all(apart.mean(axis=1).var(axis=0) <= 9 * within))


def _coordinates(leaves: list[Any]) -> np.ndarray:
    # The first coordinates alone, so that no others are read from disk.
    flat = [np.asarray(leaf).reshape(*leaf.shape[:2], -1)[:, :, :_MOST].astype(np.float64) for leaf in leaves]
    return np.concatenate(flat, axis=2)[:, :, :_MOST]


def _refusals(statistics: dict[str, np.ndarray], belief: Belief, model: Target) -> list[str]:
    if "acceptance" not in statistics:
        return []
    rates = statistics["acceptance"].mean(axis=1)
    bad = np.flatnonzero(~(rates >= _REFUSES))
    if not len(bad):
        return []
    rate = 100 * float(np.mean(rates[bad]))
    why = _bad_gradient(belief, model, int(bad[0])) if "gradients" in statistics else None
    advice = "the step size is too large, or the log density is not a number nearby; give a smaller step_size, or more "
    return [f"{_chains(bad)} nearly every proposal ({rate:.1f} % accepted); {why or advice + 'warm-up'}"]


def _bad_gradient(belief: Belief, model: Target, chain: int) -> str | None:
    """Returns the leaf of a density whose gradient is not finite where a chain is stuck, in words."""
    if not isinstance(model, Density):
        return None
    position = jax.tree.map(lambda leaf: leaf[chain, -1], belief.samples["network"])
    gradient = jax.grad(lambda u: model.log_target({"network": u, "likelihood": {}}, 1.0))(position)
    bad = [path for path, leaf in zip(tree.paths(gradient), jax.tree.leaves(gradient), strict=True)
           if not np.isfinite(np.asarray(leaf)).all()]  # fmt: skip
    return f"the gradient of the log density is not finite there in {', '.join(map(repr, bad))}" if bad else None


def _stillness(statistics: dict[str, np.ndarray], values: np.ndarray) -> list[str]:
    """Returns warnings of chains that hardly move, by their mean squared jumps relative to their variance."""
    if "acceptance" not in statistics or statistics["acceptance"].mean() < _TAKES_ALL:
        return []
    jump = np.mean(np.diff(values, axis=1) ** 2, axis=1)
    spread = np.maximum(values.var(axis=1), np.finfo(float).tiny)
    share = np.median(jump / (2 * spread), axis=1)  # a chain's effective draws as a share
    bad = np.flatnonzero(share * values.shape[1] < 6)
    if not len(bad):
        return []
    who = _chains(bad).removesuffix(" refuse").removesuffix(" refuses")
    return [f"{who} accept everything and hardly move; the step size is too small: give a larger one, or a warm-up"]


def _divergences(statistics: dict[str, np.ndarray]) -> list[str]:
    share = float(statistics["divergent"].mean()) if "divergent" in statistics else 0.0
    if share <= _DIVERGES:
        return []
    return [
        f"{100 * share:.1f} % of the paths diverged, so places of high curvature were not visited; raise "
        "target_acceptance (0.95 or 0.99), or write the model in other parameters (a funnel: not centred)"
    ]


def _loneliness(statistics: dict[str, np.ndarray]) -> list[str]:
    """Returns warnings of replicas that are rarely exchanged, and so do not help the coldest one."""
    share = float(statistics["exchange"].mean()) if "exchange" in statistics else 1.0
    if share >= _EXCHANGES:
        return []
    return [
        f"{100 * share:.2g} % of the exchanges between temperatures were accepted, so the hot replicas told the "
        "coldest nothing; put more temperatures between them"
    ]


def _disagreement(statistics: dict[str, np.ndarray], values: np.ndarray, model: Target) -> list[str]:
    largest = 0.0
    if "log_density" in statistics:
        largest = float(split_r_hat(statistics["log_density"]))
    if model.identified:
        largest = max(largest, float(np.max(split_r_hat(values), initial=0.0)))
    if largest <= LARGEST_R_HAT:
        return []
    return [
        f"the chains did not mix (R-hat {largest:.2f}, which should be below 1.01): they have not forgotten where they "
        "started, or sit in different modes; take more warm-up and draws, and see lamu.mcmc.diagnose(posterior)"
    ]


def _chains(numbers: np.ndarray) -> str:
    if len(numbers) == 1:
        return f"chain {numbers[0]} refuses"
    return f"chains {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} refuse"
