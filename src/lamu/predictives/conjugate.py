r"""Predictions of conjugate models, \(p(y^* \mid D) = h(y^*)\, e^{A(\lambda + t(y^*)) - A(\lambda)}\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.bisection import Ends, bisect, doubled
from lamu.compile_once import row_keys
from lamu.conjugacy import ConjugateModel
from lamu.families import Product
from lamu.predictives.interface import Predictive, Prepared, quantile_in_support
from lamu.predictives.lazy import PredictiveRule, draw_in_chunks
from lamu.record import record, static
from lamu.supports import Support
from lamu.typing import Array, Belief, Number, RandomKey, Rows, State, Targets

__all__ = ["ConjugatePredictive", "ConjugateRule"]


@record
class ConjugateRule(PredictiveRule):
    """The exact rule of a `lamu.ConjugateModel`.

    Raises:
        TypeError: for any other model.

    Examples:
        >>> from lamu.predictives.conjugate import ConjugateRule
        >>> ConjugateRule()
        ConjugateRule()
    """

    def prepare(self, model: object, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns observation and belief, without draws."""
        if not isinstance(model, ConjugateModel) or not isinstance(belief, Product):
            raise TypeError("this closed form is of a lamu.ConjugateModel; use Sampled() or Linearised()")
        return _Known(model.observation, belief.factors["network"])


@record
class _Known:
    """An observation and a belief about its parameters."""

    observation: Any
    belief: Belief

    @property
    def support(self) -> Support:
        return self.observation.support

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        if offset is not None:
            raise ValueError("a model without inputs has no linear predictor that an offset could be added to")
        return ConjugatePredictive(self.observation, self.belief, x.shape[0])


@record
class ConjugatePredictive(Predictive):
    r"""The exact distribution of new targets of a conjugate model, the same for every row.

    Given the data the rows are exchangeable, not independent: `log_prob` is the marginal of each row, `sample` draws
    rows with a common θ.

    Attributes:
        observation: \(p(y \mid \theta)\).
        belief: q(θ).
        rows: the number of rows.

    Examples:
        >>> from lamu.families import Beta
        >>> from lamu.observations import Bernoulli
        >>> from lamu.predictives.conjugate import ConjugatePredictive
        >>> ConjugatePredictive(Bernoulli(), Beta(3.0, 1.0), rows=2).mean.tolist()
        [0.75, 0.75]
    """

    observation: Any
    belief: Belief
    rows: int = static()

    @property
    def support(self) -> Support:
        return self.observation.support

    @property
    def mean(self) -> Array:
        return self._repeated(self.observation.moments(self.belief)[0])

    @property
    def variance(self) -> Array:
        """Var[y]; infinite where it does not exist."""
        if self.support.has_classes:
            return self.mean * (1 - self.mean)
        _, aleatoric, epistemic = self.observation.moments(self.belief)
        return self._repeated(aleatoric + epistemic)

    @property
    def aleatoric(self) -> Array:
        return self._repeated(self.observation.moments(self.belief)[1])

    @property
    def epistemic(self) -> Array:
        """Mutual information of target and θ in nats (classes), or variance of the mean."""
        return self._repeated(self.observation.moments(self.belief)[2])

    def log_prob(self, y: Targets) -> Array:
        """Returns the log density of each target in nats, `[N]`, from two log-partitions."""
        return self.observation.log_prob_under(self.belief, jnp.asarray(y))

    def cdf(self, y: Targets) -> Array:
        return self.observation.cdf_under(self.belief, jnp.asarray(y, self.mean.dtype))

    def _quantile(self, probability: Number) -> Array:
        # By doubling and bisection, since the variance may not exist.
        return _quantile(self, probability)

    def _narrowed(self, ends: Ends, level: Number) -> Ends:
        return _narrowed(self, ends, level)

    def sample(self, key: RandomKey, n: int, first: object = 0) -> Array:
        """Returns n draws of all rows: θ, the same for all rows, then targets."""

        def draw(key: RandomKey) -> Array:
            theta_key, key = jax.random.split(key)
            f = tree.ravel(self.belief.sample(theta_key))[0][None]
            return jax.vmap(lambda key: self.observation.sample(key, {}, f)[0])(row_keys(key, self.rows, first))

        return draw_in_chunks(draw, jax.random.split(key, n))

    def _repeated(self, value: Array) -> Array:
        return jnp.broadcast_to(value, (self.rows, *jnp.shape(value)))


@jax.jit
def _quantile(pred: ConjugatePredictive, probability: Array) -> Array:
    ones = jnp.ones_like(pred.mean)
    lower = doubled(lambda end: pred.cdf(end) > probability, -ones, steps=60)
    upper = doubled(lambda end: pred.cdf(end) < probability, ones, steps=60)
    quantile = bisect(lambda y: pred.cdf(y) < probability, (lower, upper), steps=120)
    return quantile_in_support(quantile, probability, pred.support, pred.cdf)


@jax.jit
def _narrowed(pred: ConjugatePredictive, ends: Ends, level: Number) -> Ends:
    return Predictive._narrowed(pred, ends, level)
