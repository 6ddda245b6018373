"""Residual networks for small images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.convolutional import channels_of, convolve
from lamu.networks.interface import Network, Normaliser
from lamu.networks.multilayer import (
    ACTIVATIONS,
    floating,
    initial_weights,
    require_activation,
    require_normaliser,
    require_widths,
)
from lamu.networks.normalisation import FilterResponse
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["ResNet", "WideResNet"]


@record
@sized
class ResNet(Network):
    r"""A residual network for images of some thirty pixels: three stages of blocks, then a mean over positions.

    \[ h \leftarrow a\big(S h + \mathrm{norm}(K_2 * a(\mathrm{norm}(K_1 * h)))\big) \]

    with S the identity or, where size and width change, a convolution of one pixel. `depth` counts the layers with
    weights on the longest path, 6 n + 2 for n blocks a stage: 8, 14, 20, 32, ... The second and third stage halve the
    image and double the features. Convolutions have no bias.

    Parameters stand at `stem/kernel`, `blocks/i/convolutions/j/kernel`, `blocks/i/shortcut/kernel` where there is one,
    `layers/0/kernel` and `layers/0/bias`, those of normalisers at `stem/norm/...` and `blocks/i/norms/j/...`.
    Convolutions are products of patches with a matrix, fast on a CPU inside compiled loops, too.

    Attributes:
        depth: 6 n + 2.
        width: the features of the first stage.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: what follows a convolution: `FilterResponse()`, under which rows stay independent, or `BatchNorm()`.

    Raises:
        ValueError: for a depth that is not 6 n + 2, a width that is not a positive integer, an unknown activation, or
            inputs that are no images.
        TypeError: for a `normalise` that is no normaliser.

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

    linear = False
    head = "layers/0/*"

    @property
    def masked(self) -> bool:
        """Whether rows meet, so that it matters which are padding."""
        return self.normalise.masked

    def __post_init__(self) -> None:
        if not isinstance(self.depth, int) or self.depth < 8 or (self.depth - 2) % 6:
            raise ValueError(f"a depth of {self.depth!r} cannot be built; give 8, 14, 20, 26, 32 or another 6 n + 2")
        require_widths((self.width,))
        require_activation(self.activation)
        require_normaliser(self.normalise)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for images like `x`, and the normalisers' state, empty where they have none."""
        channels, dtype = channels_of(x), floating(x)
        draw = initial_weights(self.activation)
        stem_key, head_key, *keys = jax.random.split(key, 2 + len(self._strides))

        def convolution(key: RandomKey, size: int, before: int, after: int) -> Params:
            return {"kernel": draw(key, (size, size, before, after), dtype)}

        norm, norm_state = self.normalise.init(self.width, dtype)
        params: Params = {"stem": {**convolution(stem_key, 3, channels, self.width), "norm": norm}, "blocks": {}}
        state: Any = {"stem": norm_state, "blocks": {}}
        features = self.width
        for index, (each, stride) in enumerate(zip(keys, self._strides, strict=True)):
            wide = features * stride
            first, second, across = jax.random.split(each, 3)
            (norm0, state0), (norm1, state1) = (self.normalise.init(wide, dtype) for _ in range(2))
            block: Params = {
                "convolutions": {0: convolution(first, 3, features, wide), 1: convolution(second, 3, wide, wide)},
                "norms": {0: norm0, 1: norm1},
            }
            if stride > 1:
                block["shortcut"] = convolution(across, 1, features, wide)
            params["blocks"][index], state["blocks"][index] = block, {0: state0, 1: state1}
            features = wide
        params["layers"] = {
            0: {"kernel": draw(head_key, (features, outputs), dtype), "bias": jnp.zeros(outputs, dtype)}
        }
        return params, state if jax.tree.leaves(state) else {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns f(x) of shape `[batch, outputs]`, and the normalisers' new state."""
        channels_of(x)
        act, new = ACTIVATIONS[self.activation], {"stem": {}, "blocks": {}}
        held = state or {"stem": {}, "blocks": {i: {0: {}, 1: {}} for i in range(len(self._strides))}}
        hidden = x if x.ndim == 4 else x[..., None]
        hidden = convolve(hidden.astype(params["stem"]["kernel"].dtype), params["stem"]["kernel"])
        hidden, new["stem"] = self.normalise.apply(params["stem"]["norm"], held["stem"], hidden, train, mask)
        hidden = act(hidden)
        for index, stride in enumerate(self._strides):
            block, before, after = params["blocks"][index], held["blocks"][index], {}
            inner = convolve(hidden, block["convolutions"][0]["kernel"], stride)
            inner, after[0] = self.normalise.apply(block["norms"][0], before[0], inner, train, mask)
            inner = convolve(act(inner), block["convolutions"][1]["kernel"])
            inner, after[1] = self.normalise.apply(block["norms"][1], before[1], inner, train, mask)
            shortcut = convolve(hidden, block["shortcut"]["kernel"], stride) if "shortcut" in block else hidden
            hidden, new["blocks"][index] = act(shortcut + inner), after
        layer = params["layers"][0]
        f = jnp.mean(hidden, axis=(1, 2)) @ layer["kernel"] + layer["bias"][None]
        return f, new if state else state

    @property
    def _strides(self) -> tuple[int, ...]:
        """The stride of each block: two where a stage begins, but the first."""
        rest = (1,) * ((self.depth - 2) // 6 - 1)
        return (1, *rest, 2, *rest, 2, *rest)


_STEM = 16  # features before the first block, in the paper's networks of any width


@record
@sized
class WideResNet(Network):
    r"""A wide residual network for images of some thirty pixels: few layers, many features, activations first.

    \[ h \leftarrow S h + K_2 * a(\mathrm{norm}(K_1 * a(\mathrm{norm}(h)))) \]

    with S the identity or, where size or width change, a convolution of one pixel that reads what the first kernel
    reads. After three stages of blocks come a last normalisation, the activation, a mean over positions, and a dense
    layer. `depth` counts layers as the paper does, 6 n + 4 for n blocks a stage: 10, 16, 22, 28, ... The stages have
    16 k, 32 k and 64 k features, with k the widening factor. Convolutions have no bias.

    Parameters stand at `stem/kernel`, `blocks/i/convolutions/j/kernel`, `blocks/i/shortcut/kernel` where there is one,
    `layers/0/kernel` and `layers/0/bias`, those of normalisers at `blocks/i/norms/j/...` and `norm/...`. Convolutions
    are products of patches with a matrix, fast on a CPU inside compiled loops, too.

    Attributes:
        depth: 6 n + 4.
        widen: the factor k.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: what stands before an activation: `FilterResponse()`, under which rows stay independent, or
            `BatchNorm()`.

    Raises:
        ValueError: for a depth that is not 6 n + 4, a factor that is not a positive integer, an unknown activation, or
            inputs that are no images.
        TypeError: for a `normalise` that is no normaliser.

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

    linear = False
    head = "layers/0/*"

    @property
    def masked(self) -> bool:
        """Whether rows meet, so that it matters which are padding."""
        return self.normalise.masked

    def __post_init__(self) -> None:
        if not isinstance(self.depth, int) or self.depth < 10 or (self.depth - 4) % 6:
            raise ValueError(f"a depth of {self.depth!r} cannot be built; give 10, 16, 22, 28 or another 6 n + 4")
        require_widths((self.widen,))
        require_activation(self.activation)
        require_normaliser(self.normalise)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for images like `x`, and the normalisers' state, empty where they have none."""
        channels, dtype, draw = channels_of(x), floating(x), initial_weights(self.activation)
        stem_key, head_key, *keys = jax.random.split(key, 2 + len(self._blocks))

        def convolution(key: RandomKey, size: int, before: int, after: int) -> Params:
            return {"kernel": draw(key, (size, size, before, after), dtype)}

        params: Params = {"stem": convolution(stem_key, 3, channels, _STEM), "blocks": {}}
        state: Any = {"blocks": {}}
        before = _STEM
        for index, (each, (after, stride)) in enumerate(zip(keys, self._blocks, strict=True)):
            first, second, across = jax.random.split(each, 3)
            norms = [self.normalise.init(features, dtype) for features in (before, after)]
            block: Params = {
                "convolutions": {0: convolution(first, 3, before, after), 1: convolution(second, 3, after, after)},
                "norms": {j: norm for j, (norm, _) in enumerate(norms)},
            }
            if stride > 1 or before != after:
                block["shortcut"] = convolution(across, 1, before, after)
            params["blocks"][index] = block
            state["blocks"][index] = {j: norm_state for j, (_, norm_state) in enumerate(norms)}
            before = after
        params["norm"], state["norm"] = self.normalise.init(before, dtype)
        params["layers"] = {0: {"kernel": draw(head_key, (before, outputs), dtype), "bias": jnp.zeros(outputs, dtype)}}
        return params, state if jax.tree.leaves(state) else {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns f(x) of shape `[batch, outputs]`, and the normalisers' new state."""
        channels_of(x)
        old = state or {"blocks": {i: {0: {}, 1: {}} for i in range(len(self._blocks))}, "norm": {}}
        new: Any = {"blocks": {}}

        def activated(norm: Params, before: Any, hidden: Array) -> tuple[Array, Any]:
            hidden, after = self.normalise.apply(norm, before, hidden, train, mask)
            return ACTIVATIONS[self.activation](hidden), after

        hidden = x if x.ndim == 4 else x[..., None]
        hidden = convolve(hidden.astype(params["stem"]["kernel"].dtype), params["stem"]["kernel"])
        for index, (_, stride) in enumerate(self._blocks):
            block, before, after = params["blocks"][index], old["blocks"][index], {}
            first, after[0] = activated(block["norms"][0], before[0], hidden)
            inner = convolve(first, block["convolutions"][0]["kernel"], stride)
            second, after[1] = activated(block["norms"][1], before[1], inner)
            shortcut = convolve(first, block["shortcut"]["kernel"], stride) if "shortcut" in block else hidden
            hidden = shortcut + convolve(second, block["convolutions"][1]["kernel"])
            new["blocks"][index] = after
        hidden, new["norm"] = activated(params["norm"], old["norm"], hidden)
        layer = params["layers"][0]
        f = jnp.mean(hidden, axis=(1, 2)) @ layer["kernel"] + layer["bias"][None]
        return f, new if state else state

    @property
    def _blocks(self) -> list[tuple[int, int]]:
        """Features and stride of each block: the size halves where the second and the third stage begin."""
        a_stage = (self.depth - 4) // 6
        features = [_STEM * self.widen * 2**stage for stage in range(3) for _ in range(a_stage)]
        strides = [2 if stage and not block else 1 for stage in range(3) for block in range(a_stage)]
        return list(zip(features, strides, strict=True))
