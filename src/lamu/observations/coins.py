"""Observations of classes: two (a coin) or K (a die)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, xlogy

from lamu.families import Beta, Dirichlet
from lamu.observations.interface import Observation, require_numbers
from lamu.record import record, static
from lamu.supports import Classes, TwoClasses
from lamu.typing import Array, Params

__all__ = ["Bernoulli", "Categorical"]


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

    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns y E[log θ] + (1 − y) E[log(1 − θ)]."""
        return y * statistics[0] + (1 - y) * statistics[1]

    def distribution(self, params: Params, f: Array) -> Any:
        from numpyro.distributions import BernoulliProbs

        return BernoulliProbs(f[:, 0])

    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns the probability of one, the expected entropy and the mutual information in nats."""
        p, aleatoric, epistemic = _moments(jnp.stack([belief.alpha, belief.beta]))
        return p[0], aleatoric, epistemic

    def cdf_under(self, belief: Any, y: Array) -> Array:
        """Raises a TypeError: a class has a probability."""
        raise TypeError("Bernoulli has no cdf, which is for numbers; use mean, the probability of one")

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are zeros and ones, `[batch]`."""
        y = require_numbers(y, "Bernoulli")
        strange = ~((y == 0) | (y == 1))
        if strange.any():
            raise ValueError(f"the target {y[strange][0]!s} is neither 0 nor 1; use Categorical or Poisson for counts")


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

    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns E[log θ_y]."""
        return statistics @ jax.nn.one_hot(y.astype(int), self.classes, dtype=statistics.dtype)

    def distribution(self, params: Params, f: Array) -> Any:
        from numpyro.distributions import CategoricalProbs

        return CategoricalProbs(f)

    def outputs(self, y: Any) -> int:
        return self.classes

    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns the probabilities `[K]`, the expected entropy and the mutual information in nats."""
        return _moments(belief.concentration)

    def cdf_under(self, belief: Any, y: Array) -> Array:
        """Raises a TypeError: a class has a probability."""
        raise TypeError("Categorical has no cdf, which is for numbers; use mean, the probabilities")

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are classes, `[batch]`."""
        y = require_numbers(y, "Categorical")
        strange = (y != np.floor(y)) | (y < 0) | (y >= self.classes)
        if strange.any():
            raise ValueError(f"the target {y[strange][0]!s} is no class; Categorical takes 0 to {self.classes - 1}")


def _moments(concentration: Array) -> tuple[Array, Array, Array]:
    r"""Returns α/α₀, \(\sum_k p_k (\psi(\alpha_0 + 1) - \psi(\alpha_k + 1))\), and what the entropy of p has beyond."""
    whole = jnp.sum(concentration)
    p = concentration / whole
    aleatoric = jnp.sum(p * (digamma(whole + 1) - digamma(concentration + 1)))
    return p, aleatoric, jnp.maximum(-jnp.sum(xlogy(p, p)) - aleatoric, 0.0)
