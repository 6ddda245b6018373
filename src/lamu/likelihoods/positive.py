"""Likelihoods of positive targets and of shares: Gamma, Weibull and Beta."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammaln, polygamma

from lamu.families.special import cdf_of_gamma, digamma_over_log, log_tails_of_beta, log_tails_of_gamma, stirling
from lamu.likelihoods.bases import Dispersed, DispersionPrior, LogNormalDispersion
from lamu.likelihoods.links import (
    ComplementaryLogLog,
    Log,
    Logit,
    PositiveLink,
    ProbabilityLink,
    Reciprocal,
    require_link,
    require_probability_link,
)
from lamu.record import record
from lamu.supports import PositiveReal, UnitInterval
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Beta", "Gamma", "Weibull"]


@record
class Gamma(Dispersed):
    r"""Gamma distributed targets with mean \(\mu = g^{-1}(f)\) and variance \(\mu^2/\alpha\). Log-concave.

    Attributes:
        shape: α; None where it is learned, as `params["log_shape"]`, `[outputs]`.
        link: g, `Log` or `Reciprocal`, the canonical one.
        shape_prior: the prior of a learned α.

    Raises:
        ValueError: if the shape is not positive and finite.
        TypeError: for another link.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gamma
        >>> from lamu.likelihoods.links import Reciprocal
        >>> Gamma(4.0, link=Reciprocal()).variance({}, jnp.array([[0.5]])).tolist()
        [1.0]
    """

    shape: Number | None = None
    link: PositiveLink | Any = Log()
    shape_prior: DispersionPrior = LogNormalDispersion()

    support = PositiveReal()
    log_concave = True
    dispersed = "shape"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_link(self.link, (Log, Reciprocal), "Gamma")

    def guess(self, y: Array) -> Array:
        """Returns the moment estimate of α, clipped to 0.1 to 1000."""
        return jnp.clip(jnp.mean(y, axis=0) ** 2 / jnp.var(y, axis=0), 0.1, 1e3)

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(\alpha^2 \psi'(\alpha) - \alpha\) for each log α."""
        return jax.tree.map(lambda leaf: _information(jnp.exp(leaf)), params)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\alpha \log(\alpha/\mu) + (\alpha - 1) \log y - \alpha y/\mu - \log \Gamma(\alpha)\)."""
        a, log_y = self.dispersion(params, f), jnp.log(y)
        excess = log_y - self.link.log_mean(f)  # of log y over log μ: terms of the order of α would cancel
        near = jnp.abs(excess) < 1.0
        small = jnp.where(near, excess, 0.0)
        deviance = jnp.where(near, jnp.expm1(small) - small, y * self.link.reciprocal(f) - 1.0 - excess)
        return jnp.log(a) - stirling(a) - log_y - a * deviance

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\alpha (\mu'/\mu)^2\)."""
        return self.dispersion(params, f) * self.link.log_slope(f) ** 2

    def target_mean(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def target_variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu^2/\alpha\)."""
        return self.link.inverse(f) ** 2 / self.dispersion(params, f)

    def target_entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\alpha - \log(\alpha/\mu) + \log \Gamma(\alpha) + (1 - \alpha) \psi(\alpha)\)."""
        a = self.dispersion(params, f)
        return self.link.log_mean(f) + stirling(a) - jnp.log(a) + (1.0 - a) * digamma_over_log(a)

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns gamma draws, which are never zero."""
        a = self.dispersion(params, f)
        draws = self.link.inverse(f) * jax.random.gamma(key, a, f.shape, f.dtype) / a
        return jnp.maximum(draws, jnp.finfo(f.dtype).tiny)

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns the regularised incomplete gamma function P(α, αy/μ)."""
        a = self.dispersion(params, f)
        return cdf_of_gamma(a, a * (y / self.link.inverse(f)))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the regularised incomplete gamma functions."""
        a = self.dispersion(params, f)
        return log_tails_of_gamma(a, a * (y * self.link.reciprocal(f)))


def _information(a: Array) -> Array:
    # ½ + 1/(6α) for a large α, where the difference would cancel.
    large = a > 1e2
    series = 0.5 + 1 / (6 * a) - 1 / (30 * a**3)
    some = jnp.where(large, 1.0, a)
    return jnp.where(large, series, some**2 * polygamma(1, some) - some)


_EULER = 0.5772156649015329


@record
class Weibull(Dispersed):
    r"""Weibull distributed targets; f is log λ, and 63 % of the targets are below λ. Log-concave.

    Attributes:
        shape: k: the hazard falls with time below one, and rises above; None where it is learned, as
            `params["log_shape"]`, `[outputs]`.
        shape_prior: the prior of a learned k.

    Raises:
        ValueError: if the shape is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Weibull
        >>> Weibull(1.0).mean({}, jnp.log(jnp.array([[3.0]]))).round(4).tolist()
        [3.0]
    """

    shape: Number | None = None
    shape_prior: DispersionPrior = LogNormalDispersion()

    support = PositiveReal()
    log_concave = True
    dispersed = "shape"
    link = Log()  # of λ

    def guess(self, y: Array) -> Array:
        """Returns k from the standard deviation of log y, clipped to 0.1 to 100."""
        return jnp.clip(math.pi / 6**0.5 / jnp.std(jnp.log(y), axis=0), 0.1, 1e2)

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \((1 - \gamma)^2 + \pi^2/6\) for each log k, γ Euler's constant."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, (1 - _EULER) ** 2 + math.pi**2 / 6), params)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log k - \log y + k z - e^{k z}\), \(z = \log y - f\)."""
        k, log_y = self.dispersion(params, f), jnp.log(y)
        z = k * (log_y - f)
        return jnp.log(k) - log_y + z - Log().inverse(z)

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(k^2\)."""
        return self.dispersion(params, f) ** 2

    def target_mean(self, params: Params, f: Array) -> Array:
        r"""Returns \(\lambda \Gamma(1 + 1/k)\)."""
        return Log().inverse(f) * jnp.exp(gammaln(1.0 + 1.0 / self.dispersion(params, f)))

    def target_variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\lambda^2 (\Gamma(1 + 2/k) - \Gamma(1 + 1/k)^2)\), as a difference of logarithms."""
        k = self.dispersion(params, f)
        second, first = gammaln(1.0 + 2.0 / k), gammaln(1.0 + 1.0 / k)
        return (Log().inverse(f) * jnp.exp(first)) ** 2 * jnp.expm1(second - 2.0 * first)

    def target_entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\gamma (1 - 1/k) + f - \log k + 1\)."""
        k = self.dispersion(params, f)
        return _EULER * (1.0 - 1.0 / k) + f - jnp.log(k) + 1.0

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns λ times a power of an exponential draw, which is never zero."""
        power = jax.random.exponential(key, f.shape, f.dtype) ** (1.0 / self.dispersion(params, f))
        return jnp.maximum(Log().inverse(f) * power, jnp.finfo(f.dtype).tiny)

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(1 - e^{-(y/\lambda)^k}\)."""
        some, scale = jnp.maximum(y, jnp.finfo(f.dtype).tiny), jnp.log(Log().inverse(f))
        return -jnp.expm1(-Log().inverse(self.dispersion(params, f) * (jnp.log(some) - scale)))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        r"""Returns \(\log(1 - e^{-H})\) and \(-H\), \(H = (y/\lambda)^k\)."""
        log_y = jnp.log(jnp.maximum(y, jnp.finfo(f.dtype).tiny))
        log_hazard = self.dispersion(params, f) * (log_y - f)
        return ComplementaryLogLog().log_probs(log_hazard)


@record
class Beta(Dispersed):
    r"""Beta distributed targets with mean \(\mu = g^{-1}(f)\) and variance \(\mu (1 - \mu)/(1 + \phi)\).

    Not log-concave in f.

    Attributes:
        concentration: φ; None where it is learned, as `params["log_concentration"]`, `[outputs]`.
        link: g, a link of probabilities with the range 0 to 1.
        concentration_prior: the prior of a learned φ.

    Raises:
        ValueError: if the concentration is not positive and finite.
        TypeError: for another link.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Beta
        >>> Beta(3.0).variance({}, jnp.zeros((1, 1))).tolist()
        [0.0625]
    """

    concentration: Number | None = None
    link: ProbabilityLink | Any = Logit()
    concentration_prior: DispersionPrior = LogNormalDispersion()

    support = UnitInterval()
    dispersed = "concentration"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_probability_link(self.link, "Beta")

    def guess(self, y: Array) -> Array:
        """Returns the moment estimate of φ, clipped to 0.1 to 1000."""
        mean = jnp.mean(y, axis=0)
        return jnp.clip(mean * (1.0 - mean) / jnp.var(y, axis=0) - 1.0, 0.1, 1e3)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density, with log Γ(a) = log Γ(1 + a) − log a, whose last term is finite as a rounds to 0."""
        phi = self.dispersion(params, f)
        a, b = self._counts(params, f)
        log_a, log_b = self._logarithms(params, f)
        log_y, log_rest, mean = jnp.log(y), jnp.log1p(-y), self.link.probability(f)
        far = gammaln(phi) - gammaln(1.0 + a) - gammaln(1.0 + b) + a * log_y + b * log_rest
        # About the mean, where terms of the order of φ would cancel: by Stirling's series, and the excess over it.
        near = jnp.abs(y - mean) < 0.5 * jnp.minimum(mean, 1.0 - mean)
        a, b, mean = (jnp.where(near, value, other) for value, other in ((a, 1.0), (b, 1.0), (mean, 0.5)))
        gap = jnp.where(near, y - mean, 0.0)
        over, under = gap / mean, gap / (1.0 - mean)
        close = a * (jnp.log1p(over) - over) + b * (jnp.log1p(-under) + under)
        close = close + stirling(phi) - stirling(a) - stirling(b) - jnp.log(phi)
        return jnp.where(near, close, far) + log_a + log_b - log_y - log_rest

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\phi^2 \mu'^2 (\psi'(\mu\phi) + \psi'((1 - \mu)\phi))\)."""
        a, b = self._counts(params, f)
        phi, slope = self.dispersion(params, f), self.link.log_density(f)
        log_a, log_b = self._logarithms(params, f)
        # ψ′(a) = ψ′(1 + a) + 1/a², and φμ′/a is finite where a is zero.
        information = (phi * jnp.exp(slope)) ** 2 * (polygamma(1, 1.0 + a) + polygamma(1, 1.0 + b))
        shares = [jnp.exp(jnp.minimum(jnp.log(phi) + slope - log, 30.0)) ** 2 for log in (log_a, log_b)]
        return information + shares[0] + shares[1]

    def target_mean(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.probability(f)

    def target_variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu (1 - \mu)/(1 + \phi)\)."""
        return self.link.probability(f) * self.link.complement(f) / (1.0 + self.dispersion(params, f))

    def target_entropy(self, params: Params, f: Array) -> Array:
        """Returns the entropy, with parameters of at least 10⁻¹³, as it is unbounded below."""
        a, b = self._bounded_counts(params, f)
        series = stirling(a) + stirling(b) - stirling(a + b) - jnp.log(a + b)
        slopes = (a - 1.0) * digamma_over_log(a) + (b - 1.0) * digamma_over_log(b)
        return series - slopes + (a + b - 2.0) * digamma_over_log(a + b)

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns beta draws, which are never zero or one."""
        a, b = self._bounded_counts(params, f)
        end = jnp.finfo(f.dtype)
        return jnp.clip(jax.random.beta(key, a, b, f.shape, f.dtype), end.tiny, 1.0 - end.eps)

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete beta function."""
        a, b = self._bounded_counts(params, f)
        return betainc(a, b, y)

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the regularised incomplete beta functions."""
        a, b = self._bounded_counts(params, f)
        end = jnp.finfo(f.dtype)
        inner = jnp.clip(y, end.tiny, 1.0 - end.eps)
        return log_tails_of_beta(a, b, jnp.log(inner) - jnp.log1p(-inner))

    def _counts(self, params: Params, f: Array) -> tuple[Array, Array]:
        phi = self.dispersion(params, f)
        return phi * self.link.probability(f), phi * self.link.complement(f)

    def _bounded_counts(self, params: Params, f: Array) -> tuple[Array, Array]:
        a, b = (jnp.exp(jnp.maximum(log, -30.0)) for log in self._logarithms(params, f))
        return a, b

    def _logarithms(self, params: Params, f: Array) -> tuple[Array, Array]:
        log_phi = jnp.log(self.dispersion(params, f))
        log_one, log_zero = self.link.log_probs(f)
        return log_phi + log_one, log_phi + log_zero
