"""PyTorch's operators on arrays: elementwise, reductions, products, creation and shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from lamu.typing import Array, DTypeLike, PyTree

__all__ = ["CREATION", "ELEMENTWISE", "PRODUCTS", "REDUCTIONS", "SHAPES"]


Value: TypeAlias = Array | float | int | bool
Dims: TypeAlias = int | Sequence[int] | None  # an axis, several, or all of them


def _arange(*limits: Value, dtype: DTypeLike | None = None) -> Array:
    return jnp.arange(*limits, dtype=dtype)


CREATION: dict[str, Callable[..., PyTree]] = {
    "zeros": lambda size, *, dtype=None: jnp.zeros(size, dtype),
    "ones": lambda size, *, dtype=None: jnp.ones(size, dtype),
    "full": lambda size, value, *, dtype=None: jnp.full(size, value, dtype),
    "empty": lambda size, *, dtype=None: jnp.zeros(size, dtype),
    "eye": lambda n, m=None, *, dtype=None: jnp.eye(n, m, dtype=dtype),
    "arange": _arange,
    "linspace": lambda start, end, steps, *, dtype=None: jnp.linspace(start, end, steps, dtype=dtype),
    "scalar_tensor": lambda value, *, dtype=None: jnp.asarray(value, dtype),
    "zeros_like": lambda x, *, dtype=None: jnp.zeros_like(x, dtype),
    "ones_like": lambda x, *, dtype=None: jnp.ones_like(x, dtype),
    "full_like": lambda x, value, *, dtype=None: jnp.full_like(x, value, dtype),
    "new_zeros": lambda x, size, *, dtype=None: jnp.zeros(size, dtype or x.dtype),
    "new_ones": lambda x, size, *, dtype=None: jnp.ones(size, dtype or x.dtype),
    "new_full": lambda x, size, value, *, dtype=None: jnp.full(size, value, dtype or x.dtype),
}


def _add(a: Value, b: Value, alpha: Value = 1) -> Array:
    return jnp.add(a, b if alpha == 1 else alpha * b)


def _sub(a: Value, b: Value, alpha: Value = 1) -> Array:
    return jnp.subtract(a, b if alpha == 1 else alpha * b)


def _div(a: Value, b: Value, *, rounding_mode: str | None = None) -> Array:
    if rounding_mode is None:
        return jnp.true_divide(a, b)
    return jnp.floor_divide(a, b) if rounding_mode == "floor" else jnp.trunc(jnp.true_divide(a, b))


def _clamp(x: Array, min: Value | None = None, max: Value | None = None) -> Array:
    return jnp.clip(x, min, max)


def _gelu(x: Array, *, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _elu(x: Array, alpha: Value = 1, scale: Value = 1, input_scale: Value = 1) -> Array:
    return scale * jnp.where(x > 0, x, alpha * jnp.expm1(input_scale * jnp.minimum(x, 0)))


def _softplus(x: Array, beta: Value = 1, threshold: Value = 20) -> Array:
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(x * beta) / beta)


def _prelu(x: Array, weight: Array) -> Array:
    slope = weight if weight.size == 1 else weight.reshape(1, -1, *[1] * (x.ndim - 2))
    return jnp.where(x > 0, x, slope * x)


def _threshold(x: Array, threshold: Value, value: Value) -> Array:
    return jnp.where(x > threshold, x, jnp.asarray(value, x.dtype))


def _masked_fill(x: Array, mask: Array, value: Value) -> Array:
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


def _hardsigmoid(x: Array) -> Array:
    return jnp.clip(x / 6 + 0.5, 0, 1)


def _glu(x: Array, dim: int = -1) -> Array:
    value, gate = jnp.split(x, 2, axis=dim)
    return value * jax.nn.sigmoid(gate)


ELEMENTWISE: dict[str, Callable[..., PyTree]] = {
    "abs": jnp.abs,
    "neg": jnp.negative,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "log2": jnp.log2,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "square": jnp.square,
    "reciprocal": jnp.reciprocal,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tanh": jnp.tanh,
    "atan": jnp.arctan,
    "erf": jax.lax.erf,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "sign": jnp.sign,
    "sigmoid": jax.nn.sigmoid,
    "log_sigmoid": jax.nn.log_sigmoid,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "silu": jax.nn.silu,
    "selu": jax.nn.selu,
    "mish": jax.nn.mish,
    "elu": _elu,
    "celu": lambda x, alpha=1.0: _elu(x, alpha, 1, 1 / alpha),
    "gelu": _gelu,
    "glu": _glu,
    "leaky_relu": lambda x, negative_slope=0.01: jnp.where(x > 0, x, negative_slope * x),
    "hardtanh": lambda x, min_val=-1, max_val=1: jnp.clip(x, min_val, max_val),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "softplus": _softplus,
    "prelu": _prelu,
    "threshold": _threshold,
    "clamp": _clamp,
    "clamp_min": lambda x, min: jnp.maximum(x, min),
    "clamp_max": lambda x, max: jnp.minimum(x, max),
    "add": _add,
    "sub": _sub,
    "rsub": lambda a, b, alpha=1: _sub(b, a, alpha=alpha),
    "mul": jnp.multiply,
    "div": _div,
    "floor_divide": jnp.floor_divide,
    "remainder": jnp.remainder,
    "fmod": jnp.fmod,
    "pow": jnp.power,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "atan2": jnp.arctan2,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "logical_not": jnp.logical_not,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_not": jnp.bitwise_not,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "where": jnp.where,
    "masked_fill": _masked_fill,
    "addcmul": lambda x, a, b, *, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, *, value=1: x + value * a / b,
    "lerp": lambda a, b, weight: a + weight * (b - a),
}


def _axes(dim: Dims) -> int | tuple[int, ...] | None:
    """Returns PyTorch's dims as JAX's axes; None or an empty list are all of them."""
    return dim if dim is None or isinstance(dim, int) else tuple(dim) or None


def _reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduced(x: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Array:
        return function(x if dtype is None else x.astype(dtype), axis=_axes(dim), keepdims=keepdim)

    return reduced


def _with_place(best: Callable[..., Array], place: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    def reduced(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        return best(x, axis=dim, keepdims=keepdim), place(x, axis=dim, keepdims=keepdim)

    return reduced


def _place(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim=None, keepdim=False: function(x, axis=dim, keepdims=keepdim)


def _variance(
    x: Array, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: int | None = None
) -> Array:
    lost = int(unbiased) if correction is None else correction
    return jnp.var(x, axis=_axes(dim), ddof=lost, keepdims=keepdim)


def _spread_mean(spread: Callable[..., Array]) -> dict[str, Callable[..., tuple[Array, Array]]]:
    """Returns the overloads of `var_mean` or `std_mean`, by the suffixes of their names."""

    def both(
        x: Array, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, *, correction: int | None = None
    ) -> tuple[Array, Array]:
        return spread(x, dim, unbiased, keepdim, correction=correction), jnp.mean(x, axis=_axes(dim), keepdims=keepdim)

    return {"": both, ".default": lambda x, unbiased=True: both(x, None, unbiased)}


def _std(*args: PyTree, **options: PyTree) -> Array:
    return jnp.sqrt(_variance(*args, **options))


def _at(x: Array, index: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """Returns the values at one index along an axis, and the indices."""
    places = jnp.expand_dims(index, dim)
    values = jnp.take_along_axis(x, places, axis=dim)
    return (values, places) if keepdim else (jnp.squeeze(values, dim), index)


def _order_statistic(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    return _at(x, jnp.take(jnp.argsort(x, axis=dim), k - 1, axis=dim), dim, keepdim)


def _median(x: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """Returns the lower of the two middle values, as PyTorch does; NaN, which sorts last, if there is one."""
    size = x.shape[dim]
    rank = jnp.where(jnp.isnan(x).any(axis=dim, keepdims=True), size - 1, (size - 1) // 2)
    index = jnp.take_along_axis(jnp.argsort(x, axis=dim), rank, axis=dim)
    return _at(x, jnp.squeeze(index, dim), dim, keepdim)


def _cosine_similarity(a: Array, b: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    a, b = jnp.broadcast_arrays(a, b)
    lengths = (jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(each), axis=dim), eps**2)) for each in (a, b))
    return jnp.sum(a * b, axis=dim) / math.prod(lengths)


def _pairwise_distance(a: Array, b: Array, p: float = 2, eps: float = 1e-6, keepdim: bool = False) -> Array:
    return _norm(a - b + eps, p, -1, keepdim)


def _weight_norm(direction: Array, length: Array, dim: int = 0) -> Array:
    axes = tuple(axis for axis in range(direction.ndim) if dim == -1 or axis != dim % direction.ndim)
    return direction * (length / jnp.sqrt(jnp.sum(jnp.square(direction), axis=axes, keepdims=dim != -1)))


def _norm(
    x: Array, ord: float | int | None = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Array:
    axes, ord = _axes(dim), 2 if ord is None else ord
    if ord == 2:
        return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=keepdim))
    if ord == float("inf"):
        return jnp.max(jnp.abs(x), axis=axes, keepdims=keepdim)
    return jnp.sum(jnp.abs(x) ** ord, axis=axes, keepdims=keepdim) ** (1 / ord)


def _soft(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim, dtype=None: function(x if dtype is None or dtype is False else x.astype(dtype), axis=dim)


REDUCTIONS: dict[str, Callable[..., PyTree]] = {
    "sum": _reduction(jnp.sum),
    "mean": _reduction(jnp.mean),
    "prod": _reduction(jnp.prod),
    "amax": _reduction(jnp.max),
    "amin": _reduction(jnp.min),
    "any": _reduction(jnp.any),
    "all": _reduction(jnp.all),
    "logsumexp": _reduction(jax.scipy.special.logsumexp),
    "max": jnp.max,
    "max.other": jnp.maximum,
    "max.dim": _with_place(jnp.max, jnp.argmax),
    "min": jnp.min,
    "min.other": jnp.minimum,
    "min.dim": _with_place(jnp.min, jnp.argmin),
    "argmax": _place(jnp.argmax),
    "argmin": _place(jnp.argmin),
    "var": _variance,
    "var.default": lambda x, unbiased=True: _variance(x, None, unbiased),
    "std.default": lambda x, unbiased=True: jnp.sqrt(_variance(x, None, unbiased)),
    "std": _std,
    **{f"var_mean{overload}": each for overload, each in _spread_mean(_variance).items()},
    **{f"std_mean{overload}": each for overload, each in _spread_mean(_std).items()},
    "median": _median,
    "median.default": lambda x: _median(x.reshape(-1))[0],
    "kthvalue": _order_statistic,
    "cosine_similarity": _cosine_similarity,
    "pairwise_distance": _pairwise_distance,
    "_weight_norm": _weight_norm,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "cumsum": lambda x, dim, *, dtype=None: jnp.cumsum(x, axis=dim, dtype=dtype),
    "softmax": _soft(jax.nn.softmax),
    "_softmax": _soft(jax.nn.softmax),
    "log_softmax": _soft(jax.nn.log_softmax),
    "_log_softmax": _soft(jax.nn.log_softmax),
}


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = x @ weight.T
    return product if bias is None else product + bias


def _added(bias: Array, left: Array, right: Array, *, beta: Value = 1, alpha: Value = 1) -> Array:
    return beta * bias + alpha * (left @ right)


def _embedding(weight: Array, codes: Array, padding: int = -1, *_: object) -> Array:
    rows = _looked_up(weight, codes)
    if padding < 0:
        return rows
    return jnp.where((codes == padding)[..., None], jax.lax.stop_gradient(rows), rows)  # no gradient of the padding row


def _looked_up(weight: Array, codes: Array) -> Array:
    """Returns rows of a table, NaN for codes outside of it."""
    # PyTorch refuses such codes; JAX would read the last row, or from the end.
    outside = (codes < 0) | (codes >= weight.shape[0])
    return jnp.where(outside[..., None], jnp.asarray(jnp.nan, weight.dtype), weight[codes])


def _embedding_bag(
    weight: Array,
    codes: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding: int | None = None,
) -> tuple[Array, None, None, None]:
    """Returns the sum, mean or maximum of the rows of each bag, whose codes begin at its offset; 0 for an empty one."""
    bags = offsets.shape[0] - include_last_offset
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(codes.shape[0]), side="right") - 1
    counted = jnp.ones(codes.shape, bool) if padding is None or padding < 0 else codes != padding
    size = jax.ops.segment_sum(counted.astype(weight.dtype), bag, bags)[:, None]
    rows = _looked_up(weight, codes)
    if mode == 2:
        rows = jnp.where(counted[:, None], rows, -jnp.inf)
        return jnp.where(size > 0, jax.ops.segment_max(rows, bag, bags), 0), None, None, None
    share = counted.astype(weight.dtype) if per_sample_weights is None else counted * per_sample_weights
    total = jax.ops.segment_sum(rows * share[:, None], bag, bags)
    return total if mode == 0 else total / jnp.maximum(size, 1), None, None, None


PRODUCTS: dict[str, Callable[..., PyTree]] = {
    "linear": _linear,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "mv": jnp.matmul,
    "dot": jnp.matmul,
    "vdot": jnp.vdot,
    "outer": jnp.outer,
    "addmm": _added,
    "baddbmm": _added,
    "einsum": lambda equation, operands, path=None: jnp.einsum(equation, *operands),
    "bilinear": lambda a, b, weight, bias=None: (
        jnp.einsum("...i,oij,...j->...o", a, weight, b) + (0 if bias is None else bias)
    ),
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
}


def _flatten(x: Array, start: int = 0, end: int = -1) -> Array:
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def _unflatten(x: Array, dim: int, sizes: Sequence[int]) -> Array:
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _squeeze(x: Array, dim: Dims = None) -> Array:
    dims = range(x.ndim) if dim is None else ([dim] if isinstance(dim, int) else dim)
    return jnp.squeeze(x, tuple(each % x.ndim for each in dims if x.shape[each] == 1))


def _expand(x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    new = len(size) - x.ndim
    return jnp.broadcast_to(x, [x.shape[i - new] if each == -1 else each for i, each in enumerate(size)])


def _repeat(x: Array, repeats: Sequence[int]) -> Array:
    return jnp.tile(x.reshape(*[1] * (len(repeats) - x.ndim), *x.shape), repeats)


def _along(x: Array, dim: int, index: Any) -> Array:
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def _slice(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    return _along(x, dim, slice(start, end, step))


def _index(x: Array, indices: Sequence[Array | None]) -> Array:
    return x[tuple(slice(None) if each is None else each for each in indices)]


def _pieces(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [_slice(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _split(x: Array, size: int | Sequence[int], dim: int = 0) -> list[Array]:
    if not isinstance(size, int):
        return _pieces(x, size, dim)
    length = x.shape[dim]
    return _pieces(x, [min(size, length - start) for start in range(0, length, size)], dim)


def _chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    return _split(x, -(-x.shape[dim] // chunks), dim)


def _pad(x: Array, pad: Sequence[int], mode: str = "constant", value: Value | None = None) -> Array:
    widths = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):  # PyTorch names the last axis first
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    if mode != "constant":
        return jnp.pad(x, widths, {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode])
    cut = tuple(slice(max(-low, 0), size - max(-high, 0)) for (low, high), size in zip(widths, x.shape, strict=True))
    grown = [(max(low, 0), max(high, 0)) for low, high in widths]
    return jnp.pad(x[cut], grown, constant_values=0 if value is None else value)


def _pixel_shuffle(x: Array, factor: int) -> Array:
    *rows, channels, height, width = x.shape
    x = x.reshape(*rows, channels // factor**2, factor, factor, height, width)
    n = len(rows)
    x = x.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*rows, channels // factor**2, height * factor, width * factor)


def _topk(x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    last = jnp.moveaxis(x, dim, -1)
    values, places = jax.lax.top_k(last if largest else -last, k)
    return tuple(jnp.moveaxis(each, -1, dim) for each in (values if largest else -values, places))  # type: ignore[return-value]


def _sort(x: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> tuple[Array, Array]:
    places = jnp.argsort(x, axis=dim, descending=descending)
    return jnp.take_along_axis(x, places, axis=dim), places


def _sort_stable(
    x: Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    return _sort(x, dim, descending)


def _gather(x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    cut = tuple(slice(None) if axis == dim % x.ndim else slice(size) for axis, size in enumerate(index.shape))
    return jnp.take_along_axis(x[cut], index, axis=dim)


def _to(x: Array, *args: PyTree, dtype: DTypeLike | None = None, **_: object) -> Array:
    given = [each for each in args if isinstance(each, jnp.dtype | type) and not isinstance(each, bool)]
    dtype = given[0] if given else dtype
    return x if dtype is None else jnp.asarray(x, dtype)


def _same(x: Array, *_: object, **__: object) -> Array:
    return x


SHAPES: dict[str, Callable[..., PyTree]] = {
    "view": lambda x, size: x.reshape(size),
    "view.dtype": lambda x, dtype: x.view(dtype),
    "_unsafe_view": lambda x, size: x.reshape(size),
    "reshape": lambda x, size: x.reshape(size),
    "view_as": lambda x, other: x.reshape(other.shape),
    "flatten": _flatten,
    "unflatten": _unflatten,
    "permute": lambda x, dims: jnp.transpose(x, dims),
    "transpose": jnp.swapaxes,
    "swapaxes": jnp.swapaxes,
    "t": jnp.transpose,
    "numpy_T": jnp.transpose,
    "movedim": jnp.moveaxis,
    "unsqueeze": jnp.expand_dims,
    "squeeze": _squeeze,
    "expand": _expand,
    "expand_as": lambda x, other: jnp.broadcast_to(x, other.shape),
    "broadcast_to": jnp.broadcast_to,
    "repeat": _repeat,
    "repeat_interleave": lambda x, repeats, dim=None: jnp.repeat(x, repeats, axis=dim),
    "cat": lambda tensors, dim=0: jnp.concatenate(tensors, axis=dim),
    "stack": lambda tensors, dim=0: jnp.stack(tensors, axis=dim),
    "split": _split,
    "split_with_sizes": _pieces,
    "chunk": _chunk,
    "unbind": lambda x, dim=0: [_along(x, dim, i) for i in range(x.shape[dim])],
    "slice": _slice,
    "narrow": lambda x, dim, start, length: _slice(x, dim, start, start + length),
    "select": _along,
    "index": _index,
    "index_select": _along,
    "gather": _gather,
    "topk": _topk,
    "sort": _sort,
    "sort.stable": _sort_stable,
    "argsort": lambda x, dim=-1, descending=False: _sort(x, dim, descending)[1],
    "flip": lambda x, dims: jnp.flip(x, dims),
    "roll": lambda x, shifts, dims: jnp.roll(x, shifts, dims or None),
    "pad": _pad,
    "constant_pad_nd": lambda x, pad, value=0: _pad(x, pad, value=value),
    "pixel_shuffle": _pixel_shuffle,
    "tril": lambda x, diagonal=0: jnp.tril(x, diagonal),
    "triu": lambda x, diagonal=0: jnp.triu(x, diagonal),
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: jnp.diagonal(x, offset, dim1, dim2),
    "sym_numel": lambda x: x.size,
    "sym_size": lambda x, dim: x.shape[dim],
    "to": _to,
    "_to_copy": _to,
    "type_as": lambda x, other: x.astype(other.dtype),
    "contiguous": _same,
    "clone": _same,
    "detach": _same,
    "detach_": _same,
    "alias": _same,
    "lift_fresh_copy": _same,
    "copy": lambda x, source, *_: jnp.broadcast_to(source, x.shape).astype(x.dtype),
}
