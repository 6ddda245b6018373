"""A predictive that averages the likelihood over points of output space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lamu.likelihoods import Likelihood
from lamu.predictives.averaged import AveragedPredictive, Question, compiled
from lamu.predictives.chunking import draw_in_chunks, row_keys
from lamu.predictives.interface import Predictive
from lamu.record import record, static
from lamu.supports import Support
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["MixturePredictive", "all_but_one"]


@record
class MixturePredictive(AveragedPredictive):
    r"""\(p(y^*) = \sum_s w_s\, p(y^* \mid f_s)\), over draws of the outputs, quadrature nodes, or one point.

    Attributes:
        likelihood: p(y | f).
        dispersion: the likelihood's parameters, one set a component: leaves `[S, ...]`.
        f: the outputs `[S, N, K]`.
        log_weights: log w, `[S]`, normalised.
        drawn: whether the components are independent draws, all of one weight, whose number limits what is known of the
            average; nodes and points are not.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> from lamu.predictives import MixturePredictive
        >>> pred = MixturePredictive.equal(Categorical(2), {}, jnp.zeros((3, 1, 2)))
        >>> pred.mean.tolist()
        [[0.5, 0.5]]
    """

    likelihood: Likelihood
    dispersion: Params
    f: Array
    log_weights: Array
    drawn: bool = static(default=False)

    @classmethod
    def equal(cls, likelihood: Likelihood, dispersion: Params, f: Array, drawn: bool = False) -> MixturePredictive:
        """Returns the mixture with equal weights."""
        return cls(likelihood, dispersion, f, jnp.full(f.shape[:1], -math.log(f.shape[0]), f.dtype), drawn)

    @property
    def support(self) -> Support:
        """The likelihood's support."""
        return self.likelihood.support

    def each(self, question: Question, y: Any = None) -> Array:
        """Returns what the likelihood answers at every draw, along the first axis."""
        at = lambda params, f: question(_Component(self.likelihood, params, f), y)
        return jax.vmap(at)(self.dispersion, self.f)

    @property
    def mean(self) -> Array:
        return compiled(self, "mean")

    @property
    def variance(self) -> Array:
        """Var[y], by the law of total variance."""
        return compiled(self, "variance")

    @property
    def aleatoric(self) -> Array:
        """Expected entropy in nats (classes), or expected variance (regression)."""
        return compiled(self, "aleatoric")

    @property
    def epistemic(self) -> Array:
        """Mutual information of target and parameters in nats (classes), or the variance of the mean (regression)."""
        return compiled(self, "epistemic")

    def log_prob(self, y: Any) -> Array:
        return compiled(self, "log_prob", jax.tree.map(jnp.asarray, y))

    def cdf(self, y: Any) -> Array:
        """Returns P(Y ≤ y), the average of the components' distribution functions."""
        return compiled(self, "cdf", jax.tree.map(jnp.asarray, y))

    def quantile(self, probability: float) -> Array:
        """Returns the quantile of each target, by bisection: there are no quantiles of the components."""
        return Predictive.quantile(self, probability)

    def left_out(self, y: Any) -> tuple[Array, ...]:
        """Returns log of the averaged density without each of the draws, `[S, N]` in a tuple; nothing without draws."""
        if not self.drawn:
            return ()
        densities = _densities(self, jax.tree.map(jnp.asarray, y))
        others = all_but_one(densities)
        # Without the only draw nothing is left, which is no density of zero.
        lost = jnp.nan if len(densities) == 1 else jnp.log(len(densities) - 1)
        return (others - jnp.asarray(lost, others.dtype),)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws: a component, the same for all rows, then targets from it."""
        component_key, target_key = jax.random.split(key)
        components = jax.random.categorical(component_key, self.log_weights, shape=(n,))

        def draw(key: RandomKey, s: Array) -> Array:
            dispersion = jax.tree.map(lambda leaf: leaf[s], self.dispersion)
            one = lambda key, f: self.likelihood.sample(key, dispersion, f[None])[0]
            return jax.vmap(one)(row_keys(key, self.f.shape[1], first), self.f[s])

        return draw_in_chunks(draw, jax.random.split(target_key, n), components)

    def _quantile(self, probability: Number) -> Array:
        return _quantile(self, probability)


@jax.jit
def _quantile(pred: MixturePredictive, probability: Number) -> Array:
    return Predictive._quantile(pred, probability)


@jax.jit
def _densities(pred: MixturePredictive, y: Any) -> Array:
    return pred.each(lambda part, y: part.log_prob(y), y)


@dataclass(frozen=True)
class _Component:
    """A likelihood at one draw, asked as a prediction is."""

    likelihood: Likelihood
    params: Params
    f: Array

    @property
    def mean(self) -> Array:
        return self.likelihood.mean(self.params, self.f)

    @property
    def variance(self) -> Array:
        return self.likelihood.variance(self.params, self.f)

    @property
    def aleatoric(self) -> Array:
        return self.likelihood.entropy(self.params, self.f) if self.likelihood.support.has_classes else self.variance

    @property
    def epistemic(self) -> Array:
        return jnp.zeros_like(self.mean)

    def log_prob(self, y: Any) -> Array:
        return self.likelihood.log_prob(self.params, self.f, y)

    def cdf(self, y: Any) -> Array:
        return self.likelihood.cdf(self.params, self.f, y)


def all_but_one(values: Array) -> Array:
    """Returns the log of the sum of the exponentials of all the others, for each of `[S, ...]`."""
    # Sums from both ends, because a difference from the whole sum has no digits left where one of them is most of it.

    def running(total: Array, value: Array) -> tuple[Array, Array]:
        return jnp.logaddexp(total, value), total

    nothing = jnp.full_like(values[0], -jnp.inf)
    before = jax.lax.scan(running, nothing, values)[1]
    after = jax.lax.scan(running, nothing, values, reverse=True)[1]
    return jnp.logaddexp(before, after)
