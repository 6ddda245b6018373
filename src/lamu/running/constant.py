"""The best outputs that all rows share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu.base.compile_once import compiled_lightly, compiled_once
from lamu.data.batch import Batch, with_offset
from lamu.likelihoods import Likelihood
from lamu.supports import value_of
from lamu.typing import Array, Params

__all__ = ["constant_of"]


def constant_of(likelihood: Likelihood, batch: Batch) -> tuple[np.ndarray, Params]:
    """Returns the maximum-likelihood outputs, equal for all rows, and dispersions."""
    # \[ \max_{z, \phi} \; \sum_i \log p(y_i \mid f, \phi) + \log p(\phi) - \tfrac12 (z / 10)^2, \qquad f = f_0 + u z \]
    from scipy.optimize import minimize

    zeros = np.zeros(likelihood.outputs(batch.y), batch.mask.dtype)
    start, unit = _place(likelihood, batch, zeros)
    like = zeros, jax.tree.map(np.asarray, likelihood.init(batch.y))
    leaves, structure = jax.tree.flatten(like)
    first = np.concatenate([leaf.ravel() for leaf in leaves])

    def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _loss(flat.astype(first.dtype), like, (start, unit), likelihood, batch)
        return float(value), np.asarray(slope, float)

    optimum: Any = minimize(at, first.astype(float), jac=True, method="L-BFGS-B", options={"maxiter": 50})
    flat = optimum.x if np.isfinite(optimum.x).all() else first
    parts = np.split(flat.astype(first.dtype), np.cumsum([leaf.size for leaf in leaves])[:-1])
    found = structure.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])
    return np.asarray(start) + np.asarray(unit) * found[0], found[1]


@compiled_once()
def _place(likelihood: Likelihood, batch: Batch, zeros: Array) -> tuple[Array, Array]:
    """Returns the outputs from which the constant ones are searched, and their units."""
    values = jnp.asarray(value_of(batch.y)).astype(zeros.dtype)
    start = likelihood.output_start(batch.total(values) / batch.total(jnp.ones_like(values)), zeros)
    return start, likelihood.output_units(start)


@compiled_lightly()
@jax.value_and_grad
def _loss(
    flat: Array, like: tuple[Array, Params], place: tuple[Array, Array], likelihood: Likelihood, batch: Batch
) -> Array:
    steps, dispersions = ravel_pytree(like)[1](flat)
    intercept = place[0] + place[1] * steps
    f = with_offset(jnp.broadcast_to(intercept[None], (batch.mask.shape[0], intercept.shape[0])), batch.offset)
    total = batch.total(likelihood.log_prob(dispersions, f, batch.y)) + likelihood.log_prior(dispersions)
    return (jnp.sum((steps / 10) ** 2) / 2 - total) / batch.count
