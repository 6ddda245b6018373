"""Products and sums of independent variables: the mean of a Normal."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from lamu.graphs.expressions.interface import Environment, Expression
from lamu.graphs.expressions.leaves import Constant, Input, lifted
from lamu.graphs.statistics import Statistics, Vectors
from lamu.record import record
from lamu.typing import Array

__all__ = ["Sum", "Times", "product", "total"]

S = TypeVar("S", bound=Statistics)


@record
class Times(Expression):
    r"""The product of a vector, or of a plate of vectors, with a vector that is independent of it, \(W z\).

    \[ E[(Wz)_d] = E[w_d]^\top E[z], \qquad E[(Wz)_d^2] = \mathrm{tr}\, E[w_d w_d^\top] E[z z^\top] \]

    Attributes:
        left: W `[..., K]`.
        right: z `[K]`.

    Raises:
        ValueError: where both sides depend on one variable: the moments of such a product are no longer affine.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.graphs.expressions import Variable
        >>> (jnp.ones((4, 3)) @ Variable("z", "Vectors", (3,))).shape
        (4,)
    """

    left: Any
    right: Any

    def __post_init__(self) -> None:
        both = self.left.names & self.right.names
        if both:
            raise ValueError(
                f"both sides of @ depend on {', '.join(sorted(both))}, whose product with itself has no closed form; "
                "multiply variables that are independent of each other"
            )
        for side in (self.left, self.right):
            if not isinstance(side, Constant | Input) and Vectors not in side.kinds():
                raise TypeError(
                    f"@ multiplies vectors of numbers, and {', '.join(sorted(side.names))} is "
                    f"{side.kinds()[0].words if side.kinds() else 'a product itself'}; moments of products of three "
                    "variables have no closed form here"
                )
        left, right = self.left.shape, self.right.shape
        if left and right and left[-1] != right[-1]:
            raise ValueError(f"@ meets {left[-1]} and {right[-1]} numbers; give both sides the same last axis")

    @property
    def names(self) -> frozenset[str]:
        """Those of both sides."""
        return self.left.names | self.right.names

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The leading axes of W."""
        if self.left.shape is None:
            return () if isinstance(self.left, Input) and self.right.shape is not None else None
        return self.left.shape[:-1]

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns none: a product is the mean of a Normal, and no argument of another kind."""
        return ()

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Raises a TypeError: the caller asks for `first` and `quadratic`."""
        raise TypeError(f"a product has no {kind.words}")

    def first(self, at: Environment) -> Array:
        """Returns E[W] E[z]."""
        return self.left.first(at) @ self.right.first(at)

    def quadratic(self, weight: Array, at: Environment) -> Array:
        r"""Returns \(\mathrm{tr}\,(\sum_d c_d E[w_d w_d^\top])\, E[z z^\top]\), or its known form."""
        if isinstance(self.right, Constant | Input):
            return self._of_known(self.left, self.right.first(at), weight, at)
        if isinstance(self.left, Constant | Input):
            W = self.left.first(at)
            weighted = jnp.tensordot(weight, W[..., :, None] * W[..., None, :], jnp.ndim(weight))
        else:
            outer = self.left.of_kind(Vectors, at).outer
            weight = jnp.broadcast_to(weight, outer.shape[:-2])
            weighted = jnp.tensordot(weight, outer, jnp.ndim(weight))
        return jnp.sum(weighted * self.right.of_kind(Vectors, at).outer)

    @staticmethod
    def _of_known(of: Expression, x: Array, weight: Array, at: Environment) -> Array:
        outer = of.of_kind(Vectors, at).outer
        return jnp.sum(weight * ((outer @ x) @ x))


@record
class Sum(Expression):
    r"""The sum of two independent numbers or vectors, \(E[(a+b)^2] = E[a^2] + 2 E[a] E[b] + E[b^2]\).

    Attributes:
        left: a.
        right: b.

    Raises:
        ValueError: where both depend on one variable.

    Examples:
        >>> from lamu.graphs.expressions import Variable
        >>> (Variable("a", "Numbers", (3,)) + Variable("b", "Numbers", ())).shape
        (3,)
    """

    left: Any
    right: Any

    def __post_init__(self) -> None:
        both = self.left.names & self.right.names
        if both:
            raise ValueError(
                f"both sides of + depend on {', '.join(sorted(both))}, so that they are not independent; write the "
                "variable once, for instance in one product"
            )

    @property
    def names(self) -> frozenset[str]:
        """Those of both sides."""
        return self.left.names | self.right.names

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape that both are broadcast to."""
        if self.left.shape is None or self.right.shape is None:
            return None
        return np.broadcast_shapes(self.left.shape, self.right.shape)

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns none: a sum is the mean of a Normal, and no argument of another kind."""
        return ()

    def of_kind(self, kind: type[S], at: Environment) -> S:
        """Raises a TypeError: the caller asks for `first` and `quadratic`."""
        raise TypeError(f"a sum has no {kind.words}")

    def first(self, at: Environment) -> Array:
        """Returns E a + E b."""
        return self.left.first(at) + self.right.first(at)

    def quadratic(self, weight: Array, at: Environment) -> Array:
        """Returns the weighted sum of the squares."""
        a, b = self.left.first(at), self.right.first(at)
        weight = jnp.broadcast_to(weight, jnp.broadcast_shapes(jnp.shape(weight), jnp.shape(a), jnp.shape(b)))
        both = jnp.sum(weight * 2.0 * a * b)
        return self.left.quadratic(weight, at) + self.right.quadratic(weight, at) + both


def product(left: Any, right: Any) -> Times:
    """Returns the product of two expressions, of which one may be an array.

    Args:
        left: W.
        right: z.

    Examples:
        >>> from lamu.graphs.expressions.leaves import Variable
        >>> from lamu.graphs.expressions.products import product
        >>> product([[1.0, 2.0]], Variable("z", "Vectors", (2,))).shape
        (1,)
    """
    return Times(lifted(left), lifted(right))


def total(left: Any, right: Any) -> Sum:
    """Returns the sum of two expressions, of which one may be an array.

    Args:
        left: a.
        right: b.

    Examples:
        >>> from lamu.graphs.expressions.leaves import Variable
        >>> from lamu.graphs.expressions.products import total
        >>> total(1.0, Variable("a", "Numbers", (3,))).shape
        (3,)
    """
    return Sum(lifted(left), lifted(right))
