r"""Shares between zero and one: \(y \sim \mathrm{Beta}(\mu\phi, (1 - \mu)\phi)\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, betaln, digamma, gammaln, polygamma

from lamu.likelihoods.dispersion import Dispersed, DispersionPrior, LogNormalDispersion, require_positive
from lamu.likelihoods.links import Logit, ProbabilityLink, require_probability_link
from lamu.likelihoods.tails import log_tails_of_beta
from lamu.record import record
from lamu.supports import UnitInterval
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Beta"]


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
    leaf = "log_concentration"

    def __post_init__(self) -> None:
        require_positive("concentration", self.concentration, "give φ above 0, or leave it out to learn it")
        require_probability_link(self.link, "Beta")

    @property
    def given(self) -> Number | None:
        return self.concentration

    @property
    def dispersion_prior(self) -> DispersionPrior:
        return self.concentration_prior

    def guess(self, y: Array) -> Array:
        """Returns φ of the moments, from 0.1 to 1000."""
        mean = jnp.mean(y, axis=0)
        return jnp.clip(mean * (1.0 - mean) / jnp.var(y, axis=0) - 1.0, 0.1, 1e3)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density; log Γ(a) is log Γ(1 + a) − log a, whose last term is finite where a rounds to 0."""
        phi = self.dispersion(params, f)
        a, b = self._counts(params, f)
        log_a, log_b = self._logarithms(params, f)
        constant = gammaln(phi) - gammaln(1.0 + a) - gammaln(1.0 + b) + log_a + log_b
        return constant + (a - 1.0) * jnp.log(y) + (b - 1.0) * jnp.log1p(-y)

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \(\phi^2 \mu'^2 (\psi'(\mu\phi) + \psi'((1 - \mu)\phi))\)."""
        a, b = self._counts(params, f)
        phi, slope = self.dispersion(params, f), self.link.log_density(f)
        log_a, log_b = self._logarithms(params, f)
        # ψ′(a) = ψ′(1 + a) + 1/a², and φμ′/a is finite where a is zero.
        whole = (phi * jnp.exp(slope)) ** 2 * (polygamma(1, 1.0 + a) + polygamma(1, 1.0 + b))
        shares = [jnp.exp(jnp.minimum(jnp.log(phi) + slope - log, 30.0)) ** 2 for log in (log_a, log_b)]
        return whole + shares[0] + shares[1]

    def location(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.probability(f)

    def spread(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu (1 - \mu)/(1 + \phi)\)."""
        return self.link.probability(f) * self.link.complement(f) / (1.0 + self.dispersion(params, f))

    def surprise(self, params: Params, f: Array) -> Array:
        """Returns the entropy, of parameters of 10⁻¹³ at least: it has no lower end."""
        a, b = (jnp.exp(jnp.maximum(log, -30.0)) for log in self._logarithms(params, f))
        return betaln(a, b) - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + (a + b - 2.0) * digamma(a + b)

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns beta draws, none of which is zero or one."""
        a, b = (jnp.exp(jnp.maximum(log, -30.0)) for log in self._logarithms(params, f))
        end = jnp.finfo(f.dtype)
        return jnp.clip(jax.random.beta(key, a, b, f.shape, f.dtype), end.tiny, 1.0 - end.eps)

    def below(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete beta function."""
        a, b = (jnp.exp(jnp.maximum(log, -30.0)) for log in self._logarithms(params, f))
        return betainc(a, b, y)

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the regularised incomplete beta functions."""
        a, b = (jnp.exp(jnp.maximum(log, -30.0)) for log in self._logarithms(params, f))
        end = jnp.finfo(f.dtype)
        inner = jnp.clip(y, end.tiny, 1.0 - end.eps)
        return log_tails_of_beta(a, b, jnp.log(inner) - jnp.log1p(-inner))

    def _counts(self, params: Params, f: Array) -> tuple[Array, Array]:
        phi = self.dispersion(params, f)
        return phi * self.link.probability(f), phi * self.link.complement(f)

    def _logarithms(self, params: Params, f: Array) -> tuple[Array, Array]:
        log_phi = jnp.log(self.dispersion(params, f))
        one, zero = jnp.ones(f.shape, bool), jnp.zeros(f.shape, bool)
        return log_phi + self.link.log_prob(f, one), log_phi + self.link.log_prob(f, zero)
