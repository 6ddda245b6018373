"""Other people's code inside ours, where a user has switched strict promotion on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

__all__ = ["lenient"]


@contextmanager
def lenient() -> Iterator[None]:
    """Lets dtypes and ranks promote inside a `with` block: few libraries are written for strict promotion.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.dtype_policy import lenient
        >>> with lenient():
        ...     total = jnp.ones(2) + jnp.arange(2)
        >>> total.tolist()
        [1.0, 2.0]
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
