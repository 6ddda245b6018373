"""Diagnostics of chains: R-hat and effective sample sizes, of weights or of functions, and warnings from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.compile_once import compiled_lightly
from lamu.convergence import LARGEST_R_HAT, Convergence
from lamu.data.arrays import Arrays
from lamu.density import Density
from lamu.families import Draws
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.target import Target
from lamu.typing import Array, Belief, Inputs, Params, State

__all__ = [
    "Diagnosis",
    "UnreliableChains",
    "complaints",
    "diagnose",
    "in_one_place",
    "inference_data",
    "mixing",
    "split_r_hat",
]

# Vehtari et al. (2021), section 4: R-hat below 1.01 and 100 effective draws a chain; Betancourt (2016) for the 0.3.
_R_HAT, _PER_CHAIN, _BFMI = 1.01, 100, 0.3
# ArviZ's names of transition statistics, by Lamu's names.
_NAMES = {
    "log_density": "lp",
    "acceptance": "acceptance_rate",
    "divergent": "diverging",
    "gradients": "n_steps",
}


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`.

    Attributes:
        space: "weights" or "functions", the quantities that were compared.
        r_hat: rank-normalised R-hat, one number a coordinate, by leaf ("f" in function space, `[rows, outputs]`).
        ess_bulk: the effective sample size of the bulk, likewise.
        ess_tail: the effective sample size of the tails, the smaller of those of the 5 % and 95 % quantiles, likewise.
        divergences: the number of divergent paths; None for samplers without paths.
        bfmi: the Bayesian fraction of missing information of every chain, `[chains]`; None where there is no energy.
        verdict: the conclusion, in words.
        trusted: whether no diagnostic is beyond its limit.

    Examples:
        >>> import numpy as np
        >>> from lamu.mcmc import Diagnosis
        >>> of = lambda value: {"network": np.array([value])}
        >>> found = Diagnosis("weights", of(1.2), of(40.0), of(30.0), None, None, "not yet", False)
        >>> found.largest_r_hat, found.smallest_ess
        (1.2, 30.0)
    """

    space: str
    r_hat: dict[str, np.ndarray]
    ess_bulk: dict[str, np.ndarray]
    ess_tail: dict[str, np.ndarray]
    divergences: int | None
    bfmi: np.ndarray | None
    verdict: str
    trusted: bool

    @property
    def largest_r_hat(self) -> float:
        """The largest R-hat of all coordinates."""
        return _extreme(np.max, self.r_hat)

    @property
    def smallest_ess(self) -> float:
        """The smallest effective sample size of all coordinates, bulk or tail."""
        return min(_extreme(np.min, self.ess_bulk), _extreme(np.min, self.ess_tail))

    def __str__(self) -> str:
        return self.verdict


def diagnose(posterior: Posterior, x: Inputs = None) -> Diagnosis:
    """Returns R-hat and effective sample sizes of a sampled posterior, with a verdict.

    Where the hidden units of a network can be permuted, chains that agree may have permuted weights, and R-hat of
    weights is meaningless: it is refused there, and computed for the outputs at given inputs instead.

    Args:
        posterior: a posterior of draws.
        x: inputs `[N, ...]` at which the network's outputs are compared; None for the weights themselves, of a density
            or of a network that is linear in them.

    Returns:
        The numbers, and a verdict in words: `print(diagnose(posterior))`.

    Raises:
        TypeError: for a belief that does not consist of draws.
        ValueError: without x for a network with hidden units, or for fewer than four draws a chain.
        ModuleNotFoundError: without the extra: `pip install "lamu[mcmc]"`.

    Source: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021); Betancourt (2016) for the energies.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta**2), jnp.zeros(2))
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(warmup=0, draws=400, step_size=0.8))
        >>> found = lamu.mcmc.diagnose(fit.posterior)
        >>> found.trusted, found.r_hat["network"].shape
        (True, (2,))
    """
    samples = _belief(posterior).samples
    chains, draws = jax.tree.leaves(samples)[0].shape[:2]
    if draws < 4:
        raise ValueError(f"there are {draws} draws a chain, too few to compare; draw at least 4, better 1,000")
    data = inference_data(posterior)
    if x is None:
        _require_identified(posterior)
        space, values = "weights", _named(samples)
    else:
        space, values = "functions", {"f": _functions(posterior, x)}
    az = _arviz()
    dataset = az.convert_to_dataset({name.replace("/", "."): leaf for name, leaf in values.items()})
    results = {}
    for key, function in (
        ("r_hat", lambda d: az.rhat(d)),
        ("ess_bulk", lambda d: az.ess(d, method="bulk")),
        ("ess_tail", lambda d: az.ess(d, method="tail")),
    ):
        table = function(dataset)
        results[key] = {name: np.asarray(table[name.replace("/", ".")]) for name in values}
    statistics = _belief(posterior).statistics or {}
    divergences = int(np.sum(statistics["divergent"])) if "divergent" in statistics else None
    bfmi = np.asarray(az.bfmi(data)) if "energy" in statistics else None
    r_hat = _extreme(np.max, results["r_hat"])
    smallest = min(_extreme(np.min, results["ess_bulk"]), _extreme(np.min, results["ess_tail"]))
    reasons = _reasons(r_hat, smallest, chains, divergences, bfmi)
    numbers = f"R-hat at most {r_hat:.3f}, at least {smallest:.0f} effective draws of {chains * draws}, in {space}"
    verdict = f"Do not trust these draws yet ({numbers}): " + "; ".join(reasons) if reasons else f"Trusted: {numbers}."
    return Diagnosis(space, **results, divergences=divergences, bfmi=bfmi, verdict=verdict, trusted=not reasons)


def inference_data(posterior: Posterior) -> Any:
    """Returns a sampled posterior as ArviZ's `InferenceData`, for its plots, summaries and files.

    Leaves are named by their paths below `network` and `likelihood`, and statistics of transitions by ArviZ's names
    (`lp`, `acceptance_rate`, `energy`, `diverging`, `n_steps`), so that `arviz.plot_energy`, `plot_trace` and
    `to_netcdf` work.

    Args:
        posterior: a posterior of draws.

    Raises:
        TypeError: for a belief that does not consist of draws.
        ModuleNotFoundError: without the extra: `pip install "lamu[mcmc]"`.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta["a"] ** 2), {"a": jnp.zeros(2)})
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(warmup=0, draws=50, step_size=0.8))
        >>> lamu.mcmc.inference_data(fit.posterior).posterior["a"].shape
        (4, 50, 2)
    """
    belief = _belief(posterior)
    short = {name.removeprefix("network/"): leaf for name, leaf in _named(belief.samples).items()}
    statistics = {_NAMES.get(name, name): np.asarray(value) for name, value in (belief.statistics or {}).items()}
    return _arviz().from_dict(posterior=short, sample_stats=statistics or None)


def _belief(posterior: Posterior) -> Draws:
    if not isinstance(posterior.belief, Draws):
        raise TypeError(
            f"a {type(posterior.belief).__name__} belief has no chains to compare; diagnose what a sampler of "
            "lamu.mcmc made"
        )
    return posterior.belief


def _named(samples: Params) -> dict[str, np.ndarray]:
    leaves = zip(tree.paths(samples), jax.tree.leaves(samples), strict=True)
    return {path: np.asarray(leaf) for path, leaf in leaves if np.size(leaf)}


def _require_identified(posterior: Posterior) -> None:
    model = posterior.model
    if model.identified:
        return
    if not model.has_outputs:
        raise ValueError(
            "the members of a plate or the columns of factors can be exchanged, so chains that agree may hold them in "
            "other orders, and R-hat of each says nothing; compare the chains' posterior.samples by what has no "
            "order, such as sorted members or densities of rows"
        )
    raise ValueError(
        f"the hidden units of a {model.name} can be exchanged, so chains that agree may hold their "
        "weights in other orders, and R-hat of weights says nothing; give inputs: diagnose(posterior, x)"
    )


def _functions(posterior: Posterior, x: Inputs) -> np.ndarray:
    """Returns the outputs of every draw, `[chains, draws, rows, outputs]`."""
    samples, rows = _belief(posterior).samples, jnp.asarray(posterior.model.inputs(x))
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
    outputs = _outputs(posterior.model, posterior.network_state, flat, rows)
    chains = jax.tree.leaves(samples)[0].shape[0]
    return np.asarray(outputs).reshape(chains, -1, *outputs.shape[1:])


@jax.jit
def _outputs(model: Target, state: State, draws: Params, x: Array) -> Array:
    """Returns the outputs of every draw, `[draws, rows, outputs]`."""
    return jnp.asarray(jax.lax.map(lambda params: model.outputs(params, state, x)[0], draws))


def _reasons(r_hat: float, ess: float, chains: int, divergences: int | None, bfmi: np.ndarray | None) -> list[str]:
    reasons = []
    if not r_hat <= _R_HAT:
        reasons.append(f"the chains do not agree (R-hat above {_R_HAT}); take more warm-up and more draws")
    if not ess >= _PER_CHAIN * chains:
        reasons.append(f"they are worth fewer than {_PER_CHAIN} independent draws a chain; take more of them")
    if divergences:
        reasons.append(f"{divergences} paths diverged; raise target_acceptance, or write the model in other parameters")
    if bfmi is not None and not np.min(bfmi) >= _BFMI:
        reasons.append(
            f"energies change too slowly (BFMI {np.min(bfmi):.2f}): the tails may not have been reached; write the "
            "model in other parameters"
        )
    return reasons


def _extreme(function: Callable[..., np.ndarray], values: dict[str, np.ndarray]) -> float:
    return float(function([function(value) for value in values.values()]))


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ArviZ announces its next version at import
            import arviz
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'diagnostics need ArviZ, which is not installed; run pip install "lamu[mcmc]"'
        ) from None
    return arviz


_FEWEST = 100  # draws a chain; fewer are not informative
_REFUSES, _TAKES_ALL, _EXCHANGES = 0.01, 0.999, 0.02  # shares of proposals and of exchanges; not measured
# Of paths: above it of funnels and of eight schools with centred effects (.0012 to .03), of 4,000; none of normal,
# Student's and Cauchy's densities, regressions and counts in 3 columns diverged.
_DIVERGES = 0.001
_SLOW = 0.2  # BFMI: below it in funnels (0.04 to 0.19), above in Student's and Cauchy's distributions (0.21 to 0.7)
_FEWEST_OF_A_CYCLE = 5  # draws; fewer do not show the spread within a mode
_MOST = 10_000  # largest number of coordinates that are tested
_ROWS = 16  # whose outputs are compared
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
    reasons += _rarely_exchanged(statistics)
    return reasons or _disagreement(statistics, values, belief, model) or _slow_energies(statistics)


def mixing(posterior: Posterior, rows: object) -> Convergence | None:
    """Returns the mixing of chains as a `Convergence`; None for too few draws."""
    # It is measured for the log density and, where weights are identified, for the weights; where they are not, for the
    # outputs at some rows, as modes may be alike in their log density. Outputs are those of some draws alone.
    from numpyro.diagnostics import effective_sample_size

    belief, model = _belief(posterior), posterior.model
    leaves = jax.tree.leaves(belief.samples)
    if not leaves or leaves[0].shape[1] < _FEWEST:
        return None
    statistics = belief.statistics or {}
    named = [np.asarray(statistics["log_density"], np.float64)[:, :, None]] if "log_density" in statistics else []
    if model.identified:
        named.append(_coordinates(leaves)[:, :, :_MOST_MIXED])
    every = [np.concatenate(named, axis=2)] if named else []
    if isinstance(model, Model) and isinstance(rows, Arrays) and not model.identified:
        every.append(_outputs_at_rows(posterior, rows))
    parts = [part[:, :, part.std(axis=(0, 1)) > 0] for part in every]  # a constant coordinate has neither
    parts = [part for part in parts if part.shape[2]]
    if not parts:
        return None
    r_hat = max(float(np.max(split_r_hat(part))) for part in parts)
    ess = effective_sample_size(parts[0])  # of all draws, where there is a log density; else of the outputs
    remedy = _LONGER if model.identified else _LONGER.replace("(posterior)", "(posterior, x)")
    return Convergence(r_hat=r_hat, ess=float(np.min(ess)), remedy=remedy)


def _outputs_at_rows(posterior: Posterior, rows: Arrays) -> np.ndarray:
    """Returns outputs at a few rows, of draws evenly along every chain, `[chains, draws, rows and outputs]`."""
    x = rows.take(np.linspace(0, rows.count - 1, min(rows.count, _ROWS)).astype(int)).x
    samples = _belief(posterior).samples
    chains, draws = jax.tree.leaves(samples)[0].shape[:2]
    places = np.linspace(0, draws - 1, _FEWEST).astype(int)
    # One call a draw: a convolution in a loop of a program is slow on a CPU.
    of = lambda chain, draw: _of_draw(
        posterior.model, jax.tree.map(lambda leaf: np.asarray(leaf[chain, draw]), samples), posterior.network_state, x
    )
    return np.array([[np.asarray(of(chain, draw), np.float64).ravel() for draw in places] for chain in range(chains)])


@compiled_lightly()
def _of_draw(model: Model, params: Params, state: State, x: Any) -> Array:
    return model.outputs(params, state, x)[0]


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


def _gradients(belief: Belief, model: Target, chain: int) -> list[tuple[str, np.ndarray]]:
    """Returns the gradient of a density where a chain ends, by the name of each leaf; empty for other models."""
    if not isinstance(model, Density):
        return []
    position = jax.tree.map(lambda leaf: leaf[chain, -1], belief.samples["network"])
    gradient = jax.grad(lambda u: model.log_target({"network": u, "likelihood": {}}, 1.0))(position)
    names = [repr(path) if path else "its argument" for path in tree.paths(gradient)]
    return [(name, np.asarray(leaf)) for name, leaf in zip(names, jax.tree.leaves(gradient), strict=True)]


def _bad_gradient(belief: Belief, model: Target, chain: int) -> str | None:
    """Returns the leaves of a density whose gradient is not finite where a chain is stuck, in words."""
    bad = [name for name, leaf in _gradients(belief, model, chain) if not np.isfinite(leaf).all()]
    return f"the gradient of the log density is not finite there in {', '.join(bad)}" if bad else None


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
        "target_acceptance (0.95 or 0.99), or write the model in other parameters (a funnel: not centred; "
        "bounds: the constraints of LogDensity)"
    ]


def _slow_energies(statistics: dict[str, np.ndarray]) -> list[str]:
    """Returns warnings of paths that cannot reach the tails, as in a funnel, by Betancourt's BFMI."""
    if "energy" not in statistics:
        return []
    energy = statistics["energy"].astype(np.float64)
    share = np.mean(np.diff(energy, axis=1) ** 2, axis=1) / np.maximum(energy.var(axis=1), np.finfo(float).tiny)
    if not share.min() < _SLOW:
        return []
    return [
        f"the energies of the paths change too slowly (BFMI {share.min():.2f}, which should be above {_BFMI}), so that "
        "the tails were not reached; write the model in other parameters (a funnel: not centred), or take more draws"
    ]


def _rarely_exchanged(statistics: dict[str, np.ndarray]) -> list[str]:
    """Returns warnings of replicas that are rarely exchanged, and so do not help the coldest one."""
    share = float(statistics["exchange"].mean()) if "exchange" in statistics else 1.0
    if share >= _EXCHANGES:
        return []
    return [
        f"{100 * share:.2g} % of the exchanges between temperatures were accepted, so the hot replicas told the "
        "coldest nothing; put more temperatures between them"
    ]


def _disagreement(statistics: dict[str, np.ndarray], values: np.ndarray, belief: Belief, model: Target) -> list[str]:
    largest = 0.0
    if "log_density" in statistics:
        largest = float(split_r_hat(statistics["log_density"]))
    if model.identified:
        largest = max(largest, float(np.max(split_r_hat(values), initial=0.0)))
    if largest <= LARGEST_R_HAT:
        return []
    if unused := [name for name, leaf in _gradients(belief, model, 0) if leaf.size and not leaf.any()]:
        return [
            f"the log density does not depend on {', '.join(unused)} where a chain ends, so that nothing holds it; "
            "add a prior, or leave out what the density does not use"
        ]
    return [
        f"the chains did not mix (R-hat {largest:.2f}, which should be below 1.01): they have not forgotten where they "
        "started, or sit in different modes; take more warm-up and draws, and see lamu.mcmc.diagnose(posterior)"
    ]


def _chains(numbers: np.ndarray) -> str:
    if len(numbers) == 1:
        return f"chain {numbers[0]} refuses"
    return f"chains {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} refuse"
