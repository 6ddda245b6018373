"""Attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.torch.mode import Mode
from lamu.networks.torch.operators.noise import dropped
from lamu.typing import Array

__all__ = ["ATTENTION", "ATTENTION_WITH_MODE"]


def _attention(
    mode: Mode,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Array, dict[int, Array]]:
    if enable_gqa:
        key, value = (jnp.repeat(each, query.shape[-3] // each.shape[-3], axis=-3) for each in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    score = scale * (query @ jnp.swapaxes(key, -1, -2))
    least = jnp.asarray(-jnp.inf, score.dtype)
    if is_causal:
        score = jnp.where(jnp.tril(jnp.ones(score.shape[-2:], bool)), score, least)
    if mask is not None:
        score = jnp.where(mask, score, least) if mask.dtype == bool else score + mask
    return dropped(mode, jax.nn.softmax(score, axis=-1), dropout) @ value, {}


ATTENTION: dict[str, Callable[..., Any]] = {}
ATTENTION_WITH_MODE: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": _attention}
