"""A likelihood whose dispersions are held: what an optimiser sees where something else moves them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.wrapper import LikelihoodWrapper
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["FixedDispersion"]


@record
class FixedDispersion(LikelihoodWrapper):
    r"""\(p(y \mid f, \phi)\) with φ given, and nothing left to learn beside f."""

    base: Likelihood  # the likelihood
    dispersion: Params  # φ, its parameters

    check_training = Likelihood.check_training  # nothing is learned

    def parameters(self, params: Params) -> Params:
        # Returns φ.
        return self.dispersion

    def init(self, y: Any) -> Params:
        return {}

    def log_prior(self, params: Params) -> Array:
        # Returns zero.
        return jnp.asarray(0.0)

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        # Returns the parameters as they are: there are none to draw.
        return params

    def dispersion_information(self, params: Params) -> Params:
        # Returns the parameters as they are: there are none.
        return params

    def widened(self, params: Params, factor: Any) -> Params:
        # Returns the parameters as they are: there are none to widen.
        return params
