"""Influence of rows: the change of a belief and its predictions when a row is left out, without a refit."""

# One step of the rule away from row i, \(\lambda \leftarrow \lambda - \lambda_i\) with the row's site (`lamu.sites`):
# for a Gaussian belief \(N(m, S^{-1})\) about a network with Jacobian \(J_i\), information \(\Lambda_i\) and residual
# \(e_i = \nabla_f \log p(y_i \mid f)\) at the mean, all over T,
#
# \[ S_{-i} = S - J_i^\top \Lambda_i J_i, \qquad m_{-i} = m - S_{-i}^{-1} J_i^\top e_i \]
#
# so that with the predictive covariance of its outputs, \(V_i = J_i S^{-1} J_i^\top\), and \(a_i = (I - \Lambda_i
# V_i)^{-1} e_i\), all figures of a row come from matrices of the size of its outputs.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.conjugate_target import ConjugateTarget
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.posterior import Posterior
from lamu.sites import additive, dispersion, row_statistics
from lamu.typing import Array, Belief, Data, Number

__all__ = ["Sensitivity", "sensitivity"]

_JACOBIAN_NUMBERS = 2**24


@dataclass(frozen=True)
class Sensitivity:
    r"""Result of `sensitivity`: the influence of every row, as NumPy arrays.

    Attributes:
        belief: the change of the belief when the row is left out, \(KL(q_{-i} \,\|\, q)\) in nats, `[N]`.
        prediction: the change of the outputs f at the row itself, \(f_{-i}(x_i) - f(x_i)\), `[N, outputs]`, in units of
            the network's outputs; for a conjugate model the change of the mean of θ.
        leverage: the leverage of the row, \(\mathrm{tr}(\Lambda_i V_i)\) `[N]`, from zero up to the number of outputs;
            NaN for a conjugate model.
        residual: the size of the row's Pearson residual, \(\sqrt{e_i^\top \Lambda_i^+ e_i}\) `[N]`, in standard
            deviations of the target; NaN for a conjugate model.

    Examples:
        >>> import numpy as np
        >>> from lamu import Sensitivity
        >>> of = Sensitivity(np.array([0.1, 0.5, 0.2]), np.zeros((3, 1)), np.zeros(3), np.zeros(3))
        >>> of.order.tolist()
        [1, 2, 0]
    """

    belief: np.ndarray
    prediction: np.ndarray
    leverage: np.ndarray
    residual: np.ndarray

    @property
    def order(self) -> np.ndarray:
        """The row numbers, the most influential first, `[N]`."""
        return np.argsort(-self.belief, kind="stable")


def sensitivity(
    posterior: Posterior, data: Data, temperature: Number | None = None, likelihood_power: Number = 1.0
) -> Sensitivity:
    r"""Returns the influence of every row on the belief and the predictions, from its natural gradient alone.

    \[ KL(q_{-i} \,\|\, q) = \tfrac12 \Big( \mathrm{tr}\big( (I - B_i)^{-1} B_i \big) + \log\det(I - B_i)
       + a_i^\top V_i a_i \Big), \qquad f_{-i}(x_i) - f(x_i) \approx -V_i a_i \]

    with \(B_i = R_i^\top V_i R_i\), \(\Lambda_i = R_i R_i^\top\). Exact for conjugate models and for linear regression
    with known noise (the leave-one-out residuals of the textbook); elsewhere it agrees with refits as far as the loss
    is quadratic around the mean. It costs one Jacobian a row and a solve with S; nothing is fitted.

    Args:
        posterior: a posterior of a network with a Gaussian belief, or of a conjugate model.
        data: the rows that it was fitted on, all or some of them, as `fit` takes them.
        temperature: the temperature T at which it was fitted; its own where None.
        likelihood_power: the power of the likelihood with which it was fitted.

    Returns:
        The influence of every row.

    Raises:
        TypeError: for a belief of another kind.
        ValueError: for a row that weighs more than the data that was fitted, which cannot have contained it.

    Source: Nickl, Xu, Tailor, Möllenhoff & Khan (2023), "The memory-perturbation equation", equations 7 and 12.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> of = lamu.sensitivity(posterior, (x, y))
        >>> of.belief.shape, int(of.order[0])
        ((442,), 382)
    """
    belief, model = additive(posterior), posterior.model
    rows = model.rows(data)
    temperature = posterior.temperature if temperature is None else temperature
    objective = Objective(model, 1.0, temperature, likelihood_power)
    if isinstance(model, ConjugateTarget):
        return _of_observations(objective, belief, rows)
    if not isinstance(belief, Gaussian):
        raise TypeError(
            f"the influence of rows on a {type(belief).__name__} belief about a network is not known; fit with "
            "laplace(), ivon() or conjugate()"
        )
    numbers = tree.dimension(belief.mean) * model.likelihood.outputs(rows.y)
    size = max(1, min(rows.count, _JACOBIAN_NUMBERS // numbers))
    factored = Gaussian(belief.mean, belief.precision.factored())
    parts = [_of_rows(objective, posterior, factored, batch) for batch in rows.batches(size)]
    columns = [np.concatenate([np.asarray(part[i]) for part in parts])[: rows.count] for i in range(5)]
    _require_fitted(columns[4])
    return Sensitivity(*columns[:4])


@jax.jit
def _of_rows(objective: Objective, posterior: Posterior, belief: Gaussian, batch: Batch) -> tuple[Array, ...]:
    """Returns the four figures of every row, and the largest eigenvalue of B."""
    dispersions = dispersion(posterior)
    loss = BatchLoss(objective, batch, posterior.network_state, NetworkParameters(), dispersions, conjugate=True)
    jacobian, f = loss.jacobian(belief.mean), loss.outputs(belief.mean)
    solved = jax.vmap(jax.vmap(belief.precision.solve))(jacobian)
    rows = lambda a: jax.vmap(jax.vmap(lambda draw: tree.ravel(draw)[0]))(a)
    V = jnp.einsum("bkd,bld->bkl", rows(jacobian), rows(solved))
    V = (V + jnp.swapaxes(V, 1, 2)) / 2.0

    likelihood = objective.model.likelihood
    weight = batch.mask * batch.weight * objective.likelihood_power / objective.temperature
    slope = jax.grad(lambda f: jnp.sum(likelihood.log_prob(dispersions, f, batch.y) * weight.astype(f.dtype)))(f)
    counts = likelihood.counted(dispersions, f, batch.y, weight).astype(f.dtype)
    R = likelihood.information_root(dispersions, f) * jnp.sqrt(counts)[:, None, None]
    values, basis = jnp.linalg.eigh(jnp.einsum("bkr,bkl,bls->brs", R, V, R))
    share = jnp.maximum(values, 0.0)
    # (I − Λ V)⁻¹ e = e + R (I − B)⁻¹ Rᵀ V e, in the basis of B.
    turned = jnp.einsum("bkr,brs->bks", R, basis)
    along = jnp.einsum("bks,bkl,bl->bs", turned, V, slope) / (1.0 - share)
    a = slope + jnp.einsum("bks,bs->bk", turned, along)
    moved = jnp.einsum("bkl,bl->bk", V, a)
    spread = jnp.sum(share / (1.0 - share) + jnp.log1p(-share), axis=1)
    divergence = (spread + jnp.sum(a * moved, axis=1)) / 2.0
    inverse = jnp.linalg.pinv(jnp.einsum("bkr,blr->bkl", R, R), hermitian=True)
    residual = jnp.sqrt(jnp.maximum(jnp.einsum("bk,bkl,bl->b", slope, inverse, slope), 0.0))
    return divergence, -moved, jnp.sum(share, axis=1), residual, jnp.max(share, axis=1)


def _of_observations(objective: Objective, belief: Belief, rows: Arrays) -> Sensitivity:
    """Returns the divergence of the belief without each row, and the change of its mean."""
    divergence, moved = (np.asarray(part) for part in _without_each(objective, belief, rows.full()))
    _require_fitted(np.where(np.isfinite(divergence), 0.0, 1.0))
    nothing = np.full(rows.count, np.nan)
    return Sensitivity(divergence, moved, nothing, nothing)


@jax.jit
def _without_each(objective: Objective, belief: Any, batch: Batch) -> tuple[Array, Array]:
    def of_row(row: Batch) -> tuple[Array, Array]:
        single = jax.tree.map(lambda leaf: leaf[None], row)
        without = belief.with_natural(tree.add(belief.to_natural(), row_statistics(objective, belief, single), -1.0))
        return without.kl(belief), tree.ravel(without.mean)[0] - tree.ravel(belief.mean)[0]

    return jax.vmap(of_row)(batch)


def _require_fitted(share: np.ndarray) -> None:
    outside = np.flatnonzero(~(share < 1.0))
    if outside.size:
        raise ValueError(
            f"row {int(outside[0])} weighs more than the belief that it was to be a part of; give the rows that the "
            "posterior was fitted on, with their weights"
        )
