"""Base class of predictives that are weighted averages: of draws, of an ensemble's members, of models, of inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, xlogy

from lamu.bisection import Ends, search
from lamu.predictives.interface import Predictive, quantile_in_support
from lamu.typing import Array, Number

__all__ = ["AveragedPredictive"]

Question = Callable[[Any, Any], Array]  # of a component, and of targets as it takes them


class AveragedPredictive(Predictive):
    r"""\(p(y) = \sum_k w_k\, p_k(y)\): by the laws of total expectation and variance, density and cdf averaged."""

    # A kind of average says how its components are asked (`each`) and, unless they stand along the first axis with the
    # weights `log_weights`, how what they answer is averaged. Drawing and leaving out draws are its own.

    log_weights: Array

    @abstractmethod
    def each(self, question: Question, y: Any = None) -> Array:
        """Returns what every component answers."""

    def average(self, values: Array) -> Array:
        """Returns the weighted average of what the components answer."""
        return jnp.tensordot(jnp.exp(jnp.asarray(self.log_weights, values.dtype)), values, axes=1)

    def log_average(self, values: Array) -> Array:
        """Returns the logarithm of the weighted average of exponentials."""
        log_weights = jnp.asarray(self.log_weights, values.dtype)
        return logsumexp(values + log_weights.reshape(-1, *[1] * (values.ndim - 1)), axis=0)

    def repeated(self, averages: Array) -> Array:
        """Returns averages in a shape that they can be subtracted in from what the components answer."""
        return averages[None]

    def outermost(self, values: Array) -> Ends:
        """Returns the smallest and the largest of what the components answer."""
        return jnp.min(values, axis=0), jnp.max(values, axis=0)

    @property
    def mean(self) -> Array:
        return self.average(self.each(lambda part, _: part.mean))

    @property
    def variance(self) -> Array:
        """Var[y]: the average variance, and the variance of the means; of classes p (1 − p)."""
        if self.support.has_classes:
            mean = self.mean
            return mean * (1 - mean)
        return self.average(self.each(lambda part, _: part.variance)) + self._disagreement

    @property
    def aleatoric(self) -> Array:
        """The average of the components' own aleatoric uncertainty."""
        return self.average(self.each(lambda part, _: part.aleatoric))

    @property
    def epistemic(self) -> Array:
        """The components' own epistemic uncertainty, and how far they disagree; of classes mutual information."""
        if not self.support.has_classes:
            return self.average(self.each(lambda part, _: part.epistemic)) + self._disagreement
        probabilities = self.probabilities
        entropy = -jnp.sum(xlogy(probabilities, probabilities), axis=-1)
        # Mutual information is never negative; a difference of equal entropies may be, by round-off.
        return jnp.maximum(entropy - self.aleatoric, 0.0)

    def log_prob(self, y: Any) -> Array:
        return self.log_average(self.each(lambda part, y: part.log_prob(y), y))

    def cdf(self, y: Any) -> Array:
        return self.average(self.each(lambda part, y: part.cdf(y), y))

    def quantile(self, probability: float) -> Array:
        """Returns the quantile of each target, by bisection between the components' smallest and largest."""
        room = 0.5 if self.support.discrete else 0.0  # to lie on both sides of the first and the last
        least, most = self.outermost(self.each(lambda part, _: part.quantile(probability)))
        found = _between if self.deferred else _compiled_between
        return found(self, probability, (least - room, most + room))

    def _narrowed(self, ends: Ends, level: Number) -> Ends:
        return super()._narrowed(ends, level) if self.deferred else _narrowed(self, ends, level)

    @property
    def _disagreement(self) -> Array:
        means = self.each(lambda part, _: part.mean)
        return self.average((means - self.repeated(self.average(means))) ** 2)


def _between(pred: AveragedPredictive, probability: Number, ends: Ends) -> Array:
    found = search(lambda y: pred.cdf(y) < probability, ends, compiled=not pred.deferred)
    return quantile_in_support(found, probability, pred.support, pred.cdf)


_compiled_between = jax.jit(_between)


@jax.jit
def _narrowed(pred: AveragedPredictive, ends: Ends, level: Number) -> Ends:
    return Predictive._narrowed(pred, ends, level)


@partial(jax.jit, static_argnums=1)
def compiled(pred: AveragedPredictive, name: str, *arguments: Any) -> Array:
    """Returns what an average answers, by one program: one by one, its operations would be a dozen small ones."""
    member = vars(AveragedPredictive)[name]
    return member.__get__(pred)(*arguments) if callable(member) else member.__get__(pred)
