"""The variational Rényi bound."""

from __future__ import annotations

from typing import Any

from lamu.latent.bounds.importance import log_mean
from lamu.latent.bounds.interface import Bound, log_weight, over_samples, require_samples
from lamu.latent.bounds.joint import Joint
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Number, RandomKey

__all__ = ["Renyi"]


@record
@sized
class Renyi(Bound):
    r"""The variational Rényi bound of order α and k draws.

    \[ \mathcal L_{\alpha, k} = \frac{1}{1 - \alpha}\, E \log \frac1k \sum_{i=1}^k w_i^{1 - \alpha} \]

    α = 0 is `Importance`, and α → 1 the evidence lower bound. For \(\alpha \ge 0\) it is below \(\log p(y)\) for every
    k, and falls as α grows.

    Attributes:
        alpha: α, from zero, other than one.
        samples: k.

    Raises:
        ValueError: for a negative α, whose estimate is no bound, for α = 1, or for fewer than one draw.

    Source: Li & Turner (2016), equations 10 and 14.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import Renyi, RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(-2.0))
        >>> round(float(Renyi(0.5, 5).of_row(jax.random.key(0), joint, prior)), 5)
        -2.0
    """

    alpha: float = static()
    samples: int = static()

    def __post_init__(self) -> None:
        if not self.alpha >= 0:
            raise ValueError(f"alpha={self.alpha!r} is negative, and its estimate is no bound; give alpha from 0")
        if self.alpha == 1:
            raise ValueError("alpha=1 is the evidence lower bound; use ELBO(samples)")
        require_samples(self.samples, 1, "Renyi")

    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        r"""Returns the log of the mean of \(w^{1 - \alpha}\), over 1 − α."""
        power = 1.0 - self.alpha
        return log_mean(over_samples(key, self.samples, lambda k: power * log_weight(k, joint, belief, weight))) / power
