r"""MADE: an autoregressive network in one pass, by masks."""

from __future__ import annotations

import math
from typing import Any

from lamu.latent.autoregressive.masked import init_layers, layer_masks, masked_outputs
from lamu.networks.activations import require_activation
from lamu.networks.interface import Network
from lamu.networks.multilayer import floating, require_widths
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["MADE"]


@record
@sized
class MADE(Network):
    r"""A masked network: output d is a function of \(x_1, \dots, x_{d-1}\) alone.

    With the data as its inputs and its targets, a model's likelihood is the exact density of a row,

    \[ \log p(y) = \sum_d \log p(y_d \mid f_d(y_{<d})) \]

    The outputs are `[batch, D * K]`, the K numbers of one input side by side, as `likelihoods.PerPosition` reads them.
    The order is that of the inputs. Parameters stand at `layers/i/kernel` and `layers/i/bias`.

    Attributes:
        widths: the widths of the hidden layers.
        activation: "relu", "tanh", "gelu", "silu" or "erf".

    Raises:
        ValueError: for no hidden layer, a width that is not a positive integer, an unknown activation, or a number of
            outputs that is no multiple of the number of inputs.

    Source: Germain, Gregor, Murray & Larochelle (2015).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import MADE
        >>> made = MADE((8,))
        >>> params, state = made.init(jax.random.key(0), jnp.zeros((1, 3)), outputs=3)
        >>> f = lambda x: made.apply(params, state, x[None], None, False)[0][0]
        >>> (jax.jacobian(f)(jnp.ones(3)) != 0).astype(int)[0].tolist()  # the first output sees nothing
        [0, 0, 0]
    """

    widths: tuple[int, ...] = static(default=(500,))
    activation: str = static(default="relu")

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return f"layers/{len(self.widths)}/*"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        if not self.widths:
            raise ValueError("MADE(()) has no hidden layer to mask; give at least one width, for instance (500,)")
        require_widths(self.widths)
        require_activation(self.activation)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for inputs like `x`, and the empty state."""
        inputs = math.prod(x.shape[1:])
        require_multiple(outputs, inputs, "MADE")
        return {"layers": init_layers(key, (inputs, *self.widths, outputs), self.activation, floating(x))}, {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the outputs `[batch, D * K]`, and the state unchanged."""
        layers = params["layers"]
        inputs, outputs = layers[0]["kernel"].shape[0], layers[len(self.widths)]["bias"].shape[0]
        masks = layer_masks(inputs, self.widths, outputs // inputs)
        flat = x.reshape(x.shape[0], -1).astype(layers[0]["kernel"].dtype)
        return masked_outputs(layers, masks, flat, self.activation), state


def require_multiple(outputs: int, inputs: int, name: str) -> None:
    """Raises a ValueError unless every input has the same number of outputs."""
    if outputs % inputs:
        raise ValueError(
            f"{name} has {inputs} inputs and the likelihood asks for {outputs} outputs, which is no multiple; give the "
            f"data as inputs and as targets, with likelihoods.PerPosition(Bernoulli(), ({inputs},)) for instance"
        )
