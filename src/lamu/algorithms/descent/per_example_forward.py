"""Forward passes with an independent sample of the weights for each example, by sampling the layers' outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.algorithms.descent.local_reparameterisation import Plan
from lamu.families.location_scale import LocationScale
from lamu.objective import BatchLoss
from lamu.objective.curvature.reader.flat_jaxpr import MOVES, Program
from lamu.objective.curvature.reader.parameter_uses import Site, sites
from lamu.typing import Array, RandomKey

__all__ = ["outputs_by_rows"]

LOG = logging.getLogger("lamu")


def outputs_by_rows(
    key: RandomKey, belief: LocationScale, loss: BatchLoss, choose: Callable[[Program, Site], Plan | None], name: str
) -> Array:
    """Returns f of every row in training mode, `[batch, outputs]`, each with weights drawn for it."""
    # The network is traced for one row and read (`lamu.objective.curvature.reader`). What `choose` has no plan for is
    # drawn once for all rows, and the log `lamu` says so.
    if jax.tree.leaves(loss.network_state):
        raise TypeError(
            f"{name}() draws for single rows, and the rows of a network with a state (batch statistics) are not "
            "independent in training; use the estimator Global()"
        )
    structure = jax.tree.structure(belief.location)
    shared_key, site_key, layer_key = jax.random.split(key, 3)
    x = loss.batch.x
    # A row's key is known by its number alone, so that padding changes nothing.
    rows = [x, jax.vmap(lambda i: jax.random.fold_in(layer_key, i))(jnp.arange(x.shape[0]))]

    def network(leaves: list[Array], row: list[Any]) -> Array:
        params = loss.space.join(structure.unflatten(leaves), loss.rest)
        return loss.objective.model.outputs(params, loss.network_state, row[0][None], row[1], train=True)[0][0]

    centre, scale = jax.tree.leaves(belief.location), jax.tree.leaves(belief.scale)
    z = jax.tree.leaves(belief.base_distribution.draw(shared_key, belief.location))
    away = [s * e for s, e in zip(scale, z, strict=True)]
    program = Program(network, [_shape(leaf) for leaf in centre], [_shape(row, 1) for row in rows])
    plans = _plans(program, choose, belief, x.shape[0], name)
    planned = {plan.site.leaf for plan in plans}
    leaves = [m if i in planned else m + d for i, (m, d) in enumerate(zip(centre, away, strict=True))]
    held = program.before(leaves)
    bases = [
        tuple(plan.site.through(program, part[plan.site.leaf], held) for part in (centre, scale, away))
        for plan in plans
    ]
    noises = [plan.noise(jax.random.fold_in(site_key, i), x.shape[0]) for i, plan in enumerate(plans)]
    at = {plan.site.step: i for i, plan in enumerate(plans)}

    def one(row: list[Any], noises: list[Any]) -> Array:
        values = {**held, **dict(zip(program.examples, row, strict=True))}
        for number, step in enumerate(program.steps):
            if number in at:
                (out,) = step.writes
                assert out is not None
                index = at[number]
                values[out] = plans[index].output(values, bases[index], noises[index])
            elif step.dependent:
                step.advance(values)
        return program.results(values)[0]

    return jax.vmap(one)(rows, noises)


def _plans(
    program: Program, choose: Callable[[Program, Site], Plan | None], belief: LocationScale, batch: int, name: str
) -> list[Plan]:
    """Returns the plans of all leaves whose every use has one, and says which leaves have none."""
    found, reasons = sites(program)
    numbers = {site.step for site in found}
    for number, step in enumerate(program.steps):
        # A use that no gradient flows through (`stop_gradient`) is no site, and sees the weights all the same.
        for place in step.reads:
            out = step.writes[0] if step.writes else None
            if place in program.views and number not in numbers and out not in program.views:
                reasons.setdefault(program.views[place][0], f"enters a `{step.name}`")
    plans = []
    for site in found:
        if not all(program.steps[number].name in MOVES for number in site.single):
            reasons.setdefault(site.leaf, "is changed before it meets data")
        plan = None if site.leaf in reasons else choose(program, site)
        if plan is None:
            reasons.setdefault(site.leaf, f"meets data in a `{program.steps[site.step].name}`")
        plans.append(plan)
    if reasons:
        paths = jax.tree_util.tree_flatten_with_path(belief.location)[0]
        which = "; ".join(
            f"{jax.tree_util.keystr(paths[i][0]) or 'the parameter'} {jnp.shape(paths[i][1])} {reasons[i]}"
            for i in sorted(reasons)
        )
        LOG.warning("%s draws once for all %d rows the parameters that cannot be read: %s", name, batch, which)
    return [plan for plan in plans if plan is not None and plan.site.leaf not in reasons]


def _shape(array: Any, skip: int = 0) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[skip:], array.dtype)
