"""Likelihoods of unbounded counts: Poisson, negative binomial and zero-inflated ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid
from jax.scipy.special import gammaln

from lamu.families.special import (
    cdf_of_count,
    draw_counts,
    entropy_of_count,
    log_gamma_ratio,
    log_prob_of_count,
    log_tails_of_beta,
    log_tails_of_gamma,
)
from lamu.likelihoods.bases import Dispersed, DispersionPrior, IndependentTargets, LogNormalDispersion
from lamu.likelihoods.interface import Likelihood, LikelihoodWrapper
from lamu.likelihoods.links import Log, PositiveLink, SquareRoot, log_sigmoid, require_link
from lamu.record import record
from lamu.supports import Counts
from lamu.typing import Array, Number, Params, RandomKey, Targets

__all__ = ["NegativeBinomial", "Poisson", "ZeroInflated"]


@record
class Poisson(IndependentTargets):
    r"""Counts with variance equal to the mean: \(p(y \mid f) = \mu^y e^{-\mu} / y!\).

    The outputs are `[batch, outputs]`, the targets whole numbers from zero, `[batch]` where there is one output.
    Log-concave with each link below.

    Attributes:
        link: g, `Log` or `SquareRoot`, under which the Fisher information is 4 everywhere.

    Raises:
        TypeError: for another link.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Poisson
        >>> from lamu.likelihoods.links import SquareRoot
        >>> Poisson().mean({}, jnp.log(jnp.array([[2.0]]))).round(4).tolist()
        [2.0]
        >>> Poisson(link=SquareRoot()).mean({}, jnp.array([[2.0]])).tolist()
        [4.0]
    """

    link: PositiveLink | Any = Log()

    support = Counts()
    log_concave = True

    def __post_init__(self) -> None:
        require_link(self.link, (Log, SquareRoot), "Poisson")

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(y \log \mu - \mu - \log y!\), in a form that is accurate for counts of a million."""
        return log_prob_of_count(y, self.link.inverse(f), self.link.log_mean(f))

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu'^2 / \mu\)."""
        return self.link.weight(f)

    def target_mean(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def target_variance(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def target_entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sum_y p \log(1/p)\), for a large mean by its series \(\tfrac12 \log(2 \pi e \mu) - \ldots\)."""
        return entropy_of_count(self.link.inverse(f))

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns Poisson counts."""
        return draw_counts(key, self.link.inverse(f))

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete gamma function Q(y + 1, μ)."""
        return cdf_of_count(y, self.link.inverse(f))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the log tails of a gamma distributed number of shape y + 1, in the other order."""
        above, below = log_tails_of_gamma(y + 1.0, self.link.inverse(f))
        return below, above


_FEW_COUNTS = 64  # counts that are summed one by one; beyond them the sum is an integral
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@record
class NegativeBinomial(Dispersed):
    r"""Negative binomial counts: Poisson counts with a gamma distributed rate of concentration θ.

    \[ p(y \mid f) = \frac{\Gamma(y + \theta)}{\Gamma(\theta)\, y!} \Big(\frac{\theta}{\theta + \mu}\Big)^\theta
        \Big(\frac{\mu}{\theta + \mu}\Big)^y, \qquad \mu = g^{-1}(f) \]

    It is the parametrisation of R's `glm.nb`; a large θ is Poisson. Log-concave in f under the log link. A learned θ is
    `params["log_concentration"]`, `[outputs]`. The entropy is a sum over few counts and a quadrature over the others.

    Attributes:
        concentration: θ; None where it is learned.
        link: g, `Log` or `SquareRoot`.
        concentration_prior: the prior of a learned θ.

    Raises:
        ValueError: if the concentration is not positive and finite.
        TypeError: for another link.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import NegativeBinomial
        >>> NegativeBinomial(2.0).variance({}, jnp.log(jnp.array([[4.0]]))).round(3).tolist()
        [12.0]
    """

    concentration: Number | None = None
    link: PositiveLink | Any = Log()
    concentration_prior: DispersionPrior = LogNormalDispersion()

    support = Counts()
    dispersed = "concentration"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_link(self.link, (Log, SquareRoot), "NegativeBinomial")

    @property
    def log_concave(self) -> bool:
        """Whether the link is the logarithm."""
        return isinstance(self.link, Log)

    def guess(self, y: Array) -> Array:
        """Returns the moment estimate of θ, at most 100."""
        mean = jnp.mean(y, axis=0)
        return jnp.minimum(mean**2 / jnp.maximum(jnp.var(y, axis=0) - mean, 1e-2 * mean**2), 1e2)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density, in terms of log μ − log θ."""
        theta, log_mean = self.dispersion(params, f), self.link.log_mean(f)
        odds = log_mean - jnp.log(theta)
        # log Γ(y + θ) - log Γ(θ) - log y!, from the ratio of the two that are the larger.
        nearly_poisson = log_gamma_ratio(theta - 1.0, y + 1.0) - gammaln(y + 1.0)
        chosen = jnp.where(theta > y, nearly_poisson, log_gamma_ratio(y, theta) - gammaln(theta))
        return chosen - theta * jax.nn.softplus(odds) - y * jax.nn.softplus(-odds)

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu'^2 / (\mu + \mu^2/\theta)\)."""
        theta = self.dispersion(params, f)
        # μ²/(μ + μ²/θ) = θ σ(log μ − log θ)
        return theta * jax.nn.sigmoid(self.link.log_mean(f) - jnp.log(theta)) * self.link.log_slope(f) ** 2

    def target_mean(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def target_variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu + \mu^2/\theta\)."""
        mean = self.link.inverse(f)
        return mean * (1.0 + mean / self.dispersion(params, f))

    def target_entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(-\sum_y p \log p\): a sum over the first 64 counts, and an integral over log y for the others.

        The sum from 64 on is the integral from 63.5 on and a 24th of the slope there, by Euler and Maclaurin.
        """

        def term(y: Array) -> Array:
            log_prob = self.target_log_prob(params, f, y)
            return -jnp.exp(log_prob) * log_prob

        few = jax.lax.map(lambda y: term(jnp.full_like(f, y)), jnp.arange(_FEW_COUNTS, dtype=f.dtype))
        edge, ones = jnp.full_like(f, _FEW_COUNTS - 0.5), jnp.ones_like(f)
        slope = jax.jvp(term, (edge,), (ones,))[1]
        mean, theta = jax.lax.stop_gradient((self.link.inverse(f), self.dispersion(params, f)))
        # All but 1e-16 of the mass is between these: twelve deviations, and 45 units of the exponential tail.
        deviation = jnp.sqrt(mean) * jnp.sqrt(1.0 + mean / theta)
        lower = jnp.maximum(mean - 12.0 * deviation, edge)
        upper = jnp.maximum(mean + 12.0 * deviation, edge) + 45.0 * (1.0 + mean / theta)
        reach = jnp.log(upper / lower)

        def node(node_and_weight: tuple[Array, Array]) -> Array:
            y = lower * jnp.exp(reach * node_and_weight[0])
            return node_and_weight[1] * reach * y * term(y)

        nodes = jnp.asarray((_NODES + 1.0) / 2, f.dtype), jnp.asarray(_WEIGHTS / 2, f.dtype)
        return jnp.sum(few, axis=0) + jnp.sum(jax.lax.map(node, nodes), axis=0) + slope / 24.0

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns Poisson counts of gamma rates."""
        rates, counts = jax.random.split(key)
        theta = self.dispersion(params, f)
        return draw_counts(counts, self.link.inverse(f) * jax.random.gamma(rates, theta, f.shape, f.dtype) / theta)

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete beta function of θ/(θ + μ)."""
        theta = self.dispersion(params, f)
        mean = jnp.maximum(self.link.inverse(f), jnp.finfo(f.dtype).tiny)
        return jnp.exp(log_tails_of_beta(theta, y + 1.0, jnp.log(theta) - jnp.log(mean))[0])

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the regularised incomplete beta functions of θ/(θ + μ)."""
        theta = self.dispersion(params, f)
        return log_tails_of_beta(theta, y + 1.0, jnp.log(theta) - self.link.log_mean(f))


@record
class ZeroInflated(LikelihoodWrapper):
    r"""Zero-inflated counts: zero with probability π, which the network predicts too, else a count of the base.

    The outputs are `[batch, 2]`: that of the base, and the log odds of π. Not log-concave.

    Attributes:
        base: a likelihood of one count a row: `Poisson`, `NegativeBinomial` or `Binomial` with trials.

    Raises:
        ValueError: if the base is not of one count a row, or rows have their own trials.

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

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the base accepts the targets, `[batch]`."""
        self.base.check(y)
        if jnp.ndim(y) != 1:
            raise ValueError(f"the targets have shape {jnp.shape(y)}; {self.name} takes counts of shape [batch]")

    def outputs(self, y: Targets) -> int:
        return 2

    def output_scales(self, width: int) -> tuple[str, ...]:
        """Returns the base's, and that of the log odds."""
        return (*self.base.output_scales(1), "log odds")

    def output_start(self, mean: Array, f: Array) -> Array:
        return f.at[..., :1].set(self.base.output_start(mean, f[..., :1]))

    def output_units(self, f: Array) -> Array:
        """Returns the base's, and one for the log odds."""
        return jnp.ones_like(f).at[..., :1].set(self.base.output_units(f[..., :1]))

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

    distribution, marginal = Likelihood.distribution, Likelihood.marginal  # the base's are for another target

    log_concave = quadratic = logits = takes_trials = False
    log_cdf, log_survival, log_interval = Likelihood.log_cdf, Likelihood.log_survival, Likelihood.log_interval
    check_training, counted = Likelihood.check_training, Likelihood.counted
    information_blocks, information_root = Likelihood.information_blocks, Likelihood.information_root
    information_diagonal, information_sum = Likelihood.information_diagonal, Likelihood.information_sum
    scale_noise = Likelihood.scale_noise
