"""Observations of conjugate models, each defined by one formula."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, digamma, gammaln, xlogy

from lamu import tree
from lamu.base.arguments import require_positive
from lamu.families import Beta, Dirichlet, Gamma, Gaussian, NormalGamma, NormalWishart
from lamu.likelihoods.interface import Distribution, Likelihood
from lamu.record import record, static
from lamu.supports import Classes, Counts, PositiveReal, Real, TwoClasses
from lamu.typing import Array, Belief, Number, Params, Statistics, Targets

__all__ = [
    "Bernoulli",
    "Categorical",
    "Exponential",
    "MultivariateNormal",
    "Normal",
    "NormalMean",
    "Observation",
    "Poisson",
]


# \[ \log p(y \mid \theta) = \langle t(y), T(\theta) \rangle + \log h(y) \]
#
# with T the statistics of the prior's family. Then \(E_q[\log p(y \mid \theta)]\) is linear in \(\mu =
# E_q[T(\theta)]\), its gradient in μ is \(t(y)\), and the rule with ρ = 1 adds up, \(\lambda \leftarrow \lambda +
# \sum_i t(y_i)\): that is Bayes' theorem. The predictive is \(p(y^* \mid D) = h(y^*) \exp(A(\lambda + t(y^*)) -
# A(\lambda))\). One formula, `log_density`, defines both: its value at T = 0 is log h, its gradient t.


class Observation(Likelihood, ABC):
    r"""Base class of observations: likelihoods whose outputs f are the parameters θ.

    `lamu.ConjugateModel` combines it with a prior of its family. Its targets have no inputs.

    Attributes:
        family: the family of beliefs about θ that it is conjugate to.
        support: the values of a target, one of `lamu.supports`.
        axes: of the targets.
    """

    family: ClassVar[type]
    support: Any = Real()
    axes: ClassVar[int] = 1

    @abstractmethod
    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns log p(y | θ) of one target in nats, an affine function of the statistics T(θ).

        Args:
            statistics: T(θ), a tree like the values of the family's natural parameters; or their expectation.
            y: one target.
        """

    @abstractmethod
    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns the mean, aleatoric and epistemic uncertainty of a new target under a belief.

        For numbers E[y], E[Var(y | θ)] and Var[E(y | θ)]; for classes the probabilities, the expected entropy and the
        mutual information, in nats. Infinite where the moment does not exist.
        """

    def cdf_under(self, belief: Belief, y: Array) -> Array:
        """Returns P(Y ≤ y) of a new numeric target under a belief."""
        raise TypeError(f"{self.name} has no cdf, which is for numbers; use mean, the probabilities")

    # Derived from the above.

    def log_likelihood(self, statistics: Statistics, y: Array) -> Array:
        """Returns `log_density` of every target, `[batch]`.

        Args:
            statistics: T(θ), or μ; the result is then E_q[log p(y | θ)].
            y: targets, `[batch, ...]`.
        """
        y = y.astype(jnp.result_type(*jax.tree.leaves(statistics)))
        return jax.vmap(lambda row: self.log_density(statistics, row))(y)

    def log_prob_under(self, belief: Belief, y: Array) -> Array:
        r"""Returns \(\log p(y^* \mid D) = A(\lambda + t(y^*)) - A(\lambda) + \log h(y^*)\) in nats, `[batch]`.

        Args:
            belief: the posterior belief about θ.
            y: targets, `[batch, ...]`.
        """
        natural = belief.natural()
        nothing = tree.zeros_like(natural.values)
        y = y.astype(jnp.result_type(*jax.tree.leaves(nothing)))

        def one(y: Array) -> Array:
            log_h, t = jax.value_and_grad(self.log_density)(nothing, y)
            return replace(natural, values=tree.add(natural.values, t)).log_partition() + log_h

        return jax.vmap(one)(y) - natural.log_partition()

    def information(self, params: Params, f: Array) -> Array:
        """Raises a TypeError: θ is not the output of a network that could be linearised."""
        raise TypeError(f"{self.name} is an observation of a conjugate model; fit it with conjugate()")

    def check(self, y: Targets) -> None:
        """Raises a ValueError if the targets are outside of the support."""
        y = np.asarray(y)
        if y.ndim != self.axes:
            shape = "[batch]" if self.axes == 1 else "[batch, outputs]"
            raise ValueError(f"the targets have shape {y.shape}; {self.name} takes an array of shape {shape}")
        super().check(y)


@record
class Bernoulli(Observation):
    r"""Zeros and ones, \(p(y \mid \theta) = \theta^y (1 - \theta)^{1 - y}\), \(t = (y, 1 - y)\).

    Conjugate to `lamu.families.Beta`; a new target is one with probability \(\alpha / (\alpha + \beta)\).

    Examples:
        >>> import lamu
        >>> from lamu.families import Beta
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0, 1]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.mean["network"])
        0.6666666...
    """

    family: ClassVar[type] = Beta
    support = TwoClasses()

    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns y E[log θ] + (1 − y) E[log(1 − θ)]."""
        return y * statistics[0] + (1 - y) * statistics[1]

    def distribution(self, params: Params, f: Array) -> Distribution:
        from numpyro.distributions import BernoulliProbs

        return BernoulliProbs(f[:, 0])

    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns the probability of one, the expected entropy and the mutual information in nats."""
        p, aleatoric, epistemic = _moments(jnp.stack([belief.alpha, belief.beta]))
        return p[0], aleatoric, epistemic


@record
class Categorical(Observation):
    r"""One of K classes with unknown probabilities, \(p(y \mid \theta) = \theta_y\), \(t = e_y\).

    Conjugate to `lamu.families.Dirichlet`; a new target is k with probability \(\alpha_k / \sum_j \alpha_j\).

    Attributes:
        classes: K; the targets are 0 to K − 1.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.families import Dirichlet
        >>> model = lamu.ConjugateModel(lamu.observations.Categorical(3), Dirichlet(jnp.ones(3)))
        >>> posterior = lamu.fit(model, {"y": [2, 2, 0]}, lamu.algorithms.conjugate()).posterior
        >>> [round(float(p), 2) for p in posterior.predict(1).mean[0]]
        [0.33, 0.17, 0.5]
    """

    classes: int = static()

    family: ClassVar[type] = Dirichlet

    @property
    def support(self) -> Classes:
        """K classes."""
        return Classes(self.classes)

    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns E[log θ_y]."""
        return statistics @ jax.nn.one_hot(y.astype(int), self.classes, dtype=statistics.dtype)

    def distribution(self, params: Params, f: Array) -> Distribution:
        from numpyro.distributions import CategoricalProbs

        return CategoricalProbs(f)

    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns the probabilities `[K]`, the expected entropy and the mutual information in nats."""
        return _moments(belief.concentration)


def _moments(concentration: Array) -> tuple[Array, Array, Array]:
    r"""Returns p = α/α₀, \(\sum_k p_k (\psi(\alpha_0 + 1) - \psi(\alpha_k + 1))\), and the entropy of p beyond that."""
    total = jnp.sum(concentration)
    p = concentration / total
    aleatoric = jnp.sum(p * (digamma(total + 1) - digamma(concentration + 1)))
    return p, aleatoric, jnp.maximum(-jnp.sum(xlogy(p, p)) - aleatoric, 0.0)


_LOG_2PI = math.log(2 * math.pi)


@record
class NormalMean(Observation):
    r"""Normal numbers with unknown mean and known scale, \(p(y \mid \theta) = N(y \mid \theta, s^2)\).

    \[ t = (y, -\tfrac12)/s^2 \]

    Conjugate to `lamu.families.Gaussian` about one number; a new target is normal.

    Attributes:
        scale: s.

    Raises:
        ValueError: if it is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.families import Gaussian, NormalGamma, NormalWishart
        >>> from lamu.operators import Scalar
        >>> prior = Gaussian(jnp.zeros(()), Scalar(1.0))
        >>> model = lamu.ConjugateModel(lamu.observations.NormalMean(scale=1.0), prior)
        >>> posterior = lamu.fit(model, {"y": [1.0, 2.0, 3.0]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.mean["network"])
        1.5
    """

    scale: Number = 1.0

    family: ClassVar[type] = Gaussian

    def __post_init__(self) -> None:
        require_positive("scale", self.scale, "it is a standard deviation")

    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns the quadratic in y with E[θ] and E[θ²] as coefficients."""
        s = jnp.asarray(self.scale, y.dtype)
        first, second = statistics
        (square,) = jax.tree.leaves(second)
        residual = y**2 - 2 * y * first + square.reshape(())
        return -residual / (2 * s**2) - jnp.log(s) - _LOG_2PI / 2

    def distribution(self, params: Params, f: Array) -> Distribution:
        from numpyro.distributions import Normal

        return Normal(f[:, 0], jnp.full(f.shape[:1], self.scale, f.dtype))

    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns m, s² and 1/S."""
        variance = belief.precision.variance(belief.mean)
        return belief.mean, jnp.full((), self.scale, variance.dtype) ** 2, variance

    def cdf_under(self, belief: Belief, y: Array) -> Array:
        """Returns the normal distribution function."""
        mean, noise, spread = self.moments(belief)
        return jax.scipy.stats.norm.cdf((y - mean) / jnp.sqrt(noise + spread))


@record
class Normal(Observation):
    r"""Normal numbers with unknown mean x and precision τ, \(p(y \mid \theta) = N(y \mid x, 1/\tau)\).

    \[ t = (\tfrac12,\; -\tfrac12 y^2,\; y,\; -\tfrac12) \quad\text{with}\quad
       T = (\log\tau, \tau, \tau x, \tau x^2) \]

    Conjugate to `lamu.families.NormalGamma`; a new target has Student's distribution with 2a degrees of freedom, whose
    variance exists for a > 1.

    Examples:
        >>> import lamu
        >>> prior = lamu.families.NormalGamma(location=0.0, count=1.0, shape=1.0, rate=1.0)
        >>> model = lamu.ConjugateModel(lamu.observations.Normal(), prior)
        >>> posterior = lamu.fit(model, {"y": [1.0, 2.0, 3.0]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.belief.factors["network"].location)
        1.5
    """

    family: ClassVar[type] = NormalGamma

    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns the quadratic in y with the expected statistics as coefficients."""
        log, tau, first, second = statistics
        return (log - tau * y**2 + 2 * first * y - second - _LOG_2PI) / 2

    def distribution(self, params: Params, f: Array) -> Distribution:
        from numpyro.distributions import Normal as Numbers

        return Numbers(f[:, 0], 1 / jnp.sqrt(f[:, 1]))

    def outputs(self, y: Targets) -> int:
        """Returns two: mean and precision."""
        return 2

    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns m, b/(a − 1) and that over κ."""
        noise = _over(belief.rate, belief.shape - 1)
        return belief.location, noise, noise / belief.count

    def cdf_under(self, belief: Belief, y: Array) -> Array:
        """Returns Student's distribution function."""
        a, b, count = belief.shape, belief.rate, belief.count
        return student_cdf((y - belief.location) / jnp.sqrt(b * (count + 1) / (a * count)), 2 * a)


@record
class MultivariateNormal(Observation):
    r"""Normal vectors of unknown mean x and precision matrix Λ, \(p(y \mid \theta) = N(y \mid x, \Lambda^{-1})\).

    \[ t = (\tfrac12,\; -\tfrac12 y y^\top,\; y,\; -\tfrac12) \quad\text{with}\quad
       T = (\log\det\Lambda, \Lambda, \Lambda x, x^\top \Lambda x) \]

    Conjugate to `lamu.families.NormalWishart`; a new target has the multivariate Student distribution with
    \(\nu - p + 1\) degrees of freedom, whose covariance exists for more than two.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> prior = lamu.families.NormalWishart(jnp.zeros(2), 1.0, 4.0, jnp.eye(2))
        >>> model = lamu.ConjugateModel(lamu.observations.MultivariateNormal(), prior)
        >>> y = jnp.array([[1.0, 0.0], [2.0, 1.0], [3.0, -1.0]])
        >>> posterior = lamu.fit(model, {"y": y}, lamu.algorithms.conjugate()).posterior
        >>> posterior.belief.factors["network"].location.tolist()
        [1.5, 0.0]
    """

    family: ClassVar[type] = NormalWishart
    axes: ClassVar[int] = 2

    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns the quadratic in y with the expected statistics as coefficients."""
        log, precision, first, second = statistics
        return (log - y @ precision @ y + 2 * first @ y - second - y.size * _LOG_2PI) / 2

    def distribution(self, params: Params, f: Array) -> Distribution:
        from numpyro.distributions import MultivariateNormal as Vectors

        size = (math.isqrt(1 + 4 * f.shape[1]) - 1) // 2
        return Vectors(f[:, :size], precision_matrix=f[:, size:].reshape(-1, size, size))

    def outputs(self, y: Targets) -> int:
        """Returns p + p²: the mean and the precision matrix."""
        return jnp.shape(y)[-1] * (jnp.shape(y)[-1] + 1)

    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns m, the diagonal of V⁻¹ over ν − p − 1, and that over κ; `[p]` each."""
        scatter = jnp.diagonal(belief.scale_inverse)
        noise = _over(scatter, belief.degrees - scatter.size - 1)
        return belief.location, noise, noise / belief.count

    def cdf_under(self, belief: Belief, y: Array) -> Array:
        """Returns Student's distribution function, output by output."""
        scatter, count = jnp.diagonal(belief.scale_inverse), belief.count
        degrees = belief.degrees - scatter.size + 1
        scale = jnp.sqrt(scatter * (count + 1) / (count * degrees))
        residual = y - jnp.broadcast_to(belief.location, y.shape)
        return student_cdf(residual / jnp.broadcast_to(scale, y.shape), degrees)


def _over(numerator: Array, denominator: Array) -> Array:
    """Returns the quotient, infinite where the denominator is not positive and the moment does not exist."""
    safe = jnp.where(denominator > 0, denominator, jnp.ones_like(denominator))
    return jnp.where(denominator > 0, numerator / safe, jnp.inf)


def student_cdf(z: Array, degrees: Array) -> Array:
    """Returns the distribution function of Student's t, by the incomplete beta function of the tail or the centre."""
    degrees, half, square = jnp.broadcast_to(degrees, z.shape), jnp.full_like(z, 0.5), z**2
    tail = betainc(degrees / 2, half, degrees / (degrees + square)) / 2
    middle = betainc(half, degrees / 2, square / (degrees + square)) / 2
    # Each formula loses precision where the other one keeps it.
    return jnp.where(square < 1, 0.5 + jnp.sign(z) * middle, jnp.where(z < 0, tail, 1 - tail))


@record
class Poisson(Observation):
    r"""Counts of an unknown rate, \(p(y \mid \theta) = \theta^y e^{-\theta} / y!\), \(t = (y, -1)\).

    Conjugate to `lamu.families.Gamma`; a new count is negative binomial.

    Examples:
        >>> import lamu
        >>> from lamu.families import Gamma
        >>> model = lamu.ConjugateModel(lamu.observations.Poisson(), Gamma(shape=2.0, rate=1.0))
        >>> posterior = lamu.fit(model, {"y": [3, 5, 4]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.mean["network"])  # (2 + 12) / (1 + 3)
        3.5
    """

    family: ClassVar[type] = Gamma
    support = Counts()

    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns y E[log θ] − E[θ] − log y!."""
        return y * statistics[0] - statistics[1] - gammaln(y + 1)

    def distribution(self, params: Params, f: Array) -> Distribution:
        from numpyro.distributions import Poisson as Distribution

        return Distribution(f[:, 0])

    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns a/b, a/b and a/b²."""
        mean = belief.shape / belief.rate
        return mean, mean, mean / belief.rate

    def cdf_under(self, belief: Belief, y: Array) -> Array:
        r"""Returns \(I_p(a, \lfloor y \rfloor + 1)\) with \(p = b/(b + 1)\)."""
        least = jnp.maximum(jnp.floor(y), 0.0) + 1
        shape, p = (jnp.broadcast_to(v, least.shape) for v in (belief.shape, belief.rate / (belief.rate + 1)))
        return jnp.where(y < 0, 0.0, betainc(shape, least, p))


@record
class Exponential(Observation):
    r"""Waiting times of an unknown rate, \(p(y \mid \theta) = \theta e^{-\theta y}\), \(t = (1, -y)\).

    Conjugate to `lamu.families.Gamma`; a new waiting time has Lomax's distribution, whose mean exists for a > 1 and
    whose variance for a > 2.

    Examples:
        >>> import lamu
        >>> from lamu.families import Gamma
        >>> model = lamu.ConjugateModel(lamu.observations.Exponential(), Gamma(shape=2.0, rate=1.0))
        >>> posterior = lamu.fit(model, {"y": [0.5, 1.5]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.predict(1).mean[0])  # 3 / (4 - 1)
        1.0
    """

    family: ClassVar[type] = Gamma
    support = PositiveReal()

    def log_density(self, statistics: Statistics, y: Array) -> Array:
        """Returns E[log θ] − y E[θ]."""
        return statistics[0] - y * statistics[1]

    def distribution(self, params: Params, f: Array) -> Distribution:
        from numpyro.distributions import Exponential as Waits

        return Waits(f[:, 0])

    def moments(self, belief: Belief) -> tuple[Array, Array, Array]:
        """Returns b/(a − 1), E[1/θ²] and Var[1/θ]."""
        a, b = belief.shape, belief.rate
        mean = _over(b, a - 1)
        square = _over(b * mean, a - 2)
        return mean, square, jnp.where(a > 2, square - mean**2, jnp.inf)

    def cdf_under(self, belief: Belief, y: Array) -> Array:
        r"""Returns \(1 - (1 + y/b)^{-a}\)."""
        return -jnp.expm1(-belief.shape * jnp.log1p(jnp.maximum(y, 0.0) / belief.rate))
