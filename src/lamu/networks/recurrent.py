"""Recurrent networks: layers of a cell that runs along a sequence."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.base.compile_once import floating
from lamu.networks.interface import Network
from lamu.networks.multilayer import dense_layer
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, RandomKey, State

__all__ = [
    "GRU",
    "LSTM",
    "EveryStep",
    "LastStep",
    "MeanOfSteps",
    "Readout",
    "RecurrentNetwork",
    "read_out",
    "require_readout",
    "steps_of",
]


class Readout:
    """Base class of the inputs of a sequence network's last layer, for `LSTM(readout=...)`; here all features.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import Readout
        >>> class FirstStep(Readout):
        ...     def read(self, hidden):
        ...         return hidden[:, 0]
        >>> FirstStep().read(jnp.arange(6.0).reshape(1, 3, 2)).tolist()
        [[0.0, 1.0]]
    """

    def at_each(self, outputs: int, steps: int) -> int:
        """Returns the number of outputs of the last layer.

        Args:
            outputs: the number of outputs that the likelihood needs for a row.
            steps: the length of the sequences.
        """
        del steps
        return outputs

    def read(self, hidden: Array) -> Array:
        """Returns the features for the last layer, from `[batch, steps, features]`."""
        return hidden


@record
class LastStep(Readout):
    """Reads the features of the last step, `[batch, features]`, for one prediction a sequence.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import LastStep
        >>> LastStep().read(jnp.arange(6.0).reshape(1, 3, 2)).tolist()
        [[4.0, 5.0]]
    """

    def read(self, hidden: Array) -> Array:
        return hidden[:, -1]


@record
class MeanOfSteps(Readout):
    """Reads the mean of the features over the steps, `[batch, features]`, for one prediction a sequence.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import MeanOfSteps
        >>> MeanOfSteps().read(jnp.arange(6.0).reshape(1, 3, 2)).tolist()
        [[2.0, 3.0]]
    """

    def read(self, hidden: Array) -> Array:
        return jnp.mean(hidden, axis=1)


@record
class EveryStep(Readout):
    """Reads the features of every step, `[batch, steps, features]`, for predictions at each by the same last layer.

    The outputs of a row are flattened step by step, as `likelihoods.PerPosition` expects them.

    Raises:
        ValueError: where the likelihood needs a number of outputs that is not a multiple of the steps.

    Examples:
        >>> from lamu.networks import EveryStep
        >>> EveryStep().at_each(outputs=12, steps=4)
        3
    """

    def at_each(self, outputs: int, steps: int) -> int:
        if outputs % steps:
            raise ValueError(
                f"{outputs} outputs cannot be dealt to {steps} steps; give targets of every step, for instance with "
                f"likelihoods.PerPosition(Categorical(classes), ({steps},)), or readout=LastStep()"
            )
        return outputs // steps


def steps_of(x: Array) -> Array:
    """Returns sequences with an axis of features."""
    if x.ndim not in (2, 3):
        raise ValueError(
            f"inputs of the shape {x.shape} are not sequences; give [batch, steps] or [batch, steps, features]"
        )
    return x if x.ndim == 3 else x[..., None]


def require_readout(readout: Any) -> None:
    """Raises a TypeError for a value that is not a readout."""
    if not isinstance(readout, Readout):
        raise TypeError(f"readout={readout!r} is not a readout; give LastStep(), EveryStep() or MeanOfSteps()")


def read_out(readout: Readout, layer: Params, hidden: Array) -> Array:
    """Returns the outputs of a dense layer on the readout of hidden features, `[batch, outputs]`."""
    features = readout.read(hidden)
    bias = layer["bias"].reshape(*[1] * (features.ndim - 1), -1)
    return (features @ layer["kernel"] + bias).reshape(hidden.shape[0], -1)


_KERNEL, _RECURRENT = jax.nn.initializers.glorot_normal(), jax.nn.initializers.orthogonal()


class RecurrentNetwork(Network):
    """Base class of recurrent networks; a subclass defines one step of its cell."""

    # Inputs are `[batch, steps, features]`, or `[batch, steps]` for sequences of numbers. The contribution of the
    # inputs to all gates is one product for all steps, before the loop.

    widths: tuple[int, ...] | Any  # the number of units of each layer
    readout: Readout | Any  # which steps reach the last layer: `LastStep()`, `EveryStep()` or `MeanOfSteps()`
    gates: int  # the number of gates of a cell, whose kernels are concatenated
    head = "layers/0/*"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        if not self.widths:
            raise ValueError("widths=() holds no layer; give at least one width, for instance (32,)")
        require_readout(self.readout)

    def biases(self, width: int, dtype: DTypeLike) -> dict[str, Array]:
        """Returns the initial biases of a cell, `input` and, where there is one, `recurrent`."""
        return {"input": jnp.zeros(self.gates * width, dtype)}

    def start(self, hidden: Array) -> State:
        """Returns the initial state of a cell, given zeros `[batch, width]` like its outputs."""
        return hidden

    def step(self, cell: Params, memory: State, drive: Array) -> tuple[State, Array]:
        """Returns the new state and the outputs `[batch, width]` of one step."""
        raise NotImplementedError

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for sequences like `x`, and the empty state."""
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
        return {"cells": cells, "layers": {0: dense_layer(_KERNEL, head_key, before, count, dtype)}}, {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
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
        _, outputs = jax.lax.scan(
            lambda memory, inputs: self.step(cell, memory, inputs), start, jnp.moveaxis(drive, 1, 0)
        )
        return jnp.moveaxis(outputs, 0, 1)


@record
@sized
class GRU(RecurrentNetwork):
    r"""A network of gated recurrent units, with a prediction at the last step or at every step.

    \[ \begin{aligned}
        (r, z, n) &= W x_t + b, \qquad (r', z', n') = U h_{t-1}, \\
        \tilde h_t &= \tanh\big(n + \sigma(r + r') \odot (n' + d)\big), \\
        h_t &= \sigma(z + z') \odot h_{t-1} + (1 - \sigma(z + z')) \odot \tilde h_t
    \end{aligned} \]

    Inputs are `[batch, steps, features]`, or `[batch, steps]` for sequences of numbers; codes of tokens go through
    `OneHot`. Parameters of layer i are at `cells/i/input/kernel` (W, `[features, 3 * width]`), `cells/i/input/bias`
    (b), `cells/i/recurrent/kernel` (U, `[width, 3 * width]`) and `cells/i/recurrent/bias` (d, `[width]`), the gates
    side by side in the order reset, update, candidate; those of the last layer at `layers/0/...`. W starts as a Glorot
    normal, U orthogonal, biases at zero.

    Attributes:
        widths: the number of units of each layer.
        readout: which steps reach the last layer: `LastStep()`, `EveryStep()` or `MeanOfSteps()`.

    Raises:
        ValueError: for no width or one that is not a positive integer, inputs that are not sequences, or outputs that
            are not a multiple of the steps.
        TypeError: for a `readout` that is not a `Readout`.

    Source: Cho et al. (2014), with the reset gate after the product as in cuDNN, Flax and PyTorch.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import GRU
        >>> network, x = GRU((8,)), jnp.zeros((2, 5))
        >>> params, state = network.init(jax.random.key(0), x, outputs=1)
        >>> params["cells"][0]["input"]["kernel"].shape, network.apply(params, state, x, None, False)[0].shape
        ((1, 24), (2, 1))
    """

    widths: tuple[int, ...] = static(default=(32,))
    readout: Readout | Any = LastStep()

    gates = 3

    def biases(self, width: int, dtype: DTypeLike) -> dict[str, Array]:
        """Returns zeros."""
        return {"input": jnp.zeros(3 * width, dtype), "recurrent": jnp.zeros(width, dtype)}

    def step(self, cell: Params, memory: State, drive: Array) -> tuple[State, Array]:
        """Returns h, twice."""
        reset, update, candidate = jnp.split(drive, 3, axis=-1)
        again_reset, again_update, again = jnp.split(memory @ cell["recurrent"]["kernel"], 3, axis=-1)
        update_gate = jax.nn.sigmoid(update + again_update)
        gated = jax.nn.sigmoid(reset + again_reset) * (again + cell["recurrent"]["bias"][None])
        h = update_gate * memory + (1.0 - update_gate) * jnp.tanh(candidate + gated)
        return h, h


@record
@sized
class LSTM(RecurrentNetwork):
    r"""A long short-term memory network, with a prediction at the last step or at every step.

    \[ \begin{aligned}
        (i, f, g, o) &= W x_t + U h_{t-1} + b, \\
        c_t &= \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g), \\
        h_t &= \sigma(o) \odot \tanh(c_t)
    \end{aligned} \]

    Inputs are `[batch, steps, features]`, or `[batch, steps]` for sequences of numbers; codes of tokens go through
    `OneHot`. Parameters of layer i are at `cells/i/input/kernel` (W, `[features, 4 * width]`), `cells/i/input/bias` (b)
    and `cells/i/recurrent/kernel` (U, `[width, 4 * width]`), the gates side by side in the order input, forget,
    candidate, output; those of the last layer at `layers/0/...`. W starts as a Glorot normal, U orthogonal, b at zero,
    and at one for the forget gate.

    Attributes:
        widths: the number of units of each layer.
        readout: which steps reach the last layer: `LastStep()`, `EveryStep()` or `MeanOfSteps()`.

    Raises:
        ValueError: for no width or one that is not a positive integer, inputs that are not sequences, or outputs that
            are not a multiple of the steps.
        TypeError: for a `readout` that is not a `Readout`.

    Source: Hochreiter & Schmidhuber (1997), with the forget gate of Gers et al. (2000), whose bias starts at one
    (Jozefowicz et al. 2015).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import LSTM, EveryStep
        >>> network, x = LSTM((8,), readout=EveryStep()), jnp.zeros((2, 5, 3))
        >>> params, state = network.init(jax.random.key(0), x, outputs=5 * 4)
        >>> params["cells"][0]["recurrent"]["kernel"].shape, params["layers"][0]["kernel"].shape
        ((8, 32), (8, 4))
        >>> network.apply(params, state, x, None, False)[0].shape
        (2, 20)
    """

    widths: tuple[int, ...] = static(default=(32,))
    readout: Readout | Any = LastStep()

    gates = 4

    def biases(self, width: int, dtype: DTypeLike) -> dict[str, Array]:
        """Returns zeros, with ones at the forget gate."""
        return {"input": jnp.zeros(4 * width, dtype).at[width : 2 * width].set(1.0)}

    def start(self, hidden: Array) -> State:
        """Returns zeros for h and c."""
        return hidden, hidden

    def step(self, cell: Params, memory: State, drive: Array) -> tuple[State, Array]:
        """Returns (h, c) and h."""
        h, c = memory
        i, f, g, o = jnp.split(drive + h @ cell["recurrent"]["kernel"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
