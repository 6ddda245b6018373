"""A small transformer for sequences."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.base.compile_once import floating
from lamu.networks.interface import Network
from lamu.networks.multilayer import ACTIVATIONS, dense_layer, require_activation
from lamu.networks.recurrent import MeanOfSteps, Readout, read_out, require_readout, steps_of
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["Transformer"]

_KERNEL = jax.nn.initializers.glorot_normal()
_EPS = 1e-6


@record
@sized
class Transformer(Network):
    r"""A small transformer: residual blocks of attention and of a dense layer at each step.

    \[ h \leftarrow h + \operatorname{softmax}\big(Q K^\top / \sqrt d\big) V\, W_o, \qquad
       h \leftarrow h + W_2\, a(W_1\, \mathrm{norm}(h)) \]

    with Q, K, V linear in norm(h), one set for each head, of width d. Layer normalisation comes first in a block, and
    once more at the end. Inputs are `[batch, steps, features]`, or `[batch, steps]` for sequences of numbers; codes of
    tokens go through `OneHot`, also inside `Tokens`. Each step is embedded by a dense layer, plus a learned vector of
    its position, so that the length of sequences is fixed at initialisation.

    Parameters are at `embedding/kernel`, `embedding/bias`, `positions/table`,
    `blocks/i/attention/{query,key,value,out}/kernel`, `blocks/i/dense/{0,1}/{kernel,bias}`,
    `blocks/i/norms/{0,1}/{scale,bias}`, `norm/{scale,bias}` and `layers/0/{kernel,bias}`. Kernels of attention are
    `[width, width]`, with the heads concatenated. Kernels start as Glorot normals, positions as normals with standard
    deviation 0.02.

    Attributes:
        depth: the number of blocks.
        width: the number of features of a step.
        heads: the number of heads, a divisor of the width.
        hidden: the width of the dense layer inside a block.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        causal: whether a step attends only to itself and earlier steps, as next-step prediction needs.
        readout: which steps reach the last layer: `MeanOfSteps()`, `LastStep()` or `EveryStep()`.

    Raises:
        ValueError: for sizes that are not positive integers, a width that is not a multiple of the heads, an unknown
            activation, inputs that are not sequences or have another length, or outputs that are not a multiple of the
            steps.
        TypeError: for a `readout` that is not a `Readout`.

    Source: Vaswani et al. (2017), section 3, with the norms first as in Xiong et al. (2020).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import OneHot, Transformer
        >>> network, words = OneHot(Transformer(depth=1, width=8, heads=2), size=50), jnp.ones((2, 5))
        >>> params, state = network.init(jax.random.key(0), words, outputs=3)
        >>> params["blocks"][0]["attention"]["query"]["kernel"].shape
        (8, 8)
        >>> network.apply(params, state, words, None, False)[0].shape
        (2, 3)
    """

    depth: int = static(default=2)
    width: int = static(default=32)
    heads: int = static(default=4)
    hidden: int = static(default=64)
    activation: str = static(default="gelu")
    causal: bool = static(default=False)
    readout: Readout | Any = MeanOfSteps()

    head = "layers/0/*"

    def __post_init__(self) -> None:
        if self.heads > 0 and self.width % self.heads:
            raise ValueError(
                f"{self.width} features cannot be dealt to {self.heads} heads; give a divisor of the width"
            )
        require_activation(self.activation)
        require_readout(self.readout)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for sequences like `x`, and the empty state."""
        x, dtype, width = steps_of(x), floating(x), self.width
        embedding, positions, head_key, *keys = jax.random.split(key, 3 + self.depth)
        norm = lambda: {"scale": jnp.ones(width, dtype), "bias": jnp.zeros(width, dtype)}
        dense = lambda key, before, after: dense_layer(_KERNEL, key, before, after, dtype)
        blocks = {}
        for index, each in enumerate(keys):
            first, second, *four = jax.random.split(each, 6)
            blocks[index] = {
                "attention": {
                    name: {"kernel": _KERNEL(subkey, (width, width), dtype)}
                    for name, subkey in zip(_ATTENTION, four, strict=True)
                },
                "dense": {0: dense(first, width, self.hidden), 1: dense(second, self.hidden, width)},
                "norms": {0: norm(), 1: norm()},
            }
        params = {
            "embedding": dense(embedding, x.shape[2], width),
            "positions": {"table": 0.02 * jax.random.normal(positions, (x.shape[1], width), dtype)},
            "blocks": blocks,
            "norm": norm(),
            "layers": {0: dense(head_key, width, self.readout.at_each(outputs, x.shape[1]))},
        }
        return params, {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns f(x) of shape `[batch, outputs]`, and the state unchanged."""
        embedding, positions = params["embedding"], params["positions"]["table"]
        hidden = steps_of(x).astype(positions.dtype)
        made_for = (positions.shape[0], embedding["kernel"].shape[0])
        if hidden.shape[1:] != made_for:
            raise ValueError(
                f"sequences have {hidden.shape[1]} steps of {hidden.shape[2]} features, the network was made for "
                f"{made_for[0]} of {made_for[1]}"
            )
        hidden = _dense(embedding, hidden) + positions[None]
        for index in range(self.depth):
            block = params["blocks"][index]
            hidden = hidden + self._attention(block["attention"], _normalised(block["norms"][0], hidden))
            inner = _dense(block["dense"][0], _normalised(block["norms"][1], hidden))
            hidden = hidden + _dense(block["dense"][1], ACTIVATIONS[self.activation](inner))
        return read_out(self.readout, params["layers"][0], _normalised(params["norm"], hidden)), state

    def _attention(self, params: Params, hidden: Array) -> Array:
        """Returns the outputs of attention, `[batch, steps, width]`."""
        apart = (*hidden.shape[:2], self.heads, -1)
        q, k, v = ((hidden @ params[name]["kernel"]).reshape(apart) for name in _ATTENTION[:3])
        scores = jnp.einsum("bshk,bthk->bhst", q, k) * q.shape[-1] ** -0.5
        if self.causal:
            mask = jnp.tril(jnp.ones(scores.shape[2:], bool))
            scores = jnp.where(mask[None, None], scores, jnp.finfo(scores.dtype).min)
        mixed = jnp.einsum("bhst,bthk->bshk", jax.nn.softmax(scores, axis=-1), v)
        return mixed.reshape(hidden.shape) @ params["out"]["kernel"]


_ATTENTION = ("query", "key", "value", "out")


def _dense(layer: Params, hidden: Array) -> Array:
    return hidden @ layer["kernel"] + layer["bias"][None, None]


def _normalised(norm: Params, hidden: Array) -> Array:
    """Applies layer normalisation over the features of each step."""
    centred = hidden - jnp.mean(hidden, axis=-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + _EPS)
    return scaled * norm["scale"][None, None] + norm["bias"][None, None]
