r"""How a Kronecker-factored precision moves, and how it makes a step: the arrow and the metric of K-FAC."""

from __future__ import annotations

from typing import Any

import jax

from lamu import tree
from lamu.operators import Scalar
from lamu.operators.stale_factors import StaleFactors
from lamu.record import record, static
from lamu.typing import Number, Params

__all__ = ["Factorwise", "Shifted"]


@record
class Factorwise:
    r"""Each factor along a straight line of its own, and decompositions once in a while.

    \[ A \leftarrow A + \rho\,(A' - A), \qquad B \leftarrow B + \rho\,(B' - B), \qquad
       \delta \leftarrow \delta + \rho\,(\delta' - \delta) \]

    The rule would move \(A \otimes B + \delta I\) itself, out of the structure; this is the projection that returns.
    Positive factors stay positive. The directions of steps and the draws come from the factors of at most `every` steps
    ago, whose eigendecomposition costs a cube of a layer's width.

    Attributes:
        every: after how many steps the factors are decomposed anew.

    Raises:
        ValueError: unless `every` is a positive integer.

    Source: Martens & Grosse (2015), section 5; Zhang et al. (2018), algorithm 2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry.factorwise import Factorwise
        >>> from lamu.operators import Kronecker
        >>> from lamu.operators.stale_factors import StaleFactors
        >>> S, H = StaleFactors.of(Kronecker(jnp.eye(1), jnp.eye(1))), Kronecker(3.0 * jnp.eye(1), jnp.eye(1))
        >>> float(Factorwise().move(S, H, 0.5).fresh.input_factor[0, 0])
        2.0
    """

    every: int = static(default=100)

    departure = "factors averaged apart"
    stays_positive = True

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every={self.every!r} is no number of steps; give a positive integer")

    def move(self, precision: StaleFactors, target: Any, rate: Any) -> StaleFactors:
        """Returns the precision with its factors a step of the given rate closer to the target's."""
        fresh = jax.tree.map(lambda s, h: s + tree.cast(rate, s) * (h - s), precision.fresh, target)
        return precision.moved(fresh, self.every)


@record
class Shifted:
    r"""The rule's metric, damped: \((S + \gamma I)^{-1} g\), for any operator that takes a multiple of I in exactly.

    S itself is untouched, and stays a precision.

    Attributes:
        damping: γ, in the units of a precision a row.

    Raises:
        ValueError: for a negative damping.

    Source: Levenberg (1944); Zhang et al. (2018), section 3.3 (external damping).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry.factorwise import Shifted
        >>> from lamu.operators import Kronecker
        >>> one = jnp.ones((1, 1))
        >>> float(Shifted(1.0).direction(Kronecker(one, 3.0 * one), 2.0 * one, 1, 0.1)[0, 0])
        0.5
    """

    damping: Number

    departure = "damping"
    is_precision = True

    def __post_init__(self) -> None:
        if isinstance(self.damping, int | float) and self.damping < 0:
            raise ValueError(f"damping={self.damping!r} would lengthen steps; give a number that is not negative")

    def direction(self, precision: Any, gradient: Params, count: Any, rate: Any) -> Params:
        """Returns (S + γ I)⁻¹ g."""
        return precision.add(Scalar(self.damping)).solve(gradient)
