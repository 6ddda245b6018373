"""Beliefs about positive numbers and counts: Gamma, inverse Gamma, Exponential and Poisson."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from lamu.families.exponential import Domain, ExponentialFamily, Positive, Real, increasing_root, sample_leaves, total
from lamu.record import record
from lamu.typing import Array, Params, RandomKey, Statistics

__all__ = ["Exponential", "Gamma", "InverseGamma", "Poisson"]


# From μ back to λ there is no formula: the shape is the root of an increasing function of one variable, \(\psi(a) -
# \log a = E\log\theta - \log E\theta\), found by bisection.


@record
class Gamma(ExponentialFamily):
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

    def to_natural(self) -> Any:
        """Returns (a − 1, −b)."""
        return jax.tree.map(lambda a: a - 1.0, self.shape), jax.tree.map(jnp.negative, self.rate)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Gamma:
        """Returns the belief with these parameters."""
        return cls(jax.tree.map(lambda a: a + 1.0, values[0]), jax.tree.map(jnp.negative, values[1]))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Gamma:
        """Returns the belief with these E log θ and E θ."""
        shape = jax.tree.map(lambda logarithm, mean: gamma_shape(logarithm - jnp.log(mean)), *values)
        return cls(shape, jax.tree.map(jnp.divide, shape, values[1]))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns log Γ(a) − a log b."""
        return total(lambda a, b: gammaln(a + 1.0) - (a + 1.0) * jnp.log(-b), *values)

    def statistics(self, theta: Params) -> Statistics:
        return jax.tree.map(jnp.log, theta), theta

    @property
    def mean(self) -> Params:
        """The ratio a / b."""
        return jax.tree.map(jnp.divide, self.shape, self.rate)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw, differentiable in a and b."""
        draw = lambda k, a, b: gamma_draw(k, a) / b
        return sample_leaves(key, draw, self.shape, self.rate)


@record
class InverseGamma(ExponentialFamily):
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

    def to_natural(self) -> Any:
        """Returns (−a − 1, −b)."""
        return jax.tree.map(lambda a: -a - 1.0, self.shape), jax.tree.map(jnp.negative, self.scale)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> InverseGamma:
        """Returns the belief with these parameters."""
        return cls(jax.tree.map(lambda a: -a - 1.0, values[0]), jax.tree.map(jnp.negative, values[1]))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> InverseGamma:
        """Returns the belief with these E log θ and E 1/θ."""
        shape = jax.tree.map(lambda logarithm, inverse: gamma_shape(-logarithm - jnp.log(inverse)), *values)
        return cls(shape, jax.tree.map(jnp.divide, shape, values[1]))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns log Γ(a) − a log b."""
        return total(lambda a, b: gammaln(-a - 1.0) + (a + 1.0) * jnp.log(-b), *values)

    def statistics(self, theta: Params) -> Statistics:
        """Returns (log θ, 1/θ)."""
        return jax.tree.map(jnp.log, theta), jax.tree.map(jnp.reciprocal, theta)

    @property
    def mean(self) -> Params:
        """The ratio b / (a − 1), infinite for a ≤ 1."""
        finite = lambda a, b: jnp.where(a > 1.0, b / jnp.where(a > 1.0, a - 1.0, 1.0), jnp.inf)
        return jax.tree.map(finite, self.shape, self.scale)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw, differentiable in a and b."""
        draw = lambda k, a, b: b / gamma_draw(k, a)
        return sample_leaves(key, draw, self.shape, self.scale)


@record
class Exponential(ExponentialFamily):
    r"""A wait: \(T = \theta > 0\), \(\lambda = -r\), \(A = -\log r\), \(\mu = 1/r\).

    Attributes:
        rate: r, positive.

    Examples:
        >>> from lamu.families import Exponential
        >>> float(Exponential(rate=4.0).mean)
        0.25
    """

    rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"rate": Positive()}

    def to_natural(self) -> Any:
        """Returns −r."""
        return jax.tree.map(jnp.negative, self.rate)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Exponential:
        """Returns the belief with this rate."""
        return cls(jax.tree.map(jnp.negative, values))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Exponential:
        """Returns the belief with the rate 1/μ."""
        return cls(jax.tree.map(jnp.reciprocal, values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns −log r."""
        return total(lambda natural: -jnp.log(-natural), values)

    def statistics(self, theta: Params) -> Statistics:
        return theta

    @property
    def mean(self) -> Params:
        """The reciprocal 1/r."""
        return jax.tree.map(jnp.reciprocal, self.rate)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw, differentiable in r."""
        return sample_leaves(key, lambda k, r: jax.random.exponential(k, r.shape, r.dtype) / r, self.rate)


def gamma_shape(gap: Array, dimension: int = 1) -> Array:
    r"""Returns the a at which \(\sum_{j<p} \psi(a - j/2) - p \log a\) is the given gap, for p dimensions."""
    # It is \(E\log\theta - \log E\theta\) of Gamma, and its matrix counterpart of Wishart; NaN where it is not
    # negative.
    least, p = (dimension - 1) / 2.0, float(dimension)
    halves = [j / 2.0 for j in range(dimension)]

    def function(t: Array) -> Array:
        a = least + jnp.exp(t)
        return sum((digamma(a - half) for half in halves), -p * jnp.log(a))

    t = increasing_root(function, jnp.where(gap < 0, gap, jnp.nan), -60.0, 40.0)
    return jnp.where(gap < 0, least + jnp.exp(t), jnp.nan)


def gamma_draw(key: RandomKey, shape: Array) -> Array:
    """Returns a draw of Gamma(shape, 1), never so small that it is zero."""
    return jnp.maximum(jax.random.gamma(key, shape, dtype=shape.dtype), jnp.finfo(shape.dtype).tiny)


# The one family here whose base measure, \(h(\theta) = 1/\theta!\), is not constant: \(\nabla_\mu H = -\lambda\) does
# not hold, and the rule has to be read in its first form, with the gradient of the entropy.


MANY = 100.0
"""From this rate on the entropy is its asymptotic series, whose first term left out is below 1e-10 there."""

TERMS = 256
"""Terms of the sum below it; the probability of larger counts is below 1e-35 at the rate of 100."""


@record
class Poisson(ExponentialFamily):
    r"""A count: \(T = \theta\), λ the logarithm of the rate, \(A = e^\lambda\), \(\mu = e^\lambda\), \(h = 1/\theta!\).

    Attributes:
        log_rate: λ, a tree of arrays of any shapes.

    Examples:
        >>> from lamu.families import Poisson
        >>> round(float(Poisson(log_rate=0.0).entropy()), 4)  # nats
        1.3048
    """

    log_rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"log_rate": Real()}
    unbounded: ClassVar[bool] = True

    def to_natural(self) -> Any:
        """Returns the logarithm of the rate."""
        return self.log_rate

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Poisson:
        """Returns the belief with this logarithm of the rate."""
        return cls(values)

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Poisson:
        """Returns the belief with the rate μ."""
        return cls(jax.tree.map(jnp.log, values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns the sum of the rates."""
        return total(jnp.exp, values)

    def statistics(self, theta: Params) -> Statistics:
        return theta

    def log_base_measure(self, theta: Params) -> Array:
        """Returns −log θ!."""
        return total(lambda count: -gammaln(count + 1.0), theta)

    def expected_log_base_measure(self) -> Array:
        """Returns −E log θ!, to ten digits: a sum, or an asymptotic series where rates are large."""
        return total(lambda log_rate: -_expected_log_factorial(log_rate), self.log_rate)

    @property
    def mean(self) -> Params:
        """The rates."""
        return jax.tree.map(jnp.exp, self.log_rate)

    def sample(self, key: RandomKey) -> Params:
        """Returns counts, as floating numbers."""
        draw = lambda k, log_rate: jax.random.poisson(k, jnp.exp(log_rate)).astype(log_rate.dtype)
        return sample_leaves(key, draw, self.log_rate)


def _expected_log_factorial(log_rate: Array) -> Array:
    few = jnp.minimum(log_rate, jnp.log(MANY))
    counts = jnp.arange(TERMS, dtype=log_rate.dtype).reshape((TERMS,) + (1,) * log_rate.ndim)
    log_factorial = gammaln(counts + 1.0)
    summed = jnp.sum(jnp.exp(counts * few[None] - jnp.exp(few)[None] - log_factorial) * log_factorial, axis=0)

    many = jnp.maximum(log_rate, jnp.log(MANY))
    r = jnp.exp(-many)
    tail = r * (1 / 12 + r * (1 / 24 + r * (19 / 360 + r * (9 / 80 + r * (863 / 2520)))))
    entropy = 0.5 * (jnp.log(2.0 * jnp.pi) + 1.0 + many) - tail
    rate = jnp.exp(many)
    return jnp.where(log_rate < jnp.log(MANY), summed, entropy - rate + many * rate)
