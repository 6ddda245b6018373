"""The log of a standard deviation that a network returns, in a range whose exponential is finite."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["soft_clipped"]

_LIMIT = 15.0  # exp(-15) is 3e-7: a float32 mean of one hardly sees a smaller deviation


def soft_clipped(log_scale: Array) -> Array:
    r"""Returns log s of a network's output o: o itself where \(|o| \le 15\), and beyond that a logarithm of it."""
    # \[ \log s = \mathrm{sign}(o)\,\big(15 + \log(1 + |o| - 15)\big), \qquad |o| > 15 \]
    #
    # One step of a large rate moves all weights of a layer together, and so an output by tens; \(s^{-2}\) of \(o =
    # -45\) is infinite in float32. Value and slope are continuous, and the slope is positive everywhere, so that a
    # gradient brings the output back.
    beyond = jnp.log1p(jnp.maximum(jnp.abs(log_scale) - _LIMIT, 0))
    return jnp.where(jnp.abs(log_scale) <= _LIMIT, log_scale, jnp.sign(log_scale) * (_LIMIT + beyond))
