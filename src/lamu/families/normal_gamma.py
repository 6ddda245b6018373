"""Beliefs about the mean and the precision of a normal number together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from lamu.families.domains import Domain, Positive, Real
from lamu.families.exponential import ExponentialFamily, apart, sample_leaves, total
from lamu.families.gamma import Gamma, gamma_shape
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["NormalGamma"]


@record
class NormalGamma(ExponentialFamily):
    r"""A mean x and a precision τ: \(\tau \sim \mathrm{Gamma}(a, b)\), \(x \mid \tau \sim N(m, 1/(\kappa\tau))\).

    With \(T = (\log\tau,\; \tau,\; \tau x,\; \tau x^2)\), \(\lambda = (a - \tfrac12,\; -b - \tfrac12\kappa m^2,\;
    \kappa m,\; -\tfrac12\kappa)\) and

    \[ A = \log\Gamma(a) - a \log b + \tfrac12 \log (2\pi/\kappa), \qquad
       \mu = \Big(\psi(a) - \log b,\; \frac ab,\; \frac{ma}{b},\; \frac1\kappa + \frac{m^2 a}{b}\Big) \]

    θ is the dictionary of the "mean" x and the "precision" τ.

    Attributes:
        location: m.
        count: κ, positive: the number of rows that the mean is worth.
        shape: a, positive.
        rate: b, positive.

    Examples:
        >>> from lamu.families import NormalGamma
        >>> belief = NormalGamma(location=1.0, count=2.0, shape=3.0, rate=4.0)
        >>> {name: float(value) for name, value in belief.mean.items()}
        {'mean': 1.0, 'precision': 0.75}
    """

    location: Params
    count: Params
    shape: Params
    rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {
        "location": Real(),
        "count": Positive(),
        "shape": Positive(),
        "rate": Positive(),
    }
    events: ClassVar[tuple[int, ...]] = (0, 0, 0, 0)

    def to_natural(self) -> Any:
        """Returns (a − ½, −b − κ m²/2, κ m, −κ/2)."""
        leaf = lambda m, kappa, a, b: (a - 0.5, -b - kappa * m**2 / 2.0, kappa * m, -kappa / 2.0)
        return apart(leaf, 4, self.location, self.count, self.shape, self.rate)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> NormalGamma:
        """Returns the belief with these parameters."""

        def leaf(log: Array, linear: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            kappa = -2.0 * second
            m = first / kappa
            return m, kappa, log + 0.5, -linear - kappa * m**2 / 2.0

        return cls(*apart(leaf, 4, *values))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> NormalGamma:
        """Returns the belief with these expectations."""

        def leaf(log: Array, tau: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            m, a = first / tau, gamma_shape(log - jnp.log(tau))
            return m, 1.0 / (second - m * first), a, a / tau

        return cls(*apart(leaf, 4, *values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns log Γ(a) − a log b + ½ log 2π/κ."""

        def leaf(log: Array, linear: Array, first: Array, second: Array) -> Array:
            a, b, kappa = log + 0.5, -linear + first**2 / (4.0 * second), -2.0 * second
            return gammaln(a) - a * jnp.log(b) + 0.5 * jnp.log(2.0 * jnp.pi / kappa)

        return total(leaf, *values)

    def statistics(self, theta: Params) -> Any:
        """Returns (log τ, τ, τ x, τ x²)."""
        leaf = lambda x, tau: (jnp.log(tau), tau, tau * x, tau * x**2)
        return apart(leaf, 4, theta["mean"], theta["precision"])

    @property
    def mean(self) -> Params:
        """The means, m and a / b."""
        return {"mean": self.location, "precision": jax.tree.map(jnp.divide, self.shape, self.rate)}

    def sample(self, key: RandomKey) -> Params:
        """Returns a precision, and a mean given it; differentiable in the parameters."""
        precision_key, mean_key = jax.random.split(key)
        precision = Gamma(self.shape, self.rate).sample(precision_key)

        def draw(k: RandomKey, m: Array, kappa: Array, tau: Array) -> Array:
            return m + jax.random.normal(k, m.shape, m.dtype) / jnp.sqrt(kappa * tau)

        return {"mean": sample_leaves(mean_key, draw, self.location, self.count, precision), "precision": precision}
