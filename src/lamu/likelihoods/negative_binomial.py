r"""Counts that vary more than their mean: \(\operatorname{Var}[y] = \mu + \mu^2/\theta\)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc

from lamu.likelihoods.dispersion import Dispersed, DispersionPrior, LogNormalDispersion, require_positive
from lamu.likelihoods.factorials import log_gamma_ratio
from lamu.likelihoods.links import Log, PositiveLink
from lamu.likelihoods.poisson import draw_counts
from lamu.record import record
from lamu.supports import Counts
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["NegativeBinomial"]


@record
class NegativeBinomial(Dispersed):
    r"""A Poisson count whose rate is gamma distributed about the mean, with concentration θ.

    \[ p(y \mid f) = \frac{\Gamma(y + \theta)}{\Gamma(\theta)\, y!} \Big(\frac{\theta}{\theta + \mu}\Big)^\theta
        \Big(\frac{\mu}{\theta + \mu}\Big)^y, \qquad \mu = g^{-1}(f) \]

    It is the parametrisation of R's `glm.nb`; a large θ is Poisson. Log-concave in f under the log link. A learned θ is
    `params["log_concentration"]`, `[outputs]`. The entropy is an average over draws, as there is no formula.

    Attributes:
        concentration: θ; None where it is learned.
        link: g, `Log` or `SquareRoot`.
        concentration_prior: the prior of a learned θ.

    Raises:
        ValueError: if the concentration is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import NegativeBinomial
        >>> NegativeBinomial(2.0).variance({}, jnp.log(jnp.array([[4.0]]))).round(3).tolist()
        [12.0]
    """

    concentration: Number | None = None
    link: PositiveLink = Log()
    concentration_prior: DispersionPrior = LogNormalDispersion()

    support = Counts()
    leaf = "log_concentration"

    def __post_init__(self) -> None:
        require_positive("concentration", self.concentration, "give θ above 0, or leave it out to learn it")

    @property
    def log_concave(self) -> bool:
        """Whether the link is the logarithm."""
        return isinstance(self.link, Log)

    @property
    def given(self) -> Number | None:
        """The concentration."""
        return self.concentration

    @property
    def dispersion_prior(self) -> DispersionPrior:
        """Its prior."""
        return self.concentration_prior

    def guess(self, y: Array) -> Array:
        """Returns θ of the moments, at most 100."""
        mean = jnp.mean(y, axis=0)
        return jnp.minimum(mean**2 / jnp.maximum(jnp.var(y, axis=0) - mean, 1e-2 * mean**2), 1e2)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density, in terms of log μ − log θ."""
        theta, log_mean = self.dispersion(params, f), self.link.log_mean(f)
        odds = log_mean - jnp.log(theta)
        chosen = log_gamma_ratio(y, theta) - jax.scipy.special.gammaln(theta)
        return chosen - theta * jax.nn.softplus(odds) - y * jax.nn.softplus(-odds)

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu'^2 / (\mu + \mu^2/\theta)\)."""
        theta = self.dispersion(params, f)
        # μ²/(μ + μ²/θ) = θ σ(log μ − log θ)
        return theta * jax.nn.sigmoid(self.link.log_mean(f) - jnp.log(theta)) * self.link.log_slope(f) ** 2

    def location(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def spread(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu + \mu^2/\theta\)."""
        mean = self.link.inverse(f)
        return mean * (1.0 + mean / self.dispersion(params, f))

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns Poisson counts of gamma rates."""
        rates, counts = jax.random.split(key)
        theta = self.dispersion(params, f)
        return draw_counts(counts, self.link.inverse(f) * jax.random.gamma(rates, theta, f.shape, f.dtype) / theta)

    def below(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete beta function of θ/(θ + μ)."""
        theta = self.dispersion(params, f)
        return betainc(theta, y + 1.0, jax.nn.sigmoid(jnp.log(theta) - self.link.log_mean(f)))
