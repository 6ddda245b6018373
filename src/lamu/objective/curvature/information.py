"""The Fisher information about the outputs, estimated with targets drawn from the model."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu.likelihoods import Likelihood
from lamu.typing import Array, Params, RandomKey

__all__ = ["sampled_information"]


def sampled_information(
    likelihood: Likelihood, dispersion: Params, f: Array, key: RandomKey, samples: int = 1
) -> Array:
    """Returns an unbiased estimate of the information, with targets drawn from the model."""
    # \[ \Lambda_i \approx \frac1S \sum_s d_{is} d_{is}^\top, \qquad d_{is} = \nabla_f \log p(\tilde y_{is} \mid f_i),
    #    \quad \tilde y_{is} \sim p(y \mid f_i) \]
    #
    # For a likelihood of one's own whose expectation is not known: its `information` may return this.
    if samples < 1:
        raise ValueError(f"samples={samples!r} targets show no information; give 1 or more")

    def one(total: Array, key: RandomKey) -> tuple[Array, None]:
        y = likelihood.sample(key, dispersion, f)
        slope = jax.grad(lambda f: jnp.sum(likelihood.log_prob(dispersion, f, y)))(f)
        return total + slope[:, :, None] * slope[:, None, :], None

    zero = jnp.zeros((*f.shape, f.shape[1]), f.dtype)
    return jax.lax.scan(one, zero, jax.random.split(key, samples))[0] / samples
