"""The gated recurrent unit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.readouts import LastStep, Readout
from lamu.networks.recurrent import Recurrent
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params

__all__ = ["GRU"]


@record
@sized
class GRU(Recurrent):
    r"""A network of gated recurrent units: sequence in, a prediction at the last step or at every step out.

    \[ \begin{aligned}
        (r, z, n) &= W x_t + b, \qquad (r', z', n') = U h_{t-1}, \\
        \tilde h_t &= \tanh\big(n + \sigma(r + r') \odot (n' + d)\big), \\
        h_t &= \sigma(z + z') \odot h_{t-1} + (1 - \sigma(z + z')) \odot \tilde h_t
    \end{aligned} \]

    Inputs are `[batch, steps, features]`, or `[batch, steps]` for sequences of numbers; codes of tokens go through
    `OneHot`. Parameters of layer i stand at `cells/i/input/kernel` (W, `[features, 3 * width]`), `cells/i/input/bias`
    (b), `cells/i/recurrent/kernel` (U, `[width, 3 * width]`) and `cells/i/recurrent/bias` (d, `[width]`), the gates
    side by side in the order reset, update, candidate; those of the last layer at `layers/0/...`. W starts as a Glorot
    normal, U orthogonal, biases at zero.

    Attributes:
        widths: how many units each layer remembers.
        readout: which steps reach the last layer: `LastStep()`, `EveryStep()` or `MeanOfSteps()`.

    Raises:
        ValueError: for no width or one that is not a positive integer, inputs that are no sequences, or outputs that
            cannot be dealt to every step.
        TypeError: for a `readout` that is none.

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

    def biases(self, width: int, dtype: Any) -> dict[str, Array]:
        """Returns zeros."""
        return {"input": jnp.zeros(3 * width, dtype), "recurrent": jnp.zeros(width, dtype)}

    def start(self, hidden: Array) -> Any:
        """Returns zeros for h."""
        return hidden

    def step(self, cell: Params, memory: Any, drive: Array) -> tuple[Any, Array]:
        """Returns h, twice."""
        reset, update, candidate = jnp.split(drive, 3, axis=-1)
        again_reset, again_update, again = jnp.split(memory @ cell["recurrent"]["kernel"], 3, axis=-1)
        kept = jax.nn.sigmoid(update + again_update)
        gated = jax.nn.sigmoid(reset + again_reset) * (again + cell["recurrent"]["bias"][None])
        h = kept * memory + (1.0 - kept) * jnp.tanh(candidate + gated)
        return h, h
