"""A small network from a vector to an image, by transposed convolutions."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.activations import ACTIVATIONS, initial_weights, require_activation
from lamu.networks.interface import Network
from lamu.networks.multilayer import MLP, floating, require_widths
from lamu.networks.patches import convolve
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["DeconvNet"]


@record
@sized
class DeconvNet(Network):
    r"""A decoder of images: dense layers make a small image, and transposed convolutions of stride two enlarge it.

    \[ h = a(\mathrm{MLP}(x)), \qquad h_{2i + a,\, 2j + b,\, o} \leftarrow
       \sum_{u v c} h_{i + u,\, j + v,\, c}\, K^{(a, b)}_{uvco} + b_o, \quad a, b \in \{0, 1\} \]

    The four kernels \(K^{(a, b)}\) of the pixels that one pixel becomes are the parts of one transposed kernel of twice
    the size. They are one convolution of the small image with four times the features, dealt out to the pixels
    (sub-pixel convolution), a product of patches with a matrix: fast on a CPU inside compiled loops, too. After the
    last enlargement rows and columns beyond the shape are dropped.

    Inputs are vectors `[batch, features]`; the outputs of a row lie side by side, pixel after pixel, as a likelihood of
    images reads them: `outputs` is height times width, or a multiple, the channels. Parameters stand at `layers/j/...`
    (dense) and `convolutions/i/kernel` (`[size, size, in, 4 * out]`), `convolutions/i/bias` (`[out]`).

    Attributes:
        shape: height and width of the images.
        channels: the features of the images that are enlarged, from the smallest; each is doubled in size once.
        widths: the widths of the hidden dense layers.
        kernel: height and width of the kernels.
        activation: "relu", "tanh", "gelu", "silu" or "erf".

    Raises:
        ValueError: for a shape, channels, widths or a kernel that are no positive integers, no channels, an unknown
            activation, or outputs that cannot be dealt to the pixels.

    Source: Shi, Caballero, Theis, Huszár, Aitken, Ledig & Wang (2016), "Is the deconvolution layer the same as a
        convolutional layer?".

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import DeconvNet
        >>> network, z = DeconvNet((28, 28), (16, 8), widths=(64,)), jnp.zeros((2, 10))
        >>> params, state = network.init(jax.random.key(0), z, outputs=784)
        >>> params["convolutions"][1]["kernel"].shape, params["layers"][1]["kernel"].shape
        ((3, 3, 8, 4), (64, 784))
        >>> network.apply(params, state, z, None, False)[0].shape
        (2, 784)
    """

    shape: tuple[int, int] = static()
    channels: tuple[int, ...] = static(default=(32, 16))
    widths: tuple[int, ...] = static(default=(64,))
    kernel: int = static(default=3)
    activation: str = static(default="relu")

    linear = False

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return f"convolutions/{len(self.channels) - 1}/*"

    def __post_init__(self) -> None:
        for name in ("shape", "channels", "widths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(self.shape) != 2:
            raise ValueError(f"shape={self.shape!r} is no height and width; give for instance (28, 28)")
        if not self.channels:
            raise ValueError("channels=() enlarges nothing; give at least one number of features, or take MLP(widths)")
        require_widths((*self.shape, *self.channels, *self.widths))
        if not isinstance(self.kernel, int) or self.kernel < 1:
            raise ValueError(f"a kernel of size {self.kernel!r} cannot be built; give a positive integer")
        require_activation(self.activation)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for vectors like `x`, and the empty state."""
        pixels = math.prod(self.shape)
        if outputs % pixels:
            raise ValueError(
                f"{outputs} outputs cannot be dealt to {self.shape[0]} by {self.shape[1]} pixels; give the network the "
                f"shape of the images, or outputs={pixels}"
            )
        dense_key, *keys = jax.random.split(key, len(self.channels) + 1)
        dtype, draw = floating(x), initial_weights(self.activation)
        dense, _ = self._dense.init(dense_key, x, math.prod(self._small) * self.channels[0])
        convolutions = {}
        features = (*self.channels[1:], outputs // pixels)
        for index, (each, before, after) in enumerate(zip(keys, self.channels, features, strict=True)):
            size = (self.kernel, self.kernel, before, 4 * after)
            convolutions[index] = {"kernel": draw(each, size, dtype), "bias": jnp.zeros(after, dtype)}
        return {**dense, "convolutions": convolutions}, {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns f(x) of shape `[batch, outputs]`, and the state unchanged."""
        act = ACTIVATIONS[self.activation]
        small, _ = self._dense.apply(params, {}, x, None, False)
        hidden = jnp.reshape(small, (x.shape[0], *self._small, self.channels[0]))
        for index in range(len(self.channels)):
            part = params["convolutions"][index]
            hidden = enlarged(convolve(act(hidden), part["kernel"])) + part["bias"][None, None, None]
        return hidden[:, : self.shape[0], : self.shape[1]].reshape(x.shape[0], -1), state

    @property
    def _dense(self) -> MLP:
        return MLP(self.widths, self.activation)

    @property
    def _small(self) -> tuple[int, int]:
        """Height and width of the first image."""
        height, width = (-(-side // 2 ** len(self.channels)) for side in self.shape)
        return height, width


def enlarged(images: Array) -> Array:
    """Returns images of twice the size, whose pixels are dealt out from four groups of features."""
    batch, height, width, features = images.shape
    dealt = images.reshape(batch, height, width, 2, 2, features // 4)
    return jnp.transpose(dealt, (0, 1, 3, 2, 4, 5)).reshape(batch, 2 * height, 2 * width, features // 4)
