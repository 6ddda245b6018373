r"""\(E[a(u)\, a(v)]\) of activations under a bivariate normal distribution with mean zero: how a layer maps kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["EXPECTATIONS", "erf_expectation", "relu_expectation"]


def relu_expectation(covariance: Array, one: Array, other: Array) -> Array:
    """Returns the expectation for rectifiers."""
    # \[ \tfrac{1}{2\pi} \sqrt{k k'}\, \big(\sin\theta + (\pi - \theta) \cos\theta\big), \quad
    #    \cos\theta = c / \sqrt{k k'} \]
    #
    # Source: Cho & Saul (2009), equation 6, of order one.
    scale = jnp.sqrt(one * other)
    positive = scale > 0
    cosine = jnp.where(positive, covariance, 0.0) / jnp.where(positive, scale, 1.0)
    return scale * _arc_cosine(jnp.clip(cosine, -1.0, 1.0)) / (2 * jnp.pi)


@jax.custom_jvp
def _arc_cosine(cosine: Array) -> Array:
    angle = jnp.arccos(cosine)
    return jnp.sin(angle) + (jnp.pi - angle) * cosine


@_arc_cosine.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # By the chain rule it would be infinity times zero where the two inputs are the same.
    return _arc_cosine(*primals), (jnp.pi - jnp.arccos(primals[0])) * tangents[0]


def erf_expectation(covariance: Array, one: Array, other: Array) -> Array:
    """Returns the expectation for error functions."""
    # \[ \tfrac{2}{\pi} \arcsin \frac{2c}{\sqrt{(1 + 2k)(1 + 2k')}} \]
    #
    # Source: Williams (1997), equation 11.
    return 2 / jnp.pi * jnp.arcsin(2 * covariance / jnp.sqrt((1 + 2 * one) * (1 + 2 * other)))


EXPECTATIONS = {"relu": relu_expectation, "erf": erf_expectation}
