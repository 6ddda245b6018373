"""Operators whose eigenvectors are known: functions of S are functions of its eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators.diagonal import Scalar
from lamu.operators.interface import Operator
from lamu.typing import Array, Number, Params, PyTree

__all__ = ["Eigenbasis"]


class Eigenbasis(Operator):
    """Base of operators with an array `eigenvalues`, given `apply` and `diagonal_of`; not linear in its leaves."""

    # The root that makes draws is the symmetric one, which does not depend on the signs and the order of eigenvectors.

    eigenvalues: Array

    def apply(self, function: Callable[[Array], Array], v: Params) -> Params:
        """Returns f(S) v, for a function of the eigenvalues."""
        raise NotImplementedError

    def diagonal_of(self, function: Callable[[Array], Array], like: Params) -> Params:
        """Returns the diagonal of f(S), a vector of the space."""
        raise NotImplementedError

    def mapped(self, function: Callable[[Array], Array]) -> Eigenbasis:
        """Returns f(S)."""
        me: Any = self  # a record
        return replace(me, eigenvalues=function(self.eigenvalues))

    def matvec(self, v: Params) -> Params:
        return self.apply(_same, v)

    def solve(self, v: Params) -> Params:
        return self.apply(_inverse, v)

    def inverse_root(self, z: Params) -> Params:
        return self.apply(jax.lax.rsqrt, z)

    def factored(self) -> Eigenbasis:
        return self

    def logdet(self, like: Params) -> Array:
        return jnp.sum(jnp.log(self.eigenvalues))

    def diagonal(self, like: Params) -> Params:
        return self.diagonal_of(_same, like)

    def variance(self, like: Params) -> Params:
        """Returns the diagonal of S⁻¹: a sum of positive terms."""
        return self.diagonal_of(_inverse, like)

    def scale(self, factor: Number) -> Eigenbasis:
        return self.mapped(lambda values: values * tree.cast(factor, values))

    def add(self, other: Operator) -> Eigenbasis:
        """Returns S plus a multiple of the identity (a `Scalar`), exactly, without another decomposition."""
        if not isinstance(other, Scalar):
            raise TypeError(
                f"a {type(self).__name__} plus a {type(other).__name__} has other eigenvectors; add a Scalar, or add "
                "them as Dense"
            )
        return self.mapped(lambda values: values + tree.cast(other.value, values))

    def add_diagonal(self, values: Params) -> Eigenbasis:
        """Returns S plus the mean of a diagonal times the identity: exact for a prior of one scale."""
        return self.add(Scalar(jnp.mean(tree.ravel(values)[0])))

    def spectrum(self) -> PyTree:
        return self.eigenvalues

    def is_positive(self, like: Params) -> Array:
        """Returns whether every eigenvalue is positive, and no eigenvector a NaN."""
        finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(self)]
        return jnp.all(self.eigenvalues > 0) & jnp.all(jnp.stack(finite))


def _same(values: Array) -> Array:
    return values


def _inverse(values: Array) -> Array:
    return 1 / values
