"""In what the members of an ensemble differ, beside their starts, noise and orders of the data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.priors import Belief, independent_normal
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Anchors", "Bootstrap", "Diversity", "Seeds"]

# P(Poisson(1) ≤ k) on 32 bits, for k = 0, 1, …; more than eleven copies come once in 10⁹ rows.
_BELOW = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])
_STEPS = (_BELOW * 2**32).astype(np.uint32)


@runtime_checkable
class Diversity(Protocol):
    """How one member's data and objective differ from those that all are given."""

    @property
    def departure(self) -> str:
        """What it adds to the rule, or the empty string."""
        ...

    def batch(self, member: Any, batch: Batch) -> Batch:
        """Returns the rows as member number `member` sees them."""
        ...

    def objective(self, member: Any, objective: Objective, batch: Batch) -> Objective:
        """Returns the objective of member number `member`; the batch is for shapes alone."""
        ...


@record
class Seeds:
    """Starts, noise and orders of the data, which every ensemble has, and nothing else.

    Examples:
        >>> from lamu.algorithms.ensembles.diversity import Seeds
        >>> Seeds().departure
        ''
    """

    departure = ""

    def batch(self, member: Any, batch: Batch) -> Batch:
        """Returns the rows as they are."""
        return batch

    def objective(self, member: Any, objective: Objective, batch: Batch) -> Objective:
        """Returns the objective as it is."""
        return objective


@record
class Bootstrap:
    r"""Every member has a resample of the rows of its own: a row counts as often as Poisson(1) says.

    \[ w_{ki} \sim \mathrm{Poisson}(1), \qquad \bar\ell_k(\theta) = -\tfrac1N \sum_i w_{ki}\, w_i \log p(y_i \mid x_i,
       \theta) - \tfrac1N \log p(\theta) \]

    which is drawing N rows with replacement, but for their number, known to \(\sqrt N\). The count is a function of the
    seed, the member and the row's own bits: it is the same in every epoch, whatever the order, in a stream too, and
    nothing is stored. Rows that are equal count the same.

    Attributes:
        seed: of the resamples.

    Source: Efron (1979); Oza & Russell (2001), section 2, for the Poisson counts.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms.ensembles.diversity import Bootstrap
        >>> from lamu.data import Batch
        >>> batch = Batch.of(jnp.arange(1000.0)[:, None], jnp.zeros(1000))
        >>> weight = Bootstrap().batch(0, batch).weight
        >>> 0.9 < float(weight.mean()) < 1.1, 0.3 < float((weight == 0).mean()) < 0.43
        (True, True)
    """

    seed: int = static(default=0)

    departure = "rows resampled for each member"

    def batch(self, member: Any, batch: Batch) -> Batch:
        """Returns the rows, each with its weight times its count in the member's resample."""
        own = _mixed(jnp.asarray(member).astype(jnp.uint32) + _mixed(jnp.uint32(self.seed % 2**32) + jnp.uint32(1)))
        bits = _mixed(_fingerprints(batch.x, batch.y) ^ own)
        counts = jnp.sum((bits[:, None] >= jnp.asarray(_STEPS)[None, :-1]).astype(batch.weight.dtype), axis=1)
        return replace(batch, weight=batch.weight * counts)

    def objective(self, member: Any, objective: Objective, batch: Batch) -> Objective:
        """Returns the objective as it is."""
        return objective


@record
class Anchors:
    r"""Every member has a prior about a centre of its own, which is a draw from the prior.

    \[ p_k(\theta) = N(\theta \mid a_k, \delta^{-1}), \qquad a_k \sim N(m_0, \delta^{-1}) \]

    so that members disagree where the data do not say, as functions drawn from the prior would. For a linear model with
    Gaussian noise the centre of the members is the posterior's mean, and their covariance \(S^{-1} \delta S^{-1}\),
    below the posterior's \(S^{-1}\) where the data say anything. The draw is a function of the seed and the member and
    is made again at every step: as many normals as weights.

    Attributes:
        seed: of the draws.

    Source: Pearce, Leibfried, Brintrup, Zaki & Neely (2020), section 3; Osband, Aslanides & Cassirer (2018), lemma 3,
        for linear models the same.

    Examples:
        >>> from lamu.algorithms.ensembles.diversity import Anchors
        >>> Anchors(seed=1).departure
        'a prior of its own for each member'
    """

    seed: int = static(default=0)

    departure = "a prior of its own for each member"

    def batch(self, member: Any, batch: Batch) -> Batch:
        """Returns the rows as they are."""
        return batch

    def objective(self, member: Any, objective: Objective, batch: Batch) -> Objective:
        """Returns the objective whose prior is about the member's centre.

        Raises:
            TypeError: for a prior that is not Gaussian with independent weights.
        """
        model = objective.model
        shapes: Any = jax.eval_shape(model.init, jax.random.key(0), batch)[0]
        like = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes["network"])
        known = independent_normal(model.free_prior, like)
        if known is None:
            raise TypeError(
                f"anchors are the centres of Gaussian priors, and {type(model.prior).__name__} is none of independent "
                "weights; give priors.Normal(), or Bootstrap()"
            )
        centre = model.prior.sample(jax.random.fold_in(jax.random.key(self.seed), member), like)
        prior = Belief(Gaussian(centre, Diagonal(known[1])))
        return replace(objective, model=replace(model, prior=prior))


def _fingerprints(x: Array, y: Any) -> Array:
    """A number for the bits of every row, `[batch]`, of 32 bits."""
    words = jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves((x, y))], axis=1)
    places = _mixed(jnp.arange(words.shape[1], dtype=jnp.uint32) + jnp.uint32(1))
    return jnp.sum(_mixed(words ^ places[None]), axis=1, dtype=jnp.uint32)


def _words(leaf: Array) -> Array:
    """The bits of every row as numbers of 32 bits, `[batch, words]`."""
    leaf = jnp.asarray(leaf)
    if leaf.dtype == jnp.bool_:
        leaf = leaf.astype(jnp.uint8)
    if leaf.dtype.itemsize < 4:
        leaf = jax.lax.bitcast_convert_type(leaf, {1: jnp.uint8, 2: jnp.uint16}[leaf.dtype.itemsize])
        return leaf.astype(jnp.uint32).reshape(leaf.shape[0], -1)
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32).reshape(leaf.shape[0], -1)


def _mixed(bits: Array) -> Array:
    """The finaliser of MurmurHash3: every bit of the result depends on every bit given."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
