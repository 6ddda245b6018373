"""Recurrent networks: a cell that is run along a sequence, layer above layer."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.interface import Network
from lamu.networks.multilayer import floating, require_widths
from lamu.networks.readouts import Readout, read_out, require_readout, steps_of
from lamu.typing import Array, Params, RandomKey

__all__ = ["Recurrent"]

_KERNEL, _RECURRENT = jax.nn.initializers.glorot_normal(), jax.nn.initializers.orthogonal()


class Recurrent(Network):
    """A network that reads sequences step by step and remembers; a subclass says what one step of its cell does."""

    # Inputs are `[batch, steps, features]`, or `[batch, steps]` for sequences of numbers. The share of the inputs in
    # all gates is one product for all steps, before the loop.

    widths: tuple[int, ...] | Any  # how many units each layer remembers
    readout: Readout | Any  # which steps reach the last layer: `LastStep()`, `EveryStep()` or `MeanOfSteps()`
    gates: int  # how many gates a cell has; their kernels lie side by side
    linear = False
    head = "layers/0/*"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        require_widths(self.widths)
        if not self.widths:
            raise ValueError("widths=() holds no layer; give at least one width, for instance (32,)")
        require_readout(self.readout)

    @abstractmethod
    def biases(self, width: int, dtype: Any) -> dict[str, Array]:
        """Returns the initial biases of a cell, `input` and, where it has one of its own, `recurrent`."""

    @abstractmethod
    def start(self, hidden: Array) -> Any:
        """Returns what a cell remembers at the beginning, for zeros `[batch, width]` like its outputs."""

    @abstractmethod
    def step(self, cell: Params, memory: Any, drive: Array) -> tuple[Any, Array]:
        """Returns the new memory and the outputs `[batch, width]` of one step."""

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for sequences like `x`, and the empty state."""
        x, dtype = steps_of(x), floating(x)
        head_key, *keys = jax.random.split(key, 1 + len(self.widths))
        cells, before = {}, x.shape[2]
        for index, (each, width) in enumerate(zip(keys, self.widths, strict=True)):
            inputs, recurrent = jax.random.split(each)
            cells[index] = {
                "input": {"kernel": _KERNEL(inputs, (before, self.gates * width), dtype)},
                "recurrent": {"kernel": _RECURRENT(recurrent, (width, self.gates * width), dtype)},
            }
            for name, bias in self.biases(width, dtype).items():
                cells[index][name]["bias"] = bias
            before = width
        count = self.readout.at_each(outputs, x.shape[1])
        layer = {"kernel": _KERNEL(head_key, (before, count), dtype), "bias": jnp.zeros(count, dtype)}
        return {"cells": cells, "layers": {0: layer}}, {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns f(x) of shape `[batch, outputs]`, and the state unchanged."""
        kernel = params["cells"][0]["input"]["kernel"]
        hidden = steps_of(x).astype(kernel.dtype)
        if hidden.shape[2] != kernel.shape[0]:
            raise ValueError(
                f"sequences have {hidden.shape[2]} features a step, the network was made for {kernel.shape[0]}"
            )
        for index in range(len(self.widths)):
            hidden = self._run(params["cells"][index], hidden)
        return read_out(self.readout, params["layers"][0], hidden), state

    def _run(self, cell: Params, hidden: Array) -> Array:
        """Returns a cell's outputs at every step, `[batch, steps, width]`."""
        drive = hidden @ cell["input"]["kernel"] + cell["input"]["bias"][None, None]
        width = cell["recurrent"]["kernel"].shape[0]
        start = self.start(jnp.zeros((hidden.shape[0], width), hidden.dtype))
        _, outputs = jax.lax.scan(lambda memory, at: self.step(cell, memory, at), start, jnp.moveaxis(drive, 1, 0))
        return jnp.moveaxis(outputs, 0, 1)
