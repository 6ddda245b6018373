"""Small programs run in NumPy: an operation on arrays outside of a program is one of its own to JAX, for each shape.

They were two thirds of the programs that a first run of the tests compiled, at some 14 ms each, and most ran once. A
program runs here where NumPy gives the same bits (`tests/test_small_programs.py`): it moves numbers, compares them, or
rounds once. What sums, multiplies matrices, or takes an exponential is compiled, as is what runs often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

FEW_CALLS, MOST_NUMBERS = 24, 100_000  # a compiled program is quicker to call, and on large arrays


def _convert(x: np.ndarray, new_dtype: Any, **_: Any) -> np.ndarray | None:
    if new_dtype.kind == "b":
        return x != 0
    widens = np.can_cast(x.dtype, new_dtype, "safe") or (x.dtype.kind in "iu" and new_dtype.kind == "f")
    return x.astype(new_dtype) if widens or x.dtype.kind == new_dtype.kind == "f" else None


def _broadcast(x: np.ndarray, shape: tuple, broadcast_dimensions: tuple, **_: Any) -> np.ndarray:
    size = dict(zip(broadcast_dimensions, x.shape, strict=True))
    return np.broadcast_to(x.reshape([size.get(axis, 1) for axis in range(len(shape))]), shape)


def _slice(x: np.ndarray, start_indices: tuple, limit_indices: tuple, strides: tuple | None) -> np.ndarray:
    return x[tuple(map(slice, start_indices, limit_indices, strides or (1,) * x.ndim))]


def _dynamic_slice(x: np.ndarray, *starts: np.ndarray, slice_sizes: tuple) -> np.ndarray:
    starts = [min(max(int(start), 0), n - size) for start, n, size in zip(starts, x.shape, slice_sizes, strict=True)]
    return x[tuple(slice(start, start + size) for start, size in zip(starts, slice_sizes, strict=True))]


def _split(x: np.ndarray, sizes: tuple, axis: int) -> list[np.ndarray]:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _pad(x: np.ndarray, value: np.ndarray, padding_config: tuple) -> np.ndarray | None:
    if any(low < 0 or high < 0 or inner for low, high, inner in padding_config):
        return None
    return np.pad(x, [(low, high) for low, high, _ in padding_config], constant_values=value)


def _iota(*sizes: np.ndarray, dtype: Any, shape: tuple, dimension: int, **_: Any) -> np.ndarray | None:
    others = [axis for axis in range(len(shape)) if axis != dimension]
    numbers = np.expand_dims(np.arange(shape[dimension], dtype=dtype), others)
    return None if sizes else np.broadcast_to(numbers, shape)


def _select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray | None:
    return np.where(which, cases[1], cases[0]) if which.dtype == bool and len(cases) == 2 else None


def _floats_alone(function: Callable) -> Callable:
    return lambda *xs, **_: function(*xs) if xs[0].dtype.kind == "f" else None


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x * (1 / y) if x.ndim and not y.ndim else x / y  # as XLA does


def _square(x: np.ndarray, y: int = 2) -> np.ndarray | None:
    return x * x if y == 2 else None


def _plain(function: Callable) -> Callable:
    return lambda *xs, **_: function(*xs)


def _reduced(function: Callable) -> Callable:
    return lambda x, axes, **_: function(x, axis=tuple(axes)) if x.size else None


MOVES: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda x, new_sizes, dimensions, **_: x.reshape(new_sizes) if dimensions is None else None,
    "squeeze": lambda x, dimensions: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda x, dimensions: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "split": _split,
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "unstack": lambda x, axis: list(np.moveaxis(x, axis, 0)),
    "pad": _pad,
    "rev": lambda x, dimensions: np.flip(x, tuple(dimensions)),
    "iota": _iota,
    "select_n": _select,
    "copy": _plain(np.copy),
    "copy_p": _plain(np.copy),
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "xor": _plain(np.bitwise_xor),
    "not": _plain(np.invert),
}
EXACT: dict[str, Callable] = {
    "convert_element_type": _convert,
    "neg": _plain(np.negative),
    "abs": _floats_alone(np.abs),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "gt": _plain(np.greater),
    "ge": _plain(np.greater_equal),
    "is_finite": _plain(np.isfinite),
    "floor": _floats_alone(np.floor),
    "ceil": _floats_alone(np.ceil),
    "reduce_max": _reduced(np.max),
    "reduce_min": _reduced(np.min),
    "reduce_and": _reduced(np.all),
    "reduce_or": _reduced(np.any),
}
ROUNDS: dict[str, Callable] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": _floats_alone(_divide),
    "sqrt": _floats_alone(np.sqrt),
    "square": _plain(_square),
    "integer_pow": _square,
}
KINDS = frozenset(map(np.dtype, ("bool", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64")))


class _Program:
    """The operations of a program, and how often it ran; without operations where NumPy cannot run it."""

    def __init__(self, closed: Any) -> None:
        self.calls, self.steps, self.rounded = 0, [], 0
        self.runs = not closed.effects and self._read(closed) and self.rounded <= 1
        self.avals = closed.out_avals
        self.numbers = max([0, *(int(np.prod(a.shape)) for a in (*closed.in_avals, *self.avals))]) if self.runs else 0

    def _read(self, closed: Any) -> bool:
        """Whether all of a program, with the programs in it, is in the tables."""
        jaxpr = closed.jaxpr
        variables = (*jaxpr.invars, *jaxpr.outvars, *jaxpr.constvars)
        if len(jaxpr.eqns) > 8 or not all(getattr(v.aval, "dtype", None) in KINDS for v in variables):
            return False
        names = []
        for equation in jaxpr.eqns:
            name, inner = equation.primitive.name, equation.params.get("jaxpr")
            if name in ("jit", "pjit") and inner is not None:
                if not self._read(inner):
                    return False
                continue
            if name not in MOVES and name not in EXACT and name not in ROUNDS:
                return False
            if not all(v.aval.dtype in KINDS for v in equation.outvars):
                return False
            if name == "div" and hasattr(equation.invars[1], "val"):
                return False
            floats = any(v.aval.dtype.kind == "f" for v in (*equation.invars, *equation.outvars))
            names.append(name)
            self.rounded += name in ROUNDS and floats
        # Nor does XLA divide by a constant, or by one number that the program repeats.
        return "div" not in names or {*names} <= {"div", "convert_element_type"}


def _evaluated(closed: Any, arguments: list[np.ndarray]) -> list[np.ndarray] | None:
    jaxpr, values = closed.jaxpr, {}
    values.update(zip(jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    read = lambda v: np.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else values[v]
    for equation in jaxpr.eqns:
        name, inputs = equation.primitive.name, [read(v) for v in equation.invars]
        if name in ("jit", "pjit"):
            outputs = _evaluated(equation.params["jaxpr"], inputs)
        else:
            function = MOVES.get(name) or EXACT.get(name) or ROUNDS[name]
            outputs = function(*inputs, **equation.params)
            if outputs is not None and not equation.primitive.multiple_results:
                outputs = [outputs]
            if name not in MOVES and any(map(_flushed, (*inputs, *(outputs or ())))):
                return None
        if outputs is None:
            return None
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _flushed(x: np.ndarray) -> bool:
    """Whether a number is so near to zero that XLA takes it for zero."""
    return x.dtype.kind == "f" and bool(np.any((x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)))


def install() -> None:
    """Looks at each program that JAX is about to compile, or to load."""
    from jax._src import array, pjit, sharding_impls, util
    from jax._src.interpreters import pxla

    compiled = pjit._pjit_call_impl_python
    program = util.weakref_lru_cache(_Program)

    def numpy_of(x: Any, aval: Any) -> np.ndarray | None:
        if isinstance(x, array.ArrayImpl):
            return None if x._committed else np.asarray(memoryview(x))
        known = isinstance(x, np.ndarray | np.generic | bool | int | float)
        return np.asarray(x, aval.dtype) if known and np.ndim(x) == len(aval.shape) else None

    def run(*arguments: Any, jaxpr: Any, **options: Any) -> tuple:
        small = program(jaxpr)
        if small.runs and small.calls < FEW_CALLS and small.numbers <= MOST_NUMBERS:
            outputs = in_numpy(small, arguments, jaxpr, options)
            if outputs is not None:
                small.calls += 1
                return outputs, None, None, []
        return compiled(*arguments, jaxpr=jaxpr, **options)

    def in_numpy(small: _Program, arguments: tuple, jaxpr: Any, options: dict) -> list | None:
        placed = (*options["in_shardings"], *options["out_shardings"])
        plain = all(isinstance(sharding, sharding_impls.UnspecifiedValue) for sharding in placed)
        if not plain or any(options["donated_invars"]) or jax.config.jax_default_device is not None:
            return None
        inputs = [numpy_of(x, aval) for x, aval in zip(arguments, jaxpr.in_avals, strict=True)]
        if any(x is None for x in inputs):
            return None
        with np.errstate(all="ignore"):
            outputs = _evaluated(jaxpr, inputs)
        if outputs is None:
            return None
        device = jax.devices()[0]
        where = sharding_impls.SingleDeviceSharding(device)
        return [
            pxla.batched_device_put(aval, where, [np.array(value, aval.dtype, order="C")], [device], False)
            for value, aval in zip(outputs, small.avals, strict=True)
        ]

    pjit._pjit_call_impl_python = run
