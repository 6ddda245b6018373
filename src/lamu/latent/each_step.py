"""A network applied to every step of a series."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.networks import Network
from lamu.networks.interface import adapted
from lamu.record import record
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["EachStep", "soft_clipped"]


_LIMIT = 15.0  # exp(-15) is 3e-7, below the float32 resolution of a mean of one


def soft_clipped(log_scale: Array) -> Array:
    r"""Returns log s of a network's output o: o itself where \(|o| \le 15\), and a logarithm of it beyond."""
    # \[ \log s = \mathrm{sign}(o)\,\big(15 + \log(1 + |o| - 15)\big), \qquad |o| > 15 \]
    #
    # One step at a large rate moves all weights of a layer together, and so an output by tens; \(s^{-2}\) of \(o =
    # -45\) is infinite in float32. Value and slope are continuous, and the slope is positive everywhere, so that a
    # gradient brings the output back.
    beyond = jnp.log1p(jnp.maximum(jnp.abs(log_scale) - _LIMIT, 0))
    return jnp.where(jnp.abs(log_scale) <= _LIMIT, log_scale, jnp.sign(log_scale) * (_LIMIT + beyond))


@record
class EachStep(Network):
    r"""Concatenates \(f(x_1), \dots, f(x_T)\): the emission of a state-space model, or its recognition network.

    Inputs are `[batch, T, ...]`, and outputs `[batch, T * k]` with k outputs a step.

    Attributes:
        network: f.

    Raises:
        ValueError: for a number of outputs that is not a multiple of T, or a network with a state.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import EachStep
        >>> from lamu.networks import MLP
        >>> network, x = EachStep(MLP((8,))), jnp.ones((2, 5, 3))
        >>> params, state = network.init(jax.random.key(0), x, outputs=5 * 2)
        >>> network.apply(params, state, x, None, False)[0].shape
        (2, 10)
    """

    network: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the weights of f."""
        if x.ndim < 3 or outputs % x.shape[1]:
            raise ValueError(
                f"{outputs} outputs for inputs of the shape {x.shape[1:]} cannot be dealt to the steps; give series "
                "[T, features], and as many outputs for every step"
            )
        params, state = self.network.init(key, x[:, 0], outputs // x.shape[1])
        if state:
            raise ValueError("a network with a state (batch statistics) cannot be every step's; use GroupNorm()")
        return params, {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        f = self.network.apply(params, {}, x.reshape(-1, *x.shape[2:]), key, train)[0]
        return f.reshape(len(x), -1), state
