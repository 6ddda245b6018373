"""Gauss–Newton matrix of classifiers, averaged over the belief about the outputs with the mean at the mode."""

# \[ S = \tfrac1T \Big( p \sum_i w_i J_i^\top\, E_{f \sim N(f_i,\, J_i S^{-1} J_i^\top)}\big[\Lambda(f)\big]\, J_i
#        - \nabla^2 \log p(m) \Big) \]
#
# A network that separates its rows has logits at which Λ nearly vanishes. The curvature at the mode then says that the
# weights are hardly determined, and the belief extends to where the loss is steep. The average is over the belief
# itself, and S is its fixed point.

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, RowSums, fit_laplace, row_sums
from lamu.compile_once import compiled_once
from lamu.data.batch import Batch
from lamu.likelihoods.interface import Likelihood, LikelihoodWrapper
from lamu.model import Model
from lamu.objective import Objective
from lamu.objective.curvature import Curvature, GaussNewton
from lamu.operators import AnyStructure
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.predictives.linearised import TangentOutputs
from lamu.record import record
from lamu.typing import Array, Data, Params, RandomKey

__all__ = ["AveragedGaussNewton", "averaged", "can_average"]

# Numbers that decide results; conventions, not tuned.
_SAMPLES, _NODES = 32, 32  # antithetic samples a row for several outputs; nodes for one output
_ROUNDS, _STILL = 20, 0.02  # passes, which end when the outputs' covariance changes by less than this share
_MOST_CLASSES = 100  # beyond it a matrix of outputs for every row is expensive, and the curvature is that at the mode


@record
class AveragedGaussNewton(GaussNewton):
    """The Gauss–Newton matrix at the mode, and for classifiers its average over the linearised belief."""

    # It is averaged if the outputs are logits of at most 100 classes, the network is not linear in its weights and
    # was not pretrained, and the precision is a sum over rows (no low rank, not matrix-free). Otherwise it is
    # `GaussNewton`. The average is the fixed point of the rule for the network's tangent at the mode, with the mean
    # fixed: a Gauss-Hermite rule for one output, 32 antithetic samples a row for more. It is found to 2 % of the
    # outputs' covariance, in some ten passes over the rows. If rounding leaves no covariance (a prior that is far too
    # wide, in single precision), the curvature is that at the mode, which is logged.
    #
    # Source: Khan & Rue (2021), equation 12, for the expectation of the Hessian; Immer, Korzepa & Bauer (2021), who
    #     refine the same Gaussian by variational inference in the linearised model.


def can_average(structure: AnyStructure, model: Any) -> bool:
    """Returns whether the outputs are logits of a network whose curvature can and should be averaged."""
    if not (isinstance(model, Model) and structure.by_rows):
        return False
    classes = getattr(model.likelihood.support, "number", 2)
    return bool(model.likelihood.logits) and not model.identified and classes <= _MOST_CLASSES


def averaged(
    structure: AnyStructure, mode: LaplaceFit, point: Posterior, objective: Objective, data: Data, key: RandomKey
) -> LaplaceFit:
    """Returns the fit at the same mode with the averaged curvature, or unchanged if rounding leaves no number."""
    fit, before, moved = mode, None, 1.0
    for _ in range(_ROUNDS):
        belief = fit.posterior(objective, key).belief
        outputs = Linearised().outputs(objective.model, belief, mode.network_state, 1, key)
        one_pass = _Pass(outputs, before or outputs)
        sums = fit_laplace(structure, point, objective, data, None, key, one_pass)
        if not math.isfinite(one_pass.moved):
            logging.getLogger("lamu").warning(
                "The curvature is that at the mode, and not averaged over the belief: the covariance of the outputs is "
                "no number in %s under the prior %r; narrow the prior, or compute in 64 bits (jax_enable_x64).",
                jax.tree.leaves(point.mean)[0].dtype,
                objective.model.prior,
            )
            return mode
        fit, moved = replace(mode, curvature=sums.curvature), one_pass.moved if before else 1.0
        if moved < _STILL:
            return fit
        before = outputs
    logging.getLogger("lamu").warning(
        "The covariance of the outputs still moved by %.2g of itself in the last of %d passes over the belief; "
        "curvature=GaussNewton() takes the curvature at the mode alone.",
        moved,
        _ROUNDS,
    )
    return fit


class _Pass:
    """One pass over the rows, with their outputs' covariance averaged between two beliefs (otherwise it oscillates)."""

    def __init__(self, outputs: TangentOutputs, before: TangentOutputs) -> None:
        self._outputs, self._before = outputs, before
        self._change = self._size = 0.0

    @property
    def moved(self) -> float:
        """The relative difference of the covariances between the beliefs."""
        return self._change / self._size

    def __call__(
        self,
        structure: AnyStructure,
        curvature: Curvature,
        objective: Objective,
        params: Params,
        batch: Batch,
        key: RandomKey,
    ) -> RowSums:
        mean, now = self._outputs.normal(batch.x, batch.offset)
        before = now if self._before is self._outputs else self._before.normal(batch.x, batch.offset)[1]
        shift, weights, change, size = _shifted_outputs(mean, now, before, batch.mask, key)
        self._change, self._size = self._change + float(change), self._size + float(size)
        model = replace(objective.model, likelihood=_Averaged(objective.model.likelihood))
        params = {**params, "likelihood": {"own": params["likelihood"], "shift": shift, "weights": weights}}
        return row_sums(structure, curvature, replace(objective, model=model), params, batch, key)


@compiled_once()
def _shifted_outputs(
    mean: Array, now: Array, before: Array, mask: Array, key: RandomKey
) -> tuple[Array, Array, Array, Array]:
    """Returns shifts of the outputs `[samples, batch, outputs]`, their weights, and the change and the total."""
    real = mask.reshape(-1, *[1] * (now.ndim - 1)) > 0  # rows of padding may hold any value
    now, before = jnp.where(real, now, 0), jnp.where(real, before, 0)
    change, size, spread = jnp.sum(jnp.abs(now - before)), jnp.sum(jnp.abs(before)), (now + before) / 2
    if mean.shape[1] == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        shift = jnp.sqrt(spread.reshape(1, -1, 1)) * jnp.asarray(nodes, mean.dtype)[:, None, None]
        return shift, jnp.asarray(weights / weights.sum(), mean.dtype), change, size
    noise = jax.random.normal(key, (_SAMPLES // 2, *mean.shape), mean.dtype)
    if spread.ndim == 2:
        shift = jnp.sqrt(spread) * noise
    else:
        values, basis = jnp.linalg.eigh(spread)
        root = basis * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]  # rounding may make a singular one negative
        shift = jnp.einsum("bkl,sbl->sbk", root, noise)
    return jnp.concatenate([shift, -shift]), jnp.full(_SAMPLES, 1 / _SAMPLES, mean.dtype), change, size


@record
class _Averaged(LikelihoodWrapper):
    """A likelihood whose information is the weighted mean over shifted outputs of each row."""

    base: Likelihood

    information_blocks, information_root = Likelihood.information_blocks, Likelihood.information_root
    information_sum, information_diagonal = Likelihood.information_sum, Likelihood.information_diagonal
    log_concave = quadratic = logits = False

    @property
    def n_positions(self) -> int:
        return 1  # a row is shifted as a whole

    @property
    def of_position(self) -> Likelihood:
        return self

    def parameters(self, params: Params) -> Params:
        return params["own"]

    def information(self, params: Params, f: Array) -> Array:
        def add(total: Array, sample: tuple[Array, Array]) -> tuple[Array, None]:
            shift, weight = sample
            return total + weight * self.base.information(params["own"], f + shift), None

        nothing = jnp.zeros((*f.shape, f.shape[1]), f.dtype)
        return jax.lax.scan(add, nothing, (params["shift"], params["weights"]))[0]
