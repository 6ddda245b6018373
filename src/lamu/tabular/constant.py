"""The best model without inputs, from which training starts: nobody should learn the mean by small steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu.data.batch import Batch
from lamu.likelihoods import Likelihood
from lamu.typing import Array, Params

__all__ = ["constant_of"]


def constant_of(likelihood: Likelihood, batch: Batch) -> tuple[np.ndarray, Params]:
    """Returns the outputs, the same for every row, and the dispersions that make the targets most probable."""
    # \[ \max_{f, \phi} \; \sum_i \log p(y_i \mid f, \phi) + \log p(\phi) - \tfrac12 (f / 10)^2 \]
    from scipy.optimize import minimize

    like = np.zeros(likelihood.outputs(batch.y), batch.mask.dtype), jax.tree.map(np.asarray, likelihood.init(batch.y))
    leaves, structure = jax.tree.flatten(like)
    first = np.concatenate([leaf.ravel() for leaf in leaves])

    def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _loss(flat.astype(first.dtype), like, likelihood, batch)
        return float(value), np.asarray(slope, float)

    found: Any = minimize(at, first.astype(float), jac=True, method="L-BFGS-B", options={"maxiter": 50})
    flat = found.x if np.isfinite(found.x).all() else first
    parts = np.split(flat.astype(first.dtype), np.cumsum([leaf.size for leaf in leaves])[:-1])
    return structure.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])


@jax.jit
@jax.value_and_grad
def _loss(flat: Array, like: tuple[Array, Params], likelihood: Likelihood, batch: Batch) -> Array:
    intercept, dispersions = ravel_pytree(like)[1](flat)
    f = jnp.broadcast_to(intercept[None], (batch.mask.shape[0], intercept.shape[0]))
    total = batch.total(likelihood.log_prob(dispersions, f, batch.y)) + likelihood.log_prior(dispersions)
    return (jnp.sum((intercept / 10) ** 2) / 2 - total) / batch.count
