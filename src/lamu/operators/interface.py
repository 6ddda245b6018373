"""What an operator must offer, and the one convention about the space that it acts on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp

from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Operator", "Structure", "is_operator"]


@runtime_checkable
class Operator(Protocol):
    r"""A symmetric operator S on the space of parameters: a precision, or a curvature that may become one.

    The space is never stored. Methods that receive a vector act on its space; the others take `like`, any vector of the
    space. Every operator inherits from this class, which has defaults for what only some of them know better.

    Attributes:
        per_output: whether it keeps one matrix an output of a layer.
    """

    per_output: bool = False

    def matvec(self, v: Params) -> Params:
        """Returns S v."""
        ...

    def solve(self, v: Params) -> Params:
        """Returns S⁻¹ v."""
        ...

    def inverse_root(self, z: Params) -> Params:
        """Returns R z with R Rᵀ = S⁻¹, which makes a draw from N(0, S⁻¹) of a standard normal z."""
        ...

    def factored(self) -> Operator:
        """Returns an equal operator whose solves, roots and determinants are cheap to repeat."""
        ...

    def sample(self, key: RandomKey, like: Params) -> Params:
        """Returns a draw from N(0, S⁻¹)."""
        ...

    def logdet(self, like: Params) -> Array:
        """Returns log det S."""
        ...

    def diagonal(self, like: Params) -> Params:
        """Returns the diagonal of S, a vector of the space."""
        ...

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹, a vector of the space."""
        ...

    def dense(self, like: Params) -> Array:
        """Returns S as a matrix in the coordinates of `tree.ravel`."""
        ...

    def trace_solve(self, other: Operator, like: Params) -> Array:
        """Returns tr(S⁻¹ other)."""
        ...

    def sandwich(self, delta: Any) -> Operator:
        """Returns Δ S⁻¹ Δ for an operator Δ of the same structure."""
        ...

    def scale(self, factor: Number) -> Operator:
        """Returns factor · S."""
        ...

    def is_positive(self, like: Params) -> Array:
        """Returns whether S is positive definite, one Boolean: a NaN is not."""
        ...

    # What has a default.

    def add(self, other: Operator) -> Operator:
        """Returns S + other, exactly.

        Raises:
            TypeError: if this structure cannot hold the sum.
        """
        raise TypeError(f"a {type(self).__name__} cannot hold its sum with a {type(other).__name__}; add them as Dense")

    def renewed(self) -> Operator:
        """Returns the operator with factors that are of its own curvature; itself, unless it may put them off."""
        return self

    def averaged(self) -> Operator:
        """Returns the average of operators that are stacked along a leading axis of every leaf."""
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), self)


@runtime_checkable
class Structure(Operator, Protocol):
    r"""An operator that a precision can be: one that moves, and takes curvature in.

    It is *linear in its leaves*: \(a S + b S'\) is a `jax.tree.map`, which is how the rule moves a precision. Curvature
    arrives through the class's constructors, each of which keeps what the structure can hold (`Dense` everything,
    `Diagonal` the diagonal, `Scalar` the mean of the diagonal). A Cholesky factor is an operator and no structure.
    """

    @classmethod
    def from_diagonal(cls, diagonal: Params) -> Structure:
        """Returns the operator with the given diagonal, a vector of the space."""
        ...

    @classmethod
    def from_jacobian(cls, jacobian: Params, weight: Array) -> Structure:
        r"""Returns \(\sum_b J_b^\top W_b J_b\), for leaves `[batch, outputs, ...]`, W `[batch, outputs, outputs]`."""
        ...

    @classmethod
    def from_hessian(cls, product: Callable[[Params], Params], like: Params) -> Structure:
        """Returns the operator of which `product` computes matrix-vector products."""
        ...

    @classmethod
    def from_outer(cls, u: Params, v: Params) -> Structure:
        r"""Returns the symmetric part of the outer product, \(\tfrac12 (u v^\top + v u^\top)\)."""
        ...

    # What makes N(m, S⁻¹) an exponential family: λ₂ = −S/2 pairs with T₂(θ) leaf by leaf.

    @classmethod
    def statistic(cls, theta: Params) -> Structure:
        r"""Returns T₂(θ): \(\theta\theta^\top\), or as much of it as S knows."""
        ...

    def second_moment(self, like: Params) -> Structure:
        r"""Returns \(E[T_2(\theta)]\) under N(0, S⁻¹); of such a moment, the precision S again."""
        ...


def is_operator(node: Any) -> bool:
    """Returns whether something is an operator, as `isinstance(node, Operator)` does.

    A class is looked at once: Python reads a protocol anew at every question, which is a third of a small prediction.

    Args:
        node: anything, for instance a node of a pytree.

    Examples:
        >>> from lamu.operators import Scalar
        >>> from lamu.operators.interface import is_operator
        >>> is_operator(Scalar(2.0)), is_operator({"w": 2.0})
        (True, False)
    """
    kind = type(node)
    if kind not in _KNOWN:
        _KNOWN[kind] = isinstance(node, Operator)
    return _KNOWN[kind]


_KNOWN: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
