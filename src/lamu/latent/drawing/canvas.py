"""A decoder that writes on a canvas step by step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.latent.drawing.glimpses import Glimpse, Whole
from lamu.networks import LSTM, Network
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["Drawing", "advanced"]

_WHOLE = Whole()


@record
@sized
class Drawing(Network):
    r"""A recurrent network of latents \(z_1, \dots, z_T\) that adds to a canvas at every step.

    \[ h_t = \mathrm{LSTM}(h_{t-1}, z_t), \qquad c_t = c_{t-1} + \mathrm{write}(W h_t + b), \qquad f = c_T \]

    Inputs are `[batch, T, latents]`. What h says of where to write comes last in \(W h_t + b\), after what is written
    and before where to read, which the local `Recurrent` asks for.

    Attributes:
        hidden: the width of h.
        write: `Whole()` or `Attention(filters, shape)`.
        read: how the local of the same model looks at images, whose controls are a part of h's outputs.

    Raises:
        ValueError: for a width that is no positive number.

    Source: Gregor, Danihelka, Graves, Rezende & Wierstra (2015), equations 7 and 8.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Drawing
        >>> network, z = Drawing(16), jnp.zeros((2, 4, 3))
        >>> params, state = network.init(jax.random.key(0), z, outputs=64)
        >>> network.apply(params, state, z, None, False)[0].shape
        (2, 64)
        >>> network.canvases(params, z[0], 64).shape
        (4, 64)
    """

    hidden: int = static(default=100)
    write: Glimpse = _WHOLE
    read: Glimpse = _WHOLE

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, int) or self.hidden < 1:
            raise ValueError(f"hidden={self.hidden!r} is no width; give a whole number from 1")

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh weights of the cell and of its outputs, and the first canvas.

        Raises:
            ValueError: for inputs that are no sequence of latents.
        """
        if x.ndim != 3:
            raise ValueError(f"a Drawing reads latents [T, latents] of a row, and was given {x.shape[1:]}")
        numbers = self.write.size(outputs) + self.write.controls + self.read.controls
        params, state = LSTM((self.hidden,)).init(key, x, numbers)
        return {**params, "canvas": jnp.zeros(outputs, x.dtype)}, state

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the last canvases."""
        return jax.vmap(lambda z: self.canvases(params, z, params["canvas"].size)[-1])(x), state

    def first(self, params: Params) -> tuple[Any, Array]:
        """Returns what is remembered before the first step, and the first canvas.

        Args:
            params: the weights.
        """
        h = jnp.zeros(self.hidden, params["canvas"].dtype)
        return (h, h), params["canvas"]

    def drawn(self, params: Params, memory: Any, canvas: Array, z: Array) -> tuple[Any, Array]:
        """Returns memory and canvas after a step.

        Args:
            params: the weights.
            memory: what is remembered.
            canvas: `[P]`.
            z: the step's latents.
        """
        memory = advanced(LSTM((self.hidden,)), params, memory, z)
        size = self.write.size(canvas.size)
        outputs = _outputs(params, memory)
        return memory, canvas + self.write.write(outputs[size : size + self.write.controls], outputs[:size])

    def where_to_read(self, params: Params, memory: Any) -> Array:
        """Returns the controls of reading, which h gives.

        Args:
            params: the weights.
            memory: what is remembered.
        """
        outputs = _outputs(params, memory)
        return outputs[outputs.size - self.read.controls :]

    def canvases(self, params: Params, z: Array, pixels: int) -> Array:
        """Returns the canvas after every step, `[T, P]`, for pictures.

        Args:
            params: the weights.
            z: `[T, latents]`.
            pixels: P.
        """

        def step(carry: Any, z: Array) -> tuple[Any, Array]:
            memory, canvas = carry
            carry = self.drawn(params, memory, canvas, z)
            return carry, carry[1]

        return jax.lax.scan(step, self.first(params), z)[1].reshape(-1, pixels)


def advanced(cell: LSTM, params: Params, memory: Any, x: Array) -> Any:
    """Returns what a cell remembers after one input of one row."""
    weights = params["cells"][0]
    return cell.step(weights, memory, x @ weights["input"]["kernel"] + weights["input"]["bias"])[0]


def _outputs(params: Params, memory: Any) -> Array:
    layer = params["layers"][0]
    return memory[0] @ layer["kernel"] + layer["bias"]
