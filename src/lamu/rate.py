"""Learning rates: a number, a schedule of steps, or a start that falls to zero over the run, however long it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.promotion import lenient
from lamu.record import record, static
from lamu.typing import Array, Number

__all__ = ["Annealed", "Constant", "Rate", "Scheduled", "decay", "over", "rate"]


@record
class Constant:
    """The same rate at every step; a leaf, so that changing it recompiles nothing.

    Examples:
        >>> from lamu.rate import Constant
        >>> Constant(0.1)(3)
        0.1
    """

    value: Number

    def __call__(self, step: Any) -> Number:
        """Returns the rate."""
        return self.value


@record
class Scheduled:
    """A rate that a function of the step gives, for instance one of `optax.schedules`.

    Examples:
        >>> from lamu.rate import Scheduled
        >>> float(Scheduled(lambda step: 0.5 ** step)(1))
        0.5
    """

    schedule: Callable[[Any], Any] = static()

    def __call__(self, step: Any) -> Array:
        """Returns the rate at this step, the first being 0."""
        with lenient():
            return jnp.asarray(self.schedule(step), jnp.result_type(float))


@record
class Annealed:
    r"""A rate that falls from its start to zero along half a cosine, over a run of n steps, after a warm-up.

    \[ \rho_t = \tfrac12 \rho_0 \min\big((t + 1) / (w n),\, 1\big) \big(1 + \cos(\pi \min(t / n, 1))\big) \]

    A constant rate leaves the mean jittering about where it should come to rest, which looks like noise in the data and
    is then learned as such. `lamu.fit` knows the length of its run and fills it in; in a loop of one's own, `over`
    does. A warm-up is for beliefs whose precision is a guess in the beginning: steps in its units are too long until it
    has been learned.

    Attributes:
        start: \(\rho_0\).
        steps: n; None where nobody knows it (yet), and then the rate is constant.
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
        if isinstance(self.start, int | float):
            _require_positive(self.start, "start")

    def __call__(self, step: Any) -> Any:
        """Returns the rate at this step, the first being 0."""
        if self.steps is None:
            return self.start
        t = jnp.asarray(step, jnp.result_type(float))
        # The smallest share keeps the division defined where there is no warm-up.
        warm = jnp.minimum((t + 1.0) / jnp.maximum(self.warmup * self.steps, 1e-6), 1.0)
        return self.start * warm * (1.0 + jnp.cos(jnp.pi * jnp.minimum(t / self.steps, 1.0))) / 2.0


Rate = Constant | Scheduled | Annealed


def over(steps: int | None, algorithm: Any) -> Any:
    """Returns the algorithm with the rates that are annealed, and do not know their run yet, over this many steps.

    Args:
        steps: the length of the run; None where nobody knows it.
        algorithm: an algorithm; one that is no record is returned as it is.

    Examples:
        >>> import lamu
        >>> from lamu.rate import over
        >>> over(100, lamu.algorithms.ivon()).learning_rate.steps
        100.0
    """
    if steps is None:
        return algorithm

    def fill(part: Any) -> Any:
        return replace(part, steps=float(steps)) if isinstance(part, Annealed) and part.steps is None else part

    return jax.tree.map(fill, algorithm, is_leaf=lambda part: isinstance(part, Annealed))


def rate(value: Any, name: str = "learning_rate") -> Rate:
    """Returns a number or a schedule as a rate.

    Args:
        value: a positive number, a function of the step (the first step is 0), or `Annealed`.
        name: what the argument is called, for the message.

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
    if isinstance(value, Constant | Scheduled | Annealed):
        return value
    if isinstance(value, int | float):
        _require_positive(value, name)
        return Constant(float(value))
    if callable(value):
        return Scheduled(value)
    if hasattr(value, "dtype"):
        return Constant(value)
    raise TypeError(f"{name}={value!r} is neither a number nor a schedule")


def _require_positive(value: float, name: str) -> None:
    if not value > 0:
        raise ValueError(f"{name}={value!r} would move uphill or not at all; give a positive number")


def decay(value: float, name: str) -> float:
    """Returns the decay of a moving average as a float, after a look at its range.

    Args:
        value: a number in [0, 1).
        name: what the argument is called, for the message.

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
