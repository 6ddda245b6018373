"""Kronecker factors of a curvature from one backward pass."""

# A row's gradient in a kernel is \(\sum_p a_{ip} d_{ip}^\top\), with \(a_{ip}\) what the kernel is multiplied with at
# position p and \(d_{ip}\) the cotangent of what comes out. The curvature of a layer is then taken to be
#
# \[ \sum_i r_i\, \mathrm{vec}(g_i) \mathrm{vec}(g_i)^\top \approx A \otimes B, \qquad
#    A = \frac{1}{R} \sum_i r_i\, \overline{a_i a_i^\top}, \qquad B = \sum_i r_i\, \overline{d_i d_i^\top}, \qquad
#    R = \sum_i r_i \]
#
# exactly, where there is one row and one position, or where one of the two factors is the same in every row. A is a
# mean and B carries the scale. A bias that is added to a kernel's output joins it as the input that is always one.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.flat_jaxpr import warn_of_rows
from lamu.objective.curvature.reader.layers import Layer, layers_by_name, places
from lamu.objective.curvature.reader.linearised import Linearised, linearise
from lamu.objective.curvature.reader.parameter_uses import Site, windows
from lamu.objective.curvature.reader.per_example_squares import contribution, in_chunks
from lamu.operators import BlockDiagonal, Diagonal, Kronecker
from lamu.operators.kronecker import Expand, Reduce, Sharing
from lamu.operators.layer_order import LayerOrder
from lamu.typing import Array, Params

__all__ = ["Expand", "Reduce", "Sharing", "factors", "kronecker_factors", "views"]

# Accelerators shorten the factors of a float32 product unless told not to, and a factor would not be positive.
_EXACT = jax.lax.Precision.HIGHEST


EXPANDED = Expand()


def kronecker_factors(
    loss: Any, params: Params, examples: Any, weights: Array, sharing: Sharing = EXPANDED
) -> tuple[Array, Params, BlockDiagonal]:
    """Returns the weighted sum of single losses, its gradient, and the Kronecker factors of the empirical Fisher."""
    weights = jnp.asarray(weights)
    read = linearise(loss, params, without_padding(examples, weights))
    gradient, cotangents = read.pull(weights.astype(read.outputs.dtype))
    value = jnp.sum(read.outputs * weights.astype(read.outputs.dtype))
    roots = halved(weights.astype(read.outputs.dtype), weights)[None]
    known = layers_by_name(read, params)
    found = factors(read, params, roots, [halved(c, weights)[None] for c in cotangents], weights, known, sharing)
    return value, jax.tree.unflatten(jax.tree.structure(params), gradient), found


def without_padding(examples: Any, weights: Array) -> Any:
    """Returns the examples with a real one in the place of each whose weight is zero: what stands there may be NaN."""
    real = jnp.where(weights == 0, jnp.argmax(weights != 0), jnp.arange(weights.shape[0]))
    return jax.tree.map(lambda leaf: leaf[real], examples)


def halved(cotangents: Array, weights: Array) -> Array:
    r"""Returns \(\sqrt{r_i} d_i\) of cotangents \(r_i d_i\): their squares carry the weight once."""
    root = jnp.where(weights == 0, jnp.zeros_like(weights), jax.lax.rsqrt(jnp.where(weights == 0, 1, weights)))
    return cotangents * _rows(root, cotangents)


def factors(
    read: Linearised,
    params: Params,
    roots: Array,
    cotangents: Sequence[Array],
    weights: Array,
    known: Sequence[Layer],
    sharing: Sharing = EXPANDED,
) -> BlockDiagonal:
    r"""Returns the blocks of \(\sum_i \sum_k J_i^\top v_{ik} v_{ik}^\top J_i\)."""
    blocks: list[Any] = [None] * len(read.leaves)
    for layer in known:
        blocks[layer.kernel] = _product(read, layer, cotangents[layer.site], weights, sharing)
        if layer.bias is not None:
            blocks[layer.bias] = _JOINED
    squares = [jnp.zeros_like(leaf) for leaf in read.leaves]
    for index, site in enumerate(read.sites):
        if blocks[site.leaf] is None:
            squares[site.leaf] = squares[site.leaf] + _squares(read, index, cotangents[index])
    which = sorted(index for index in read.unread if blocks[index] is None)
    if which:
        for index, square in zip(which, _row_by_row(read, params, roots, which), strict=True):
            squares[index] = square
    found = [Diagonal(square) if block is None else block for block, square in zip(blocks, squares, strict=True)]
    whole = jax.tree.unflatten(jax.tree.structure(params), found)
    return BlockDiagonal(jax.tree.map(_part, whole, is_leaf=_is_part))


# Stands where a bias is, until the block of its kernel takes the place of both.
_JOINED = "joined"


def _is_part(node: Any) -> bool:
    joined = isinstance(node, dict) and any(part is _JOINED for part in node.values())
    return joined or node is _JOINED or isinstance(node, Kronecker | Diagonal | LayerOrder)


def _part(node: Any) -> Any:
    return next(part for part in node.values() if part is not _JOINED) if isinstance(node, dict) else node


def views(read: Linearised, layer: Layer, cotangents: Array) -> tuple[Array, Array]:
    """Returns what a layer takes in, `[batch, positions, in]`, and cotangents of what it gives."""
    site = read.sites[layer.site]
    step = read.program.steps[site.step]
    split = _of_convolution if step.name == "conv_general_dilated" else _of_product
    dtype = jnp.result_type(read.leaves[layer.kernel].dtype)
    inputs, outputs = split(read, site, layer.site, cotangents)
    return inputs.astype(dtype), outputs.astype(dtype)


def _product(
    read: Linearised, layer: Layer, cotangents: Array, weights: Array, sharing: Sharing
) -> Kronecker | LayerOrder:
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
    if layer.bias is None:  # an order of outputs and inputs is a product too
        return Kronecker(b, a, jnp.zeros((), dtype)) if layer.outputs_first else Kronecker(a, b, jnp.zeros((), dtype))
    product = Kronecker(a, b, jnp.zeros((), dtype))
    return LayerOrder(product, layer.outputs_first) if layer.reordered else product


def _gram(rows: Array) -> Array:
    return jnp.matmul(rows.T, rows, precision=_EXACT)


def _of_product(read: Linearised, site: Site, index: int, cotangents: Array) -> tuple[Array, Array]:
    """Returns inputs `[batch, positions, in]` and cotangents `[k, batch, positions, out]` of a product."""
    step = read.program.steps[site.step]
    axes, _ = step.equation.params["dimension_numbers"]
    a = _read(read, index, step.reads[1 - site.position], cotangents.shape[1])
    mine, theirs = axes[site.position], axes[1 - site.position]
    # In the order of the kernel's axes.
    contracted = [theirs[mine.index(axis)] + 1 for axis in sorted(mine)]
    free = [axis for axis in range(1, a.ndim) if axis not in contracted]
    a = a.transpose(0, *free, *contracted)
    count = len(free)
    inputs = a.reshape(a.shape[0], _size(a.shape[1 : 1 + count]), _size(a.shape[1 + count :]))
    if site.position == 0:  # the kernel's free axes come first in what comes out
        own = cotangents.ndim - 2 - count
        cotangents = jnp.moveaxis(cotangents, range(2, 2 + own), range(cotangents.ndim - own, cotangents.ndim))
    return inputs, cotangents.reshape(*cotangents.shape[:2], inputs.shape[1], -1)


def _of_convolution(read: Linearised, site: Site, index: int, cotangents: Array) -> tuple[Array, Array]:
    """Returns the same for a convolution, whose inputs are windows."""
    step = read.program.steps[site.step]
    settings = step.equation.params
    lhs, rhs, out = settings["dimension_numbers"]
    images = _read(read, index, step.reads[0], cotangents.shape[1])
    shape = read.program.avals[site.base].shape
    images = images.transpose(0, *(axis + 1 for axis in lhs))
    cotangents = cotangents.transpose(0, 1, *(axis + 2 for axis in out))
    rows, count, channels = images.shape[:3]  # an example may be several images
    kernel, space = tuple(shape[axis] for axis in rhs[2:]), cotangents.shape[4:]
    seen = windows(images.reshape(rows * count, channels, *images.shape[3:]), kernel, space, settings)
    seen = seen.reshape(rows, count, channels, *kernel, _size(space))
    # From channels and window to the order of the kernel's axes.
    order = {axis: 2 + place for place, axis in enumerate(rhs[1:])}
    inner = [order[axis] for axis in places(read.program, site)[0]]
    seen = seen.transpose(0, 1, seen.ndim - 1, *inner)
    inputs = seen.reshape(rows, count * _size(space), -1)
    cotangents = jnp.moveaxis(cotangents, 3, cotangents.ndim - 1)
    return inputs, cotangents.reshape(*cotangents.shape[:2], inputs.shape[1], -1)


def _read(read: Linearised, index: int, place: Any, batch: int) -> Array:
    """What the site reads beside the kernel; the same in every row where no example has a part in it."""
    given = read.inputs[index]
    if place in given:
        return given[place]
    return jnp.broadcast_to(read.held[place], (batch, *read.held[place].shape))


def _squares(read: Linearised, index: int, cotangents: Array) -> Array:
    """Returns the sums of squares of a leaf at one of its sites."""
    site = read.sites[index]
    leaf, held = read.leaves[site.leaf], read.held
    ones = jnp.ones(cotangents.shape[1], cotangents.dtype)

    def one(cotangent: Array) -> Array:
        rule = contribution(read.program, site, held[site.base], held, read.inputs[index], cotangent)
        return rule(ones)[0]

    square = one(cotangents[0]) if cotangents.shape[0] == 1 else jnp.sum(jax.lax.map(one, cotangents), axis=0)
    return site.back(read.program, square, site.slope(read.program, leaf, held), leaf, held)


def _row_by_row(read: Linearised, params: Params, roots: Array, which: list[int]) -> list[Array]:
    """Returns the sums of squares of some leaves by one backward pass a row."""
    warn_of_rows("squared gradients", roots.shape[1], params, {index: read.unread[index] for index in which})

    def at(chosen: list[Array], row: list[Array]) -> Array:
        whole = list(read.leaves)
        for index, leaf in zip(which, chosen, strict=True):
            whole[index] = leaf
        return read.one(whole, row)

    def single(row: tuple[list[Array], Array]) -> list[Array]:
        inputs, root = row
        # A random layer's key is meant to be the same as in the pass of the whole batch.
        inputs = [
            jax.random.wrap_key_data(new, impl=jax.random.key_impl(old)) if _is_key(old) else new
            for new, old in zip(inputs, read.rows, strict=True)
        ]
        pull = jax.vjp(lambda chosen: at(chosen, inputs), [read.leaves[index] for index in which])[1]
        pulled = jax.vmap(lambda v: pull(v)[0])(root)
        return [jnp.sum(leaf * leaf, axis=0) for leaf in pulled]

    def some(rows: tuple[list[Array], Array]) -> list[Array]:
        return [jnp.sum(leaf, axis=0) for leaf in jax.vmap(single)(rows)]

    # A CPU gains nothing from several at once, an accelerator does.
    chunk = 1 if jax.default_backend() == "cpu" else 16
    rows = [jax.random.key_data(jax.random.clone(row)) if _is_key(row) else row for row in read.rows]
    return in_chunks(some, (rows, jnp.swapaxes(roots, 0, 1)), chunk)


def _rows(values: Array, like: Array) -> Array:
    return values.reshape(-1, *[1] * (like.ndim - 1)).astype(like.dtype)


def _is_key(row: Array) -> bool:
    return jnp.issubdtype(row.dtype, jax.dtypes.prng_key)


def _size(shape: Sequence[int]) -> int:
    return math.prod(shape)
