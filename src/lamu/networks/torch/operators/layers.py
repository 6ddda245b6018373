"""PyTorch's layers: attention, convolutions, normalisation, pooling, recurrences and noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from lamu.networks.torch.eager import Mode
from lamu.typing import Array, PyTree

__all__ = [
    "ATTENTION_WITH_MODE",
    "CELLS",
    "CONVOLUTIONS",
    "NOISE",
    "NORMALISATION",
    "NORMALISATION_WITH_MODE",
    "POOLING",
    "RECURRENT",
    "dropped",
]


Sizes: TypeAlias = int | Sequence[int]  # one for all axes, or one an axis


def dropped(mode: Mode, x: Array, p: float, shape: tuple[int, ...] | None = None) -> Array:
    """Returns x with entries dropped at the rate p and the others scaled up; x itself in a pass without a key."""
    if mode.key is None or p == 0:
        return x
    if p == 1:
        return jnp.zeros_like(x)
    kept = jax.random.bernoulli(mode.key, 1 - p, x.shape if shape is None else shape)
    return jnp.where(kept, x / (1 - p), jnp.zeros_like(x))


def _dropout(mode: Mode, x: Array, p: float, train: bool) -> tuple[Array, dict[int, Array]]:
    return dropped(mode, x, p), {}


def _feature_dropout(mode: Mode, x: Array, p: float, train: bool) -> tuple[Array, dict[int, Array]]:
    return dropped(mode, x, p, (*x.shape[:2], *[1] * (x.ndim - 2))), {}


def _alpha_dropped(mode: Mode, x: Array, p: float, shape: tuple[int, ...]) -> tuple[Array, dict[int, Array]]:
    """Returns x with entries at the least value of SELU at the rate p, with the same mean and variance."""
    if mode.key is None or p == 0:
        return x, {}
    least, kept = -1.7580993408473766, jax.random.bernoulli(mode.key, 1 - p, shape)
    scale = 1 / math.sqrt((1 - p) * (1 + p * least**2)) if p < 1 else 0.0
    return scale * (jnp.where(kept, x, least) - p * least), {}


NOISE: dict[str, Callable[..., PyTree]] = {
    "dropout": _dropout,
    "feature_dropout": _feature_dropout,
    "alpha_dropout": lambda mode, x, p, train: _alpha_dropped(mode, x, p, x.shape),
    "feature_alpha_dropout": lambda mode, x, p, train: _alpha_dropped(mode, x, p, (*x.shape[:2], *[1] * (x.ndim - 2))),
}


def _attention(
    mode: Mode,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array, dict[int, Array]]:
    if enable_gqa:
        key, value = (jnp.repeat(each, query.shape[-3] // each.shape[-3], axis=-3) for each in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    score = scale * (query @ jnp.swapaxes(key, -1, -2))
    least = jnp.asarray(-jnp.inf, score.dtype)
    if is_causal:
        score = jnp.where(jnp.tril(jnp.ones(score.shape[-2:], bool)), score, least)
    if mask is not None:
        score = jnp.where(mask, score, least) if mask.dtype == bool else score + mask
    return dropped(mode, jax.nn.softmax(score, axis=-1), dropout) @ value, {}


ATTENTION_WITH_MODE: dict[str, Callable[..., PyTree]] = {"scaled_dot_product_attention": _attention}


def _each(value: Sizes, n: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * n if len(values) == 1 else values


def _product(
    x: Array,
    kernel: Array,
    bias: Array | None,
    stride: list[int],
    padding: str | list[tuple[int, int]],
    dilation: list[int],
    groups: int,
    enlarged: list[int] | None = None,
) -> Array:
    """Returns a convolution of possibly dilated inputs with a kernel `[features, channels / groups, ...]`."""
    axes = "HWD"[: kernel.ndim - 2]
    f = jax.lax.conv_general_dilated(
        x,
        kernel,
        stride,
        padding,
        lhs_dilation=enlarged,
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{axes}", f"OI{axes}", f"NC{axes}"),
        feature_group_count=groups,
    )
    return f if bias is None else f + bias.reshape(1, -1, *[1] * len(axes))


def _convolve(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    n = weight.ndim - 2
    alone = x.ndim == n + 1  # one image, without an axis of rows
    x = x[None] if alone else x
    if isinstance(padding, str):
        pads = padding.upper()
    else:
        pads = [(each, each) for each in _each(padding, n)]
    f = _product(x, weight, bias, _each(stride, n), pads, _each(dilation, n), groups)
    return f[0] if alone else f


def _transposed(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Array:
    n = weight.ndim - 2
    strides, pads, more, dilations = (_each(each, n) for each in (stride, padding, output_padding, dilation))
    # Turns a kernel [channels, features / groups, ...] into one of a convolution: flipped, features first.
    channels, share, *size = weight.shape
    kernel = jnp.flip(weight, tuple(range(2, 2 + n))).reshape(groups, channels // groups, share, *size)
    kernel = jnp.moveaxis(kernel, 2, 1).reshape(groups * share, channels // groups, *size)
    reach = [d * (k - 1) for d, k in zip(dilations, size, strict=True)]
    around = [(r - p, r - p + m) for r, p, m in zip(reach, pads, more, strict=True)]
    return _product(x, kernel, bias, [1] * n, around, dilations, groups, strides)


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


CONVOLUTIONS: dict[str, Callable[..., PyTree]] = {
    "conv1d": _convolve,
    "conv2d": _convolve,
    "conv3d": _convolve,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
    "conv_transpose3d": _transposed,
    "convolution": _general,
}


def _scaled(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean = jnp.mean(x, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + eps)


def _along(feature: Array, x: Array) -> Array:
    return feature.reshape(1, -1, *[1] * (x.ndim - 2))


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * _along(weight, x)
    return x if bias is None else x + _along(bias, x)


def _layer_norm(
    x: Array,
    shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    *_: object,
) -> Array:
    x = _scaled(x, tuple(range(-len(shape), 0)), eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _rms_norm(x: Array, shape: Sequence[int], weight: Array | None = None, eps: float | None = None) -> Array:
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    square = jnp.mean(jnp.square(x), axis=tuple(range(-len(shape), 0)), keepdims=True)
    x = x * jax.lax.rsqrt(square + eps)
    return x if weight is None else x * weight


def _group_norm(
    x: Array, groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5, *_: bool
) -> Array:
    grouped = x.reshape(x.shape[0], groups, -1)
    return _affine(_scaled(grouped, (2,), eps).reshape(x.shape), weight, bias)


def _batch_norm(
    mode: Mode,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    variance: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: object,
) -> tuple[Array, dict[int, Array]]:
    """Returns the normalised features, and the running statistics by the positions of their arguments."""
    if mean is not None and variance is not None and not (training and mode.train):
        return _affine((x - _along(mean, x)) * jax.lax.rsqrt(_along(variance, x) + eps), weight, bias), {}
    axes = (0, *range(2, x.ndim))
    rows = jnp.ones(x.shape[0], bool) if mode.mask is None else mode.mask > 0
    real = rows.reshape(-1, *[1] * (x.ndim - 1))
    x = jnp.where(real, x, jnp.zeros_like(x))  # padded rows cannot make gradients NaN
    size = jnp.maximum(jnp.sum(rows), 1).astype(x.dtype) * (x.size // x.shape[0] // x.shape[1])
    now = jnp.sum(x, axis=axes) / size
    deviation = jnp.where(real, x - _along(now, x), jnp.zeros_like(x))
    spread = jnp.sum(jnp.square(deviation), axis=axes) / size
    f = _affine((x - _along(now, x)) * jax.lax.rsqrt(_along(spread, x) + eps), weight, bias)
    if mean is None or variance is None:
        return f, {}
    rate = momentum * jnp.minimum(jnp.sum(rows), 1).astype(x.dtype)
    unbiased = spread * size / jnp.maximum(size - 1, 1)  # PyTorch normalises by the biased one and stores this one
    return f, {3: mean + rate * (now - mean), 4: variance + rate * (unbiased - variance)}


def _instance_norm(
    mode: Mode,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array | None,
    variance: Array | None,
    use: bool,
    *rest: PyTree,
) -> tuple[Array, dict[int, Array]]:
    if mean is not None and not (use and mode.train):
        return _batch_norm(mode, x, weight, bias, mean, variance, False, *rest)
    return _affine(_scaled(x, tuple(range(2, x.ndim)), rest[1]), weight, bias), {}


NORMALISATION: dict[str, Callable[..., PyTree]] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
}
NORMALISATION_WITH_MODE: dict[str, Callable[..., PyTree]] = {"batch_norm": _batch_norm, "instance_norm": _instance_norm}


def _windows(
    x: Array, size: list[int], stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil: bool
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]:
    n = len(size)
    strides = _each(stride, n) if stride not in (None, []) else size
    pads, dilations = _each(padding, n), _each(dilation, n)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, size, strict=True)]
    ends = []
    for length, r, s, p in zip(x.shape[-n:], reach, strides, pads, strict=True):
        steps = (length + 2 * p - r) / s
        count = math.ceil(steps) if ceil else math.floor(steps)
        if ceil and count * s >= length + p:  # a window must not begin in the padding on the right
            count -= 1
        ends.append((p, max(count * s + r - length - p, 0)))
    ahead = x.ndim - n
    return (
        (1,) * ahead + tuple(size),
        (1,) * ahead + tuple(strides),
        ((0, 0),) * ahead + tuple(ends),
        (1,) * ahead + tuple(dilations),
    )


def _max_pool(n: int) -> Callable[..., Array]:
    def pooled(
        x: Array,
        size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Array:
        window, strides, pads, dilations = _windows(x, _each(size, n), stride, padding, dilation, ceil_mode)
        least = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
        return jax.lax.reduce_window(x, least, jax.lax.max, window, strides, pads, window_dilation=dilations)

    return pooled


def _average_pool(n: int) -> Callable[..., Array]:
    def pooled(
        x: Array,
        size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        window, strides, pads, _ = _windows(x, _each(size, n), stride, padding, 1, ceil_mode)

        def total(x: Array, pads: tuple[tuple[int, int], ...]) -> Array:
            return jax.lax.reduce_window(x, np.zeros((), x.dtype), jax.lax.add, window, strides, pads)

        if divisor_override is not None:
            return total(x, pads) / divisor_override
        ones = jnp.ones_like(x)
        if count_include_pad:  # padding counts, but not the part added by rounding up
            own = _each(padding, n)
            ones = jnp.pad(ones, ((0, 0),) * (x.ndim - n) + tuple((p, p) for p in own), constant_values=1)
            beyond = tuple((0, max(high - p, 0)) for (_, high), p in zip(pads[-n:], own, strict=True))
            return total(x, pads) / total(ones, ((0, 0),) * (x.ndim - n) + beyond)
        return total(x, pads) / total(ones, pads)

    return pooled


def _adaptive(function: Callable[..., Array], n: int) -> Callable[..., Array]:
    def pooled(x: Array, sizes: Sizes) -> Array:
        for axis, size in zip(range(-n, 0), _each(sizes, n), strict=True):
            length = x.shape[axis]
            starts = [i * length // size for i in range(size)]
            ends = [-(-(i + 1) * length // size) for i in range(size)]
            pieces = [
                function(jax.lax.slice_in_dim(x, start, end, axis=axis % x.ndim), axis=axis, keepdims=True)
                for start, end in zip(starts, ends, strict=True)
            ]
            x = jnp.concatenate(pieces, axis=axis)
        return x

    return pooled


def _target(x: Array, size: Sizes | None, scales: Sequence[float | int] | None, n: int) -> list[int]:
    if size is not None:
        return _each(size, n)
    factors = scales or ()
    return [math.floor(length * factor) for length, factor in zip(x.shape[-n:], factors, strict=True)]


def _nearest(n: int) -> Callable[..., Array]:
    def resized(x: Array, size: Sizes | None = None, scales: Sequence[float | int] | None = None) -> Array:
        for axis, target in zip(range(-n, 0), _target(x, size, scales, n), strict=True):
            x = jnp.take(x, jnp.arange(target) * x.shape[axis] // target, axis=axis)
        return x

    return resized


def _linear(n: int) -> Callable[..., Array]:
    def resized(
        x: Array, size: Sizes | None, align_corners: bool, scales: Sequence[float | int] | None = None
    ) -> Array:
        targets = _target(x, size, scales, n)
        for axis, target in zip(range(-n, 0), targets, strict=True):
            length = x.shape[axis]
            steps = jnp.arange(target, dtype=x.dtype)
            if align_corners:
                positions = steps * ((length - 1) / max(target - 1, 1))
            else:
                positions = jnp.maximum((steps + 0.5) * (length / target) - 0.5, 0)
            low = jnp.floor(positions).astype(int)
            high = jnp.minimum(low + 1, length - 1)
            share = (positions - low).reshape(-1, *[1] * (-1 - axis))
            x = jnp.take(x, low, axis=axis) * (1 - share) + jnp.take(x, high, axis=axis) * share
        return x

    return resized


POOLING: dict[str, Callable[..., PyTree]] = {
    "max_pool1d": _max_pool(1),
    "max_pool2d": _max_pool(2),
    "max_pool3d": _max_pool(3),
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
    "adaptive_avg_pool1d": _adaptive(jnp.mean, 1),
    "adaptive_avg_pool2d": _adaptive(jnp.mean, 2),
    "adaptive_max_pool2d": lambda x, sizes: (_adaptive(jnp.max, 2)(x, sizes), None),
    "upsample_nearest1d": _nearest(1),
    "upsample_nearest2d": _nearest(2),
    "upsample_linear1d": _linear(1),
    "upsample_bilinear2d": _linear(2),
}


Cell = Callable[[tuple[Array, ...], Array, Array, Array | int], tuple[Array, ...]]


def _lstm_cell(carry: tuple[Array, ...], drive: Array, recurrent: Array, bias: Array | int) -> tuple[Array, ...]:
    hidden, memory = carry
    i, f, g, o = jnp.split(drive + hidden @ recurrent.T + bias, 4, axis=-1)
    memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(memory), memory


def _gru_cell(carry: tuple[Array, ...], drive: Array, recurrent: Array, bias: Array | int) -> tuple[Array, ...]:
    (hidden,) = carry
    (r, z, n), (hr, hz, hn) = (jnp.split(each, 3, axis=-1) for each in (drive, hidden @ recurrent.T + bias))
    update = jax.nn.sigmoid(z + hz)
    new = jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn)
    return ((1 - update) * new + update * hidden,)


def _elman_cell(activation: Callable[[Array], Array]) -> Cell:
    def cell(carry: tuple[Array, ...], drive: Array, recurrent: Array, bias: Array | int) -> tuple[Array, ...]:
        return (activation(drive + carry[0] @ recurrent.T + bias),)

    return cell


def _direction(
    cell: Cell, x: Array, start: tuple[Array, ...], weights: Sequence[Array], reverse: bool
) -> tuple[Array, tuple[Array, ...]]:
    """Returns the hidden states `[time, batch, units]` and the last carry."""
    inputs, recurrent, *biases = weights
    drive = x @ inputs.T + (biases[0] if biases else 0)  # one product for all times
    bias = biases[1] if biases else 0

    def step(carry: tuple[Array, ...], drive: Array) -> tuple[tuple[Array, ...], Array]:
        carry = cell(carry, drive, recurrent, bias)
        return carry, carry[0]

    last, hidden = jax.lax.scan(step, start, drive, reverse=reverse)
    return hidden, last


def _recurrent(cell: Cell) -> Callable[..., tuple[tuple[Array, ...], dict[int, Array]]]:
    def layers(
        mode: Mode,
        x: Array,
        start: Array | Sequence[Array],
        params: Sequence[Array],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[tuple[Array, ...], dict[int, Array]]:
        start = tuple(start) if isinstance(start, Sequence) else (start,)
        x = jnp.swapaxes(x, 0, 1) if batch_first else x
        directions, size = 1 + bidirectional, 4 if has_biases else 2
        if len(params) != size * directions * num_layers:
            raise TypeError("a recurrent layer with projections (proj_size) is not read; leave proj_size out")
        lasts = []
        for layer in range(num_layers):
            if layer:
                x = dropped(mode.at(layer), x, dropout)
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                weights = params[index * size : (index + 1) * size]
                begin = tuple(each[index] for each in start)
                hidden, last = _direction(cell, x, begin, weights, reverse=direction == 1)
                outputs.append(hidden)
                lasts.append(last)
            x = jnp.concatenate(outputs, axis=-1)
        final = (jnp.stack(each) for each in zip(*lasts, strict=True))
        return ((jnp.swapaxes(x, 0, 1) if batch_first else x), *final), {}

    return layers


def _one_step(cell: Cell) -> Callable[..., tuple[Array, ...]]:
    def step(
        x: Array,
        carry: tuple[Array, ...],
        inputs: Array,
        recurrent: Array,
        input_bias: Array | None = None,
        bias: Array | None = None,
    ) -> tuple[Array, ...]:
        drive = x @ inputs.T + (0 if input_bias is None else input_bias)
        return cell(carry, drive, recurrent, 0 if bias is None else bias)

    return step


def _one_step_of_one(cell: Cell) -> Callable[..., Array]:
    return lambda x, hidden, *weights: _one_step(cell)(x, (hidden,), *weights)[0]


CELLS: dict[str, Callable[..., PyTree]] = {
    "lstm_cell": lambda x, carry, *weights: _one_step(_lstm_cell)(x, tuple(carry), *weights),
    "gru_cell": _one_step_of_one(_gru_cell),
    "rnn_tanh_cell": _one_step_of_one(_elman_cell(jnp.tanh)),
    "rnn_relu_cell": _one_step_of_one(_elman_cell(jax.nn.relu)),
}
RECURRENT: dict[str, Callable[..., PyTree]] = {
    "lstm": _recurrent(_lstm_cell),
    "gru": _recurrent(_gru_cell),
    "rnn_tanh": _recurrent(_elman_cell(jnp.tanh)),
    "rnn_relu": _recurrent(_elman_cell(jax.nn.relu)),
}
