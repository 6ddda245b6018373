"""Images drawn step by step: a recurrent decoder, and how it reads an image and writes on it."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.networks import LSTM, Network
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["Attention", "Drawing", "Glimpse", "Whole"]


class Glimpse:
    """A way to read an image of P pixels and to write on it; numbers called controls say where.

    The base class reads the whole image.

    Attributes:
        controls: number of controls.

    Examples:
        >>> from lamu.latent import Glimpse
        >>> Glimpse().size(64)
        64
    """

    controls: int = 0

    def size(self, pixels: int) -> int:
        """Returns how many numbers are read from an image, and written.

        Args:
            pixels: P.
        """
        return pixels

    def read(self, controls: Array, image: Array) -> Array:
        """Returns the reading of an image, `[size]`.

        Args:
            controls: where, `[controls]`.
            image: `[P]`.
        """
        return image

    def write(self, controls: Array, numbers: Array) -> Array:
        """Returns an image, `[P]`, with numbers written on it.

        Args:
            controls: where, `[controls]`.
            numbers: `[size]`.
        """
        return numbers


@record
class Whole(Glimpse):
    """Reads and writes the whole image at every step.

    Source: Gregor, Danihelka, Graves, Rezende & Wierstra (2015), section 3.1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import Whole
        >>> Whole().read(jnp.zeros(0), jnp.ones(64)).shape
        (64,)
    """


@record
@sized
class Attention(Glimpse):
    r"""A patch of N × N Gaussian filters, with centre, stride, width and intensity from the controls.

    \[ g_X = \tfrac{A + 1}2 (\tilde g_X + 1), \quad g_Y = \tfrac{B + 1}2 (\tilde g_Y + 1), \quad
       \delta = \tfrac{\max(A, B) - 1}{N - 1}\, \tilde\delta, \qquad
       \mu_X^i = g_X + (i - \tfrac N2 - \tfrac12)\, \delta \]
    \[ F_X[i, a] = \tfrac1{Z_X} e^{-(a - \mu_X^i)^2 / 2\sigma^2}, \qquad
       \mathrm{read} = \gamma F_Y\, x\, F_X^\top, \qquad \mathrm{write} = \tfrac1\gamma F_Y^\top w F_X \]

    The controls are \((\tilde g_X, \tilde g_Y, \log\sigma^2, \log\tilde\delta, \log\gamma)\); at zero the patch covers
    the image.

    Attributes:
        filters: N.
        shape: (B, A), height and width of the image.

    Raises:
        ValueError: for fewer than two filters a side, or an image without pixels.

    Source: Gregor, Danihelka, Graves, Rezende & Wierstra (2015), equations 19 to 29.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import Attention
        >>> glimpse = Attention(3, (8, 8))
        >>> glimpse.read(jnp.zeros(5), jnp.ones(64)).shape, glimpse.write(jnp.zeros(5), jnp.ones(9)).shape
        ((9,), (64,))
    """

    filters: int = static()
    shape: tuple[int, int] = static()

    controls = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.filters < 2:
            raise ValueError(f"filters={self.filters!r} must be a whole number from 2")
        if len(self.shape) != 2:
            raise ValueError(f"shape={self.shape!r} is not an image; give height and width, for instance (28, 28)")

    def size(self, pixels: int) -> int:
        """Returns N².

        Raises:
            ValueError: for images with another number of pixels.
        """
        if math.prod(self.shape) != pixels:
            raise ValueError(f"images have {pixels} pixels, and shape={self.shape!r} has {math.prod(self.shape)}")
        return self.filters**2

    def read(self, controls: Array, image: Array) -> Array:
        """Returns the patch, times γ."""
        rows, columns, intensity = self._filters(controls)
        return (intensity * (rows @ image.reshape(self.shape) @ columns.T)).reshape(-1)

    def write(self, controls: Array, numbers: Array) -> Array:
        """Returns the image of a patch, over γ."""
        rows, columns, intensity = self._filters(controls)
        patch = numbers.reshape(self.filters, self.filters)
        return (rows.T @ patch @ columns / intensity).reshape(-1)

    def _filters(self, controls: Array) -> tuple[Array, Array, Array]:
        """Returns F_Y `[N, B]`, F_X `[N, A]` and γ."""
        x, y, log_variance, log_stride, log_intensity = controls
        height, width = self.shape
        stride = (max(self.shape) - 1) / (self.filters - 1) * jnp.exp(log_stride)
        offsets = (jnp.arange(self.filters, dtype=controls.dtype) - self.filters / 2 + 0.5) * stride

        def bank(centre: Array, pixels: int) -> Array:
            means = (pixels + 1) / 2 * (centre + 1) - 1 + offsets
            distance = jnp.arange(pixels, dtype=controls.dtype)[None, :] - means[:, None]
            return jax.nn.softmax(-(distance**2) / (2 * jnp.exp(log_variance)), axis=1)

        return bank(y, height), bank(x, width), jnp.exp(log_intensity)


_WHOLE = Whole()


@record
@sized
class Drawing(Network):
    r"""A recurrent network of latents \(z_1, \dots, z_T\) that adds to a canvas at every step.

    \[ h_t = \mathrm{LSTM}(h_{t-1}, z_t), \qquad c_t = c_{t-1} + \mathrm{write}(W h_t + b), \qquad f = c_T \]

    Inputs are `[batch, T, latents]`. The controls for writing are last in \(W h_t + b\), after the written numbers
    and before the controls for reading, which the local `Recurrent` uses.

    Attributes:
        hidden: the width of h.
        write: `Whole()` or `Attention(filters, shape)`.
        read: how the local of the same model reads images; its controls are part of h's outputs.

    Raises:
        ValueError: for a width that is not a positive number.

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

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial weights of the cell and of its outputs, and the first canvas.

        Raises:
            ValueError: for inputs that are not a sequence of latents.
        """
        if x.ndim != 3:
            raise ValueError(f"a Drawing reads latents [T, latents] of a row, and was given {x.shape[1:]}")
        numbers = self.write.size(outputs) + self.write.controls + self.read.controls
        params, state = LSTM((self.hidden,)).init(key, x, numbers)
        return {**params, "canvas": jnp.zeros(outputs, x.dtype)}, state

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the last canvases."""
        return jax.vmap(lambda z: self.canvases(params, z, params["canvas"].size)[-1])(x), state

    def first(self, params: Params) -> tuple[State, Array]:
        """Returns the memory before the first step, and the first canvas.

        Args:
            params: the weights.
        """
        h = jnp.zeros(self.hidden, params["canvas"].dtype)
        return (h, h), params["canvas"]

    def draw_step(self, params: Params, memory: State, canvas: Array, z: Array) -> tuple[State, Array]:
        """Returns memory and canvas after a step.

        Args:
            params: the weights.
            memory: the cell's state.
            canvas: `[P]`.
            z: the step's latents.
        """
        memory = lstm_step(LSTM((self.hidden,)), params, memory, z)
        size = self.write.size(canvas.size)
        outputs = _outputs(params, memory)
        return memory, canvas + self.write.write(outputs[size : size + self.write.controls], outputs[:size])

    def read_controls(self, params: Params, memory: State) -> Array:
        """Returns the controls for reading, from h.

        Args:
            params: the weights.
            memory: the cell's state.
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

        def step(carry: tuple[State, Array], z: Array) -> tuple[State, Array]:
            memory, canvas = carry
            carry = self.draw_step(params, memory, canvas, z)
            return carry, carry[1]

        return jax.lax.scan(step, self.first(params), z)[1].reshape(-1, pixels)


def lstm_step(cell: LSTM, params: Params, memory: State, x: Array) -> State:
    """Returns a cell's state after one input of one row."""
    weights = params["cells"][0]
    return cell.step(weights, memory, x @ weights["input"]["kernel"] + weights["input"]["bias"])[0]


def _outputs(params: Params, memory: State) -> Array:
    layer = params["layers"][0]
    return memory[0] @ layer["kernel"] + layer["bias"]
