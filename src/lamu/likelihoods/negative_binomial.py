r"""Counts that vary more than their mean: \(\operatorname{Var}[y] = \mu + \mu^2/\theta\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.likelihoods.dispersion import Dispersed, DispersionPrior, LogNormalDispersion, require_positive
from lamu.likelihoods.factorials import log_gamma_ratio
from lamu.likelihoods.incomplete import cdf_of_beta
from lamu.likelihoods.links import Log, PositiveLink, SquareRoot, require_link
from lamu.likelihoods.poisson import draw_counts
from lamu.likelihoods.tails import log_tails_of_beta
from lamu.record import record
from lamu.supports import Counts
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["NegativeBinomial"]

_FEW = 64
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@record
class NegativeBinomial(Dispersed):
    r"""A Poisson count whose rate is gamma distributed about the mean, with concentration θ.

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
    leaf = "log_concentration"

    def __post_init__(self) -> None:
        require_positive("concentration", self.concentration, "give θ above 0, or leave it out to learn it")
        require_link(self.link, (Log, SquareRoot), "NegativeBinomial")

    @property
    def log_concave(self) -> bool:
        """Whether the link is the logarithm."""
        return isinstance(self.link, Log)

    @property
    def given(self) -> Number | None:
        return self.concentration

    @property
    def dispersion_prior(self) -> DispersionPrior:
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

    def surprise(self, params: Params, f: Array) -> Array:
        r"""Returns \(-\sum_y p \log p\): the first 64 counts one by one, and of the others an integral over log y.

        The sum from 64 on is the integral from 63.5 on and a 24th of the slope there, by Euler and Maclaurin.
        """

        def term(y: Array) -> Array:
            log_prob = self.density(params, f, y)
            return -jnp.exp(log_prob) * log_prob

        few = jax.lax.map(lambda y: term(jnp.full_like(f, y)), jnp.arange(_FEW, dtype=f.dtype))
        edge, ones = jnp.full_like(f, _FEW - 0.5), jnp.ones_like(f)
        slope = jax.jvp(term, (edge,), (ones,))[1]
        mean, theta = jax.lax.stop_gradient((self.link.inverse(f), self.dispersion(params, f)))
        # All but 1e-16 of the mass lies between these: twelve deviations, and 45 units of the exponential tail.
        deviation = jnp.sqrt(mean) * jnp.sqrt(1.0 + mean / theta)
        lower = jnp.maximum(mean - 12.0 * deviation, edge)
        upper = jnp.maximum(mean + 12.0 * deviation, edge) + 45.0 * (1.0 + mean / theta)
        reach = jnp.log(upper / lower)

        def node(at: tuple[Array, Array]) -> Array:
            y = lower * jnp.exp(reach * at[0])
            return at[1] * reach * y * term(y)

        nodes = jnp.asarray((_NODES + 1.0) / 2, f.dtype), jnp.asarray(_WEIGHTS / 2, f.dtype)
        return jnp.sum(few, axis=0) + jnp.sum(jax.lax.map(node, nodes), axis=0) + slope / 24.0

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns Poisson counts of gamma rates."""
        rates, counts = jax.random.split(key)
        theta = self.dispersion(params, f)
        return draw_counts(counts, self.link.inverse(f) * jax.random.gamma(rates, theta, f.shape, f.dtype) / theta)

    def below(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete beta function of θ/(θ + μ)."""
        theta = self.dispersion(params, f)
        mean = jnp.maximum(self.link.inverse(f), jnp.finfo(f.dtype).tiny)
        return cdf_of_beta(theta, y + 1.0, jnp.log(theta) - jnp.log(mean))

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the regularised incomplete beta functions of θ/(θ + μ)."""
        theta = self.dispersion(params, f)
        return log_tails_of_beta(theta, y + 1.0, jnp.log(theta) - self.link.log_mean(f))
