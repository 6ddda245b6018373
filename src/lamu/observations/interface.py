r"""Observations: \(p(y \mid \theta)\) whose logarithm is linear in what a conjugate belief about θ counts."""

# \[ \log p(y \mid \theta) = \langle t(y), T(\theta) \rangle + \log h(y) \]
#
# with T the statistics of the prior's family. Then \(E_q[\log p(y \mid \theta)]\) is linear in \(\mu =
# E_q[T(\theta)]\), its gradient in μ is \(t(y)\), and the rule with ρ = 1 adds up, \(\lambda \leftarrow \lambda +
# \sum_i t(y_i)\): that is Bayes' theorem. The predictive is \(p(y^* \mid D) = h(y^*) \exp(A(\lambda + t(y^*)) -
# A(\lambda))\). One formula says it all, `log_density`: its value at T = 0 is log h, its gradient t.

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.dtype_policy import lenient
from lamu.likelihoods.interface import Likelihood
from lamu.supports import Classes, Real
from lamu.typing import Array, Params, RandomKey

__all__ = ["Observation"]


class Observation(Likelihood, ABC):
    r"""What every observation is: a likelihood whose outputs f are θ itself.

    `lamu.ConjugateModel` puts it beside a prior of its family. Its targets have no inputs.

    Attributes:
        family: the family of beliefs about θ that it is conjugate to.
        support: the values of a target, one of `lamu.supports`.
    """

    family: ClassVar[type]
    support: Any = Real()

    @abstractmethod
    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns log p(y | θ) of one target in nats, an affine function of the statistics T(θ).

        Args:
            statistics: T(θ), a tree like the values of the family's natural parameters; or their expectation.
            y: one target.
        """

    @abstractmethod
    def distribution(self, params: Params, f: Array) -> Any:
        """Returns p(y | θ) as a NumPyro distribution over rows.

        Args:
            params: nothing: an observation has no dispersions.
            f: θ as rows `[batch, outputs]`.
        """

    @abstractmethod
    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns mean, aleatoric and epistemic uncertainty of a new target under a belief.

        For numbers E[y], E[Var(y | θ)] and Var[E(y | θ)]; for classes the probabilities, the expected entropy and the
        mutual information, in nats. Infinite where the moment does not exist.
        """

    @abstractmethod
    def cdf_under(self, belief: Any, y: Array) -> Array:
        """Returns P(Y ≤ y) of a new target under a belief, for numbers."""

    @abstractmethod
    def check(self, y: Any) -> None:
        """Raises a ValueError, in one sentence, if the targets cannot be of this observation."""

    # What follows.

    def log_likelihood(self, statistics: Any, y: Array) -> Array:
        """Returns `log_density` of every target, `[batch]`.

        Args:
            statistics: T(θ), or μ; the result is then E_q[log p(y | θ)].
            y: targets, `[batch, ...]`.
        """
        y = y.astype(jnp.result_type(*jax.tree.leaves(statistics)))
        return jax.vmap(lambda one: self.log_density(statistics, one))(y)

    def log_prob_under(self, belief: Any, y: Array) -> Array:
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
        """Raises a TypeError: θ is no output of a network that could be linearised."""
        raise TypeError(f"{self.name} is an observation of a conjugate model; fit it with conjugate()")

    def outputs(self, y: Any) -> int:
        """Returns the number of entries of θ."""
        return 1

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log p(y | θ), `[batch]`."""
        with lenient():
            return self.distribution(params, f).log_prob(y)

    def mean(self, params: Params, f: Array) -> Array:
        """Returns E[y | θ]; for classes the probabilities."""
        if isinstance(self.support, Classes):
            return f
        with lenient():
            return self.distribution(params, f).mean

    def variance(self, params: Params, f: Array) -> Array:
        """Returns Var[y | θ]."""
        if isinstance(self.support, Classes):
            return f * (1 - f)
        with lenient():
            return self.distribution(params, f).variance

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns H[y | θ] in nats, `[batch]`, for classes."""
        if not self.support.has_classes:
            raise TypeError(f"{type(self).__name__} is about numbers; use variance")
        p = f if isinstance(self.support, Classes) else jnp.concatenate([f, 1 - f], axis=1)
        return -jnp.sum(jax.scipy.special.xlogy(p, p), axis=1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        with lenient():
            return self.distribution(params, f).sample(key)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y ≤ y | θ), for numbers."""
        if self.support.has_classes:
            raise TypeError(f"{type(self).__name__} has no cdf, which is for regression; use mean, the probabilities")
        with lenient():
            return self.distribution(params, f).cdf(y)


def require_numbers(y: Any, name: str, dimensions: int = 1) -> np.ndarray:
    """Returns the targets as an array, or raises a ValueError for another number of axes."""
    y = np.asarray(y)
    if y.ndim != dimensions:
        shape = "[batch]" if dimensions == 1 else "[batch, outputs]"
        raise ValueError(f"the targets have shape {y.shape}; {name} takes an array of shape {shape}")
    return y
