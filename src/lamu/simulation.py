r"""Simulation-based calibration: tests an algorithm's posteriors on data simulated from the model.

With θ from the prior and y from the model at θ, θ is a draw of the posterior given y. Its rank among L draws of the
exact posterior is uniform on 0, …, L, for every function of θ. Ranks of too narrow posteriors accumulate at both ends,
those of too wide ones in the middle, those of biased ones at one end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.batch import Batch
from lamu.loop import fit
from lamu.model import Model
from lamu.protocol import Algorithm
from lamu.running.progress import SeveralRuns
from lamu.typing import Array, Belief, Inputs, Params, RandomKey

__all__ = ["Ranks", "simulation_based_calibration"]

_BINS = 10  # of the ranks; not tuned
_OWN = 1_000  # key of a seed for true parameters and ranks; the runs use keys from zero on


@dataclass(frozen=True)
class Ranks:
    """Result of `simulation_based_calibration`.

    Attributes:
        names: the statistics.
        ranks: the number of posterior draws below the truth, `[runs, statistics]`.
        samples: L, the number of draws.

    Examples:
        >>> import numpy as np
        >>> from lamu.simulation import Ranks
        >>> even = Ranks(("f",), np.arange(100)[:, None], 99)
        >>> even.p_value, even.shape[0].tolist()
        (1.0, [10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
    """

    names: tuple[str, ...]
    ranks: np.ndarray
    samples: int

    @property
    def shape(self) -> np.ndarray:
        """The number of ranks in each of ten bins of equal width, `[statistics, 10]`."""
        index = (self.ranks * _BINS) // (self.samples + 1)
        return np.stack([np.bincount(column, minlength=_BINS) for column in index.T])

    @property
    def p_values(self) -> np.ndarray:
        """The p value of each statistic, by a chi-square test of the bins, `[statistics]`."""
        from scipy.stats import chi2

        # Bins contain equally many possible ranks, up to one.
        possible = np.bincount((np.arange(self.samples + 1) * _BINS) // (self.samples + 1), minlength=_BINS)
        expected = len(self.ranks) * possible / (self.samples + 1)
        return chi2.sf(np.sum((self.shape - expected) ** 2 / expected, axis=1), _BINS - 1)

    @property
    def p_value(self) -> float:
        """The smallest p value times the number of statistics (Bonferroni), at most one."""
        return float(min(1.0, self.p_values.min() * len(self.names)))

    @property
    def spread(self) -> np.ndarray:
        """The variance of the ranks over that of uniform ones, `[statistics]`: above one for too narrow posteriors."""
        return self.ranks.var(axis=0) / (((self.samples + 1) ** 2 - 1) / 12)

    def __str__(self) -> str:
        """One line a statistic: its bins, its p value, and the problem."""
        lines = []
        for name, bins, p, spread in zip(self.names, self.shape, self.p_values, self.spread, strict=True):
            wrong = "too narrow" if spread > 1.15 else "too wide" if spread < 0.85 else "shifted"
            verdict = wrong if p * len(self.names) < 0.01 else "uniform"
            lines.append(f"{name:16} {' '.join(f'{each:3d}' for each in bins)}   p = {p:.3g}   {verdict}")
        return "\n".join(lines)


def simulation_based_calibration(
    model: Model,
    algorithm: Algorithm,
    x: Inputs,
    *,
    runs: int = 100,
    samples: int = 99,
    statistics: Callable[[Params], Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> Ranks:
    r"""Returns the ranks of true parameters among draws of an algorithm's posteriors.

    \[ \theta \sim p(\theta), \qquad y_i \sim p(y \mid x_i, \theta), \qquad
       r = \#\{ l : g(\theta^{(l)}) < g(\theta) \}, \quad \theta^{(l)} \sim q(\theta \mid y) \]

    The default statistics g are the network's outputs at the first three rows of x, which are meaningful in every
    model, and the log likelihood of y, which is sensitive to dependencies. It costs one fit a run. Where the likelihood
    has dispersions to learn, θ includes them, drawn from their own prior.

    Draws of a chain must be thinned to be nearly independent, or ranks of an exact posterior accumulate at the ends.

    Args:
        model: network, likelihood and a proper prior; not standardised by the target, which is simulated.
        algorithm: the algorithm under test.
        x: inputs `[N, ...]`.
        runs: the number of runs.
        samples: L; one less than a multiple of ten fills the bins evenly.
        statistics: from parameters `{"network": …, "likelihood": …}` to numbers `[S]`; None for those above.
        seed: of all randomness.
        **options: further options of `lamu.fit`, for instance `epochs`.

    Returns:
        The ranks, with their p values.

    Raises:
        ValueError: for fewer than ten runs.
        NotImplementedError: for a prior, of weights or of dispersions, that cannot be simulated from.

    Source: Talts et al. (2018); Modrák et al. (2023) for the log likelihood.

    Examples:
        >>> import lamu
        >>> x, _ = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
        >>> found = lamu.simulation_based_calibration(model, lamu.algorithms.conjugate(), 20 * x[:40], runs=20)
        >>> found.ranks.shape, found.p_value > 0.01
        ((20, 4), True)
    """
    if runs < 10:
        raise ValueError(f"runs={runs!r} cannot show a distribution; give at least ten")
    x = jnp.asarray(x, jnp.result_type(float))
    # The first run's fit has this seed too, and uses its first keys: with the same keys the truth would equal random
    # numbers of the run under test.
    key = jax.random.fold_in(jax.random.key(seed), _OWN)
    example = Batch.of(x, _placeholder(model, x.shape[0]))
    params, state = model.init(jax.random.fold_in(key, 0), example)

    @jax.jit
    def simulated(key: RandomKey) -> tuple[Params, Array]:
        prior_key, target_key, dispersion_key = jax.random.split(key, 3)
        dispersions = model.likelihood.sample_prior(dispersion_key, params["likelihood"])
        theta = {"network": model.prior.sample(prior_key, params["network"]), "likelihood": dispersions}
        f = model.outputs(theta, state, x)[0]
        return theta, model.likelihood.sample(target_key, dispersions, f)

    def numbers(theta: Params, y: Array) -> Array:
        if statistics is not None:
            return jnp.ravel(jnp.asarray(statistics(theta)))
        batch = Batch.of(x, y)
        outputs = model.outputs(theta, state, x[:3])[0].reshape(-1)
        return jnp.append(outputs, jnp.sum(model.log_likelihood(theta, state, batch)[0]))

    @jax.jit
    def rank(belief: Belief, theta: Params, y: Array, key: RandomKey) -> Array:
        truth = numbers(theta, y)
        below = jax.lax.map(
            lambda i: numbers(belief.sample(jax.random.fold_in(key, i)), y) < truth, jnp.arange(samples)
        )
        return jnp.sum(below, axis=0)

    ranks = []
    with SeveralRuns(runs, options.get("progress"), "simulations"):
        for run in range(runs):
            theta, y = simulated(jax.random.fold_in(jax.random.fold_in(key, 1), run))
            posterior = fit(model, (x, np.asarray(y)), algorithm, seed=seed + run, **options).posterior
            rank_key = jax.random.fold_in(jax.random.fold_in(key, 2), run)
            ranks.append(np.asarray(rank(posterior.belief, theta, y, rank_key)))
    stacked = np.stack(ranks)
    if statistics is None:
        width = (stacked.shape[1] - 1) // min(3, x.shape[0])
        names = [f"f(x{i})" if width == 1 else f"f(x{i})[{k}]" for i in range(min(3, x.shape[0])) for k in range(width)]
        return Ranks((*names, "log likelihood"), stacked, samples)
    return Ranks(tuple(f"statistic {j}" for j in range(stacked.shape[1])), stacked, samples)


def _placeholder(model: Model, rows: int) -> Array:
    """Returns targets of zeros in the support's dtype."""
    return model.likelihood.support.zeros(rows)
