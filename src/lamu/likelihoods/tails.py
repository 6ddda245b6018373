"""Logarithms of both tails of a distribution, where 1 − cdf has no digits left: by quadrature of the density."""

# A tail is integrated outwards from its end, on the side of the mode where the smaller probability is; the other tail
# is its complement. The nodes are those of the exp–sinh rule, whose scale is that of the integrand at the end: one rule
# for normal, exponential and algebraic decay, differentiable in every parameter (JAX's `betainc` is not).
#
# Source: Takahasi & Mori (1974).

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid, softplus
from jax.scipy.special import logsumexp

from lamu.likelihoods.factorials import log_gamma_ratio, log_prob_of_count, stirling
from lamu.likelihoods.normal_tails import log1mexp
from lamu.typing import Array

__all__ = [
    "Tails",
    "log_between",
    "log_tails_of_beta",
    "log_tails_of_density",
    "log_tails_of_gamma",
    "log_tails_of_masses",
    "log_tails_of_student",
]

Tails = tuple[Array, Array]  # log P(Y ≤ y) and log P(Y > y)

# First, last and step of the rule's variable: the least node has what is lost below it, 1e-13 and 1e-6 of the scale.
_DOUBLE, _SINGLE = (-3.6, 2.9, 0.05), (-2.9, 2.7, 0.125)
_LOST = -80.0  # log of what a density is beside that at the end of a tail where nothing is left
_FARTHEST = 80.0  # logarithms of ratios whose exponentials are numbers of float32
_COUNTS = 512  # masses that are summed one by one; beyond them a geometric series
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def log_tails_of_gamma(a: Array, x: Array) -> Tails:
    r"""Returns \((\log P(a, x), \log Q(a, x))\), of a gamma distributed number of rate one."""
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    above = x > a
    sign = jnp.where(above, 1.0, -1.0).astype(x.dtype)

    def relative(s: Array) -> Array:  # log of the density of log x, as a sum of two terms below zero
        s = jnp.minimum(sign * s, _FARTHEST)
        return -x * (jnp.expm1(s) - s) - (x - a) * s

    at_end = log_prob_of_count(a, x, jnp.log(x)) + jnp.log(a)
    return _both(at_end + _log_integral(relative, _scale(jnp.abs(x - a), x)), above)


def log_tails_of_beta(a: Array, b: Array, log_odds: Array) -> Tails:
    r"""Returns \((\log I_x(a, b), \log (1 - I_x(a, b)))\), \(\log(x/(1 - x))\) being given."""
    n, away = a + b, log_odds - (jnp.log(a) - jnp.log(b))
    above = away > 0
    # By the share on whose side the smaller tail is, and its count: no difference is left of two large numbers.
    own, other = jnp.where(above, b, a), jnp.where(above, a, b)
    log_odds, away = jnp.where(above, -log_odds, log_odds), -jnp.abs(away)
    share, rest = sigmoid(log_odds), sigmoid(-log_odds)

    def relative(s: Array) -> Array:  # log of the density of the log odds
        return -own * s - n * _log_mean_exp(share, -softplus(-log_odds), -softplus(log_odds), -s)

    at_mode = stirling(n) - stirling(a) - stirling(b) + jnp.log(a) + jnp.log(b) - jnp.log(n)
    at_end = at_mode + own * away - n * _log_mean_exp(own / n, jnp.log(own / n), jnp.log(other / n), away)
    scale = _scale(jnp.abs(own * rest - other * share), n * share * rest)
    return _both(at_end + _log_integral(relative, scale), above)


def log_tails_of_student(df: Array, t: Array) -> Tails:
    """Returns the logarithms of P(T ≤ t) and P(T > t)."""
    end = jnp.abs(t)
    squares = df + end**2
    relative = lambda s: -0.5 * (df + 1) * jnp.log1p(s * (2 * end + s) / squares)
    at_end = log_gamma_ratio(df / 2 - 1, jnp.asarray(1.5, t.dtype)) - 0.5 * jnp.log(math.pi * df)
    at_end = at_end - 0.5 * (df + 1) * jnp.log1p(end**2 / df)
    curvature = jnp.maximum((df + 1) * (df - end**2) / squares**2, 0.0)
    return _both(at_end + _log_integral(relative, _scale((df + 1) * end / squares, curvature)), t >= 0)


def log_tails_of_density(log_density: Callable[[Array], Array], z: Array, above: Array, spread: Array) -> Tails:
    """Returns those of a density on the whole line, of which nothing else is known."""
    sign = jnp.where(above, 1.0, -1.0).astype(z.dtype)
    slope_of = lambda z: jax.jvp(log_density, (z,), (jnp.ones_like(z),))[1]
    slope, second = jax.jvp(slope_of, (z,), (jnp.ones_like(z),))
    scale = _scale(-sign * slope, jnp.maximum(-second, 0.0))
    scale = jnp.where(jnp.isfinite(scale) & (scale < 1e6 * spread), scale, spread)

    def at(s: Array) -> Array:
        # Where nothing is left of the density its slope may be infinite; there it is taken at z.
        far = ~(jax.lax.stop_gradient(log_density(z + sign * s) - log_density(z)) > _LOST)
        return jnp.where(far, -jnp.inf, log_density(jnp.where(far, z, z + sign * s)))

    return _both(_log_integral(at, scale), above)


def log_tails_of_masses(log_mass: Callable[[Array], Array], y: Array, above: Array) -> Tails:
    """Returns those of whole numbers from zero: a sum over masses next to y, and of the others a geometric series."""

    def mass(steps: Array) -> Array:
        at = jnp.where(above, y + 1.0 + steps, y - steps)
        return jnp.where(at < 0, -jnp.inf, log_mass(jnp.maximum(at, 0.0)))

    # In the scan and not at once: the likelihood sees as many rows as it has.
    masses = jax.lax.map(mass, jnp.arange(_COUNTS, dtype=y.dtype))
    ratio = jnp.minimum(masses[-1] - masses[-2], -1e-3)
    more = jnp.isfinite(masses[-1]) & jnp.isfinite(masses[-2])
    safe = jnp.where(more, ratio, -1.0)
    rest = jnp.where(more, masses[-1] + safe - log1mexp(safe), -jnp.inf)
    return _both(logsumexp(jnp.concatenate([masses, rest[None]]), axis=0), above)


def log_between(lower: Tails, upper: Tails, log_density: Callable[[Array], Array] | None, ends: Tails) -> Array:
    r"""Returns \(\log P(a < Y \le b)\) from the tails at both ends."""
    # The difference is taken of the smaller tails. Where nearly the same is left of both, it is the integral of the
    # density by 16 nodes of Gauss and Legendre.
    right = lower[1] < upper[0]
    larger = jnp.where(right, lower[1], upper[0])
    smaller = jnp.where(right, upper[1], lower[0])
    ratio = jnp.where(jnp.isfinite(larger) & jnp.isfinite(smaller), smaller - larger, -jnp.inf)
    narrow = ratio > -1.0 if log_density is not None else jnp.zeros(ratio.shape, bool)
    wide = larger + jnp.where(jnp.isfinite(ratio), log1mexp(jnp.where(jnp.isfinite(ratio), ratio, -1.0)), 0.0)
    if log_density is None:
        return wide
    a, b = ends
    half = 0.5 * jnp.where(narrow, b - a, 1.0)
    # Of a wide interval the density is taken at one end alone, where it is a number.
    at = lambda share, log_weight: log_density(jnp.where(narrow, a + share * (b - a), b)) + log_weight
    shares, log_weights = 0.5 * (1.0 + _NODES), np.log(_WEIGHTS)
    densities = jax.vmap(at)(jnp.asarray(shares, ratio.dtype), jnp.asarray(log_weights, ratio.dtype))
    return jnp.where(narrow, logsumexp(densities, axis=0) + jnp.log(half), wide)


def _both(smaller: Array, above: Array) -> Tails:
    """The lower and the upper tail, one of which is known."""
    smaller = jnp.minimum(smaller, 0.0)
    other = log1mexp(smaller)
    return jnp.where(above, other, smaller), jnp.where(above, smaller, other)


def _scale(slope: Array, curvature: Array) -> Array:
    """The reach of an integrand that falls with this slope and curvature, of a normal tail Mills's ratio nearly."""
    slope, curvature = jax.lax.stop_gradient((slope, curvature))
    return 1.0 / jnp.maximum(slope / 2 + jnp.sqrt(slope**2 / 4 + curvature), jnp.finfo(slope.dtype).tiny * 1e6)


def _log_integral(log_integrand: Callable[[Array], Array], scale: Array) -> Array:
    """Returns the logarithm of the integral from zero to infinity; the integrand takes points in the scale's shape."""
    nodes, log_weights = (jnp.asarray(part, scale.dtype) for part in _rule(scale.dtype == jnp.float64))
    values = jax.vmap(lambda node, log_weight: log_integrand(node * scale) + log_weight)(nodes, log_weights)
    return logsumexp(values, axis=0) + jnp.log(scale)


@cache
def _rule(double: bool) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of scale one, and the logarithms of their weights."""
    first, last, step = _DOUBLE if double else _SINGLE
    u = np.arange(first, last + step / 2, step)
    power = np.pi / 2 * np.sinh(u)
    return np.exp(power), power + np.log(np.pi / 2 * np.cosh(u) * step)


def _log_mean_exp(x: Array, log_x: Array, log_rest: Array, d: Any) -> Array:
    r"""\(\log(x e^d + 1 - x)\), with the digits of a small d."""
    near = jnp.abs(d) < 1.0
    small = jnp.log1p(x * jnp.expm1(jnp.where(near, d, 0.0)))
    return jnp.where(near, small, jnp.logaddexp(log_rest, log_x + d))
