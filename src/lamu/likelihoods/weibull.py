r"""Times until an event: \(P(Y > y) = \exp(-(y/\lambda)^k)\), \(\lambda = e^f\)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from lamu.likelihoods.dispersion import Dispersed, DispersionPrior, LogNormalDispersion, require_positive
from lamu.likelihoods.links import ComplementaryLogLog, Log
from lamu.record import record
from lamu.supports import PositiveReal
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Weibull"]

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
    leaf = "log_shape"

    def __post_init__(self) -> None:
        require_positive("shape", self.shape, "give k above 0, or leave it out to learn it")

    @property
    def given(self) -> Number | None:
        return self.shape

    @property
    def dispersion_prior(self) -> DispersionPrior:
        return self.shape_prior

    def output_scales(self, width: int) -> tuple[str, ...]:
        """Returns that of log means: f is log λ."""
        return ("log means",) * width

    def guess(self, y: Array) -> Array:
        """Returns k of the standard deviation of log y, from 0.1 to 100."""
        return jnp.clip(math.pi / 6**0.5 / jnp.std(jnp.log(y), axis=0), 0.1, 1e2)

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \((1 - \gamma)^2 + \pi^2/6\) for each log k, γ Euler's constant."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, (1 - _EULER) ** 2 + math.pi**2 / 6), params)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log k - \log y + k z - e^{k z}\), \(z = \log y - f\)."""
        k, log_y = self.dispersion(params, f), jnp.log(y)
        z = k * (log_y - f)
        return jnp.log(k) - log_y + z - Log().inverse(z)

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \(k^2\)."""
        return self.dispersion(params, f) ** 2

    def location(self, params: Params, f: Array) -> Array:
        r"""Returns \(\lambda \Gamma(1 + 1/k)\)."""
        return Log().inverse(f) * jnp.exp(gammaln(1.0 + 1.0 / self.dispersion(params, f)))

    def spread(self, params: Params, f: Array) -> Array:
        r"""Returns \(\lambda^2 (\Gamma(1 + 2/k) - \Gamma(1 + 1/k)^2)\), as a difference of logarithms."""
        k = self.dispersion(params, f)
        second, first = gammaln(1.0 + 2.0 / k), gammaln(1.0 + 1.0 / k)
        return (Log().inverse(f) * jnp.exp(first)) ** 2 * jnp.expm1(second - 2.0 * first)

    def surprise(self, params: Params, f: Array) -> Array:
        r"""Returns \(\gamma (1 - 1/k) + f - \log k + 1\)."""
        k = self.dispersion(params, f)
        return _EULER * (1.0 - 1.0 / k) + f - jnp.log(k) + 1.0

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns λ times a power of an exponential draw, none of which is zero."""
        power = jax.random.exponential(key, f.shape, f.dtype) ** (1.0 / self.dispersion(params, f))
        return jnp.maximum(Log().inverse(f) * power, jnp.finfo(f.dtype).tiny)

    def below(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(1 - e^{-(y/\lambda)^k}\)."""
        some, scale = jnp.maximum(y, jnp.finfo(f.dtype).tiny), jnp.log(Log().inverse(f))
        return -jnp.expm1(-Log().inverse(self.dispersion(params, f) * (jnp.log(some) - scale)))

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        r"""Returns \(\log(1 - e^{-H})\) and \(-H\), \(H = (y/\lambda)^k\)."""
        log_y = jnp.log(jnp.maximum(y, jnp.finfo(f.dtype).tiny))
        log_hazard = self.dispersion(params, f) * (log_y - f)
        link = ComplementaryLogLog()
        return link.log_prob(log_hazard, jnp.ones(f.shape, bool)), link.log_prob(log_hazard, jnp.zeros(f.shape, bool))
