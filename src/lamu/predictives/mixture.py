"""A predictive that averages the likelihood over points of output space."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from lamu.likelihoods import Likelihood
from lamu.predictives.interface import Predictive
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Mixture"]


@record
class Mixture(Predictive):
    r"""\(p(y^*) = \sum_s w_s\, p(y^* \mid f_s)\), over draws of the outputs or quadrature nodes.

    Attributes:
        likelihood: p(y | f).
        dispersion: the likelihood's parameters, one set a component: leaves `[S, ...]`.
        f: the outputs `[S, N, K]`.
        log_weights: log w, `[S]`, normalised.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> from lamu.predictives import Mixture
        >>> pred = Mixture.equal(Categorical(2), {}, jnp.zeros((3, 1, 2)))
        >>> pred.mean.tolist()
        [[0.5, 0.5]]
    """

    likelihood: Likelihood
    dispersion: Params
    f: Array
    log_weights: Array

    @classmethod
    def equal(cls, likelihood: Likelihood, dispersion: Params, f: Array) -> Mixture:
        """Returns the mixture with equal weights."""
        return cls(likelihood, dispersion, f, jnp.full(f.shape[:1], -jnp.log(f.shape[0]), f.dtype))

    @property
    def task(self) -> str:
        """The likelihood's task."""
        return self.likelihood.task

    @property
    def mean(self) -> Array:
        """E[y]; for classes the averaged probabilities."""
        return self._average(self._means)

    @property
    def variance(self) -> Array:
        """Var[y], by the law of total variance."""
        return self._expected_variance + self._variance_of_means

    @property
    def aleatoric(self) -> Array:
        """Expected entropy in nats (classes), or expected variance (regression)."""
        if self.task == "regression":
            return self._expected_variance
        return self._average(jax.vmap(self.likelihood.entropy)(self.dispersion, self.f))

    @property
    def epistemic(self) -> Array:
        """Mutual information of target and parameters in nats (classes), or the variance of the mean (regression)."""
        if self.task == "regression":
            return self._variance_of_means
        probabilities = self.probabilities
        entropy = -jnp.sum(jax.scipy.special.xlogy(probabilities, probabilities), axis=-1)
        # Mutual information is never negative; a difference of equal entropies may be, by round-off.
        return jnp.maximum(entropy - self.aleatoric, 0.0)

    def log_prob(self, y: Any) -> Array:
        """Returns log of the averaged density, in nats, shape `[N]`."""
        y = jnp.asarray(y)
        densities = jax.vmap(lambda params, f: self.likelihood.log_prob(params, f, y))(self.dispersion, self.f)
        return logsumexp(densities + self.log_weights[:, None], axis=0)

    def cdf(self, y: Any) -> Array:
        """Returns P(Y ≤ y), the average of the components' distribution functions."""
        return self._average(jax.vmap(lambda params, f: self.likelihood.cdf(params, f, y))(self.dispersion, self.f))

    def sample(self, key: RandomKey, n: int) -> Array:
        """Returns n draws: a component, then targets from it."""
        component_key, target_key = jax.random.split(key)
        components = jax.random.categorical(component_key, self.log_weights, shape=(n,))

        def draw(key: RandomKey, s: Array) -> Array:
            return self.likelihood.sample(key, jax.tree.map(lambda leaf: leaf[s], self.dispersion), self.f[s])

        return jax.vmap(draw)(jax.random.split(target_key, n), components)

    @property
    def _means(self) -> Array:
        return jax.vmap(self.likelihood.mean)(self.dispersion, self.f)

    @property
    def _expected_variance(self) -> Array:
        return self._average(jax.vmap(self.likelihood.variance)(self.dispersion, self.f))

    @property
    def _variance_of_means(self) -> Array:
        means = self._means
        return self._average((means - self._average(means)[None]) ** 2)

    def _average(self, values: Any) -> Array:
        return jnp.tensordot(jnp.exp(self.log_weights), values, axes=1)
