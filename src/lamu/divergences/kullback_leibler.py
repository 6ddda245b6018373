"""The two divergences of Kullback and Leibler."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from lamu.divergences.mean_field import closest
from lamu.families import Gaussian
from lamu.record import record
from lamu.typing import Array

__all__ = ["InclusiveKL", "ReverseKL"]


@record
class ReverseKL:
    r"""\(KL(q \,\|\, p)\), whose negative is the evidence lower bound less the log evidence.

    A mean-field q takes the variance \(1 / \Lambda_{ii}\) of a Gaussian with precision Λ, that of a coordinate when all
    others are known: too little, where coordinates are correlated.

    Examples:
        >>> from lamu.divergences import ReverseKL
        >>> ReverseKL().departure
        ''
    """

    departure = ""
    through_draws = True
    least = 1

    def between(self, q: Gaussian, p: Gaussian) -> Array:
        """Returns KL(q ‖ p)."""
        return q.kl(p)

    def mean_field(self, target: Gaussian) -> Gaussian:
        """Returns the target's mean with the diagonal of its precision."""
        return closest(target, 1.0)

    def value(self, log_weights: Array) -> Array:
        """Returns minus the evidence bound."""
        return -jnp.mean(log_weights)

    def shares(self, log_weights: Array) -> Array:
        """Returns equal shares."""
        return jnp.full_like(log_weights, 1 / log_weights.size)

    def surrogate(self, log_target: Array, log_belief: Array) -> Array:
        """Returns log q − log p."""
        return log_belief - log_target


@record
class InclusiveKL:
    r"""\(KL(p \,\|\, q)\), expectations under p by importance weights of draws from q, normalised by their sum.

    \[ \nabla KL(p \,\|\, q) = -E_p[\nabla \log q(\theta)] \approx -\sum_k \frac{w_k}{\sum_l w_l} \nabla \log
       q(\theta_k) \]

    A mean-field q takes the target's own variances \(\Sigma_{ii}\). The weights are biased for few draws, and in many
    dimensions one draw has nearly all of the weight: this is for small models, with many draws.

    Source: Minka (2005); Bornschein & Bengio (2015), equation 5 for the weights.

    Examples:
        >>> from lamu.divergences import InclusiveKL
        >>> InclusiveKL().through_draws
        False
    """

    departure = "inclusive divergence, by importance weights"
    through_draws = False
    least = 2

    def between(self, q: Gaussian, p: Gaussian) -> Array:
        """Returns KL(p ‖ q)."""
        return p.kl(q)

    def mean_field(self, target: Gaussian) -> Gaussian:
        """Returns the target's mean with its own variances."""
        return closest(target, 0.0)

    def value(self, log_weights: Array) -> Array:
        r"""Returns \(\sum_k \omega_k \log w_k - 2 \log \hat Z\), the estimate less the log of the normaliser."""
        evidence = logsumexp(log_weights) - math.log(log_weights.size)
        return jnp.sum(self.shares(log_weights) * log_weights) - 2 * evidence

    def shares(self, log_weights: Array) -> Array:
        """Returns the normalised weights."""
        return jax.nn.softmax(log_weights)

    def surrogate(self, log_target: Array, log_belief: Array) -> Array:
        """Returns − log q − log p, the second for what the target depends on beside θ."""
        return -log_belief - log_target
