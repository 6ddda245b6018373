"""Other people's code inside ours, where a user has switched strict promotion on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

__all__ = ["lenient"]


@contextmanager
def lenient() -> Iterator[None]:
    """Lets dtypes and ranks promote inside a `with` block: few libraries are written for strict promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
