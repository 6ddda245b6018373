"""A bound whose divergence counts little at first."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.latent.bounds.interface import Bound
from lamu.latent.bounds.joint import Joint
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Number, RandomKey

__all__ = ["WarmUp"]


@record
@sized
class WarmUp(Bound):
    r"""A bound whose weight β on the divergence rises from zero to one in the first training steps.

    \[ \beta_t = \min(1, t / \mathrm{steps}) \]

    Below one it is no bound on \(\log p(y)\); evaluation always takes β = 1. As the bound of an `Amortised` local it
    goes by the training steps of the algorithm, which a graph counts in its state (`posterior.network_state`).

    Attributes:
        bound: the bound.
        steps: after how many steps β is one.

    Raises:
        ValueError: for fewer than one step.
        TypeError: for something that is no bound.

    Source: Sønderby, Raiko, Maaløe, Sønderby & Winther (2016), section 2.3.

    Examples:
        >>> from lamu.latent.bounds import ELBO, WarmUp
        >>> [float(WarmUp(ELBO(), steps=4).weight(t)) for t in (0, 1, 4, 9)]
        [0.0, 0.25, 1.0, 1.0]
    """

    bound: Bound | Any
    steps: int = static()

    def __post_init__(self) -> None:
        if not isinstance(self.bound, Bound):
            raise TypeError(f"the bound is {self.bound!r}; give one of lamu.latent, for instance ELBO()")
        if self.steps < 1:
            raise ValueError(f"steps={self.steps!r} warm nothing up; give at least one, or the bound alone")

    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        return self.bound.of_row(key, joint, belief, weight)

    def weight(self, step: Number) -> Array:
        return jnp.minimum(1.0, step / self.steps)
