"""Curvatures of a last layer from its features, without Jacobians."""

# Where every free weight belongs to one layer whose output is the network's, \(f(x) = W^\top \phi(x)\) with \(\phi\)
# the features (one, for the bias, among them), so that \(J_i = \phi_i^\top \otimes I\) and
#
# \[ \sum_i J_i^\top \Lambda_i J_i = \sum_i \phi_i \phi_i^\top \otimes \Lambda_i \]
#
# so that every structure is computed from the features and the information alone.
#
# A layer may be applied at several positions of a row (pixels, time steps), \(f_p(x) = W^\top \phi_p(x)\), where the
# likelihood has a target at each. Positions are then treated as rows, since \(\Lambda_i\) has no entries between them.

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from lamu.objective.curvature.interface import OutputHessian
from lamu.objective.curvature.reader.flat_jaxpr import MOVES, Step
from lamu.objective.curvature.reader.layers import Layer, layers, moved, places, sole_users, views
from lamu.objective.curvature.reader.linearised import LinearisedNetwork
from lamu.operators import AnyStructure, Dense, DenseBlocks, Diagonal, OutputBlocks
from lamu.operators.layer_order import layer_matrix, permutation
from lamu.typing import Array, Params, PyTree

__all__ = ["Head", "features_of", "from_features"]

_PRECISE = jax.lax.Precision.HIGHEST
_KEEPS_ORDER = ("reshape", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p", "slice", "name")


@dataclass(frozen=True)
class Head:
    """The outputs and features of a last layer."""

    outputs: Array  # f, `[batch, outputs]`
    features: Array  # φ, `[batch * positions, in]`, the bias's one first
    outputs_first: bool  # whether the kernel's coordinates run over the outputs first
    reordered: bool  # whether the layer's weights are stored in another order than `[in, out]`, the bias first
    positions: int = 1  # the number of positions of a row at which the layer is applied


def features_of(read: LinearisedNetwork, params: Params, positions: int = 1) -> Head | None:
    """Returns the same for an already linearised network."""
    network_layers = layers(read, params)
    leaves = len(read.leaves)
    if len(network_layers) != 1 or read.unread or len(read.sites) != leaves:
        return None
    (layer,) = network_layers
    if (layer.bias is None) != (leaves == 1) or leaves > 2:
        return None
    last = next((site for site in read.sites if site.leaf == layer.bias), read.sites[layer.site])
    order = None
    if positions > 1:
        order = _order_of_positions(read, layer, positions)
        if order is None:
            return None
    elif not _is_output(read, last.step) or read.program.steps[read.sites[layer.site].step].name != "dot_general":
        return None
    rows, width = read.outputs.shape
    # Only the inputs are used, so that the cotangents need the right shape and no values.
    place = read.program.steps[read.sites[layer.site].step].writes[0]
    shape = read.program.avals[place].shape  # pyright: ignore[reportCallIssue, reportArgumentType]
    inputs, outputs = views(read, layer, jnp.zeros((1, rows, *shape), read.outputs.dtype))
    if inputs.shape[1] != positions or positions * outputs.shape[3] != width:
        return None
    phi = inputs[:, 0] if order is None else inputs[:, order].reshape(rows * positions, -1)
    if layer.bias is not None:
        phi = jnp.concatenate([jnp.ones((len(phi), 1), phi.dtype), phi], axis=1)
    return Head(read.outputs, phi, layer.outputs_first, layer.reordered, positions)


def from_features(structure: AnyStructure, head: Head, of: OutputHessian, like: Params) -> PyTree:
    """Returns the curvature of the layer in a structure, or None for a structure that needs the Jacobian."""
    phi = head.features
    if structure is Diagonal:
        values = jnp.matmul((phi**2).T, of.diagonal(), precision=_PRECISE)
        return Diagonal(layer_matrix(like, head.outputs_first)[1](values))
    if structure is OutputBlocks:
        return None if head.reordered else OutputBlocks(_per_output(phi, of.diagonal()))
    if structure is Dense:
        return Dense(_stored(_dense(phi, of.matrix()), head, like))
    if structure is DenseBlocks:
        full = _stored(_dense(phi, of.matrix()), head, like)
        spans = _spans(like)
        return DenseBlocks(jax.tree.map(lambda span: Dense(full[span, span]), spans))
    return None


def _stored(matrix: Array, head: Head, like: Params) -> Array:
    """Returns the matrix in the order of the stored weights."""
    if not head.reordered:
        return matrix
    order = permutation(like, head.outputs_first)
    return matrix[order][:, order]


def _dense(phi: Array, information: Array) -> Array:
    """Returns the full matrix, by rows of blocks."""
    rows, width, outputs = *phi.shape, information.shape[1]

    def of_output(weights: Array) -> Array:
        weighted = (phi[:, None, :] * weights[:, :, None].astype(phi.dtype)).reshape(rows, outputs * width)
        return jnp.matmul(phi.T, weighted, precision=_PRECISE).reshape(width, outputs, width)

    blocks = jax.lax.map(of_output, jnp.moveaxis(information, 1, 0))  # [k, i, l, j]
    matrix = blocks.transpose(1, 0, 3, 2).reshape(width * outputs, width * outputs)
    return (matrix + matrix.T) / 2


def _per_output(phi: Array, weights: Array) -> Array:
    """Returns the matrix of every output, `[out, in, in]`, by one product."""
    rows, width = phi.shape
    products = (phi[:, :, None] * phi[:, None, :]).reshape(rows, width * width)
    return jnp.matmul(weights.T, products, precision=_PRECISE).reshape(-1, width, width)


def _spans(like: Params) -> PyTree:
    """Returns the slice of coordinates of every leaf, in the order of `ravel`."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([0, *(leaf.size for leaf in leaves)])
    return jax.tree.unflatten(structure, [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)])


def _order_of_positions(read: LinearisedNetwork, layer: Layer, positions: int) -> np.ndarray | None:
    """Returns the layer's positions in the order of the outputs; None where the outputs are not its positions."""
    program, site = read.program, read.sites[layer.site]
    step = program.steps[site.step]
    (place,), (result,) = step.writes, program.outputs
    shape = program.avals[place].shape  # pyright: ignore[reportCallIssue, reportArgumentType]
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    seen = _by_position(numbers, step, site.position, len(places(program, site)[1]))
    bias = next((each.step for each in read.sites if each.leaf == layer.bias), None)
    for number in sole_users(program, place):
        if number != bias and program.steps[number].name not in MOVES:
            return None
        numbers = numbers if number == bias else moved(program, [number], numbers)
        (place,) = program.steps[number].writes
        if program.avals[place].shape != numbers.shape:  # pyright: ignore[reportCallIssue, reportArgumentType]
            return None
    if place != result:
        return None
    if seen.shape[0] != positions or numbers.size != seen.size:
        return None
    last = numbers.reshape(seen.shape)
    where = np.zeros(seen.size, int)
    where[seen[:, 0]] = np.arange(positions)
    order = where[last[:, 0]]
    return order if np.array_equal(seen[order], last) else None


def _by_position(numbers: np.ndarray, step: Step, position: int, axes: int) -> np.ndarray:
    """Returns a layer's outputs in the order of `views`, `[positions, out]`."""
    if step.name == "conv_general_dilated":
        numbers = np.moveaxis(numbers.transpose(step.equation.params["dimension_numbers"].out_spec), 1, -1)
        axes = 1
    elif position == 0:  # the kernel's free axes come first in the output
        numbers = np.moveaxis(numbers, range(axes), range(numbers.ndim - axes, numbers.ndim))
    return numbers.reshape(-1, int(np.prod(numbers.shape[numbers.ndim - axes :])))


def _is_output(read: LinearisedNetwork, step: int) -> bool:
    """Whether the result of an equation is the network's output, possibly reshaped without reordering."""
    program = read.program
    (place,) = program.steps[step].writes
    (result,) = program.outputs
    size = lambda place: int(np.prod(program.avals[place].shape))
    for number in sole_users(program, place):
        user = program.steps[number]
        if user.name not in _KEEPS_ORDER or len(user.writes) != 1 or size(user.writes[0]) != size(place):
            return False
        place = user.writes[0]
    return place == result
