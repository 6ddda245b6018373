"""Weighted averages of predictives, of an ensemble's members or of models, which may be of different types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Ensemble
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import PredictiveRule
from lamu.predictives.mixture import AveragedPredictive, logsumexp_of_others
from lamu.record import record
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, Belief, Number, RandomKey, Rows, State, Targets

__all__ = ["Pooling", "Weighted"]


@record
class Weighted(AveragedPredictive):
    r"""\(p(y^*) = \sum_k w_k\, p_k(y^*)\), over predictions of the same rows, of any kinds and of one support.

    Attributes:
        parts: the predictions.
        log_weights: log w, `[parts]`, normalised.

    Raises:
        ValueError: for parts of different tasks, shapes or supports, or another number of weights than parts.

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
        for part in self.parts:  # of classes the values tell, which may have an order or not
            same = part.support.values == first.values if first.has_classes else part.support == first
            if not same:
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
        return self.parts[0].support

    def each(self, question: Callable[[Any, Any], Array], y: Targets = None) -> Array:
        """Returns a member of every part, along a new first axis."""
        return jnp.stack([question(part, y) for part in self.parts])

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        """Returns the log of the averaged density without each of a part's draws, one group a part with draws."""
        groups = [part.left_out(y) for part in self.parts]
        if not any(groups):
            return ()
        densities = self.each(lambda part, y: part.log_prob(y), y)
        weights = jnp.asarray(self.log_weights, densities.dtype)
        others = logsumexp_of_others(densities + weights[:, None])
        return tuple(
            jnp.logaddexp(jnp.broadcast_to(rest[None], group.shape), group + weight)
            for rest, weight, part in zip(others, weights, groups, strict=True)
            for group in part
        )

    def quantile(self, probability: Number) -> Array:
        if self.chunk_size:
            return jnp.concatenate([piece.quantile(probability) for _, piece in self.chunks()])
        return super().quantile(probability)

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        part_key, draw_key = jax.random.split(key)
        chosen = jax.random.categorical(part_key, jnp.asarray(self.log_weights), shape=(n,))
        keys = jax.random.split(draw_key, len(self.parts))
        # One part after the other, so that the memory is that of the result.
        mixed: Any = None
        for number, (part, k) in enumerate(zip(self.parts, keys, strict=True)):
            drawn = part.sample(k, n, first)
            if mixed is None:
                mixed = drawn
                continue
            dtype = jnp.promote_types(mixed.dtype, drawn.dtype)
            mine = (chosen == number).reshape(n, *[1] * (drawn.ndim - 1))
            mixed = jnp.where(mine, drawn.astype(dtype), mixed.astype(dtype))
        return mixed

    @property
    def deferred(self) -> bool:
        """Whether a part is computed in chunks of rows."""
        return any(part.deferred for part in self.parts)

    @property
    def chunk_size(self) -> int:
        """The number of rows of each chunk, where all parts have the same chunks."""
        sizes = {part.chunk_size for part in self.parts}
        return sizes.pop() if len(sizes) == 1 else 0

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the prediction in chunks of rows, where all parts have the same chunks; else of all rows."""
        if not self.chunk_size:
            yield slice(0, self.mean.shape[0]), self
            return
        for pieces in zip(*[part.chunks() for part in self.parts], strict=True):
            yield pieces[0][0], Weighted(tuple(piece for _, piece in pieces), self.log_weights)


@record
class Pooling(PredictiveRule):
    """The rule of an ensemble: averages the members' predictions, each with its own network state.

    The average is by the ensemble's weights.

    Attributes:
        base: the members' rule.
        frozen: frozen weights of every member, stacked; None where they share the model's.

    Examples:
        >>> from lamu.predictives import Pooling, Sampled
        >>> Pooling(Sampled()).base
        Sampled()
    """

    base: PredictiveRule
    frozen: Any = None

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns every member's preparation; `samples` is divided among them."""
        if not isinstance(belief, Ensemble):
            raise TypeError(f"Pooling() averages an ensemble, not a {type(belief).__name__}; use its own rule")
        each = max(1, samples // belief.count)
        parts = []
        for k, member in enumerate(belief.members):
            own = model if self.frozen is None else replace(model, frozen=_member(self.frozen, k))
            state = _member(network_state, k)
            parts.append(self.base.prepare(own, member, state, each, jax.random.fold_in(key, k)))
        return _Members(tuple(parts), belief.log_weights)

    def joint(self) -> PredictiveRule:
        return replace(self, base=self.base.joint())


@record
class _Members:
    """The members' preparations."""

    parts: tuple[Any, ...]
    log_weights: Any  # None for equal weights

    @property
    def support(self) -> Support:
        return self.parts[0].support

    def at(self, x: Rows, offset: Rows | None) -> Weighted:
        parts = tuple(part.at(x, offset) for part in self.parts)
        return Weighted.equal(parts) if self.log_weights is None else Weighted(parts, self.log_weights)


def _member(stacked: State, index: int) -> State:
    return jax.tree.map(lambda leaf: leaf[index], stacked)
