"""Group normalisation: groups of features, every row by itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.interface import Normaliser
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params

__all__ = ["GroupNorm"]


@record
@sized
class GroupNorm(Normaliser):
    r"""Group normalisation: groups of a row's features with their own mean and variance, then scaled and shifted.

    \[ y_{npc} = \gamma_c\, \frac{x_{npc} - m_{ng}}{\sqrt{v_{ng} + \epsilon}} + \beta_c \]

    with m and v the mean and the variance over the positions p of row n and the features c of group g. No row meets
    another and there is no state: where batch normalisation keeps an algorithm away from a network, this does not. One
    group is layer normalisation. Parameters are `scale` (γ, from one) and `bias` (β, from zero).

    Attributes:
        groups: how many groups, a divisor of the features.
        eps: ε.

    Raises:
        ValueError: for a number of groups that is not positive or (when it is initialised) does not divide the
            features, or an ε that is not positive.

    Source: Wu & He (2018), equations 1 and 7.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import GroupNorm
        >>> params, state = GroupNorm(2).init(4, jnp.float32)
        >>> x = jnp.array([[1.0, 3.0, 0.0, 8.0]], jnp.float32)
        >>> GroupNorm(2).apply(params, state, x, True, None)[0].round(2).ravel().tolist(), state
        ([-1.0, 1.0, -1.0, 1.0], {})
    """

    groups: int = static(default=8)
    eps: float = static(default=1e-6)

    masked = False  # no row meets another

    def __post_init__(self) -> None:
        if not isinstance(self.groups, int) or self.groups < 1:
            raise ValueError(f"groups={self.groups!r} cannot be made; give a positive integer")
        if not self.eps > 0.0:
            raise ValueError(f"eps={self.eps!r} cannot stand below a fraction; give a small positive number")

    def init(self, features: int, dtype: Any) -> tuple[Params, Any]:
        """Returns scale and bias, and no state."""
        if features % self.groups:
            raise ValueError(f"{features} features cannot be dealt to {self.groups} groups; give a divisor")
        return {"scale": jnp.ones(features, dtype), "bias": jnp.zeros(features, dtype)}, {}

    def apply(self, params: Params, state: Any, x: Array, train: bool, mask: Array | None) -> tuple[Array, Any]:
        """Returns the normalised features, the last axis of `x`."""
        grouped = x.reshape(x.shape[0], -1, self.groups, x.shape[-1] // self.groups)
        away = grouped - jnp.mean(grouped, axis=(1, 3), keepdims=True)
        size = jnp.mean(away * away, axis=(1, 3), keepdims=True)
        along = lambda feature: feature.reshape(*[1] * (x.ndim - 1), -1)
        normal = (away * jax.lax.rsqrt(size + self.eps)).reshape(x.shape)
        return normal * along(params["scale"]) + along(params["bias"]), state
