r"""Laws of a prior: its density, draws and Gaussian form go with each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.priors import Prior
from lamu.testing.laws import check, close, within_errors
from lamu.typing import Params

__all__ = ["PRIOR_LAWS", "check_prior"]

_DRAWS = 4000

Case = tuple[Prior, Params]


def log_prob_is_a_smooth_scalar(case: Case) -> None:
    """`log_prob` is a finite scalar with finite gradients, in float32 and when it is compiled, of any weights."""
    prior, params = case
    for dtype in (jnp.float32, jnp.result_type(float)):
        cast = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), params)
        value = prior.log_prob(cast)
        assert jnp.shape(value) == (), f"log_prob has the shape {jnp.shape(value)}, and must be a scalar"
        close(jax.jit(prior.log_prob)(cast), value, 1e-4, "log_prob, compiled,", 1e-5)
        gradient = tree.ravel(jax.grad(lambda params: prior.log_prob(params))(cast))[0]
        assert np.isfinite(gradient).all(), f"the gradient is not finite in {dtype}"


def frozen_leaves_are_left_out(case: Case) -> None:
    """A leaf that is None, as frozen weights are, is not counted."""
    prior, params = case
    leaves, structure = jax.tree.flatten(params)
    if len(leaves) < 2:
        return
    free = jax.tree.unflatten(structure, [None, *leaves[1:]])
    assert np.isfinite(prior.log_prob(free)), "log_prob with a frozen leaf is not finite"


def gaussian_is_the_gradient_and_curvature(case: Case) -> None:
    """Where `gaussian` knows mean and precision, the gradient and the Hessian of the density are those."""
    prior, params = case
    known = prior.gaussian(params)
    if known is None:
        return
    mean, precision = (tree.ravel(part)[0] for part in known)
    theta, unravel = tree.ravel(params)
    surprise = lambda vector: -prior.log_prob(unravel(vector))
    close(jax.grad(surprise)(theta), precision * (theta - mean), 1e-4, "the gradient", 1e-5)
    close(jnp.diagonal(jax.hessian(surprise)(theta)), precision, 1e-4, "the curvature", 1e-5)


def draws_are_of_the_density(case: Case) -> None:
    r"""Stein's identities, \(E[\nabla \log p] = 0\) and \(E[\theta \nabla \log p] = -1\), over draws.

    A prior that cannot be simulated from is not asked.
    """
    prior, params = case
    try:
        first = prior.sample(jax.random.key(0), params)
    except NotImplementedError:
        return
    assert jax.tree.map(jnp.shape, first) == jax.tree.map(jnp.shape, params), "sample has other shapes than the weights"
    keys = jax.random.split(jax.random.key(1), _DRAWS)

    def scores(key: Any) -> tuple[Any, Any]:
        theta, unravel = tree.ravel(prior.sample(key, params))
        slope = jax.grad(lambda vector: prior.log_prob(unravel(vector)))(theta)
        return slope, theta * slope

    slope, product = jax.jit(jax.vmap(scores))(keys)
    within_errors(slope, 0.0, "the mean of the gradient of log p")
    within_errors(product, -1.0, "the mean of the weight times the gradient of log p")


PRIOR_LAWS = (
    log_prob_is_a_smooth_scalar,
    frozen_leaves_are_left_out,
    gaussian_is_the_gradient_and_curvature,
    draws_are_of_the_density,
)


def check_prior(prior: Prior, params: Params | None = None) -> None:
    """Runs every law of priors.

    Args:
        prior: the prior.
        params: a network's weights, for their structure and as a point; those of two small layers where None.

    Raises:
        AssertionError: which names every broken law, and says what it found.

    Examples:
        >>> import lamu
        >>> from lamu.testing import check_prior
        >>> check_prior(lamu.priors.Normal(0.5))
    """
    if params is None:
        numbers = np.random.default_rng(0)
        layer = lambda *shape: {"bias": numbers.normal(size=shape[-1]), "kernel": numbers.normal(size=shape)}
        params = {"layers": [layer(2, 3), layer(3, 1)]}
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), params)
    prior.check(params)
    check(type(prior).__name__, (prior, params), PRIOR_LAWS)
