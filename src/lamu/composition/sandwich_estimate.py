"""The sandwich: how far a fitted point would move with other rows, whether or not the model is right."""

# \[ \Sigma = H^{-1} G H^{-1}, \qquad H = \nabla^2 \ell(m), \qquad
#    G = \sum_i n_i\, g_i g_i^\top, \quad g_i = -\nabla \log p(y_i \mid x_i, m) \]
#
# with \(n_i\) what row i counts.
#
# Where the model is right H and G agree and it is the inverse of either; where rows are noisier than the model says, or
# unequally so, G is larger.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point, Product
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.typing import Array, Params

__all__ = ["sandwich"]

_ROWS = 1024


def sandwich(posterior: Posterior, data: Any) -> Posterior:
    r"""Returns a Gaussian about a fitted point with the Huber–White covariance, as a posterior.

    It is a statement about repetitions and no belief: a baseline. The prior enters H, and with it the point that is
    fitted, but not G. Dispersions stay at their point. N gradients, a Hessian (D products of the whole data's), and
    operations of the order D³.

    Args:
        posterior: whose mean is the fitted point, of any algorithm.
        data: the rows that it was fitted to, `(x, y)` or a mapping with `x`, `y` and, optionally, `weight`, `offset`.

    Returns:
        A posterior that predicts by linearisation.

    Raises:
        ValueError: for an indefinite Hessian (the point is no minimum), fewer rows than weights, or too many weights.
        AttributeError: for a belief with several modes, which has no fitted point.

    Source: Huber (1967); White (1980).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> point = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> lower, upper = lamu.composition.sandwich(point, (x, y)).predict(x[:3]).interval(0.9)
        >>> bool((lower < upper).all())
        True
    """
    rows = posterior.model.rows(data)
    params, state = posterior.mean, posterior.network_state
    weights, dispersion = params["network"], params["likelihood"]
    D = tree.dimension(weights)
    memory.demand(
        24.0 * D * D, f"the Hessian of {D:,} weights", "freeze some of them (model.freeze), or take laplace()"
    )
    if rows.count < D:
        raise ValueError(
            f"{rows.count} rows leave the covariance of {D} weights singular; freeze some of them (model.freeze), or "
            "take laplace()"
        )
    objective = Objective(posterior.model, float(rows.count))
    hessian, spread = np.zeros((D, D)), np.zeros((D, D))
    for batch in rows.batches(min(rows.count, _ROWS)):
        H, G = (np.asarray(part, float) for part in _sums(objective, state, dispersion, weights, batch))
        hessian, spread = hessian + H, spread + G
    hessian = hessian + np.asarray(_prior_curvature(objective, dispersion, weights), float)
    hessian = (hessian + hessian.T) / 2
    lowest = float(np.linalg.eigvalsh(hessian)[0])
    if lowest <= 0:
        raise ValueError(
            f"the Hessian at the point has the eigenvalue {lowest:.3g}, so that it is no minimum; train longer, or "
            "take laplace(), whose Gauss–Newton matrix is positive"
        )
    values, vectors = np.linalg.eigh(spread)
    if values[0] <= 1e-10 * values[-1]:
        raise ValueError(
            f"the rows' gradients have rank {int(np.sum(values > 1e-10 * values[-1]))} of {D}, so that some directions "
            "would be held for certain; freeze redundant weights (model.freeze), or take laplace()"
        )
    half = (hessian @ vectors) / np.sqrt(values)
    like = jax.tree.leaves(weights)[0].dtype
    belief = Gaussian(weights, Dense(jnp.asarray(half @ half.T, like)))
    whole = Product({"network": belief, "likelihood": Point(dispersion)})
    return Posterior(posterior.model, whole, state, Linearised(), posterior.key)


@jax.jit
def _sums(objective: Objective, state: Any, dispersion: Params, weights: Params, batch: Batch) -> tuple[Array, Array]:
    """Returns the Hessian of the batch's summed loss and the sum of its rows' squared gradients."""
    vector, unravel = tree.ravel(weights)

    def loss(vector: Array, batch: Batch, weights: Array) -> Array:
        params = {"network": unravel(vector), "likelihood": dispersion}
        return -jnp.sum(objective.model.log_likelihood(params, state, batch)[0] * batch.mask * weights)

    # A weight of two is the row written twice: its gradient's square counts twice, and not four times.
    gradient = lambda row: jax.grad(loss)(
        vector, jax.tree.map(lambda leaf: leaf[None], row), jnp.sqrt(row.weight)[None]
    )
    gradients = jax.vmap(gradient)(batch)
    return jax.hessian(loss)(vector, batch, batch.weight), gradients.T @ gradients


@jax.jit
def _prior_curvature(objective: Objective, dispersion: Params, weights: Params) -> Array:
    vector, unravel = tree.ravel(weights)

    def loss(vector: Array) -> Array:
        return -objective.model.log_prior({"network": unravel(vector), "likelihood": dispersion})

    return jax.hessian(loss)(vector)
