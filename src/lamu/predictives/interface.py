"""Base classes of predictive distributions."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import memory
from lamu.base.arguments import require
from lamu.base.bisection import Ends, search
from lamu.base.compile_once import require_key
from lamu.supports import Support
from lamu.typing import Array, Number, RandomKey, Rows, Targets

__all__ = ["Predictive", "Prepared"]

_FEW_ACTIONS = 64  # up to this number the utilities of all draws are computed at once


class Predictive(ABC):
    r"""Base class of predictive distributions \(p(y^* \mid x^*, D)\) at N new inputs, in the target's original units.

    Shapes: N rows; regression means are `[N]` for one output and `[N, K]` for several, class probabilities `[N, K]`,
    binary probabilities of one `[N]`. All other methods are derived from the abstract ones.
    """

    def __init_subclass__(cls) -> None:
        if "sample" in vars(cls):
            cls.sample = _of_a_key(cls.sample)

    @property
    @abstractmethod
    def support(self) -> Support:
        """The values that the target can take."""

    @property
    @abstractmethod
    def mean(self) -> Array:
        """E[y]: the target's shape; for classes the probabilities."""

    @property
    @abstractmethod
    def variance(self) -> Array:
        """Var[y], in the shape of the mean."""

    @property
    @abstractmethod
    def aleatoric(self) -> Array:
        """The irreducible uncertainty: expected entropy (nats) or expected variance."""

    @property
    @abstractmethod
    def epistemic(self) -> Array:
        """The uncertainty about the parameters: mutual information (nats) or variance of the mean."""

    def warn(self) -> None:  # noqa: B027  (a default)
        """Warns of rows whose prediction means nothing; by default there are none."""

    @abstractmethod
    def log_prob(self, y: Targets) -> Array:
        """Returns the log of the averaged predictive density of each target in nats, shape `[N]`."""

    @abstractmethod
    def cdf(self, y: Targets) -> Array:
        """Returns P(Y ≤ y) in the shape of the mean (regression)."""

    @abstractmethod
    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws of all targets, shape `[n, N]` or `[n, N, K]`.

        Draws of a closed form are of each row alone; for sums and differences of rows, predict by `posterior.joint()`.

        Args:
            key: a random key.
            n: the number of draws.
            first: the number of the first row, where these rows are a part of more: the draws of a row depend on the
                key and the row's number alone.
        """

    deferred: bool | Any = False  # whether it is computed in chunks of rows, outside of compiled functions
    chunk_size: Any = 0  # the number of rows of each chunk; zero for a single chunk, or different ones

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the predictive in chunks that fit into memory, each with its rows; by default itself."""
        yield slice(0, None), self

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        r"""Returns `log_prob(y)` with one draw of the parameters left out at a time.

        Args:
            y: targets.

        Returns:
            For each group of independent draws an array `[draws, N]`, in nats; empty where there are no draws. A group
            of a single draw is NaN.
        """
        return ()

    def monte_carlo_error(self, y: Targets) -> float:
        r"""Returns the Monte Carlo standard error of the mean log predictive density, due to the number of draws.

        The rows share the draws, so their errors do not average out. It is the jackknife over draws, with
        \(\bar l_{-gs}\) the mean over rows of `log_prob(y)` without draw s of group g (a member of an ensemble),

        \[ \sum_g \frac{S_g - 1}{S_g} \sum_s \Big( \bar l_{-gs} - \frac1{S_g} \sum_t \bar l_{-gt} \Big)^2 \]

        which is the square of the result. It assumes independent draws, and underestimates the error for chains.

        Args:
            y: targets.

        Returns:
            Nats a row, the error of `lamu.scores.nll`; zero where nothing is drawn (closed forms, quadrature, a point),
            NaN where a group has one draw.

        Source: Efron & Stein (1981).
        """
        if not self.deferred:
            return jackknife([mean_deviations(group) for group in self.left_out(y)])
        y, sums = jax.tree.map(np.asarray, y), None
        count = len(jax.tree.leaves(y)[0])
        for rows, part in self.chunks():
            groups = part.left_out(jax.tree.map(lambda leaf: jnp.asarray(leaf[rows]), y))  # noqa: B023  (at once)
            deviations = [np.asarray(mean_deviations(group, jnp.ones(group.shape[1], bool)), float) for group in groups]
            sums = deviations if sums is None else [a + b for a, b in zip(sums, deviations, strict=True)]
        return jackknife([group / count for group in sums or ()])

    @property
    def task(self) -> str:
        """The support's task in `lamu fit --task`: "regression", "binary" or "classes"."""
        return self.support.task

    @property
    def std(self) -> Array:
        """The standard deviation of y, in the shape of the mean."""
        return jnp.sqrt(self.variance)

    @property
    def total(self) -> Array:
        """The total uncertainty, aleatoric plus epistemic: entropy in nats (classes) or variance (regression)."""
        return self.aleatoric + self.epistemic

    @property
    def probabilities(self) -> Array:
        """Class probabilities `[N, K]`, two columns for a binary target; raises a TypeError for regression."""
        return jnp.asarray(self.support.probabilities(self.mean))

    def interval(self, level: Number = 0.9) -> tuple[Array, Array]:
        """Returns the central predictive interval of a given probability, for regression.

        Its ends are the quantiles with half of the remaining probability on either side, or less beyond a limit with
        positive probability. For whole numbers the quantiles leave less, too; there the upper end, and then the lower
        one, moves inwards as long as the interval has at least the level.

        Args:
            level: a probability between 0 and 1.

        Returns:
            Lower and upper ends, each in the shape of the mean.

        Raises:
            TypeError: for classes; use `prediction_set`.
            ValueError: for a level outside (0, 1).
        """
        if self.support.has_classes:
            raise TypeError("classes have no interval; use prediction_set(level)")
        level = _probability(level)
        return self._central((1 - level) / 2, (1 + level) / 2, level)

    def _central(self, lower: Any, upper: Any, level: Number) -> tuple[Array, Array]:
        """Returns the quantiles at the ends of an interval, those of whole numbers moved inwards."""
        ends = self.quantile(lower), self.quantile(upper)
        return self._narrowed(ends, level) if self.support.discrete else ends

    def quantile(self, probability: Number) -> Array:
        """Returns the quantile of each target, by bisection of the distribution function (regression).

        It is the smallest y of the support with P(Y ≤ y) ≥ probability: a whole number for counts, and exactly the
        limit where that has positive probability.
        """
        if not self.support.ordered:
            raise TypeError(f"targets that are {self.support.values} have no order, and no quantiles; use sample")
        return self._quantile(_probability(probability))

    def _quantile(self, probability: Number) -> Array:
        spread = 2.0 + 1.0 / (probability * (1 - probability)) ** 0.5  # Cantelli's inequality, with a margin
        most = jnp.finfo(self.mean.dtype).max / 8  # for an infinite mean or variance
        lower, upper = (
            jnp.nan_to_num(self.mean + end * spread * self.std, nan=end * most, posinf=most, neginf=-most)
            for end in (-1.0, 1.0)
        )
        lower, upper = jnp.maximum(lower, -most), jnp.minimum(upper, most)
        room = 0.5 if self.support.discrete else 0.0  # a margin around the first and the last number
        lower = jnp.maximum(lower, self.support.lower - room)
        upper = jnp.minimum(upper, self.support.upper + room)
        is_below, discrete = lambda y: self.cdf(y) < probability, self.support.discrete
        bound = search(is_below, (lower, upper), compiled=not self.deferred, whole=discrete)
        return quantile_in_support(bound, probability, self.support, self.cdf)

    def _narrowed(self, ends: Ends, level: Number) -> Ends:
        """Returns the ends of the narrowest interval of whole numbers with at least the level."""
        lower, upper = ends
        below = self.cdf(lower - 1.0)
        upper = self._first(lambda p: p >= level + below, lower, upper)
        within = self.cdf(upper)
        return self._first(lambda p: p > within - level, lower, upper), upper

    def _first(self, reached: Callable[[Array], Array], lower: Array, upper: Array) -> Array:
        """Returns the first whole number between two at which a predicate of the distribution function is true."""
        outer = lower - 0.5, upper + 0.5
        bound = search(lambda y: ~reached(self.cdf(y)), outer, compiled=not self.deferred, whole=True)
        return _rounded(bound)

    def prediction_set(self, level: Number = 0.9) -> Array:
        """Returns the smallest set of classes whose probability reaches the level, Booleans `[N, K]`.

        Raises:
            TypeError: for regression; use `interval`.
            ValueError: for a level outside (0, 1).
        """
        if not self.support.has_classes:
            raise TypeError("a regression has no classes; use interval(level)")
        return self._set(_probability(level))

    def _set(self, level: Number) -> Array:
        probabilities = self.probabilities
        order = jnp.argsort(-probabilities, axis=-1)
        sorted_probabilities = jnp.take_along_axis(probabilities, order, axis=-1)
        before = jnp.cumsum(sorted_probabilities, axis=-1) - sorted_probabilities
        return jnp.take_along_axis(before < level, jnp.argsort(order, axis=-1), axis=-1)

    def decide(self, utility: object, key: RandomKey | None = None, samples: int = 256) -> Array:
        """Returns the action of greatest expected utility for each target, integers `[N]`.

        Args:
            utility: for classes an array `[actions, classes]`; for regression a function of targets `[draws, N]` that
                returns `[actions, draws, N]`, averaged over draws of y.
            key: for the draws (regression); by default a fixed one, so that a decision can be repeated.
            samples: the number of draws.
        """
        if self.support.has_classes:
            probabilities = self.probabilities
            table = jnp.asarray(utility_table(utility, probabilities.shape[-1]), self.mean.dtype)
            return jnp.argmax(probabilities @ table.T, axis=-1)
        if not isinstance(utility, Callable):
            raise TypeError("for regression the utility is a function of targets [draws, N]")
        targets = self.sample(jax.random.key(0) if key is None else key, samples)
        return jnp.argmax(mean_over_draws(utility, targets), axis=0)


def _rounded(value: Array) -> Array:
    """Returns rounded numbers without −0; the compiler would remove the addition of zero."""
    rounded = jnp.round(value)
    return jnp.where(rounded == 0, 0.0, rounded)


def quantile_in_support(value: Array, probability: Number, support: Support, cdf: Callable[[Array], Array]) -> Array:
    """Rounds a quantile found by bisection to the whole number, or the end of the support, with its probability."""
    if support.discrete:
        return _rounded(value)
    if math.isfinite(support.lower) and support.contains(support.lower):
        least = jnp.full_like(value, support.lower)
        value = jnp.where(cdf(least) < probability, value, least)
    if math.isfinite(support.upper) and support.contains(support.upper):
        most = jnp.full_like(value, support.upper)
        # The next number below zero is subnormal, and would be flushed to zero.
        below = jnp.minimum(jnp.nextafter(most, jnp.full_like(value, -math.inf)), most - jnp.finfo(value.dtype).tiny)
        value = jnp.where(cdf(below) < probability, most, value)
    return value


@runtime_checkable
class Prepared(Protocol):
    """A belief prepared for prediction, with its draws or factored matrices; a pytree."""

    @property
    def support(self) -> Support:
        """The likelihood's support."""
        ...

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        """Returns the predictive of these rows, in memory; the result of a row depends on that row alone."""
        ...


def mean_over_draws(utility: Callable[[Any], Any], targets: Array) -> Any:
    """Returns the mean over draws of a utility, `[actions, N]`, in chunks of draws where memory is short."""
    count, size = targets.shape[0], targets.size * targets.dtype.itemsize
    if isinstance(targets, Tracer) or size <= memory.budget() // _FEW_ACTIONS:
        return _utilities(utility, targets).mean(axis=1)
    values = _utilities(utility, targets[:1])  # for the number of actions
    at_once = max(1, memory.budget() * count // (size * len(values)))
    if at_once >= count:
        return _utilities(utility, targets).mean(axis=1)
    total = 0.0 * values[:, 0]
    for start in range(0, count, at_once):
        total = total + _utilities(utility, targets[start : start + at_once]).sum(axis=1)
    return total / count


def _utilities(utility: Callable[[Any], Any], targets: Array) -> Any:
    """Returns the utilities of actions, `[actions, draws, N]`; raises a ValueError for any other shape."""
    values = utility(targets)
    shape = jnp.shape(values)
    if len(shape) < 3 or shape[1:3] != targets.shape[:2]:
        raise ValueError(f"the utility of targets {targets.shape} has the shape {shape}; return [actions, draws, N]")
    return values


def utility_table(utility: object, classes: int | None = None) -> Any:
    """Returns a finite table of utilities, `[actions, classes]`; raises a ValueError for any other."""
    if isinstance(utility, Tracer):
        return utility
    table = np.asarray(utility, float)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError(f"a utility of shape {table.shape} is not a finite table; give [actions, classes]")
    if classes not in (None, table.shape[1]):
        raise ValueError(f"a utility of shape {table.shape} does not fit; give [actions, {classes}]")
    return table


def mean_deviations(left_out: Array, real: Array | None = None) -> Array:
    """Returns the mean over rows of the change by leaving out each draw, `[draws]`, in nats."""
    # Each row is centred, since the differences are small relative to the densities.
    deviations = left_out - jnp.mean(left_out, axis=0)[None]
    if real is None:
        return jnp.mean(deviations, axis=1)
    return jnp.sum(jnp.where(real[None], deviations, jnp.zeros_like(deviations)), axis=1)


def jackknife(deviations: Any) -> float:
    """Returns the jackknife standard error from independent groups of deviations `[draws]`."""
    parts = (np.asarray(group, float) for group in deviations)
    return float(np.sqrt(sum((len(group) - 1) / len(group) * np.sum(group**2) for group in parts)))


def _probability(level: Any) -> Any:
    if np.ndim(level):
        raise TypeError(f"{level!r} is not a number; ask for one probability at a time")
    require((level > 0) & (level < 1), f"{level!r} is not a probability strictly between 0 and 1; for 90 % write 0.9")
    dtype = jnp.result_type(float)
    rounded = level if isinstance(level, Tracer) else np.asarray(level, dtype)
    require(
        (rounded > 0) & (rounded < 1),
        f"{level!r} rounds to {rounded} in {dtype.name}; use jax.enable_x64(True), or ask less",
    )
    return level


def _of_a_key(sample: Callable[..., Array]) -> Callable[..., Array]:
    """Returns a method that draws, which refuses what is no random key."""

    @functools.wraps(sample)
    def checked(self: Predictive, key: RandomKey, *arguments: Any, **named: Any) -> Array:
        require_key(key)
        return sample(self, key, *arguments, **named)

    return checked
