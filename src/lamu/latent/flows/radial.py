"""Radial flows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.latent.flows.conditioned import conditioned, init_conditioned
from lamu.latent.flows.interface import Flow
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Radial"]


@record
class Radial(Flow):
    r"""A flow that contracts or expands space around one point.

    \[ g(z) = z + \beta h\, (z - z_0), \qquad h = \frac{1}{\alpha + r}, \qquad r = \lVert z - z_0 \rVert \]
    \[ \log |\det| = (D - 1) \log(1 + \beta h) + \log\big(1 + \beta h - \beta h^2 r\big) \]

    with \(\alpha = e^{a}\) and \(\beta = -\alpha + \log(1 + e^{b})\), so that β > −α and the map is invertible. The
    numbers z₀, a and b are affine in the context. The inverse is the root of a quadratic in r.

    Source: Rezende & Mohamed (2015), equation 14 and appendix A.2.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Radial
        >>> flow = Radial()
        >>> params = flow.init(jax.random.key(0), 3, 0, float)
        >>> image, log_det = flow.forward(params, jnp.ones(3), jnp.zeros(0))
        >>> bool(jnp.allclose(flow.inverse(params, image, jnp.zeros(0)), 1.0, atol=1e-5))
        True
    """

    def init(self, key: RandomKey, size: int, context: int, dtype: Any) -> Params:
        """Returns small random numbers."""
        return init_conditioned(key, context, size + 2, dtype)

    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        centre, alpha, beta = _numbers(params, context)
        away = z - centre
        r = _length(away)
        h = 1 / (alpha + r)
        log_det = (z.size - 1) * jnp.log1p(beta * h) + jnp.log1p(beta * h - beta * h**2 * r)
        return z + beta * h * away, log_det

    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        r"""Returns z on the ray of the image: \(r' = r + \beta r / (\alpha + r)\) is solved for r."""
        centre, alpha, beta = _numbers(params, context)
        away = image - centre
        length = _length(away)
        half = (alpha + beta - length) / 2
        r = jnp.sqrt(half**2 + alpha * length) - half
        return centre + away / (1 + beta / (alpha + r))


def _length(away: Array) -> Array:
    """Returns the Euclidean length, with the gradient zero at zero."""
    square = jnp.sum(away**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _numbers(params: Params, context: Array) -> tuple[Array, Array, Array]:
    """Returns z₀, α and β."""
    numbers = conditioned(params, context)
    alpha = jnp.exp(numbers[-2])
    return numbers[:-2], alpha, jax.nn.softplus(numbers[-1]) - alpha
