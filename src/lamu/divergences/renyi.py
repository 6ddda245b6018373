"""Rényi's divergences, of which the evidence bound's is the one of order one."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from lamu import tree
from lamu.divergences.mean_field import closest, mixed
from lamu.families import Gaussian
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Renyi", "renyi_divergence"]


def renyi_divergence(q: Gaussian, p: Gaussian, alpha: float) -> Array:
    r"""Returns \(D_\alpha(q \,\|\, p) = \frac{1}{\alpha - 1} \log \int q^\alpha p^{1-\alpha}\) in nats.

    For Gaussians with precisions S and S′, \(S_\alpha = \alpha S + (1 - \alpha) S'\) and \(d = m - m'\):

    \[ D_\alpha = \tfrac{\alpha}{2}\, d^\top S S_\alpha^{-1} S' d + \frac{1}{2(\alpha - 1)} \big( \alpha \log\det S
       + (1 - \alpha) \log\det S' - \log\det S_\alpha \big) \]

    It is \(KL(q \,\|\, p)\) at α = 1. Where \(S_\alpha\) is not positive (α > 1 and a q too narrow or too wide for it)
    the integral is infinite, and so is what is returned.

    Args:
        q: a Gaussian over any operator.
        p: another, over the same space.
        alpha: α > 0.

    Raises:
        ValueError: for an order that is not positive.

    Source: Gil, Alajaji & Linder (2013), table 2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.divergences import renyi_divergence
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Scalar
        >>> q, p = Gaussian(jnp.zeros(1), Scalar(1.0)), Gaussian(jnp.ones(1), Scalar(1.0))
        >>> float(renyi_divergence(q, p, 0.5))  # α d² S / 2
        0.25
    """
    _require_positive(alpha)
    if alpha == 1.0:
        return q.kl(p)
    away = tree.add(q.mean, p.mean, -1.0)
    whole = mixed(alpha, q.precision, 1 - alpha, p.precision, q.mean).factored()
    pulled = q.precision.matvec(whole.solve(p.precision.matvec(away)))
    logdet = lambda operator: operator.logdet(q.mean)
    volumes = alpha * logdet(q.precision) + (1 - alpha) * logdet(p.precision) - logdet(whole)
    found = alpha * tree.dot(away, pulled) / 2 + volumes / (2 * (alpha - 1))
    return jnp.where(whole.is_positive(q.mean), found, jnp.full_like(found, jnp.inf))


@record
class Renyi:
    r"""The variational Rényi bound of order α.

    \[ \mathcal L_\alpha = \frac{1}{1 - \alpha} \log E_q\Big[ \Big( \frac{p(\theta, D)}{q(\theta)} \Big)^{1 - \alpha}
       \Big] = \log p(D) - D_\alpha(q \,\|\, p(\theta \mid D)) \]

    with the expectation an average over K draws: a gradient counts \(w_k^{1-\alpha}\), normalised. At α = 1 it is the
    evidence bound, below it q covers more of the target (at 0 it is the importance-weighted bound), above it less. With
    few draws the estimate leans towards the evidence bound's, with one draw it is that. On minibatches the weights are
    those of N/B times the batch, which is biased for α ≠ 1.

    Attributes:
        alpha: α.

    Raises:
        ValueError: for an order that is not finite.

    Source: Li & Turner (2016), equations 7 and 10.

    Examples:
        >>> from lamu.divergences import Renyi
        >>> Renyi(0.5).departure
        'Rényi divergence of order 0.5'
    """

    alpha: float = static(default=0.5)

    through_draws = True
    least = 2

    def __post_init__(self) -> None:
        if not math.isfinite(self.alpha):
            raise ValueError(f"alpha={self.alpha!r} is no order of a divergence; give a finite number, such as 0.5")

    @property
    def departure(self) -> str:
        """Its order, in words."""
        return f"Rényi divergence of order {self.alpha:g}"

    def between(self, q: Gaussian, p: Gaussian) -> Array:
        """Returns the Rényi divergence of two Gaussians."""
        return renyi_divergence(q, p, self.alpha)

    def mean_field(self, target: Gaussian) -> Gaussian:
        """Returns the closest mean-field Gaussian.

        Raises:
            ValueError: for an order outside [0, 1], where there may be none.
        """
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha={self.alpha!r} may have no closest mean-field Gaussian; give an order in [0, 1]")
        return closest(target, self.alpha)

    def value(self, log_weights: Array) -> Array:
        """Returns minus the bound."""
        if self.alpha == 1.0:
            return -jnp.mean(log_weights)
        share = 1 - self.alpha
        return -(logsumexp(share * log_weights) - math.log(log_weights.size)) / share

    def shares(self, log_weights: Array) -> Array:
        """Returns the weights to the power 1 − α, normalised."""
        return jax.nn.softmax((1 - self.alpha) * log_weights)

    def surrogate(self, log_target: Array, log_belief: Array) -> Array:
        """Returns log q − log p."""
        return log_belief - log_target


def _require_positive(alpha: float) -> None:
    if not alpha > 0:
        raise ValueError(f"alpha={alpha!r} is no order of a divergence between Gaussians; give a positive number")
