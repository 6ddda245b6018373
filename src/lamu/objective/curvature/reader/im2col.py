"""The inputs of a convolution as windows, so that its kernel's gradient is a product."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["windows"]


def windows(images: Array, kernel: tuple[int, ...], outputs: tuple[int, ...], settings: dict[str, Any]) -> Array:
    """Returns what every element of the kernel is multiplied with at every position, by copies alone.

    Args:
        images: `[batch, channels, *space]`.
        kernel: the kernel's size in space.
        outputs: the output's size in space.
        settings: the parameters of the equation `conv_general_dilated`: strides, padding, dilations.

    Returns:
        `[batch, channels, elements of the kernel, positions]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.objective.curvature.reader.im2col import windows
        >>> plain = {"window_strides": (1,), "padding": ((0, 0),), "lhs_dilation": (1,), "rhs_dilation": (1,)}
        >>> windows(jnp.arange(3.0)[None, None], (2,), (2,), plain)[0, 0].tolist()
        [[0.0, 1.0], [1.0, 2.0]]
    """
    # Padding may be negative, and dilated inputs have zeros between them.
    around = [
        (low, high, gap - 1) for (low, high), gap in zip(settings["padding"], settings["lhs_dilation"], strict=True)
    ]
    padded = jax.lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), (0, 0, 0), *around])
    strides, gaps = settings["window_strides"], settings["rhs_dilation"]
    found = []
    for offset in itertools.product(*map(range, kernel)):
        start = [o * gap for o, gap in zip(offset, gaps, strict=True)]
        end = [s + (size - 1) * stride + 1 for s, size, stride in zip(start, outputs, strides, strict=True)]
        part = jax.lax.slice(padded, (0, 0, *start), (*images.shape[:2], *end), (1, 1, *strides))
        found.append(part.reshape(*images.shape[:2], -1))
    return jnp.stack(found, axis=2)
