"""Activations by name, and the width of the initial weights before each."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["ACTIVATIONS", "initial_weights", "require_activation"]

ACTIVATIONS = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "erf": jax.scipy.special.erf,
}


def require_activation(name: str) -> None:
    """Raises a ValueError for an unknown activation."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; choose one of {', '.join(ACTIVATIONS)}")


def initial_weights(activation: str) -> Any:
    """Returns the initialiser of kernels: He normals for the rectifiers, Glorot (Xavier) normals for tanh and erf."""
    return jax.nn.initializers.glorot_normal() if activation in ("tanh", "erf") else jax.nn.initializers.he_normal()
