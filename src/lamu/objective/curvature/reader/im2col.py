"""The inputs of a convolution as windows, so that its kernel's gradient is a product."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["windows"]


def windows(images: Array, kernel: tuple[int, ...], outputs: tuple[int, ...], settings: dict[str, Any]) -> Array:
    """Returns what every element of the kernel is multiplied with at every position, by copies alone."""
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
