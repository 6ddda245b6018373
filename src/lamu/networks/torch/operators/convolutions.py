"""Convolutions, in PyTorch's layout: `[batch, channels, ...]` and kernels `[features, channels, ...]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["CONVOLUTIONS"]


def _each(value: Any, n: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * n if len(values) == 1 else values


def _layout(n: int) -> tuple[str, str, str]:
    axes = "HWD"[:n]
    return "NC" + axes, "OI" + axes, "NC" + axes


def _convolve(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    n = weight.ndim - 2
    alone = x.ndim == n + 1  # one image, without an axis of rows
    x = x[None] if alone else x
    if isinstance(padding, str):
        pads: Any = padding.upper()
    else:
        pads = [(each, each) for each in _each(padding, n)]
    f = jax.lax.conv_general_dilated(
        x,
        weight,
        _each(stride, n),
        pads,
        rhs_dilation=_each(dilation, n),
        dimension_numbers=_layout(n),
        feature_group_count=groups,
    )
    f = f if bias is None else f + bias.reshape(1, -1, *[1] * n)
    return f[0] if alone else f


def _transposed(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Array:
    n = weight.ndim - 2
    strides, pads, more, dilations = (_each(each, n) for each in (stride, padding, output_padding, dilation))
    # A kernel [channels, features / groups, ...] as one of a convolution: turned round, features first.
    channels, share, *size = weight.shape
    kernel = jnp.flip(weight, tuple(range(2, 2 + n))).reshape(groups, channels // groups, share, *size)
    kernel = jnp.moveaxis(kernel, 2, 1).reshape(groups * share, channels // groups, *size)
    reach = [d * (k - 1) for d, k in zip(dilations, size, strict=True)]
    f = jax.lax.conv_general_dilated(
        x,
        kernel,
        [1] * n,
        [(r - p, r - p + m) for r, p, m in zip(reach, pads, more, strict=True)],
        lhs_dilation=strides,
        rhs_dilation=dilations,
        dimension_numbers=_layout(n),
        feature_group_count=groups,
    )
    return f if bias is None else f + bias.reshape(1, -1, *[1] * n)


def _general(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    if transposed:
        return _transposed(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolve(x, weight, bias, stride, padding, dilation, groups)


CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    "conv1d": _convolve,
    "conv2d": _convolve,
    "conv3d": _convolve,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
    "conv_transpose3d": _transposed,
    "convolution": _general,
}
