"""Inputs that are far from order one, which networks learn from slowly or not at all."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.batch import Batch
from lamu.graphs.graph import Graph
from lamu.graphs.potential import Potential
from lamu.model import Model
from lamu.networks import Standardised
from lamu.supports import Counts
from lamu.target import Target

__all__ = ["unscaled_inputs"]

_LARGEST = 50.0


def unscaled_inputs(model: Target, rows: Batch) -> str:
    """Returns a clause about inputs that no network was told the scale of, and what to write; empty where none are.

    Args:
        model: the model.
        rows: some rows.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.running.input_scale import unscaled_inputs
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Gaussian())
        >>> unscaled_inputs(model, lamu.data.Batch.of(jnp.full((3, 2), 1e5), jnp.zeros(3)))
        'the inputs are not scaled (up to 1e+05), from which a network learns slowly; take model.standardised(x, y)'
    """
    if isinstance(model, Model):
        told = isinstance(model.network, Standardised) or bool(model.network.codes)
        largest = 0.0 if told else _largest(rows.x)
        remedy = "take model.standardised(x, y)"
    elif isinstance(model, Graph) and any(each.random for each in (model.local or {}).values()):
        counts = {
            site.name
            for site in model.in_rows
            if isinstance(site.factor, Potential) and isinstance(site.factor.likelihood.support, Counts)
        }
        read = rows.y if isinstance(rows.y, dict) else {}
        largest = max((_largest(part) for name, part in read.items() if name not in counts), default=0.0)
        remedy = "divide the columns by their standard deviations"
    else:
        return ""
    if not largest > _LARGEST:
        return ""
    return f"the inputs are not scaled (up to {largest:.3g}), from which a network learns slowly; {remedy}"


def _largest(part: Any) -> float:
    leaves = [leaf for leaf in jax.tree.leaves(part) if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)]
    return max((float(np.nanmax(np.abs(np.asarray(leaf)), initial=0.0)) for leaf in leaves), default=0.0)
