"""Logarithms of factorials and their ratios, without the differences of large numbers that lose a count's digits."""

# The log density of a count of 10⁶ is of order −8, and log 10⁶! is 10⁷, where neighbouring numbers of float32 are one
# apart.

from __future__ import annotations

import math

import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy

from lamu.typing import Array

__all__ = ["log_choose", "log_gamma_ratio", "log_prob_of_count", "stirling"]

_LARGE = 20.0  # from where on three terms of the series have an error below 1e-12


def stirling(y: Array) -> Array:
    r"""Returns \(\log y! - y \log y + y\), which grows like \(\tfrac12 \log(2 \pi y)\)."""
    large = y >= _LARGE
    z, few = jnp.where(large, y, _LARGE), jnp.where(large, 0.0, y)
    series = 0.5 * jnp.log(2 * math.pi * z) + _remainder(z)
    return jnp.where(large, series, gammaln(few + 1.0) - xlogy(few, few) + few)


def log_choose(n: Array, y: Array) -> Array:
    r"""Returns \(\log \binom{n}{y}\)."""
    rest, some = n - y, jnp.maximum(n, 1.0)
    return stirling(n) - stirling(y) - stirling(rest) - xlogy(y, y / some) - xlogy(rest, rest / some)


def log_gamma_ratio(y: Array, a: Array) -> Array:
    r"""Returns \(\log \Gamma(y + a) - \log \Gamma(y + 1)\)."""
    large = y >= _LARGE
    z, few = jnp.where(large, y, _LARGE), jnp.where(large, 0.0, y)
    more = a - 1.0
    series = more * jnp.log(z + 1.0) + (z + a - 0.5) * jnp.log1p(more / (z + 1.0)) - more
    series = series + _remainder(z + a) - _remainder(z + 1.0)
    return jnp.where(large, series, gammaln(few + a) - gammaln(few + 1.0))


def log_prob_of_count(y: Array, mean: Array, log_mean: Array) -> Array:
    r"""Returns the Poisson log density \(y \log \mu - \mu - \log y!\), by the excess of log μ over log y."""
    some = jnp.where(y > 0, y, 1.0)
    excess = log_mean - jnp.log(some)
    near = (jnp.abs(excess) < 1.0) & (y > 0)
    small = jnp.where(near, excess, 0.0)
    deviance = jnp.where(near, some * (jnp.expm1(small) - small), mean - y - y * excess)
    return -deviance - stirling(y)


def _remainder(z: Array) -> Array:
    """Returns the remainder of Stirling's formula for log Γ, of a large number."""
    return (1 / 12 - (1 / 360 - 1 / (1260 * z**2)) / z**2) / z
