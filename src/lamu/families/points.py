"""Beliefs represented by points: a single point, a sampler's draws, and ensembles of beliefs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree

from lamu.base.compile_once import compiled_once
from lamu.families.gaussian import Gaussian
from lamu.families.interface import Family, IndependentDraws
from lamu.operators import Dense, Diagonal
from lamu.record import measured, record
from lamu.typing import Array, Belief, Params, RandomKey, Rows, Statistics

__all__ = ["Draws", "Ensemble", "Point"]


@record
class Point:
    r"""A point mass, \(q(\theta) = \delta(\theta - m)\).

    Attributes:
        mean: m.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Point
        >>> Point({"w": jnp.ones(2)}).sample(jax.random.key(0))["w"].tolist()
        [1.0, 1.0]
    """

    mean: Params

    kind = "degenerate"

    @property
    def std(self) -> Params:
        """Zeros."""
        return jax.tree.map(jnp.zeros_like, self.mean)

    def interval(self, level: float = 0.9) -> tuple[Params, Params]:
        """Returns the point as both ends."""
        return self.mean, self.mean

    def sample(self, key: RandomKey) -> Params:
        """Returns the point."""
        return self.mean

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns the point along a leading axis of one."""
        return jax.tree.map(lambda leaf: leaf[None], self.mean)


@record
class Draws:
    r"""An equal mixture of points, \(q(\theta) = \frac{1}{CD} \sum_{c,d} \delta(\theta - \theta_{cd})\).

    Attributes:
        samples: the points, leaves `[chains, draws, ...]`.
        statistics: the sampler's statistics of each transition, arrays `[chains, draws]` by name; None if there
            are none.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Draws
        >>> belief = Draws({"w": jnp.arange(8.0).reshape(2, 4)})
        >>> belief.draws(jax.random.key(0), 4)["w"].tolist()
        [0.0, 2.0, 4.0, 6.0]
    """

    samples: Params
    statistics: Statistics = measured(default=None)

    kind = "joint"

    @property
    def mean(self) -> Params:
        """Not defined: the average of draws from several modes may have no probability."""
        raise AttributeError(
            "draws may have several modes and no single estimate; use predict, or average over chains and draws, "
            "jax.tree.map(lambda leaf: leaf.mean((0, 1)), posterior.samples)"
        )

    @property
    def count(self) -> int:
        """The number of points, over all chains."""
        leaf = jax.tree.leaves(self.samples)[0]
        return leaf.shape[0] * leaf.shape[1]

    def sample(self, key: RandomKey) -> Params:
        """Returns one of the points, each with the same probability."""
        return self._at(jax.random.randint(key, (), 0, self.count))

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns an even selection of at most `count` points, chain by chain; the key is not needed."""
        kept = min(count, self.count)
        return self._at(np.arange(kept) * self.count // kept)

    def _at(self, index: Rows) -> Params:
        return jax.tree.map(lambda leaf: _picked(leaf, index), self.samples)


@compiled_once()
def _rows_at(leaf: Array, index: Rows) -> Array:
    return leaf.reshape(-1, *leaf.shape[2:])[index]


def _picked(leaf: Rows, index: Rows) -> jax.Array:
    """Returns some points; from a NumPy array (it may be memory-mapped) nothing else is read."""
    if not isinstance(leaf, np.ndarray):
        return _rows_at(leaf, index)

    def read(index: Rows) -> np.ndarray:
        chain, draw = np.divmod(np.asarray(index), leaf.shape[1])
        return np.asarray(leaf[chain, draw])

    if not isinstance(index, Tracer):
        return jnp.asarray(read(index))
    shape = jax.ShapeDtypeStruct((*index.shape, *leaf.shape[2:]), leaf.dtype)
    return jax.pure_callback(read, shape, index, vmap_method="sequential")


@record
class Ensemble:
    r"""A mixture of beliefs, \(q(\theta) = \sum_k w_k q_k(\theta)\), with \(w_k = 1/M\) by default.

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
        """Not defined: members may lie in different modes, whose average may have no probability."""
        raise AttributeError("an ensemble has several modes and no single estimate; use predict or .members")

    @property
    def count(self) -> int:
        """The number of members."""
        return jax.tree.leaves(self.stacked)[0].shape[0]

    @property
    def members(self) -> tuple[Belief, ...]:
        """The members' beliefs, one after the other."""
        return tuple(self.member(index) for index in range(self.count))

    def member(self, index: int | Array) -> Belief:
        """Returns one member's belief."""
        return jax.tree.map(lambda leaf: leaf[index], self.stacked)

    def sample(self, key: RandomKey) -> Params:
        """Returns a sample from a member chosen by weight."""
        member_key, draw_key = jax.random.split(key)
        if self.log_weights is None:
            return self.member(jax.random.randint(member_key, (), 0, self.count)).sample(draw_key)
        return self.member(jax.random.categorical(member_key, self.log_weights)).sample(draw_key)

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns samples of every member, member after member; at least one of each, about `count` in total.

        With weights, `count` samples of members that are chosen by systematic resampling.
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


@record
class DispersionMixture(Ensemble, IndependentDraws):
    """A belief about weights given each of some dispersions, which stand for a continuum: a mixture of one mode."""

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return self._averaged(self.stacked.mean)

    def marginal_variance(self) -> Params:
        """Returns the variance of each number of θ, by the law of total variance."""
        away = jax.tree.map(lambda each, mean: each - mean[None], self.stacked.mean, self.mean)
        within: Params = jax.vmap(lambda member: member.std)(self.stacked)
        return self._averaged(jax.tree.map(lambda a, s: a**2 + s**2, away, within))

    def matched(self) -> tuple[Gaussian, Gaussian]:
        """Returns Gaussians about the weights and the dispersions with the moments of the mixture."""
        members: Belief = self.stacked
        network, each = self.mean["network"], members.factors["network"]
        mean = ravel_pytree(network)[0]
        away = jax.vmap(lambda leaves: ravel_pytree(leaves)[0])(each.mean) - mean[None]
        within = jax.vmap(lambda precision: jnp.linalg.inv(precision.dense(network)))(each.precision)
        covariance = self._averaged(within + away[:, :, None] * away[:, None, :])
        dispersions = jax.tree.map(lambda variance: 1 / variance, self.marginal_variance()["likelihood"])
        weights = Gaussian(network, Dense(jnp.linalg.inv(covariance)))
        return weights, Gaussian(self.mean["likelihood"], Diagonal(dispersions))

    def _averaged(self, values: Params) -> Params:
        weights = jnp.exp(self.log_weights)
        return jax.tree.map(lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, axes=1), values)
