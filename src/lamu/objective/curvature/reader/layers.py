"""Layers of a linearised network, and the sums of their inputs and outputs as Kronecker factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.objective.curvature.reader.flat_jaxpr import MOVES, FlatJaxpr, Step, warn_of_rows
from lamu.objective.curvature.reader.linearised import LinearisedNetwork
from lamu.objective.curvature.reader.parameter_uses import ParameterUse, windows
from lamu.operators import BlockDiagonal, Diagonal, Kronecker, Operator, OutputEigen, leading
from lamu.operators.kronecker import Expand, Reduce
from lamu.operators.layer_order import LayerOrder
from lamu.record import record, static
from lamu.typing import Array, Number, Params, PyTree

__all__ = [
    "FactorSums",
    "Layer",
    "factor_sums",
    "factors",
    "halved",
    "is_sums",
    "layers",
    "layers_by_name",
    "moved",
    "places",
    "sole_users",
    "views",
]


@dataclass(frozen=True)
class Layer:
    """A kernel, with the bias added to its outputs."""

    kernel: int  # the kernel's leaf
    bias: int | None  # the bias's leaf; None without a bias, or where it is elsewhere in the tree
    site: int  # the kernel's site, an index
    outputs_first: bool  # whether the kernel's coordinates run over the outputs before they run over the inputs

    @property
    def reordered(self) -> bool:
        """Whether the layer's weights, its bias the first input, are stored in another order than `[in, out]`."""
        return self.outputs_first or (self.bias is not None and self.bias > self.kernel)


def layers(read: LinearisedNetwork, params: Params, apart: Sequence[int] = ()) -> list[Layer]:
    """Returns the layers of a network; leaves outside of layers are not included."""
    # A leaf is a kernel if a product (`dot_general`) or a convolution with one group reads it, possibly transposed or
    # reshaped, with its coordinates in the order of inputs and outputs, or of outputs and inputs. A bias belongs to the
    # kernel if the two are the only entries of a dictionary (`{"bias", "kernel"}` of Flax, `{"bias", "weight"}` of
    # PyTorch and Equinox, or other names), and the bias is the first thing added to the product.
    sites_of_leaf: dict[int, list[int]] = {}
    for index, site in enumerate(read.sites):
        sites_of_leaf.setdefault(site.leaf, []).append(index)
    partner = _pairs(params)
    result = []
    for leaf, (index, *others) in sorted(sites_of_leaf.items()):
        order = None if others or leaf in apart else _order(read.program, read.sites[index])
        if order is None:
            continue
        bias = partner.get(leaf)
        joined = bias is not None and bias not in apart and len(sites_of_leaf.get(bias, ())) == 1
        if joined:
            joined = _meets(read.program, read.sites[index], read.sites[sites_of_leaf[bias][0]])  # pyright: ignore[reportArgumentType]
        result.append(Layer(leaf, bias if joined else None, index, order == "outputs"))
    return result


def layers_by_name(read: LinearisedNetwork, params: Params, apart: Sequence[int] = ()) -> list[Layer]:
    """Returns the layers by the names in the tree alone (`lamu.operators.KroneckerBlocks`)."""
    # A bias joins its kernel only where the two have the names `{"bias", "kernel"}`, and the inputs come first.
    named = _pairs(params, by_name=True)
    own = lambda layer: layer.bias is None or (named.get(layer.kernel) == layer.bias and not layer.outputs_first)
    return [layer if own(layer) else replace(layer, bias=None) for layer in layers(read, params, apart)]


def places(program: FlatJaxpr, site: ParameterUse) -> tuple[list[int], list[int]]:
    """Returns the input axes and the output axes of p's value, each in order."""
    equation = program.steps[site.step].equation
    rank = len(program.avals[site.base].shape)
    if equation.primitive.name == "dot_general":
        contracted = equation.params["dimension_numbers"][0][site.position]
        return sorted(contracted), [axis for axis in range(rank) if axis not in contracted]
    out = equation.params["dimension_numbers"].rhs_spec[0]
    return [axis for axis in range(rank) if axis != out], [out]


def _order(program: FlatJaxpr, site: ParameterUse) -> str | None:
    """Returns the first axis of the kernel's coordinates, "inputs" or "outputs"; None for other leaves."""
    step, moves = program.steps[site.step], [program.steps[number] for number in site.single]
    if site.spread or any(move.name not in MOVES for move in moves):
        return None
    if step.name == "dot_general":
        if any(step.equation.params["dimension_numbers"][1]):
            return None
    elif step.name != "conv_general_dilated" or site.position != 1 or _grouped(step.equation.params):
        return None
    shape = program.avals[program.leaves[site.leaf]].shape
    base = moved(program, site.single, np.arange(int(np.prod(shape))).reshape(shape))
    inputs, outputs = places(program, site)
    for name, axes in (("inputs", (*inputs, *outputs)), ("outputs", (*outputs, *inputs))):
        if np.array_equal(base.transpose(axes).ravel(), np.arange(base.size)):
            return name
    return None


def _grouped(settings: dict[str, Any]) -> bool:
    return settings["feature_group_count"] > 1 or settings["batch_group_count"] > 1


def _pairs(params: Params, by_name: bool = False) -> dict[int, int]:
    """Returns each kernel's bias, if the two are the only entries of a dictionary: by their axes, or by their names."""
    entries: dict[tuple[Any, ...], dict[str, tuple[int, int]]] = {}
    for index, (path, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(params)[0]):
        if path and isinstance(path[-1], jax.tree_util.DictKey):
            entries.setdefault(tuple(path[:-1]), {})[str(path[-1].key)] = (index, np.ndim(leaf))
    result = {}
    for names in entries.values():
        if set(names) == {"bias", "kernel"}:
            result[names["kernel"][0]] = names["bias"][0]
        elif len(names) == 2 and not by_name:
            (bias, axes), (kernel, more) = sorted(names.values(), key=lambda each: each[1])
            if axes == 1 and more > 1:
                result[kernel] = bias
    return result


def _meets(program: FlatJaxpr, kernel: ParameterUse, bias: ParameterUse) -> bool:
    """Whether the bias is added directly to the kernel's outputs, one number an output."""
    if program.steps[bias.step].name not in ("add", "add_any"):
        return False
    step = program.steps[kernel.step]
    (place,) = step.writes
    shape = program.avals[place].shape  # pyright: ignore[reportCallIssue, reportArgumentType]
    base = program.avals[kernel.base].shape
    _, outputs = places(program, kernel)
    channels = np.arange(int(np.prod([base[axis] for axis in outputs]))).reshape([base[axis] for axis in outputs])
    if step.name == "conv_general_dilated":
        axis = step.equation.params["dimension_numbers"].out_spec[1]
        channels = channels.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    else:
        rest = [1] * (len(shape) - channels.ndim)
        channels = channels.reshape([*rest, *channels.shape] if kernel.position == 1 else [*channels.shape, *rest])
    channels = np.broadcast_to(channels, shape)
    for user in sole_users(program, place):
        if user == bias.step:
            break
        if program.steps[user].name not in MOVES:
            return False
        channels = moved(program, [user], channels)
    else:
        return False
    size = program.avals[program.leaves[bias.leaf]].shape
    mine = moved(program, (*bias.single, *bias.spread), np.arange(int(np.prod(size))).reshape(size))
    # Additions broadcast axes of length one.
    return mine.ndim == channels.ndim and np.array_equal(np.broadcast_to(mine, channels.shape), channels)


def sole_users(program: FlatJaxpr, place: Any) -> Iterator[int]:
    """Yields the only step that reads a value, the only step that reads its result, and so on to the function's own."""
    while place not in program.outputs:
        users = [number for number, user in enumerate(program.steps) if place in user.reads]
        if len(users) != 1:
            return
        yield users[0]
        place = program.steps[users[0]].writes[0]


def moved(program: FlatJaxpr, numbers: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Returns integers moved as the steps move floating-point numbers."""
    with jax.ensure_compile_time_eval():
        for number in numbers:
            step = program.steps[number]
            (place,) = {read for read in step.reads if read is not None}
            # Casts are skipped, since they would round the integers; other steps that do not only move values give
            # None.
            if step.name == "convert_element_type":
                continue
            by_numpy = _moved_by_numpy(step, values)
            values = np.asarray(step.run({place: jax.numpy.asarray(values)})[0]) if by_numpy is None else by_numpy
    return values


def _moved_by_numpy(step: Step, values: np.ndarray) -> np.ndarray | None:
    """Returns the same for one step in NumPy, without compilation; None for rare steps."""
    settings = step.equation.params
    if step.name == "reshape" and settings["dimensions"] is None:
        return values.reshape(settings["new_sizes"])
    if step.name == "transpose":
        return values.transpose(settings["permutation"])
    if step.name == "squeeze":
        return values.squeeze(tuple(settings["dimensions"]))
    if step.name == "broadcast_in_dim":
        placed = dict(zip(settings["broadcast_dimensions"], values.shape, strict=True))
        sides = [placed.get(axis, 1) for axis in range(len(settings["shape"]))]
        return np.broadcast_to(values.reshape(sides), settings["shape"])
    return None


# A row's gradient in a kernel is \(\sum_p a_{ip} d_{ip}^\top\), with \(a_{ip}\) the kernel's input at position p and
# \(d_{ip}\) the cotangent of its output. The curvature of a layer is approximated by
#
# \[ \sum_i r_i\, \mathrm{vec}(g_i) \mathrm{vec}(g_i)^\top \approx A \otimes B, \qquad
#    A = \frac{1}{R} \sum_i r_i\, \overline{a_i a_i^\top}, \qquad B = \sum_i r_i\, \overline{d_i d_i^\top}, \qquad
#    R = \sum_i r_i \]
#
# which is exact for one row and one position, and where one of the two factors is the same in every row. A is a mean
# and B carries the scale. A bias that is added to a kernel's output is treated as the weights of a constant input one.


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
