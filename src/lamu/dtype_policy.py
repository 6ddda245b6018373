"""Dtypes and digits: promotion inside other people's code, and products of float32 on accelerators.

An accelerator shortens the factors of a float32 product unless it is told not to: to 11 bits (TF32) on a GPU, to 8
(bfloat16) on a TPU. The passes of a network lose nothing by it. Covariances do, which are differences of what is nearly
equal: on an H100 the variances of an extended Kalman filter of 500 rows were off by one per cent. So `full_products`
keeps all digits in what Lamu computes, and `network_products` takes the passes of networks out of it. A default that
somebody has chosen (`jax.default_matmul_precision`) holds for both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import jax

__all__ = ["full_products", "lenient", "network_products"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_kept: ContextVar[bool] = ContextVar("kept", default=False)


def full_products(function: _Function) -> _Function:
    """Decorates a function whose float32 products are to have all their digits on any device.

    On a CPU they have them anyway, and nothing is changed. Inside, `network_products` is the way back.

    Args:
        function: the function, or the method.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.dtype_policy import full_products
        >>> full_products(jnp.matmul)(jnp.ones((1, 2)), jnp.ones((2, 1))).tolist()
        [[2.0]]
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        # A default that is set is the user's, but inside of `network_products`.
        chosen = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
        if (chosen is not None and not _kept.get()) or jax.default_backend() == "cpu":
            return function(*args, **kwargs)
        token = _kept.set(True)
        try:
            with jax.default_matmul_precision("float32"):
                return function(*args, **kwargs)
        finally:
            _kept.reset(token)

    return called  # pyright: ignore[reportReturnType]


@contextmanager
def network_products() -> Iterator[None]:
    """Gives products in a `with` block the device's own precision again, inside of `full_products`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.dtype_policy import network_products
        >>> with network_products():
        ...     f = jnp.ones((1, 2)) @ jnp.ones((2, 1))
        >>> f.tolist()
        [[2.0]]
    """
    if not _kept.get():
        yield
        return
    # By name: a product without a precision of its own would be differentiated under whatever holds around it.
    with jax.default_matmul_precision("default"):
        yield


@contextmanager
def lenient() -> Iterator[None]:
    """Lets dtypes and ranks promote inside a `with` block: few libraries are written for strict promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
