"""The rule of an ensemble: the average of its members' predictives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lamu.families import Ensemble
from lamu.predictives.interface import Prepared
from lamu.predictives.rule import PredictiveRule
from lamu.predictives.weighted import Weighted
from lamu.record import record
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import RandomKey, Rows

__all__ = ["Pooling"]


@record
class Pooling(PredictiveRule):
    """The rule of an ensemble: every member predicts by itself, with its own network state, and these are averaged.

    Attributes:
        base: the members' rule.
        frozen: weights that every member holds at values of its own, stacked; None where they share the model's.

    Examples:
        >>> from lamu.predictives import Pooling, Sampled
        >>> Pooling(Sampled()).base
        Sampled()
    """

    base: PredictiveRule
    frozen: Any = None

    def prepare(self, model: Target, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Returns every member's own preparation; `samples` is shared out among them."""
        if not isinstance(belief, Ensemble):
            raise TypeError(f"Pooling() averages an ensemble, not a {type(belief).__name__}; use its own rule")
        each = max(1, samples // belief.count)
        parts = []
        for k, member in enumerate(belief.members):
            own = model if self.frozen is None else replace(model, frozen=_member(self.frozen, k))
            state = _member(network_state, k)
            parts.append(self.base.prepare(own, member, state, each, jax.random.fold_in(key, k)))
        return _Members(tuple(parts))


@record
class _Members:
    """The members' preparations."""

    parts: tuple[Any, ...]

    @property
    def support(self) -> Support:
        return self.parts[0].support

    def at(self, x: Rows, offset: Rows | None) -> Weighted:
        return Weighted.equal(tuple(part.at(x, offset) for part in self.parts))


def _member(stacked: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], stacked)
