"""Networks of dense layers: a linear map, and the multilayer perceptron."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["MLP", "Linear"]

_ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu, "silu": jax.nn.silu}


@record
class MLP:
    r"""A multilayer perceptron, \(f(x) = W_L\, a(\dots a(W_1 x + b_1) \dots) + b_L\).

    Inputs of any shape are flattened. The layers are Flax NNX's `Linear`; parameters stand at `layers/i/kernel` and
    `layers/i/bias`. Kernels start as He normals for the rectifiers, Glorot (Xavier) normals for tanh, biases at zero.

    Attributes:
        widths: the widths of the hidden layers; the input and output widths come from data and likelihood.
        activation: "relu", "tanh", "gelu" or "silu".

    Raises:
        ValueError: for a width that is not a positive integer, or an unknown activation.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import MLP
        >>> params, state = MLP((8,)).init(jax.random.key(0), jnp.zeros((1, 3)), outputs=2)
        >>> params["layers"][0]["kernel"].shape, params["layers"][1]["kernel"].shape
        ((3, 8), (8, 2))
    """

    widths: tuple[int, ...] = static(default=(64, 64))
    activation: str = static(default="relu")

    linear = False

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return f"layers/{len(self.widths)}/*"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        for width in self.widths:
            if not isinstance(width, int) or width < 1:
                raise ValueError(f"a layer of width {width!r} cannot be built; widths are positive integers")
        if self.activation not in _ACTIVATIONS:
            raise ValueError(f"unknown activation {self.activation!r}; choose one of {', '.join(_ACTIVATIONS)}")

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for inputs like `x`, and the empty state."""
        return _init(key, (_inputs(x), *self.widths, outputs), True, self.activation, _dtype(x)), {}

    def apply(self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool) -> tuple[Array, Any]:
        """Returns f(x) of shape `[batch, outputs]`, and the state unchanged."""
        layers = _layers(params, _sizes(params, x), True)
        hidden = _flat(x, params)
        for layer in layers[:-1]:
            hidden = _ACTIVATIONS[self.activation](layer(hidden))
        return layers[-1](hidden), state


@record
class Linear:
    r"""A linear map, \(f(x) = W x + b\): with it, a model is a generalised linear model.

    Parameters stand at `layers/0/kernel` and `layers/0/bias`.

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

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for inputs like `x`, and the empty state."""
        return _init(key, (_inputs(x), outputs), self.bias, "tanh", _dtype(x)), {}

    def apply(self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool) -> tuple[Array, Any]:
        """Returns W x + b of shape `[batch, outputs]`, and the state unchanged."""
        (layer,) = _layers(params, _sizes(params, x), self.bias)
        return layer(_flat(x, params)), state


def _init(key: RandomKey, sizes: tuple[int, ...], bias: bool, activation: str, dtype: Any) -> Params:
    from flax import nnx

    draw = nnx.initializers.xavier_normal() if activation == "tanh" else nnx.initializers.he_normal()
    rngs = nnx.Rngs(params=key)
    layers = [
        nnx.Linear(inputs, outputs, use_bias=bias, kernel_init=draw, param_dtype=dtype, rngs=rngs)
        for inputs, outputs in itertools.pairwise(sizes)
    ]
    return {"layers": {index: nnx.to_pure_dict(nnx.state(layer)) for index, layer in enumerate(layers)}}


@cache
def _definition(inputs: int, outputs: int, bias: bool) -> Any:
    from flax import nnx

    return nnx.graphdef(nnx.eval_shape(lambda: nnx.Linear(inputs, outputs, use_bias=bias, rngs=nnx.Rngs(0))))


def _layers(params: Params, sizes: list[tuple[int, int]], bias: bool) -> list[Any]:
    from flax import nnx

    return [
        nnx.merge(_definition(*size, bias), nnx.State(dict(params["layers"][index])))
        for index, size in enumerate(sizes)
    ]


def _sizes(params: Params, x: Array) -> list[tuple[int, int]]:
    shapes = [params["layers"][index]["kernel"].shape for index in range(len(params["layers"]))]
    if shapes[0][0] != _inputs(x):
        raise ValueError(f"inputs have {_inputs(x)} features, the network was made for {shapes[0][0]}")
    return shapes


def _flat(x: Array, params: Params) -> Array:
    return x.reshape(x.shape[0], -1).astype(params["layers"][0]["kernel"].dtype)


def _inputs(x: Array) -> int:
    size = 1
    for length in x.shape[1:]:
        size *= length
    return size


def _dtype(x: Array) -> Any:
    return x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float)
