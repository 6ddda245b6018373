"""The long short-term memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.readouts import LastStep, Readout
from lamu.networks.recurrent import Recurrent
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params

__all__ = ["LSTM"]


@record
@sized
class LSTM(Recurrent):
    r"""A long short-term memory: sequence in, a prediction at the last step or at every step out.

    \[ \begin{aligned}
        (i, f, g, o) &= W x_t + U h_{t-1} + b, \\
        c_t &= \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g), \\
        h_t &= \sigma(o) \odot \tanh(c_t)
    \end{aligned} \]

    Inputs are `[batch, steps, features]`, or `[batch, steps]` for sequences of numbers; codes of tokens go through
    `OneHot`. Parameters of layer i stand at `cells/i/input/kernel` (W, `[features, 4 * width]`), `cells/i/input/bias`
    (b) and `cells/i/recurrent/kernel` (U, `[width, 4 * width]`), the gates side by side in the order input, forget,
    candidate, output; those of the last layer at `layers/0/...`. W starts as a Glorot normal, U orthogonal, b at zero
    but for one at the forget gate.

    Attributes:
        widths: how many units each layer remembers.
        readout: which steps reach the last layer: `LastStep()`, `EveryStep()` or `MeanOfSteps()`.

    Raises:
        ValueError: for no width or one that is not a positive integer, inputs that are no sequences, or outputs that
            cannot be dealt to every step.
        TypeError: for a `readout` that is none.

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

    def biases(self, width: int, dtype: Any) -> dict[str, Array]:
        """Returns zeros, with ones at the forget gate."""
        return {"input": jnp.zeros(4 * width, dtype).at[width : 2 * width].set(1.0)}

    def start(self, hidden: Array) -> Any:
        """Returns zeros for h and c."""
        return hidden, hidden

    def step(self, cell: Params, memory: Any, drive: Array) -> tuple[Any, Array]:
        """Returns (h, c) and h."""
        h, c = memory
        i, f, g, o = jnp.split(drive + h @ cell["recurrent"]["kernel"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
