"""How much each unit of a latent tells of a row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.graph import Graph
from lamu.graphs.queries import expected_statistics
from lamu.graphs.units import IDLE_BELOW, divergences_of_units
from lamu.latent.locals import Delta
from lamu.record import record
from lamu.typing import Array, RandomKey

__all__ = ["UnitDivergences", "unit_divergences"]


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
        return tuple(int(j) for j in np.flatnonzero(np.asarray(self.nats) < IDLE_BELOW))

    def __str__(self) -> str:
        idle = self.idle
        which = f": {', '.join(map(str, idle))}" if idle else ""
        verb = "carries" if len(idle) == 1 else "carry"
        told = f"{len(idle)} of {self.nats.size} units {verb} less than {IDLE_BELOW:g}{which}"
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
        `UnitDivergences` by the name of every latent with an `Amortised`, `AmortisedBernoulli`, `Ladder`, `Refined` or
        `Recurrent` local; of the last, whose units are those of every step, at one path a row. Latents whose divergence
        has no closed form by units are left out: under flows, under a learned prior, and below a layer that is drawn
        after them.

    Raises:
        TypeError: for a model that is no graph, a `Delta` code, or no latent with a closed form.

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
    local = graph.local or {}
    for name, each in local.items():
        if isinstance(each, Delta):
            raise TypeError(
                f"the code {name!r} of a Delta local is a point, which has no divergence; use Amortised(network)"
            )
    telling = [name for name, each in local.items() if each.tells_by_units]
    if not telling:
        raise TypeError("no latent of the model has an encoder; give the posterior of a lamu.Graph with Amortised")
    of_theta, of_rows = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)
    found = divergences_of_units(graph, statistics, graph.read(rows).y, of_rows)
    if not found:
        raise TypeError(
            f"the divergence of {telling[0]!r} has no closed form by its units; it has one for a MeanField() belief "
            "under a Normal prior, and for bits under a Bernoulli"
        )
    return {name: UnitDivergences(jnp.mean(terms, axis=0)) for name, terms in found.items()}
