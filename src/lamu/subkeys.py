"""The keys that follow from one key, by numbers: one program, which is compiled quickly."""

from __future__ import annotations

from typing import Any

import jax

from lamu.compile_once import compiled_once
from lamu.typing import RandomKey

__all__ = ["subkey"]


@compiled_once()
def subkey(key: RandomKey, number: Any) -> RandomKey:
    """Returns `jax.random.fold_in(key, number)`, in a third of the time where nothing else compiles it."""
    return jax.random.fold_in(key, number)
