r"""The normal distribution function in the tails: \(\log \Phi\) and the probability of intervals in every precision."""

# JAX's `log_ndtr` has the value, but its derivative is a difference of large numbers, wrong by factors at x = −10⁴ in
# float32. Here everything below −5 follows from one continued fraction of positive terms, and its derivatives are
# finite and right out there.

from __future__ import annotations

import math

import jax.numpy as jnp
from jax.scipy.special import ndtr

from lamu.typing import Array

__all__ = ["log1mexp", "log_normal_cdf", "log_normal_interval", "log_normal_pdf"]

_TAIL, _DEPTH = 5.0, 12  # from where on the fraction is taken, and how many of its terms: below 1e-16 there
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


def log_normal_pdf(x: Array) -> Array:
    r"""Returns \(\log \phi(x) = -x^2/2 - \log \sqrt{2\pi}\)."""
    return -0.5 * x**2 - _LOG_ROOT


def log_normal_cdf(x: Array) -> Array:
    r"""Returns \(\log \Phi(x)\), with derivatives that are finite and right in float32 from −10⁴ to 10⁴."""
    # Selections, and not minima and maxima: those halve the derivative where both are the same, as at x = 0.
    far, right = x < -_TAIL, x > 0
    tail = log_normal_pdf(x) - jnp.log(_hazard(jnp.where(far, x, -_TAIL)))
    left = jnp.log(ndtr(jnp.where(far | right, 0.0, x)))
    return jnp.where(far, tail, jnp.where(right, jnp.log1p(-ndtr(-jnp.where(right, x, 1.0))), left))


def log_normal_interval(a: Array, b: Array) -> Array:
    r"""Returns \(\log(\Phi(b) - \Phi(a))\) for a < b."""
    # Both ends are reflected to the side on which the smaller probabilities are, and their ratio is taken as the
    # exponential of \((b - a)(a + b)/2\), which has the digits that a difference of two squares loses.
    reflect = a + b > 0
    a, b = jnp.where(reflect, -b, a), jnp.where(reflect, -a, b)
    # Where b is in the tail a is too, and Φ(a)/Φ(b) has a form without the squares; elsewhere the logarithms do.
    deep = b < -_TAIL
    in_tail = 0.5 * (b - a) * (a + b) + jnp.log(_hazard(jnp.where(deep, b, -_TAIL)))
    in_tail = in_tail - jnp.log(_hazard(jnp.where(deep, a, -_TAIL)))
    ratio = jnp.where(deep, in_tail, log_normal_cdf(a) - log_normal_cdf(b))
    return log_normal_cdf(b) + log1mexp(ratio)


def log1mexp(x: Array) -> Array:
    r"""Returns \(\log(1 - e^x)\) for x < 0; an x that rounds to zero counts as one of that rounding."""
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
