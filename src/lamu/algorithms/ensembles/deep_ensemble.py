"""Deep ensembles: several runs of one algorithm from different starts and data orders, averaged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import require_whole_field, whole_number
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.families import Ensemble, Gaussian
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.posterior import Posterior
from lamu.predictives import Pooling
from lamu.priors import Belief, independent_normal
from lamu.protocol import Algorithm, Choices, Info, Traits, Wrapper, recipe, require_part, runnable
from lamu.rate import Annealed
from lamu.record import record, static
from lamu.typing import Array, Data, Numeric, PyTree, RandomKey, State, Trace

__all__ = ["Anchors", "Bootstrap", "DeepEnsemble", "Diversity", "Seeds", "deep_ensemble", "pooled"]


# P(Poisson(1) ≤ k) on 32 bits, for k = 0, 1, …; more than eleven copies occur once in 10⁹ rows.
_BELOW = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])
_STEPS = (_BELOW * 2**32).astype(np.uint32)


@record
class Diversity:
    """Base class for the differences between members' data and objectives; by default there are none."""

    departure: ClassVar[str] = ""  # departure from the rule, for the table

    def batch(self, member: Numeric, batch: Batch) -> Batch:
        """Returns the batch of member number `member`."""
        return batch

    def objective(self, member: Numeric, objective: Objective, batch: Batch) -> Objective:
        """Returns the objective of member number `member`; the batch is used for shapes only."""
        return objective


@record
class Seeds(Diversity):
    """Starts, noise and data orders only, in which the members of every ensemble differ.

    Examples:
        >>> from lamu.algorithms.ensembles.deep_ensemble import Seeds
        >>> Seeds().departure
        ''
    """


@record
class Bootstrap(Diversity):
    r"""A bootstrap resample of the rows for every member: a row counts as often as Poisson(1) says.

    \[ w_{ki} \sim \mathrm{Poisson}(1), \qquad \bar\ell_k(\theta) = -\tfrac1N \sum_i w_{ki}\, w_i \log p(y_i \mid x_i,
       \theta) - \tfrac1N \log p(\theta) \]

    which is sampling N rows with replacement, except that their number varies by \(\sqrt N\). The count is a function
    of the seed, the member and the row's own bits: it is the same in every epoch, in any order, also in a stream, and
    nothing is stored. Equal rows have equal counts, and so do the rows of a group where the data have `groups`.

    Attributes:
        seed: seed of the resamples.

    Source: Efron (1979); Oza & Russell (2001), section 2, for the Poisson counts.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms.ensembles.deep_ensemble import Bootstrap
        >>> from lamu.data import Batch
        >>> batch = Batch.of(jnp.arange(1000.0)[:, None], jnp.zeros(1000))
        >>> weight = Bootstrap().batch(0, batch).weight
        >>> 0.9 < float(weight.mean()) < 1.1, 0.3 < float((weight == 0).mean()) < 0.43
        (True, True)
    """

    seed: int = static(default=0)

    departure = "rows resampled for each member"

    def __post_init__(self) -> None:
        require_whole_field(self, "seed", 0)

    def batch(self, member: Numeric, batch: Batch) -> Batch:
        """Returns the batch with each row's weight times its count in the member's resample."""
        own = _mixed(jnp.asarray(member).astype(jnp.uint32) + _mixed(jnp.uint32(self.seed % 2**32) + jnp.uint32(1)))
        units = (batch.x, batch.y) if batch.groups is None else batch.groups
        bits = _mixed(_fingerprints(units) ^ own)
        counts = jnp.sum((bits[:, None] >= jnp.asarray(_STEPS)[None, :-1]).astype(batch.weight.dtype), axis=1)
        return replace(batch, weight=batch.weight * counts)


@record
class Anchors(Diversity):
    r"""A prior for every member whose centre is a sample from the prior.

    \[ p_k(\theta) = N(\theta \mid a_k, \delta^{-1}), \qquad a_k \sim N(m_0, \delta^{-1}) \]

    so that members disagree where the data are uninformative, as functions sampled from the prior do. For a linear
    model with Gaussian noise the mean of the members is the posterior's, and their covariance \(S^{-1} \delta S^{-1}\),
    below the posterior's \(S^{-1}\) where the data are informative. The sample is a function of the seed and the member
    and is drawn again at every step: as many normal numbers as weights.

    Attributes:
        seed: seed of the samples.

    Source: Pearce, Leibfried, Brintrup, Zaki & Neely (2020), section 3; Osband, Aslanides & Cassirer (2018), lemma 3,
        for linear models the same.

    Examples:
        >>> from lamu.algorithms.ensembles.deep_ensemble import Anchors
        >>> Anchors(seed=1).departure
        'a prior of its own for each member'
    """

    seed: int = static(default=0)

    departure = "a prior of its own for each member"

    def __post_init__(self) -> None:
        require_whole_field(self, "seed", 0)

    def objective(self, member: Numeric, objective: Objective, batch: Batch) -> Objective:
        """Returns the objective whose prior is centred at the member's sample.

        Raises:
            TypeError: for a prior that is not Gaussian with independent weights.
        """
        model = objective.model
        shapes: PyTree = jax.eval_shape(model.init, jax.random.key(0), batch)[0]
        like = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes["network"])
        moments = independent_normal(model.free_prior, like)
        if moments is None:
            raise TypeError(
                f"anchors are the centres of Gaussian priors, and {type(model.prior).__name__} is none of independent "
                "weights; give priors.Normal(), or Bootstrap()"
            )
        centre = model.prior.sample(jax.random.fold_in(jax.random.key(self.seed), member), like)
        prior = Belief(Gaussian(centre, Diagonal(moments[1])))
        return replace(objective, model=replace(model, prior=prior))


def _fingerprints(parts: PyTree) -> Array:
    """Returns a hash of every row's bits, `[batch]`, of 32 bits."""
    words = jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(parts)], axis=1)
    places = _mixed(jnp.arange(words.shape[1], dtype=jnp.uint32) + jnp.uint32(1))
    return jnp.sum(_mixed(words ^ places[None]), axis=1, dtype=jnp.uint32)


def _words(leaf: Array) -> Array:
    """Returns the bits of every row as 32-bit numbers, `[batch, words]`."""
    leaf = jnp.asarray(leaf)
    if leaf.dtype == jnp.bool_:
        leaf = leaf.astype(jnp.uint8)
    if leaf.dtype.itemsize < 4:
        leaf = jax.lax.bitcast_convert_type(leaf, {1: jnp.uint8, 2: jnp.uint16}[leaf.dtype.itemsize])
        return leaf.astype(jnp.uint32).reshape(leaf.shape[0], -1)
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32).reshape(leaf.shape[0], -1)


def _mixed(bits: Array) -> Array:
    """The finaliser of MurmurHash3: every output bit depends on every input bit."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


@record
class DeepEnsemble(Wrapper):
    """Algorithm of `deep_ensemble`."""

    base: Algorithm  # the members' algorithm
    members: int = static(default=5)  # number of members
    diversity: Diversity | Any = Seeds()  # how members differ besides their seeds

    @property
    def traits(self) -> Traits:
        # Those of the members' algorithm, with one data order and one run for each member.
        return replace(self.base.traits, streams=self.members, runs=self.members, shared=())

    @property
    def choices(self) -> Choices:
        # The members' row, as a mixture.
        choices = self.base.choices
        more = (self.diversity.departure,) if self.diversity.departure else ()
        departures = (*choices.departures, "members apart", *more)
        return replace(choices, family=f"mixture of {self.members}: {choices.family}", departures=departures)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        # Returns the members' first states, stacked along a leading axis.
        keys = jax.random.split(key, self.members)

        def init_member(key: RandomKey, k: Array) -> State:
            member_objective = self.diversity.objective(k, objective, batch)
            return self.base.init(key, member_objective, self.diversity.batch(k, batch))

        return jax.vmap(init_member)(keys, jnp.arange(self.members))

    def step(self, key: RandomKey, state: State, batch: Batch, objective: Objective) -> tuple[State, Info]:
        # Returns the members' next states.
        #
        # A batch may have a leading axis of members, as in the training loop; otherwise all members share its rows.
        keys = jax.random.split(key, self.members)
        separate_batches = batch.mask.ndim == 2
        model, example = objective.model, _member(batch, 0) if separate_batches else batch

        def step(key: RandomKey, state: State, k: Array | int, batch: Batch) -> tuple[State, Info]:
            own = self.diversity.objective(k, objective, batch)
            return self.base.step(key, state, self.diversity.batch(k, batch), own)

        if model.scan_friendly(example):
            numbers = jnp.arange(self.members)
            state, info = jax.vmap(step, in_axes=(0, 0, 0, 0 if separate_batches else None))(
                keys, state, numbers, batch
            )
        else:
            steps = [
                step(keys[k], _member(state, k), k, _member(batch, k) if separate_batches else batch)
                for k in range(self.members)
            ]
            state, info = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
        return state, Info(loss=jnp.mean(info.loss), residual=jnp.max(info.residual))

    def preview(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        # Returns the posterior before any pass over the data: the members' previews as one ensemble.
        preview = runnable(self.base).preview
        return pooled(
            [preview(jax.random.fold_in(key, k), _member(state, k), objective) for k in range(self.members)], key
        )

    def explain_divergence(self, state: State) -> str | None:
        # Returns the first member's explanation, if any.
        reasons = (runnable(self.base).explain_divergence(_member(state, k)) for k in range(self.members))
        return next((reason for reason in reasons if reason is not None), None)

    def posterior(self, key: RandomKey, state: State, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the members' posteriors as one ensemble, with the members' own predictive rule.
        members = [
            self.base.posterior(
                jax.random.fold_in(key, k), _member(state, k), member_objective, _data(self.diversity, k, data), None
            )
            for k, member_objective in enumerate(self._objectives(objective, data))
        ]
        # The model is shared; members' own priors are not part of it.
        with_shared_prior = [replace(p, model=replace(p.model, prior=objective.model.prior)) for p in members]
        return pooled(with_shared_prior if isinstance(self.diversity, Anchors) else members, key)

    def _objectives(self, objective: Objective, data: Data) -> list[Objective]:
        """Returns the members' objectives; without data to read shapes from, the shared one."""
        if data is None:
            return [objective] * self.members
        example = data.example(1)
        return [self.diversity.objective(k, objective, example) for k in range(self.members)]


def _data(diversity: Diversity, member: int, data: Data) -> Data:
    """Returns a member's data, for an algorithm whose posterior needs a pass over them."""
    if data is None or isinstance(diversity, Seeds):
        return data
    if isinstance(data, Arrays):
        return replace(data, weight=diversity.batch(member, data.full()).weight)
    return Stream(_Rows(diversity, member, data))


class _Rows:
    """A member's batches, which may be read again."""

    def __init__(self, diversity: Diversity, member: int, base: Any) -> None:
        self._diversity, self._member, self._base = diversity, member, base

    def __iter__(self) -> Iterator[Batch]:
        return (self._diversity.batch(self._member, batch) for batch in self._base)


def pooled(posteriors: list[Posterior], key: RandomKey) -> Posterior:
    """Returns posteriors of one model as an ensemble, each with its own network state and frozen weights."""
    beliefs, states, frozen = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
        for parts in zip(*[(p.belief, p.network_state, p.model.frozen) for p in posteriors], strict=True)
    )
    # A member whose posterior froze weights (a last layer's features) has its own frozen weights.
    rule: Any = Pooling(posteriors[0].rule, frozen)
    return Posterior(posteriors[0].model, Ensemble(beliefs), states, rule, key, temperature=posteriors[0].temperature)


@recipe("Lakshminarayanan et al. 2017")
def deep_ensemble(
    base: Algorithm | None = None,
    members: int = 5,
    diversity: Diversity | Any = Seeds(),  # noqa: B008  (a record never changes)
) -> DeepEnsemble:
    r"""A deep ensemble of any algorithm.

    \[ q(\theta) = \frac1M \sum_{k=1}^M q_k(\theta) \]

    with each \(q_k\) the algorithm's own posterior from its own start, noise and order of the data. All members step
    under one `vmap` (in sequence for convolutions on a CPU): M gradients a step. Members may also differ
    in their data or priors: `Bootstrap()` resamples the rows for each, `Anchors()` centres each prior at a sample.

    `lamu.fit(..., mesh=jax.make_mesh((4,), ("runs",)))` spreads the members over devices: each device steps its own
    members, and only the mean of the losses is exchanged. The members are the leading axis of every leaf of
    the state; in a custom loop, shard that axis with `jax.device_put`, and the compiled step keeps it.

    Departures from the rule: the members' own; members are independent, without the responsibilities that the rule for
    a mixture would give (which vanish between modes that do not overlap); those of the diversity.

    Args:
        base: the members' algorithm; `adam(Annealed(1e-2))` where None.
        members: M.
        diversity: `Seeds()`, `Bootstrap()` or `Anchors()`, or a custom object with their two methods.

    Returns:
        The algorithm. Its posterior is the ensemble; a prediction averages the members' predictives.

    Raises:
        ValueError: for fewer than one member, or members that see each row once or all rows always.
        TypeError: if `base` is not an algorithm, or `diversity` not a diversity.

    Source: Lakshminarayanan, Pritzel & Blundell (2017); Pearce et al. (2020) for anchors.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.deep_ensemble(members=3), epochs=10).posterior
        >>> len(posterior.belief.members), posterior.predict(x).mean.shape
        (3, (569,))
    """
    if base is None:
        from lamu.algorithms.optimisers import adam

        base = adam(Annealed(1e-2))
    members = whole_number("members", members)
    if require_part(base, "base").traits.batching != "mini" or base.traits.length is not None:
        raise ValueError(
            f"{type(base).__name__} uses all the data at once, so that its members would be equal; run it alone"
        )
    if not isinstance(diversity, Diversity) or isinstance(diversity, type):
        raise TypeError(f"diversity={diversity!r} is not a diversity; give Seeds(), Bootstrap() or Anchors()")
    return DeepEnsemble(base=base, members=members, diversity=diversity)


def _member(stacked: PyTree, index: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], stacked)
