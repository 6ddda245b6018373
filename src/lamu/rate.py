"""Learning rates: a number, or a schedule of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lamu.promotion import lenient
from lamu.record import record, static
from lamu.typing import Array, Number

__all__ = ["Constant", "Rate", "Scheduled", "decay", "rate"]


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


Rate = Constant | Scheduled


def rate(value: Any, name: str = "learning_rate") -> Rate:
    """Returns a number or a schedule as a rate.

    Args:
        value: a positive number, or a function of the step (the first step is 0).
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
    if isinstance(value, Constant | Scheduled):
        return value
    if isinstance(value, int | float):
        if not value > 0:
            raise ValueError(f"{name}={value!r} would move uphill or not at all; give a positive number")
        return Constant(float(value))
    if callable(value):
        return Scheduled(value)
    if hasattr(value, "dtype"):
        return Constant(value)
    raise TypeError(f"{name}={value!r} is neither a number nor a schedule")


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
