"""Variational message passing: exact steps of the rule on a graph, one group of variables after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.algorithms.closed_form.graph_bound import bound, messages
from lamu.algorithms.closed_form.restarts import checked, in_each
from lamu.conjugate_target import message_target
from lamu.convergence import Convergence
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Point, Product
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives.graph import GraphRule
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.record import record, static
from lamu.typing import Array, RandomKey

__all__ = ["Vmp", "VmpState", "vmp"]


@record
class VmpState:
    """The beliefs of every restart, along a leading axis, and where their bounds stand."""

    beliefs: Any  # about the shared variables, by name
    bound: Any  # before the last sweep, in nats
    residual: Any  # the natural norm of the last sweep's step, in nats
    before: Any  # that of the sweep before
    settled: Any  # whether the bound has ceased to rise
    rows: Any = None  # fewer rows that stand for all, where there are such; else None
    dispersions: Any = None  # those that likelihoods learn, at a point; none where there are none


@record
class Vmp(Runnable):
    """The algorithm that `vmp` makes."""

    tolerance: float  # the rise of the bound at which it stops, in nats a row
    restarts: int = static(default=1)  # how many starts

    exact: ClassVar[bool] = True  # whether every message must be

    @property
    def traits(self) -> Traits:
        return Traits(batching="full")

    @property
    def choices(self) -> Choices:
        return Choices("product of conjugate families", "Exact", "none needed", "straight, ρ = 1 a factor")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> VmpState:
        # Returns beliefs after one update from random latents, for every restart.
        graph = message_target(objective.model)
        graph.require_messages(f"{type(self).__name__.lower()}()", self.exact)
        temperature = jnp.asarray(objective.temperature, batch.weight.dtype)
        start = jax.jit(lambda key: graph.first_beliefs(key, batch, temperature))
        beliefs = jax.vmap(start)(jax.random.split(key, self.restarts))
        dtype = jnp.result_type(*jax.tree.leaves(beliefs)) if jax.tree.leaves(beliefs) else batch.weight.dtype
        none = jnp.full(self.restarts, -jnp.inf, dtype)
        first = graph.first_dispersions(batch)
        every = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.restarts, *jnp.shape(leaf))), first)
        return VmpState(beliefs, none, -none, -none, jnp.zeros(self.restarts, bool), graph.fewer_rows(batch), every)

    def step(self, key: RandomKey, state: VmpState, batch: Batch, objective: Objective) -> tuple[VmpState, Info]:
        # Returns the state after one sweep over the groups of variables; of restarts that have settled the same.
        kept = state.rows
        rows = batch if kept is None else kept
        state = replace(state, rows=None)
        new = in_each(state, lambda one: self._sweep(one, rows, objective))
        best = jnp.argmax(new.bound)
        return replace(new, rows=kept), Info(-new.bound[best] / objective.data_size, new.residual[best])

    def _sweep(self, state: VmpState, batch: Batch, objective: Objective) -> VmpState:
        graph: Any = objective.model
        beliefs, value, dispersions = state.beliefs, state.bound, state.dispersions
        statistics, squared = graph.moments(beliefs), jnp.zeros_like(state.residual)
        kinds = graph.kinds
        for number, names in enumerate(graph.blocks):
            energy, natural = messages(objective, statistics, names, batch, dispersions)
            if number == 0:  # before any variable moves
                value = sum((belief.entropy() for belief in beliefs.values()), energy).astype(value.dtype)
            for name in names:
                new = self._moved(kinds[name], beliefs[name], natural[name])
                moments = kinds[name].under(new)
                squared = squared + _step(beliefs[name], new, statistics[name], moments).astype(squared.dtype)
                beliefs = {**beliefs, name: new}
                statistics = {**statistics, name: moments}
        if graph.expansion is not None:
            scale = (objective.temperature, objective.likelihood_power, objective.data_size)
            beliefs = graph.expansion.expanded(graph, beliefs, batch, *scale)
        if not graph.blocks:
            value = bound(objective, beliefs, batch, dispersions).astype(value.dtype)
        dispersions = self._dispersions(objective, statistics, batch, dispersions)
        # What rounding alone makes of so large a sum is no rise.
        least = self.tolerance * batch.count.astype(value.dtype) + 4 * jnp.finfo(value.dtype).eps * jnp.abs(value)
        settled = jnp.abs(value - state.bound) <= least
        return VmpState(beliefs, value, jnp.sqrt(squared), state.residual, settled, dispersions=dispersions)

    def _dispersions(self, objective: Objective, statistics: Any, batch: Batch, dispersions: Any) -> Any:
        """Returns the dispersions after a step; there are none where every message is exact."""
        del objective, statistics, batch
        return dispersions

    def _moved(self, kind: Any, old: Any, natural: Any) -> Any:
        """Returns the belief after a step towards a message: what the message says, where every one is exact."""
        del kind, old
        return natural.belief()

    def posterior(self, key: RandomKey, state: VmpState, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns the beliefs of the best restart, with the bound of the log evidence.
        best = jnp.argmax(state.bound)
        chosen = jax.tree.map(lambda leaf: leaf[best], replace(state, rows=None))
        evidence = chosen.bound
        if isinstance(data, Arrays):
            evidence = jax.jit(bound)(objective, chosen.beliefs, data.full(), chosen.dispersions)
        return Posterior(
            objective.model,
            Product(
                {
                    "network": message_target(objective.model).product(chosen.beliefs),
                    "likelihood": Point(chosen.dispersions or {}),
                }
            ),
            {},
            GraphRule(),
            key,
            evidence=evidence,
            convergence=_convergence(chosen),
            temperature=objective.temperature,
        )


def _step(old: Any, new: Any, mu_old: Any, mu_new: Any) -> Array:
    r"""Returns \(\langle\lambda' - \lambda, \mu' - \mu\rangle\) in nats, \(d^\top F d\) of a small step d of λ."""
    away = tree.add(new.to_natural(), old.to_natural(), -1.0)
    moved = jax.tree.map(jnp.subtract, jax.tree.leaves(mu_new), jax.tree.leaves(mu_old))
    return jnp.maximum(sum(jnp.sum(a * m) for a, m in zip(jax.tree.leaves(away), moved, strict=True)), 0.0)


def _convergence(state: VmpState) -> Convergence | None:
    """Returns the distance from the fixed point, as the shrinking of the steps tells it: a geometric series."""
    if isinstance(state.residual, Tracer) or not bool(jnp.isfinite(state.before)):
        return None
    residual, before = float(state.residual), float(state.before)
    ratio = min(residual / before, 0.999) if before > 0 else 0.0
    return Convergence(
        residual=residual / (1.0 - ratio),
        dimension=max(tree.dimension(state.beliefs), 1),
        remedy="take more sweeps, with steps=",
    )


def vmp(tolerance: float = 1e-8, restarts: int = 1) -> Vmp:
    r"""Variational message passing on a graph or a NumPyro program: coordinate ascent of the bound by exact messages.

    \[ \lambda_k \leftarrow \nabla_{\mu_k} E_q[\log p] / T, \qquad
       \mathcal L = E_q[\log p]/T + H(q) \]

    for one variable that all rows share after the other, those that no factor brings together at once, with the latents
    of the rows at their best before each. It is the rule with ρ = 1 for each variable, and the bound never falls. A
    sweep is one gradient over all rows for each group of variables, without samples. Once the bound has ceased to rise,
    further steps change nothing and cost nothing.

    Departures from the rule: none.

    Args:
        tolerance: the rise of the bound in a sweep at which a run has settled, in nats a row.
        restarts: how many random starts run side by side; the posterior is the one with the best bound.

    Returns:
        The algorithm. Its posterior is a product of the variables' beliefs; `evidence` is the bound.

    Raises:
        TypeError: (when it runs) for a model that is neither a `lamu.Graph` nor of `lamu.from_numpyro`, or one
            with a likelihood or a site that is not conjugate.
        ValueError: for a negative tolerance, or no restart.

    Source: Winn & Bishop (2005), sections 2 and 3; Khan & Rue (2021), section 5.2.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.families import Gamma
        >>> def level(m):
        ...     noise = m.sample("noise", Gamma(1.0, 1.0))
        ...     mean = m.sample("mean", graphs.Normal(0.0, precision=0.01))
        ...     with m.rows():
        ...         m.sample("y", graphs.Normal(mean, precision=noise))
        >>> posterior = lamu.fit(lamu.Graph(level), {"y": jnp.array([2.0, 3.0, 4.0])}, lamu.algorithms.vmp()).posterior
        >>> round(float(posterior.mean["network"]["mean"]), 1)
        3.0
    """
    checked(tolerance, restarts)
    return Vmp(tolerance, restarts)
