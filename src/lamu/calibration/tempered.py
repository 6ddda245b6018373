"""Predictives with a fitted temperature: tempered class probabilities, and densities widened about their mean."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from lamu.predictives.chunking import draw_in_chunks, row_keys
from lamu.predictives.moved import RescaledPredictive
from lamu.predictives.wrapper import PredictiveWrapper
from lamu.record import record
from lamu.supports import Support
from lamu.typing import Array, Number, RandomKey

__all__ = ["TemperedClasses", "Widened", "stretches"]


def stretches(support: Support) -> bool:
    """Returns whether targets may be any real number, so that stretched ones are."""
    ends = math.isfinite(support.lower), math.isfinite(support.upper)
    return support.ordered and not (support.has_classes or support.discrete or any(ends))


@record
class TemperedClasses(PredictiveWrapper):
    r"""Class probabilities to the power 1/T, \(\tilde p_k \propto \bar p_k^{1/T}\), of a prediction's averaged ones.

    The share of the uncertainty that is epistemic stays what it was: a temperature says how sure to be, not why.

    Attributes:
        base: the prediction, of classes or a binary target.
        temperature: T; above one is less sure.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.calibration import TemperedClasses
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.predictives import MixturePredictive
        >>> pred = MixturePredictive.equal(Bernoulli(), {}, jnp.log(jnp.full((1, 1, 1), 9.0)))
        >>> round(float(TemperedClasses(pred, 2.0).mean[0]), 6)
        0.75
    """

    base: Any
    temperature: Number

    @property
    def mean(self) -> Array:
        p = self._tempered(jnp.log(self._floored))
        return p[:, 1] if jnp.ndim(self.base.mean) == 1 else p

    @property
    def variance(self) -> Array:
        """The probabilities' own, p (1 − p)."""
        mean = self.mean
        return mean * (1 - mean)

    @property
    def aleatoric(self) -> Array:
        """What is left of the entropy."""
        return self._entropy * (1 - self._share)

    @property
    def epistemic(self) -> Array:
        """The entropy's share that it was before."""
        return self._entropy * self._share

    def log_prob(self, y: Any) -> Array:
        """Returns the log probability of each target in nats, `[N]`."""
        scaled = jax.nn.log_softmax(jnp.log(self._floored) / self.temperature, axis=-1)
        return jnp.take_along_axis(scaled, self._labels(y)[:, None], axis=-1)[:, 0]

    def left_out(self, y: Any) -> tuple[Array, ...]:
        """Returns `log_prob(y)` without each of the draws: one pass a class."""
        labels, target = self._labels(y), self.support.targets
        each = [self.base.left_out(target(jnp.full_like(labels, k))) for k in range(self._floored.shape[1])]

        def chosen(*of_classes: Array) -> Array:  # each [draws, N]
            scaled = jax.nn.log_softmax(jnp.stack(of_classes, axis=-1) / self.temperature, axis=-1)
            index = jnp.broadcast_to(labels[None, :, None], (*scaled.shape[:2], 1))
            return jnp.take_along_axis(scaled, index, axis=-1)[..., 0]

        return tuple(chosen(*group) for group in zip(*each, strict=True))

    def cdf(self, y: Any) -> Array:
        """Raises a TypeError: a class has a probability."""
        raise TypeError("classes have no cdf, which is for regression; use mean, the probabilities of the classes")

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        logits = jnp.log(self._floored) / self.temperature

        def draw(key: RandomKey) -> Array:
            drawn = jax.vmap(jax.random.categorical)(row_keys(key, logits.shape[0], first), logits)
            return self.support.targets(drawn)

        return draw_in_chunks(draw, jax.random.split(key, n))

    def _labels(self, y: Any) -> Array:
        return self.support.numbers(jnp.asarray(y).astype(jnp.int32))

    @property
    def _floored(self) -> Array:
        p = self.base.probabilities
        return jnp.maximum(p, jnp.finfo(p.dtype).tiny)  # a probability that underflowed has a logarithm still

    @property
    def _entropy(self) -> Array:
        p = self._tempered(jnp.log(self._floored))
        return -jnp.sum(xlogy(p, p), axis=-1)

    @property
    def _share(self) -> Array:
        total, epistemic = self.base.total, self.base.epistemic
        return jnp.where(total > 0, epistemic / jnp.where(total > 0, total, 1), 0)

    def _tempered(self, logits: Array) -> Array:
        return jax.nn.softmax(logits / self.temperature, axis=-1)


@record
class Widened(RescaledPredictive):
    r"""A prediction of real numbers stretched about its mean, \(\tilde y = m + c\,(y - m)\).

    Both kinds of uncertainty are multiplied by c². Counts, angles, and numbers with an end would leave their
    support, and are refused.

    Attributes:
        base: the prediction.
        factor: c; above one is less sure.

    Raises:
        ValueError: for targets that are not all real numbers.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.calibration import Widened
        >>> from lamu.predictives import GaussianPredictive
        >>> pred = GaussianPredictive(jnp.zeros(1), jnp.ones((1, 1, 1)), jnp.ones(1))
        >>> float(Widened(pred, 3.0).std[0])
        3.0
    """

    base: Any
    factor: Number

    def __post_init__(self) -> None:
        if not stretches(self.base.support):
            raise ValueError(
                "a temperature stretches predictions of real numbers, and targets that are "
                f"{self.base.support.values} would leave their support; use conformal(pred, y) for intervals, or a "
                "likelihood whose dispersion is learned"
            )

    @property
    def factors(self) -> Array:
        return jnp.full_like(self.base.mean, self.factor)

    @property
    def mean(self) -> Array:
        return self.base.mean

    def forward(self, values: Array) -> Array:
        """Returns m + c (y − m)."""
        return self.mean + self.factor * (values - self.mean)

    def backward(self, y: Array) -> Array:
        """Returns m + (y − m)/c."""
        return self.mean + (y.astype(self.mean.dtype) - self.mean) / self.factor
