r"""Masked dense layers: output d depends on the inputs before d alone."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.networks.activations import ACTIVATIONS, initial_weights
from lamu.typing import Array, Params, RandomKey

__all__ = ["init_layers", "layer_masks", "masked_outputs"]


def layer_masks(inputs: int, widths: tuple[int, ...], per_input: int) -> list[np.ndarray]:
    r"""Returns the masks of all layers, `[in, out]` each; their product connects output d to inputs before d alone.

    Input d has the degree d = 1, …, D, and hidden units the degrees 1, …, D − 1 in turn. A hidden unit is connected to
    units of the layer below of its degree or less, and an output of degree d to those of less than d. The K numbers of
    an output are side by side.

    Args:
        inputs: D.
        widths: the widths of the hidden layers.
        per_input: K, how many numbers each output has.

    Source: Germain, Gregor, Murray & Larochelle (2015), equations 12 and 13.

    Examples:
        >>> from lamu.latent.autoregressive.masked import layer_masks
        >>> first, last = layer_masks(3, (2,), 1)
        >>> (first @ last).astype(int).tolist()  # column d: the inputs that output d sees
        [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    """
    degrees = [np.arange(1, inputs + 1)]
    degrees += [np.arange(width) % max(inputs - 1, 1) + 1 for width in widths]
    masks = [below[:, None] <= above[None, :] for below, above in itertools.pairwise(degrees)]
    outputs = np.repeat(degrees[0], per_input)
    return [*masks, degrees[-1][:, None] < outputs[None, :]]


def init_layers(key: RandomKey, sizes: tuple[int, ...], activation: str, dtype: Any) -> Params:
    """Returns kernels and biases of dense layers by their number, as `lamu.networks.MLP` has them.

    Args:
        key: a random key.
        sizes: the widths from the input to the output.
        activation: the activation, which decides the scale of the kernels.
        dtype: of the parameters.

    Examples:
        >>> import jax
        >>> from lamu.latent.autoregressive.masked import init_layers
        >>> init_layers(jax.random.key(0), (3, 2), "relu", float)[0]["kernel"].shape
        (3, 2)
    """
    draw = initial_weights(activation)
    return {
        number: {
            "kernel": draw(jax.random.fold_in(key, number), (below, above), dtype),
            "bias": jnp.zeros(above, dtype),
        }
        for number, (below, above) in enumerate(itertools.pairwise(sizes))
    }


def masked_outputs(
    layers: Params, masks: list[np.ndarray], x: Array, activation: str, context: Array | None = None
) -> Array:
    """Returns the outputs of masked layers, `[batch, D * K]`.

    Args:
        layers: kernels and biases by number.
        masks: one a layer.
        x: the inputs, `[batch, D]`.
        activation: the activation between layers.
        context: added to the first hidden layer, `[batch, width]`, or None.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent.autoregressive.masked import init_layers, layer_masks, masked_outputs
        >>> layers, masks = init_layers(jax.random.key(0), (3, 4, 3), "relu", float), layer_masks(3, (4,), 1)
        >>> masked_outputs(layers, masks, jnp.ones((2, 3)), "relu").shape
        (2, 3)
    """
    hidden, last = x, len(masks) - 1
    for number, mask in enumerate(masks):
        layer = layers[number]
        kernel = layer["kernel"] * jnp.asarray(mask, layer["kernel"].dtype)
        hidden = jnp.matmul(hidden, kernel) + layer["bias"][None, :]
        if number == 0 and context is not None:
            hidden = hidden + context
        if number < last:
            hidden = ACTIVATIONS[activation](hidden)
    return hidden
