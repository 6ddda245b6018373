r"""The Gaussian at a mode: one pass over the data for the curvature, the evidence, and what nobody knew beforehand.

\[ S = \tfrac1T \Big( p \sum_i w_i J_i^\top \Lambda_i J_i - \nabla^2 \log p(m) \Big), \qquad
   \log Z \approx -\ell(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12\log\det S \]
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import memory, tree
from lamu.algorithms.post_hoc.evaluated import evaluated
from lamu.algorithms.post_hoc.holdings import batch_curvature, bytes_of_a_row, settle
from lamu.algorithms.post_hoc.products import by_products
from lamu.data.batch import Batch, with_offset
from lamu.families import Gaussian, Point, Product
from lamu.model import Model
from lamu.objective import BatchLoss, Objective, Weights
from lamu.objective.curvature import GaussNewton
from lamu.operators import BlockDiagonal, Dense, DenseBlocks, Diagonal, LowRankOf, MatrixFree, MatrixFreeOf, Scalar
from lamu.operators.interface import Operator, is_operator
from lamu.posterior import Posterior
from lamu.predictives import Linearised, TangentDraws
from lamu.priors import gaussian_belief
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Mode", "look_at_mode", "prior_precision", "with_prior"]

_MOST_ROWS = 1024


@record
class Mode:
    r"""What one pass over the data finds at a mode; a Gaussian follows from it for any prior, without another pass.

    Attributes:
        params: the most probable parameters m.
        network_state: the network's state there.
        curvature: the curvature a row, of the structure that the precision will have, without the prior; Kronecker
            factors are decomposed.
        likelihood: \(-p \sum_i w_i \log p(y_i \mid x_i, m)\) in nats, for N rows.
        misfit: how much of it is due to the residuals, \(p \sum_i w_i r_i^2 / 2\sigma^2\) for a quadratic likelihood.
        observed: how many numbers were observed, \(p \sum_i w_i\) times the outputs.

    Examples:
        >>> from lamu.algorithms.post_hoc.at_mode import Mode
        >>> Mode({}, {}, curvature=None, likelihood=1.5, misfit=0.5, observed=1.0).likelihood
        1.5
    """

    params: Params
    network_state: Any
    curvature: Any
    likelihood: Any
    misfit: Any
    observed: Any

    def posterior(self, objective: Objective, key: RandomKey) -> Posterior:
        """Returns the posterior that is Gaussian about the weights, with its evidence.

        Args:
            objective: the loss, whose prior may be another one than that under which the mode was found.
            key: the seed of the posterior's predictions.
        """
        gaussian, evidence = _gaussian(objective, self)
        belief = Product({"network": gaussian, "likelihood": Point(self.params["likelihood"])})
        rule = TangentDraws() if isinstance(self.curvature, MatrixFree) else Linearised()
        return Posterior(
            objective.model, belief, self.network_state, rule, key, evidence=evidence, temperature=objective.temperature
        )

    def widened(self, objective: Objective, factor: Number) -> Mode:
        r"""Returns the mode with every noise deviation of a quadratic likelihood times a factor.

        With R the misfit and M the numbers observed, the likelihood becomes \(R / c^2 + M \log c\), constants aside,
        and the curvature is divided by c².

        Args:
            objective: the loss.
            factor: c.
        """
        likelihood: Any = objective.model.likelihood
        params = {**self.params, "likelihood": likelihood.widened(self.params["likelihood"], factor)}
        misfit = self.misfit / factor**2
        value = self.likelihood - self.misfit + misfit + self.observed * jnp.log(factor)
        curvature = self.curvature.scale(1 / factor**2)
        return replace(self, params=params, curvature=curvature, likelihood=value, misfit=misfit)


def look_at_mode(
    structure: Any,
    point: Posterior,
    objective: Objective,
    data: Any,
    curvature: Any = None,
    key: RandomKey | None = None,
) -> Mode:
    """Returns what one pass over the data finds at a posterior's mean.

    Args:
        structure: the operator class of the precision, or a record that stands for one (`Layerwise()`, `LowRankOf(20)`,
            `MatrixFreeOf()`).
        point: a posterior whose mean is the mode.
        objective: the loss that the mode is of.
        data: the data.
        curvature: the choice of curvature; `GaussNewton()` where none is given.
        key: for labels that are drawn.

    Raises:
        ValueError: for a structure that does not fit into memory.
    """
    params, state = point.mean, point.network_state
    curvature = GaussNewton() if curvature is None else curvature
    key = jax.random.key(0) if key is None else key
    _require_room(structure, params["network"])
    held = evaluated(objective, state)
    rows = _rows_at_once(structure, held, params, data)
    if isinstance(structure, LowRankOf | MatrixFreeOf):
        batches = list(data.batches(rows))
        sums = _summed(_batch_energy(held, params, batch) for batch in batches)
        found = by_products(structure, curvature, held, params, batches, key)
    else:
        parts = (
            _batch_at_mode(structure, curvature, held, params, batch, jax.random.fold_in(key, number))
            for number, batch in enumerate(data.batches(rows))
        )
        found, sums = _summed(parts)
        found = _settled(found, sums[-1])
    *energies, seen = sums
    # The sums are over the rows that there are; the objective may count N differently.
    likelihood, misfit, observed = (value / seen * objective.data_size for value in energies)
    return Mode(params, state, found, likelihood, misfit, observed)


def with_prior(curvature: Any, prior: Operator, mean: Params) -> Any:
    """Returns the curvature plus the prior's precision, both a row, in the structure of the first.

    A dense matrix takes all of it, every other structure the diagonal; of that Kronecker factors keep the mean over a
    layer, which is exact for one width a layer.

    Args:
        curvature: an operator.
        prior: an operator.
        mean: a vector of the space.
    """
    if isinstance(curvature, Dense):
        return Dense(curvature.matrix + prior.dense(mean).astype(curvature.matrix.dtype))
    diagonal = prior.diagonal(mean)
    if isinstance(curvature, Diagonal | DenseBlocks):
        return jax.tree.map(jnp.add, curvature, type(curvature).from_diagonal(diagonal))
    if not isinstance(curvature, BlockDiagonal):
        return curvature.add(Diagonal(diagonal))

    def block(of: Any, part: Any) -> Any:
        if isinstance(of, Diagonal):
            return Diagonal(tree.add(of.values, part))
        vector = tree.ravel(part)[0]
        return of.add(Diagonal(part) if of.per_output else Scalar(jnp.mean(vector)))

    return BlockDiagonal(jax.tree.map(block, curvature.blocks, diagonal, is_leaf=is_operator))


def prior_precision(objective: Objective, mean: Params) -> Operator:
    """Returns −∇² log p(m): exact where the prior is Gaussian, else of independent weights.

    Args:
        objective: the loss.
        mean: the mode.
    """
    known = gaussian_belief(objective.model.prior, mean)
    if known is not None:
        return known.precision
    ones = jax.tree.map(jnp.ones_like, mean)
    diagonal = jax.jvp(jax.grad(objective.model.prior.log_prob), (mean,), (ones,))[1]
    return Diagonal(tree.scale(diagonal, -1.0))


@jax.jit
def _gaussian(objective: Objective, mode: Mode) -> tuple[Gaussian, Array]:
    """Returns the Gaussian and the evidence."""
    mean = mode.params["network"]
    prior = prior_precision(objective, mean).scale(1 / objective.data_size)
    gaussian = Gaussian(mean, with_prior(mode.curvature, prior, mean).scale(objective.concentration))
    energy = (mode.likelihood - objective.model.log_prior(mode.params)) / objective.temperature
    volume = tree.dimension(mean) / 2 * math.log(2 * math.pi) - gaussian.precision.logdet(mean) / 2
    return gaussian, volume - energy


@partial(jax.jit, static_argnums=0)
def _batch_at_mode(
    structure: Any, curvature: Any, objective: Objective, params: Params, batch: Batch, key: RandomKey
) -> Any:
    """Returns the batch's curvature and energy from one forward pass."""
    if not isinstance(objective.model, Model):
        loss = BatchLoss(objective, batch, {}, Weights(), params["likelihood"], conjugate=True)
        mean, count = params["network"], batch.count.astype(jnp.result_type(float))
        belief = Gaussian(mean, Scalar(1.0))  # of which no curvature at a point asks
        found = curvature.evaluate(loss, mean, belief, structure, key).curvature.scale(count)
        return found, _energy_of_rows(objective, params, batch)
    found, f = batch_curvature(structure, curvature, objective, params, batch, key)
    return found, _energy(objective, params["likelihood"], batch, f)


_settled = jax.jit(settle)


@jax.jit
def _batch_energy(objective: Objective, params: Params, batch: Batch) -> tuple[Array, Array, Array, Array]:
    if not isinstance(objective.model, Model):
        return _energy_of_rows(objective, params, batch)
    f = objective.model.outputs(params, {}, batch.x)[0]
    return _energy(objective, params["likelihood"], batch, f)


def _energy_of_rows(objective: Objective, params: Params, batch: Batch) -> tuple[Array, Array, Array, Array]:
    """Returns the same sums for a target without a network, which has no misfit."""
    values = objective.model.log_likelihood(params, {}, batch)[0]
    value = -objective.likelihood_power * batch.total(values)
    return value, jnp.zeros_like(value), jnp.zeros_like(value), batch.count.astype(value.dtype)


def _energy(objective: Objective, dispersion: Params, batch: Batch, f: Array) -> tuple[Array, Array, Array, Array]:
    """Returns the sums over the batch's rows of the loss, the misfit and the numbers observed, and how many rows."""
    likelihood, f = objective.model.likelihood, with_offset(f, batch.offset)
    total = lambda values: objective.likelihood_power * batch.total(values)
    value = -total(likelihood.log_prob(dispersion, f, batch.y))
    observed = (objective.likelihood_power * jnp.sum(batch.mask * batch.weight)).astype(value.dtype) * f.shape[1]
    misfit = jnp.zeros_like(value)
    if likelihood.quadratic:
        misfit = value + total(likelihood.log_prob(dispersion, f, likelihood.mean(dispersion, f)))
    return value, misfit, observed, batch.count.astype(value.dtype)


def _summed(parts: Any) -> Any:
    total: Any = None
    for part in parts:
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    return total


def _require_room(structure: Any, weights: Params) -> None:
    """Raises a ValueError for a structure whose matrices cannot be held."""
    size, itemsize = tree.dimension(weights), jnp.dtype(jnp.result_type(float)).itemsize
    if structure is Dense:
        what = f"a dense precision of {size:,} weights, with its factor,"
        memory.demand(2 * size**2 * itemsize, what, "take structure=Layerwise(), or Diagonal")
    if structure is DenseBlocks:
        largest = sum(leaf.size**2 for leaf in jax.tree.leaves(weights))
        memory.demand(
            2 * largest * itemsize, "a dense matrix a leaf, with its factor,", "take structure=Layerwise(), or Diagonal"
        )


def _rows_at_once(structure: Any, objective: Objective, params: Params, data: Any) -> int:
    """Returns how many rows fit the budget, in batches of about one size."""
    row = bytes_of_a_row(structure, objective, params, data.example(1).x)
    most = max(1, min(memory.budget() // max(row, 1), _MOST_ROWS))
    count = getattr(data, "count", None)
    return most if not isinstance(count, int) else -(-count // -(-count // most))
