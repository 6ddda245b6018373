"""Recurrent layers: one scan over time a layer and direction; and their cells, one step of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.torch.mode import Mode
from lamu.networks.torch.operators.noise import dropped
from lamu.typing import Array

__all__ = ["CELLS", "RECURRENT"]

Cell = Callable[[tuple[Array, ...], Array, Array, Any], tuple[Array, ...]]


def _lstm_cell(carry: tuple[Array, ...], drive: Array, recurrent: Array, bias: Any) -> tuple[Array, ...]:
    hidden, memory = carry
    i, f, g, o = jnp.split(drive + hidden @ recurrent.T + bias, 4, axis=-1)
    memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(memory), memory


def _gru_cell(carry: tuple[Array, ...], drive: Array, recurrent: Array, bias: Any) -> tuple[Array, ...]:
    (hidden,) = carry
    (r, z, n), (hr, hz, hn) = (jnp.split(each, 3, axis=-1) for each in (drive, hidden @ recurrent.T + bias))
    update = jax.nn.sigmoid(z + hz)
    new = jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn)
    return ((1 - update) * new + update * hidden,)


def _elman_cell(activation: Callable[[Array], Array]) -> Cell:
    def cell(carry: tuple[Array, ...], drive: Array, recurrent: Array, bias: Any) -> tuple[Array, ...]:
        return (activation(drive + carry[0] @ recurrent.T + bias),)

    return cell


def _direction(cell: Cell, x: Array, start: tuple[Array, ...], weights: Sequence[Array], reverse: bool) -> Any:
    """Returns the hidden states `[time, batch, units]` and the last carry."""
    inputs, recurrent, *biases = weights
    drive = x @ inputs.T + (biases[0] if biases else 0)  # for all times in one product
    bias = biases[1] if biases else 0

    def step(carry: tuple[Array, ...], drive: Array) -> tuple[tuple[Array, ...], Array]:
        carry = cell(carry, drive, recurrent, bias)
        return carry, carry[0]

    last, hidden = jax.lax.scan(step, start, drive, reverse=reverse)
    return hidden, last


def _layers(
    mode: Mode,
    cell: Cell,
    x: Array,
    start: tuple[Array, ...],
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Array, list[Array]]:
    x = jnp.swapaxes(x, 0, 1) if batch_first else x
    directions, size = 1 + bidirectional, 4 if has_biases else 2
    if len(params) != size * directions * num_layers:
        raise TypeError("a recurrent layer with projections (proj_size) is not read; leave proj_size out")
    lasts = []
    for layer in range(num_layers):
        if layer:
            x = dropped(mode.at(layer), x, dropout)
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = params[index * size : (index + 1) * size]
            begin = tuple(each[index] for each in start)
            hidden, last = _direction(cell, x, begin, weights, reverse=direction == 1)
            outputs.append(hidden)
            lasts.append(last)
        x = jnp.concatenate(outputs, axis=-1)
    final = [jnp.stack(each) for each in zip(*lasts, strict=True)]
    return (jnp.swapaxes(x, 0, 1) if batch_first else x), final


def _lstm(
    mode: Mode,
    x: Array,
    start: Sequence[Array],
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, dict[int, Array]]:
    f, final = _layers(
        mode, _lstm_cell, x, tuple(start), params, has_biases, num_layers, dropout, bidirectional, batch_first
    )
    return (f, *final), {}


def _recurrent(cell: Cell) -> Callable[..., Any]:
    def layer(
        mode: Mode,
        x: Array,
        start: Array,
        params: Sequence[Array],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, dict[int, Array]]:
        f, final = _layers(mode, cell, x, (start,), params, has_biases, num_layers, dropout, bidirectional, batch_first)
        return (f, *final), {}

    return layer


def _one_step(cell: Cell) -> Callable[..., tuple[Array, ...]]:
    def step(
        x: Array,
        carry: tuple[Array, ...],
        inputs: Array,
        recurrent: Array,
        input_bias: Array | None = None,
        bias: Array | None = None,
    ) -> tuple[Array, ...]:
        drive = x @ inputs.T + (0 if input_bias is None else input_bias)
        return cell(carry, drive, recurrent, 0 if bias is None else bias)

    return step


def _one_step_of_one(cell: Cell) -> Callable[..., Array]:
    return lambda x, hidden, *weights: _one_step(cell)(x, (hidden,), *weights)[0]


CELLS: dict[str, Callable[..., Any]] = {
    "lstm_cell": lambda x, carry, *weights: _one_step(_lstm_cell)(x, tuple(carry), *weights),
    "gru_cell": _one_step_of_one(_gru_cell),
    "rnn_tanh_cell": _one_step_of_one(_elman_cell(jnp.tanh)),
    "rnn_relu_cell": _one_step_of_one(_elman_cell(jax.nn.relu)),
}
RECURRENT: dict[str, Callable[..., Any]] = {
    "lstm": _lstm,
    "gru": _recurrent(_gru_cell),
    "rnn_tanh": _recurrent(_elman_cell(jnp.tanh)),
    "rnn_relu": _recurrent(_elman_cell(jax.nn.relu)),
}
