"""Beliefs about counts."""

# The one family here whose base measure, \(h(\theta) = 1/\theta!\), is not constant: \(\nabla_\mu H = -\lambda\) does
# not hold, and the rule has to be read in its first form, with the gradient of the entropy.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from lamu.families.domains import Domain, Real
from lamu.families.exponential import ExponentialFamily, sample_leaves, total
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Poisson"]

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

    def statistics(self, theta: Params) -> Any:
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
