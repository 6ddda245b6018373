r"""Sums over rows and their gradients, accumulated over chunks of rows: \(\sum_i m_i w_i \log p(y_i \mid \theta)\)."""

# The memory of a full-batch gradient grows with the rows, and beyond the cache it is slow. Accumulated over chunks,
# each with its own gradient, the sum takes the memory of one chunk and no further operations: unlike with
# rematerialisation nothing is computed twice.

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.compile_once import once_a_shape
from lamu.data.batch import Batch
from lamu.model import Model
from lamu.networks import draws_noise
from lamu.target import Target
from lamu.typing import Array, Inputs, Params, PyTree, RandomKey, State

__all__ = ["in_chunks", "num_chunks", "sum_over_chunks", "sum_over_row_chunks"]

# Two chains of a small ConvNet on 2,000 images took 316 ms a gradient in one part and 136 ms in parts of this size. A
# gradient on 50 images through a ResNet-20 took 952 ms in one part, 480 in 4 and 268 in 25; a perceptron's time hardly
# depends on the parts. Accelerators need large batches and have no such cache.
_CACHE_BYTES = {"cpu": 2**24}
_CACHE_BYTES_ELSEWHERE = 2**29
_STEPS_A_LAYER = 4  # values per unit that a layer stores: input, output, normalised and activated


def num_chunks(
    model: Target,
    batch: Batch,
    network_state: State,
    params: Params,
    runs: int = 1,
    key: RandomKey | None = None,
    train: bool = False,
    looped: bool = False,
) -> int:
    """Returns the number of chunks of a batch, so that a gradient of one chunk fits in the cache."""
    # One part for networks whose rows mix in training, that sample noise for all rows together, or that are slow in a
    # compiled loop (`lamu.networks.scan_friendly`). Only shapes are traced, and nothing where weights and rows are few.
    if not isinstance(model, Model):
        return 1
    network, room = model.network, _CACHE_BYTES.get(jax.default_backend(), _CACHE_BYTES_ELSEWHERE)
    rows_interact = train and (bool(jax.tree.leaves(network_state)) or network.masked)
    looked_up = network.codes is ... or not jnp.issubdtype(batch.x.dtype, jnp.floating)
    if (
        batch.mask.shape[0] == 1
        or network.linear
        or rows_interact
        or runs * _bytes_bound(batch, params, looked_up) < room
    ):
        return 1
    if not looped and not model.scan_friendly(batch):
        return 1
    row_bytes, random = _row_bytes(model, batch, network_state, params, key, train)
    return 1 if random else min(batch.mask.shape[0], max(1, math.ceil(runs * row_bytes / room)))


Part: TypeAlias = Callable[[Params, State, Batch, Array], tuple[Array, State]]


def sum_over_chunks(function: Part, params: Params, state: State, batch: Batch, parts: int) -> tuple[Array, State]:
    """Returns the sum over a batch's chunks of a function of parameters, state, rows and number; and the state."""
    # The gradient is accumulated chunk by chunk, and each chunk gets the state of the previous one.
    pieces = (in_chunks(batch, parts), jnp.arange(parts, dtype=jnp.int32))
    return _differentiable_sum(function, params, state, pieces)


def in_chunks(batch: Batch, parts: int) -> Batch:
    """Returns a batch in chunks, along a leading axis."""
    # Consecutive rows of a part are `parts` rows apart, so that each of several devices has its share of every part.
    # The last rows are padding and masked.
    size = math.ceil(batch.mask.shape[0] / parts)
    return _chunked(batch.padded(size * parts), parts)


def sum_over_row_chunks(function: Callable[..., PyTree], rows: Inputs, weights: Array, parts: int) -> PyTree:
    """Returns the sum over chunks of a function of a chunk's rows and their weights."""
    if parts == 1:
        return function(rows, weights)
    count = weights.shape[0]
    extra = math.ceil(count / parts) * parts - count
    longer = lambda leaf: jnp.concatenate([leaf, jnp.broadcast_to(leaf[:1], (extra, *leaf.shape[1:]))])
    padded_weights = jnp.concatenate([weights, jnp.zeros(extra, weights.dtype)])
    of_part = lambda params, state, some: (function(*some), state)
    return _sum_by_scan(of_part, None, {}, _chunked((jax.tree.map(longer, rows), padded_weights), parts))[0]


def _chunked(rows: PyTree, parts: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(-1, parts, *leaf.shape[1:]), 1, 0), rows)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _differentiable_sum(function: Part, params: Params, state: State, pieces: PyTree) -> tuple[Array, State]:
    return _sum_by_scan(lambda params, state, piece: function(params, state, *piece), params, state, pieces)


@partial(_differentiable_sum.defjvp, symbolic_zeros=True)
def _differentiable_sum_jvp(function: Part, primals: PyTree, tangents: PyTree) -> tuple[PyTree, PyTree]:
    """Returns the sum and its tangent, which is linear in the parameters' tangents, so that JAX can transpose it."""
    (params, state, pieces), (direction, _, of_rows) = primals, tangents
    is_zero = lambda leaf: isinstance(leaf, jax.custom_derivatives.SymbolicZero)
    if not all(map(is_zero, jax.tree.leaves(of_rows, is_leaf=is_zero))):
        raise TypeError("a loss over chunks has no derivative in its rows; differentiate on fewer rows at a time")

    def of_part(params: Params, state: State, piece: PyTree) -> tuple[PyTree, State]:
        (value, state), gradient = jax.value_and_grad(function, has_aux=True)(params, state, *piece)
        return (value, gradient), state

    (value, gradient), state = _sum_by_scan(of_part, params, state, pieces)
    moving = [
        jnp.sum(slope * towards).astype(value.dtype)
        for slope, towards in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction, is_leaf=is_zero), strict=True)
        if not is_zero(towards)
    ]
    # No gradient flows through a network's state, as in one pass of all rows, where the new state is an auxiliary
    # output.
    return (value, state), (sum(moving, jnp.zeros_like(value)), jax.tree.map(_no_slope, state))


def _no_slope(leaf: Array) -> Any:
    floating = jnp.issubdtype(leaf.dtype, jnp.inexact)
    return jnp.zeros_like(leaf) if floating else np.zeros(leaf.shape, jax.dtypes.float0)


def _sum_by_scan(
    function: Callable[[Params, State, PyTree], tuple[PyTree, State]], params: Params, state: State, pieces: PyTree
) -> tuple[PyTree, State]:
    shapes = jax.eval_shape(function, params, state, jax.tree.map(lambda leaf: leaf[0], pieces))[0]
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def add(carry: tuple[PyTree, State], piece: PyTree) -> tuple[tuple[PyTree, State], None]:
        part, state = function(params, carry[1], piece)
        return (jax.tree.map(jnp.add, carry[0], part), state), None

    return jax.lax.scan(add, (nothing, state), pieces)[0]


def _bytes_bound(batch: Batch, params: Params, looked_up: bool) -> int:
    """Returns an upper bound of the bytes of common layers, from the inputs and outputs of weights."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(params)]
    convolves, x = any(len(shape) > 3 for shape in shapes), batch.x
    if convolves:
        places = math.prod(x.shape[1:3])
    else:  # sequences, vectors, or codes of an embedding
        places = math.prod(x.shape[1 : x.ndim if looked_up else x.ndim - 1])
    values = sum(
        (math.prod(shape[:-1]) + shape[-1]) * (places if not convolves or len(shape) > 3 else 1)
        for shape in shapes
        if shape
    )
    return 4 * batch.mask.shape[0] * values * _STEPS_A_LAYER


@once_a_shape
def _row_bytes(
    model: Model, batch: Batch, network_state: State, params: Params, key: RandomKey | None, train: bool
) -> tuple[int, bool]:
    """Returns the bytes that further rows add to the memory of a gradient, and whether noise is drawn."""
    # The residuals of the forward pass, without the rows themselves: 0.6 to 1.2 times the memory of the compiled
    # gradients of perceptrons, a ConvNet and a ResNet-20, without compiling them.

    def kept(rows: int) -> int:
        def pulled_back(params: Params, state: State, batch: Batch, key: RandomKey | None) -> PyTree:
            total = lambda params: batch.total(model.log_likelihood(params, state, batch, key, train)[0])
            return jax.vjp(total, params)[1]

        some = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), batch)
        return memory.bytes_of(jax.eval_shape(pulled_back, params, network_state, some, key)) - memory.bytes_of(some)

    weights = model.complete(params["network"])
    random = key is not None and draws_noise(model.network, weights, network_state, batch.x, train)
    return max(kept(batch.mask.shape[0]) - kept(1), 0), random
