"""Residual networks for small images."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized, whole
from lamu.base.compile_once import floating
from lamu.networks.convolutional import as_images, convolve
from lamu.networks.interface import Normaliser
from lamu.networks.multilayer import ACTIVATIONS, Normalised, dense_layer, initial_weights
from lamu.networks.normalisation import FilterResponse, NormaliserPass
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["ResNet", "WideResNet"]


class _Residual(Normalised):
    """Base class of residual networks: three stages of blocks of two convolutions, then a mean over positions."""

    depth: int | Any
    outside: ClassVar[int]  # the number of layers with weights outside of the blocks
    activations_first: ClassVar[bool]  # whether a block normalises its inputs instead of its convolutions' outputs
    head = "layers/0/*"

    def __post_init__(self) -> None:
        least = 6 + self.outside
        depth = whole(self.depth)
        if depth is None or depth < least or (depth - least) % 6:
            valid = ", ".join(str(least + 6 * n) for n in range(4))
            raise ValueError(f"a depth of {self.depth!r} cannot be built; give {valid} or another 6 n + {self.outside}")
        object.__setattr__(self, "depth", depth)
        super().__post_init__()

    @property
    def _stem(self) -> int:
        """The features before the first block."""
        raise NotImplementedError

    @property
    def _first(self) -> int:
        """The features of the first stage."""
        raise NotImplementedError

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for images like `x`, and the normalisers' state, empty where they have none."""
        dtype, draw, before = floating(x), initial_weights(self.activation), self._stem
        stem_key, head_key, *keys = jax.random.split(key, 2 + len(self._blocks))

        def convolution(key: RandomKey, size: int, before: int, after: int) -> Params:
            return {"kernel": draw(key, (size, size, before, after), dtype)}

        params: Params = {"stem": convolution(stem_key, 3, as_images(x).shape[3], before), "blocks": {}}
        state: State = {"blocks": {}}
        for index, (each, (after, stride)) in enumerate(zip(keys, self._blocks, strict=True)):
            first, second, across = jax.random.split(each, 3)
            normalised = (before if self.activations_first else after, after)
            norms = [self.normalise.init(features, dtype) for features in normalised]
            block: Params = {
                "convolutions": {0: convolution(first, 3, before, after), 1: convolution(second, 3, after, after)},
                "norms": {j: norm for j, (norm, _) in enumerate(norms)},
            }
            if stride > 1 or before != after:
                block["shortcut"] = convolution(across, 1, before, after)
            params["blocks"][index] = block
            state["blocks"][index] = {j: norm_state for j, (_, norm_state) in enumerate(norms)}
            before = after
        if self.activations_first:
            params["norm"], state["norm"] = self.normalise.init(before, dtype)
        else:
            params["stem"]["norm"], state["stem"] = self.normalise.init(self._stem, dtype)
        params["layers"] = {0: dense_layer(draw, head_key, before, outputs, dtype)}
        return params, state if jax.tree.leaves(state) else {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns f(x) of shape `[batch, outputs]`, and the normalisers' new state."""
        norm, kernel = NormaliserPass(self.normalise, state, train, mask), params["stem"]["kernel"]
        hidden = self._hidden(params, convolve(as_images(x).astype(kernel.dtype), kernel), norm)
        layer = params["layers"][0]
        return jnp.mean(hidden, axis=(1, 2)) @ layer["kernel"] + layer["bias"][None], norm.state

    def _hidden(self, params: Params, hidden: Array, norm: NormaliserPass) -> Array:
        """Returns the outputs of the blocks for the stem's features."""
        raise NotImplementedError

    @property
    def _blocks(self) -> list[tuple[int, int]]:
        """Features and stride of each block: the size halves at the start of the second and the third stage."""
        count = (self.depth - self.outside) // 6
        features = [self._first * 2**stage for stage in range(3) for _ in range(count)]
        strides = [2 if stage and not block else 1 for stage in range(3) for block in range(count)]
        return list(zip(features, strides, strict=True))


@record
@sized
class ResNet(_Residual):
    r"""A residual network for images of some thirty pixels: three stages of blocks, then a mean over positions.

    \[ h \leftarrow a\big(S h + \mathrm{norm}(K_2 * a(\mathrm{norm}(K_1 * h)))\big) \]

    with S the identity or, where size and width change, a convolution of one pixel. `depth` is the number of layers
    with weights on the longest path, 6 n + 2 for n blocks a stage: 8, 14, 20, 32, ... The second and third stage halve
    the image and double the features. Convolutions have no bias.

    Parameters are at `stem/kernel`, `blocks/i/convolutions/j/kernel`, `blocks/i/shortcut/kernel` where there is one,
    `layers/0/kernel` and `layers/0/bias`, those of normalisers at `stem/norm/...` and `blocks/i/norms/j/...`.
    Convolutions are products of patches with a matrix, which are fast on a CPU also inside compiled loops.

    Attributes:
        depth: 6 n + 2.
        width: the features of the first stage.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: the normaliser after a convolution: `FilterResponse()`, which keeps rows independent, or
            `BatchNorm()`.

    Raises:
        ValueError: for a depth that is not 6 n + 2, a width that is not a positive integer, an unknown activation, or
            inputs that are not images.
        TypeError: for a `normalise` that is not a normaliser.

    Source: He et al. (2016), section 4.2; with filter-response normalisation and SiLU as in Izmailov et al. (2021).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import ResNet
        >>> network, images = ResNet(depth=8, width=4), jnp.zeros((2, 8, 8, 3))
        >>> params, state = network.init(jax.random.key(0), images, outputs=10)
        >>> params["blocks"][1]["convolutions"][0]["kernel"].shape
        (3, 3, 4, 8)
        >>> network.apply(params, state, images, None, False)[0].shape
        (2, 10)
    """

    depth: int = static(default=20)
    width: int = static(default=16)
    activation: str = static(default="silu")
    normalise: Normaliser | Any = FilterResponse()

    outside = 2
    activations_first = False

    @property
    def _stem(self) -> int:
        return self.width

    @property
    def _first(self) -> int:
        return self.width

    def _hidden(self, params: Params, hidden: Array, norm: NormaliserPass) -> Array:
        activation = ACTIVATIONS[self.activation]
        hidden = activation(norm(params["stem"]["norm"], hidden, "stem"))
        for index, (_, stride) in enumerate(self._blocks):
            block = params["blocks"][index]
            kernels, norms = block["convolutions"], block["norms"]
            inner = activation(norm(norms[0], convolve(hidden, kernels[0]["kernel"], stride), "blocks", index, 0))
            inner = norm(norms[1], convolve(inner, kernels[1]["kernel"]), "blocks", index, 1)
            shortcut = convolve(hidden, block["shortcut"]["kernel"], stride) if "shortcut" in block else hidden
            hidden = activation(shortcut + inner)
        return hidden


_STEM = 16  # features before the first block, in the paper's networks of any width


@record
@sized
class WideResNet(_Residual):
    r"""A wide residual network for images of some thirty pixels: few layers, many features, activations first.

    \[ h \leftarrow S h + K_2 * a(\mathrm{norm}(K_1 * a(\mathrm{norm}(h)))) \]

    with S the identity or, where size or width change, a convolution of one pixel with the inputs of the first kernel.
    After three stages of blocks come a last normalisation, the activation, a mean over positions, and a dense layer.
    `depth` counts layers as the paper does, 6 n + 4 for n blocks a stage: 10, 16, 22, 28, ... The stages have 16 k, 32
    k and 64 k features, with k the widening factor. Convolutions have no bias.

    Parameters are at `stem/kernel`, `blocks/i/convolutions/j/kernel`, `blocks/i/shortcut/kernel` where there is one,
    `layers/0/kernel` and `layers/0/bias`, those of normalisers at `blocks/i/norms/j/...` and `norm/...`. Convolutions
    are products of patches with a matrix, which are fast on a CPU also inside compiled loops.

    Attributes:
        depth: 6 n + 4.
        widen: the factor k.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: the normaliser before an activation: `FilterResponse()`, which keeps rows independent, or
            `BatchNorm()`.

    Raises:
        ValueError: for a depth that is not 6 n + 4, a factor that is not a positive integer, an unknown activation, or
            inputs that are not images.
        TypeError: for a `normalise` that is not a normaliser.

    Source: Zagoruyko & Komodakis (2016), table 1; without their dropout.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import WideResNet
        >>> network, images = WideResNet(depth=10, widen=1), jnp.zeros((2, 8, 8, 3))
        >>> params, state = network.init(jax.random.key(0), images, outputs=10)
        >>> params["blocks"][1]["convolutions"][0]["kernel"].shape
        (3, 3, 16, 32)
        >>> network.apply(params, state, images, None, False)[0].shape
        (2, 10)
    """

    depth: int = static(default=16)
    widen: int = static(default=4)
    activation: str = static(default="relu")
    normalise: Normaliser | Any = FilterResponse()

    outside = 4
    activations_first = True

    @property
    def _stem(self) -> int:
        return _STEM

    @property
    def _first(self) -> int:
        return _STEM * self.widen

    def _hidden(self, params: Params, hidden: Array, norm: NormaliserPass) -> Array:
        activation = ACTIVATIONS[self.activation]
        for index, (_, stride) in enumerate(self._blocks):
            block = params["blocks"][index]
            kernels, norms = block["convolutions"], block["norms"]
            first = activation(norm(norms[0], hidden, "blocks", index, 0))
            inner = convolve(first, kernels[0]["kernel"], stride)
            second = activation(norm(norms[1], inner, "blocks", index, 1))
            shortcut = convolve(first, block["shortcut"]["kernel"], stride) if "shortcut" in block else hidden
            hidden = shortcut + convolve(second, kernels[1]["kernel"])
        return activation(norm(params["norm"], hidden, "norm"))
