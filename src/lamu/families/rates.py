"""Beliefs about positive numbers and counts: Gamma, inverse Gamma, Exponential and Poisson."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from lamu.families.exponential import Domain, Finite, Formulas, Positive, TextbookFamily, increasing_root, total
from lamu.families.special import draw_counts, entropy_of_count
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Exponential", "Gamma", "InverseGamma", "Poisson"]


# The inverse from μ to λ has no formula: the shape is the root of an increasing function of one variable, \(\psi(a) -
# \log a = E\log\theta - \log E\theta\), found by bisection.


@record
class Gamma(TextbookFamily):
    r"""A positive number: \(T = (\log\theta, \theta)\), \(\lambda = (a - 1, -b)\).

    \[ A = \log\Gamma(a) - a \log b, \qquad \mu = (\psi(a) - \log b,\; a/b) \]

    Attributes:
        shape: a, positive.
        rate: b, positive.

    Examples:
        >>> from lamu.families import Gamma
        >>> float(Gamma(shape=3.0, rate=2.0).mean)
        1.5
    """

    shape: Params
    rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"shape": Positive(), "rate": Positive()}
    events: ClassVar[tuple[int, ...]] = (0, 0)
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda a, b: (a - 1.0, -b),
        textbook=lambda log, linear: (log + 1.0, -linear),
        partition=lambda log, linear: gammaln(log + 1.0) - (log + 1.0) * jnp.log(-linear),
        statistics=lambda x: (jnp.log(x), x),
        mean=lambda a, b: a / b,
        draw=lambda key, a, b: gamma_draw(key, a) / b,
        of_moments=lambda log, mean: _with_ratio(gamma_shape(log - jnp.log(mean)), mean),
        variance=lambda a, b: a / b**2,
    )


@record
class InverseGamma(TextbookFamily):
    r"""A positive number whose reciprocal is Gamma: \(T = (\log\theta, 1/\theta)\), \(\lambda = (-a - 1, -b)\).

    \[ A = \log\Gamma(a) - a \log b, \qquad \mu = (\log b - \psi(a),\; a/b) \]

    Attributes:
        shape: a, positive.
        scale: b, positive.

    Examples:
        >>> from lamu.families import InverseGamma
        >>> float(InverseGamma(shape=3.0, scale=2.0).mean)
        1.0
    """

    shape: Params
    scale: Params

    domains: ClassVar[Mapping[str, Domain]] = {"shape": Positive(), "scale": Positive()}
    events: ClassVar[tuple[int, ...]] = (0, 0)
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda a, b: (-a - 1.0, -b),
        textbook=lambda log, inverse: (-log - 1.0, -inverse),
        partition=lambda log, inverse: gammaln(-log - 1.0) + (log + 1.0) * jnp.log(-inverse),
        statistics=lambda x: (jnp.log(x), 1.0 / x),
        mean=lambda a, b: jnp.where(a > 1.0, b / jnp.where(a > 1.0, a - 1.0, 1.0), jnp.inf),
        draw=lambda key, a, b: b / gamma_draw(key, a),
        of_moments=lambda log, inverse: _with_ratio(gamma_shape(-log - jnp.log(inverse)), inverse),
        variance=lambda a, b: jnp.where(a > 2.0, (b / (a - 1.0)) ** 2 / jnp.where(a > 2.0, a - 2.0, 1.0), jnp.inf),
    )


@record
class Exponential(TextbookFamily):
    r"""A waiting time: \(T = \theta > 0\), \(\lambda = -r\), \(A = -\log r\), \(\mu = 1/r\).

    Attributes:
        rate: r, positive.

    Examples:
        >>> from lamu.families import Exponential
        >>> float(Exponential(rate=4.0).mean)
        0.25
    """

    rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"rate": Positive()}
    formulas: ClassVar[Formulas] = Formulas(
        natural=jnp.negative,
        textbook=jnp.negative,
        partition=lambda natural: -jnp.log(-natural),
        statistics=lambda x: x,
        mean=jnp.reciprocal,
        draw=lambda key, r: jax.random.exponential(key, r.shape, r.dtype) / r,
        of_moments=jnp.reciprocal,
    )


def _with_ratio(shape: Array, ratio: Array) -> tuple[Array, Array]:
    """Returns a, and the b for a given ratio a/b."""
    return shape, shape / ratio


def by_halves(a: Array, dimension: int) -> Array:
    """Returns a − j/2 for j < p along a last axis, the arguments of gamma functions of matrices."""
    # One array for all: the program of separate terms grows with p, and each takes long to compile.
    steps = jnp.arange(dimension, dtype=a.dtype).reshape((1,) * a.ndim + (dimension,)) / 2.0
    return a[..., None] - steps


def gamma_shape(gap: Array, dimension: int = 1) -> Array:
    r"""Returns the a at which \(\sum_{j<p} \psi(a - j/2) - p \log a\) is the given gap, for p dimensions."""
    # The gap is \(E\log\theta - \log E\theta\) of the Gamma, and its matrix counterpart of the Wishart; NaN if it is
    # not negative.
    least, p = (dimension - 1) / 2.0, float(dimension)

    def function(t: Array) -> Array:
        a = least + jnp.exp(t)
        return jnp.sum(digamma(by_halves(a, dimension)), axis=-1) - p * jnp.log(a)

    t = increasing_root(function, jnp.where(gap < 0, gap, jnp.nan), -60.0, 40.0)
    return jnp.where(gap < 0, least + jnp.exp(t), jnp.nan)


def gamma_draw(key: RandomKey, shape: Array) -> Array:
    """Returns a sample of Gamma(shape, 1), bounded away from zero."""
    return jnp.maximum(jax.random.gamma(key, shape, dtype=shape.dtype), jnp.finfo(shape.dtype).tiny)


# The only family here with a base measure, \(h(\theta) = 1/\theta!\), that is not constant: \(\nabla_\mu H = -\lambda\)
# does not hold, and the rule applies in its first form, with the gradient of the entropy.


@record
class Poisson(TextbookFamily):
    r"""A count: \(T = \theta\), λ the logarithm of the rate, \(A = e^\lambda\), \(\mu = e^\lambda\), \(h = 1/\theta!\).

    Attributes:
        log_rate: λ, a tree of arrays of any shapes.

    Examples:
        >>> from lamu.families import Poisson
        >>> round(float(Poisson(log_rate=0.0).entropy()), 4)  # nats
        1.3048
    """

    log_rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"log_rate": Finite()}
    unbounded: ClassVar[bool] = True
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda log_rate: log_rate,
        textbook=lambda natural: natural,
        partition=jnp.exp,
        statistics=lambda count: count,
        mean=jnp.exp,
        draw=lambda key, log_rate: draw_counts(key, jnp.exp(log_rate)),
        of_moments=jnp.log,
    )

    def log_base_measure(self, theta: Params) -> Array:
        """Returns −log θ!."""
        return total(lambda count: -gammaln(count + 1.0), theta)

    def expected_log_base_measure(self) -> Array:
        """Returns −E log θ!, from the entropy."""
        leaf = lambda log_rate: jnp.exp(log_rate) * (1.0 - log_rate) - entropy_of_count(jnp.exp(log_rate))
        return total(leaf, self.log_rate)

    def entropy(self) -> Array:
        return total(lambda log_rate: entropy_of_count(jnp.exp(log_rate)), self.log_rate)
