r"""Noise with outliers: \(y = f + \sigma t\), \(t \sim t_\nu\)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import betainc, betaln, digamma, gammaln

from lamu.likelihoods.dispersion import DispersionPrior, LogNormalDispersion, Scale, require_positive
from lamu.likelihoods.tails import log_tails_of_student
from lamu.record import record
from lamu.supports import Real
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["StudentT"]


@record
class StudentT(Scale):
    r"""Student-t noise: outliers pull the mean less the further out they are. Not log-concave.

    Attributes:
        df: ν, the degrees of freedom, above 2, so that the variance exists.
        scale: σ in the target's units; None where it is learned, as `params["log_scale"]`, `[outputs]`.
        scale_prior: the prior of a learned σ.

    Raises:
        ValueError: if the degrees of freedom are not above 2, or the scale is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import StudentT
        >>> StudentT(df=4.0, scale=1.0).variance({}, jnp.zeros((1, 1))).tolist()
        [2.0]
    """

    df: Number = 4.0
    scale: Number | None = None
    scale_prior: DispersionPrior = LogNormalDispersion()

    support = Real()

    def __post_init__(self) -> None:
        require_positive("degrees of freedom", self.df, "give a number above 2")
        if not isinstance(self.df, Tracer) and self.df <= 2:
            raise ValueError(f"with {self.df} degrees of freedom the variance is infinite; give more than 2")
        require_positive("scale", self.scale, "give σ above 0, or leave it out to learn it")

    @property
    def given(self) -> Number | None:
        return self.scale

    @property
    def dispersion_prior(self) -> DispersionPrior:
        return self.scale_prior

    def guess(self, y: Array) -> Array:
        """Returns the scale whose variance is that of the targets."""
        return jnp.std(y, axis=0) * ((self.df - 2) / self.df) ** 0.5

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(2\nu/(\nu + 3)\) for each log σ."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, 2 * self.df / (self.df + 3)), params)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        scale, nu = self.dispersion(params, f), self._df(f)
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(math.pi * nu)
        return constant - jnp.log(scale) - 0.5 * (nu + 1) * jnp.log1p(((y - f) / scale) ** 2 / nu)

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \((\nu + 1) / ((\nu + 3) \sigma^2)\)."""
        return (self.df + 1) / (self.df + 3) / self.dispersion(params, f) ** 2

    def location(self, params: Params, f: Array) -> Array:
        return f

    def spread(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma^2 \nu/(\nu - 2)\)."""
        return self.dispersion(params, f) ** 2 * (self.df / (self.df - 2))

    def surprise(self, params: Params, f: Array) -> Array:
        """Returns the entropy, which does not depend on f."""
        nu = self._df(f)
        of_one = (
            (nu + 1) / 2 * (digamma((nu + 1) / 2) - digamma(nu / 2)) + 0.5 * jnp.log(nu) + betaln(nu / 2, 0.5 + 0 * nu)
        )
        return of_one + jnp.log(self.dispersion(params, f))

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns f + σt."""
        return f + self.dispersion(params, f) * jax.random.t(key, self._df(f), f.shape, f.dtype)

    def below(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the distribution function, by the incomplete beta function of t²/(ν + t²)."""
        nu, t = self._df(f), (y - f) / self.dispersion(params, f)
        # Of the smaller of the two arguments, whose complement is exact, so that the centre and the tails keep digits.
        central = t**2 < nu
        x = jnp.where(central, t, 0.0) ** 2
        half = jnp.full_like(nu, 0.5)
        inner = 0.5 * betainc(half, nu / 2, x / (nu + x))
        far = jnp.where(central, nu, t**2)
        outer = 0.5 * betainc(nu / 2, half, nu / (nu + far))
        return jnp.where(central, 0.5 + jnp.sign(t) * inner, jnp.where(t > 0, 1.0 - outer, outer))

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of both tails."""
        return log_tails_of_student(self._df(f), (y - f) / self.dispersion(params, f))

    def _df(self, f: Array) -> Array:
        return jnp.full(f.shape, self.df, f.dtype)
