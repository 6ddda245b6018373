r"""Positive targets whose deviation grows with the mean: \(y \sim \mathrm{Gamma}(\alpha, \alpha/\mu)\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln, polygamma

from lamu.likelihoods.dispersion import Dispersed, DispersionPrior, LogNormalDispersion, require_positive
from lamu.likelihoods.incomplete import cdf_of_gamma
from lamu.likelihoods.links import Log, PositiveLink, Reciprocal, require_link
from lamu.likelihoods.tails import log_tails_of_gamma
from lamu.record import record
from lamu.supports import PositiveReal
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Gamma"]


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
    leaf = "log_shape"

    def __post_init__(self) -> None:
        require_positive("shape", self.shape, "give α above 0, or leave it out to learn it")
        require_link(self.link, (Log, Reciprocal), "Gamma")

    @property
    def given(self) -> Number | None:
        return self.shape

    @property
    def dispersion_prior(self) -> DispersionPrior:
        return self.shape_prior

    def guess(self, y: Array) -> Array:
        """Returns α of the moments, from 0.1 to 1000."""
        return jnp.clip(jnp.mean(y, axis=0) ** 2 / jnp.var(y, axis=0), 0.1, 1e3)

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(\alpha^2 \psi'(\alpha) - \alpha\) for each log α."""
        return jax.tree.map(lambda leaf: _information(jnp.exp(leaf)), params)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\alpha \log(\alpha/\mu) + (\alpha - 1) \log y - \alpha y/\mu - \log \Gamma(\alpha)\)."""
        a = self.dispersion(params, f)
        log_rate = jnp.log(a) - self.link.log_mean(f)
        return a * log_rate + (a - 1.0) * jnp.log(y) - a * y * self.link.reciprocal(f) - gammaln(a)

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \(\alpha (\mu'/\mu)^2\)."""
        return self.dispersion(params, f) * self.link.log_slope(f) ** 2

    def location(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def spread(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu^2/\alpha\)."""
        return self.link.inverse(f) ** 2 / self.dispersion(params, f)

    def surprise(self, params: Params, f: Array) -> Array:
        r"""Returns \(\alpha - \log(\alpha/\mu) + \log \Gamma(\alpha) + (1 - \alpha) \psi(\alpha)\)."""
        a = self.dispersion(params, f)
        return a - jnp.log(a) + self.link.log_mean(f) + gammaln(a) + (1.0 - a) * digamma(a)

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns gamma draws, none of which is zero."""
        a = self.dispersion(params, f)
        draws = self.link.inverse(f) * jax.random.gamma(key, a, f.shape, f.dtype) / a
        return jnp.maximum(draws, jnp.finfo(f.dtype).tiny)

    def below(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns the regularised incomplete gamma function P(α, αy/μ)."""
        a = self.dispersion(params, f)
        return cdf_of_gamma(a, a * (y / self.link.inverse(f)))

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the regularised incomplete gamma functions."""
        a = self.dispersion(params, f)
        return log_tails_of_gamma(a, a * (y * self.link.reciprocal(f)))


def _information(a: Array) -> Array:
    # ½ + 1/(6α) for a large α, where the difference would lose it.
    large = a > 1e2
    series = 0.5 + 1 / (6 * a) - 1 / (30 * a**3)
    some = jnp.where(large, 1.0, a)
    return jnp.where(large, series, some**2 * polygamma(1, some) - some)
