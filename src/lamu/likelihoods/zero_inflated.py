r"""Counts with more zeros than their distribution has: \(p(y \mid f) = \pi [y = 0] + (1 - \pi)\, p_0(y \mid f_1)\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.links import log_sigmoid
from lamu.likelihoods.wrapper import LikelihoodWrapper
from lamu.record import record
from lamu.supports import Counts
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["ZeroInflated"]


@record
class ZeroInflated(LikelihoodWrapper):
    r"""Counts of a base, where a share of the rows is zero for another reason; the network predicts that share too.

    The outputs are `[batch, 2]`: that of the base, and the log odds of π. Not log-concave.

    Attributes:
        base: a likelihood of one count a row: `Poisson`, `NegativeBinomial` or `Binomial` with trials.

    Raises:
        ValueError: if the base is not of counts, one a row, or rows bring trials of their own.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Poisson, ZeroInflated
        >>> ZeroInflated(Poisson()).mean({}, jnp.zeros((1, 2))).tolist()
        [0.5]
    """

    base: Likelihood

    def __post_init__(self) -> None:
        if not isinstance(self.base.support, Counts):
            raise ValueError(
                f"ZeroInflated takes a likelihood of counts, and {self.base.name} takes {self.base.support.values}; "
                "give Poisson() or NegativeBinomial()"
            )
        if self.base.takes_trials:
            raise ValueError(
                f"ZeroInflated takes counts whose range is the same in all rows, and {self.base.name}() takes the "
                "trials of each row; give Binomial(10), for instance"
            )
        if self.base.outputs(np.zeros(1)) != 1:
            raise ValueError(
                f"ZeroInflated takes a likelihood of one output and one count a row, which {self.base.name} is not; "
                "give Poisson(), NegativeBinomial() or Binomial(10)"
            )

    @property
    def name(self) -> str:
        return f"ZeroInflated({self.base.name})"

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the base takes the targets, `[batch]`."""
        self.base.check(y)
        if jnp.ndim(y) != 1:
            raise ValueError(f"the targets have shape {jnp.shape(y)}; {self.name} takes counts of shape [batch]")

    def outputs(self, y: Any) -> int:
        return 2

    def output_scales(self, width: int) -> tuple[str, ...]:
        """Returns the base's, and that of the log odds."""
        return (*self.base.output_scales(1), "log odds")

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        counted = log_sigmoid(-f[:, 1]) + self.base.log_prob(params, f[:, :1], y)
        zero = jnp.reshape(y, f.shape[:1]) == 0
        return jnp.where(zero, jnp.logaddexp(log_sigmoid(f[:, 1]), counted), counted)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns the information about both outputs, `[batch, 2, 2]`, from that of the base.

        With \(p_0\) the base's probability of zero, \(s_0\) its score there, \(\Lambda\) its information, and
        \(P = \pi + (1 - \pi) p_0\), the counts above zero contribute \((1 - \pi)\) times
        \((\Lambda - p_0 s_0^2,\; \pi p_0 s_0,\; \pi^2 (1 - p_0))\), and zero P times its score squared.
        """
        zeros = jnp.zeros(f.shape[:1], f.dtype)
        log_p0, s0 = jax.vmap(
            jax.value_and_grad(lambda row: self.base.log_prob(params, row[None], jnp.zeros(1, f.dtype))[0])
        )(f[:, :1])
        s0, share, rest = s0[:, 0], sigmoid(f[:, 1]), sigmoid(-f[:, 1])
        p0, at_zero = jnp.exp(log_p0), self.log_prob(params, f, zeros)
        # The score of zero, by shares of P that are at most one.
        of_base = jnp.exp(log_sigmoid(-f[:, 1]) + log_p0 - at_zero) * s0
        of_share = jnp.exp(log_sigmoid(f[:, 1]) + log_sigmoid(-f[:, 1]) - at_zero) * -jnp.expm1(log_p0)
        # p₀s₀² and p₀s₀, which vanish where the score is large.
        root = jnp.exp(0.5 * log_p0) * s0
        first = rest * (self.base.information(params, f[:, :1])[:, 0, 0] - root**2) + jnp.exp(at_zero) * of_base**2
        cross = rest * share * p0 * s0 + jnp.exp(at_zero) * of_base * of_share
        second = rest * share**2 * -jnp.expm1(log_p0) + jnp.exp(at_zero) * of_share**2
        return jnp.stack([jnp.stack([first, cross], axis=-1), jnp.stack([cross, second], axis=-1)], axis=-2)

    def mean(self, params: Params, f: Array) -> Array:
        r"""Returns \((1 - \pi) \mu\), `[batch]`."""
        return sigmoid(-f[:, 1]) * self.base.mean(params, f[:, :1])

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \((1 - \pi)(v + \pi \mu^2)\), `[batch]`."""
        mean, variance = self.base.mean(params, f[:, :1]), self.base.variance(params, f[:, :1])
        return sigmoid(-f[:, 1]) * (variance + sigmoid(f[:, 1]) * mean**2)

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns the entropy in nats, `[batch]`, from H of the base.

        \[ -P \log P - (1 - \pi)(1 - p_0) \log(1 - \pi) + (1 - \pi)(H + p_0 \log p_0) \]
        """
        zeros = jnp.zeros(f.shape[:1], f.dtype)
        log_p0, at_zero = self.base.log_prob(params, f[:, :1], zeros), self.log_prob(params, f, zeros)
        rest = sigmoid(-f[:, 1])
        of_base = self.base.entropy(params, f[:, :1]) + jnp.exp(log_p0) * log_p0
        above = rest * -jnp.expm1(log_p0) * log_sigmoid(-f[:, 1])
        return rest * of_base - above - jnp.exp(at_zero) * at_zero

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one count a row, `[batch]`."""
        inflated, counts = jax.random.split(key)
        zero = jax.random.bernoulli(inflated, sigmoid(f[:, 1]))
        return jnp.where(zero, 0.0, self.base.sample(counts, params, f[:, :1])).astype(f.dtype)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\pi + (1 - \pi) F(y)\) from zero on, `[batch]`."""
        below = self.base.cdf(params, f[:, :1], y)
        inflated = sigmoid(f[:, 1]) + sigmoid(-f[:, 1]) * below
        return jnp.where(jnp.reshape(y, f.shape[:1]) < 0, 0.0, inflated).astype(f.dtype)

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        r"""Returns the logarithms of \(\pi + (1 - \pi) F(y)\) and of \((1 - \pi)(1 - F(y))\), `[batch]`."""
        below, above = self.base.log_tails(params, f[:, :1], y)
        log_share, log_rest = log_sigmoid(f[:, 1]), log_sigmoid(-f[:, 1])
        counts = jnp.isfinite(below)
        inflated = jnp.logaddexp(log_share, log_rest + jnp.where(counts, below, 0.0))
        negative = jnp.reshape(y, f.shape[:1]) < 0
        below = jnp.where(negative, -jnp.inf, jnp.where(counts, inflated, log_share))
        return below, jnp.where(negative, 0.0, log_rest + above)

    def distribution(self, params: Params, f: Array) -> None:
        """Returns None: the base's is not inflated."""
        return

    def marginal(self, params: Params, mean: Array, covariance: Array) -> None:
        """Returns None: counts are no Gaussian."""
        return

    log_concave = quadratic = logits = takes_trials = False
    log_cdf, log_survival, log_interval = Likelihood.log_cdf, Likelihood.log_survival, Likelihood.log_interval
    check_training, counted = Likelihood.check_training, Likelihood.counted
    information_blocks, information_root = Likelihood.information_blocks, Likelihood.information_root
    information_diagonal, information_sum = Likelihood.information_diagonal, Likelihood.information_sum

    def widened(self, params: Params, factor: Number) -> None:
        """Returns None: counts have no scale."""
        del params, factor
