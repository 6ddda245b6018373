"""Batch normalisation, with statistics of the real rows alone."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.interface import Normaliser
from lamu.record import record, static
from lamu.typing import Array, Params

__all__ = ["BatchNorm"]


@record
class BatchNorm(Normaliser):
    r"""Batch normalisation: each feature with the mean and variance of its batch, then scaled and shifted.

    \[ y = \gamma\, \frac{x - \hat m}{\sqrt{\hat v + \epsilon}} + \beta, \qquad
       m \leftarrow \alpha m + (1 - \alpha) \hat m, \quad v \leftarrow \alpha v + (1 - \alpha) \hat v \]

    In training \(\hat m\) and \(\hat v\) (biased, a mean of squares) are the batch's, over its real rows and all their
    positions: padded rows count nothing, and a batch without a real row leaves the state alone. Otherwise they are the
    running m and v, so that a prediction for a row does not depend on the rows beside it. Weights of rows play no part.
    Parameters are `scale` (γ, from one) and `bias` (β, from zero), the state `mean` (from zero) and `var` (from one).

    Rows of a batch are not independent here, so what needs every row's own gradient (`vogn`) refuses such a network.
    Samplers never train: to them the running statistics stay what they were at the start.

    Attributes:
        momentum: α.
        eps: ε.

    Raises:
        ValueError: for a momentum outside [0, 1), or an ε that is not positive.

    Source: Ioffe & Szegedy (2015), algorithms 1 and 2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import MLP, BatchNorm
        >>> network = MLP((8,), normalise=BatchNorm())
        >>> x = jnp.array([[1.0], [3.0]])
        >>> params, state = BatchNorm(momentum=0.5).init(1, x.dtype)
        >>> y, state = BatchNorm(momentum=0.5).apply(params, state, x, train=True, mask=None)
        >>> y[:, 0].round(2).tolist(), state["mean"].tolist()
        ([-1.0, 1.0], [1.0])
    """

    momentum: float = static(default=0.9)
    eps: float = static(default=1e-5)

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"the momentum {self.momentum!r} keeps no running average; give a number in [0, 1)")
        if not self.eps > 0.0:
            raise ValueError(f"eps={self.eps!r} cannot stand below a fraction; give a small positive number")

    def init(self, features: int, dtype: Any) -> tuple[Params, Any]:
        """Returns scale and bias, and the running mean and variance."""
        ones, zeros = jnp.ones(features, dtype), jnp.zeros(features, dtype)
        return {"scale": ones, "bias": zeros}, {"mean": jnp.copy(zeros), "var": jnp.copy(ones)}

    def apply(self, params: Params, state: Any, x: Array, train: bool, mask: Array | None) -> tuple[Array, Any]:
        """Returns the normalised features, the last axis of `x`, and the state, new in training."""
        now = state
        if train:
            rows = jnp.ones(x.shape[0], bool) if mask is None else mask > 0
            real = rows.reshape(-1, *[1] * (x.ndim - 1))
            # Zeros in the place of padding, so that nonsense there spoils no gradient.
            x = jnp.where(real, x, jnp.zeros_like(x))
            now, present = _moments(x, real)
            rate = (1.0 - self.momentum) * present
            state = jax.tree.map(lambda old, new: old + rate * (new - old), state, now)
        factor = params["scale"] * jax.lax.rsqrt(now["var"] + self.eps)
        return (x - _along(now["mean"], x)) * _along(factor, x) + _along(params["bias"], x), state


def _moments(x: Array, real: Array) -> tuple[dict[str, Array], Array]:
    """Returns the real rows' mean and variance, and one, or zero where there is no real row."""
    axes = tuple(range(x.ndim - 1))
    count = jnp.sum(real.astype(x.dtype))
    size = jnp.maximum(count, 1.0) * math.prod(x.shape[1:-1])
    mean = jnp.sum(x, axis=axes) / size
    deviation = jnp.where(real, x - _along(mean, x), jnp.zeros_like(x))
    return {"mean": mean, "var": jnp.sum(deviation**2, axis=axes) / size}, jnp.minimum(count, 1.0)


def _along(feature: Array, x: Array) -> Array:
    return feature.reshape(*[1] * (x.ndim - 1), -1)
