"""Convolutions as patches times a matrix."""

# \[ y_{nijo} = \sum_{a b c} x_{n,\, i + a,\, j + b,\, c}\, K_{abco} \]
#
# is one product of the matrix of all patches with the kernel as a matrix. On a CPU the gradient of a convolution inside
# a compiled loop takes many times what it takes outside; that of a product does not, a product under `vmap` is a
# product again, and every mode of differentiation and every reader of a jaxpr knows it. The price is memory: the
# patches are as large as the images times the area of the kernel.

from __future__ import annotations

import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["channels_of", "convolve"]


def channels_of(x: Array) -> int:
    """Returns how many channels images have: one where there is no axis for them."""
    if x.ndim not in (3, 4):
        raise ValueError(
            f"inputs of the shape {x.shape} are no images; give [batch, height, width] or "
            "[batch, height, width, channels]"
        )
    return (*x.shape, 1)[3]


def convolve(images: Array, kernel: Array, stride: int = 1, padding: str = "SAME") -> Array:
    """Returns the images convolved with a kernel."""
    # `padding`: "SAME" for zeros around the images, so that they keep their size, or "VALID" for none.
    batch, height, width, _ = images.shape
    tall, wide, channels, features = kernel.shape
    lost = (0, 0) if padding == "SAME" else (tall - 1, wide - 1)
    rows, columns = -(-(height - lost[0]) // stride), -(-(width - lost[1]) // stride)
    missing = [
        max((count - 1) * stride + size - given, 0)
        for count, size, given in ((rows, tall, height), (columns, wide, width))
    ]
    padded = jnp.pad(images, ((0, 0), *((each // 2, each - each // 2) for each in missing), (0, 0)))
    reach = [(count - 1) * stride + 1 for count in (rows, columns)]
    offsets = [
        padded[:, a : a + reach[0] : stride, b : b + reach[1] : stride] for a in range(tall) for b in range(wide)
    ]
    patches = jnp.stack(offsets, axis=3).reshape(-1, tall * wide * channels)
    return (patches @ kernel.reshape(-1, features)).reshape(batch, rows, columns, features)
