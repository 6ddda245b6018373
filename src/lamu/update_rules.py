r"""Update rules of practical algorithms: momentum, bias correction, square-root scaling and clipping.

A *momentum* maps the sequence of gradients to the sequence that is followed; it is `normalised` if it returns a
constant gradient unchanged. A *metric* maps the precision and a gradient to a direction; that of the natural-gradient
rule is \(S^{-1}\). Each has the name of its departure from the rule, for the table of algorithms.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require
from lamu.record import record, static
from lamu.typing import Array, Number, Numeric, OperatorTree, Params

__all__ = [
    "BiasCorrected",
    "ByFanIn",
    "Clipped",
    "DampedInverse",
    "HeavyBall",
    "Inverse",
    "InverseSquareRoot",
    "MovingAverage",
    "NoMomentum",
    "PlainAverage",
    "RootOfSum",
]


@record
class NoMomentum:
    """No momentum: the gradient is followed.

    Examples:
        >>> from lamu.update_rules import NoMomentum
        >>> NoMomentum().follow({}, {"w": 1.0}, 1)
        ({}, {'w': 1.0})
    """

    departure = ""
    normalised = True

    def init(self, like: Params) -> Params:
        """Returns an empty state."""
        return {}

    def follow(self, memory: Params, gradient: Params, count: Numeric) -> tuple[Params, Params]:
        """Returns the state and the gradient to follow at step `count` (the first is 1)."""
        return memory, gradient


@record
class HeavyBall:
    r"""Heavy-ball momentum: \(v \leftarrow g + \beta v\), and v is followed.

    Attributes:
        decay: β.

    Examples:
        >>> from lamu.update_rules import HeavyBall
        >>> HeavyBall(0.5).follow({"w": 2.0}, {"w": 1.0}, 1)[1]
        {'w': 2.0}
    """

    decay: Number

    departure = "momentum"
    normalised = False

    def init(self, like: Params) -> Params:
        """Returns the zero vector."""
        return tree.zeros_like(like)

    def follow(self, memory: Params, gradient: Params, count: Numeric) -> tuple[Params, Params]:
        """Returns the new state, which is also the direction to follow."""
        memory = tree.add(gradient, memory, self.decay)
        return memory, memory


@record
class MovingAverage(HeavyBall):
    r"""Averaged gradients, corrected for the start at zero.

    \[ v \leftarrow \beta v + (1-\beta) g, \qquad \text{followed:}\quad v / (1 - \beta^t) \]

    Attributes:
        decay: β.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import MovingAverage
        >>> _, followed = MovingAverage(0.5).follow({"w": jnp.zeros(2)}, {"w": jnp.ones(2)}, 1)
        >>> followed["w"].tolist()
        [1.0, 1.0]
    """

    departure = "momentum with bias correction"
    normalised = True

    def follow(self, memory: Params, gradient: Params, count: Numeric) -> tuple[Params, Params]:
        """Returns the new average, and the corrected one to follow."""
        memory = _averaged(self.decay, memory, gradient)
        correction = _one_minus_power(self.decay, count)
        return memory, jax.tree.map(lambda v: v / correction.astype(v.dtype), memory)


@record
class PlainAverage(HeavyBall):
    r"""Averaged gradients, \(v \leftarrow \beta v + (1-\beta) g\), not corrected for the start at zero.

    Attributes:
        decay: β.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import PlainAverage
        >>> _, followed = PlainAverage(0.5).follow({"w": jnp.zeros(2)}, {"w": jnp.ones(2)}, 1)
        >>> followed["w"].tolist()
        [0.5, 0.5]
    """

    def follow(self, memory: Params, gradient: Params, count: Numeric) -> tuple[Params, Params]:
        """Returns the new average, which is also the direction to follow."""
        memory = _averaged(self.decay, memory, gradient)
        return memory, memory


@record
class Inverse:
    r"""The rule's own metric, \(S^{-1} g\).

    Examples:
        >>> from lamu.update_rules import Inverse
        >>> from lamu.operators import Scalar
        >>> Inverse().direction(Scalar(4.0), {"w": 2.0}, 1, 0.1)
        {'w': 0.5}
    """

    departure = ""
    is_precision = True

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns S⁻¹ g."""
        return precision.solve(gradient)


@record
class InverseSquareRoot:
    r"""Division by the root of a diagonal scale, \(g / (\sqrt{s} + \epsilon)\); s is then not a precision.

    Attributes:
        eps: ε, in the units of one row's gradient.

    Examples:
        >>> from lamu.update_rules import InverseSquareRoot
        >>> from lamu.operators import Diagonal
        >>> import jax.numpy as jnp
        >>> float(InverseSquareRoot(0.0).direction(Diagonal(jnp.array(4.0)), jnp.array(2.0), 1, 0.1))
        1.0
    """

    eps: Number

    departure = "square root"
    is_precision = False

    def __post_init__(self) -> None:
        for holds in (self.eps >= 0, self.eps < math.inf):
            require(holds, f"eps={self.eps!r} must be a small positive number, or zero")

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns g / (√s + ε)."""
        return jax.tree.map(
            lambda s, g: g / (jnp.sqrt(s) + tree.cast(self.eps, g)), precision.diagonal(gradient), gradient
        )


@record
class DampedInverse:
    r"""The rule's metric, damped: \((S + \gamma I)^{-1} g\), with steps of length at most \(\lVert g \rVert / \gamma\).

    S itself is unchanged and stays a precision: the damping shortens steps and does not move the fixed point.

    Attributes:
        damping: γ, in the units of a precision a row.

    Source: Levenberg (1944).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import DampedInverse
        >>> from lamu.operators import Diagonal
        >>> float(DampedInverse(1.0).direction(Diagonal(jnp.array(3.0)), jnp.array(2.0), 1, 0.1))
        0.5
    """

    damping: Number

    departure = "damping"
    is_precision = True

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns (S + γ I)⁻¹ g."""
        shift = type(precision).from_diagonal(jax.tree.map(lambda g: jnp.full_like(g, self.damping), gradient))
        return jax.tree.map(jnp.add, precision, shift).solve(gradient)


@record
class RootOfSum(InverseSquareRoot):
    r"""Division by the root of a diagonal scale, \(g / \sqrt{s + \epsilon}\), with ε under the root.

    Attributes:
        eps: ε, in the units of one row's squared gradient.

    Examples:
        >>> from lamu.update_rules import RootOfSum
        >>> from lamu.operators import Diagonal
        >>> import jax.numpy as jnp
        >>> float(RootOfSum(12.0).direction(Diagonal(jnp.array(4.0)), jnp.array(2.0), 1, 0.1))
        0.5
    """

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns g / √(s + ε)."""
        return jax.tree.map(
            lambda s, g: g * jax.lax.rsqrt(s + tree.cast(self.eps, g)), precision.diagonal(gradient), gradient
        )


@record
class BiasCorrected:
    r"""A metric corrected for a scale that started at zero: \(s / (1 - (1 - \rho)^t)\) instead of s.

    Attributes:
        base: the metric.

    Examples:
        >>> from lamu.update_rules import BiasCorrected, InverseSquareRoot
        >>> BiasCorrected(InverseSquareRoot(1e-8)).departure
        'square root, bias correction'
    """

    base: Any

    is_precision = False

    @property
    def departure(self) -> str:
        """The base's departure, and this one."""
        return f"{self.base.departure}, bias correction"

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns the base's direction for the corrected scale."""
        correction = _one_minus_power(1 - rate, count)
        corrected = jax.tree.map(lambda s: s / correction.astype(s.dtype), precision)
        return self.base.direction(corrected, gradient, count, rate)


def _averaged(decay: Number, memory: Params, gradient: Params) -> Params:
    return jax.tree.map(lambda v, g: tree.cast(decay, g) * v + (1 - tree.cast(decay, g)) * g, memory, gradient)


@record
class ByFanIn:
    r"""A radius for `Clipped` that falls with the number of inputs of a kernel.

    \[ r_n = r \min(1,\, n_0 / n) \]

    for a kernel of n inputs, the last axis being that of the outputs; leaves of one axis keep r. In the first steps all
    coordinates move by the radius, and n inputs that move in the same direction change an output by n r: without the
    factor, a layer of several hundred inputs leaves the range of its activations before the curvature is known.

    Attributes:
        radius: r, in the units of the parameters.
        inputs: \(n_0\), the number of inputs up to which the radius is r.

    Raises:
        ValueError: for a radius that is not positive.

    Source: Yang et al. (2022), table 3, for steps of one size a coordinate that shrink with the number of inputs.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import ByFanIn
        >>> [ByFanIn(0.02).of(jnp.zeros(shape)) for shape in ((10,), (64, 10), (5, 5, 8, 10))]
        [0.02, 0.02, 0.0064]
    """

    radius: Number
    inputs: int = static(default=64)

    def __post_init__(self) -> None:
        require(self.radius > 0, f"a clipping radius of {self.radius!r} would stop every step; give a positive one")

    def of(self, leaf: Params) -> Number:
        """Returns the radius for a leaf.

        Args:
            leaf: an array of its shape.
        """
        return self.radius * min(1.0, self.inputs / max(math.prod(jnp.shape(leaf)[:-1]), 1))


@record
class Clipped:
    r"""A metric whose direction is clipped, coordinate by coordinate: \(|d_j| \le r\), so that steps are at most ρ r.

    The precision is an average with a long memory. Where the curvature grows faster (a learned noise falls, and every
    row gets more weight), a step divided by the old precision would be too long.

    Attributes:
        base: the metric.
        radius: r, in the units of the parameters: a number, or `ByFanIn`.

    Raises:
        ValueError: for a radius that is not positive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import Clipped, Inverse
        >>> from lamu.operators import Scalar
        >>> float(Clipped(Inverse(), 0.05).direction(Scalar(4.0), {"w": jnp.asarray(2.0)}, 1, 0.1)["w"]) < 0.0501
        True
    """

    base: Any
    radius: Number | ByFanIn

    def __post_init__(self) -> None:
        if not isinstance(self.radius, ByFanIn):
            ByFanIn(self.radius)  # of the same numbers

    @property
    def is_precision(self) -> bool:
        """Whether the precision is one, as for the base."""
        return self.base.is_precision

    @property
    def departure(self) -> str:
        """The base's departure, and this one."""
        return f"{self.base.departure}, clipped steps" if self.base.departure else "clipped steps"

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns the base's direction, every coordinate clipped to the radius."""
        direction = self.base.direction(precision, gradient, count, rate)

        def clipped(d: Array) -> Array:
            radius = tree.cast(self.radius.of(d) if isinstance(self.radius, ByFanIn) else self.radius, d)
            return jnp.clip(d, -radius, radius)

        return jax.tree.map(clipped, direction)


def _one_minus_power(decay: Numeric, count: Numeric) -> Array:
    # In the widest float available: in a narrow one, 1 − β^t would be inaccurate in the first steps of a slow average.
    dtype = jnp.result_type(float)
    return 1 - jnp.asarray(decay, dtype) ** jnp.asarray(count, dtype)
