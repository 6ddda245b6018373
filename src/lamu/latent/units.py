"""How much each unit of a latent tells of a row."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.families import Gaussian
from lamu.graphs.elimination import eliminated
from lamu.graphs.expressions import Environment
from lamu.graphs.graph import Graph
from lamu.graphs.joint import Row, dtype_of, in_dtype, shape_of
from lamu.graphs.queries import expected_statistics
from lamu.latent.locals import Amortised, Delta, Recurrent, Refined
from lamu.latent.locals.row_of_graph import RowOfGraph
from lamu.operators import Diagonal
from lamu.record import record
from lamu.typing import Array, RandomKey

__all__ = ["UnitDivergences", "unit_divergences"]

_LEAST = 0.01  # nats a row
_ENCODERS = (Amortised, Refined, Recurrent)


@record
class UnitDivergences:
    r"""\(E_y\, KL(q(z_j \mid y) \,\|\, p(z_j))\) of every unit j of a latent, in nats a row.

    As text it counts the idle units, which carry less than 0.01 nats: the decoder does without them.

    Attributes:
        nats: `[units]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import UnitDivergences
        >>> print(UnitDivergences(jnp.array([2.5, 0.001, 0.7])))
        3.20 nats a row; 1 of 3 units carries less than 0.01: 1
    """

    nats: Array

    @property
    def idle(self) -> tuple[int, ...]:
        """The numbers of the units below 0.01 nats a row."""
        return tuple(int(j) for j in np.flatnonzero(np.asarray(self.nats) < _LEAST))

    def __str__(self) -> str:
        idle = self.idle
        which = f": {', '.join(map(str, idle))}" if idle else ""
        verb = "carries" if len(idle) == 1 else "carry"
        told = f"{len(idle)} of {self.nats.size} units {verb} less than {_LEAST:g}{which}"
        return f"{float(jnp.sum(self.nats)):.2f} nats a row; {told}"


def unit_divergences(posterior: Any, rows: Any, key: RandomKey) -> dict[str, UnitDivergences]:
    r"""Returns what every unit of every amortised latent tells of a row, by the name of the latent.

    \[ \frac1N \sum_i KL\big(q(z_j \mid y_i) \,\|\, p(z_j)\big) \]

    With several layers each term is that of a layer given a draw of the ones above. θ is at the belief's mean.

    Args:
        posterior: of a `lamu.Graph` with encoders.
        rows: data, arrays by name.
        key: for the draws of the layers above.

    Returns:
        `UnitDivergences` by the name of every latent with an `Amortised`, `Refined` or `Recurrent` local; of the last,
        whose units are those of every step, at one path a row.

    Raises:
        TypeError: for a model that is no graph, or has no such latent; for a `Delta` code, and a latent whose
            divergence has no closed form: under flows, or a learned prior.

    Source: Burda, Grosse & Salakhutdinov (2016), section 5.2 for the count of active units; Sønderby et al. (2016).

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.latent.unit_divergences(posterior, {"y": jnp.eye(5)}, jax.random.key(0))["z"].nats.shape
        (2,)
    """
    graph = posterior.model
    if not isinstance(graph, Graph):
        raise TypeError(f"latents of rows are those of a lamu.Graph, and this is the posterior of {graph.name}")
    data = graph.read(rows).y
    of_theta, of_latents, of_rows = jax.random.split(key, 3)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    local = graph.local or {}
    if not any(isinstance(each, (*_ENCODERS, Delta)) for each in local.values()):
        raise TypeError("no latent of the model has an encoder; give the posterior of a lamu.Graph with Amortised")
    sites, at = in_dtype(graph.in_rows, dtype_of(statistics)), Environment(dict(statistics))
    natural = graph.row_latents(statistics, data, key=of_latents)

    def one(data: Any, natural: Any, key: RandomKey) -> dict[str, Array]:
        row, told = Row.of(sites, graph.columns, data, 1.0, dtype_of(statistics)), {}
        while row.latent:
            ready = [site for site in row.latent if _given(local, site.name) <= set(row.known)]
            site = next((site for site in ready if isinstance(local.get(site.name), _ENCODERS)), ready[0])
            of_draw, key = jax.random.split(key)
            belief = _belief(site.name, local, statistics, row, at, of_draw)
            if belief is not None:
                told[site.name] = _divergences(site, belief, row, at)
                value = jnp.reshape(belief.sample(of_draw), shape_of(site))
            else:
                value = natural[site.name].belief().sample(of_draw)
            row = row.given(site.name, value)
        return told

    count = len(jax.tree.leaves(data)[0])
    keys = jax.vmap(lambda i: jax.random.fold_in(of_rows, i))(jnp.arange(count))
    found = jax.jit(jax.vmap(one))(data, natural, keys)
    return {name: UnitDivergences(jnp.mean(terms, axis=0)) for name, terms in found.items()}


def _belief(name: str, local: Any, statistics: Any, row: Row, at: Environment, key: RandomKey) -> Any:
    """Returns a belief about the vector of a latent's units; None of a latent without an encoder."""
    encoder, own = local.get(name), statistics.get("local", {}).get(name, {})
    if isinstance(encoder, Delta):
        raise TypeError(
            f"the code {name!r} of a Delta local is a point, which has no divergence; use Amortised(network)"
        )
    if isinstance(encoder, Recurrent):
        _, mean, precision = encoder.path(name, own, row, at, jax.random.fold_in(key, 0))
        return Gaussian(mean, Diagonal(precision))
    if isinstance(encoder, Refined):
        others = {other: each for other, each in local.items() if other != name}
        return encoder.belief(name, own, row, at, jax.random.fold_in(key, 0), partial(eliminated, others))
    return encoder.belief(name, own, row, at) if isinstance(encoder, Amortised) else None


def _given(local: Any, name: str) -> set[str]:
    return set(local[name].given) if name in local else set()


def _divergences(site: Any, belief: Any, row: Row, at: Environment) -> Array:
    joint = RowOfGraph(site.name, row, at, lambda row, at, key: (jnp.zeros(()), {}))
    terms = joint.divergences(belief) if joint.known_prior else None
    if terms is None:
        raise TypeError(
            f"the divergence of {site.name!r} has no closed form by its units; it has one for a MeanField() belief "
            "under a Normal prior"
        )
    return terms
