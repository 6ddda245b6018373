"""Deep ensembles: several runs of one algorithm, from different starts and in different orders, averaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.algorithms.ensembles.diversity import Anchors, Diversity, Seeds
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.families import Ensemble
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Pooling
from lamu.protocol import Algorithm, Choices, Info, Traits, Wrapper, require_part, runnable
from lamu.rate import Annealed
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["DeepEnsemble", "deep_ensemble", "pooled"]


@record
class DeepEnsemble(Wrapper):
    """The algorithm that `deep_ensemble` makes."""

    base: Algorithm  # the algorithm of every member
    members: int = static(default=5)  # how many there are
    diversity: Diversity = Seeds()  # in what they differ beside their seeds

    @property
    def traits(self) -> Traits:
        # Those of the members' algorithm, with an order of the data for each; the members as runs.
        return replace(self.base.traits, streams=self.members, runs=self.members, shared=())

    @property
    def choices(self) -> Choices:
        # The members' row, several times.
        choices = self.base.choices
        more = (self.diversity.departure,) if self.diversity.departure else ()
        departures = (*choices.departures, "members apart", *more)
        return replace(choices, family=f"mixture of {self.members}: {choices.family}", departures=departures)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> Any:
        # Returns every member's first state, along a leading axis.
        keys = jax.random.split(key, self.members)

        def one(key: RandomKey, k: Any) -> Any:
            own = self.diversity.objective(k, objective, batch)
            return self.base.init(key, own, self.diversity.batch(k, batch))

        return jax.vmap(one)(keys, jnp.arange(self.members))

    def step(self, key: RandomKey, state: Any, batch: Batch, objective: Objective) -> tuple[Any, Info]:
        # Returns every member's next state.
        #
        # A batch may have a leading axis of members, as the loop makes it; without one, all members see the same rows.
        keys = jax.random.split(key, self.members)
        apart = batch.mask.ndim == 2
        model, one = objective.model, _member(batch, 0) if apart else batch

        def step(key: RandomKey, state: Any, k: Any, batch: Batch) -> tuple[Any, Info]:
            own = self.diversity.objective(k, objective, batch)
            return self.base.step(key, state, self.diversity.batch(k, batch), own)

        if model.loops_well(one):
            numbers = jnp.arange(self.members)
            state, info = jax.vmap(step, in_axes=(0, 0, 0, 0 if apart else None))(keys, state, numbers, batch)
        else:
            steps = [
                step(keys[k], _member(state, k), k, _member(batch, k) if apart else batch) for k in range(self.members)
            ]
            state, info = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
        return state, Info(loss=jnp.mean(info.loss), residual=jnp.max(info.residual))

    def preview(self, key: RandomKey, state: Any, objective: Objective) -> Posterior:
        # Returns what the state predicts before any pass over the data: the members' previews as one ensemble.
        preview = runnable(self.base).preview
        return pooled(
            [preview(jax.random.fold_in(key, k), _member(state, k), objective) for k in range(self.members)], key
        )

    def complaint(self, state: Any) -> str | None:
        # Returns the first member's complaint that there is.
        complaints = (runnable(self.base).complaint(_member(state, k)) for k in range(self.members))
        return next((each for each in complaints if each is not None), None)

    def posterior(self, key: RandomKey, state: Any, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns the members' posteriors as one ensemble, predicting by the members' own rule.
        members = [
            self.base.posterior(
                jax.random.fold_in(key, k), _member(state, k), own, _seen(self.diversity, k, data), None
            )
            for k, own in enumerate(self._objectives(objective, data))
        ]
        # The model is everybody's; a prior of a member's own is none of it.
        kept = [replace(p, model=replace(p.model, prior=objective.model.prior)) for p in members]
        return pooled(kept if isinstance(self.diversity, Anchors) else members, key)

    def _objectives(self, objective: Objective, data: Any) -> list[Objective]:
        """The members' own objectives; with nothing to read shapes from, the one that is everybody's."""
        if data is None:
            return [objective] * self.members
        example = data.example(1)
        return [self.diversity.objective(k, objective, example) for k in range(self.members)]


def _seen(diversity: Diversity, member: int, data: Any) -> Any:
    """The data as a member sees them, for an algorithm whose posterior needs a pass."""
    if data is None or isinstance(diversity, Seeds):
        return data
    if isinstance(data, Arrays):
        return replace(data, weight=diversity.batch(member, data.full()).weight)
    return Stream(_Rows(diversity, member, data))


class _Rows:
    """Batches as a member sees them, which may be read again."""

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
    # A member whose posterior froze weights (a last layer's features) froze its own.
    rule: Any = Pooling(posteriors[0].rule, frozen)
    return Posterior(posteriors[0].model, Ensemble(beliefs), states, rule, key, temperature=posteriors[0].temperature)


def deep_ensemble(
    base: Algorithm | None = None,
    members: int = 5,
    diversity: Diversity = Seeds(),  # noqa: B008  (a record never changes)
) -> DeepEnsemble:
    r"""A deep ensemble of any algorithm.

    \[ q(\theta) = \frac1M \sum_{k=1}^M q_k(\theta) \]

    with each \(q_k\) the algorithm's own posterior from its own start, noise and order of the data. All members step
    under one `vmap` (one after the other where a CPU meets convolutions): M gradients a step. Members may differ in
    more: `Bootstrap()` gives each a resample of the rows, `Anchors()` a prior about a draw from the prior.

    `lamu.fit(..., mesh=jax.make_mesh((4,), ("runs",)))` spreads the members over devices: each device steps those that
    it holds, and nothing but the mean of the losses is exchanged. The members are the leading axis of every leaf of
    the state; in a loop of one's own, shard that axis with `jax.device_put`, and the compiled step keeps it.

    Departures from the rule: the members' own; and each lives apart, without the responsibilities that the rule for a
    mixture would give (which vanish between modes that do not overlap); what the diversity adds.

    Args:
        base: the algorithm of every member; `adam(Annealed(1e-2))` where none is given.
        members: M.
        diversity: `Seeds()`, `Bootstrap()` or `Anchors()`, or an object of one's own with their two methods.

    Returns:
        The algorithm. Its posterior is the ensemble; a prediction averages the members' predictives.

    Raises:
        ValueError: for fewer than one member, or members that see each row once or all rows always.
        TypeError: for a `base` that is no algorithm, or a diversity that is none.

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
        from lamu.algorithms.optimisers.adam import adam

        base = adam(Annealed(1e-2))
    if not isinstance(members, int) or members < 1:
        raise ValueError(f"members={members!r} makes no ensemble; give a whole number of at least 1")
    if require_part(base, "base").traits.batching != "mini" or base.traits.length is not None:
        raise ValueError(f"{type(base).__name__} sees all the data: its members would be the same; run it alone")
    if not isinstance(diversity, Diversity) or isinstance(diversity, type):
        raise TypeError(f"diversity={diversity!r} is none; give Seeds(), Bootstrap() or Anchors()")
    return DeepEnsemble(base=base, members=members, diversity=diversity)


def _member(stacked: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], stacked)
