"""The seed of a run, checked before anything is drawn from it, and the keys that follow from it."""

from __future__ import annotations

import operator
from typing import Any

import jax
import numpy as np

from lamu.compile_once import compiled_once
from lamu.subkeys import subkey
from lamu.typing import RandomKey

__all__ = ["keys_of", "whole_seed"]

_LIMIT = 2**32  # without 64 bits JAX drops the higher ones, so that two seeds would be one


def whole_seed(seed: Any) -> int:
    """Returns a seed that JAX takes as it is."""
    try:
        number = operator.index(seed)
    except TypeError as error:
        raise TypeError(f"seed={seed!r} is no whole number; give one from 0 to {_LIMIT - 1}, for instance 0") from error
    if not 0 <= number < _LIMIT:
        raise ValueError(f"seed={number} is outside 0 to {_LIMIT - 1}; give a number in this range")
    return number


def keys_of(seed: int) -> tuple[RandomKey, RandomKey, RandomKey, RandomKey]:
    """Returns the keys of a run: of its first state, its steps, the order of its rows, and its posterior."""
    # They are `jax.random.fold_in(jax.random.key(seed), i)`.
    key = _key(np.uint32(seed))
    return subkey(key, 0), subkey(key, 1), subkey(key, 2), subkey(key, 3)


@compiled_once()
def _key(seed: Any) -> RandomKey:
    return jax.random.key(seed)
