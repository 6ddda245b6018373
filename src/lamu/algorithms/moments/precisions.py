r"""A Gamma belief about a precision, moved by the moments that one normal number tells of it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.families import Gamma
from lamu.typing import Array

__all__ = ["renewed", "require_variance"]


def renewed(shape: Any, rate: Any, variance: Any, square: Any, unit: Any = 1.0) -> tuple[Array, Array]:
    r"""Returns the Gamma with mean and variance of \(\gamma\) after a normal number e of precision γ was seen."""
    # With \(Z(a) = N(e \mid 0,\; v + u\, b / (a - 1))\), the Student's distribution of e taken for a normal one of its
    # variance, and \(Z_1 = Z(a + 1)\), \(Z_2 = Z(a + 2)\),
    #
    # \[ a' = \Big(\frac{Z_2 Z}{Z_1^2} \frac{a + 1}{a} - 1\Big)^{-1}, \qquad
    #    b' = \Big(\frac{Z_2}{Z_1} \frac{a + 1}{b} - \frac{Z_1}{Z} \frac ab\Big)^{-1} \]
    #
    # in which the ratios are taken before the densities: both are near one, and b' would else lose all its digits in
    # float32 after some thousand rows.
    #
    # Source: Hernández-Lobato & Adams (2015), equations 9 and 10.
    a, b = shape, rate
    v0, v1, v2 = (variance + unit * b / (a + away) for away in (-1.0, 0.0, 1.0))
    more, less = unit * b / (a * (a - 1.0)), unit * b / (a * (a + 1.0))
    # log Z − log Z₁ and log Z₂ − log Z₁
    first = -(jnp.log1p(more / v1) - square * more / (v0 * v1)) / 2.0
    second = -(jnp.log1p(-less / v1) + square * less / (v1 * v2)) / 2.0
    new_shape = a / (1.0 + (a + 1.0) * jnp.expm1(first + second))
    new_rate = b / (1.0 + (a + 1.0) * jnp.expm1(second) - a * jnp.expm1(-first))
    return new_shape, new_rate


def require_variance(belief: Any, name: str) -> None:
    """Raises a ValueError for a Gamma belief under which the variance has no mean, a TypeError for anything else."""
    if not isinstance(belief, Gamma):
        raise TypeError(f"{name}={belief!r} is no belief about a precision; give for instance Gamma(6.0, 6.0)")
    shape: Any = belief.shape
    if not isinstance(shape, Tracer) and not np.all(np.asarray(shape) > 1.0):
        raise ValueError(f"{name} has the shape {shape}, so the variance has no mean; give one above 1")
