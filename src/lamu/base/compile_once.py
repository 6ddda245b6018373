"""Compilation: with few optimisations for few runs, once a shape, rows in blocks of few sizes, and rounded products."""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_context
from jax.extend.core import get_opaque_trace_state

from lamu.base.compiled_programs import keep_compiled
from lamu.typing import Array, DTypeLike, PyTree, RandomKey

__all__ = [
    "CompiledOnce",
    "all_digits",
    "block",
    "compiled_lightly",
    "compiled_once",
    "filled",
    "floating",
    "full_products",
    "is_spread",
    "is_traced",
    "joined_blocks",
    "ladder",
    "lenient",
    "network_products",
    "of_rows",
    "once_a_shape",
    "padded_blocks",
    "require_key",
    "require_untraced",
    "row_keys",
    "subkey",
    "widened",
]


# The posterior of an already trained network consists of a few programs that each run once. XLA spends seconds on them,
# mostly on optimising loops that run for milliseconds; products, convolutions and decompositions are library calls, and
# no slower without these optimisations.


Answer = TypeVar("Answer")

keep_compiled()  # here, because every module that compiles programs imports this file first

_QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
_OVER_ROWS = {"xla_cpu_use_fusion_emitters": False}  # loops over many rows are worth optimising
# Random numbers and gradients compile in a third of the time and run as fast; sums of products round differently.
_LIGHTLY = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}


class CompiledOnce:
    """A function that is compiled with few optimisations, to run a few times; otherwise as `jax.jit` makes it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], static: Any, donated: Any = ()) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options, self._static, self._donated = function, options, static, donated

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function; inside another compiled function it is traced into that."""
        return self._function(*arguments) if is_traced() else self._compiled(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Forwards to the jitted function: `trace`, `lower`, `eval_shape`."""
        return getattr(self._compiled, name)

    @functools.cached_property
    def _compiled(self) -> Any:
        flags = os.environ.get("XLA_FLAGS", "")  # what is said there holds for every program
        options = _accepted_options(tuple(option for option in self._options.items() if option[0] not in flags))
        numbers = {"static_argnums": self._static, "donate_argnums": self._donated}
        return jax.jit(self._function, compiler_options=options or None, **numbers)


def compiled_once(
    over_rows: bool = False, static_argnums: Any = (), donate_argnums: int | tuple[int, ...] = ()
) -> Callable[[Callable[..., Any]], CompiledOnce]:
    """Returns a decorator like `jax.jit`, for a function that runs a few times at most."""
    # `over_rows`: whether it runs over rows of the data, so that its loops are optimised as usual.
    options = _OVER_ROWS if over_rows else _QUICK
    return lambda function: CompiledOnce(function, options, static_argnums, donate_argnums)


def compiled_lightly(static_argnums: Any = (), donate_argnums: Any = ()) -> Callable[..., CompiledOnce]:
    """Returns a decorator like `jax.jit`, for large programs that run a few times and may round differently."""
    return lambda function: CompiledOnce(function, _LIGHTLY, static_argnums, donate_argnums)


def is_traced() -> bool:
    """Whether a function is being traced, where compiler options cannot be set."""
    return get_opaque_trace_state() != _outside()


def require_untraced(asked: str) -> None:
    """Raises a TypeError while a function is being traced."""
    if is_traced():
        raise TypeError(
            f"{asked} reads its data as numbers, which jax.jit, jax.vmap and jax.grad do not give; call it outside of "
            "them, and transform posterior.predict"
        )


@functools.cache
def _outside() -> Any:
    with eval_context():
        return get_opaque_trace_state()


@functools.cache
def _accepted_options(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Returns the options that this version of XLA accepts, tested by compiling a small program."""
    return dict(options) if _are_known(options) else dict(option for option in options if _are_known((option,)))


def _are_known(options: tuple[tuple[str, Any], ...]) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=dict(options)).lower(0.0).compile()
    except Exception:  # the type of XLA's error is not documented
        return False
    return True


@compiled_once()
def subkey(key: RandomKey, number: Any) -> RandomKey:
    """Returns `jax.random.fold_in(key, number)`, compiled in a third of the time outside of other programs."""
    return jax.random.fold_in(key, number)


def require_key(key: Any) -> None:
    """Raises a TypeError for what is no random key of JAX."""
    if not (hasattr(key, "dtype") and (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or np.shape(key)[-1:] == (2,))):
        seed = key if isinstance(key, int) else 0
        raise TypeError(f"key={key!r} is not a random key; give one, for instance jax.random.key({seed})")


def row_keys(key: RandomKey, rows: int, first: Any = 0) -> Array:
    """Returns one key a row, which depends on the key and the row's number alone."""
    numbers = jnp.asarray(first, jnp.int32) + jnp.arange(rows, dtype=jnp.int32)
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(numbers)


# The memory that a row takes is asked for at every call, and never changes.
_MOST = 128  # results kept for one function, the most recently used ones


def once_a_shape(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Caches a function by the structure, shapes and dtypes of its arguments."""
    # Arrays enter the cache key by shape and dtype, everything else by value; JAX's default float is a part of it.
    #
    # `function`: of pytrees; its result must not depend on the arrays' numbers.
    answers: OrderedDict[Any, Answer] = OrderedDict()

    @functools.wraps(function)
    def remembered(*arguments: Any, **named: Any) -> Answer:
        leaves, structure = jax.tree.flatten((arguments, named))
        question = (structure, tuple(map(_told, leaves)), jnp.result_type(float))
        try:
            hash(question)
        except TypeError:  # an unhashable object
            return function(*arguments, **named)
        if question not in answers:
            answers[question] = function(*arguments, **named)
            if len(answers) > _MOST:
                answers.popitem(last=False)
        answers.move_to_end(question)
        return answers[question]

    return remembered


def _told(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else leaf


# By default an accelerator rounds the factors of a float32 product: to 11 bits (TF32) on a GPU, to 8 (bfloat16) on a
# TPU. Network passes lose nothing by it. Covariances do, because they are differences of nearly equal numbers: on an
# H100 the variances of an extended Kalman filter of 500 rows were off by one per cent. So `all_digits` computes at full
# precision, and `network_products` exempts the passes of networks. A default that the user has set
# (`jax.default_matmul_precision`) applies to both.


_Function = TypeVar("_Function", bound=Callable[..., Any])
_kept: ContextVar[bool] = ContextVar("kept", default=False)


def full_products(function: _Function) -> _Function:
    """Decorates a function so that its float32 products have full precision on any device."""
    # It adds a stack frame, which the `stacklevel` of warnings counts: functions that warn use `all_digits`.

    @functools.wraps(function)
    def called(*args: object, **kwargs: object) -> Any:
        with all_digits():
            return function(*args, **kwargs)

    return called  # pyright: ignore[reportReturnType]


@contextmanager
def all_digits() -> Iterator[None]:
    """Context manager under which float32 products have full precision on any device, as they always do on a CPU."""
    # A default that is already set is the user's, except inside of `network_products`, and stays.
    chosen = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    if (chosen is not None and not _kept.get()) or jax.default_backend() == "cpu":
        yield
        return
    token = _kept.set(True)
    try:
        with jax.default_matmul_precision("float32"):
            yield
    finally:
        _kept.reset(token)


@contextmanager
def network_products() -> Iterator[None]:
    """Context manager that restores the device's default precision inside of `all_digits`."""
    if not _kept.get():
        yield
        return
    # Set by name: otherwise the derivative of a product would have the precision of the context it is taken in.
    with jax.default_matmul_precision("default"):
        yield


def widened(values: Array, dtype: DTypeLike = jnp.float32) -> Array:
    """Casts floating arrays of fewer bits than a dtype to that dtype; others are unchanged."""
    narrow = jnp.issubdtype(values.dtype, jnp.floating) and values.dtype.itemsize < jnp.dtype(dtype).itemsize
    return values.astype(dtype) if narrow else values


@contextmanager
def lenient() -> Iterator[None]:
    """Context manager that allows dtype and rank promotion, for third-party code not written for strict promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def of_rows(dtype: DTypeLike) -> DTypeLike:
    """Returns the dtype for computing with inputs: at least 32 bits, and JAX's default where it is not floating."""
    # Weights, row counts and beliefs have this dtype, and float16 cannot count beyond 2,048.
    if not jnp.issubdtype(dtype, jnp.floating):
        return jnp.result_type(float)
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32


def floating(x: Array) -> DTypeLike:
    """Returns the dtype of parameters for inputs like `x`."""
    return x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float)


# A program has one shape, and the number of rows varies. Rows are padded to a ladder of sizes by repeating the last
# one, and the results are cut to the original rows. Rows are independent, so that only the rounding of products
# changes, whose order of summation depends on the shape.


_FEW = 64  # up to this size every second size is a power of two; above, every fourth


def ladder(count: int) -> int:
    """Returns the next of the sizes 1, 2, 3, 4, 6, 8, 12, ..., 64, 80, 96, 112, 128, 160, ..."""
    return -(-count // _step(count - 1)) * _step(count - 1)


@functools.lru_cache(maxsize=1024)
def block(count: int, most: int) -> int:
    """Returns the size of blocks for `count` rows: a size of the ladder, and at most `most`."""
    most = most // _step(most) * _step(most)
    return ladder(-(-count // -(-count // most)))


def _step(below: int) -> int:
    """Returns the distance between the sizes around a number."""
    power = 1 << below.bit_length()
    return max(1, power // (4 if power <= _FEW else 8))


def is_spread(x: object) -> bool:
    """Whether rows are on several devices, from which padding would gather them."""
    return isinstance(x, jax.Array) and len(x.sharding.device_set) > 1


def padded_blocks(rows: PyTree, count: int, size: int) -> Iterator[PyTree]:
    """Yields blocks of rows, all of one size; the last one repeats its last row."""
    if count == size:
        yield rows
        return
    rows = jax.tree.map(np.asarray, rows)
    for start in range(0, count, size):
        missing = max(0, start + size - count)
        yield jax.tree.map(lambda leaf: filled(leaf[start : start + size], missing), rows)  # noqa: B023  (at once)


def filled(leaf: np.ndarray, missing: int, axis: int = 0) -> np.ndarray:
    """Returns an array with its last row repeated `missing` more times."""
    return np.concatenate([leaf, np.repeat(np.take(leaf, [-1], axis), missing, axis)], axis) if missing else leaf


def joined_blocks(leaves: tuple[Array | np.ndarray, ...], count: int, axis: int) -> Array:
    """Joins the results of blocks into one array, without the padding of the last block."""
    host = [np.asarray(leaf) for leaf in leaves]
    joined = host[0] if len(host) == 1 else np.concatenate(host, axis=axis)
    return jax.device_put(joined[(slice(None),) * axis + (slice(0, count),)])  # `jnp.asarray` compiles for each shape
