"""Factors of positive numbers and counts: Gamma, inverse Gamma, half-Cauchy and Poisson."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from lamu.families import Poisson as CountBelief
from lamu.graphs.expressions import Environment, Expression, ScaleProduct, Variable
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Observed, PositiveNumbers, Variances
from lamu.record import record, static
from lamu.supports import Counts, PositiveReal
from lamu.typing import Array, Inputs, RandomKey

__all__ = ["Gamma", "GammaFactor", "HalfCauchy", "InverseGamma", "InverseGammaFactor", "Poisson", "PoissonFactor"]


def Gamma(shape: Any, rate: Any) -> GammaFactor:
    r"""Returns the Gamma factor of positive numbers, \(a E\log b - \log\Gamma(a) + (a-1) E\log x - E b\, E x\).

    Args:
        shape: a, known positive numbers.
        rate: b: positive numbers, or variables with a `Gamma` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Winn & Bishop (2005), section 2.3.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Gamma(2.0, 1.0).shape
        ()
    """
    return GammaFactor(_require_numbers(shape), argument(rate, PositiveNumbers, "the rate of Gamma"))


def InverseGamma(shape: Any, scale: Any) -> InverseGammaFactor:
    r"""Returns the factor of variances, \(a E\log b - \log\Gamma(a) - (a+1) E\log x - E b\, E x^{-1}\).

    Args:
        shape: a, known positive numbers.
        scale: b: positive numbers, or variables with a `Gamma` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Wand, Ormerod, Padoan & Frühwirth (2011), section 2.

    Examples:
        >>> from lamu import graphs
        >>> graphs.InverseGamma(2.0, 1.0).shape
        ()
    """
    return InverseGammaFactor(_require_numbers(shape), argument(scale, PositiveNumbers, "the scale of InverseGamma"))


@record
class GammaFactor(Factor):
    """Gamma factor of positive numbers. Use `Gamma`."""

    a: Array  # the shape
    rate: Expression  # b

    kind = PositiveNumbers
    support = PositiveReal()

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        b, a = self.rate.of_kind(PositiveNumbers, environment), self.a
        return summed(a * b.log - gammaln(a) + (a - 1.0) * x.log - b.value * x.value, observed)


@record
class InverseGammaFactor(Factor):
    """Inverse gamma factor of variances. Use `InverseGamma`."""

    a: Array  # the shape
    scale: Expression  # b

    kind = Variances
    support = PositiveReal()

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        b, a = self.scale.of_kind(PositiveNumbers, environment), self.a
        return summed(a * b.log - gammaln(a) - (a + 1.0) * x.log - b.value * x.inverse, observed)


def _require_numbers(shape: Any) -> Array:
    if isinstance(shape, Expression):
        name = shape.name if isinstance(shape, Variable) else ", ".join(sorted(shape.names))
        raise TypeError(f"the shape is the variable {name!r}, and a closed form needs a known one; give numbers")
    if not np.all(np.asarray(shape) > 0):
        raise ValueError(f"the shape is {np.min(np.asarray(shape)):g}; give positive numbers")
    return jnp.asarray(shape, jnp.result_type(float))


# \[ s \sim C^+(0, A) \quad\Leftrightarrow\quad s^2 \mid a \sim IG(\tfrac12, 1/a), \quad a \sim IG(\tfrac12, 1/A^2) \]


@record
class HalfCauchy:
    r"""A positive scale s with density \(\propto 1/(1 + s^2/A^2)\), for `Normal(..., scale=s)`.

    The variable with its name is \(s^2\); the auxiliary one is called `NAME.auxiliary`. Scales may be multiplied
    with each other and with numbers, as in the horseshoe.

    Attributes:
        scale: A, positive.

    Source: Wand, Ormerod, Padoan & Frühwirth (2011), result 5.

    Examples:
        >>> from lamu import graphs
        >>> graphs.HalfCauchy(0.1).auxiliary.shape
        ()
    """

    scale: Any = static()

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.scale) > 0):
            raise ValueError(f"the scale of HalfCauchy is {self.scale!r}; give a positive number")

    @property
    def auxiliary(self) -> InverseGammaFactor:
        """The factor of a."""
        return InverseGamma(0.5, 1.0 / np.asarray(self.scale) ** 2)

    def square(self, auxiliary: Variable) -> InverseGammaFactor:
        """Returns the factor of s² given a.

        Args:
            auxiliary: a.
        """
        return InverseGamma(0.5, ScaleProduct((auxiliary,)))


def Poisson(rate: Any) -> PoissonFactor:
    r"""Returns the Poisson factor of observed counts, \(x\, E\log r - E r - \log x!\).

    Args:
        rate: r: positive numbers, or variables with a `Gamma` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Winn & Bishop (2005), section 2.3.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Poisson(3.0).shape
        ()
    """
    return PoissonFactor(argument(rate, PositiveNumbers, "the rate of Poisson"))


@record
class PoissonFactor(Factor):
    """Poisson factor of counts. Use `Poisson`."""

    rate: Expression  # r

    kind = Observed
    fills = True
    support = Counts()

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        rate = self.rate.of_kind(PositiveNumbers, environment)
        count = jnp.asarray(x.value, jnp.result_type(rate.log))
        return summed(count * rate.log - rate.value - gammaln(count + 1.0), observed)

    def filled(self, key: RandomKey, value: Array, environment: Environment, observed: Array) -> Array:
        log_rate = jnp.broadcast_to(jnp.log(self.rate.of_kind(PositiveNumbers, environment).value), jnp.shape(value))
        sample = CountBelief(log_rate).sample(key)
        return jnp.where(observed, jnp.asarray(value, sample.dtype), sample)

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        # Returns E r, and E r plus the variance of r.
        rate = self.rate.of_kind(PositiveNumbers, environment)
        return rate.value, rate.value + rate.value**2 / rate.shape
