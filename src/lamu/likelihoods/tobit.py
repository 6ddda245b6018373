r"""Normal targets that are recorded at a limit where they lie beyond: \(\min(\max(f + \sigma\varepsilon, l), u)\)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from lamu.likelihoods.dispersion import DispersionPrior, LogNormalDispersion, Scale, require_positive
from lamu.likelihoods.normal_tails import log_normal_cdf, log_normal_interval, log_normal_pdf
from lamu.record import record, static
from lamu.supports import Interval
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Tobit"]

_LOG_ROOT = 0.5 * math.log(2 * math.pi)


@record
class Tobit(Scale):
    r"""The Tobit model: one or two limits, the same for all rows, at which targets pile up. Log-concave in f.

    A target at a limit has the probability of everything beyond it, another one the normal density. Mean, variance,
    entropy and draws are those of the recorded target; f is the mean of the one behind it. Limits that differ from row
    to row are for `RightCensored` and its kin.

    Attributes:
        lower: l; −∞ for none.
        upper: u; ∞ for none.
        scale: σ in the target's units; None where it is learned, as `params["log_scale"]`, `[outputs]`.
        scale_prior: the prior of a learned σ.

    Raises:
        ValueError: if the limits are out of order, or the scale is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Tobit
        >>> Tobit(scale=1.0).mean({}, jnp.array([[0.0], [1e4]])).round(4).tolist()
        [0.398..., 10000.0]
    """

    lower: float = static(default=0.0)
    upper: float = static(default=math.inf)
    scale: Number | None = None
    scale_prior: DispersionPrior = LogNormalDispersion()

    log_concave = True

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise ValueError(f"the limits {self.lower} and {self.upper} are out of order; give the lower one first")
        require_positive("scale", self.scale, "give σ above 0, or leave it out to learn it")

    @property
    def support(self) -> Interval:
        """The numbers between the limits."""
        return Interval(self.lower, self.upper)

    @property
    def given(self) -> Number | None:
        return self.scale

    @property
    def dispersion_prior(self) -> DispersionPrior:
        return self.scale_prior

    def guess(self, y: Array) -> Array:
        """Returns the standard deviation of the targets."""
        return jnp.std(y, axis=0)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density, or the log probability of what is beyond a limit."""
        scale = self.dispersion(params, f)
        at_lower, at_upper = y <= self.lower, y >= self.upper
        z = (y - f) / scale
        beyond = log_normal_cdf(jnp.where(at_upper, -z, z))
        return jnp.where(at_lower | at_upper, beyond, log_normal_pdf(z) - jnp.log(scale))

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns the information about f, with the limits α and β in deviations.

        \[ \frac{1}{\sigma^2} \Big(\int_\alpha^\beta z^2 \phi\, dz
            + \phi(\alpha)^2/\Phi(\alpha) + \phi(\beta)^2/\Phi(-\beta)\Big) \]
        """
        a, b = self._limits(params, f)
        at_limits = jnp.exp(2 * log_normal_pdf(a) - log_normal_cdf(a)) + jnp.exp(
            2 * log_normal_pdf(b) - log_normal_cdf(-b)
        )
        return (jnp.maximum(_second(a, b), 0.0) + at_limits) / self.dispersion(params, f) ** 2

    def location(self, params: Params, f: Array) -> Array:
        """Returns the mean of the recorded target."""
        a, b = self._limits(params, f)
        inner = f * _inside(a, b) + self.dispersion(params, f) * (_phi(a) - _phi(b))
        return inner + self._at(self.lower) * ndtr(a) + self._at(self.upper) * ndtr(-b)

    def spread(self, params: Params, f: Array) -> Array:
        """Returns the variance of the recorded target."""
        (a, b), scale = self._limits(params, f), self.dispersion(params, f)
        mean = self.location(params, f)
        far = f - mean
        inner = far**2 * _inside(a, b) + 2 * far * scale * (_phi(a) - _phi(b)) + scale**2 * _second(a, b)
        atoms = (self._at(self.lower) - mean) ** 2 * ndtr(a) + (self._at(self.upper) - mean) ** 2 * ndtr(-b)
        return jnp.maximum(inner + atoms, 0.0)

    def surprise(self, params: Params, f: Array) -> Array:
        """Returns the entropy, of the density and of the two masses together."""
        a, b = self._limits(params, f)
        inner = (jnp.log(self.dispersion(params, f)) + _LOG_ROOT) * _inside(a, b) + 0.5 * _second(a, b)
        return inner - ndtr(a) * log_normal_cdf(a) - ndtr(-b) * log_normal_cdf(-b)

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns normal draws, at a limit where they lie beyond it."""
        return jnp.clip(
            f + self.dispersion(params, f) * jax.random.normal(key, f.shape, f.dtype), self.lower, self.upper
        )

    def below(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the normal distribution function."""
        return ndtr((y - f) / self.dispersion(params, f))

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the normal ones."""
        z = (y - f) / self.dispersion(params, f)
        return log_normal_cdf(z), log_normal_cdf(-z)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns that of the normal target behind: everything beyond a limit belongs to the limit."""
        beyond = jnp.asarray(2.0 * jnp.finfo(f.dtype).max ** 0.25, f.dtype)  # further than any deviation that is told
        a, b = (jnp.reshape(end, f.shape).astype(f.dtype) for end in (lower, upper))
        scale = self.dispersion(params, f)
        a = jnp.where(a < self.lower, -beyond, (a - f) / scale)
        b = jnp.where(b >= self.upper, beyond, (b - f) / scale)
        found = log_normal_interval(a, jnp.where(b > a, b, a + 1.0))
        return jnp.where(b > a, found, -jnp.inf)[:, 0]

    def _limits(self, params: Params, f: Array) -> tuple[Array, Array]:
        """The limits in deviations from f; one that is not there is far beyond what can be told from no limit."""
        scale = self.dispersion(params, f)
        a = jnp.full_like(f, -1e8) if math.isinf(self.lower) else (self.lower - f) / scale
        b = jnp.full_like(f, 1e8) if math.isinf(self.upper) else (self.upper - f) / scale
        return a, b

    def _at(self, limit: float) -> float:
        return 0.0 if math.isinf(limit) else limit


def _phi(x: Array) -> Array:
    return jnp.exp(log_normal_pdf(x))


def _inside(a: Array, b: Array) -> Array:
    """Φ(b) − Φ(a), on the side of the smaller ones."""
    return jnp.where(a + b > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))


def _second(a: Array, b: Array) -> Array:
    """∫ z² φ dz from a to b."""
    return _inside(a, b) - (b * _phi(b) - a * _phi(a))
