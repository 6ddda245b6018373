r"""Successes in as many trials as each row has, from the prediction of one trial."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.bisection import bisect
from lamu.predictives.chunking import draw_in_chunks, row_keys
from lamu.predictives.interface import Predictive
from lamu.predictives.wrapper import PredictiveWrapper
from lamu.record import record
from lamu.supports import Counts, Support, value_of
from lamu.typing import Array, RandomKey

__all__ = ["OfTrials", "with_trials"]

_FEW = 1024


@record
class OfTrials(PredictiveWrapper):
    r"""\(p(y^* \mid n) = \int \mathrm{Binomial}(y^* \mid n, p)\, q(p)\, dp\), with n of each row.

    With \(a\) the aleatoric and \(e\) the epistemic variance of one trial, those of n are \(n a\) and \(n^2 e\): the
    trials of a row share what is not known of its probability. Draws of several rows are independent.

    Attributes:
        base: the prediction of one trial a row.
        trials: n, `[N]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Binomial
        >>> from lamu.predictives import MixturePredictive
        >>> from lamu.predictives.trials import OfTrials
        >>> pred = OfTrials(MixturePredictive.equal(Binomial(), {}, jnp.zeros((1, 2, 1))), jnp.array([1.0, 10.0]))
        >>> pred.mean.tolist(), pred.interval(0.9)[1].tolist()
        ([0.5, 5.0], [1.0, 7.0])
    """

    base: Predictive
    trials: Array

    @property
    def support(self) -> Support:
        """Whole numbers; no row has more than its trials."""
        return Counts()

    @property
    def mean(self) -> Array:
        """The trials times the probability."""
        return self._n * self.base.mean

    @property
    def variance(self) -> Array:
        """The sum of both parts."""
        return self.aleatoric + self.epistemic

    @property
    def aleatoric(self) -> Array:
        """That of as many trials."""
        return self._n * self.base.aleatoric

    @property
    def epistemic(self) -> Array:
        """The variance of the mean."""
        return self._n**2 * self.base.epistemic

    def of_rows(self, rows: slice, part: Predictive) -> OfTrials:
        """Returns some rows, with their trials."""
        return OfTrials(part, self.trials[rows])

    def log_prob(self, y: Any) -> Array:
        """Returns the log probability of the successes in nats, `[N]`; −∞ of more successes than trials."""
        return self._possible(y, super().log_prob(y))

    def left_out(self, y: Any) -> tuple[Array, ...]:
        return tuple(jax.vmap(lambda each: self._possible(y, each))(group) for group in super().left_out(y))

    def target_rows(self, y: Any) -> dict[str, Array]:
        """Returns the successes, no more than the trials, with the trials."""
        trials = jnp.asarray(self.trials)
        y = jnp.asarray(value_of(y))
        return {"value": jnp.minimum(y, trials.astype(y.dtype)), "trials": trials}

    def cdf(self, y: Any) -> Array:
        # At its trials, and above, a row's distribution function is one.
        return super().cdf(jnp.broadcast_to(value_of(y), jnp.shape(self.trials)))

    def quantile(self, probability: float) -> Array:
        """Returns the quantile of each row, a whole number."""
        if not self.deferred:
            return Predictive.quantile(self, probability)
        return jnp.concatenate([part.quantile(probability) for _, part in self.chunks()])

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws, `[n, N]`, by inverting the distribution function."""
        if self.deferred:
            parts = [part.sample(jax.random.clone(key), n, first + rows.start) for rows, part in self.chunks()]
            return jnp.concatenate(parts, axis=1)
        dtype, most = self.base.mean.dtype, int(np.max(self.trials))
        # Of few counts all at once, since each distribution function costs more than a search among its values.
        below = jax.lax.map(self.cdf, jnp.arange(most, dtype=dtype)) if most <= _FEW else None

        def draw(key: RandomKey) -> Array:
            keys = row_keys(key, len(self.trials), first)
            uniform = jax.vmap(lambda key: jax.random.uniform(key, (), dtype))(keys)
            if below is not None:
                return jnp.sum(below < uniform[None], axis=0).astype(dtype)
            ends = jnp.full_like(self._n, -0.5), self._n + 0.5
            steps = math.ceil(math.log2(most + 1)) + 1  # until no two whole numbers are left
            return jnp.round(bisect(lambda y: self.cdf(y) < uniform, ends, steps)) + 0.0

        return draw_in_chunks(draw, jax.random.split(key, n))

    def _possible(self, y: Any, densities: Array) -> Array:
        return jnp.where(jnp.asarray(value_of(y)) > jnp.asarray(self.trials), -jnp.inf, densities)

    @property
    def _n(self) -> Array:
        return jnp.asarray(self.trials).astype(self.base.mean.dtype)


def with_trials(inputs: Any, likelihood: Any) -> tuple[Any, Any]:
    """Returns the inputs of a prediction and the trials of its rows, None where they bring none."""
    if not isinstance(inputs, Mapping):
        return inputs, None
    if not likelihood.takes_trials:
        raise ValueError(
            f"the inputs bring {sorted(map(str, inputs))}, and a prediction of {likelihood.name} needs x alone; pass x"
        )
    if set(inputs) != {"x", "trials"}:
        raise ValueError(
            f"the inputs bring {sorted(map(str, inputs))}, and a prediction of {likelihood.name} needs 'x' and "
            "'trials'; pass {'x': x, 'trials': n}, or x alone for one trial a row"
        )
    x, trials = inputs["x"], inputs["trials"]
    if isinstance(trials, Tracer):
        return x, trials
    trials = np.asarray(trials)
    Counts().check(np.atleast_1d(trials), f"the trials of {likelihood.name}")
    if trials.ndim and trials.shape != (len(x),):
        raise ValueError(f"the trials have the shape {trials.shape} and x {len(x)} rows; give one number a row")
    return x, np.broadcast_to(trials, (len(x),))
