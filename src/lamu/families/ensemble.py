"""An ensemble: beliefs of one kind, side by side, of equal weight unless weights are given."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families.interface import Family
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Ensemble"]


@record
class Ensemble:
    r"""A mixture of beliefs, \(q(\theta) = \sum_k w_k q_k(\theta)\), with \(w_k = 1/M\) where no weights are given.

    Attributes:
        stacked: the members as one belief whose leaves have a leading axis of members.
        log_weights: log w, `[M]`, normalised; None for equal weights.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Ensemble, Point
        >>> belief = Ensemble(Point({"w": jnp.arange(3.0)}))
        >>> belief.count, float(belief.member(2).mean["w"])
        (3, 2.0)
    """

    stacked: Family
    log_weights: Any = None

    kind = "joint"

    @property
    def mean(self) -> Params:
        """Not defined: members may lie in different modes, whose average may be a place of no probability."""
        raise AttributeError("an ensemble has several modes, whose average is no estimate; use predict or .members")

    @property
    def count(self) -> int:
        """The number of members."""
        return jax.tree.leaves(self.stacked)[0].shape[0]

    @property
    def members(self) -> tuple[Any, ...]:
        """The members' beliefs, one after the other."""
        return tuple(self.member(index) for index in range(self.count))

    def member(self, index: int | Array) -> Any:
        """Returns one member's belief."""
        return jax.tree.map(lambda leaf: leaf[index], self.stacked)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw from a member that is drawn first, by its weight."""
        member_key, draw_key = jax.random.split(key)
        if self.log_weights is None:
            return self.member(jax.random.randint(member_key, (), 0, self.count)).sample(draw_key)
        return self.member(jax.random.categorical(member_key, self.log_weights)).sample(draw_key)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns draws of every member, member after member; at least one of each, about `count` in all.

        Where there are weights, `count` draws of members that are chosen by systematic resampling.
        """
        if self.log_weights is not None:
            return self._resampled(key, count)
        each = max(1, count // self.count)
        drawn = [member.draws(jax.random.fold_in(key, k), each) for k, member in enumerate(self.members)]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *drawn)

    def _resampled(self, key: RandomKey, count: int) -> Params:
        place_key, draw_key = jax.random.split(key)
        dtype = jnp.result_type(self.log_weights)
        places = (jnp.arange(count, dtype=dtype) + jax.random.uniform(place_key, (), dtype)) / count
        chosen = jnp.clip(jnp.searchsorted(jnp.cumsum(jnp.exp(self.log_weights)), places), 0, self.count - 1)
        draw = lambda index, key: self.member(index).sample(key)
        return jax.vmap(draw)(chosen, jax.random.split(draw_key, count))
