"""The importance-weighted bound."""

from __future__ import annotations

import math
from typing import Any

import jax

from lamu.latent.bounds.interface import Bound, log_weight, over_samples, require_samples
from lamu.latent.bounds.joint import Joint
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Number, RandomKey

__all__ = ["Importance", "log_mean"]


@record
@sized
class Importance(Bound):
    r"""The importance-weighted bound of k draws.

    \[ \mathcal L_k = E \log \frac1k \sum_{i=1}^k w_i, \qquad w_i = \frac{p(y, z_i)}{q(z_i \mid y)}, \qquad
       \mathcal L_1 \le \mathcal L_2 \le \dots \le \log p(y) \]

    The signal of its gradient in q vanishes against its noise as k grows; `DoublyReparameterised` keeps it.

    Attributes:
        samples: k.

    Raises:
        ValueError: for fewer than one draw.

    Source: Burda, Grosse & Salakhutdinov (2016), equation 8 and theorem 1.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import Importance, RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(-2.0))
        >>> round(float(Importance(5).of_row(jax.random.key(0), joint, prior)), 5)
        -2.0
    """

    samples: int = static()

    def __post_init__(self) -> None:
        require_samples(self.samples, 1, "Importance")

    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        return log_mean(over_samples(key, self.samples, lambda k: log_weight(k, joint, belief, weight)))


def log_mean(log_weights: Array) -> Array:
    r"""Returns \(\log \frac1k \sum_i e^{l_i}\), a scalar."""
    return jax.nn.logsumexp(log_weights) - math.log(log_weights.size)
