r"""What practical algorithms add to the rule: momentum, bias correction, square roots. Each is named where it is used.

A *momentum* turns the sequence of gradients into the sequence that is followed. A *metric* turns the precision and a
gradient into a direction; the rule's own is S⁻¹. A momentum is `normalised` where it gives a constant gradient back.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Array, Number, Params

__all__ = ["BiasCorrected", "Inverse", "MovingAverage", "NoMomentum", "SquareRoot", "Trace"]


@record
class NoMomentum:
    """The gradient itself.

    Examples:
        >>> from lamu.departures import NoMomentum
        >>> NoMomentum().follow({}, {"w": 1.0}, 1)
        ({}, {'w': 1.0})
    """

    departure = ""
    normalised = True

    def init(self, like: Params) -> Params:
        """Returns an empty memory."""
        return {}

    def follow(self, memory: Params, gradient: Params, count: Any) -> tuple[Params, Params]:
        """Returns the memory and the gradient to follow at step `count` (the first is 1)."""
        return memory, gradient


@record
class Trace:
    r"""Heavy-ball momentum: \(v \leftarrow g + \beta v\), and v is followed.

    Attributes:
        decay: β.

    Examples:
        >>> from lamu.departures import Trace
        >>> Trace(0.5).follow({"w": 2.0}, {"w": 1.0}, 1)[1]
        {'w': 2.0}
    """

    decay: Number

    departure = "momentum"
    normalised = False

    def init(self, like: Params) -> Params:
        """Returns the zero vector."""
        return tree.zeros_like(like)

    def follow(self, memory: Params, gradient: Params, count: Any) -> tuple[Params, Params]:
        """Returns the new memory, which is what is followed."""
        memory = tree.add(gradient, memory, self.decay)
        return memory, memory


@record
class MovingAverage:
    r"""Averaged gradients, corrected for the start at zero.

    \[ v \leftarrow \beta v + (1-\beta) g, \qquad \text{followed:}\quad v / (1 - \beta^t) \]

    Attributes:
        decay: β.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.departures import MovingAverage
        >>> _, followed = MovingAverage(0.5).follow({"w": jnp.zeros(2)}, {"w": jnp.ones(2)}, 1)
        >>> followed["w"].tolist()
        [1.0, 1.0]
    """

    decay: Number

    departure = "momentum with bias correction"
    normalised = True

    def init(self, like: Params) -> Params:
        """Returns the zero vector."""
        return tree.zeros_like(like)

    def follow(self, memory: Params, gradient: Params, count: Any) -> tuple[Params, Params]:
        """Returns the new average, and the corrected one to follow."""
        memory = jax.tree.map(
            lambda v, g: tree.cast(self.decay, g) * v + (1 - tree.cast(self.decay, g)) * g, memory, gradient
        )
        correction = _one_minus_power(self.decay, count)
        return memory, jax.tree.map(lambda v: v / correction.astype(v.dtype), memory)


@record
class Inverse:
    r"""The rule's own metric, \(S^{-1} g\).

    Examples:
        >>> from lamu.departures import Inverse
        >>> from lamu.operators import Scalar
        >>> Inverse().direction(Scalar(4.0), {"w": 2.0}, 1, 0.1)
        {'w': 0.5}
    """

    departure = ""
    faithful = True

    def direction(self, precision: Any, gradient: Params, count: Any, rate: Any) -> Params:
        """Returns S⁻¹ g."""
        return precision.solve(gradient)


@record
class SquareRoot:
    r"""The square root of a diagonal scale, \(g / (\sqrt{s} + \epsilon)\). What is rooted is no precision any more.

    Attributes:
        eps: ε, in the units of one row's gradient.

    Examples:
        >>> from lamu.departures import SquareRoot
        >>> from lamu.operators import Diagonal
        >>> import jax.numpy as jnp
        >>> float(SquareRoot(0.0).direction(Diagonal(jnp.array(4.0)), jnp.array(2.0), 1, 0.1))
        1.0
    """

    eps: Number

    departure = "square root"
    faithful = False

    def direction(self, precision: Any, gradient: Params, count: Any, rate: Any) -> Params:
        """Returns g / (√s + ε)."""
        return jax.tree.map(
            lambda s, g: g / (jnp.sqrt(s) + tree.cast(self.eps, g)), precision.diagonal(gradient), gradient
        )


@record
class BiasCorrected:
    r"""A metric whose scale started at zero, corrected for it: \(s / (1 - (1 - \rho)^t)\) in the place of s.

    Attributes:
        base: the metric.

    Examples:
        >>> from lamu.departures import BiasCorrected, SquareRoot
        >>> BiasCorrected(SquareRoot(1e-8)).departure
        'square root, bias correction'
    """

    base: Any

    faithful = False

    @property
    def departure(self) -> str:
        """The base's departure, and this one."""
        return f"{self.base.departure}, bias correction"

    def direction(self, precision: Any, gradient: Params, count: Any, rate: Any) -> Params:
        """Returns the base's direction for the corrected scale."""
        correction = _one_minus_power(1 - rate, count)
        corrected = jax.tree.map(lambda s: s / correction.astype(s.dtype), precision)
        return self.base.direction(corrected, gradient, count, rate)


def _one_minus_power(decay: Any, count: Any) -> Array:
    # In the widest float at hand: in a narrow one, 1 − β^t would lose the first steps of a slow average.
    dtype = jnp.result_type(float)
    return 1 - jnp.asarray(decay, dtype) ** jnp.asarray(count, dtype)
