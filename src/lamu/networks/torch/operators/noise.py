"""Random layers, which draw in passes that are given a key and in no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.torch.mode import Mode
from lamu.typing import Array

__all__ = ["NOISE", "dropped"]


def dropped(mode: Mode, x: Array, p: float, shape: Any = None) -> Array:
    """Returns x with entries zeroed at the rate p and the others scaled up; x itself in a pass without a key."""
    if mode.key is None or p == 0:
        return x
    if p == 1:
        return jnp.zeros_like(x)
    kept = jax.random.bernoulli(mode.key, 1 - p, x.shape if shape is None else shape)
    return jnp.where(kept, x / (1 - p), jnp.zeros_like(x))


def _dropout(mode: Mode, x: Array, p: float, train: bool) -> tuple[Array, dict[int, Array]]:
    return dropped(mode, x, p), {}


def _feature_dropout(mode: Mode, x: Array, p: float, train: bool) -> tuple[Array, dict[int, Array]]:
    return dropped(mode, x, p, (*x.shape[:2], *[1] * (x.ndim - 2))), {}


NOISE: dict[str, Callable[..., Any]] = {"dropout": _dropout, "feature_dropout": _feature_dropout}
