"""Beliefs about probabilities: Beta for one, Dirichlet for K that sum to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from lamu.families.domains import Domain, Positive
from lamu.families.exponential import ExponentialFamily, sample_leaves, total
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Beta", "Dirichlet"]


@record
class Beta(ExponentialFamily):
    r"""A probability, \(0 < \theta < 1\): \(T = (\log\theta, \log(1-\theta))\), \(\lambda = (\alpha-1, \beta-1)\).

    \[ A = \log B(\alpha, \beta), \qquad \mu = (\psi(\alpha), \psi(\beta)) - \psi(\alpha + \beta) \]

    Attributes:
        alpha: α, positive: one more than the successes seen, from a flat start.
        beta: β, positive: one more than the failures.

    Examples:
        >>> from lamu.families import Beta
        >>> float(Beta(3.0, 1.0).mean)
        0.75
    """

    alpha: Params
    beta: Params

    domains: ClassVar[Mapping[str, Domain]] = {"alpha": Positive(), "beta": Positive()}
    events: ClassVar[tuple[int, ...]] = (0, 0)

    def to_natural(self) -> Any:
        """Returns (α − 1, β − 1)."""
        return tuple(jax.tree.map(lambda x: x - 1.0, part) for part in (self.alpha, self.beta))

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Beta:
        """Returns the belief with α and β one larger."""
        return cls(*(jax.tree.map(lambda x: x + 1.0, part) for part in values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns log B(α, β)."""
        leaf = lambda a, b: gammaln(a + 1.0) + gammaln(b + 1.0) - gammaln(a + b + 2.0)
        return total(leaf, *values)

    @classmethod
    def guess(cls, values: Any) -> Beta:
        """Returns a belief nearby."""
        a, b = _guess(jnp.stack(values))
        return cls(a, b)

    def statistics(self, theta: Params) -> Any:
        """Returns the logarithms of θ and of 1 − θ."""
        return jax.tree.map(jnp.log, theta), jax.tree.map(lambda x: jnp.log1p(-x), theta)

    @property
    def mean(self) -> Params:
        """α / (α + β)."""
        return jax.tree.map(lambda a, b: a / (a + b), self.alpha, self.beta)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw, differentiable in α and β."""

        def draw(k: RandomKey, a: Array, b: Array) -> Array:
            limits = jnp.finfo(a.dtype)
            return jnp.clip(jax.random.beta(k, a, b, dtype=a.dtype), limits.tiny, 1.0 - limits.epsneg)

        return sample_leaves(key, draw, self.alpha, self.beta)


@record
class Dirichlet(ExponentialFamily):
    r"""Probabilities of K things: \(T = \log\theta\), \(\lambda = \alpha - 1\).

    \[ A = \sum_k \log\Gamma(\alpha_k) - \log\Gamma\Big(\sum_k \alpha_k\Big), \qquad
       \mu_k = \psi(\alpha_k) - \psi\Big(\sum_j \alpha_j\Big) \]

    Attributes:
        concentration: α `[..., K]`, positive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Dirichlet
        >>> Dirichlet(jnp.array([2.0, 1.0, 1.0])).mean.tolist()
        [0.5, 0.25, 0.25]
    """

    concentration: Params

    domains: ClassVar[Mapping[str, Domain]] = {"concentration": Positive(event=1)}
    events: ClassVar[tuple[int, ...]] = (1,)

    def to_natural(self) -> Any:
        """Returns α − 1."""
        return jax.tree.map(lambda a: a - 1.0, self.concentration)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Dirichlet:
        """Returns the belief with α one larger."""
        return cls(jax.tree.map(lambda a: a + 1.0, values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns the log of the multivariate Beta function of α."""
        return total(lambda a: jnp.sum(gammaln(a + 1.0), axis=-1) - gammaln(jnp.sum(a + 1.0, axis=-1)), values)

    @classmethod
    def guess(cls, values: Any) -> Dirichlet:
        """Returns a belief nearby."""
        return cls(_guess(values))

    def statistics(self, theta: Params) -> Any:
        return jax.tree.map(jnp.log, theta)

    @property
    def mean(self) -> Params:
        """α over its sum."""
        return jax.tree.map(lambda a: a / jnp.sum(a, axis=-1, keepdims=True), self.concentration)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw `[..., K]`, differentiable in α."""

        def draw(k: RandomKey, a: Array) -> Array:
            return jnp.maximum(jax.random.dirichlet(k, a, dtype=a.dtype), jnp.finfo(a.dtype).tiny)

        return sample_leaves(key, draw, self.concentration)


def _guess(mu: Array) -> Array:
    r"""Returns α near the one with \(\psi(\alpha_k) - \psi(\sum_j \alpha_j) = \mu_k\)."""
    # The sum is what it is where all α are large, and ψ is inverted roughly.
    #
    # Source: Minka (2000), "Estimating a Dirichlet distribution", appendix C.
    room = jnp.maximum(1.0 - jnp.sum(jnp.exp(mu)), jnp.finfo(mu.dtype).eps)
    y = mu + digamma((mu.size - 1) / (2.0 * room))
    large = jnp.exp(jnp.minimum(y, 80.0)) + 0.5
    return jnp.where(y > -2.22, large, -1.0 / (jnp.minimum(y, -2.22) + 0.5772))
