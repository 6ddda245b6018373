"""Dtype policy: promotion around third-party code, and the precision of float32 products on accelerators."""

# By default an accelerator rounds the factors of a float32 product: to 11 bits (TF32) on a GPU, to 8 (bfloat16) on a
# TPU. Network passes lose nothing by it. Covariances do, because they are differences of nearly equal numbers: on an
# H100 the variances of an extended Kalman filter of 500 rows were off by one per cent. So `all_digits` computes at full
# precision, and `network_products` exempts the passes of networks. A default that the user has set
# (`jax.default_matmul_precision`) applies to both.

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lamu.typing import Array, DTypeLike

__all__ = ["all_digits", "floating", "full_products", "lenient", "network_products", "of_rows", "widened"]

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
