r"""NADE: an autoregressive network whose hidden units are shared between conditionals."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.latent.autoregressive.made import require_multiple
from lamu.networks.interface import Network
from lamu.networks.multilayer import floating, require_widths
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["NADE"]


@record
@sized
class NADE(Network):
    r"""The neural autoregressive distribution estimator.

    \[ h_d = \sigma\big(c + \textstyle\sum_{e<d} W_{e} x_e\big), \qquad f_d = b_d + V_d h_d \]

    Each conditional has hidden units of its own, whose sums before the activation grow by one input at a time: a row
    costs O(D H). With the data as inputs and targets a model's likelihood is the exact density of a row, as with
    `MADE`. Parameters stand at `input` W `[D, H]`, `hidden` c `[H]`, `output` V `[D, H, K]` and `bias` b `[D, K]`.

    Attributes:
        width: H, how many hidden units.

    Raises:
        ValueError: for a width that is not a positive integer, or a number of outputs that is no multiple of the
            number of inputs.

    Source: Larochelle & Murray (2011), equations 3 and 4.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import NADE
        >>> nade = NADE(8)
        >>> params, state = nade.init(jax.random.key(0), jnp.zeros((1, 3)), outputs=3)
        >>> f = lambda x: nade.apply(params, state, x[None], None, False)[0][0]
        >>> (jax.jacobian(f)(jnp.ones(3)) != 0).astype(int).tolist()
        [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    """

    width: int = static(default=500)

    head = "output"

    def __post_init__(self) -> None:
        require_widths((self.width,))

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for inputs like `x`, and the empty state."""
        inputs, dtype = math.prod(x.shape[1:]), floating(x)
        require_multiple(outputs, inputs, "NADE")
        into, out = jax.random.split(key)
        draw = jax.nn.initializers.glorot_normal()
        output = draw(out, (self.width, outputs), dtype).reshape(self.width, inputs, -1)
        params = {
            "input": draw(into, (inputs, self.width), dtype),
            "hidden": jnp.zeros(self.width, dtype),
            "output": jnp.swapaxes(output, 0, 1),
            "bias": jnp.zeros((inputs, outputs // inputs), dtype),
        }
        return params, {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the outputs `[batch, D * K]`, and the state unchanged."""
        flat = x.reshape(x.shape[0], -1).astype(params["hidden"].dtype)

        def one(total: Array, of_input: Any) -> tuple[Array, Array]:
            value, weights, output, bias = of_input
            f = jnp.matmul(jax.nn.sigmoid(total), output) + bias[None, :]
            return total + value[:, None] * weights[None, :], f

        first = jnp.broadcast_to(params["hidden"][None, :], (flat.shape[0], self.width))
        _, outputs = jax.lax.scan(one, first, (flat.T, params["input"], params["output"], params["bias"]))
        return jnp.swapaxes(outputs, 0, 1).reshape(flat.shape[0], -1), state
