"""A belief of which a stack of flows has moved the draws."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.latent.flows.interface import Flow
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Flowed"]


@record
class Flowed:
    r"""The distribution of \(z_K = g_K \circ \dots \circ g_1(z_0)\) with \(z_0\) of a known belief.

    \[ \log q(z_K) = \log q_0(z_0) - \sum_k \log \Big| \det \frac{\partial g_k}{\partial z_{k-1}} \Big| \]

    `draw` has the density of a draw on the way. `log_prob` of any other point inverts the flows.

    Attributes:
        base: q₀, a belief about a vector, `[D]`.
        flows: the flows, the first to be applied first.
        params: the parameters of each.
        context: h, `[C]`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent import Flowed, Planar
        >>> from lamu.operators import Scalar
        >>> params = Planar().init(jax.random.key(0), 2, 0, float)
        >>> belief = Flowed(Gaussian(jnp.zeros(2), Scalar(1.0)), (Planar(),), (params,), jnp.zeros(0))
        >>> z, log_q = belief.draw(jax.random.key(1))
        >>> bool(jnp.allclose(belief.log_prob(z), log_q, atol=1e-4))
        True
    """

    base: Any
    flows: tuple[Flow, ...]
    params: tuple[Params, ...]
    context: Array

    kind = "flow"

    def draw(self, key: RandomKey) -> tuple[Array, Array]:
        """Returns a draw and its log density in nats."""
        z = self.base.sample(key)
        log_q = self.base.log_prob(z)
        for flow, params in zip(self.flows, self.params, strict=True):
            z, log_det = flow.forward(params, z, self.context)
            log_q = log_q - log_det
        return z, log_q

    def sample(self, key: RandomKey) -> Array:
        """Returns a draw, differentiable in all parameters."""
        return self.draw(key)[0]

    def log_prob(self, theta: Array) -> Array:
        """Returns log q in nats of any point."""
        z, total = theta, jnp.zeros((), theta.dtype)
        for flow, params in zip(reversed(self.flows), reversed(self.params), strict=True):
            z = flow.inverse(params, z, self.context)
            total = total + flow.forward(params, z, self.context)[1]
        return self.base.log_prob(z) - total
