r"""Beliefs about precision matrices, alone and with the mean beside them; from μ back by one bisection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from lamu.families.domains import Domain, Positive, PositiveDefinite, Real
from lamu.families.exponential import ExponentialFamily, apart, sample_leaves, symmetric, total
from lamu.families.gamma import gamma_draw, gamma_shape
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["NormalWishart", "Wishart"]


def _rank_less_one(belief: Any) -> float:
    """Returns p − 1, which the degrees of freedom must exceed."""
    return float(jax.tree.leaves(belief.scale_inverse)[0].shape[-1] - 1)


@record
class Wishart(ExponentialFamily):
    r"""A precision matrix Λ, p by p: \(T = (\log\det\Lambda, \Lambda)\), \(\lambda = ((\nu-p-1)/2,\; -V^{-1}/2)\).

    \[ A = \tfrac{\nu}{2}\log\det 2V + \log\Gamma_p(\nu/2), \qquad
       \mu = \big(\textstyle\sum_{j<p} \psi((\nu - j)/2) + \log\det 2V,\; \nu V\big) \]

    Attributes:
        degrees: ν, above p − 1.
        scale_inverse: \(V^{-1}\) `[..., p, p]`, symmetric positive definite: from conjugate data, the scatter added up.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Wishart
        >>> Wishart(4.0, 2.0 * jnp.eye(2)).mean.tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """

    degrees: Params
    scale_inverse: Params

    domains: ClassVar[Mapping[str, Domain]] = {
        "degrees": Positive(above=_rank_less_one),
        "scale_inverse": PositiveDefinite(),
    }
    events: ClassVar[tuple[int, ...]] = (0, 2)

    def to_natural(self) -> Any:
        """Returns ((ν − p − 1)/2, −V⁻¹/2)."""
        count = jax.tree.map(lambda nu, S: (nu - S.shape[-1] - 1.0) / 2.0, self.degrees, self.scale_inverse)
        return count, jax.tree.map(lambda S: -S / 2.0, self.scale_inverse)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Wishart:
        """Returns the belief with these parameters."""
        degrees = jax.tree.map(lambda count, half: 2.0 * count + half.shape[-1] + 1.0, *values)
        return cls(degrees, jax.tree.map(lambda half: -2.0 * half, values[1]))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Wishart:
        """Returns the belief with these E log det Λ and E Λ."""
        logs, means = values[0], jax.tree.map(symmetric, values[1])
        degrees = jax.tree.map(_degrees, logs, means)
        return cls(degrees, jax.tree.map(lambda nu, mean: nu[..., None, None] * jnp.linalg.inv(mean), degrees, means))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns ν/2 log det 2V + log Γ_p(ν/2)."""
        return total(lambda count, half: _wishart_partition(count + (half.shape[-1] + 1.0) / 2.0, -half), *values)

    def statistics(self, theta: Params) -> Any:
        """Returns (log det Λ, Λ)."""
        return jax.tree.map(logdet, theta), theta

    @property
    def mean(self) -> Params:
        """The mean, ν V."""
        return jax.tree.map(lambda nu, S: nu[..., None, None] * jnp.linalg.inv(S), self.degrees, self.scale_inverse)

    def sample(self, key: RandomKey) -> Params:
        """Returns a precision matrix, by Bartlett's decomposition."""
        return sample_leaves(key, _wishart_draw, self.degrees, self.scale_inverse)


@record
class NormalWishart(ExponentialFamily):
    r"""A mean vector and a precision: \(\Lambda \sim W(\nu, V)\), \(x \mid \Lambda \sim N(m, (\kappa\Lambda)^{-1})\).

    \[ T = (\log\det\Lambda,\; \Lambda,\; \Lambda x,\; x^\top\Lambda x), \qquad \lambda =
       \big((\nu - p)/2,\; -\tfrac12 (V^{-1} + \kappa m m^\top),\; \kappa m,\; -\tfrac12\kappa\big) \]

    θ is the dictionary of the "mean" x and the "precision" Λ.

    Attributes:
        location: m `[..., p]`.
        count: κ, positive: the number of rows that the mean is worth.
        degrees: ν, above p − 1.
        scale_inverse: \(V^{-1}\) `[..., p, p]`, symmetric positive definite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import NormalWishart
        >>> NormalWishart(jnp.ones(2), 1.0, 4.0, 2.0 * jnp.eye(2)).mean["precision"].tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """

    location: Params
    count: Params
    degrees: Params
    scale_inverse: Params

    domains: ClassVar[Mapping[str, Domain]] = {
        "location": Real(event=1),
        "count": Positive(),
        "degrees": Positive(above=_rank_less_one),
        "scale_inverse": PositiveDefinite(),
    }
    events: ClassVar[tuple[int, ...]] = (0, 2, 1, 0)

    def to_natural(self) -> Any:
        """Returns ((ν − p)/2, −(V⁻¹ + κ m mᵀ)/2, κ m, −κ/2)."""

        def leaf(m: Array, kappa: Array, nu: Array, S: Array) -> tuple[Array, Array, Array, Array]:
            half = -(S + kappa[..., None, None] * _outer(m)) / 2.0
            return (nu - m.shape[-1]) / 2.0, half, kappa[..., None] * m, -kappa / 2.0

        return apart(leaf, 4, self.location, self.count, self.degrees, self.scale_inverse)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> NormalWishart:
        """Returns the belief with these parameters."""

        def leaf(log: Array, half: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            kappa = -2.0 * second
            m = first / kappa[..., None]
            S = -2.0 * half - kappa[..., None, None] * _outer(m)
            return m, kappa, 2.0 * log + m.shape[-1], S

        return cls(*apart(leaf, 4, *values))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> NormalWishart:
        """Returns the belief with these expectations."""

        def leaf(log: Array, mean: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            mean = symmetric(mean)
            m = jnp.linalg.solve(mean, first[..., None])[..., 0]
            kappa = m.shape[-1] / (second - jnp.sum(m * first, axis=-1))
            nu = _degrees(log, mean)
            return m, kappa, nu, nu[..., None, None] * jnp.linalg.inv(mean)

        return cls(*apart(leaf, 4, *values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns the Wishart's, and p/2 log 2π/κ."""

        def leaf(log: Array, half: Array, first: Array, second: Array) -> Array:
            kappa, p = -2.0 * second, first.shape[-1]
            remaining = -half - _outer(first) / (2.0 * kappa[..., None, None])
            return _wishart_partition(log + p / 2.0, remaining) + p / 2.0 * jnp.log(2.0 * jnp.pi / kappa)

        return total(leaf, *values)

    def statistics(self, theta: Params) -> Any:
        """Returns (log det Λ, Λ, Λ x, xᵀ Λ x)."""

        def leaf(x: Array, precision: Array) -> tuple[Array, Array, Array, Array]:
            first = (precision @ x[..., None])[..., 0]
            return logdet(precision), precision, first, jnp.sum(x * first, axis=-1)

        return apart(leaf, 4, theta["mean"], theta["precision"])

    @property
    def mean(self) -> Params:
        """The means, m and ν V."""
        return {"mean": self.location, "precision": Wishart(self.degrees, self.scale_inverse).mean}

    def sample(self, key: RandomKey) -> Params:
        """Returns a precision matrix, and a mean given it."""
        precision_key, mean_key = jax.random.split(key)
        precision = Wishart(self.degrees, self.scale_inverse).sample(precision_key)

        def draw(k: RandomKey, m: Array, kappa: Array, matrix: Array) -> Array:
            root = jnp.linalg.cholesky(kappa[..., None, None] * matrix)
            noise = jax.random.normal(k, (*m.shape, 1), m.dtype)
            return m + jnp.linalg.solve(jnp.swapaxes(root, -1, -2), noise)[..., 0]

        return {"mean": sample_leaves(mean_key, draw, self.location, self.count, precision), "precision": precision}


def logdet(matrix: Array) -> Array:
    """Returns log det of symmetric positive definite matrices; NaN where they are not."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1)), axis=-1)


def _wishart_partition(half_degrees: Array, half_scale: Array) -> Array:
    r"""Returns A at \(\nu/2\) and \(V^{-1}/2\)."""
    p = half_scale.shape[-1]
    gammas = sum((gammaln(half_degrees - j / 2.0) for j in range(p)), p * (p - 1) / 4.0 * jnp.log(jnp.pi))
    return gammas - half_degrees * logdet(half_scale)


def _degrees(log: Array, mean: Array) -> Array:
    return 2.0 * gamma_shape(log - logdet(mean), mean.shape[-1])


def _wishart_draw(key: RandomKey, nu: Array, S: Array) -> Array:
    r"""Returns \(L B B^\top L^\top\), \(L L^\top = V\), B lower triangular with chi variables on its diagonal."""
    p = S.shape[-1]
    normal_key, gamma_key = jax.random.split(key)
    halves = (nu[..., None] - jnp.arange(p, dtype=nu.dtype).reshape((1,) * nu.ndim + (p,))) / 2.0
    chi = jnp.sqrt(2.0 * gamma_draw(gamma_key, halves))
    below = jnp.tril(jax.random.normal(normal_key, S.shape, S.dtype), -1)
    B = below + chi[..., None] * jnp.eye(p, dtype=S.dtype).reshape((1,) * nu.ndim + (p, p))
    # For V⁻¹ = R Rᵀ any L with L Lᵀ = V will do, here R⁻ᵀ.
    L = jnp.linalg.inv(jnp.swapaxes(jnp.linalg.cholesky(S), -1, -2))
    root = L @ B
    return root @ jnp.swapaxes(root, -1, -2)


def _outer(m: Array) -> Array:
    return m[..., :, None] * m[..., None, :]
