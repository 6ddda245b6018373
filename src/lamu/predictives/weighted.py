"""The predictive of a weighted average, of an ensemble's members or of models: each part may be of another kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, xlogy

from lamu.bisection import bisect, halved
from lamu.predictives.interface import Predictive, quantile_in_support
from lamu.predictives.lazy import Deferred
from lamu.predictives.mixture import all_but_one
from lamu.record import record
from lamu.supports import Support
from lamu.typing import Array, RandomKey

__all__ = ["Weighted"]


@record
class Weighted(Predictive):
    r"""\(p(y^*) = \sum_k w_k\, p_k(y^*)\), over predictions of the same rows, of any kinds and of one support.

    Attributes:
        parts: the predictions.
        log_weights: log w, `[parts]`, normalised.

    Raises:
        ValueError: for parts of different tasks, shapes or supports, or as many weights as there are not parts.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive, Weighted
        >>> one, two = (GaussianPredictive(jnp.full(1, c), jnp.ones((1, 1, 1)), jnp.ones(1)) for c in (0.0, 4.0))
        >>> float(Weighted((one, two), jnp.log(jnp.array([0.75, 0.25]))).mean[0])
        1.0
    """

    parts: tuple[Any, ...]
    log_weights: Any

    def __post_init__(self) -> None:
        kinds = {(part.support.task, tuple(part.mean.shape)) for part in self.parts}
        if len(kinds) != 1:
            raise ValueError(
                f"the parts are {sorted(kinds)}, task and shape; only predictions of one task and the same rows mix"
            )
        first = self.parts[0].support
        for part in () if first.has_classes else self.parts:  # of classes their number, in the shape of the mean, tells
            if part.support != first:
                raise ValueError(
                    f"one part predicts {first.values}, and another {part.support.values}, whose densities do not "
                    "average; mix models whose likelihoods have one support"
                )
        if jnp.shape(self.log_weights) != (len(self.parts),):
            raise ValueError(
                f"{len(self.parts)} parts have weights of shape {jnp.shape(self.log_weights)}; give one each"
            )

    @classmethod
    def equal(cls, parts: tuple[Any, ...]) -> Weighted:
        """Returns the average with equal weights."""
        return cls(parts, jnp.full(len(parts), -math.log(len(parts)), parts[0].mean.dtype))

    @property
    def support(self) -> Support:
        """The parts' support."""
        return self.parts[0].support

    @property
    def mean(self) -> Array:
        """The average of the parts' means."""
        return self._average(lambda part: part.mean)

    @property
    def variance(self) -> Array:
        """Regression: the average variance, and the variance of the means; classes: p (1 − p)."""
        if self.support.has_classes:
            mean = self.mean
            return mean * (1 - mean)
        return self._average(lambda part: part.variance) + self._disagreement

    @property
    def aleatoric(self) -> Array:
        """The average of the parts' own aleatoric uncertainty."""
        return self._average(lambda part: part.aleatoric)

    @property
    def epistemic(self) -> Array:
        """What the parts do not know each, and where they disagree."""
        if not self.support.has_classes:
            return self._average(lambda part: part.epistemic) + self._disagreement
        probabilities = self.probabilities
        entropy = -jnp.sum(xlogy(probabilities, probabilities), axis=-1)
        return jnp.maximum(entropy - self.aleatoric, 0.0)

    def log_prob(self, y: Any) -> Array:
        """Returns the log of the averaged density, in nats, `[N]`."""
        return logsumexp(self._densities(y), axis=0)

    def cdf(self, y: Any) -> Array:
        """Returns P(Y ≤ y), the average."""
        return self._average(lambda part: part.cdf(y))

    def left_out(self, y: Any) -> tuple[Array, ...]:
        """Returns the log of the averaged density without each of a part's draws, a group for each part that draws."""
        groups = [part.left_out(y) for part in self.parts]
        if not any(groups):
            return ()
        others = all_but_one(self._densities(y))
        weights = jnp.asarray(self.log_weights, others.dtype)
        return tuple(
            jnp.logaddexp(jnp.broadcast_to(rest[None], group.shape), group + weight)
            for rest, weight, part in zip(others, weights, groups, strict=True)
            for group in part
        )

    def quantile(self, probability: float) -> Array:
        """Returns the quantile of each target, by bisection between the parts' smallest and largest."""
        if self._cut_alike:
            return jnp.concatenate([piece.quantile(probability) for _, piece in self.chunks()])
        ends = jnp.stack([part.quantile(probability) for part in self.parts])
        steps = 60 if ends.dtype == jnp.float64 else 30
        is_below = lambda y: self.cdf(y) < probability
        room = 0.5 if self.support.discrete else 0.0  # to lie on both sides of the first and the last
        outer = jnp.min(ends, axis=0) - room, jnp.max(ends, axis=0) + room
        if self.deferred:
            for _ in range(steps):  # what is deferred cannot be asked inside a compiled loop
                outer = halved(is_below, outer)
            found = (outer[0] + outer[1]) / 2
        else:
            found = bisect(is_below, outer, steps)
        return quantile_in_support(found, probability, self.support, self.cdf)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws, each from a part that is drawn first."""
        part_key, draw_key = jax.random.split(key)
        chosen = jax.random.categorical(part_key, jnp.asarray(self.log_weights), shape=(n,))
        keys = jax.random.split(draw_key, len(self.parts))
        # One part after the other: what is held is what is asked for, however many there are.
        found: Any = None
        for number, (part, k) in enumerate(zip(self.parts, keys, strict=True)):
            drawn = part.sample(k, n, first)
            if found is None:
                found = drawn
                continue
            dtype = jnp.promote_types(found.dtype, drawn.dtype)
            mine = (chosen == number).reshape(n, *[1] * (drawn.ndim - 1))
            found = jnp.where(mine, drawn.astype(dtype), found.astype(dtype))
        return found

    @property
    def deferred(self) -> bool:
        """Whether a part is computed some rows at a time."""
        return any(part.deferred for part in self.parts)

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the prediction of some rows after the other, where all parts are cut alike; else of all rows."""
        if not self._cut_alike:
            yield slice(0, self.mean.shape[0]), self
            return
        for pieces in zip(*[part.chunks() for part in self.parts], strict=True):
            yield pieces[0][0], Weighted(tuple(piece for _, piece in pieces), self.log_weights)

    @property
    def _cut_alike(self) -> bool:
        sizes = {part.rows if isinstance(part, Deferred) else 0 for part in self.parts}
        return len(sizes) == 1 and sizes != {0}

    @property
    def _disagreement(self) -> Array:
        centre = self.mean
        return self._average(lambda part: (part.mean - centre) ** 2)

    def _densities(self, y: Any) -> Array:
        densities = jnp.stack([part.log_prob(y) for part in self.parts])
        return densities + jnp.asarray(self.log_weights, densities.dtype)[:, None]

    def _average(self, of: Callable[[Any], Array]) -> Array:
        values = jnp.stack([of(part) for part in self.parts])
        return jnp.tensordot(jnp.exp(jnp.asarray(self.log_weights, values.dtype)), values, axes=1)
