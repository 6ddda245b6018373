"""Diagnostics of chains: ArviZ's R-hat and effective sample sizes, of weights or of functions, with a verdict."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.families import Draws
from lamu.posterior import Posterior
from lamu.target import Target
from lamu.typing import Array, Inputs, Params, State

__all__ = ["Diagnosis", "diagnose", "inference_data"]

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
    raise ValueError(
        f"the hidden units of a {model.name} can be exchanged, so chains that agree may hold their "
        "weights in other orders, and R-hat of weights says nothing; give inputs: diagnose(posterior, x)"
    )


def _functions(posterior: Posterior, x: Inputs) -> np.ndarray:
    """Returns the outputs of every draw, `[chains, draws, rows, outputs]`."""
    samples, rows = _belief(posterior).samples, jnp.asarray(x)
    rows = rows if jnp.issubdtype(rows.dtype, jnp.floating) else rows.astype(jnp.result_type(float))
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
