"""Markov chains over the latents and missing entries of rows."""

# \[ z' \sim q(z \mid y_\mathrm{obs}, y_\mathrm{mis}), \qquad
#    \alpha = \min\Big(1, \frac{p(y, z')\, q(z \mid y)}{p(y, z)\, q(z' \mid y)}\Big), \qquad
#    z \leftarrow \text{a trajectory of } p(z \mid y_\mathrm{obs}), \qquad
#    y_\mathrm{mis} \sim p(y_\mathrm{mis} \mid z) \]
#
# The encoder's proposal makes the large moves, and those of categories. If much is missing it is almost never
# accepted, because the samples of missing entries determine z; the trajectory (`lamu.graphs.elimination`) moves
# real-valued latents with missing entries marginalised, by a step size from each row's warm-up. The limit is \(p(z,
# y_\mathrm{mis} \mid y_\mathrm{obs})\) for any q with the support of the posterior. A sample that is not finite, or
# has no density, is rejected.
#
# Source: Mattei & Frellsen (2018), algorithm 1; Rezende, Mohamed & Wierstra (2014), appendix F, for α = 1; van Dyk &
# Park (2008) for partially collapsed steps.

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.compile_once import lenient, row_keys
from lamu.data.arrays import Incomplete
from lamu.graphs.elimination import (
    ACCEPTED,
    FIRST_STEP,
    Local,
    Proposal,
    first_local,
    has_exact_sum,
    marginalise,
    real_latents,
    trajectory,
)
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype, own_natural, shape_of
from lamu.graphs.potential import Potential
from lamu.graphs.program import GraphSite, LearnedPrior
from lamu.graphs.statistics import Categories
from lamu.typing import Array, RandomKey, State

__all__ = ["ancestral", "chains_of_rows", "drawn_latents", "drawn_site", "log_proposal", "with_values"]


def chains_of_rows(
    graph: Any,
    statistics: Mapping[str, Any],
    data: Mapping[str, Any],
    key: RandomKey,
    kept: Callable[[Row, Environment, dict[str, Any], dict[str, Any], dict[str, Any], RandomKey], Any],
    draws: int,
    warmup: int,
    first: Any = 0,
) -> Any:
    """Returns what `kept` makes of every sweep of a chain a row, `[rows, draws, ...]`; exact draws of closed forms."""
    environment, dtype = Environment(dict(statistics)), dtype_of(statistics)
    sites, local = in_dtype(graph.in_rows, dtype), graph.local or {}
    corrected = all(each.has_density for each in local.values())

    def row_of(data: Mapping[str, Any]) -> Row:
        return Row.of(sites, graph.columns, data, 1.0, dtype)

    def chain(data: Mapping[str, Any], key: RandomKey) -> Any:
        latents = {site.name for site in row_of(data).latent}
        holes = {n: part for n, part in data.items() if isinstance(part, Incomplete) and n not in latents}

        def filled(row: Row, values: dict[str, Any], key: RandomKey) -> dict[str, Any]:
            row_environment, new = with_values(row, values).environment(environment, {}), {}
            for number, (name, part) in enumerate(holes.items()):
                site = next(site for site in sites if site.name == name)
                y = drawn_site(site, row_environment, jax.random.fold_in(key, number), part)
                y = jnp.argmax(y, axis=-1) if site.kind is Categories else jnp.reshape(y, jnp.shape(part.value))
                y = y.astype(part.value.dtype)
                new[name] = jnp.where(part.observed, part.value, y)
            return new

        def log_weight(row: Row, values: dict[str, Any], log_q: Array) -> Array:
            return with_values(row, values).log_joint(environment, {}) - log_q

        bare = row_of(data)
        moving = real_latents(local, bare) if corrected else ()

        def along(values: dict[str, Any], log_step: Array, key: RandomKey) -> tuple[dict[str, Any], Array]:
            others = with_values(bare, {name: part for name, part in values.items() if name not in moving})
            start = {name: values[name] for name in moving}
            log_density = lambda start: with_values(others, start).log_joint(environment, {})
            end, chance = trajectory(log_density, start, log_step, key)
            return {**values, **end}, chance

        def sweep(state: State, key: RandomKey, gain: Array) -> Any:
            missing, values, log_step = state
            row = row_of({**data, **missing})
            of_draw, of_choice, of_rest, of_path = jax.random.split(key, 4)
            new, log_q = drawn_latents(local, row, environment, of_draw)
            accepted = _finite(new)
            if corrected:
                proposal_weight = log_weight(row, new, log_q)
                current_weight = log_weight(
                    row, values, log_proposal(local, row, environment, jax.random.clone(of_draw), values)
                )
                undefined = jnp.isnan(current_weight) | (
                    current_weight == -jnp.inf
                )  # always leave a state without a density
                ratio = jnp.where(undefined, jnp.inf, proposal_weight - current_weight)
                chance = jax.random.uniform(of_choice, dtype=ratio.dtype)
                accepted = accepted & jnp.isfinite(proposal_weight) & (jnp.log(chance) < ratio)
            values = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, values)
            if moving:
                values, chance = along(values, log_step, of_path)
                log_step = log_step + gain * (chance - ACCEPTED).astype(log_step.dtype)
            proposed = filled(row, values, of_rest)
            valid = _finite(proposed)
            return jax.tree.map(lambda a, b: jnp.where(valid, a, b), proposed, missing), values, log_step

        def keep(state: State, key: RandomKey) -> Any:
            missing, values, _ = state
            row = row_of({**data, **missing})
            return kept(row, with_values(row, values).environment(environment, {}), missing, values, holes, key)

        def independent(number: Array) -> Any:
            of_draw, of_rest = jax.random.split(jax.random.fold_in(key, number))
            values, _ = drawn_latents(local, bare, environment, of_draw)
            return keep((filled(bare, values, of_rest), values, None), jax.random.clone(of_rest))

        if has_exact_sum(local, bare):
            return jax.lax.map(independent, jnp.arange(draws))  # exact samples of p(z | observations)

        of_start, of_fill, of_sweeps = jax.random.split(key, 3)
        values, _ = drawn_latents(local, bare, environment, of_start)
        state = (filled(bare, values, of_fill), values, jnp.log(jnp.asarray(FIRST_STEP, dtype)))

        def step(state: State, number: Array) -> tuple[Any, None]:
            gain = jnp.asarray(1.0, dtype) / jnp.sqrt(1.0 + number.astype(dtype))
            return sweep(state, jax.random.fold_in(of_sweeps, number), gain), None

        state = jax.lax.scan(step, state, jnp.arange(warmup))[0]

        def kept_step(state: State, number: Array) -> tuple[Any, Any]:
            own = jax.random.fold_in(of_sweeps, number)
            state = sweep(state, own, jnp.zeros((), dtype))
            return state, keep(state, jax.random.clone(own))

        return jax.lax.scan(kept_step, state, jnp.arange(warmup, warmup + draws))[1]

    return jax.vmap(chain)(dict(data), row_keys(key, len(jax.tree.leaves(data)[0]), first))


def drawn_latents(
    local: Mapping[str, Local], row: Row, environment: Environment, key: RandomKey
) -> tuple[dict[str, Any], Array]:
    """Returns samples of all latents of a row from their locals' beliefs, and their log q in nats."""
    return _along(local, row, environment, key, lambda proposal, key: proposal.draw(key))


def log_proposal(
    local: Mapping[str, Local], row: Row, environment: Environment, key: RandomKey, values: Mapping[str, Any]
) -> Array:
    """Returns log q of given values of all latents in nats."""
    own = lambda proposal: {name: values[name] for name in proposal.names}
    return _along(
        local, row, environment, key, lambda proposal, key: (own(proposal), proposal.log_prob(own(proposal)))
    )[1]


def _along(
    local: Any, row: Row, environment: Environment, key: RandomKey, take: Callable[[Proposal, RandomKey], Any]
) -> tuple[dict[str, Any], Array]:
    values, total = {}, jnp.zeros((), dtype_of(environment, row.known))
    while row.latent:
        of_proposal, of_draw, key = jax.random.split(key, 3)
        name, first, others = first_local(local, row)
        own = environment.statistics.get("local", {}).get(name, {})
        proposal = first.proposal(name, own, row, environment, of_proposal, partial(marginalise, others))
        with lenient():
            new, log_q = take(proposal, of_draw)
        values, total, row = {**values, **new}, total + log_q, with_values(row, new)
    return values, total


def _finite(values: Any) -> Array:
    """Returns whether all numbers of a tree are finite."""
    parts = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(values)]
    return jnp.all(jnp.stack(parts)) if parts else jnp.asarray(True)


def with_values(row: Row, values: Mapping[str, Any]) -> Row:
    """Returns the row with values for its latents."""
    for name, value in values.items():
        row = row.given(name, value)
    return row


def ancestral(
    graph: Any, statistics: Mapping[str, Any], key: RandomKey, leaves: Container[str] = (), inputs: Any = None
) -> tuple[dict[str, Any], Environment]:
    """Returns a sample of every variable of a new row except the leaves, in program order, and all statistics."""
    environment, values = Environment(dict(statistics), inputs), {}
    for number, site in enumerate(in_dtype(graph.in_rows, dtype_of(statistics))):
        if site.name in leaves:
            continue
        values[site.name] = drawn_site(site, environment, jax.random.fold_in(key, number))
        with lenient():
            new_statistics = {} if site.factor.is_likelihood else {site.name: site.kind.of(values[site.name])}
        environment = environment.having(new_statistics)
    return values, environment


def drawn_site(site: GraphSite, environment: Environment, key: RandomKey, part: Incomplete | None = None) -> Array:
    """Returns a sample of a row's variable given its parents and its own observed entries."""
    if isinstance(site.factor, Potential | LearnedPrior):
        return site.factor.sample(key, environment)
    if site.factor.fills:
        if part is not None:
            return site.factor.filled(key, part.value, environment, part.observed)
        nothing = jnp.zeros(shape_of(site, environment))
        return site.factor.filled(key, nothing, environment, nothing > 0)
    return own_natural(site, environment).belief().sample(key)
