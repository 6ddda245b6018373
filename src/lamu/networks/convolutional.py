"""Convolutional networks for images: a small one, and a U-Net."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxprs_in_params

from lamu.base.arguments import sized
from lamu.base.compile_once import floating, once_a_shape
from lamu.networks.interface import Network, Normaliser
from lamu.networks.interface import outputs as outputs_of
from lamu.networks.multilayer import (
    ACTIVATIONS,
    MLP,
    Normalised,
    dense_layer,
    initial_weights,
    require_activation,
)
from lamu.networks.normalisation import FilterResponse, NormaliserPass, UnitNoise, require_noise
from lamu.record import record, static
from lamu.typing import Array, Inputs, Params, PyTree, RandomKey, State

__all__ = ["ConvNet", "DeconvNet", "UNet", "as_images", "convolve", "holds_convolutions", "scan_friendly"]


@once_a_shape
def holds_convolutions(network: Network, x: Inputs, outputs: int) -> bool:
    """Whether a network uses the compiler's convolution, `jax.lax.conv_general_dilated`.

    On a CPU its gradient is many times slower inside a compiled loop, and it has no fast form under `vmap`. The
    built-in `ConvNet` uses matrix products instead. Only shapes are traced: nothing is computed.

    Args:
        network: the network.
        x: inputs `[batch, ...]`, or their `jax.ShapeDtypeStruct`.
        outputs: the output width.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import ConvNet, holds_convolutions
        >>> holds_convolutions(ConvNet(), jnp.zeros((1, 8, 8)), outputs=10)
        False
    """
    x = jax.ShapeDtypeStruct(x.shape, x.dtype)
    key = jax.eval_shape(lambda: jax.random.key(0))
    mask = jax.ShapeDtypeStruct(x.shape[:1], x.dtype)
    params, state = jax.eval_shape(lambda key, x: network.init(key, x, outputs), key, x)

    def train(params: Params, state: State, x: Array, key: PyTree, mask: Array) -> tuple[Array, State]:
        return outputs_of(network, params, state, x, key, True, mask)

    jaxpr = jax.make_jaxpr(train)(params, state, x, key, mask)
    return any(name == "conv_general_dilated" for name in _primitives(jaxpr.jaxpr))


def scan_friendly(network: Network, x: Inputs, outputs: int) -> bool:
    """Whether a gradient of the network is fast inside a compiled loop, and under `vmap` over parameters.

    Convolutions on a CPU are not (8 to 25 times slower, as measured): such networks are run step by step, and the
    members of an ensemble one after the other.

    Args:
        network: the network.
        x: inputs `[batch, ...]`, or their `jax.ShapeDtypeStruct`.
        outputs: the output width.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import MLP, scan_friendly
        >>> scan_friendly(MLP((8,)), jnp.zeros((1, 3)), outputs=1)
        True
    """
    return jax.default_backend() != "cpu" or not holds_convolutions(network, x, outputs)


def _primitives(jaxpr: Jaxpr) -> Iterator[str]:
    """Yields the names of all primitives of a program, including nested ones."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from _primitives(inner)


# \[ y_{nijo} = \sum_{a b c} x_{n,\, i + a,\, j + b,\, c}\, K_{abco} \]
#
# is one product of the matrix of all patches with the kernel as a matrix. On a CPU the gradient of a convolution is
# many times slower inside a compiled loop than outside; that of a product is not, a product under `vmap` is a product
# again, and it is supported by every mode of differentiation and every reader of a jaxpr. The cost is memory: the
# patches are as large as the images times the area of the kernel.


def as_images(x: Array) -> Array:
    """Returns images with an axis of channels, `[batch, height, width, channels]`."""
    if x.ndim not in (3, 4):
        raise ValueError(
            f"inputs of the shape {x.shape} are not images; give [batch, height, width] or "
            "[batch, height, width, channels]"
        )
    if x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[2] == x.shape[3] > 4:
        raise ValueError(
            f"inputs of the shape {x.shape} look like images with the channels first; give "
            "[batch, height, width, channels], for instance np.moveaxis(x, 1, -1)"
        )
    return x if x.ndim == 4 else x[..., None]


def convolve(images: Array, kernel: Array, stride: int = 1, padding: str = "SAME") -> Array:
    """Returns the images convolved with a kernel."""
    # `padding`: "SAME" for zeros around the images, which keep their size, or "VALID" for none.
    batch, height, width, _ = images.shape
    tall, wide, channels, features = kernel.shape
    lost = (0, 0) if padding == "SAME" else (tall - 1, wide - 1)
    rows, columns = -(-(height - lost[0]) // stride), -(-(width - lost[1]) // stride)
    missing = [
        max((count - 1) * stride + size - total, 0)
        for count, size, total in ((rows, tall, height), (columns, wide, width))
    ]
    padded = jnp.pad(images, ((0, 0), *((each // 2, each - each // 2) for each in missing), (0, 0)))
    reach = [(count - 1) * stride + 1 for count in (rows, columns)]
    offsets = [
        padded[:, a : a + reach[0] : stride, b : b + reach[1] : stride] for a in range(tall) for b in range(wide)
    ]
    patches = jnp.stack(offsets, axis=3).reshape(-1, tall * wide * channels)
    return (patches @ kernel.reshape(-1, features)).reshape(batch, rows, columns, features)


@record
@sized
class ConvNet(Normalised):
    r"""A convolutional network: blocks of a convolution, an activation and a pooling, then dense layers.

    \[ h \leftarrow \mathrm{pool}\big(a(\mathrm{norm}_i(K_i * h + b_i))\big), \qquad f(x) = \mathrm{MLP}(h) \]

    Images are `[batch, height, width]` or `[batch, height, width, channels]`. A convolution keeps their size; the
    pooling takes the maximum of two by two pixels and drops an odd edge. Parameters are at `convolutions/i/kernel`
    (`[height, width, in, out]`), `convolutions/i/bias`, `layers/j/kernel` and `layers/j/bias`. With a normaliser a
    convolution has no bias, and parameters and state are at `norms/i/...`; the dense layers are not normalised. Kernels
    and biases are initialised as in `MLP`.

    A convolution is a product of patches with a matrix, which is fast on a CPU also inside compiled loops; its memory
    is the kernel's area times that of the images.

    Attributes:
        channels: the number of features of each convolution.
        widths: the widths of the hidden dense layers.
        kernel: height and width of the kernels.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: the normaliser between convolution and activation, for instance `BatchNorm()`; None for none.
        dropout: noise on the units of the hidden dense layers, as in `MLP`; None for none.

    Raises:
        ValueError: for a width, a number of channels or a kernel that is not a positive integer, an unknown activation,
            inputs that are not images, or images too small for the number of poolings.
        TypeError: for a `normalise` that is not a normaliser, or a `dropout` that is not unit noise.

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
    dropout: UnitNoise | Any = None

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return self._dense.head

    def __post_init__(self) -> None:
        for name in ("channels", "widths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        super().__post_init__()
        require_noise(self.dropout)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for images like `x`, and the normalisers' state; empty where there is none."""
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
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns f(x) of shape `[batch, outputs]`, and the normalisers' new state."""
        hidden = x.reshape(x.shape[0], *self._shape(x)).astype(params["layers"][0]["kernel"].dtype)
        norm = NormaliserPass(self.normalise, state, train, mask)
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
                hidden = norm(params["norms"][index], hidden, "norms", index)
            hidden = _pool(ACTIVATIONS[self.activation](hidden))
        f, _ = self._dense.apply(params, {}, hidden, key, train)
        return f, norm.state

    @property
    def _dense(self) -> MLP:
        return MLP(self.widths, self.activation, dropout=self.dropout)

    def _shape(self, x: Array) -> tuple[int, int, int]:
        """Returns height, width and channels of one image."""
        height, width, channels = as_images(x).shape[1:]
        least = 2 ** len(self.channels)
        if min(height, width) < least:
            raise ValueError(
                f"images of {height} by {width} pixels are too small for {len(self.channels)} poolings; they need "
                f"{least} by {least}, or fewer channels={self.channels}"
            )
        return height, width, channels


def _pool(x: Array) -> Array:
    """Returns the maximum of every two by two pixels, by two pairwise maxima."""
    # The gradient of `jnp.max` tests which entries equal the result. A compiler that computes the entries twice may
    # round them differently, so that none does: gradients were wrong in single weights. A comparison has no such case.
    batch, height, width, features = x.shape
    even = x[:, : height // 2 * 2, : width // 2 * 2].reshape(batch, height // 2, 2, width // 2, 2, features)
    rows = _larger(even[:, :, 0], even[:, :, 1])
    return _larger(rows[:, :, :, 0], rows[:, :, :, 1])


def _larger(a: Array, b: Array) -> Array:
    return jnp.where((a > b) | jnp.isnan(a), a, b)  # NaN propagates


@record
@sized
class DeconvNet(Network):
    r"""A decoder of images: dense layers followed by transposed convolutions of stride two.

    \[ h = a(\mathrm{MLP}(x)), \qquad h_{2i + a,\, 2j + b,\, o} \leftarrow
       \sum_{u v c} h_{i + u,\, j + v,\, c}\, K^{(a, b)}_{uvco} + b_o, \quad a, b \in \{0, 1\} \]

    The four kernels \(K^{(a, b)}\) of the pixels that one pixel becomes are the parts of one transposed kernel of twice
    the size. They are computed as one convolution of the small image with four times the features, rearranged to pixels
    (sub-pixel convolution): a product of patches with a matrix, which is fast on a CPU also inside compiled loops.
    After the last enlargement rows and columns beyond the shape are dropped.

    Inputs are vectors `[batch, features]`; the outputs of a row are flattened pixel by pixel, as a likelihood of images
    expects them: `outputs` is height times width, times the number of channels. Parameters are at `layers/j/...`
    (dense) and `convolutions/i/kernel` (`[size, size, in, 4 * out]`), `convolutions/i/bias` (`[out]`).

    Attributes:
        shape: height and width of the images.
        channels: the features of the images before each enlargement, from the smallest image.
        widths: the widths of the hidden dense layers.
        kernel: height and width of the kernels.
        activation: "relu", "tanh", "gelu", "silu" or "erf".

    Raises:
        ValueError: for a shape, channels, widths or a kernel that are not positive integers, no channels, an unknown
            activation, or outputs that are not a multiple of the pixels.

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

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return f"convolutions/{len(self.channels) - 1}/*"

    def __post_init__(self) -> None:
        for name in ("shape", "channels", "widths"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(self.shape) != 2:
            raise ValueError(f"shape={self.shape!r} is not a height and width; give for instance (28, 28)")
        if not self.channels:
            raise ValueError("channels=() has no layer; give at least one number of features, or take MLP(widths)")
        require_activation(self.activation)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for vectors like `x`, and the empty state."""
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
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
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
        """Returns height and width of the first image."""
        height, width = (-(-side // 2 ** len(self.channels)) for side in self.shape)
        return height, width


def enlarged(images: Array) -> Array:
    """Returns images of twice the size, with pixels taken from four groups of features."""
    batch, height, width, features = images.shape
    dealt = images.reshape(batch, height, width, 2, 2, features // 4)
    return jnp.transpose(dealt, (0, 1, 3, 2, 4, 5)).reshape(batch, 2 * height, 2 * width, features // 4)


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
