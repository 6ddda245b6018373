"""Dtypes and digits: promotion inside other people's code, and products of float32 on accelerators."""

# An accelerator shortens the factors of a float32 product unless it is told not to: to 11 bits (TF32) on a GPU, to 8
# (bfloat16) on a TPU. The passes of a network lose nothing by it. Covariances do, which are differences of what is
# nearly equal: on an H100 the variances of an extended Kalman filter of 500 rows were off by one per cent. So
# `all_digits` keeps all digits in what Lamu computes, and `network_products` takes the passes of networks out of it. A
# default that somebody has chosen (`jax.default_matmul_precision`) holds for both.

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lamu.typing import Array, DTypeLike

__all__ = ["all_digits", "full_products", "lenient", "network_products", "of_rows", "widened"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_kept: ContextVar[bool] = ContextVar("kept", default=False)


def full_products(function: _Function) -> _Function:
    """Decorates a function whose float32 products are to have all their digits on any device."""
    # It puts a frame on the stack, which warnings count: what can warn takes `all_digits`.

    @functools.wraps(function)
    def called(*args: object, **kwargs: object) -> Any:
        with all_digits():
            return function(*args, **kwargs)

    return called  # pyright: ignore[reportReturnType]


@contextmanager
def all_digits() -> Iterator[None]:
    """Gives float32 products in a `with` block all their digits on any device; on a CPU they have them anyway."""
    # Inside, `network_products` is the way back. A default that is set is the user's, but inside of `network_products`.
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
    """Gives products in a `with` block the device's own precision again, inside of `all_digits`."""
    if not _kept.get():
        yield
        return
    # By name: a product without a precision of its own would be differentiated under whatever holds around it.
    with jax.default_matmul_precision("default"):
        yield


def widened(values: Array, dtype: DTypeLike = jnp.float32) -> Array:
    """Returns floating numbers of fewer bits than a dtype has in that dtype, and all others as they are."""
    narrow = jnp.issubdtype(values.dtype, jnp.floating) and values.dtype.itemsize < jnp.dtype(dtype).itemsize
    return values.astype(dtype) if narrow else values


@contextmanager
def lenient() -> Iterator[None]:
    """Lets dtypes and ranks promote inside a `with` block: few libraries are written for strict promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def of_rows(dtype: DTypeLike) -> DTypeLike:
    """Returns the dtype in which inputs are computed: at least 32 bits, the default for what is not floating."""
    # Weights, counts of rows and beliefs follow it, and float16 cannot even count beyond 2,048.
    if not jnp.issubdtype(dtype, jnp.floating):
        return jnp.result_type(float)
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32
