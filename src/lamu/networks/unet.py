"""The U-Net, for predictions at every pixel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.convolutional import as_images, convolve
from lamu.networks.interface import Normaliser
from lamu.networks.multilayer import ACTIVATIONS, Normalised, dense_layer, floating, initial_weights
from lamu.networks.normalisation import FilterResponse, NormaliserPass
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["UNet"]


@record
@sized
class UNet(Normalised):
    r"""A U-Net for dense prediction, which combines features of all scales at every pixel.

    \[ d_0 = B_0(x), \quad d_{l} = B_{l}(\mathrm{pool}\, d_{l-1}), \qquad
       u_L = d_L, \quad u_{l} = B'_{l}\big([d_l, \mathrm{up}\, u_{l+1}]\big), \qquad f = W u_0 + b \]

    where a block B is twice a convolution of three by three pixels, a normaliser and the activation, the pooling the
    mean of two by two pixels, and "up" repeats each pixel two by two. W is the same at all pixels. The outputs of a row
    are flattened pixel by pixel, as `likelihoods.PerPosition(Categorical(classes), (height, width))` expects them.

    Parameters are at `down/l/convolutions/j/kernel`, `down/l/norms/j/...`, `up/l/convolutions/j/kernel`,
    `up/l/norms/j/...`, `layers/0/kernel` and `layers/0/bias`; the level l = 0 has the size of the images. Convolutions
    have no bias, and are products of patches with a matrix, which are fast on a CPU also inside compiled loops.

    Attributes:
        channels: the features of each level, from the size of the images to the coarsest.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: the normaliser after a convolution: `FilterResponse()`, which keeps rows independent, or
            `BatchNorm()`.

    Raises:
        ValueError: for fewer than two levels, channels that are not positive integers, an unknown activation, inputs
            that are not images, sizes that cannot be halved at every level, or outputs that are not a multiple of the
            pixels.
        TypeError: for a `normalise` that is not a normaliser.

    Source: Ronneberger, Fischer & Brox (2015), with padded convolutions and without learned upsampling.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import UNet
        >>> network, images = UNet((4, 8)), jnp.zeros((2, 8, 8))
        >>> params, state = network.init(jax.random.key(0), images, outputs=8 * 8 * 3)
        >>> params["up"][0]["convolutions"][0]["kernel"].shape, params["layers"][0]["kernel"].shape
        ((3, 3, 12, 4), (4, 3))
        >>> network.apply(params, state, images, None, False)[0].shape
        (2, 192)
    """

    channels: tuple[int, ...] = static(default=(16, 32, 64))
    activation: str = static(default="silu")
    normalise: Normaliser | Any = FilterResponse()

    linear = False
    head = "layers/0/*"

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        if len(self.channels) < 2:
            raise ValueError(
                f"channels={self.channels} hold no coarser level; give at least two, for instance (16, 32)"
            )
        super().__post_init__()

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for images like `x`, and the normalisers' state, empty where they have none."""
        pixels, dtype, draw = self._pixels(x), floating(x), initial_weights(self.activation)
        if outputs % pixels:
            raise ValueError(
                f"{outputs} outputs cannot be dealt to {pixels} pixels; give targets of every pixel, with "
                f"likelihoods.PerPosition(Categorical(classes), {x.shape[1:3]})"
            )
        head_key, *keys = jax.random.split(key, 1 + len(self._blocks))
        params: Params = {"down": {}, "up": {}}
        state: State = {"down": {}, "up": {}}
        for each, (side, level, before) in zip(keys, self._blocks, strict=True):
            after = self.channels[level]
            sizes = ((before or as_images(x).shape[3], after), (after, after))
            norms = [self.normalise.init(after, dtype) for _ in range(2)]
            params[side][level] = {
                "convolutions": {
                    j: {"kernel": draw(subkey, (3, 3, *size), dtype)}
                    for j, (subkey, size) in enumerate(zip(jax.random.split(each), sizes, strict=True))
                },
                "norms": {j: norm for j, (norm, _) in enumerate(norms)},
            }
            state[side][level] = {j: norm_state for j, (_, norm_state) in enumerate(norms)}
        params["layers"] = {0: dense_layer(draw, head_key, self.channels[0], outputs // pixels, dtype)}
        return params, state if jax.tree.leaves(state) else {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns f(x) of shape `[batch, height * width * classes]`, and the normalisers' new state."""
        self._pixels(x)
        norm = NormaliserPass(self.normalise, state, train, mask)

        def block(side: str, level: int, hidden: Array) -> Array:
            part = params[side][level]
            for j in range(2):
                hidden = norm(part["norms"][j], convolve(hidden, part["convolutions"][j]["kernel"]), side, level, j)
                hidden = ACTIVATIONS[self.activation](hidden)
            return hidden

        layer = params["layers"][0]
        hidden = as_images(x).astype(layer["kernel"].dtype)
        coarsest, skips = len(self.channels) - 1, []
        for level in range(coarsest):
            skips.append(block("down", level, hidden))
            hidden = _halved(skips[-1])
        hidden = block("down", coarsest, hidden)
        for level in reversed(range(coarsest)):
            hidden = block("up", level, jnp.concatenate([skips[level], _doubled(hidden)], axis=3))
        f = hidden @ layer["kernel"] + layer["bias"][None, None, None]
        return f.reshape(x.shape[0], -1), norm.state

    @property
    def _blocks(self) -> list[tuple[str, int, int]]:
        """Side, level and number of input features of each block; zero for the channels of the images."""
        levels = range(len(self.channels))
        down = [("down", level, self.channels[level - 1] if level else 0) for level in levels]
        return down + [("up", level, self.channels[level] + self.channels[level + 1]) for level in levels[:-1]]

    def _pixels(self, x: Array) -> int:
        """Returns the number of pixels of an image."""
        height, width = as_images(x).shape[1:3]
        most = 2 ** (len(self.channels) - 1)
        if height % most or width % most:
            raise ValueError(
                f"images of {height} by {width} pixels cannot be halved {len(self.channels) - 1} times; pad them to "
                f"multiples of {most}, or give fewer levels in channels={self.channels}"
            )
        return height * width


def _halved(images: Array) -> Array:
    """Returns the mean of every two by two pixels."""
    batch, height, width, features = images.shape
    return jnp.mean(images.reshape(batch, height // 2, 2, width // 2, 2, features), axis=(2, 4))


def _doubled(images: Array) -> Array:
    """Repeats every pixel two by two times, by a broadcast."""
    batch, height, width, features = images.shape
    each = jnp.broadcast_to(images[:, :, None, :, None], (batch, height, 2, width, 2, features))
    return each.reshape(batch, 2 * height, 2 * width, features)
