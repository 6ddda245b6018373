"""A small convolutional network for images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.activations import ACTIVATIONS, initial_weights, require_activation
from lamu.networks.dropout import require_noise
from lamu.networks.interface import Network, Normaliser
from lamu.networks.multilayer import MLP, floating, require_normaliser, require_widths
from lamu.networks.patches import convolve
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["ConvNet"]


@record
@sized
class ConvNet(Network):
    r"""A convolutional network: blocks of a convolution, an activation and a pooling, then dense layers.

    \[ h \leftarrow \mathrm{pool}\big(a(\mathrm{norm}_i(K_i * h + b_i))\big), \qquad f(x) = \mathrm{MLP}(h) \]

    Images are `[batch, height, width]` or `[batch, height, width, channels]`. A convolution keeps their size; the
    pooling takes the largest of every two by two pixels and drops an odd edge. Parameters stand at
    `convolutions/i/kernel` (`[height, width, in, out]`), `convolutions/i/bias`, `layers/j/kernel` and `layers/j/bias`.
    With a normaliser a convolution has no bias, and parameters and state stand at `norms/i/...`; the dense layers are
    not normalised. Kernels and biases start as those of `MLP`.

    A convolution is a product of patches with a matrix, fast on a CPU inside compiled loops, too; its memory is the
    kernel's area times that of the images.

    Attributes:
        channels: how many features each convolution has.
        widths: the widths of the hidden dense layers.
        kernel: height and width of the kernels.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: what stands between convolution and activation, for instance `BatchNorm()`; None for nothing.
        dropout: noise on the units of the hidden dense layers, as `MLP` takes it; None for nothing.

    Raises:
        ValueError: for a width, a number of channels or a kernel that is not a positive integer, an unknown
            activation, inputs that are no images, or images too small for that many poolings.
        TypeError: for a `normalise` that is no normaliser, or a `dropout` that is no noise.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import ConvNet
        >>> network, images = ConvNet((4, 8), widths=(16,)), jnp.zeros((2, 8, 8))
        >>> params, state = network.init(jax.random.key(0), images, outputs=10)
        >>> params["convolutions"][1]["kernel"].shape, params["layers"][0]["kernel"].shape
        ((3, 3, 4, 8), (32, 16))
        >>> network.apply(params, state, images, None, False)[0].shape
        (2, 10)
    """

    channels: tuple[int, ...] = static(default=(16, 32))
    widths: tuple[int, ...] = static(default=(64,))
    kernel: int = static(default=3)
    activation: str = static(default="relu")
    normalise: Normaliser | Any = None
    dropout: Any = None

    linear = False

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return self._dense.head

    @property
    def masked(self) -> bool:
        """Whether rows meet, so that it matters which are padding."""
        return self.normalise is not None and self.normalise.masked

    def __post_init__(self) -> None:
        for name in ("channels", "widths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require_widths((*self.channels, *self.widths))
        if not isinstance(self.kernel, int) or self.kernel < 1:
            raise ValueError(f"a kernel of size {self.kernel!r} cannot be built; give a positive integer")
        require_activation(self.activation)
        require_normaliser(self.normalise)
        require_noise(self.dropout)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for images like `x`, and the normalisers' state; empty where there is none."""
        height, width, channels = self._shape(x)
        dense_key, *keys = jax.random.split(key, len(self.channels) + 1)
        dtype, draw = floating(x), initial_weights(self.activation)
        convolutions, norms, state = {}, {}, {}
        for index, (each, features) in enumerate(zip(keys, self.channels, strict=True)):
            convolutions[index] = {"kernel": draw(each, (self.kernel, self.kernel, channels, features), dtype)}
            if self.normalise is None:
                convolutions[index]["bias"] = jnp.zeros(features, dtype)
            else:
                norms[index], state[index] = self.normalise.init(features, dtype)
            height, width, channels = height // 2, width // 2, features
        dense, _ = self._dense.init(dense_key, jnp.zeros((1, height * width * channels), dtype), outputs)
        params = {"convolutions": convolutions, **dense}
        return (params, {}) if self.normalise is None else ({**params, "norms": norms}, {"norms": state})

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns f(x) of shape `[batch, outputs]`, and the normalisers' new state."""
        hidden = x.reshape(x.shape[0], *self._shape(x)).astype(params["layers"][0]["kernel"].dtype)
        norms = {}
        for index in range(len(self.channels)):
            part = params["convolutions"][index]
            if part["kernel"].shape[2] != hidden.shape[3]:
                raise ValueError(
                    f"images have {hidden.shape[3]} channels, the network was made for {part['kernel'].shape[2]}"
                )
            hidden = convolve(hidden, part["kernel"])
            if self.normalise is None:
                hidden = hidden + part["bias"][None, None, None]
            else:
                norm, before = params["norms"][index], state["norms"][index]
                hidden, norms[index] = self.normalise.apply(norm, before, hidden, train, mask)
            hidden = _pool(ACTIVATIONS[self.activation](hidden))
        f, _ = self._dense.apply(params, {}, hidden, key, train)
        return f, state if self.normalise is None else {"norms": norms}

    @property
    def _dense(self) -> MLP:
        return MLP(self.widths, self.activation, dropout=self.dropout)

    def _shape(self, x: Array) -> tuple[int, int, int]:
        """Returns height, width and channels of one image."""
        if x.ndim not in (3, 4):
            raise ValueError(
                f"inputs of the shape {x.shape} are no images; give [batch, height, width] or "
                "[batch, height, width, channels]"
            )
        height, width, channels = (*x.shape[1:], 1)[:3]
        least = 2 ** len(self.channels)
        if min(height, width) < least:
            raise ValueError(
                f"images of {height} by {width} pixels are too small for {len(self.channels)} poolings; they need "
                f"{least} by {least}, or fewer channels={self.channels}"
            )
        return height, width, channels


def _pool(x: Array) -> Array:
    """Returns the largest of every two by two pixels, as two rounds of the larger of two."""
    # The slope of `jnp.max` asks which entries equal the result. A compiler that computes the entries twice may round
    # them differently, and then none does: gradients were wrong in single weights. A comparison always has a winner.
    batch, height, width, features = x.shape
    even = x[:, : height // 2 * 2, : width // 2 * 2].reshape(batch, height // 2, 2, width // 2, 2, features)
    rows = _larger(even[:, :, 0], even[:, :, 1])
    return _larger(rows[:, :, :, 0], rows[:, :, :, 1])


def _larger(a: Array, b: Array) -> Array:
    return jnp.where((a > b) | jnp.isnan(a), a, b)  # what is no number stays seen
