"""What an encoder loses against the best belief of its family."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.scores.estimate import Estimate
from lamu.typing import RandomKey

if TYPE_CHECKING:
    from lamu.graphs.graph import Graph

__all__ = ["amortisation_gap"]


def amortisation_gap(
    posterior: Any, rows: Any, key: RandomKey, steps: int = 50, rate: float = 0.1, samples: int = 16
) -> Estimate:
    r"""Returns by how much steps on every row's own belief raise its bound, with the standard error over rows.

    \[ \frac1N \sum_i \mathcal L(y_i; q_i^*) - \mathcal L(y_i; q(\cdot \mid y_i)) \]

    Beliefs of all amortised latents are refined, θ is at the belief's mean. A large gap says that a wider encoder or
    `lamu.latent.Refined` will raise the bound; what is left between the bound and `mean_log_prob` is the family's.

    Args:
        posterior: of a `lamu.Graph` with `Amortised` locals that are mean-field.
        rows: data, arrays by name.
        key: for the draws.
        steps: natural-gradient steps a row.
        rate: of the steps.
        samples: draws of a bound a row.

    Returns:
        Nats a row.

    Raises:
        TypeError: for a model without an encoder.
        ValueError: for fewer than two rows.

    Source: Cremer, Li & Duvenaud (2018), section 3.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.amortisation_gap(posterior, {"y": jnp.eye(5)}, jax.random.key(0), steps=20).value > 0
        True
    """
    from lamu.graphs.graph import Graph  # here: the other scores do not wait for graphs
    from lamu.graphs.queries import expected_statistics
    from lamu.latent import Amortised, Refined

    graph = posterior.model
    if not isinstance(graph, Graph) or not any(isinstance(one, Amortised) for one in (graph.local or {}).values()):
        raise TypeError("no latent of the model has an encoder; give the posterior of a lamu.Graph with Amortised")
    refine = lambda one: Refined(one, steps, rate) if isinstance(one, Amortised) else one
    refined = replace(graph, local={name: refine(one) for name, one in graph.local.items()})
    batch = graph.read(rows).full()
    of_theta, of_rows = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)

    def bounds(graph: Graph) -> Any:
        one = lambda key: graph.at_values().row_bounds(statistics, batch, key=key)
        return jnp.mean(jax.lax.map(one, jax.random.split(jax.random.clone(of_rows), samples)), axis=0)

    gaps = np.asarray(jax.jit(lambda: bounds(refined) - bounds(graph))(), float)
    if len(gaps) < 2:
        raise ValueError(f"{len(gaps)} row has no standard error; give at least two")
    return Estimate(float(gaps.mean()), float(gaps.std(ddof=1) / math.sqrt(len(gaps))))
