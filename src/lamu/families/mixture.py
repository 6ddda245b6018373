"""Mixtures of Gaussians: the minimal conditional exponential family of Lin, Khan & Schmidt (2019)."""

# With z the component, \(q(z, \theta) = \pi_z N(\theta \mid m_z, S_z^{-1})\), two minimal exponential families, one for
# z and one for θ given z, give
#
# | on paper | in code |
# |---|---|
# | \(\lambda_z = \log \pi_k / \pi_K\), \(\lambda_k = (S_k m_k, -\tfrac12 S_k)\) | `NaturalMixture(weights, components)`
# | | \(\mu_z = \pi_k\), \(\mu_k = E[1_{z=k} T(\theta)] = \pi_k (m_k, \Sigma_k + m_k m_k^\top)\) | `ExpectationMixture`
#
# The Fisher matrix of q(z, θ) is block diagonal in these λ, and \(F^{-1}\nabla_\lambda = \nabla_\mu\) block by block,
# where one block of μ varies and the λ of the others are fixed (\(\mu_k\) contains \(\pi_k\) too): the rule updates
# the weights and every component separately, with gradients in the expectations of the joint.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families.exponential import ExpectationParameters, NaturalParameters
from lamu.families.gaussian import Gaussian
from lamu.families.interface import independent_draws
from lamu.families.probabilities import Categorical
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["ExpectationMixture", "Mixture", "NaturalMixture"]


@record
class Mixture:
    r"""A mixture of Gaussians, \(q(\theta) = \sum_k \pi_k N(\theta \mid m_k, S_k^{-1})\).

    Attributes:
        weights_logits: log π `[K]`, up to a constant.
        components: Gaussians stacked along a leading axis of K.

    Raises:
        ValueError: if the numbers of weights and of components differ.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Mixture
        >>> from lamu.operators import Diagonal
        >>> belief = Mixture(jnp.zeros(2), Gaussian(jnp.array([[-3.0], [3.0]]), Diagonal(jnp.ones((2, 1)))))
        >>> belief.responsibilities(jnp.array([3.0])).round(3).tolist()
        [0.0, 1.0]
    """

    weights_logits: Any
    components: Gaussian

    kind = "joint"

    def __post_init__(self) -> None:
        weights = jnp.shape(self.weights_logits)
        stacked = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(self.components)}
        if len(weights) != 1 or stacked != {weights}:
            raise ValueError(
                f"a mixture with weights of shape {weights} has components with leading axes {sorted(stacked)};"
                " stack as many Gaussians along a leading axis as there are weights"
            )

    @property
    def mean(self) -> Params:
        """Not defined: the average of several modes may have no probability."""
        raise AttributeError("a mixture has several modes and no single estimate; use predict or .components")

    @property
    def count(self) -> int:
        """The number of components, K."""
        return jnp.shape(self.weights_logits)[0]

    @property
    def weights(self) -> Array:
        """π `[K]`, which sums to one."""
        return jax.nn.softmax(self.weights_logits)

    def component(self, index: int | Array) -> Gaussian:
        """Returns the component at an index."""
        return jax.tree.map(lambda leaf: leaf[index], self.components)

    def log_joint(self, theta: Params) -> Array:
        r"""Returns \(\log \pi_k N(\theta \mid m_k, S_k^{-1})\) `[K]`, in nats."""
        log_weights = jax.nn.log_softmax(self.weights_logits)
        return log_weights + jax.vmap(lambda component: component.log_prob(theta))(self.components)

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats."""
        return jax.nn.logsumexp(self.log_joint(theta))

    def responsibilities(self, theta: Params) -> Array:
        """Returns q(z = k | θ) `[K]`, which sums to one."""
        return jax.nn.softmax(self.log_joint(theta))

    def sample(self, key: RandomKey) -> Params:
        """Returns a sample from a randomly chosen component."""
        component_key, draw_key = jax.random.split(key)
        return self.component(jax.random.categorical(component_key, self.weights_logits)).sample(draw_key)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent samples along a leading axis; sample i depends only on the key and i."""
        belief = Mixture(
            self.weights_logits,
            Gaussian(self.components.mean, jax.vmap(lambda p: p.factored())(self.components.precision)),
        )
        return independent_draws(belief, key, count)

    def natural(self) -> NaturalMixture:
        r"""Returns \(\lambda_z\) and \(\lambda_k\)."""
        weights = Categorical(self.weights_logits).to_natural()
        return NaturalMixture(weights, jax.vmap(lambda component: component.natural())(self.components))

    def expectation(self) -> ExpectationMixture:
        r"""Returns \(\mu_z = \pi_k\) and \(\mu_k = \pi_k (m_k, \Sigma_k + m_k m_k^\top)\)."""
        weigh = lambda pi, mu: jax.tree.map(lambda leaf: pi * leaf, mu)
        each = jax.vmap(lambda pi, component: weigh(pi, component.expectation()))
        return ExpectationMixture(self.weights[:-1], each(self.weights, self.components))


@record
class NaturalMixture:
    r"""Natural parameters of a mixture as a minimal conditional exponential family.

    Attributes:
        weights: \(\lambda_z = \log \pi_k/\pi_K\) `[K − 1]`.
        components: \(\lambda_k = (S_k m_k, -\tfrac12 S_k)\), stacked.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Mixture
        >>> from lamu.operators import Diagonal
        >>> belief = Mixture(jnp.zeros(2), Gaussian(jnp.array([[-3.0], [3.0]]), Diagonal(jnp.ones((2, 1)))))
        >>> belief.natural().family().components.mean.tolist()
        [[-3.0], [3.0]]
    """

    weights: Any
    components: NaturalParameters

    def family(self) -> Mixture:
        """Returns the same belief by weights, means and precisions."""
        logits = Categorical.from_natural(self.weights, ()).logits
        return Mixture(logits, jax.vmap(lambda component: component.family())(self.components))


@record
class ExpectationMixture:
    r"""Expectation parameters of the joint q(z, θ), in which the rule takes the gradients of a mixture.

    Attributes:
        weights: \(\mu_z = \pi_k\) `[K − 1]`.
        components: \(\mu_k = \pi_k (m_k, \Sigma_k + m_k m_k^\top)\), stacked.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian, Mixture
        >>> from lamu.operators import Diagonal
        >>> belief = Mixture(jnp.zeros(2), Gaussian(jnp.array([[-3.0], [3.0]]), Diagonal(jnp.ones((2, 1)))))
        >>> belief.expectation().components.values[0].tolist()
        [[-1.5], [1.5]]
    """

    weights: Any
    components: ExpectationParameters

    def family(self) -> Mixture:
        """Returns the same belief by weights, means and precisions."""
        logits = Categorical.from_expectation(self.weights, ()).logits
        unweigh = lambda pi, mu: jax.tree.map(lambda leaf: leaf / pi, mu).family()
        return Mixture(logits, jax.vmap(unweigh)(jax.nn.softmax(logits), self.components))
