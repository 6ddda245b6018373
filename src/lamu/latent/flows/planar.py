"""Planar flows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.bisection import bisect
from lamu.latent.flows.conditioned import conditioned, init_conditioned
from lamu.latent.flows.interface import Flow
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Planar"]


@record
class Planar(Flow):
    r"""A flow that bends space along one direction.

    \[ g(z) = z + \hat u \tanh(w^\top z + b), \qquad
       \log |\det| = \log\big| 1 + (1 - \tanh^2(w^\top z + b))\, w^\top \hat u \big|, \qquad
       \hat u = u + \big(m(w^\top u) - w^\top u\big) \frac{w}{\lVert w \rVert^2} \]

    with \(m(x) = \log(1 + e^x) - 1\), so that \(w^\top \hat u > -1\) and the map is invertible. The numbers w, u and b
    are affine in the context. The inverse is a bisection in one number.

    Source: Rezende & Mohamed (2015), equations 10 to 12 and appendix A.1.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Planar
        >>> flow = Planar()
        >>> params = flow.init(jax.random.key(0), 3, 0, float)
        >>> image, log_det = flow.forward(params, jnp.ones(3), jnp.zeros(0))
        >>> bool(jnp.allclose(flow.inverse(params, image, jnp.zeros(0)), 1.0, atol=1e-5))
        True
    """

    def init(self, key: RandomKey, size: int, context: int, dtype: Any) -> Params:
        """Returns small random numbers."""
        return init_conditioned(key, context, 2 * size + 1, dtype)

    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        w, u, b = _numbers(params, context)
        bend = jnp.tanh(jnp.dot(w, z) + b)
        return z + u * bend, jnp.log1p((1 - bend**2) * jnp.dot(w, u))

    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        """Returns z, from the one number a = wᵀz, of which wᵀg(z) = a + wᵀû tanh(a + b) is increasing."""
        w, u, b = _numbers(params, context)
        target, slope = jnp.dot(w, image), jnp.dot(w, u)
        ends = (target - jnp.abs(slope) - 1e-3, target + jnp.abs(slope) + 1e-3)
        root = jax.lax.stop_gradient(bisect(lambda a: a + slope * jnp.tanh(a + b) < target, ends, steps=64))
        # A Newton step from the root, which leaves it where it is and gives it the gradient of an implicit function.
        bend = jnp.tanh(root + b)
        a = root - (root + slope * bend - target) / jax.lax.stop_gradient(1 + slope * (1 - bend**2))
        return image - u * jnp.tanh(a + b)


def _numbers(params: Params, context: Array) -> tuple[Array, Array, Array]:
    """Returns w, û and b."""
    numbers = conditioned(params, context)
    size = numbers.size // 2
    w, u, b = numbers[:size], numbers[size : 2 * size], numbers[-1]
    along = jnp.dot(w, u)
    return w, u + (jax.nn.softplus(along) - 1 - along) * w / jnp.dot(w, w), b
