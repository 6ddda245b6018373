"""Finds layers: kernels that are used in products, with the biases added to their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lamu.objective.curvature.reader.flat_jaxpr import MOVES, FlatJaxpr, Step
from lamu.objective.curvature.reader.linearised import LinearisedNetwork
from lamu.objective.curvature.reader.parameter_uses import ParameterUse
from lamu.typing import Params

__all__ = ["Layer", "layers", "layers_by_name", "moved", "places", "sole_users"]


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
