"""How a step looks at an image, and how it writes on one: all of it, or a patch that moves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp

from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array

__all__ = ["Attention", "Glimpse", "Whole"]


class Glimpse(ABC):
    """A way to read an image of P pixels and to write on it; where, is told by numbers called controls.

    Attributes:
        controls: how many numbers say where.
    """

    controls: int

    @abstractmethod
    def size(self, pixels: int) -> int:
        """Returns how many numbers are read of an image, and written.

        Args:
            pixels: P.
        """

    @abstractmethod
    def read(self, controls: Array, image: Array) -> Array:
        """Returns what is seen of an image, `[size]`.

        Args:
            controls: where, `[controls]`.
            image: `[P]`.
        """

    @abstractmethod
    def write(self, controls: Array, numbers: Array) -> Array:
        """Returns an image, `[P]`, with numbers written on it.

        Args:
            controls: where, `[controls]`.
            numbers: `[size]`.
        """


@record
class Whole(Glimpse):
    """All of an image at every step.

    Source: Gregor, Danihelka, Graves, Rezende & Wierstra (2015), section 3.1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import Whole
        >>> Whole().read(jnp.zeros(0), jnp.ones(64)).shape
        (64,)
    """

    controls = 0

    def size(self, pixels: int) -> int:
        return pixels

    def read(self, controls: Array, image: Array) -> Array:
        return image

    def write(self, controls: Array, numbers: Array) -> Array:
        return numbers


@record
@sized
class Attention(Glimpse):
    r"""A patch of N × N Gaussian filters, whose centre, stride, width and intensity the controls give.

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
        if not isinstance(self.filters, int) or self.filters < 2:
            raise ValueError(f"filters={self.filters!r} make no patch; give a whole number from 2")
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise ValueError(f"shape={self.shape!r} is no image; give height and width, for instance (28, 28)")

    def size(self, pixels: int) -> int:
        """Returns N².

        Raises:
            ValueError: for images of another number of pixels.
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
            away = jnp.arange(pixels, dtype=controls.dtype)[None, :] - means[:, None]
            return jax.nn.softmax(-(away**2) / (2 * jnp.exp(log_variance)), axis=1)

        return bank(y, height), bank(x, width), jnp.exp(log_intensity)
