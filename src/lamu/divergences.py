"""Divergences between a belief and its target, as objectives of variational descent."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from lamu import tree
from lamu.base.arguments import require
from lamu.families import Gaussian
from lamu.operators import Dense, Operator
from lamu.record import record, static
from lamu.typing import Array, Params

__all__ = ["Divergence", "InclusiveKL", "Renyi", "ReverseKL", "renyi_divergence"]


class Divergence:
    r"""Base class of divergences between a belief q and a target p that is known up to a factor.

    From draws \(\theta_k \sim q\) with the log weights \(\log w_k = \log p(\theta_k) - \log q(\theta_k)\), p without
    its normaliser, an estimate of the gradient is \(\sum_k \omega_k \nabla f_k\), with \(\omega\) of `shares` and f of
    `surrogate`. The base class is the divergence of the evidence bound, \(KL(q \,\|\, p)\).

    Attributes:
        departure: the difference from the evidence bound, in words; empty for the bound itself.
        through_draws: whether gradients go through the draws \(\theta = m + s z\), or treat them as constants.
        least: the smallest useful number of draws.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.divergences import Divergence
        >>> Divergence().shares(jnp.zeros(4)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    departure: str | Any = ""
    through_draws: bool = True
    least: int = 1

    def between(self, q: Gaussian, p: Gaussian) -> Array:
        """Returns the divergence of two Gaussians in nats, in closed form."""
        return q.kl(p)

    def value(self, log_weights: Array) -> Array:
        """Returns the estimate of the divergence less the log of the target's normaliser, in nats, a scalar.

        Args:
            log_weights: log w, one a draw, `[draws]`.
        """
        return -jnp.mean(log_weights)

    def shares(self, log_weights: Array) -> Array:
        r"""Returns \(\omega\), the weight of each draw's gradient, `[draws]`, with sum one."""
        return jnp.full_like(log_weights, 1 / log_weights.size)

    def surrogate(self, log_target: Array, log_belief: Array) -> Array:
        r"""Returns f of one draw, from \(\log p(\theta)\) and \(\log q(\theta)\)."""
        return log_belief - log_target


def mixed(a: float, first: Operator, b: float, other: Operator, like: Params) -> Operator:
    """Returns a · S + b · S′, in the common structure where that is linear in its leaves, else as a matrix."""
    linear = type(first) is type(other) and hasattr(type(first), "from_diagonal") and not isinstance(first, Dense)
    if linear and jax.tree.structure(first) == jax.tree.structure(other):
        return jax.tree.map(lambda s, t: a * s + b * t, first, other)
    return Dense(a * first.dense(like) + b * other.dense(like))


@record
class ReverseKL(Divergence):
    r"""\(KL(q \,\|\, p)\), whose negative is the evidence lower bound less the log evidence.

    For a Gaussian target with precision Λ a mean-field q has the variance \(1 / \Lambda_{ii}\), that of a coordinate
    given all others: too small where coordinates are correlated.

    Examples:
        >>> from lamu.divergences import ReverseKL
        >>> ReverseKL().departure
        ''
    """


@record
class InclusiveKL(Divergence):
    r"""\(KL(p \,\|\, q)\), expectations under p by importance weights of draws from q, normalised by their sum.

    \[ \nabla KL(p \,\|\, q) = -E_p[\nabla \log q(\theta)] \approx -\sum_k \frac{w_k}{\sum_l w_l} \nabla \log
       q(\theta_k) \]

    A mean-field q has the target's marginal variances \(\Sigma_{ii}\). The weights are biased for few draws, and in
    many dimensions one draw has nearly all of the weight: use it for small models, with many draws.

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

    def value(self, log_weights: Array) -> Array:
        r"""Returns \(\sum_k \omega_k \log w_k - 2 \log \hat Z\), the estimate less the log of the normaliser."""
        evidence = logsumexp(log_weights) - math.log(log_weights.size)
        return jnp.sum(self.shares(log_weights) * log_weights) - 2 * evidence

    def shares(self, log_weights: Array) -> Array:
        """Returns the normalised weights."""
        return jax.nn.softmax(log_weights)

    def surrogate(self, log_target: Array, log_belief: Array) -> Array:
        """Returns − log q − log p; the second term is for parameters of the target other than θ."""
        return -log_belief - log_target


def renyi_divergence(q: Gaussian, p: Gaussian, alpha: float) -> Array:
    r"""Returns \(D_\alpha(q \,\|\, p) = \frac{1}{\alpha - 1} \log \int q^\alpha p^{1-\alpha}\) in nats.

    For Gaussians with precisions S and S′, \(S_\alpha = \alpha S + (1 - \alpha) S'\) and \(d = m - m'\):

    \[ D_\alpha = \tfrac{\alpha}{2}\, d^\top S S_\alpha^{-1} S' d + \frac{1}{2(\alpha - 1)} \big( \alpha \log\det S
       + (1 - \alpha) \log\det S' - \log\det S_\alpha \big) \]

    It is \(KL(q \,\|\, p)\) at α = 1. Where \(S_\alpha\) is not positive (α > 1 and a q too narrow or too wide for it)
    the integral is infinite, and infinity is returned.

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
    require(alpha > 0, f"alpha={alpha!r} is not an order of a divergence between Gaussians; give a positive number")
    if alpha == 1.0:
        return q.kl(p)
    gap = tree.add(q.mean, p.mean, -1.0)
    mixture = mixed(alpha, q.precision, 1 - alpha, p.precision, q.mean).factored()
    pulled = q.precision.matvec(mixture.solve(p.precision.matvec(gap)))
    logdet = lambda operator: operator.logdet(q.mean)
    volumes = alpha * logdet(q.precision) + (1 - alpha) * logdet(p.precision) - logdet(mixture)
    divergence = alpha * tree.dot(gap, pulled) / 2 + volumes / (2 * (alpha - 1))
    return jnp.where(mixture.is_positive(q.mean), divergence, jnp.full_like(divergence, jnp.inf))


@record
class Renyi(Divergence):
    r"""The variational Rényi bound of order α.

    \[ \mathcal L_\alpha = \frac{1}{1 - \alpha} \log E_q\Big[ \Big( \frac{p(\theta, D)}{q(\theta)} \Big)^{1 - \alpha}
       \Big] = \log p(D) - D_\alpha(q \,\|\, p(\theta \mid D)) \]

    with the expectation an average over K draws: a gradient has the weight \(w_k^{1-\alpha}\), normalised. At α = 1 it
    is the evidence bound, below 1 q covers more of the target (at 0 it is the importance-weighted bound), above 1 less.
    With few draws the estimate is biased towards the evidence bound, with one draw it equals it. On minibatches the
    weights are those of N/B times the batch, which is biased for α ≠ 1.

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

    least = 2

    def __post_init__(self) -> None:
        if not math.isfinite(self.alpha):
            raise ValueError(f"alpha={self.alpha!r} is not an order of a divergence; give a finite number, such as 0.5")

    @property
    def departure(self) -> str:
        """Its order, in words."""
        return f"Rényi divergence of order {self.alpha:g}"

    def between(self, q: Gaussian, p: Gaussian) -> Array:
        """Returns the Rényi divergence of two Gaussians."""
        return renyi_divergence(q, p, self.alpha)

    def value(self, log_weights: Array) -> Array:
        """Returns minus the bound."""
        if self.alpha == 1.0:
            return super().value(log_weights)
        share = 1 - self.alpha
        return -(logsumexp(share * log_weights) - math.log(log_weights.size)) / share

    def shares(self, log_weights: Array) -> Array:
        """Returns the weights to the power 1 − α, normalised."""
        return jax.nn.softmax((1 - self.alpha) * log_weights)
