r"""The diagonal of the Fisher information from ordinary gradients, by random signs of the rows."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.objective.batch_loss import BatchLoss
from lamu.supports import value_of
from lamu.typing import Params, RandomKey

__all__ = ["fisher_diagonal"]


def fisher_diagonal(key: RandomKey, loss: BatchLoss, theta: Params, probes: int = 1) -> Params:
    """Returns an unbiased estimate of the diagonal of the mean Fisher information, without the prior."""
    # \[ E_{s, \tilde y} \Big[ \Big( \tfrac{1}{\sqrt B} \sum_i s_i \sqrt{r_i B}\, \nabla \log p(\tilde y_i \mid x_i,
    #    \theta) \Big)^2 \Big] = \mathrm{diag} \sum_i r_i\, E_{\tilde y}[g_i g_i^\top],
    #    \qquad s_i = \pm 1, \quad \tilde y_i \sim p(\cdot \mid x_i, \theta) \]
    #
    # with \(r_i\) what the row counts in the mean. A probe costs one forward pass and one gradient, for any network,
    # also where rows cannot be told apart (batch statistics); its relative standard deviation is about \(\sqrt 2\) a
    # coordinate, and much less averaged over a leaf.
    #
    # Source: Hutchinson (1990), in the space of rows; the identity of the Fisher information and the Gauss–Newton
    # matrix
    #     is Kunstner, Hennig & Balles (2019), section 2.
    model, batch = loss.objective.model, loss.batch
    factor = loss.objective.row_factor(batch)
    if model.has_outputs:  # a row of several trials is redrawn as one, and counts as often as it has trials
        dispersion = loss.space.join(theta, loss.rest)["likelihood"]
        f = jax.lax.stop_gradient(loss.outputs(theta))
        factor = model.likelihood.counted(dispersion, f, batch.y, factor)

    def probe(key: RandomKey) -> Params:
        label_key, sign_key, layer_key = jax.random.split(key, 3)
        rows = _redrawn(label_key, loss, theta) if model.has_outputs else batch
        signs = jax.random.rademacher(sign_key, factor.shape, factor.dtype) * jnp.sqrt(factor)

        def signed(theta: Params) -> jax.Array:
            params = loss.space.join(theta, loss.rest)
            values, _ = model.log_likelihood(params, loss.network_state, rows, layer_key, True)
            return jnp.sum(jnp.where(factor > 0, values, jnp.zeros_like(values)) * signs.astype(values.dtype))

        return jax.tree.map(jnp.square, jax.grad(signed)(theta))

    if probes == 1:
        return probe(key)
    found = jax.lax.map(lambda i: probe(jax.random.fold_in(key, i)), jnp.arange(probes))
    return tree.scale(jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), found), 1.0 / probes)


def _redrawn(key: RandomKey, loss: BatchLoss, theta: Params) -> Batch:
    """Returns the batch with targets drawn from the model."""
    f = jax.lax.stop_gradient(loss.outputs(theta))
    params = loss.space.join(theta, loss.rest)
    drawn = loss.objective.model.likelihood.sample(key, params["likelihood"], f)
    known = value_of(loss.batch.y)
    return replace(loss.batch, y=drawn.astype(known.dtype).reshape(known.shape))
