r"""Laws of a prior: density, draws and Gaussian form are consistent."""

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
_BESIDE = 1e-4  # the distance to a kink, at which rounding of log p in single precision is below the tolerance

Case = tuple[Prior, Params]


def log_prob_is_a_smooth_scalar(case: Case) -> None:
    """`log_prob` is a finite scalar with finite gradients for any weights, in float32 and compiled."""
    prior, params = case
    for dtype in (jnp.float32, jnp.result_type(float)):
        cast = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), params)
        value = prior.log_prob(cast)
        assert jnp.shape(value) == (), f"log_prob has the shape {jnp.shape(value)}, and must be a scalar"
        close(jax.jit(prior.log_prob)(cast), value, 1e-4, "log_prob, compiled,", 1e-5)
        gradient = tree.ravel(jax.grad(lambda params: prior.log_prob(params))(cast))[0]
        assert np.isfinite(gradient).all(), f"the gradient is not finite in {dtype}"


def frozen_leaves_condition(case: Case) -> None:
    """With a frozen leaf, the gradient in the free ones is that of the complete tree."""
    prior, params = case
    leaves, structure = jax.tree.flatten(params)
    if len(leaves) < 2:
        return
    frozen = jax.tree.unflatten(structure, [leaves[0]] + [None] * (len(leaves) - 1))
    theta, unravel = tree.ravel(jax.tree.unflatten(structure, [None, *leaves[1:]]))
    given = lambda vector: prior.given(frozen).log_prob(unravel(vector))
    joint = lambda vector: prior.log_prob(tree.merged(unravel(vector), frozen))
    close(jax.grad(given)(theta), jax.grad(joint)(theta), 1e-4, "the gradient given a frozen leaf", 1e-5)


def gaussian_is_the_gradient_and_curvature(case: Case) -> None:
    """The gradient and the Hessian of the density are those of `gaussian`, in the leaves that it covers."""
    prior, params = case
    gaussian = prior.gaussian(params)
    if gaussian is None:
        return
    is_none = lambda leaf: leaf is None
    ours = jax.tree.map(lambda mean, leaf: None if mean is None else leaf, gaussian.mean, params, is_leaf=is_none)
    others = jax.tree.map(lambda mean, leaf: leaf if mean is None else None, gaussian.mean, params, is_leaf=is_none)
    theta, unravel = tree.ravel(ours)
    surprise = lambda vector: -prior.log_prob(tree.merged(unravel(vector), others))
    pull = tree.ravel(gaussian.precision.matvec(tree.add(ours, gaussian.mean, -1.0)))[0]
    close(jax.grad(surprise)(theta), pull, 1e-4, "the gradient", 1e-5)
    diagonal = tree.ravel(gaussian.precision.diagonal(ours))[0]
    close(jnp.diagonal(jax.hessian(surprise)(theta)), diagonal, 1e-4, "the curvature", 1e-5)


def draws_are_of_the_density(case: Case) -> None:
    r"""Stein's identities, \(E[\nabla \log p] = 0\) and \(E[\theta \nabla \log p] = -1\), over draws."""
    # Priors that cannot be sampled from are skipped.
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


def kinks_are_those_of_the_density(case: Case) -> None:
    """Near a kink log p falls with the slope of `kinks`; at the kink the gradient is that of the smooth part."""
    prior, params = case
    kinks = prior.kinks(params)
    if kinks is None:
        return
    (places, unravel), slopes = tree.ravel(kinks[0]), tree.ravel(kinks[1])[0]
    log_prob = lambda vector: prior.log_prob(unravel(vector))
    gradient, step = jax.grad(log_prob)(places), _BESIDE * (1 + jnp.abs(places))
    for i in np.flatnonzero(np.isfinite(slopes)):
        right, left = (log_prob(places.at[i].add(side * step[i])) - log_prob(places) for side in (1, -1))
        fall, half = -(right + left) / (2 * step[i]), (right - left) / (2 * step[i])
        close(fall, slopes[i], 1e-2, "the slope beside a kink", 1e-3)
        close(gradient[i], half, 1e-2, "the gradient at a kink", 1e-3)


PRIOR_LAWS = (
    log_prob_is_a_smooth_scalar,
    frozen_leaves_condition,
    gaussian_is_the_gradient_and_curvature,
    draws_are_of_the_density,
    kinks_are_those_of_the_density,
)


def check_prior(prior: Prior, params: Params | None = None) -> None:
    """Runs every law of priors.

    Args:
        prior: the prior.
        params: a network's weights, for their structure and as a point; two small layers where None.

    Raises:
        AssertionError: names every broken law, with its values.

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
