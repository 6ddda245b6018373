"""Where the parameters of a graph start: variables, networks, what locals learn, and dispersions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.constraints import Constraints
from lamu.data.batch import Batch
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, in_dtype, shape_of, value_of
from lamu.graphs.network import Applied, arguments, first_weights
from lamu.graphs.potential import Potential
from lamu.graphs.program import Site
from lamu.networks.interface import outputs
from lamu.networks.output_range import output_range, require_scales
from lamu.typing import Params, RandomKey

__all__ = ["first_dispersions", "first_parameters", "likelihoods_of"]


def first_parameters(graph: Any, key: RandomKey, batch: Batch) -> Params:
    """Returns first parameters: all coordinates, those that are held at their values."""
    constraints = graph.constraints or Constraints()
    frozen = {name: part for name, part in (graph.frozen or {}).items() if jax.tree.leaves(part)}
    weights, own = _fresh(graph, key, batch)
    held = graph.values(constraints.constrain(frozen)[0])
    beliefs = graph.first_beliefs(key, batch, 1.0, {**weights, "local": own, **held})
    means = {name: jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), b.mean) for name, b in beliefs.items()}
    start = constraints.unconstrain(means)
    network = {site.name: start.get(site.name, frozen.get(site.name)) for site in graph.shared} | weights
    return {"network": network | ({"local": own} if own else {}), "likelihood": first_dispersions(graph.in_rows, batch)}


def first_dispersions(sites: tuple[Site, ...], batch: Batch) -> Params:
    """Returns first dispersions by the names of targets, of likelihoods that learn some."""
    dispersions = {
        name: likelihood.init(value_of(batch.y, name)[0])
        for name, likelihood in likelihoods_of(sites).items()
        if value_of(batch.y, name)[0] is not None
    }
    return {name: part for name, part in dispersions.items() if jax.tree.leaves(part)}


def likelihoods_of(sites: tuple[Site, ...]) -> dict[str, Any]:
    """Returns the likelihoods by the names of their targets."""
    return {site.name: site.factor.likelihood for site in sites if isinstance(site.factor, Potential)}


def _fresh(graph: Any, key: RandomKey, batch: Batch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns fresh weights of the networks, and what the locals learn."""
    local = graph.local or {}
    if not graph.networks and not local:
        return {}, {}
    dtype = batch.weight.dtype
    first = jax.tree.map(lambda leaf: leaf[0], batch.y)
    row = Row.of(in_dtype(graph.in_rows, dtype), graph.columns, first, 1.0, dtype)
    zeros = {site.name: site.kind.zeros(shape_of(site), dtype) for site in graph.shared}
    at = row.environment(Environment(zeros), row.zeros(Environment(zeros)))
    weights = first_weights(jax.random.fold_in(key, 1), row.sites, graph.networks, at)
    _require_scales(row, weights, at)
    latents = {site.name for site in row.latent}
    own = {
        name: each.init(jax.random.fold_in(key, number + 2), name, row, Environment({**zeros, **weights}))
        for number, (name, each) in enumerate(local.items())
        if name in latents
    }
    return weights, {name: part for name, part in own.items() if jax.tree.leaves(part)}


def _require_scales(row: Row, weights: dict[str, Any], at: Environment) -> None:
    """Raises a ValueError for a network that applies the inverse link which its likelihood applies too."""
    for site in row.sites:
        call = getattr(site.factor, "outputs", None)
        if not isinstance(site.factor, Potential) or not isinstance(call, Applied) or len(call.of.widths) != 1:
            continue
        network = call.of.network
        here = Environment({**at.statistics, **weights}, at.inputs, at.temperature)
        x = jax.eval_shape(lambda call=call, here=here: arguments(call.inputs, here)[None])
        of_rows = lambda own, x, network=network: outputs(network, own, {}, x, None, False, None)[0]
        found = output_range(of_rows, weights[call.of.name], x)[0]
        likelihood, width = site.factor.of_entry, site.factor.width
        scales = likelihood.output_scales(width) * (call.of.widths[0] // width)
        require_scales(found, scales, repr(call.of.name), likelihood.name)
