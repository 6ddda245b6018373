"""The generalised Gauss–Newton matrix at a mode, in the structure of the precision: per batch or matrix-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import memory, tree
from lamu.base.compile_once import once_a_shape
from lamu.data.batch import Batch, with_offset
from lamu.families import Gaussian
from lamu.model import Model
from lamu.networks import Evaluated
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Curvature, GaussNewton
from lamu.objective.curvature.gauss_newton import OverData
from lamu.objective.curvature.head import Head, features_of, from_features
from lamu.objective.curvature.interface import OutputHessian, without_padding
from lamu.objective.curvature.reader.layers import FactorSums, factor_sums, is_sums, layers
from lamu.objective.curvature.reader.linearised import linearise
from lamu.operators import (
    AnyStructure,
    BlockDiagonal,
    Dense,
    DenseBlocks,
    Diagonal,
    LowRank,
    LowRankStructure,
    MatrixFree,
    MatrixFreeStructure,
    OutputBlocks,
    OutputEigen,
    Scalar,
)
from lamu.operators.interface import is_operator
from lamu.operators.layer_order import layer_matrix
from lamu.operators.matrix_free import eigenpairs
from lamu.record import record, static
from lamu.typing import Array, Inputs, Number, OperatorTree, Params, PyTree, RandomKey, State

__all__ = ["FactorSums", "KroneckerSums", "batch_curvature", "by_products", "bytes_per_row", "evaluated"]


def evaluated(objective: Objective, network_state: State) -> Objective:
    """Returns the objective with the network in evaluation mode."""
    if not isinstance(objective.model, Model):
        return objective
    network = Evaluated(objective.model.network, network_state)
    return replace(objective, model=replace(objective.model, network=network))


# A dense matrix and its diagonal blocks are computed from the rows' Jacobians, a diagonal and Kronecker factors from
# captured activations and cotangents of the backward pass without Jacobians, and a last layer from its features. Sums
# over batches are `jax.tree.map(jnp.add, ...)`; `finish` makes the operator of the sum.


_PRECISE = jax.lax.Precision.HIGHEST


@record
class KroneckerSums:
    """Sums for all layers, and the normaliser of the inputs' sums."""

    blocks: PyTree  # a tree of `FactorSums` and `Diagonal`
    weight: Array  # \(\sum r\)
    rank: int | None = static(default=None)  # number of eigenvectors kept of each factor; None for all

    def finish(self, count: Number | Array) -> BlockDiagonal:
        """Returns the operator per row."""

        def block(part: PyTree) -> OperatorTree:
            return part.finish(self.weight, count, self.rank) if is_sums(part) else part.scale(1 / count)

        return BlockDiagonal(jax.tree.map(block, self.blocks, is_leaf=_is_part))


def batch_curvature(
    structure: AnyStructure,
    curvature: Curvature,
    objective: Objective,
    params: Params,
    batch: Batch,
    key: RandomKey,
) -> tuple[OperatorTree, Array, Callable[[Array], Params]]:
    r"""Returns the batch's sum of the rows' curvatures (each as one row of \(\ell\)), f, and a pullback."""
    # The outputs f `[batch, outputs]`, without the batch's offset, are those at which the curvature was taken, which
    # saves a second forward pass; rows of padding have finite ones. The pullback maps cotangents of f to
    # the gradient in the weights, and costs nothing unless called.
    theta, dispersion = params["network"], params["likelihood"]
    loss = without_padding(BatchLoss(objective, batch, {}, NetworkParameters(), dispersion, conjugate=True))
    count = batch.count.astype(jnp.result_type(float))
    weights = objective.row_factor(batch) * batch.count.astype(batch.mask.dtype)

    def hessian_at(f: Array) -> OutputHessian | None:
        f = with_offset(f, loss.batch.offset)
        return curvature.output_hessian(objective.model.likelihood, dispersion, f, loss.batch.y, weights, key)

    head = features(loss.of_row, theta, loss.batch.x, objective.model.likelihood.n_positions)
    # Gradients of sampled or given labels are vectors of a whole row, in which positions are correlated.
    if head is not None and (head.positions == 1 or isinstance(curvature, GaussNewton)):
        sums = _of_head(structure, head, hessian_at(head.outputs), theta, weights)
        if sums is not None:
            unravel, rows = layer_matrix(theta, head.outputs_first)[1], len(head.features)
            return sums, head.outputs, lambda slope: unravel(_product(head.features.T, slope.reshape(rows, -1)))
    if structure.by_factors:
        return _kronecker(structure, curvature, loss, theta, hessian_at, weights)
    if structure is OutputBlocks or structure is OutputEigen:
        raise TypeError(
            f"{structure.__name__} keeps one matrix an output of a last layer, a dense kernel alone or with its bias; "
            "use last_layer(), or the structure KroneckerFactored() or Diagonal"
        )
    if isinstance(curvature, GaussNewton) and structure is not Diagonal:
        f, jacobian, matrix = curvature.outputs_and_matrix(loss, theta, structure)
        return matrix.scale(count), f, lambda slope: jax.tree.map(partial(_leaf_gradients, slope), jacobian)
    network = lambda theta: objective.model.outputs({**params, "network": theta}, {}, loss.batch.x)[0]
    f, pull = network(theta), lambda slope: jax.vjp(network, theta)[1](slope)[0]
    if isinstance(curvature, GaussNewton):
        return curvature.matrix(loss, theta, structure).scale(count), f, pull
    belief = Gaussian(theta, Scalar(1.0))  # which these curvatures do not use
    return curvature.evaluate(loss, theta, belief, structure, key).curvature.scale(count), f, pull


def features(function: Callable[..., Array], params: Params, rows: Inputs, positions: int = 1) -> Head | None:
    """Returns outputs and features of a network whose free parameters are its last layer; None for others."""
    ranks = sorted(jnp.ndim(leaf) for leaf in jax.tree.leaves(params))
    if not ranks or ranks[:-1] not in ([], [1]) or ranks[-1] < 2 or (positions == 1 and ranks[-1] > 2):
        return None
    return features_of(linearise(function, params, rows), params, positions)


@once_a_shape
def bytes_per_row(structure: AnyStructure, objective: Objective, params: Params, x: Inputs) -> int:
    """Returns about how much memory a row takes in `batch_curvature`."""
    if not isinstance(objective.model, Model):
        return jnp.dtype(jnp.result_type(float)).itemsize * tree.dimension(params["network"])
    outputs = _outputs.eval_shape(objective, params, x).shape[1]
    size, passed = jnp.dtype(jnp.result_type(float)).itemsize, _numbers_per_row(objective, params, x)
    head = _features.eval_shape(objective, params, x)
    if head is not None:
        positions, width = head.shape
        each = outputs // positions
        numbers = {Dense: each * (each + width), DenseBlocks: each * (each + width), OutputBlocks: width**2}
        return size * (positions * (numbers.get(structure, 0) + width) + 4 * outputs + passed)
    if structure in (Dense, DenseBlocks):
        dimension = tree.dimension(params["network"])
        f = jax.ShapeDtypeStruct((1, outputs), jnp.result_type(float))
        information = jax.eval_shape(objective.model.likelihood.information_blocks, params["likelihood"], f)
        cotangents = outputs**2 if outputs <= dimension else 0
        return size * (outputs * dimension + information.size + cotangents)
    return size * (outputs + 2) * passed


def _leaf_gradients(slope: Array, jacobian: Array) -> Array:
    """Returns the sum of the rows' gradients of one leaf, for cotangents `[batch, outputs]` of their outputs."""
    return jnp.tensordot(slope, jacobian, axes=2, precision=_PRECISE)


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=_PRECISE)


def _of_head(structure: Any, head: Head, hessian: OutputHessian | None, theta: Params, weights: Array) -> OperatorTree:
    """Returns the curvature of a last layer; None if the structure needs the Jacobian."""
    kronecker = structure if structure.by_factors and not structure.apart(theta) else None
    if hessian is None:
        return None
    hessian = hessian.by_position()
    if kronecker is None and structure is not OutputEigen:
        return from_features(structure, head, hessian, theta)
    phi, weights = head.features, jnp.repeat(weights, head.positions)
    inputs = _product(phi.T * weights.astype(phi.dtype)[None], phi)
    outputs = hessian.sum() if kronecker is not None else jnp.sum(hessian.diagonal(), axis=0)
    sums = FactorSums(inputs, outputs, head.outputs_first, head.reordered)
    blocks = jax.tree.map(lambda _: sums, theta, is_leaf=_is_layer)
    return KroneckerSums(blocks, jnp.sum(weights), None if kronecker is None else kronecker.rank)


def _kronecker(
    structure: Any,
    curvature: Curvature,
    loss: BatchLoss,
    theta: Params,
    hessian_at: PyTree,
    weights: Array,
) -> tuple[KroneckerSums, Array, Callable[[Array], Params]]:
    tape = linearise(loss.of_row, theta, loss.batch.x)
    hessian = hessian_at(tape.outputs)
    if hessian is None:
        raise TypeError(
            f"{type(curvature).__name__}() has no Kronecker factors; take GaussNewton(), SampledGaussNewton() or "
            "SquaredGradients(), or a Dense precision"
        )
    apart, roots = structure.apart(theta), jnp.moveaxis(hessian.root(), 2, 0)
    cotangents = jax.vmap(lambda root: tape.pull(root)[1])(roots)
    read_layers, total = layers(tape, theta, apart), jnp.sum(weights)
    means = factor_sums(tape, theta, roots, cotangents, weights, read_layers, structure.sharing)
    scaled = lambda part: replace(part, inputs=part.inputs * total.astype(part.inputs.dtype)) if is_sums(part) else part
    sums = jax.tree.map(scaled, means, is_leaf=_is_part)
    pull = lambda slope: jax.tree.unflatten(jax.tree.structure(theta), tape.pull(slope)[0])
    return KroneckerSums(sums, total, structure.rank), tape.outputs, pull


def _is_part(node: object) -> bool:
    return is_sums(node) or is_operator(node)


def _is_layer(node: object) -> bool:
    return isinstance(node, dict) and any(isinstance(part, jax.Array) for part in node.values())


# Compiled functions that are only traced: jit caches the trace.


@jax.jit
def _outputs(objective: Objective, params: Params, x: Array) -> Array:
    return objective.model.outputs(params, {}, x)[0]


@jax.jit
def _features(objective: Objective, params: Params, x: Array) -> Array | None:
    network = lambda theta, row: objective.model.outputs({**params, "network": theta}, {}, row[None])[0][0]
    head = features(network, params["network"], x, objective.model.likelihood.n_positions)
    return None if head is None else head.features


def _numbers_per_row(objective: Objective, params: Params, x: Array) -> int:
    """Returns how many numbers one pass writes for a row."""
    return memory.numbers_written(_outputs.trace(objective, params, x).jaxpr.jaxpr, 1)


def by_products(
    structure: AnyStructure,
    curvature: Curvature,
    objective: Objective,
    params: Params,
    batches: list[Batch],
    key: RandomKey,
) -> OperatorTree:
    """Returns the curvature per row of all batches."""
    if not isinstance(curvature, GaussNewton):
        raise TypeError(
            f"{type(curvature).__name__}() has no products with vectors here; take GaussNewton(), or one of the "
            "structures Dense, Diagonal and KroneckerFactored()"
        )
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    over_data = OverData(objective, params, stacked)
    if isinstance(structure, LowRankStructure):
        return _low_rank(structure.rank, over_data, key)
    assert isinstance(structure, MatrixFreeStructure)
    theta = params["network"]
    diagonal = _diagonal(objective, params, stacked).values
    return MatrixFree(over_data, diagonal, jnp.ones(()), tree.zeros_like(theta), structure).factored()


@partial(jax.jit, static_argnums=0)
def _low_rank(rank: int, ggn: OverData, key: RandomKey) -> LowRank:
    theta = ggn.params["network"]
    size = tree.dimension(theta)
    rank = min(rank, size)
    unravel = tree.ravel(theta)[1]
    values, vectors = eigenpairs(ggn.matvec, theta, rank, min(size, 3 * rank + 20), key)
    root = jnp.sqrt(jnp.maximum(values, 0))[:, None] * vectors
    return LowRank(jax.vmap(unravel)(root), tree.zeros_like(theta))


@jax.jit
def _diagonal(objective: Objective, params: Params, batches: PyTree) -> Diagonal:
    diagonal_of = lambda batch: batch_curvature(Diagonal, GaussNewton(), objective, params, batch, jax.random.key(0))[0]
    total = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.lax.map(diagonal_of, batches))
    return total.finish(jnp.sum(batches.mask))
