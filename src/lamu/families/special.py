"""Special functions of distributions: log tails, factorials, and incomplete gamma and beta functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid, softplus
from jax.scipy.special import digamma, gammainc, gammaincc, gammaln, logsumexp, ndtr, xlogy

from lamu.typing import Array, DTypeLike, Numeric, RandomKey

__all__ = [
    "Tails",
    "cdf_of_count",
    "cdf_of_gamma",
    "digamma_over_log",
    "draw_counts",
    "entropy_of_count",
    "log1mexp",
    "log_between",
    "log_choose",
    "log_gamma_ratio",
    "log_normal_cdf",
    "log_normal_interval",
    "log_normal_pdf",
    "log_prob_of_count",
    "log_prob_of_student",
    "log_tails_of_beta",
    "log_tails_of_density",
    "log_tails_of_gamma",
    "log_tails_of_masses",
    "log_tails_of_student",
    "stirling",
]


# JAX's `log_ndtr` has the right value, but its derivative is a difference of large numbers, wrong by factors at
# x = −10⁴ in float32. Here one continued fraction of positive terms covers everything below −5, with
# derivatives that are finite and right.


_TAIL, _DEPTH = 5.0, 12  # where the fraction begins, and its number of terms: the error is below 1e-16
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


def log_normal_pdf(x: Array) -> Array:
    r"""Returns \(\log \phi(x) = -x^2/2 - \log \sqrt{2\pi}\)."""
    return -0.5 * x**2 - _LOG_ROOT


def log_normal_cdf(x: Array) -> Array:
    r"""Returns \(\log \Phi(x)\), with derivatives that are finite and right in float32 from −10⁴ to 10⁴."""
    # Selections instead of minima and maxima, which halve the derivative at ties, as at x = 0.
    far, right = x < -_TAIL, x > 0
    tail = log_normal_pdf(x) - jnp.log(_hazard(jnp.where(far, x, -_TAIL)))
    left = jnp.log(ndtr(jnp.where(far | right, 0.0, x)))
    return jnp.where(far, tail, jnp.where(right, jnp.log1p(-ndtr(-jnp.where(right, x, 1.0))), left))


def log_normal_interval(a: Array, b: Array) -> Array:
    r"""Returns \(\log(\Phi(b) - \Phi(a))\) for a < b."""
    # Both ends are reflected to the side with the smaller probabilities, and their ratio is computed as the
    # exponential of \((b - a)(a + b)/2\), which keeps the digits that a difference of two squares loses.
    reflect = a + b > 0
    a, b = jnp.where(reflect, -b, a), jnp.where(reflect, -a, b)
    # If b is in the tail a is too, and Φ(a)/Φ(b) has a form without the squares; otherwise the logarithms suffice.
    deep = b < -_TAIL
    in_tail = 0.5 * (b - a) * (a + b) + jnp.log(_hazard(jnp.where(deep, b, -_TAIL)))
    in_tail = in_tail - jnp.log(_hazard(jnp.where(deep, a, -_TAIL)))
    ratio = jnp.where(deep, in_tail, log_normal_cdf(a) - log_normal_cdf(b))
    return log_normal_cdf(b) + log1mexp(ratio)


def log1mexp(x: Array) -> Array:
    r"""Returns \(\log(1 - e^x)\) for x < 0; an x that rounds to zero is replaced by one unit of rounding."""
    x = jnp.minimum(x, -(jnp.finfo(x.dtype).eps ** 2))
    small = x > -math.log(2)
    return jnp.where(
        small, jnp.log(-jnp.expm1(jnp.where(small, x, -1.0))), jnp.log1p(-jnp.exp(jnp.where(small, -1.0, x)))
    )


def _hazard(x: Array) -> Array:
    """Returns φ(x)/Φ(x) for x ≤ −5."""
    t = fraction = -x
    for n in range(_DEPTH, 0, -1):
        fraction = t + n / fraction
    return fraction


# The log density of a count of 10⁶ is of order −8, and log 10⁶! is 10⁷, where neighbouring float32 numbers differ by
# one.


_LARGE = 20.0  # above which three terms of the series have an error below 1e-12


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


def log_prob_of_student(t: Array, df: Array) -> Array:
    """Returns the log density of Student's t."""
    constant = log_gamma_ratio(df / 2 - 1, jnp.asarray(1.5, df.dtype)) - jnp.log(math.pi * df) / 2
    return constant - (df + 1) / 2 * jnp.log1p(t * t / df)


def digamma_over_log(a: Array) -> Array:
    r"""Returns \(\psi(a) - \log a\), about \(-1/(2a)\)."""
    large = a >= _LARGE
    z, few = jnp.where(large, a, _LARGE), jnp.where(large, 1.0, a)
    series = -(0.5 + (1 / 12 - (1 / 120 - 1 / (252 * z**2)) / z**2) / z) / z
    return jnp.where(large, series, digamma(few) - jnp.log(few))


def _remainder(z: Array) -> Array:
    """Returns the remainder of Stirling's formula for log Γ, for large arguments."""
    return (1 / 12 - (1 / 360 - 1 / (1260 * z**2)) / z**2) / z


# JAX's series for the first takes as many terms as the root of its argument, and does not end in float32 when
# neighbouring terms are equal; its continued fraction for the second has errors of a percent in float32
# for arguments of 10⁴, and is not finite above. Large arguments use approximations, good to 10⁻⁵ where they begin
# and better above.


def cdf_of_count(y: Array, mean: Array) -> Array:
    r"""Returns P(Y ≤ y) of Poisson counts, \(Q(y + 1, \mu)\)."""
    # Source: Wilson & Hilferty (1931), for large arguments.
    a = y + 1.0
    large = jnp.maximum(a, mean) > _largest_argument(mean.dtype)
    near = gammaincc(jnp.where(large, 1.0, a), jnp.where(large, 1.0, mean))
    return jnp.where(large, ndtr(-_cube_root(a, mean)), near)


def cdf_of_gamma(a: Array, x: Array) -> Array:
    r"""Returns P(Y ≤ x) of a gamma distributed target of shape a and rate one, \(P(a, x)\)."""
    # Source: Wilson & Hilferty (1931), for large shapes.
    most = _largest_argument(x.dtype)
    large = a > most
    # Far above the mean of any other shape the probability is one.
    near = gammainc(jnp.where(large, 1.0, a), jnp.where(large, 1.0, jnp.minimum(x, 4.0 * most)))
    return jnp.where(large, ndtr(_cube_root(a, x)), near)


def _largest_argument(dtype: DTypeLike) -> float:
    """Returns the argument up to which JAX's functions are accurate to nearly all digits, and terminate."""
    return 1e5 if dtype == jnp.float64 else 1e3


def _cube_root(a: Array, x: Array) -> Array:
    """Returns the standardised cube root of a gamma distributed number, which is nearly normal."""
    return 3.0 * jnp.sqrt(a) * (jnp.cbrt(x / a) - 1.0 + 1.0 / (9.0 * a))


# A tail is integrated outwards from its end, on the side of the mode with the smaller probability; the other tail
# is its complement. The nodes are those of the exp–sinh rule, scaled like the integrand at the end: one rule
# for normal, exponential and algebraic decay, differentiable in every parameter (JAX's `betainc` is not).
#
# Source: Takahasi & Mori (1974).


Tails = tuple[Array, Array]  # log P(Y ≤ y) and log P(Y > y)

# First, last and step of the rule's variable: the least node omits 1e-13 and 1e-6 of the scale below it.
_DOUBLE, _SINGLE = (-3.6, 2.9, 0.05), (-2.9, 2.7, 0.125)
_LOST = -80.0  # log of a density relative to that at the end of its tail, below which it is negligible
_FARTHEST = 80.0  # largest logarithm of a ratio with a float32 exponential
_COUNTS = 512  # masses that are summed individually; beyond them a geometric series
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def log_tails_of_gamma(a: Array, x: Array) -> Tails:
    r"""Returns \((\log P(a, x), \log Q(a, x))\), of a gamma distributed number of rate one."""
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    above = x > a
    sign = jnp.where(above, 1.0, -1.0).astype(x.dtype)

    def relative(s: Array) -> Array:  # log of the density of log x, as a sum of two negative terms
        s = jnp.minimum(sign * s, _FARTHEST)
        return -x * (jnp.expm1(s) - s) - (x - a) * s

    at_end = log_prob_of_count(a, x, jnp.log(x)) + jnp.log(a)
    return _tails(at_end + _log_integral(relative, _scale(jnp.abs(x - a), x)), above)


def log_tails_of_beta(a: Array, b: Array, log_odds: Array) -> Tails:
    r"""Returns \((\log I_x(a, b), \log (1 - I_x(a, b)))\), from \(\log(x/(1 - x))\)."""
    n, away = a + b, log_odds - (jnp.log(a) - jnp.log(b))
    above = away > 0
    # By the share with the smaller tail, and its count, to avoid a difference of two large numbers.
    own, other = jnp.where(above, b, a), jnp.where(above, a, b)
    log_odds, away = jnp.where(above, -log_odds, log_odds), -jnp.abs(away)
    share, rest = sigmoid(log_odds), sigmoid(-log_odds)
    # In terms of the smaller count, whose share keeps its digits even if the other count is in the millions.
    few = jnp.minimum(own, other)
    sign = jnp.where(own > other, 1.0, -1.0).astype(n.dtype)
    share_of_few, log_share, log_rest = (
        sigmoid(-sign * log_odds),
        -softplus(sign * log_odds),
        -softplus(-sign * log_odds),
    )

    def relative(s: Array) -> Array:  # log of the density of the log odds
        return sign * few * s - n * _log_mean_exp(share_of_few, log_share, log_rest, sign * s)

    at_mode = stirling(n) - stirling(a) - stirling(b) + jnp.log(a) + jnp.log(b) - jnp.log(n)
    rest_of_mode = -jnp.log1p(few / jnp.maximum(own, other))
    at_end = _log_mean_exp(few / n, jnp.log(few / n), rest_of_mode, -sign * away)
    at_end = at_mode - sign * few * away - n * at_end
    scale = _scale(jnp.abs(own * rest - other * share), n * share * rest)
    return _tails(at_end + _log_integral(relative, scale), above)


def log_tails_of_student(df: Array, t: Array) -> Tails:
    """Returns the logarithms of P(T ≤ t) and P(T > t)."""
    end = jnp.abs(t)
    squares = df + end**2
    relative = lambda s: -0.5 * (df + 1) * jnp.log1p(s * (2 * end + s) / squares)
    at_end = log_gamma_ratio(df / 2 - 1, jnp.asarray(1.5, t.dtype)) - 0.5 * jnp.log(math.pi * df)
    at_end = at_end - 0.5 * (df + 1) * jnp.log1p(end**2 / df)
    curvature = jnp.maximum((df + 1) * (df - end**2) / squares**2, 0.0)
    return _tails(at_end + _log_integral(relative, _scale((df + 1) * end / squares, curvature)), t >= 0)


def log_tails_of_density(log_density: Callable[[Array], Array], z: Array, above: Array, spread: Array) -> Tails:
    """Returns the log tails of any density on the whole line."""
    sign = jnp.where(above, 1.0, -1.0).astype(z.dtype)
    slope_of = lambda z: jax.jvp(log_density, (z,), (jnp.ones_like(z),))[1]
    slope, second = jax.jvp(slope_of, (z,), (jnp.ones_like(z),))
    scale = _scale(-sign * slope, jnp.maximum(-second, 0.0))
    scale = jnp.where(jnp.isfinite(scale) & (scale < 1e6 * spread), scale, spread)

    def at(s: Array) -> Array:
        # Where the density is negligible its slope may be infinite; there it is taken at z.
        far = ~(jax.lax.stop_gradient(log_density(z + sign * s) - log_density(z)) > _LOST)
        return jnp.where(far, -jnp.inf, log_density(jnp.where(far, z, z + sign * s)))

    return _tails(_log_integral(at, scale), above)


def log_tails_of_masses(log_mass: Callable[[Array], Array], y: Array, above: Array) -> Tails:
    """Returns the log tails of integers from zero: a sum over masses near y, and a geometric series for the others."""

    def mass(steps: Array) -> Array:
        count = jnp.where(above, y + 1.0 + steps, y - steps)
        return jnp.where(count < 0, -jnp.inf, log_mass(jnp.maximum(count, 0.0)))

    # In a scan rather than at once: the likelihood gets its own number of rows.
    masses = jax.lax.map(mass, jnp.arange(_COUNTS, dtype=y.dtype))
    ratio = jnp.minimum(masses[-1] - masses[-2], -1e-3)
    more = jnp.isfinite(masses[-1]) & jnp.isfinite(masses[-2])
    safe = jnp.where(more, ratio, -1.0)
    rest = jnp.where(more, masses[-1] + safe - log1mexp(safe), -jnp.inf)
    return _tails(logsumexp(jnp.concatenate([masses, rest[None]]), axis=0), above)


def log_between(lower: Tails, upper: Tails, log_density: Callable[[Array], Array] | None, ends: Tails) -> Array:
    r"""Returns \(\log P(a < Y \le b)\) from the tails at both ends."""
    # The difference of the smaller tails. If both are nearly equal, it is the integral of the
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
    # For a wide interval the density is evaluated only at one end, where it is finite.
    log_term = lambda share, log_weight: log_density(jnp.where(narrow, a + share * (b - a), b)) + log_weight
    shares, log_weights = 0.5 * (1.0 + _NODES), np.log(_WEIGHTS)
    densities = jax.vmap(log_term)(jnp.asarray(shares, ratio.dtype), jnp.asarray(log_weights, ratio.dtype))
    return jnp.where(narrow, logsumexp(densities, axis=0) + jnp.log(half), wide)


def _tails(smaller: Array, above: Array) -> Tails:
    """Returns the lower and the upper tail from one of them."""
    smaller = jnp.minimum(smaller, 0.0)
    other = log1mexp(smaller)
    return jnp.where(above, other, smaller), jnp.where(above, smaller, other)


def _scale(slope: Array, curvature: Array) -> Array:
    """Returns the scale of an integrand with this slope and curvature, for a normal tail nearly Mills's ratio."""
    slope, curvature = jax.lax.stop_gradient((slope, curvature))
    return 1.0 / jnp.maximum(slope / 2 + jnp.sqrt(slope**2 / 4 + curvature), jnp.finfo(slope.dtype).tiny * 1e6)


def _log_integral(log_integrand: Callable[[Array], Array], scale: Array) -> Array:
    """Returns the logarithm of the integral from zero to infinity; the integrand takes points in the scale's shape."""
    nodes, log_weights = (jnp.asarray(part, scale.dtype) for part in _rule(scale.dtype == jnp.float64))
    values = jax.vmap(lambda node, log_weight: log_integrand(node * scale) + log_weight)(nodes, log_weights)
    return logsumexp(values, axis=0) + jnp.log(scale)


@cache
def _rule(double: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes of scale one, and the logarithms of their weights."""
    first, last, step = _DOUBLE if double else _SINGLE
    u = np.arange(first, last + step / 2, step)
    power = np.pi / 2 * np.sinh(u)
    return np.exp(power), power + np.log(np.pi / 2 * np.cosh(u) * step)


def _log_mean_exp(x: Array, log_x: Array, log_rest: Array, d: Numeric) -> Array:
    r"""Returns \(\log(x e^d + 1 - x)\), accurate for small d."""
    near = jnp.abs(d) < 1.0
    small = jnp.log1p(x * jnp.expm1(jnp.where(near, d, 0.0)))
    return jnp.where(near, small, jnp.logaddexp(log_rest, log_x + d))


# Counts around a mean.


_FEW = 64.0  # the mean up to which the entropy is a sum over counts, and above which a series is exact to 1e-10
_LEAST = 1e-30  # the smallest mean; the entropy below it is negligible
_SUMMED = 192  # counts, which at that mean cover all but 1e-40


def entropy_of_count(mean: Array) -> Array:
    r"""Returns the entropy of Poisson counts, \(\sum_y p \log(1/p)\), for a large mean by its asymptotic series."""
    few = jnp.clip(mean, _LEAST, _FEW)
    y = jnp.arange(_SUMMED, dtype=mean.dtype).reshape(-1, *[1] * mean.ndim)
    log_prob = log_prob_of_count(y, few[None], jnp.log(few)[None])
    many = jnp.maximum(mean, _FEW)
    r = 1.0 / many  # by Horner's scheme, as powers of a large mean overflow float32
    series = -r * (1 / 12 + r * (1 / 24 + r * (19 / 360 + r * (9 / 80 + r * (863 / 2520)))))
    few = -jnp.sum(jnp.exp(log_prob) * log_prob, axis=0)
    return jnp.where(mean < _FEW, few, 0.5 * jnp.log(2 * math.pi * math.e * many) + series)


def draw_counts(key: RandomKey, mean: Array) -> Array:
    """Returns Poisson counts as numbers of the mean's dtype."""
    # Above a mean of 10⁸ they are rounded normal samples, since JAX's counts are integers of 32 bits.
    first, second = jax.random.split(key)
    counts = jax.random.poisson(first, jnp.minimum(mean, 1e8)).astype(mean.dtype)
    many = jnp.maximum(mean, 1e8)
    return jnp.where(
        mean < 1e8, counts, jnp.round(many + jnp.sqrt(many) * jax.random.normal(second, mean.shape, mean.dtype))
    )
