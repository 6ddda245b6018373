"""Wrappers of predictives, and their base class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.base.bisection import bisect
from lamu.base.compile_once import row_keys
from lamu.likelihoods import Likelihood, PerPosition
from lamu.predictives.interface import Predictive
from lamu.predictives.lazy import draw_in_chunks
from lamu.record import record, static
from lamu.supports import Counts, Support, value_of
from lamu.typing import Array, Inputs, Number, RandomKey, Targets

__all__ = ["AtPositions", "Moved", "OfTrials", "PredictiveWrapper", "RescaledPredictive", "at_positions", "with_trials"]


class PredictiveWrapper(Predictive):
    """Base class of predictive wrappers: forwards every member of `Predictive` to `base`."""

    # A wrapper overrides the members that it changes. Members that `Predictive` derives from others (standard
    # deviation, interval, decision, ...) are derived from the wrapper's own. A wrapper with another distribution
    # overrides moments, `log_prob`, `left_out`, `cdf`, `quantile` and `sample` together; one with numbers for each row
    # overrides `of_rows`, and one with another shape of targets `target_rows` and `arranged`.

    base: Any

    @property
    def support(self) -> Support:
        return self.base.support

    @property
    def mean(self) -> Array:
        return self.arranged(self.base.mean)

    @property
    def variance(self) -> Array:
        return self.arranged(self.base.variance)

    @property
    def aleatoric(self) -> Array:
        return self.arranged(self.base.aleatoric)

    @property
    def epistemic(self) -> Array:
        return self.arranged(self.base.epistemic)

    def warn(self) -> None:
        self.base.warn()

    def log_prob(self, y: Targets) -> Array:
        return self.base.log_prob(self.target_rows(y))

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        return self.base.left_out(self.target_rows(y))

    def cdf(self, y: Targets) -> Array:
        return self.arranged(self.base.cdf(self.target_rows(y)))

    def quantile(self, probability: Number) -> Array:
        return self.arranged(self.base.quantile(probability))

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        return self.base.sample(key, n, first)

    @property
    def deferred(self) -> bool:
        """Whether the base is computed in chunks of rows."""
        return bool(self.base.deferred)

    @property
    def chunk_size(self) -> int:
        """The number of rows of each chunk of the base."""
        return self.base.chunk_size

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the prediction in the chunks of the base."""
        for rows, part in self.base.chunks():
            yield rows, self.of_rows(rows, part)

    def of_rows(self, rows: slice, part: Predictive) -> Predictive:
        """Returns the same wrapper around the base's prediction of some rows.

        Args:
            rows: the rows.
            part: the base's prediction of them.
        """
        wrapper: Any = self  # a record, like every wrapper
        return replace(wrapper, base=part)

    def target_rows(self, y: Targets) -> Targets:
        """Returns targets in the form of the base."""
        return y

    def arranged(self, values: Array) -> Array:
        """Returns values of the base, one a target, in the shape of the wrapper's targets."""
        return values


class RescaledPredictive(PredictiveWrapper):
    r"""The distribution of \(a + b\, y^*\), with \(y^*\) of a regression and \(b > 0\), all in the mean's shape."""

    # For a censored row (`censored`, or `value` and `upper`) the density is a probability without a unit: the base's.

    @property
    def factors(self) -> Array:
        """The factors b, in the shape of the mean."""
        raise NotImplementedError

    def forward(self, values: Array) -> Array:
        """Returns a + b y* of values in the shape of the mean."""
        raise NotImplementedError

    def backward(self, y: Array) -> Array:
        """Returns (y − a)/b of targets in the shape of the mean."""
        raise NotImplementedError

    @property
    def mean(self) -> Array:
        # A + b E[y*].
        return self.forward(self.base.mean)

    @property
    def variance(self) -> Array:
        """b² Var[y*]."""
        return self.factors**2 * self.base.variance

    @property
    def aleatoric(self) -> Array:
        """b² times the base's."""
        return self.factors**2 * self.base.aleatoric

    @property
    def epistemic(self) -> Array:
        """b² times the base's."""
        return self.factors**2 * self.base.epistemic

    def log_prob(self, y: Targets) -> Array:
        """Returns the log density in nats, `[N]`; for a censored row the log of a probability."""
        return super().log_prob(y) - self._log_units(y)

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        units = self._log_units(y)[None]
        return tuple(group - units for group in super().left_out(y))

    def quantile(self, probability: Number) -> Array:
        """Returns the quantile of each target, from the base's."""
        return self.forward(self.base.quantile(probability))

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws of the base, shifted and scaled."""
        return jax.vmap(self.forward)(self.base.sample(key, n, first))

    def target_rows(self, y: Targets) -> Targets:
        """Returns the targets of the base, including upper ends of ranges."""
        if isinstance(y, Mapping):
            return {name: self.target_rows(part) if name in ("value", "upper") else part for name, part in y.items()}
        return self.backward(jnp.asarray(y))

    def _log_units(self, y: Targets) -> Array:
        """Returns the log Jacobian of each row, `[N]`."""
        units = jnp.log(self.factors)
        units = units.reshape(len(units), -1).sum(axis=1)
        in_range = jnp.zeros(units.shape, bool)
        if isinstance(y, Mapping) and "censored" in y:
            in_range = jnp.asarray(y["censored"]) == 1
        if isinstance(y, Mapping) and "upper" in y:
            in_range = jnp.asarray(y["upper"]) > jnp.asarray(y["value"])
        return jnp.where(in_range, jnp.zeros_like(units), units)


@record
class Moved(RescaledPredictive):
    r"""The distribution of \(a + b\, y^*\), with \(y^*\) of a regression."""

    base: Any  # the predictive of y*
    shift: Array  # a, in the shape of the mean
    scale: Array  # b, positive, in the shape of the mean

    @property
    def factors(self) -> Array:
        # The field `scale`.
        return self.scale

    def forward(self, values: Array) -> Array:
        return self.shift + self.scale * values

    def backward(self, y: Array) -> Array:
        return (y - self.shift) / self.scale

    def of_rows(self, rows: slice, part: Predictive) -> Moved:
        # Returns some rows, with their shifts and scales.
        return Moved(part, self.shift[rows], self.scale[rows])


@record
class AtPositions(PredictiveWrapper):
    r"""\(p(y^* \mid x^*) = \prod_p p(y_p^* \mid x^*)\), with maps as means and one density a row.

    Draws of two positions of a row are independent.

    Attributes:
        base: the prediction of `N * positions` rows, with the positions of a row adjacent.
        positions: the shape of the targets of one row.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import AtPositions, ClassProbabilities
        >>> pixels = ClassProbabilities(jnp.log(jnp.full((8, 2), 0.5)), jnp.full(8, 0.5))
        >>> pred = AtPositions(pixels, (2, 2))
        >>> pred.mean.shape, pred.epistemic.shape, pred.log_prob(jnp.zeros((2, 2, 2))).shape
        ((2, 2, 2, 2), (2, 2, 2), (2,))
    """

    base: Predictive
    positions: tuple[int, ...] = static()

    def log_prob(self, y: Targets) -> Array:
        """Returns the sum over positions in nats, `[N]`."""
        return super().log_prob(y).reshape(-1, self._count).sum(axis=1)

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        return tuple(group.reshape(len(group), -1, self._count).sum(axis=2) for group in super().left_out(y))

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws of all targets, `[n, N, *positions]`."""
        drawn = self.base.sample(key, n, first * self._count)
        return drawn.reshape(n, -1, *self.positions, *drawn.shape[2:])

    @property
    def chunk_size(self) -> int:
        """The number of rows of each chunk, where chunks do not split rows; else all are one chunk."""
        return 0 if self.base.chunk_size % self._count else self.base.chunk_size // self._count

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the prediction in chunks of whole rows, or of all at once."""
        if not self.chunk_size:
            yield slice(0, None), self
            return
        for rows, part in self.base.chunks():
            yield slice(rows.start // self._count, rows.stop // self._count), AtPositions(part, self.positions)

    def target_rows(self, y: Targets) -> Array:
        """Returns the targets of all positions as rows."""
        y = jnp.asarray(y)
        return y.reshape(-1, *y.shape[1 + len(self.positions) :])

    @property
    def _count(self) -> int:
        return math.prod(self.positions)

    def arranged(self, values: Array) -> Array:
        return values.reshape(-1, *self.positions, *values.shape[1:])


def at_positions(each: Predictive, likelihood: Likelihood) -> Predictive:
    """Returns the prediction of whole rows from that of their positions; unchanged for a single position."""
    return AtPositions(each, likelihood.positions) if isinstance(likelihood, PerPosition) else each


_FEW = 1024  # counts whose distribution function is stored; not measured


@record
class OfTrials(PredictiveWrapper):
    r"""\(p(y^* \mid n) = \int \mathrm{Binomial}(y^* \mid n, p)\, q(p)\, dp\), with n of each row.

    With \(a\) the aleatoric and \(e\) the epistemic variance of one trial, those of n are \(n a\) and \(n^2 e\): the
    trials of a row share the uncertainty about its probability. Draws of several rows are independent.

    Attributes:
        base: the prediction of one trial a row.
        trials: n, `[N]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Binomial
        >>> from lamu.predictives import MixturePredictive
        >>> from lamu.predictives.wrapper import OfTrials
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
        """The aleatoric variance of the trials."""
        return self._n * self.base.aleatoric

    @property
    def epistemic(self) -> Array:
        """The variance of the mean."""
        return self._n**2 * self.base.epistemic

    def of_rows(self, rows: slice, part: Predictive) -> OfTrials:
        """Returns some rows, with their trials."""
        return OfTrials(part, self.trials[rows])

    def log_prob(self, y: Targets) -> Array:
        """Returns the log probability of the successes in nats, `[N]`; −∞ of more successes than trials."""
        return self._possible(y, super().log_prob(y))

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        return tuple(jax.vmap(lambda each: self._possible(y, each))(group) for group in super().left_out(y))

    def target_rows(self, y: Targets) -> dict[str, Array]:
        """Returns the successes, no more than the trials, with the trials."""
        trials = jnp.asarray(self.trials)
        y = jnp.asarray(value_of(y))
        return {"value": jnp.minimum(y, trials.astype(y.dtype)), "trials": trials}

    def cdf(self, y: Targets) -> Array:
        # At its trials, and above, a row's distribution function is one.
        return super().cdf(jnp.broadcast_to(value_of(y), jnp.shape(self.trials)))

    def quantile(self, probability: Number) -> Array:
        """Returns the quantile of each row, a whole number."""
        if not self.deferred:
            return Predictive.quantile(self, probability)
        return jnp.concatenate([part.quantile(probability) for _, part in self.chunks()])

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws, `[n, N]`, by inverting the distribution function."""
        if self.deferred:
            parts = [part.sample(jax.random.clone(key), n, first + rows.start) for rows, part in self.chunks()]
            return jnp.concatenate(parts, axis=1)
        dtype, most = self.base.mean.dtype, int(np.max(self.trials))
        # For few counts all values at once, since a distribution function costs more than a search among its values.
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

    def _possible(self, y: Targets, densities: Array) -> Array:
        return jnp.where(jnp.asarray(value_of(y)) > jnp.asarray(self.trials), -jnp.inf, densities)

    @property
    def _n(self) -> Array:
        return jnp.asarray(self.trials).astype(self.base.mean.dtype)


def with_trials(inputs: Inputs, likelihood: Likelihood) -> tuple[Inputs, Any]:
    """Returns the inputs of a prediction and the trials of its rows, None where there are none."""
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
