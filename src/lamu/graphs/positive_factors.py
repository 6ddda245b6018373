"""Factors of positive numbers, counts, events and probabilities: Gamma to Poisson, Bernoulli to Dirichlet."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, gammaln

from lamu.families import Poisson as CountBelief
from lamu.graphs.expressions import Environment, Expression, RateProduct, ScaleProduct, Variable, lifted
from lamu.graphs.factor import Factor, argument, one_hot, summed
from lamu.graphs.statistics import (
    Bits,
    Categories,
    Chance,
    Numbers,
    Observed,
    PositiveNumbers,
    Probabilities,
    Statistics,
    Variances,
)
from lamu.record import record, static
from lamu.supports import Classes, Counts, PositiveReal, TwoClasses, UnitInterval
from lamu.typing import Array, Inputs, RandomKey

__all__ = [
    "Bernoulli",
    "BernoulliFactor",
    "BernoulliLogits",
    "BernoulliLogitsFactor",
    "Beta",
    "BetaFactor",
    "Categorical",
    "CategoricalFactor",
    "Dirichlet",
    "DirichletFactor",
    "Gamma",
    "GammaFactor",
    "HalfCauchy",
    "InverseGamma",
    "InverseGammaFactor",
    "MixedPoissonFactor",
    "Poisson",
    "PoissonFactor",
]


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
        return InverseGammaFactor(_require_numbers(0.5), ScaleProduct((auxiliary,)))


def Poisson(rate: Any) -> PoissonFactor:
    r"""Returns the Poisson factor of observed counts, \(x\, E\log r - E r - \log x!\).

    Rates may be products of vectors with `Gamma` beliefs, \(r_d = \sum_k \theta_k \beta_{kd}\), `theta @ beta`; then
    \(E \log r_d\) is its best bound over the shares of each count.

    Args:
        rate: r: positive numbers, or variables with a `Gamma` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Winn & Bishop (2005), section 2.3; Cemgil (2009), section 3, for products.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Poisson(3.0).shape
        ()
    """
    if isinstance(rate, RateProduct):
        return MixedPoissonFactor(rate)
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


@record
class MixedPoissonFactor(PoissonFactor):
    """Poisson factor of counts whose rates are sums of products. Use `Poisson`."""

    rate: RateProduct

    affine = False
    exchangeable = True

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        # Returns E r, and E r plus the variance of r.
        mean = self.rate.of_kind(PositiveNumbers, environment).value
        return mean, mean + self.rate.variance(environment)


def Bernoulli(probability: Any) -> BernoulliFactor:
    r"""Returns the Bernoulli factor of binary variables, \(x\, E\log p + (1 - x)\, E\log(1 - p)\).

    They are observed, or latent variables of a row: if no network reads them they are eliminated in closed form or by
    coordinate ascent, otherwise by `lamu.latent.AmortisedBernoulli`.

    Args:
        probability: p: numbers, or variables with a `Beta` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Bishop (2006), section 9.3.3.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Bernoulli(0.5).shape
        ()
    """
    return BernoulliFactor(argument(probability, Chance, "the probability of Bernoulli"))


@record
class BernoulliFactor(Factor):
    """Bernoulli factor of binary variables. Use `Bernoulli`."""

    probability: Expression  # p

    kind = Bits
    support = TwoClasses()

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        p = self.probability.of_kind(Chance, environment)
        value = jnp.asarray(x.value, jnp.result_type(p.log))
        return summed(value * p.log + (1.0 - value) * p.log_complement, observed)

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        # Returns the probability, and p(1 − p).
        p = self.probability.of_kind(Chance, environment)
        chance = jax.nn.sigmoid(p.log - p.log_complement)
        return chance, chance * (1.0 - chance)


def BernoulliLogits(logits: Any) -> BernoulliLogitsFactor:
    r"""Returns the factor of binary variables with log odds f, observed or latent in a row.

    \[ \log p(x \mid f) = \big(x - \tfrac12\big) f - \log\big(2\cosh\tfrac f2\big) \;\ge\;
       \big(x - \tfrac12\big) E f - \log\big(2\cosh\tfrac{\xi}{2}\big), \qquad \xi = \sqrt{E f^2} \]

    The right side is the best of the bounds that are quadratic in f. It is exact for a known f, and convex in
    \(E f^2\), so that its gradient is the message of a bound below it: no sweep lowers it.

    Args:
        logits: f: numbers, `W @ z`, sums of them, a member indexed by a category.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Jaakkola & Jordan (2000), equations 7 to 11; Tipping (1999).

    Examples:
        >>> from lamu import graphs
        >>> graphs.BernoulliLogits(0.5).shape
        ()
    """
    expression = lifted(logits)
    if expression.kinds() and not {Numbers, Statistics} & set(expression.kinds()):
        expression = argument(logits, Numbers, "the logits of BernoulliLogits")
    return BernoulliLogitsFactor(expression)


@record
class BernoulliLogitsFactor(Factor):
    """Factor of binary variables with log odds. Use `BernoulliLogits`."""

    logits: Expression  # f

    kind = Bits
    support = TwoClasses()
    affine = False
    by_entry = True

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        return jnp.sum(self.entry_densities(x, environment, observed))

    def entry_densities(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log probability at a known f, or its bound.
        mean, square = self._moments(environment)
        values = (jnp.asarray(x.value, mean.dtype) - 0.5) * mean - _log_two_cosh(square)
        return values if observed is None else jnp.where(observed, values, jnp.zeros_like(values))

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        # Returns p and p(1 − p), with f's variance by MacKay's \(p \approx \sigma(m / \sqrt{1 + \pi s^2/8})\).
        mean, square = self._moments(environment)
        p = jax.nn.sigmoid(mean / jnp.sqrt(1.0 + jnp.pi * jnp.maximum(square - mean**2, 0.0) / 8.0))
        return p, p * (1.0 - p)

    def _moments(self, environment: Environment) -> tuple[Array, Array]:
        """Returns E f and E f² of every entry."""
        mean = self.logits.first(environment)
        return mean, jax.grad(lambda weight: self.logits.quadratic(weight, environment))(jnp.zeros_like(mean))


def _log_two_cosh(square: Array) -> Array:
    r"""Returns \(\log(2\cosh(\xi/2))\) of ξ², by its series if ξ is so small that its root has no gradient."""
    small = square < 1e-4
    root = jnp.sqrt(jnp.where(small, 1.0, square))
    far = root / 2.0 + jnp.log1p(jnp.exp(-root))
    return jnp.where(small, jnp.log(2.0) + square / 8.0 - square**2 / 192.0, far)


def Categorical(probabilities: Any) -> CategoricalFactor:
    r"""Returns the categorical factor of one of K categories, \(\log p(z = k) = E \log\pi_k\).

    Data are integers from 0 to K − 1.

    Args:
        probabilities: π `[..., K]`: probabilities that sum to one, or variables with a `Dirichlet` belief, also those
            indexed by a category, `table[z]`.

    Raises:
        ValueError: for known probabilities that do not sum to one.
        TypeError: for an argument without a closed form.

    Source: Winn & Bishop (2005), section 2.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Categorical(jnp.full(4, 0.25)).shape
        (4,)
    """
    return CategoricalFactor(argument(probabilities, Probabilities, "the probabilities of Categorical"))


@record
class CategoricalFactor(Factor):
    """Categorical factor of one of K categories. Use `Categorical`."""

    probabilities: Expression

    kind = Categories

    @property
    def support(self) -> Classes:
        """K classes."""
        return Classes((self.shape or (1,))[-1])

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the inner product of one-hot vectors and log π.
        log = self.probabilities.of_kind(Probabilities, environment).log
        products = x.probabilities * log
        return jnp.sum(products) if observed is None else summed(products, observed[..., None])

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        # Returns the probabilities, and the variance of each category's indicator.
        p = jax.nn.softmax(self.probabilities.of_kind(Probabilities, environment).log, axis=-1)
        return p, p * (1.0 - p)

    def statistics(self, value: Any) -> Categories:
        # Returns one-hot vectors of integers.
        return Categories(one_hot(value, self.support.number))


def Beta(a: Any, b: Any) -> BetaFactor:
    r"""Returns the Beta factor of probabilities, each of one event.

    \[ (a - 1)\, E\log p + (b - 1)\, E\log(1 - p) - \log B(a, b) \]

    Args:
        a: known positive numbers.
        b: known positive numbers.

    Raises:
        TypeError: for a variable, in which the density is not affine.
        ValueError: for numbers that are not positive.

    Source: Bishop (2006), equation 2.13.

    Examples:
        >>> from lamu import graphs
        >>> m = graphs.Program()
        >>> with m.rows():
        ...     p = m.sample("p", graphs.Beta(1.0, 1.0))
        ...     y = m.sample("y", graphs.Bernoulli(p), plate=5)
        >>> p.shape
        ()
    """
    for name, value in (("a", a), ("b", b)):
        if isinstance(value, Expression):
            raise TypeError(
                f"the {name} of Beta is {', '.join(sorted(value.names))}, in which it has no closed form; give numbers"
            )
        if not np.all(np.asarray(value) > 0):
            raise ValueError(f"the {name} of Beta is {np.min(np.asarray(value)):g}; give positive numbers")
    floating = jnp.result_type(float)
    return BetaFactor(jnp.asarray(a, floating), jnp.asarray(b, floating))


@record
class BetaFactor(Factor):
    """Beta factor of probabilities of one event. Use `Beta`."""

    a: Array  # of the event
    b: Array  # of its complement

    kind = Chance
    support = UnitInterval()

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        a, b = self.a, self.b
        return summed((a - 1.0) * x.log + (b - 1.0) * x.log_complement - betaln(a, b), observed)

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        total = self.a + self.b
        return self.a / total, self.a * self.b / (total**2 * (total + 1.0))


def Dirichlet(concentration: Any) -> DirichletFactor:
    r"""Returns the Dirichlet factor of probabilities that sum to one.

    \[ \log\Gamma\Big(\sum_k \alpha_k\Big) - \sum_k \log\Gamma(\alpha_k) + \sum_k (\alpha_k - 1) E\log\pi_k \]

    Args:
        concentration: α `[..., K]`, known positive numbers.

    Raises:
        TypeError: for a variable, in which the density is not affine.
        ValueError: for numbers that are not positive.

    Source: Blei, Ng & Jordan (2003), section 3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Dirichlet(jnp.ones(3)).shape
        (3,)
    """
    if isinstance(concentration, Expression):
        raise TypeError(
            f"the concentration is {', '.join(sorted(concentration.names))}, in which a Dirichlet has no closed "
            "form; give numbers"
        )
    if not np.all(np.asarray(concentration) > 0):
        raise ValueError(f"the concentration is {np.min(np.asarray(concentration)):g}; give positive numbers")
    return DirichletFactor(jnp.asarray(concentration, jnp.result_type(float)))


@record
class DirichletFactor(Factor):
    """Dirichlet factor of probabilities that sum to one. Use `Dirichlet`."""

    concentration: Array

    kind = Probabilities
    misses = False

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        alpha = self.concentration
        constant = gammaln(jnp.sum(alpha, axis=-1)) - jnp.sum(gammaln(alpha), axis=-1)
        return jnp.sum(constant) + jnp.sum((alpha - 1.0) * x.log)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for numbers that are not positive, or do not sum to one.
        bad = observed & ~(value > 0)
        if bad.any():
            raise ValueError(f"{name} is {value[bad][0]:g} in a row; give probabilities above zero")
        sums = np.sum(value, axis=-1)
        wrong = np.all(observed, axis=-1) & (np.abs(sums - 1.0) > 1e-5)
        if wrong.any():
            raise ValueError(f"{name} sums to {sums[wrong][0]:g} in a row; divide each row by its sum")
