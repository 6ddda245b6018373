"""The families that the identity test knows, as statistics T of the support of a site."""

# A factor is conjugate in θ where \(\log p = \langle\lambda, T(\theta)\rangle + c\) with λ and c free of θ.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints

from lamu.families import Beta, Dirichlet, Gamma, InverseGamma, Wishart
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["CANDIDATES", "Statistic", "candidates", "jacobian", "message", "plain"]


_Independent = type(constraints.independent(constraints.positive, 1))


@record
class Statistic:
    """T(θ) of one member of a family."""

    family: type = static()  # of `lamu.families`
    statistic: Callable[[Array], Array] = static()  # from θ of one member to the vector T(θ)
    event: int = static()  # how many trailing axes belong to one member
    build: Callable[[Array], Any] = static()  # from λ `[..., d]` to the values of λ of the family


def _pair(natural: Array) -> tuple[Array, Array]:
    return natural[..., 0], natural[..., 1]


def _of_matrix(theta: Array) -> Array:
    """Returns log det Λ and the entries of Λ, those off the diagonal once."""
    rows, columns = jnp.triu_indices(theta.shape[-1])
    return jnp.concatenate([jnp.linalg.slogdet(theta)[1][None], theta[rows, columns]])


def _matrix(natural: Array) -> tuple[Array, Array]:
    """Returns λ of log det Λ, and the symmetric matrix that Λ is paired with by the trace."""
    size = round((math.sqrt(8 * natural.shape[-1] - 7) - 1) / 2)
    rows, columns = jnp.triu_indices(size)
    half = (
        jnp.zeros((*natural.shape[:-1], size, size), natural.dtype).at[..., rows, columns].set(natural[..., 1:] / 2.0)
    )
    return natural[..., 0], half + jnp.swapaxes(half, -1, -2)


CANDIDATES = {
    "Gamma": Statistic(Gamma, lambda t: jnp.stack([jnp.log(t), t]), 0, _pair),
    "InverseGamma": Statistic(InverseGamma, lambda t: jnp.stack([jnp.log(t), 1.0 / t]), 0, _pair),
    "Beta": Statistic(Beta, lambda t: jnp.stack([jnp.log(t), jnp.log1p(-t)]), 0, _pair),
    "Dirichlet": Statistic(Dirichlet, jnp.log, 1, lambda natural: natural),
    "Wishart": Statistic(Wishart, _of_matrix, 2, _matrix),
}


def candidates(support: Any) -> tuple[str, ...]:
    """Returns the names of the families on a support, beside the Gaussian of its real coordinates."""
    if support in (constraints.positive, constraints.nonnegative):
        return "Gamma", "InverseGamma"
    if support is constraints.unit_interval:
        return ("Beta",)
    if support is constraints.positive_definite:
        return ("Wishart",)
    return ("Dirichlet",) if support is constraints.simplex else ()


def plain(support: Any) -> Any:
    """Returns a support without the axes that NumPyro counts as one event: the constraint of one number, or vector."""
    while isinstance(support, _Independent):
        support = support.base_constraint
    return support


def message(kind: Statistic, theta: Array, slopes: Callable[[Array], Array], coordinates: Any) -> Array:
    """Returns λ of every member, `[..., d]`, of a function that is affine in T."""
    # \[ \nabla_u f = J_T(u)^\top \lambda \]
    #
    # at two points u, where \(J_T\) is the Jacobian of T(θ(u)); for the simplex λ is the solution of least squares.
    u = coordinates.inv(theta)
    batch = theta.ndim - kind.event
    points = [u - 0.5, u + 0.75] if kind.event == 0 else [_tilted(u, 0.4), _tilted(u, -0.7)]
    jacobians = [jacobian(kind, coordinates, point, batch) for point in points]
    sides = [slopes(point).reshape(*j.shape[:-1]) for point, j in zip(points, jacobians, strict=True)]
    A, b = jnp.concatenate(jacobians, axis=-2), jnp.concatenate(sides, axis=-1)
    normal = jnp.einsum("...ed,...ef->...df", A, A)
    return jnp.linalg.solve(normal, jnp.einsum("...ed,...e->...d", A, b)[..., None])[..., 0]


def jacobian(kind: Statistic, coordinates: Any, u: Array, batch: int) -> Array:
    r"""Returns \(\partial T/\partial u\) of every member, `[..., coordinates, d]`."""
    of_member: Any = jax.jacfwd(lambda u: kind.statistic(coordinates(u)))
    for _ in range(batch):
        of_member = jax.vmap(of_member)
    found = of_member(u)
    return found[..., None, :] if kind.event == 0 else jnp.swapaxes(found, -1, -2)


def _tilted(u: Array, by: float) -> Array:
    return u + by * (-1.0) ** jnp.arange(u.shape[-1]).astype(u.dtype)
