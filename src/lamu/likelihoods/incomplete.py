"""Incomplete gamma and beta functions of any argument: distribution functions of counts and of positive targets."""

# JAX's series for the first takes as many terms as the root of its argument, and has no end in float32 where
# neighbouring terms cannot be told apart; its continued fraction for the second has errors of a percent in float32
# where an argument is 10⁴, and is no number above. Large arguments go to approximations, good to 10⁻⁵ where they begin
# and better above.

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.nn import sigmoid
from jax.scipy.special import betainc, gammainc, gammaincc, ndtr

from lamu.typing import Array

__all__ = ["cdf_of_beta", "cdf_of_count", "cdf_of_gamma"]

_SMALL = 10.0  # up to which shape a beta function is nearly a gamma function


def cdf_of_count(y: Array, mean: Array) -> Array:
    r"""Returns P(Y ≤ y) of Poisson counts, \(Q(y + 1, \mu)\)."""
    # Source: Wilson & Hilferty (1931), for large arguments.
    a = y + 1.0
    large = jnp.maximum(a, mean) > _most(mean.dtype)
    near = gammaincc(jnp.where(large, 1.0, a), jnp.where(large, 1.0, mean))
    return jnp.where(large, ndtr(-_cube_root(a, mean)), near)


def cdf_of_gamma(a: Array, x: Array) -> Array:
    r"""Returns P(Y ≤ x) of a gamma distributed target of shape a and rate one, \(P(a, x)\)."""
    # Source: Wilson & Hilferty (1931), for large shapes.
    most = _most(x.dtype)
    large = a > most
    # Far above the mean of any other shape everything is below.
    near = gammainc(jnp.where(large, 1.0, a), jnp.where(large, 1.0, jnp.minimum(x, 4.0 * most)))
    return jnp.where(large, ndtr(_cube_root(a, x)), near)


def cdf_of_beta(a: Array, b: Array, log_odds: Array) -> Array:
    r"""Returns the regularised incomplete beta function \(I_x(a, b)\), \(\log(x/(1 - x))\) being given."""
    # Source: Wise (1950), where one of both is large and the other below 10; Peizer & Pratt (1968), where both are
    # above.
    x, rest = sigmoid(log_odds), sigmoid(-log_odds)
    large = jnp.maximum(a, b) > _most(x.dtype)
    near = betainc(jnp.where(large, 1.0, a), jnp.where(large, 1.0, b), x)
    both = ndtr(_normal(jnp.maximum(a, _SMALL), jnp.maximum(b, _SMALL), x, rest))
    few, many, first = jnp.minimum(a, b), jnp.maximum(a, b), a < b
    rate = many + (few - 1.0) / 2.0
    by_gamma = cdf_of_gamma(few, rate * jnp.logaddexp(0.0, jnp.where(first, log_odds, -log_odds)))
    by_gamma = jnp.where(first, by_gamma, 1.0 - by_gamma)
    return jnp.where(large, jnp.where(few < _SMALL, by_gamma, both), near)


def _most(dtype: Any) -> float:
    """Up to where JAX's functions have the digits of their dtype, nearly, and end."""
    return 1e5 if dtype == jnp.float64 else 1e3


def _cube_root(a: Array, x: Array) -> Array:
    """The deviation from the mean of a cube root of a gamma distributed number, which is nearly normal."""
    return 3.0 * jnp.sqrt(a) * (jnp.cbrt(x / a) - 1.0 + 1.0 / (9.0 * a))


def _normal(a: Array, b: Array, x: Array, rest: Array) -> Array:
    """The normal deviation of a beta distribution function, by Peizer and Pratt."""
    above, below, n = b - 0.5, a - 0.5, a + b - 1.0
    # The same difference twice, of which one has no digits where x is near zero, and the other near one.
    away = jnp.where(x < 0.5, (n + 1 / 3) * x - (a - 1 / 3), (b - 1 / 3) - (n + 1 / 3) * rest)
    away = away + 0.02 * (x / b - rest / a + (x - 0.5) / (n + 1.0))
    skew = 1.0 + x * _skew(above / (n * rest)) + rest * _skew(below / (n * x))
    return away * jnp.sqrt(jnp.maximum(skew, 0.0) / ((n + 1 / 6) * x * rest))


def _skew(z: Array) -> Array:
    r"""\((1 - z^2 + 2 z \log z) / (1 - z)^2\), near one by its series."""
    u = z - 1.0
    near = jnp.abs(u) < 0.2
    small, far = jnp.where(near, u, 0.0), jnp.where(near, 2.0, z)
    series = sum(2.0 * (-small) ** (k - 2) / (k * (k - 1)) for k in range(3, 14))
    return jnp.where(near, series, (1.0 - far**2 + 2.0 * far * jnp.log(far)) / (1.0 - far) ** 2)
