"""Filter-response normalisation: every row by itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.interface import Normaliser
from lamu.record import record, static
from lamu.typing import Array, Params

__all__ = ["FilterResponse"]


@record
class FilterResponse(Normaliser):
    r"""Filter-response normalisation: each feature of a row over the root of its mean square, scaled and shifted.

    \[ y_{np} = \gamma\, \frac{x_{np}}{\sqrt{\tfrac1P \sum_{p'} x_{np'}^2 + \epsilon}} + \beta \]

    over the P positions of row n. No row meets another and there is no state, so that every algorithm takes such a
    network as it is: rows have gradients of their own, and a chain samples one fixed density. Parameters are `scale`
    (γ, from one) and `bias` (β, from zero). The threshold of the paper's activation is left to the activation.

    Attributes:
        eps: ε.

    Raises:
        ValueError: for an ε that is not positive, or (when it runs) features without positions, as a dense layer gives.

    Source: Singh & Krishnan (2020), equation 1; with SiLU as in Izmailov et al. (2021).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import FilterResponse
        >>> params, state = FilterResponse().init(1, jnp.float32)
        >>> x = jnp.array([[[3.0], [-3.0]]], jnp.float32)
        >>> FilterResponse().apply(params, state, x, True, None)[0].round(3).ravel().tolist(), state
        ([1.0, -1.0], {})
    """

    eps: float = static(default=1e-6)

    masked = False  # no row meets another

    def __post_init__(self) -> None:
        if not self.eps > 0.0:
            raise ValueError(f"eps={self.eps!r} cannot stand below a fraction; give a small positive number")

    def init(self, features: int, dtype: Any) -> tuple[Params, Any]:
        """Returns scale and bias, and no state."""
        return {"scale": jnp.ones(features, dtype), "bias": jnp.zeros(features, dtype)}, {}

    def apply(self, params: Params, state: Any, x: Array, train: bool, mask: Array | None) -> tuple[Array, Any]:
        """Returns the normalised features, the last axis of `x`."""
        if x.ndim < 3:
            raise ValueError(
                f"features of the shape {x.shape} have no positions to take a mean square over; normalise "
                "convolutions with FilterResponse(), and a dense layer with BatchNorm() or not at all"
            )
        positions = tuple(range(1, x.ndim - 1))
        size = jnp.mean(x * x, axis=positions, keepdims=True)
        along = lambda feature: feature.reshape(*[1] * (x.ndim - 1), -1)
        return x * jax.lax.rsqrt(size + self.eps) * along(params["scale"]) + along(params["bias"]), state
