"""Rates of steps and of running averages: constants, schedules, and rates for runs of unknown length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp

from lamu.base.arguments import number, require
from lamu.base.compile_once import lenient
from lamu.record import record, static
from lamu.typing import Array, Number, Numeric, PyTree

__all__ = [
    "Annealed",
    "Constant",
    "PolynomialAverage",
    "PolynomialDecay",
    "Rate",
    "Scheduled",
    "WarmRestarts",
    "averaging",
    "decay",
    "over",
    "rate",
]


@record
class Constant:
    """A constant rate; a pytree leaf, so that changing it does not recompile.

    Examples:
        >>> from lamu.rate import Constant
        >>> Constant(0.1)(3)
        0.1
    """

    value: Number

    def __call__(self, step: Numeric) -> Number:
        """Returns the rate."""
        return self.value


@record
class Scheduled:
    """A rate given by a function of the step, for instance one of `optax.schedules`.

    Examples:
        >>> from lamu.rate import Scheduled
        >>> float(Scheduled(lambda step: 0.5 ** step)(1))
        0.5
    """

    schedule: Callable[[Any], Any] = static()

    def __call__(self, step: Numeric) -> Array:
        """Returns the rate at this step, the first being 0."""
        with lenient():
            return jnp.asarray(self.schedule(step), jnp.result_type(float))


@record
class PolynomialDecay:
    r"""A rate that falls as a power of the step, as stochastic approximation requires.

    \[ \rho_t = c\,\big(\tau + \max(t - t_0, 0)\big)^{-\kappa} \]

    Attributes:
        power: κ, above one half and at most one.
        delay: τ, positive.
        scale: c.
        hold: \(t_0\), the number of steps at the first rate.

    Source: Robbins & Monro (1951); Hoffman et al. (2013), equation 26.

    Examples:
        >>> from lamu.rate import PolynomialDecay
        >>> [float(PolynomialDecay()(step)) for step in (0, 1, 3)]
        [1.0, 0.5, 0.25]
    """

    power: Number = 1.0
    delay: Number = 1.0
    scale: Number = 1.0
    hold: Number = 0.0

    def __call__(self, step: Numeric) -> Array:
        """Returns the rate at this step, the first being 0."""
        with lenient():
            return jnp.asarray(self.scale * (self.delay + jnp.maximum(step - self.hold, 0.0)) ** -self.power)


@record
class Annealed:
    r"""Cosine annealing: a rate that falls to zero along half a cosine over n steps, after a warm-up.

    \[ \rho_t = \tfrac12 \rho_0 \min\big((t + 1) / (w n),\, 1\big) \big(1 + \cos(\pi \min(t / n, 1))\big) \]

    With a constant rate the mean keeps fluctuating around its optimum, and the noise of the data is then overestimated.
    `lamu.fit` sets the length of its run; in a loop of one's own, call `over`. A warm-up is for beliefs whose initial
    precision is a guess: steps scaled by it are too long until it has been learned.

    Attributes:
        start: \(\rho_0\).
        steps: n; None where it is not known, and then the rate is constant.
        warmup: w, the share of the run over which the rate rises; zero for none.

    Source: Loshchilov & Hutter (2017), without restarts.

    Examples:
        >>> from lamu.rate import Annealed
        >>> [round(float(Annealed(0.1, steps=4)(t)), 3) for t in range(5)]
        [0.1, 0.085, 0.05, 0.015, 0.0]
    """

    start: Number
    steps: Any = None
    warmup: Number = 0.0

    def __post_init__(self) -> None:
        if (start := number(self.start)) is not None:
            _require_positive(start, "start")

    def __call__(self, step: Numeric) -> Number:
        """Returns the rate at this step, the first being 0."""
        if self.steps is None:
            return self.start
        t = jnp.asarray(step, jnp.result_type(float))
        # The smallest positive number keeps the division defined without a warm-up.
        warm = jnp.minimum((t + 1.0) / jnp.maximum(self.warmup * self.steps, 1e-6), 1.0)
        return self.start * warm * (1.0 + jnp.cos(jnp.pi * jnp.minimum(t / self.steps, 1.0))) / 2.0


@record
class WarmRestarts:
    r"""Cosine annealing with warm restarts, each time over twice as many steps.

    Period c has \(2^c n\) steps and ends at step \((2^{c+1} - 1)\, n\); with t the steps since it began, \(\rho =
    \tfrac12 \rho_0 (1 + \cos(\pi t / 2^c n))\). A run of unknown length may stop at the end of any period, with half of
    all its steps in the last one.

    Attributes:
        base: the rate of the first period, `Annealed`, whose `steps` are n.

    Source: Loshchilov & Hutter (2017), equation 5, with \(T_{mult} = 2\).

    Examples:
        >>> from lamu.rate import Annealed, WarmRestarts
        >>> rate = WarmRestarts(Annealed(0.1, steps=2))
        >>> [round(float(rate(t)), 3) for t in range(8)]
        [0.1, 0.05, 0.1, 0.085, 0.05, 0.015, 0.1, 0.096]
    """

    base: Annealed

    def __call__(self, step: Numeric) -> Number:
        """Returns the rate at this step, the first being 0."""
        length, since = self.period(step)
        return replace(self.base, steps=length)(since)

    def period(self, step: Numeric) -> tuple[Array, Array]:
        """Returns the length of the period of this step, and the number of its earlier steps."""
        t = jnp.asarray(step, jnp.result_type(float))
        # Half a step keeps the logarithm of the first step of a period on the right side of an integer.
        length = self.base.steps * 2.0 ** jnp.floor(jnp.log2((t + 0.5) / self.base.steps + 1.0))
        return length, t - (length - self.base.steps)


@record
class PolynomialAverage:
    r"""The rate \(\rho_t = k / (t + k + n_0)\) of a running average that forgets its start.

    \[ \bar h \leftarrow \bar h + \rho_t (h_t - \bar h) \quad\Longrightarrow\quad
       \bar h_n \approx \sum_t w_t h_t \Big/ \sum_t w_t, \qquad w_t \propto t^{k-1} \]

    An average with a constant rate ρ depends on its start for \(1/\rho\) steps however short the run, and covers no
    more than \(1/\rho\) steps however long it is. This one covers the last k-th part of a run of any length, and the
    share of the start is at most \((n_0/n)^k\): below 1 % after four times \(n_0\) steps at k = 4.

    Attributes:
        power: k.
        start: \(n_0\), the weight of the start in steps.

    Raises:
        ValueError: for a power or a start that is not positive.

    Source: Shamir & Zhang (2013), section 4, polynomial-decay averaging.

    Examples:
        >>> from lamu.rate import PolynomialAverage
        >>> [round(float(PolynomialAverage(power=4.0, start=20.0)(t)), 3) for t in (0, 100, 1000)]
        [0.167, 0.032, 0.004]
    """

    power: Number = 4.0
    start: Number = 20.0

    def __post_init__(self) -> None:
        for name in ("power", "start"):
            value = getattr(self, name)
            possible = (value > 0) & (value < math.inf)
            require(possible, f"PolynomialAverage({name}={value!r}) is not an average; give a positive number")

    def __call__(self, step: Numeric) -> Number:
        """Returns the rate at this step, the first being 0."""
        return self.power / (jnp.asarray(step, jnp.result_type(float)) + self.power + self.start)


Rate = Constant | Scheduled | Annealed | WarmRestarts | PolynomialAverage | PolynomialDecay

# The argument of `rate`: a type for checkers; at run time any value, which `rate` validates.
if TYPE_CHECKING:
    RateLike: TypeAlias = Number | Rate | Callable[[Array], Numeric]
else:
    RateLike = Any


def over(steps: int | None, algorithm: Any, restarts: bool = False) -> Any:
    """Returns the algorithm with its annealed rates set to this number of steps, where they have none yet.

    Args:
        steps: the length of the run, or of its first period; None where it is not known.
        algorithm: an algorithm; one that is not a record is returned unchanged.
        restarts: whether the rates restart at the end, each time over twice as many steps.

    Examples:
        >>> import lamu
        >>> from lamu.rate import over
        >>> over(100, lamu.algorithms.ivon()).learning_rate.steps
        100.0
    """
    if steps is None:
        return algorithm

    def fill(part: PyTree) -> PyTree:
        if not isinstance(part, Annealed) or part.steps is not None:
            return part
        filled = replace(part, steps=float(steps))
        return WarmRestarts(filled) if restarts else filled

    return jax.tree.map(fill, algorithm, is_leaf=lambda part: isinstance(part, Annealed | WarmRestarts))


def has_open_rates(algorithm: Any) -> bool:
    """Returns whether an annealed rate of an algorithm waits for the length of its run."""
    parts = jax.tree.leaves(algorithm, is_leaf=lambda part: isinstance(part, Annealed))
    return any(isinstance(part, Annealed) and part.steps is None for part in parts)


def averaging(value: RateLike, name: str) -> Rate:
    r"""Returns the rate of a moving average: \(1 - \beta\) for a decay β; rates are returned unchanged.

    Args:
        value: a number in [0, 1), or a rate, for instance `PolynomialAverage()`.
        name: the name of the argument, for the message.

    Raises:
        ValueError: for a number outside [0, 1).

    Examples:
        >>> from lamu.rate import averaging
        >>> averaging(0.75, "b2").value
        0.25
    """
    if (constant := number(value)) is not None:
        return rate(1.0 - decay(constant, name), f"1 - {name}")
    return rate(value, name)


def rate(value: Any, name: str = "learning_rate") -> Rate:
    """Returns a number or a schedule as a rate.

    Args:
        value: a positive number, a function of the step (the first step is 0), or `Annealed`.
        name: the name of the argument, for the message.

    Raises:
        ValueError: for a rate that is not positive.
        TypeError: for anything else.

    Examples:
        >>> from lamu.rate import rate
        >>> rate(-0.1)
        Traceback (most recent call last):
            ...
        ValueError: learning_rate=-0.1 would move uphill or not at all; give a positive number
    """
    if isinstance(value, Constant | Scheduled | Annealed | WarmRestarts | PolynomialAverage | PolynomialDecay):
        return value
    if (constant := number(value)) is not None:
        _require_positive(constant, name)
        return Constant(constant)
    if callable(value):
        return Scheduled(value)
    if hasattr(value, "dtype"):
        return Constant(value)
    raise TypeError(f"{name}={value!r} is neither a number nor a schedule")


def _require_positive(value: float, name: str) -> None:
    if not value > 0:
        raise ValueError(f"{name}={value!r} would move uphill or not at all; give a positive number")
    if value == math.inf:
        raise ValueError(f"{name}={value!r} must be finite")


def decay(value: float, name: str) -> float:
    """Checks the decay of a moving average and returns it as a float.

    Args:
        value: a number in [0, 1).
        name: the name of the argument, for the message.

    Raises:
        ValueError: for any other number.

    Examples:
        >>> from lamu.rate import decay
        >>> decay(0.9, "b1")
        0.9
    """
    if not 0 <= value < 1:
        raise ValueError(f"{name}={value!r} would never forget; give a number in [0, 1)")
    return float(value)
