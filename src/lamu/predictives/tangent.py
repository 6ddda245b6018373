r"""The outputs of the network's tangent, \(f \sim N(f(m, x), J \Sigma J^\top)\), by the precision's structure."""

# | precision | the covariance of f |
# |---|---|
# | a last layer | \(\phi^\top \Sigma_{kl}\, \phi\): features, and no Jacobian |
# | one operator an output | \(\phi^\top \Sigma_k\, \phi\) for each, and nothing between outputs |
# | Kronecker factors, diagonal | layer by layer; inputs and output cotangents rotated apart, weighted, multiplied |
# | a matrix a leaf | leaf by leaf, one leaf's Jacobian at a time |
# | any other | the rows' Jacobians |
#
# A layer's Jacobian is \(\sum_p a_p d_{kp}^\top\) over the positions p at which its kernel is used. With one position
# nothing of its size is ever formed: \(\sum_{ij} a_i^2 d_{kj} d_{lj} / e_{ij}\).

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.compile_once import once_a_shape
from lamu.families import Gaussian
from lamu.memory import numbers_written
from lamu.model import Model
from lamu.objective.curvature.head import Head, features_of
from lamu.objective.curvature.reader.layers import Layer, layers, places, views
from lamu.objective.curvature.reader.linearised import LinearisedNetwork, linearise
from lamu.objective.objective import outputs_and_row_jacobian
from lamu.operators.diagonal import Diagonal
from lamu.operators.interface import Operator
from lamu.operators.layer_order import LayerOrder, layer_matrix
from lamu.target import Target
from lamu.typing import Array, Params, PyTree, State

__all__ = ["bytes_per_row", "is_layered", "may_be_head", "tangent"]

_EXACT = jax.lax.Precision.HIGHEST


def tangent(
    model: Target, weights: Gaussian, dispersion: Params, network_state: State, x: Array, marginal: bool
) -> tuple[Array, Array]:
    """Returns mean and covariance of the outputs."""

    def outputs(theta: Params, row: Array) -> Array:
        return model.outputs({"network": theta, "likelihood": dispersion}, network_state, row[None])[0][0]

    precision, mean = weights.precision, weights.mean
    layered = is_layered(precision, mean)
    if layered or may_be_head(mean):
        read = linearise(outputs, mean, x)
        head = features_of(read, mean, _positions(model))
        if head is not None:
            covariance = _of_head(precision, head, mean, marginal, layered)
            if covariance is not None:
                return read.outputs, covariance
        if layered:
            return read.outputs, _of_layers(precision, read, outputs, mean, x, marginal)
    of_row = lambda row: outputs_and_row_jacobian(lambda theta: outputs(theta, row), mean)
    f, jacobian = jax.vmap(of_row)(x)
    return f, precision.tangent_covariance(jacobian, marginal)


def _of_head(precision: Operator, head: Head, mean: Params, marginal: bool, layered: bool) -> Array | None:
    """The covariance of a last layer's outputs from its features; None where there is no such way."""
    if head.positions > 1:  # of a row, whose outputs are correlated through the weights that they share
        if not marginal:
            return None
        by_position = replace(head, outputs=head.outputs.reshape(len(head.features), -1), positions=1)
        covariance = _of_head(precision, by_position, mean, marginal, layered)
        return None if covariance is None else covariance.reshape(head.outputs.shape)
    outputs = head.outputs.shape[1]
    blocks = [block for block, _ in precision.by_leaf(_numbers(mean))]
    if not head.reordered or all(isinstance(block, LayerOrder) for block in blocks):
        return precision.feature_covariance(head.features, outputs, marginal)
    if isinstance(precision, Diagonal):
        values = layer_matrix(precision.values, head.outputs_first)[0]
        return Diagonal(values).feature_covariance(head.features, outputs, marginal)
    if layered:
        return None
    back = layer_matrix(mean, head.outputs_first)[1]
    eye = jnp.eye(outputs, dtype=head.features.dtype)
    jacobian = jax.vmap(lambda phi: jax.vmap(lambda unit: back(jnp.outer(phi, unit)))(eye))(head.features)
    return precision.tangent_covariance(jacobian, marginal)


@once_a_shape
def bytes_per_row(
    model: Target, weights: Gaussian, dispersion: Params, network_state: State, x: PyTree, marginal: bool = False
) -> int:
    """Returns about how much memory one row takes in `tangent`."""
    params = {"network": weights.mean, "likelihood": dispersion}
    row = jax.ShapeDtypeStruct((1, *x.shape[1:]), jax.dtypes.canonicalize_dtype(x.dtype))
    traced = _outputs.trace(model, params, network_state, row)
    width, size = traced.jaxpr.out_avals[0].shape[1], jnp.dtype(jnp.result_type(float)).itemsize
    if weights.precision.per_output:
        return size * 8 * width
    if not is_layered(weights.precision, weights.mean):
        dimension = tree.dimension(weights.mean)
        # Cotangents are as many as outputs, and so are the rows of a covariance.
        return size * width * (dimension + (0 if marginal and width > dimension else width))
    passed = numbers_written(traced.jaxpr.jaxpr, 1)
    largest = max(leaf.size for leaf in jax.tree.leaves(weights.mean))
    return size * (width + 2) * (passed + largest)


@jax.jit
def _outputs(model: Target, params: Params, network_state: State, x: Array) -> Array:
    """Never run: its trace is kept, and tells sizes."""
    return model.outputs(params, network_state, x)[0]


def is_layered(precision: Operator, mean: Params) -> bool:
    """Whether the precision falls apart into blocks of which each has a way round the whole Jacobian."""
    blocks = precision.by_leaf(_numbers(mean))
    return all(block.layered and block is not precision for block, _ in blocks)


def _numbers(mean: Params) -> Params:
    """The leaves' numbers."""
    return jax.tree.unflatten(jax.tree.structure(mean), list(range(len(jax.tree.leaves(mean)))))


def _positions(model: Target) -> int:
    """How many targets a row has side by side."""
    return model.likelihood.n_positions if isinstance(model, Model) else 1


def may_be_head(mean: Params) -> bool:
    """Whether the leaves may be one layer: then it is worth while to look."""
    return len(jax.tree.leaves(mean)) <= 2


def _of_layers(precision: Any, read: LinearisedNetwork, outputs: Any, mean: Params, x: Array, marginal: bool) -> Array:
    """The sum over layers of their contributions; leaves that belong to none by their own Jacobian."""
    rows, width = read.outputs.shape
    eye = jnp.eye(width, dtype=read.outputs.dtype)
    cotangents = jax.vmap(lambda e: read.pull(jnp.broadcast_to(e[None], (rows, width)))[1])(eye)
    groups = precision.by_leaf(_numbers(mean))
    blocks = {index: (block, members) for block, members in groups for index in members}
    total: Any = 0.0
    seen: set[int] = set()
    for layer in layers(read, mean):
        inverse = _inverse(blocks, layer, _width(read, layer))
        if inverse is None and layer.bias is not None:  # a block of the kernel's own
            layer = replace(layer, bias=None)
            inverse = _inverse(blocks, layer, _width(read, layer))
        if inverse is None:
            continue
        total = total + _of_layer(inverse, *_seen(read, layer, cotangents[layer.site]), marginal)
        seen.update([layer.kernel] if layer.bias is None else [layer.bias, layer.kernel])
    for block, members in groups:
        if seen.isdisjoint(members):
            total = total + _of_leaves(block, members, outputs, mean, x, marginal)
    return total


def _inverse(blocks: dict[int, Any], layer: Layer, outputs: int) -> Any:
    """Bases (or None) and inverse eigenvalues `[in, out]` of a layer; None where its leaves have no such form."""
    block, members = blocks[layer.kernel]
    inverse = block.layer_inverse(outputs, layer.outputs_first)
    members_of_layer = [layer.kernel] if layer.bias is None else sorted([layer.bias, layer.kernel])
    if inverse is None or members == members_of_layer:
        return inverse
    of_bias = None if layer.bias is None else blocks[layer.bias][0].layer_inverse(outputs, outputs_first=False)
    if members != [layer.kernel] or of_bias is None or inverse[0] is not None or of_bias[0] is not None:
        return None
    return None, None, jnp.concatenate([of_bias[2], inverse[2]])


def _width(read: LinearisedNetwork, layer: Layer) -> int:
    site = read.sites[layer.site]
    shape = read.program.avals[site.base].shape
    return int(np.prod([shape[axis] for axis in places(read.program, site)[1]]))


def _seen(read: LinearisedNetwork, layer: Layer, cotangents: Array) -> tuple[Array, Array]:
    inputs, outputs = views(read, layer, cotangents)
    if layer.bias is not None:
        ones = jnp.ones((*inputs.shape[:2], 1), inputs.dtype)
        inputs = jnp.concatenate([ones, inputs], axis=2)
    return inputs, outputs


def _of_layer(spread: tuple[Any, Any, Array], inputs: Array, cotangents: Array, marginal: bool) -> Array:
    """One layer's part, from inputs `[N, P, in]` and cotangents `[K, N, P, out]`, both rotated first."""
    first, second, inverse = spread
    if first is not None:
        inputs = jnp.matmul(inputs, first, precision=_EXACT)
        cotangents = jnp.matmul(cotangents, second, precision=_EXACT)
    if inputs.shape[1] == 1:
        inner = jnp.matmul(inputs[:, 0] ** 2, inverse, precision=_EXACT)
        d = cotangents[:, :, 0]
        if marginal:
            return jnp.einsum("no,kno->nk", inner, d**2, precision=_EXACT)
        scaled = jnp.moveaxis(d, 0, 1) * jnp.sqrt(inner)[:, None, :]
        return jnp.einsum("nko,nlo->nkl", scaled, scaled, precision=_EXACT)
    root = jnp.sqrt(inverse)

    # Row after row: what is formed is one row's Jacobian of one layer.
    def of_row(row: tuple[Array, Array]) -> Array:
        a, d = row
        jacobian = jnp.einsum("pi,kpo->kio", a, d, precision=_EXACT) * root[None]
        flat = jacobian.reshape(jacobian.shape[0], -1)
        return jnp.sum(flat**2, axis=1) if marginal else jnp.matmul(flat, flat.T, precision=_EXACT)

    return jax.lax.map(of_row, (inputs, jnp.moveaxis(cotangents, 0, 1)))


def _of_leaves(block: Operator, members: list[int], outputs: Any, mean: Params, x: Array, marginal: bool) -> Array:
    """The part of some leaves, by their own Jacobian."""
    leaves, structure = jax.tree.flatten(mean)

    def at(chosen: list[Array], row: Array) -> Array:
        params = list(leaves)
        for index, leaf in zip(members, chosen, strict=True):
            params[index] = leaf
        return outputs(structure.unflatten(params), row)

    chosen = [leaves[index] for index in members]
    rooted = lambda jacobian: jax.vmap(lambda a: tree.ravel(block.solve(a))[0])(jacobian)

    def of_row(row: Array) -> Array:
        jacobian = jax.jacrev(at)(chosen, row)
        flat = jax.vmap(lambda a: tree.ravel(a)[0])(jacobian)
        if marginal:
            return jnp.sum(flat * rooted(jacobian), axis=1)
        gram = jnp.matmul(flat, rooted(jacobian).T, precision=_EXACT)
        return (gram + gram.T) / 2

    return jax.vmap(of_row)(x)
