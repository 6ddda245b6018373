"""Probabilities of a row, each of one event."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor, summed
from lamu.graphs.statistics import Chance
from lamu.record import record
from lamu.typing import Array

__all__ = ["Beta", "BetaFactor"]


def Beta(a: Any, b: Any) -> BetaFactor:
    r"""Returns the factor of probabilities, each of one event.

    \[ (a - 1)\, E\log p + (b - 1)\, E\log(1 - p) - \log B(a, b) \]

    Args:
        a: known positive numbers.
        b: known positive numbers.

    Raises:
        TypeError: for a variable: its density is not affine in it.
        ValueError: for numbers that are not positive.

    Source: Bishop (2006), equation 2.13.

    Examples:
        >>> from lamu import graphs
        >>> m = graphs.Program()
        >>> with m.rows():
        ...     p = m.sample("p", graphs.Beta(1.0, 1.0))
        ...     y = m.sample("y", graphs.Bernoulli(p), plate=5)
        >>> p.shape
        ()
    """
    for name, value in (("a", a), ("b", b)):
        if isinstance(value, Expression):
            raise TypeError(
                f"the {name} of Beta is {', '.join(sorted(value.names))}, in which it has no closed form; give numbers"
            )
        if not np.all(np.asarray(value) > 0):
            raise ValueError(f"the {name} of Beta is {np.min(np.asarray(value)):g}; give positive numbers")
    floating = jnp.result_type(float)
    return BetaFactor(jnp.asarray(a, floating), jnp.asarray(b, floating))


@record
class BetaFactor(Factor):
    """Probabilities, each of one event. Use `Beta`."""

    a: Any  # of the event
    b: Any  # of its complement

    kind = Chance

    @property
    def arguments(self) -> dict[str, Expression]:
        # None.
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(jnp.shape(self.a), jnp.shape(self.b))

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        a, b = self.a, self.b
        return summed((a - 1.0) * x.log + (b - 1.0) * x.log_complement - betaln(a, b), observed)

    def predicted(self, at: Environment) -> tuple[Array, Array]:
        total = self.a + self.b
        return self.a / total, self.a * self.b / (total**2 * (total + 1.0))

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for numbers outside of (0, 1).
        bad = observed & ~((value > 0) & (value < 1))
        if bad.any():
            raise ValueError(f"{name} is {value[bad][0]:g} in a row; give probabilities between 0 and 1")
