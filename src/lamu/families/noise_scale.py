"""What is believed of a noise whose precision has a Gamma belief, in the units in which a likelihood reads it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from lamu.families.gamma import Gamma
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["NoiseScale"]


@record
class NoiseScale:
    r"""A belief about the log of a noise deviation whose precision is Gamma: \(\log\sigma = -\tfrac12 \log\gamma\)."""

    # Its mean is the one whose σ² is \(E[1/\gamma] = b / (a - 1)\), since that is the noise that a prediction has, or
    # the mode about which it was made.

    precision: Gamma  # the Gamma of γ, one number an output
    mode: Any = None  # log σ of the mode that Laplace's method has found; None where there is none

    kind = "transformed"

    @property
    def mean(self) -> Params:
        r"""\(\tfrac12 \log b / (a - 1)\), or the mode, under the name that the likelihood reads."""
        if self.mode is not None:
            return {"log_scale": self.mode}
        shape: Any = self.precision.shape
        return {"log_scale": jnp.log(self.precision.rate / (shape - 1.0)) / 2.0}

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw."""
        drawn: Any = self.precision.sample(key)
        return {"log_scale": -jnp.log(drawn) / 2.0}

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent draws along a leading axis; draw i depends on the key and i alone."""
        return jax.lax.map(lambda i: self.sample(jax.random.fold_in(key, i)), jnp.arange(count))

    def log_prob(self, theta: Params) -> Array:
        """Returns the log density of log σ in nats, the change of variables included."""
        precision = jnp.exp(-2.0 * theta["log_scale"])
        return self.precision.log_prob(precision) + jnp.sum(math.log(2.0) + jnp.log(precision))

    def entropy(self) -> Array:
        """Returns the entropy of log σ in nats."""
        shape: Any = self.precision.shape
        expected = digamma(shape) - jnp.log(self.precision.rate)
        return self.precision.entropy() - jnp.sum(math.log(2.0) + expected)
