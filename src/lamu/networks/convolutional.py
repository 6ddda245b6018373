"""A small convolutional network for images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxprs_in_params

from lamu.compile_once import once_a_shape
from lamu.networks.dropout import UnitNoise, require_noise
from lamu.networks.interface import Network, Normaliser
from lamu.networks.interface import outputs as outputs_of
from lamu.networks.multilayer import (
    ACTIVATIONS,
    MLP,
    Normalised,
    floating,
    initial_weights,
    require_activation,
)
from lamu.networks.normalisation import NormaliserPass
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Inputs, Params, PyTree, RandomKey, State

__all__ = ["ConvNet", "DeconvNet", "as_images", "convolve", "holds_convolutions", "scan_friendly"]


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

    linear = False

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

    linear = False

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
