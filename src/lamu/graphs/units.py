"""How much each unit of a latent tells of a row, and which units tell nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.batch import Batch
from lamu.families import Draws, Ensemble, Mixture
from lamu.graphs.chains import with_values
from lamu.graphs.elimination import eliminated, first_local
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype
from lamu.graphs.queries import expected_statistics
from lamu.typing import Array, RandomKey

__all__ = ["IDLE_BELOW", "divergences_of_units", "idle_units"]

IDLE_BELOW = 0.01  # nats a row
_DRAWS = 32  # of what all rows share


def divergences_of_units(
    graph: Any, statistics: Mapping[str, Any], data: Mapping[str, Any], key: RandomKey
) -> dict[str, Array]:
    r"""Returns \(KL(q(z_j \mid y_i) \,\|\, p(z_j))\) of every row and unit in nats, `[rows, units]`, by latent."""
    # Latents leave one after the other; each term is given a draw of those before. Locals without a belief whose
    # divergence has a closed form by units are left out.
    local, at, dtype = graph.local or {}, Environment(dict(statistics)), dtype_of(statistics)
    telling = {name for name, each in local.items() if each.tells_by_units}
    if not telling:
        return {}
    sites = in_dtype(graph.in_rows, dtype)

    def one(data: Mapping[str, Any], key: RandomKey) -> dict[str, Array]:
        row, told = Row.of(sites, graph.columns, data, 1.0, dtype), {}
        while telling & {site.name for site in row.latent}:
            of_terms, of_proposal, of_draw, key = jax.random.split(key, 4)
            name, first, others = first_local(local, row)
            own, rest = at.statistics.get("local", {}).get(name, {}), partial(eliminated, others)
            terms = first.unit_divergences(name, own, row, at, of_terms, rest)
            if terms is not None:
                told[name] = terms
            if not telling & {site.name for site in row.latent if site.name != name}:
                break
            proposal = first.proposal(name, own, row, at, of_proposal, rest)
            row = with_values(row, proposal.draw(of_draw)[0])
        return told

    count = len(jax.tree.leaves(data)[0])
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count, dtype=jnp.int32))
    return jax.jit(jax.vmap(one))(dict(data), keys)


def idle_units(graph: Any, belief: Any, rows: Batch) -> dict[str, tuple[int, int]]:
    """Returns how many units of each latent carry less than 0.01 nats a row, and of how many, where there are some."""
    # Nothing of several runs or of a chain: each has units of its own, and the average of their weights is no encoder.
    if isinstance(belief, Draws | Ensemble | Mixture):
        return {}
    of_theta, of_rows = jax.random.split(jax.random.key(0))
    statistics = expected_statistics(graph, belief, _DRAWS, of_theta)
    terms = divergences_of_units(graph, statistics, rows.y, of_rows)
    weight = np.asarray(rows.mask * rows.weight)
    nats = {name: np.average(np.asarray(part), axis=0, weights=weight) for name, part in terms.items()}
    counts = {name: (int(np.sum(part < IDLE_BELOW)), part.size) for name, part in nats.items()}
    return {name: count for name, count in counts.items() if count[0]}
