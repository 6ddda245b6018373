r"""Bonnet's and Price's theorems: a Gaussian's gradient in μ, from \(E_q[\nabla\ell]\) and \(E_q[\nabla^2\ell]\)."""

# For a `Gaussian` the Hessian is an operator of its precision's structure; for a plate of vectors,
# `MultivariateNormal`, it is the block of each vector.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.expectations.estimate import ValueAndGradient
from lamu.families import Gaussian, MultivariateNormal, NaturalParameters
from lamu.typing import Array, Params

__all__ = ["at_point", "factored", "in_expectation"]


def at_point(belief: Any, loss: Callable[[Params], Any], theta: Params) -> tuple[Any, Params, Any]:
    """Returns ℓ, ∇ℓ and ∇²ℓ at θ, the last in the structure of the belief's precision."""
    slope = jax.grad(loss)
    product = lambda v: jax.jvp(slope, (theta,), (v,))[1]
    value, gradient = jax.value_and_grad(loss)(theta)
    if isinstance(belief, MultivariateNormal):
        return value, gradient, _blocks(product, theta)
    return value, gradient, type(belief.precision).from_hessian(product, theta)  # pyright: ignore[reportAttributeAccessIssue]


def in_expectation(belief: Any, value: Any, gradient: Params, hessian: Any) -> ValueAndGradient:
    r"""Returns \(\nabla_{\mu_1} = E[\nabla\ell] - E[\nabla^2\ell]m\), \(\nabla_{\mu_2} = \tfrac12 E[\nabla^2\ell]\)."""
    # Source: Khan & Rue (2021), equations 10 and 11. In every structure: the scalar statistic's is half the mean of the
    # Hessian's diagonal, which is what its operator holds.
    if isinstance(belief, MultivariateNormal):
        first = jax.tree.map(lambda g, H, m: g - (H @ m[..., None])[..., 0], gradient, hessian, belief.mean)
        values = (first, tree.scale(hessian, 0.5))
    else:
        values = (tree.add(gradient, hessian.matvec(belief.mean), -1.0), hessian.scale(0.5))
    return ValueAndGradient(value, NaturalParameters(values, belief.given, type(belief)))


def factored(belief: Any) -> Any:
    """Returns the belief with its precision factored, for several draws."""
    return Gaussian(belief.mean, belief.precision.factored()) if isinstance(belief, Gaussian) else belief


def _blocks(product: Callable[[Params], Params], theta: Params) -> Params:
    """Returns the Hessian's block of every vector `[..., d, d]`, by one product for every number of θ."""
    vector, unravel = tree.ravel(theta)
    hessian = jax.vmap(lambda e: tree.ravel(product(unravel(e)))[0])(jnp.eye(vector.size, dtype=vector.dtype))
    leaves, structure = jax.tree.flatten(theta)
    ends = np.cumsum([leaf.size for leaf in leaves])

    def of_leaf(leaf: Array, end: int) -> Array:
        own, d = slice(end - leaf.size, end), leaf.shape[-1]
        block = jnp.einsum("iaib->iab", hessian[own, own].reshape(leaf.size // d, d, leaf.size // d, d))
        return (block + jnp.swapaxes(block, -1, -2)).reshape(*leaf.shape, d) / 2.0

    return structure.unflatten([of_leaf(leaf, int(end)) for leaf, end in zip(leaves, ends, strict=True)])
