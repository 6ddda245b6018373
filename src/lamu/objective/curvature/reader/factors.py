"""Kronecker factors of a curvature from one backward pass."""

# A row's gradient in a kernel is \(\sum_p a_{ip} d_{ip}^\top\), with \(a_{ip}\) the kernel's input at position p and
# \(d_{ip}\) the cotangent of its output. The curvature of a layer is approximated by
#
# \[ \sum_i r_i\, \mathrm{vec}(g_i) \mathrm{vec}(g_i)^\top \approx A \otimes B, \qquad
#    A = \frac{1}{R} \sum_i r_i\, \overline{a_i a_i^\top}, \qquad B = \sum_i r_i\, \overline{d_i d_i^\top}, \qquad
#    R = \sum_i r_i \]
#
# which is exact for one row and one position, and where one of the two factors is the same in every row. A is a mean
# and B carries the scale. A bias that is added to a kernel's output is treated as the weights of a constant input one.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.flat_jaxpr import warn_of_rows
from lamu.objective.curvature.reader.layers import Layer, places
from lamu.objective.curvature.reader.linearised import LinearisedNetwork
from lamu.objective.curvature.reader.parameter_uses import ParameterUse, windows
from lamu.operators import BlockDiagonal, Diagonal, Kronecker, Operator, OutputEigen, leading
from lamu.operators.kronecker import Expand, Reduce
from lamu.operators.layer_order import LayerOrder
from lamu.record import record, static
from lamu.typing import Array, Number, Params, PyTree

__all__ = ["FactorSums", "factor_sums", "factors", "halved", "is_sums", "views"]

# By default accelerators round the operands of float32 products, after which a factor may not be positive.
_EXACT = jax.lax.Precision.HIGHEST

_EXPANDED = Expand()


def halved(cotangents: Array, weights: Array) -> Array:
    r"""Returns \(\sqrt{r_i} d_i\) of cotangents \(r_i d_i\): their squares carry the weight once."""
    root = jnp.where(weights == 0, jnp.zeros_like(weights), jax.lax.rsqrt(jnp.where(weights == 0, 1, weights)))
    return cotangents * _rows(root, cotangents)


@record
class FactorSums:
    r"""Sums over rows for one layer: \(\sum r\, a a^\top\) and \(\sum r\, d d^\top\), or the diagonal of the second."""

    inputs: PyTree
    outputs: PyTree  # `[out, out]`, or `[out]`
    outputs_first: bool = static(default=False)  # whether the kernel's coordinates run over the outputs first
    # Whether the order of the layer's weights differs from both orders of a product of inputs and outputs.
    reordered: bool = static(default=False)

    def product(self) -> Kronecker | LayerOrder:
        """Returns the Kronecker product of the two."""
        shift = jnp.zeros((), self.inputs.dtype)
        if self.outputs_first and not self.reordered:
            return Kronecker(self.outputs, self.inputs, shift)
        product = Kronecker(self.inputs, self.outputs, shift)
        return LayerOrder(product, self.outputs_first) if self.reordered else product

    def finish(self, weight: Array, count: Number, rank: int | None) -> Operator:
        """Returns the decomposed product of the factors per row."""
        inputs = self.inputs / jnp.asarray(weight, self.inputs.dtype)
        outputs = self.outputs / jnp.asarray(count, self.outputs.dtype)
        if outputs.ndim == 1:
            decomposed: Operator = OutputEigen.of(inputs, outputs)
            return LayerOrder(decomposed, self.outputs_first) if self.reordered else decomposed
        product = replace(self, inputs=inputs, outputs=outputs).product()
        if rank is None:
            return product.factored()
        if isinstance(product, LayerOrder):
            return LayerOrder(leading(product.base, rank), self.outputs_first)
        return leading(product, rank)


def factors(
    read: LinearisedNetwork,
    params: Params,
    roots: Array,
    cotangents: Sequence[Array],
    weights: Array,
    network_layers: Sequence[Layer],
    sharing: Expand | Reduce = _EXPANDED,
) -> BlockDiagonal:
    r"""Returns the blocks of \(\sum_i \sum_k J_i^\top v_{ik} v_{ik}^\top J_i\)."""
    sums = factor_sums(read, params, roots, cotangents, weights, network_layers, sharing)
    of = lambda part: part.product() if is_sums(part) else part
    return BlockDiagonal(jax.tree.map(of, sums, is_leaf=_is_part))


def factor_sums(
    read: LinearisedNetwork,
    params: Params,
    roots: Array,
    cotangents: Sequence[Array],
    weights: Array,
    network_layers: Sequence[Layer],
    sharing: Expand | Reduce = _EXPANDED,
) -> Params:
    """Returns the same as a tree: `FactorSums` for layers, with mean inputs, and a `Diagonal` for other leaves."""
    blocks: list[PyTree] = [None] * len(read.leaves)
    for layer in network_layers:
        blocks[layer.kernel] = _product(read, layer, cotangents[layer.site], weights, sharing)
        if layer.bias is not None:
            blocks[layer.bias] = _JOINED
    squares = [jnp.zeros_like(leaf) for leaf in read.leaves]
    for index, site in enumerate(read.sites):
        if blocks[site.leaf] is None:
            squares[site.leaf] = squares[site.leaf] + _squares(read, index, cotangents[index])
    which = sorted(index for index in read.unread if blocks[index] is None)
    if which:
        warn_of_rows("squared gradients", roots.shape[1], params, {index: read.unread[index] for index in which})
        for index, square in zip(which, read.by_row(which, _squares_of_row, jnp.swapaxes(roots, 0, 1)), strict=True):
            squares[index] = square
    sums = [Diagonal(square) if block is None else block for block, square in zip(blocks, squares, strict=True)]
    blocks_tree = jax.tree.unflatten(jax.tree.structure(params), sums)
    return jax.tree.map(_part, blocks_tree, is_leaf=_is_part)


# Placeholder for a bias, until the block of its kernel replaces both.
_JOINED = "joined"


def _is_part(node: object) -> bool:
    joined = isinstance(node, dict) and any(part is _JOINED for part in node.values())
    return joined or node is _JOINED or isinstance(node, FactorSums | Diagonal)


def is_sums(node: object) -> bool:
    """Whether a node is the `FactorSums` of a layer."""
    return isinstance(node, FactorSums)


def _part(node: PyTree) -> PyTree:
    return next(part for part in node.values() if part is not _JOINED) if isinstance(node, dict) else node


def views(read: LinearisedNetwork, layer: Layer, cotangents: Array) -> tuple[Array, Array]:
    """Returns a layer's inputs, `[batch, positions, in]`, and cotangents of its outputs."""
    site = read.sites[layer.site]
    step = read.program.steps[site.step]
    split = _of_convolution if step.name == "conv_general_dilated" else _of_product
    dtype = jnp.result_type(read.leaves[layer.kernel].dtype)
    inputs, outputs = split(read, site, layer.site, cotangents)
    return inputs.astype(dtype), outputs.astype(dtype)


def _product(
    read: LinearisedNetwork, layer: Layer, cotangents: Array, weights: Array, sharing: Expand | Reduce
) -> FactorSums:
    inputs, outputs = views(read, layer, cotangents)
    dtype = inputs.dtype
    ranks = outputs.shape[0]
    seen = [sharing.view(inputs, outputs[k]) for k in range(ranks)]
    inputs, outputs = seen[0][0], jnp.stack([view[1] for view in seen])
    rows, reach = inputs.shape[:2]
    if layer.bias is not None:
        inputs = jnp.concatenate([jnp.ones((rows, reach, 1), dtype), inputs], axis=2)
    share = jnp.sqrt(weights / jnp.maximum(jnp.sum(weights), jnp.finfo(weights.dtype).tiny) / reach).astype(dtype)
    a = _gram((inputs * share[:, None, None]).reshape(rows * reach, -1))
    b = _gram(outputs.reshape(ranks * rows * reach, -1))
    # Without a bias an order of outputs and inputs is a product too.
    return FactorSums(a, b, layer.outputs_first, layer.bias is not None and layer.reordered)


def _gram(rows: Array) -> Array:
    return jnp.matmul(rows.T, rows, precision=_EXACT)


def _of_product(read: LinearisedNetwork, site: ParameterUse, index: int, cotangents: Array) -> tuple[Array, Array]:
    """Returns inputs `[batch, positions, in]` and cotangents `[k, batch, positions, out]` of a product."""
    step = read.program.steps[site.step]
    axes, _ = step.equation.params["dimension_numbers"]
    a = read.given(index, step.reads[1 - site.position])
    mine, theirs = axes[site.position], axes[1 - site.position]
    # In the order of the kernel's axes.
    contracted = [theirs[mine.index(axis)] + 1 for axis in sorted(mine)]
    free = [axis for axis in range(1, a.ndim) if axis not in contracted]
    a = a.transpose(0, *free, *contracted)
    count = len(free)
    inputs = a.reshape(a.shape[0], math.prod(a.shape[1 : 1 + count]), math.prod(a.shape[1 + count :]))
    if site.position == 0:  # the kernel's free axes come first in the output
        own = cotangents.ndim - 2 - count
        cotangents = jnp.moveaxis(cotangents, range(2, 2 + own), range(cotangents.ndim - own, cotangents.ndim))
    return inputs, cotangents.reshape(*cotangents.shape[:2], inputs.shape[1], -1)


def _of_convolution(read: LinearisedNetwork, site: ParameterUse, index: int, cotangents: Array) -> tuple[Array, Array]:
    """Returns the same for a convolution, whose inputs are windows."""
    step = read.program.steps[site.step]
    settings = step.equation.params
    lhs, rhs, out = settings["dimension_numbers"]
    images = read.given(index, step.reads[0])
    shape = read.program.avals[site.base].shape
    images = images.transpose(0, *(axis + 1 for axis in lhs))
    cotangents = cotangents.transpose(0, 1, *(axis + 2 for axis in out))
    rows, count, channels = images.shape[:3]  # an example may be several images
    kernel, space = tuple(shape[axis] for axis in rhs[2:]), cotangents.shape[4:]
    seen = windows(images.reshape(rows * count, channels, *images.shape[3:]), kernel, space, settings)
    seen = seen.reshape(rows, count, channels, *kernel, math.prod(space))
    # From channels and window to the order of the kernel's axes.
    order = {axis: 2 + place for place, axis in enumerate(rhs[1:])}
    inner = [order[axis] for axis in places(read.program, site)[0]]
    seen = seen.transpose(0, 1, seen.ndim - 1, *inner)
    inputs = seen.reshape(rows, count * math.prod(space), -1)
    cotangents = jnp.moveaxis(cotangents, 3, cotangents.ndim - 1)
    return inputs, cotangents.reshape(*cotangents.shape[:2], inputs.shape[1], -1)


def _squares(read: LinearisedNetwork, index: int, cotangents: Array) -> Array:
    """Returns the sums of squared gradients of a leaf at one of its uses."""
    ones = jnp.ones(cotangents.shape[1], cotangents.dtype)
    along = lambda cotangent: read.rule(index, cotangent)(ones)[0]
    square = along(cotangents[0]) if cotangents.shape[0] == 1 else jnp.sum(jax.lax.map(along, cotangents), axis=0)
    return read.square_back(index, square)


def _squares_of_row(function: Callable[..., Array], chosen: list[Array], roots: Array) -> list[Array]:
    """Returns the sum of a row's squared gradients along several cotangents."""
    pull = jax.vjp(function, chosen)[1]
    return [jnp.sum(leaf * leaf, axis=0) for leaf in jax.vmap(lambda root: pull(root)[0])(roots)]


def _rows(values: Array, like: Array) -> Array:
    return values.reshape(-1, *[1] * (like.ndim - 1)).astype(like.dtype)
