"""One row of a posterior as the joint density of its latents, for samplers and annealing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.chains import drawn_latents, log_proposal, with_values
from lamu.graphs.expressions import Environment
from lamu.graphs.graph import Graph
from lamu.graphs.joint import Row, dtype_of, in_dtype
from lamu.graphs.queries import expected_statistics
from lamu.graphs.statistics import Categories
from lamu.latent.bounds import Joint
from lamu.typing import Array, Params, RandomKey

__all__ = ["row_joint"]


class _RowOfPosterior(Joint):
    """p(y, z) of a row, all latents by name."""

    def __init__(self, row: Row, at: Environment) -> None:
        self.row, self.at = row, at

    def log_likelihood(self, z: Params, key: RandomKey | None) -> Array:
        # Returns log p(y, z): the prior is a factor like the others.
        del key
        return with_values(self.row, z).log_joint(self.at, {})

    def log_prior(self, z: Params) -> Array:
        # Returns zero.
        return jnp.zeros((), dtype_of(z))


class _BeliefOfRow:
    """q(z | y) of the locals of a row, all latents by name."""

    def __init__(self, local: Mapping[str, Any], row: Row, at: Environment, key: RandomKey) -> None:
        self.local, self.row, self.at, self.key = local, row, at, key

    def sample(self, key: RandomKey) -> dict[str, Any]:
        """Returns a draw."""
        return drawn_latents(self.local, self.row, self.at, key)[0]

    def log_prob(self, z: Mapping[str, Any]) -> Array:
        """Returns log q in nats."""
        return log_proposal(self.local, self.row, self.at, jax.random.clone(self.key), z)


def row_joint(posterior: Any, row: Any) -> tuple[Joint, Any]:
    r"""Returns \(p(y, z)\) of one row as a function of its latents by name, and \(q(z \mid y)\) of its locals.

    Together they are what `lamu.scores.annealed_importance` anneals between. θ is at the belief's mean.

    Args:
        posterior: of a `lamu.Graph` whose latents are numbers.
        row: data of one row, arrays `[1, ...]` by name.

    Raises:
        TypeError: for a model that is no graph, a category among the latents, or a local whose belief has no density.
        ValueError: for more than one row.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> joint, belief = lamu.latent.row_joint(posterior, {"y": jnp.eye(5)[:1]})
        >>> lamu.scores.annealed_importance(joint, belief, jax.random.key(0), temperatures=50).value < 0
        True
    """
    graph = posterior.model
    if not isinstance(graph, Graph):
        raise TypeError(f"latents of rows are those of a lamu.Graph, and this is the posterior of {graph.name}")
    data = graph.read(row).y
    count = len(jax.tree.leaves(data)[0])
    if count != 1:
        raise ValueError(f"the data have {count} rows, and the joint density is of one; give arrays [1, ...]")
    statistics = expected_statistics(graph, posterior.belief, 32, jax.random.clone(posterior.key))
    dtype, local = dtype_of(statistics), graph.local or {}
    sites = in_dtype(graph.at_values().in_rows, dtype)
    one = Row.of(sites, graph.columns, jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], data), 1.0, dtype)
    for site in one.latent:
        if site.kind is Categories:
            raise TypeError(f"the latent {site.name!r} is a category, which no path moves; put it in the data")
        if site.name in local and not local[site.name].has_density:
            raise TypeError(f"the local of {site.name!r} has no density; use Amortised(network)")
    at = Environment(dict(statistics))
    return _RowOfPosterior(one, at), _BeliefOfRow(local, one, at, jax.random.key(0))
