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
    """Returns the masks of all layers, `[in, out]` each; their product connects output d to inputs before d alone."""
    # Input d has the degree d = 1, …, D, and hidden units the degrees 1, …, D − 1 in turn. A hidden unit is connected
    # to units of the layer below of its degree or less, and an output of degree d to those of less than d. The K
    # numbers of an output are side by side.
    #
    # Source: Germain, Gregor, Murray & Larochelle (2015), equations 12 and 13.
    degrees = [np.arange(1, inputs + 1)]
    degrees += [np.arange(width) % max(inputs - 1, 1) + 1 for width in widths]
    masks = [below[:, None] <= above[None, :] for below, above in itertools.pairwise(degrees)]
    outputs = np.repeat(degrees[0], per_input)
    return [*masks, degrees[-1][:, None] < outputs[None, :]]


def init_layers(key: RandomKey, sizes: tuple[int, ...], activation: str, dtype: Any) -> Params:
    """Returns kernels and biases of dense layers by their number, as `lamu.networks.MLP` has them."""
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
    """Returns the outputs of masked layers, `[batch, D * K]`."""
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
