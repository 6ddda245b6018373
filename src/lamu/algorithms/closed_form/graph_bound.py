r"""The bound of a graph, \(\mathcal L = E_q[\log p]/T + H(q)\), and its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.natural_rule import ConjugateLoss
from lamu.objective import Objective
from lamu.typing import Array, Params

__all__ = ["bound", "messages"]


def bound(objective: Objective, beliefs: Mapping[str, Any], batch: Batch, dispersions: Params | None = None) -> Array:
    """Returns the bound of the log evidence in nats."""
    graph: Any = objective.model
    loss = ConjugateLoss(objective, batch, {}, {}).at(graph.moments(beliefs), dispersions=dispersions)
    return sum((belief.entropy() for belief in beliefs.values()), -objective.concentration * loss)


def messages(
    objective: Objective,
    statistics: Mapping[str, Any],
    names: tuple[str, ...],
    batch: Batch,
    dispersions: Params | None = None,
) -> tuple[Array, dict[str, Any]]:
    r"""Returns \(E_q[\log p]/T\) with latents at their best, and its gradient λ for some variables."""
    loss = ConjugateLoss(objective, batch, {}, {})
    own = {name: statistics[name] for name in names}
    value, slopes = jax.value_and_grad(lambda own: loss.at({**statistics, **own}, dispersions=dispersions))(own)
    kappa = objective.concentration
    return -kappa * value, tree.scale(slopes, -jnp.asarray(kappa, value.dtype))
