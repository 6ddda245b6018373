"""Networks of dense layers: linear maps and multilayer perceptrons."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.base.compile_once import floating
from lamu.networks.interface import Network, Normaliser
from lamu.networks.normalisation import NormaliserPass, UnitNoise, require_noise
from lamu.networks.wrapper import Standardised
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, RandomKey, State

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "Linear",
    "Normalised",
    "dense_layer",
    "initial_weights",
    "require_activation",
]


ACTIVATIONS = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "erf": jax.scipy.special.erf,
}


def require_activation(name: str) -> None:
    """Raises a ValueError for an unknown activation."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; choose one of {', '.join(ACTIVATIONS)}")


def initial_weights(activation: str) -> Callable[..., Array]:
    """Returns the initialiser of kernels: He normals for the rectifiers, Glorot (Xavier) normals for tanh and erf."""
    return jax.nn.initializers.glorot_normal() if activation in ("tanh", "erf") else jax.nn.initializers.he_normal()


class Normalised(Network):
    """Base class of networks with a normaliser before or after their activations."""

    activation: str
    normalise: Normaliser | Any

    @property
    def masked(self) -> bool:
        """Whether rows interact in training, so that padded rows must be masked."""
        return self.normalise is not None and self.normalise.masked

    def __post_init__(self) -> None:
        require_activation(self.activation)
        # A class has the methods too.
        normaliser = self.normalise
        if normaliser is not None and (isinstance(normaliser, type) or not isinstance(normaliser, Normaliser)):
            raise TypeError(f"normalise={normaliser!r} is not a normaliser; give for instance BatchNorm()")


@record
@sized
class MLP(Normalised):
    r"""A multilayer perceptron, \(f(x) = W_L\, a(\dots a(W_1 x + b_1) \dots) + b_L\).

    Inputs of any shape are flattened. Parameters are at `layers/i/kernel` and `layers/i/bias`. Kernels are initialised
    with He normals for the rectifiers and Glorot (Xavier) normals for tanh, biases with zero.

    With a normaliser a hidden layer is \(a(\mathrm{norm}_i(W_i h))\), without a bias, since the normaliser has one. Its
    parameters and state are at `norms/i/...`.

    Attributes:
        widths: the widths of the hidden layers; the input and output widths come from data and likelihood.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        normalise: the normaliser before every activation, for instance `BatchNorm()`; None for none.
        dropout: noise on the units after every activation, `Dropout(0.1)` or `GaussianDropout(0.1)`, in passes with a
            key; None for none.

    Raises:
        ValueError: for a width that is not a positive integer, or an unknown activation.
        TypeError: for a `normalise` that is not a normaliser, or a `dropout` that is not unit noise.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import MLP
        >>> params, state = MLP((8,)).init(jax.random.key(0), jnp.zeros((1, 3)), outputs=2)
        >>> params["layers"][0]["kernel"].shape, params["layers"][1]["kernel"].shape
        ((3, 8), (8, 2))
    """

    widths: tuple[int, ...] = static(default=(64, 64))
    activation: str = static(default="relu")
    normalise: Normaliser | Any = None
    dropout: UnitNoise | Any = None

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return f"layers/{len(self.widths)}/*"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        super().__post_init__()
        require_noise(self.dropout)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for inputs like `x`, and the normalisers' state; empty where there is none."""
        sizes, dtype = (_inputs(x), *self.widths, outputs), floating(x)
        if self.normalise is None:
            return _init(key, sizes, (True,) * (len(sizes) - 1), self.activation, dtype), {}
        params = _init(key, sizes, (*[False] * len(self.widths), True), self.activation, dtype)
        norms = {index: self.normalise.init(width, dtype) for index, width in enumerate(self.widths)}
        first, second = ({index: norm[part] for index, norm in norms.items()} for part in (0, 1))
        return {**params, "norms": first}, {"norms": second}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns f(x) of shape `[batch, outputs]`, and the normalisers' new state."""
        layers, hidden = _layers(params, x), _flat(x, params)
        norm = NormaliserPass(self.normalise, state, train, mask)
        for index, layer in enumerate(layers[:-1]):
            hidden = _dense(layer, hidden)
            if self.normalise is not None:
                hidden = norm(params["norms"][index], hidden, "norms", index)
            hidden = ACTIVATIONS[self.activation](hidden)
            if self.dropout is not None:
                hidden = self.dropout.apply(hidden, None if key is None else jax.random.fold_in(key, index))
        return _dense(layers[-1], hidden), norm.state

    def partially_applied(self, params: Params, first: Array) -> Params | None:
        """Returns parameters with the contribution of the first inputs added to the first layer's bias.

        None for a subclass that overrides `apply`.
        """
        return _partially_applied(params, first) if type(self).apply is MLP.apply else None


@record
class Linear(Network):
    r"""A linear map, \(f(x) = W x + b\), for generalised linear models.

    Parameters are at `layers/0/kernel` and `layers/0/bias`.

    Attributes:
        bias: whether there is an intercept b.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import Linear
        >>> params, _ = Linear(bias=False).init(jax.random.key(0), jnp.zeros((1, 3)), outputs=1)
        >>> list(params["layers"][0])
        ['kernel']
    """

    bias: bool = static(default=True)

    linear = True
    head = "*"

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for inputs like `x`, and the empty state."""
        return _init(key, (_inputs(x), outputs), (self.bias,), "tanh", floating(x)), {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns W x + b of shape `[batch, outputs]`, and the state unchanged."""
        (layer,) = _layers(params, x)
        return _dense(layer, _flat(x, params)), state

    def partially_applied(self, params: Params, first: Array) -> Params | None:
        """Returns parameters with the contribution of the first inputs added to the bias.

        None for a subclass that overrides `apply`.
        """
        return _partially_applied(params, first) if type(self).apply is Linear.apply else None


def dense_layer(draw: Callable[..., Array], key: RandomKey, inputs: int, outputs: int, dtype: DTypeLike) -> Params:
    """Returns a random kernel and a zero bias of a dense layer."""
    return {"kernel": draw(key, (inputs, outputs), dtype), "bias": jnp.zeros(outputs, dtype)}


def _init(
    key: RandomKey, sizes: tuple[int, ...], biases: tuple[bool, ...], activation: str, dtype: DTypeLike
) -> Params:
    draw, layers, used = initial_weights(activation), {}, 0
    for index, (shape, bias) in enumerate(zip(itertools.pairwise(sizes), biases, strict=True)):
        layers[index] = {"kernel": draw(jax.random.fold_in(key, used), shape, dtype)}
        used += 1
        if bias:
            layers[index]["bias"] = jnp.zeros(shape[1], dtype)
            used += 1  # Flax's `Linear` uses a key for the bias too, and the same key should give the same weights
    return {"layers": layers}


def _partially_applied(params: Params, first: Array) -> Params:
    r"""Returns \(b_1 + a V\) for the first bias, and U for the first kernel, whose rows are those of V and of U."""
    layer = params["layers"][0]
    of_first, of_others = jnp.split(layer["kernel"], [first.size])
    bias = jnp.matmul(first.astype(of_first.dtype), of_first) + layer.get("bias", 0)
    return {**params, "layers": {**params["layers"], 0: {"kernel": of_others, "bias": bias}}}


def _layers(params: Params, x: Array) -> list[Params]:
    parts = [params["layers"][index] for index in range(len(params["layers"]))]
    if parts[0]["kernel"].shape[0] != _inputs(x):
        raise ValueError(f"inputs have {_inputs(x)} features, the network was made for {parts[0]['kernel'].shape[0]}")
    return parts


def _dense(layer: Params, hidden: Array) -> Array:
    outputs = jnp.matmul(hidden, layer["kernel"])
    return outputs + jnp.reshape(layer["bias"], (1, -1)) if "bias" in layer else outputs


def _flat(x: Array, params: Params) -> Array:
    return x.reshape(x.shape[0], -1).astype(params["layers"][0]["kernel"].dtype)


def _inputs(x: Array) -> int:
    return math.prod(x.shape[1:])


def is_dense(network: object) -> bool:
    """Whether a network has dense layers alone: their weights determine its inputs, and a row uses each once."""
    while isinstance(network, Standardised):
        network = network.base
    return isinstance(network, Linear | MLP)
