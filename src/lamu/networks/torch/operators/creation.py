"""Operators that make arrays of nothing but numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

__all__ = ["CREATION"]


def _arange(*limits: Any, dtype: Any = None) -> Any:
    return jnp.arange(*limits, dtype=dtype)


CREATION: dict[str, Callable[..., Any]] = {
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
