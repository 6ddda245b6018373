"""Beliefs about plates of vectors, each with a full precision matrix of its own."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from lamu import tree
from lamu.families.domains import Domain, PositiveDefinite, Real
from lamu.families.exponential import (
    ExpectationParameters,
    ExponentialFamily,
    sample_leaves,
    symmetric,
    total,
    values_of,
)
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["MultivariateNormal"]


@record
class MultivariateNormal(ExponentialFamily):
    r"""A vector x of d numbers, \(x \sim N(m, \Lambda^{-1})\), or a plate of independent ones.

    \[ T = (x,\; x x^\top), \qquad \lambda = (\Lambda m,\; -\tfrac12 \Lambda), \qquad
       \mu = (m,\; \Lambda^{-1} + m m^\top) \]
    \[ A = \tfrac12 m^\top \Lambda m - \tfrac12 \log\det\Lambda + \tfrac d2 \log 2\pi \]

    `Gaussian` is one vector over a tree with any structure of precision; this family is many small vectors, batched in
    the leading axes, with a matrix each.

    Attributes:
        mean: m `[..., d]`, or a tree of such arrays.
        precision: Λ `[..., d, d]`, symmetric positive definite.

    Raises:
        ValueError: for a precision that is not symmetric positive definite, or of another size than the mean.

    Source: Wainwright & Jordan (2008), example 3.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import MultivariateNormal
        >>> plate = MultivariateNormal(jnp.zeros((5, 3)), jnp.eye(3))  # five vectors
        >>> plate.expectation().values[1].shape
        (5, 3, 3)
        >>> round(float(plate.entropy()), 4)  # nats, of fifteen standard normal numbers
        21.2841
    """

    mean: Params
    precision: Params

    domains: ClassVar[Mapping[str, Domain]] = {"mean": Real(event=1), "precision": PositiveDefinite()}
    events: ClassVar[tuple[int, ...]] = (1, 2)

    def _validate(self) -> None:
        for m, precision in zip(jax.tree.leaves(self.mean), jax.tree.leaves(self.precision), strict=True):
            if m.ndim < 1 or precision.ndim < 2 or m.shape[-1] != precision.shape[-1]:
                raise ValueError(
                    f"MultivariateNormal: the last axis of the mean is {m.shape[-1:]} and the last two of the "
                    f"precision are {precision.shape[-2:]}; give a mean [..., d] and a precision [..., d, d]"
                )
        super()._validate()

    def to_natural(self) -> Any:
        """Returns (Λ m, −Λ/2)."""
        return jax.tree.map(_product, self.precision, self.mean), jax.tree.map(lambda S: -S / 2.0, self.precision)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> MultivariateNormal:
        """Returns the belief with precision −2 λ₂, and mean Λ⁻¹ λ₁."""
        precision = jax.tree.map(lambda half: -2.0 * half, values[1])
        return cls(jax.tree.map(_solution, precision, values[0]), precision)

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> MultivariateNormal:
        """Returns the belief with the mean μ₁, and the covariance μ₂ − μ₁ μ₁ᵀ."""
        precision = jax.tree.map(lambda m, second: jnp.linalg.inv(symmetric(second - _outer(m))), *values)
        return cls(values[0], jax.tree.map(symmetric, precision))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        r"""Returns \(\tfrac12\lambda_1^\top\Lambda^{-1}\lambda_1 - \tfrac12\log\det\Lambda + \tfrac d2\log 2\pi\)."""

        def leaf(first: Array, second: Array) -> Array:
            precision = -2.0 * symmetric(second)
            quadratic = jnp.sum(first * _solution(precision, first), axis=-1)
            return (quadratic - _logdet(precision) + first.shape[-1] * math.log(2.0 * math.pi)) / 2.0

        return total(leaf, *values)

    def statistics(self, theta: Params) -> Any:
        """Returns (x, x xᵀ)."""
        return theta, jax.tree.map(_outer, theta)

    def retract(self, direction: Any, rate: Number) -> MultivariateNormal:
        r"""Returns the belief after the step \(\lambda + \rho d\), bent so that every precision stays positive.

        \[ \Lambda' = \Lambda + \rho\Delta + \tfrac12\rho^2 \Delta \Lambda^{-1} \Delta, \qquad
           m' = m + \rho\, \Lambda'^{-1} (d_1 + 2 d_2 m), \qquad \Delta = -2 d_2 \]

        Source: Lin, Schmidt & Khan (2020), equation 12.
        """
        first, second = values_of(direction)
        domain = self.domains["precision"]
        precision = jax.tree.map(lambda S, d: domain.retract(S, -2.0 * d, rate, self), self.precision, second)

        def moved(m: Array, S: Array, d1: Array, d2: Array) -> Array:
            return m + tree.cast(rate, m) * _solution(S, d1 + 2.0 * _product(symmetric(d2), m))

        return MultivariateNormal(jax.tree.map(moved, self.mean, precision, first, second), precision)

    def sample(self, key: RandomKey) -> Params:
        """Returns a vector a member; differentiable in the parameters."""

        def draw(k: RandomKey, m: Array, S: Array) -> Array:
            noise = jax.random.normal(k, (*m.shape, 1), m.dtype)
            return m + solve_triangular(jnp.linalg.cholesky(S), noise, lower=True, trans=1)[..., 0]

        return sample_leaves(key, draw, self.mean, self.precision)

    def expectation(self) -> ExpectationParameters:
        r"""Returns \((m,\; \Lambda^{-1} + m m^\top)\)."""
        second = jax.tree.map(lambda m, S: _inverse(S) + _outer(m), self.mean, self.precision)
        return ExpectationParameters((self.mean, second), (), type(self))

    def log_partition(self) -> Array:

        def leaf(m: Array, S: Array) -> Array:
            quadratic = jnp.sum(m * _product(S, m), axis=-1)
            return (quadratic - _logdet(S) + m.shape[-1] * math.log(2.0 * math.pi)) / 2.0

        return total(leaf, self.mean, self.precision)

    # In closed form, where A less an inner product would cancel digits of means far from zero.

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(x) in nats, a sum over the members."""

        def leaf(x: Array, m: Array, S: Array) -> Array:
            away = x - m
            quadratic = jnp.sum(away * _product(S, away), axis=-1)
            return (_logdet(S) - m.shape[-1] * math.log(2.0 * math.pi) - quadratic) / 2.0

        return total(leaf, theta, self.mean, self.precision)

    def entropy(self) -> Array:
        r"""Returns \(H(q) = \tfrac d2 \log 2\pi e - \tfrac12\log\det\Lambda\) in nats, a sum over the members."""
        return total(lambda S: (S.shape[-1] * (1.0 + math.log(2.0 * math.pi)) - _logdet(S)) / 2.0, self.precision)

    def kl(self, other: Any) -> Array:
        """Returns KL(q ‖ p) in nats, a sum over the members."""
        if not isinstance(other, MultivariateNormal):
            return super().kl(other)

        def leaf(m: Array, S: Array, at: Array, P: Array) -> Array:
            away = m - at
            trace = jnp.sum(_inverse(S) * P, axis=(-2, -1))
            quadratic = jnp.sum(away * _product(P, away), axis=-1)
            return (trace + quadratic - m.shape[-1] + _logdet(S) - _logdet(P)) / 2.0

        return total(leaf, self.mean, self.precision, other.mean, other.precision)


def _outer(x: Array) -> Array:
    return x[..., :, None] * x[..., None, :]


def _product(matrix: Array, vector: Array) -> Array:
    return (matrix @ vector[..., None])[..., 0]


def _solution(matrix: Array, vector: Array) -> Array:
    return _product(_inverse(matrix), vector)


# Batches of small matrices are swept, by one loop without a call of LAPACK. On a CPU each such call deals its batch
# to the threads that it runs on, and two that do not wait for each other, such as those of the rows' latents and of a
# plate of loadings, may hold all of these and wait for ever (jaxlib 0.10.2).

_SWEPT = 32  # entries, above which a matrix is factored by LAPACK
_WRITTEN_OUT = 4  # entries, up to which the loop is written out: twice as fast, and longer to compile


@jax.custom_jvp
def _inverse(matrix: Array) -> Array:
    return _inverse_and_logdet(matrix)[0]


@_inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = _inverse(primals[0])
    return inverse, -(inverse @ symmetric(tangents[0]) @ inverse)


@jax.custom_jvp
def _logdet(matrix: Array) -> Array:
    return _inverse_and_logdet(matrix)[1]


@_logdet.defjvp
def _logdet_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _logdet(primals[0]), jnp.sum(_inverse(primals[0]) * tangents[0], axis=(-2, -1))


def _inverse_and_logdet(matrix: Array) -> tuple[Array, Array]:
    """Returns the inverse and log det of symmetric positive definite matrices; NaN where they are not."""
    matrix, size = symmetric(matrix), matrix.shape[-1]
    if size > _SWEPT:
        root = jnp.linalg.cholesky(matrix)
        eye = jnp.broadcast_to(jnp.eye(size, dtype=root.dtype), root.shape)
        inverse_root = solve_triangular(root, eye, lower=True)
        inverse = jnp.swapaxes(inverse_root, -1, -2) @ inverse_root
        return inverse, 2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
    places = jnp.arange(size)

    def sweep(k: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        swept, log_pivots = state
        column, here = jnp.take(swept, k, axis=-1), places == k
        pivot = jnp.take(column, k, axis=-1)[..., None]
        scaled = column / pivot
        rest = swept - column[..., :, None] * scaled[..., None, :]
        rest = jnp.where(here[:, None], scaled[..., None, :], rest)
        rest = jnp.where(here[None, :], jnp.where(here, -1.0 / pivot, scaled)[..., :, None], rest)
        return rest, log_pivots + jnp.log(pivot[..., 0])

    start = matrix, jnp.zeros_like(matrix[..., 0, 0])
    if size <= _WRITTEN_OUT:
        swept, logdets = functools.reduce(lambda state, k: sweep(k, state), range(size), start)
    else:
        swept, logdets = jax.lax.fori_loop(0, size, sweep, start)
    return jnp.where(jnp.isnan(logdets)[..., None, None], jnp.nan, -swept), logdets
