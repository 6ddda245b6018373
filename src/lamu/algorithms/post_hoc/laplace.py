"""Laplace's method: the Gaussian with the curvature at the mode."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point, Product
from lamu.objective import BatchLoss, Objective, Weights
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense, Diagonal
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.protocol import Algorithm, Choices, Info, Traits
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Laplace", "laplace"]

_JACOBIAN_BYTES = 256 * 2**20
_LARGEST_DENSE = 4096


@record
class Laplace:
    """The algorithm that `laplace` makes.

    Attributes:
        of: what finds the mode.
        structure: the operator class of the precision, or None where the size of the network decides.

    Example:
        >>> import lamu
        >>> lamu.algorithms.laplace().choices.curvature
        'GaussNewton'
    """

    of: Algorithm
    structure: Any = static(default=None)

    @property
    def traits(self) -> Traits:
        """Those of what finds the mode."""
        return self.of.traits

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        structure = "dense or diagonal" if self.structure is None else self.structure.__name__.lower()
        departures = ("Gauss-Newton for the Hessian", "one step at the mode", "dispersions a point")
        return Choices(f"Gaussian, {structure} precision", "Delta", "GaussNewton", departures=departures)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> Any:
        """Returns the first state of what finds the mode."""
        return self.of.init(key, objective, batch)

    def step(self, key: RandomKey, state: Any, batch: Batch, objective: Objective) -> tuple[Any, Info]:
        """Returns the next state of what finds the mode."""
        return self.of.step(key, state, batch, objective)

    def posterior(self, key: RandomKey, state: Any, objective: Objective, data: Any, trace: Any) -> Posterior:
        """Returns the Gaussian at the mode, after one pass over the data."""
        return self.at(self.of.posterior(key, state, objective, data, trace), key, objective, data)

    def at(self, point: Posterior, key: RandomKey, objective: Objective, data: Any) -> Posterior:
        """Returns the Gaussian at a given point, after one pass over the data.

        Args:
            point: a posterior whose mean is the mode.
            key: the seed of the posterior's predictions.
            objective: the loss that the mode is of.
            data: the data.
        """
        mean, dispersion = point.mean["network"], point.mean["likelihood"]
        structure = self.structure or (Dense if tree.dimension(mean) <= _LARGEST_DENSE else Diagonal)
        rows = _rows_at_once(objective, point, data)

        matrix, value, seen = None, 0.0, 0.0
        for batch in data.batches(rows):
            part, loss, count = _batch_sums(structure, objective, point.network_state, mean, dispersion, batch)
            matrix = part if matrix is None else jax.tree.map(jnp.add, matrix, part)
            value, seen = value + loss, seen + count
        curvature = jax.tree.map(lambda leaf: leaf / jnp.asarray(seen, leaf.dtype), matrix)
        precision = jax.tree.map(jnp.add, curvature, _prior_curvature(structure, objective, mean))
        gaussian = Gaussian(mean, precision.scale(objective.concentration))

        total = value / seen * objective.data_size + -objective.model.log_prior(point.mean)
        evidence = (
            -total / objective.temperature
            + tree.dimension(mean) / 2 * math.log(2 * math.pi)
            - gaussian.precision.logdet(mean) / 2
        )
        belief = Product({"network": gaussian, "likelihood": Point(dispersion)})
        return Posterior(objective.model, belief, point.network_state, Linearised(), key, evidence=evidence)


def laplace(of: Algorithm | None = None, structure: Any = None) -> Laplace:
    r"""Laplace's method: a Gaussian at the mode, with the generalised Gauss–Newton matrix as its precision.

    \[ m = \arg\min_\theta \ell(\theta), \qquad
       S = \tfrac1T \Big( p \sum_i w_i J_i^\top \Lambda_i J_i - \nabla^2 \log p(m) \Big) \]

    which is the fixed point of the rule under the delta method. The evidence is
    \(-\ell(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12\log\det S\). Prediction is linearised. After the steps that find the
    mode, one pass with one Jacobian a row; for a dense precision \(N K D^2\) more operations.

    Departures from the rule: the Gauss–Newton matrix is an approximation of the Hessian (exact for linear networks with
    canonical likelihoods); it is computed once, where the optimiser stopped; learned dispersions stay a point.

    Args:
        of: the algorithm that finds the mode, with a point posterior; `adam(1e-2)` where none is given.
        structure: the operator class of the precision, `Dense` or `Diagonal`; where none is given dense up to 4,096
            weights, diagonal above.

    Returns:
        The algorithm.

    Raises:
        TypeError: for an `of` that is no algorithm.

    Source: MacKay (1992); Khan & Rue (2021), section 4.4; Immer, Korzepa & Bauer (2021).

    Example:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> lamu.scores.nll(posterior.predict(x), y) < 0.1
        True
    """
    if of is None:
        from lamu.algorithms.optimisers.adam import adam

        of = adam(1e-2)
    if not isinstance(of, Algorithm):
        raise TypeError(f"laplace(of={of!r}) needs an algorithm that finds the mode; give for instance adam(1e-2)")
    return Laplace(of=of, structure=structure)


@partial(jax.jit, static_argnums=0)
def _batch_sums(
    structure: Any, objective: Objective, network_state: Any, mean: Params, dispersion: Params, batch: Batch
) -> tuple[Any, Array, Array]:
    """Returns the sums over the batch's rows of the curvature and of the negative log likelihood, and the rows."""
    loss = BatchLoss(objective, batch, network_state, Weights(), dispersion, conjugate=True)
    params = {"network": mean, "likelihood": dispersion}
    value, _ = objective.negative_log_likelihood(params, batch, network_state)
    count = batch.count.astype(value.dtype)
    return GaussNewton().matrix(loss, mean, structure).scale(count), value * count, count


def _prior_curvature(structure: Any, objective: Objective, mean: Params) -> Any:
    known = Weights().conjugate_prior(objective, mean)
    if known is not None:
        return structure.from_diagonal(known[1])
    log_prior = objective.model.prior.log_prob

    def product(v: Params) -> Params:
        return tree.scale(jax.jvp(jax.grad(log_prior), (mean,), (v,))[1], -1.0 / objective.data_size)

    return structure.from_hessian(product, mean)


def _rows_at_once(objective: Objective, point: Posterior, data: Any) -> int:
    example = data.example(1)
    outputs = jax.eval_shape(lambda x: objective.model.outputs(point.mean, point.network_state, x)[0], example.x).shape[
        1
    ]
    row_bytes = outputs * tree.dimension(point.mean["network"]) * jnp.dtype(jnp.result_type(float)).itemsize
    return max(1, min(_JACOBIAN_BYTES // max(row_bytes, 1), 1024))
