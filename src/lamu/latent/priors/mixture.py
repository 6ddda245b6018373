"""A mixture of Gaussians as the prior of a latent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.graphs.expressions import Environment
from lamu.graphs.learned_prior import LearnedPrior
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["MixturePrior"]


@record
@sized
class MixturePrior(LearnedPrior):
    r"""\(p(z) = \sum_k \pi_k\, N(z; m_k, \mathrm{diag}(s_k^2))\) with learned weights, means and scales.

    Attributes:
        latents: D.
        parts: K.

    Raises:
        ValueError: for no latent or no part.

    Source: Tomczak & Welling (2018), section 4.1, "MoG"; Dilokthanakul et al. (2016).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> prior = lamu.latent.MixturePrior(2, parts=5)
        >>> model = lamu.latent.models.VAE(2, 5, prior=prior)
        >>> fit = lamu.fit(model, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=3)
        >>> fit.posterior.mean["network"]["z.prior"]["mean"].shape
        (5, 2)
    """

    parts: int = static()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parts, int) or self.parts < 1:
            raise ValueError(f"parts={self.parts!r} is no number of Gaussians; give a whole number from 1")

    def first(self, key: RandomKey, dtype: Any) -> Params:
        """Returns equal weights, means that are draws of N(0, I), and unit scales."""
        mean = jax.random.normal(key, (self.parts, self.latents), dtype)
        return {"logit": jnp.zeros(self.parts, dtype), "mean": mean, "log_scale": jnp.zeros_like(mean)}

    def log_prob(self, weights: Params, z: Array, at: Environment) -> Array:
        """Returns the log of the sum over the parts."""
        log_parts = jax.vmap(lambda m, log_s: Gaussian(m, Diagonal(jnp.exp(-2 * log_s))).log_prob(z))
        return jax.nn.logsumexp(jax.nn.log_softmax(weights["logit"]) + log_parts(weights["mean"], weights["log_scale"]))

    def draw(self, key: RandomKey, weights: Params, at: Environment) -> Array:
        """Returns a draw of a part that is drawn by the weights."""
        of_part, of_noise = jax.random.split(key)
        part = jax.random.categorical(of_part, weights["logit"])
        mean, log_scale = weights["mean"][part], weights["log_scale"][part]
        return mean + jnp.exp(log_scale) * jax.random.normal(of_noise, mean.shape, mean.dtype)
