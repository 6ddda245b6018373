"""Likelihoods of real targets that are not normal: Student's t, quantile regression, and angles."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, i0e, i1e

from lamu.base.arguments import require, require_positive, require_share
from lamu.base.compile_once import lenient
from lamu.families.special import digamma_over_log, log1mexp, log_gamma_ratio, log_prob_of_student, log_tails_of_student
from lamu.likelihoods.bases import Dispersed, DispersionPrior, LearnedScale, LogNormalDispersion
from lamu.record import record
from lamu.supports import Circle, Real
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Quantile", "StudentT", "VonMises"]


@record
class StudentT(LearnedScale):
    r"""Student-t noise, robust to outliers. Not log-concave.

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
        require(self.df > 2, f"with {self.df} degrees of freedom the variance is infinite; give more than 2")
        super().__post_init__()

    def guess(self, y: Array) -> Array:
        """Returns the scale whose variance is that of the targets."""
        return super().guess(y) * ((self.df - 2) / self.df) ** 0.5

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(2\nu/(\nu + 3)\) for each log σ."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, 2 * self.df / (self.df + 3)), params)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        scale = self.dispersion(params, f)
        return log_prob_of_student((y - f) / scale, self._df(f)) - jnp.log(scale)

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \((\nu + 1) / ((\nu + 3) \sigma^2)\)."""
        return (self.df + 1) / (self.df + 3) / self.dispersion(params, f) ** 2

    def target_mean(self, params: Params, f: Array) -> Array:
        return f

    def target_variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma^2 \nu/(\nu - 2)\)."""
        return self.dispersion(params, f) ** 2 * (self.df / (self.df - 2))

    def target_entropy(self, params: Params, f: Array) -> Array:
        """Returns the entropy, which does not depend on f."""
        half = self._df(f) / 2
        slope = digamma_over_log(half + 0.5) - digamma_over_log(half) + jnp.log1p(0.5 / half)
        of_one = (half + 0.5) * slope + 0.5 * jnp.log(2 * math.pi * half) - log_gamma_ratio(half - 1.0, 1.5 + 0 * half)
        return of_one + jnp.log(self.dispersion(params, f))

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns f + σt."""
        return f + self.dispersion(params, f) * jax.random.t(key, self._df(f), f.shape, f.dtype)

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the distribution function, by the incomplete beta function of t²/(ν + t²)."""
        nu, t = self._df(f), (y - f) / self.dispersion(params, f)
        # Of the smaller argument, whose complement is exact, so that both centre and tails are accurate.
        central = t**2 < nu
        x = jnp.where(central, t, 0.0) ** 2
        half = jnp.full_like(nu, 0.5)
        inner = 0.5 * betainc(half, nu / 2, x / (nu + x))
        far = jnp.where(central, nu, t**2)
        outer = 0.5 * betainc(nu / 2, half, nu / (nu + far))
        return jnp.where(central, 0.5 + jnp.sign(t) * inner, jnp.where(t > 0, 1.0 - outer, outer))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of both tails."""
        return log_tails_of_student(self._df(f), (y - f) / self.dispersion(params, f))

    def _df(self, f: Array) -> Array:
        return jnp.full(f.shape, self.df, f.dtype)


@record
class Quantile(LearnedScale):
    r"""An asymmetric Laplace likelihood, whose quantile of a given level is f.

    \[ p(y \mid f) = \frac{\tau (1 - \tau)}{\sigma} e^{-\rho_\tau((y - f)/\sigma)}, \qquad
        \rho_\tau(u) = \max(\tau u, (\tau - 1) u) \]

    The negative log density is the pinball loss, and \(P(Y \le f) = \tau\). Log-concave. The Hessian is zero away from
    y = f, so the Fisher information is that of the score.

    Attributes:
        level: τ, between 0 and 1; one half is the median.
        scale: σ in the target's units; None where it is learned, as `params["log_scale"]`, `[outputs]`.
        scale_prior: the prior of a learned σ.

    Raises:
        ValueError: if the level is not between 0 and 1, or the scale is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Quantile
        >>> Quantile(0.9, scale=1.0).cdf({}, jnp.array([[2.0]]), jnp.array([2.0])).round(4).tolist()
        [0.9...]
    """

    level: Number = 0.5
    scale: Number | None = None
    scale_prior: DispersionPrior = LogNormalDispersion()

    support = Real()
    log_concave = True

    def __post_init__(self) -> None:
        require_share("level", self.level, "give 0.9 for the upper tenth")
        super().__post_init__()

    def guess(self, y: Array) -> Array:
        """Returns the mean pinball loss about the quantile of the targets."""
        return jnp.mean(self._pinball(y - jnp.quantile(y, self.level, axis=0)[None]), axis=0)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        scale = self.dispersion(params, f)
        return jnp.log(self._product(f)) - jnp.log(scale) - self._pinball((y - f) / scale)

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\tau (1 - \tau)/\sigma^2\)."""
        return self._product(f) / self.dispersion(params, f) ** 2

    def target_mean(self, params: Params, f: Array) -> Array:
        r"""Returns \(f + \sigma (1 - 2\tau)/(\tau (1 - \tau))\)."""
        return f + self.dispersion(params, f) * (1.0 - 2.0 * self.level) / self._product(f)

    def target_variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma^2 (1 - 2\tau + 2\tau^2)/(\tau (1 - \tau))^2\)."""
        return (self.dispersion(params, f) / self._product(f)) ** 2 * (1.0 - 2.0 * self._product(f))

    def target_entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(1 + \log(\sigma/(\tau (1 - \tau)))\)."""
        return 1.0 + jnp.log(self.dispersion(params, f)) - jnp.log(self._product(f))

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns f and the difference of two exponential draws of the two slopes."""
        up, down = jax.random.exponential(key, (2, *f.shape), f.dtype)
        return f + self.dispersion(params, f) * (up / self.level - down / (1.0 - self.level))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of both tails, each an exponential on its side."""
        u = (y - f) / self.dispersion(params, f)
        left, right = jnp.where(u < 0, u, 0.0), jnp.where(u < 0, 0.0, u)
        below = jnp.log(jnp.asarray(self.level, f.dtype)) + (1.0 - self.level) * left
        above = jnp.log1p(-jnp.asarray(self.level, f.dtype)) - self.level * right
        return jnp.where(u < 0, below, log1mexp(above)), jnp.where(u < 0, log1mexp(below), above)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns the log probability of an interval of one output, from its parts below and above f."""
        scale, level = self.dispersion(params, f)[:, 0], jnp.asarray(self.level, f.dtype)
        a, b = ((jnp.asarray(end).astype(f.dtype) - f[:, 0]) / scale for end in (lower, upper))

        def part(log_share: Array, rate: Array, near: Array, far: Array) -> Array:
            here = far > near
            width = jnp.where(here, far - near, 1.0)
            return jnp.where(here, log_share - rate * near + log1mexp(-rate * width), -jnp.inf)

        left = part(jnp.log(level), 1.0 - level, jnp.maximum(-b, 0.0), jnp.maximum(-a, 0.0))
        right = part(jnp.log1p(-level), level, jnp.maximum(a, 0.0), jnp.maximum(b, 0.0))
        first, second = jnp.maximum(left, right), jnp.minimum(left, right)
        return first + jnp.log1p(jnp.exp(jnp.where(jnp.isfinite(second), second - first, -jnp.inf)))

    def _product(self, f: Array) -> Array:
        return jnp.full(f.shape, self.level * (1.0 - self.level), f.dtype)

    def _pinball(self, u: Array) -> Array:
        return jnp.where(u < 0, (self.level - 1.0) * u, self.level * u)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)


@record
class VonMises(Dispersed):
    r"""Von Mises distributed angles in radians around the direction f. Not log-concave.

    Draws are within π of f, the mean is f, and the variance is the mean square of the angle between y and f. There is
    no distribution function on a circle.

    Attributes:
        concentration: κ, about one over the variance where it is large; None where it is learned, as
            `params["log_concentration"]`, `[outputs]`.
        concentration_prior: the prior of a learned κ.

    Raises:
        ValueError: if the concentration is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import VonMises
        >>> f, y = jnp.zeros((2, 1)), jnp.array([0.5, 0.5 + 2 * jnp.pi])
        >>> VonMises(2.0).log_prob({}, f, y).round(3).tolist()
        [-0.907..., -0.907...]
    """

    concentration: Number | None = None
    concentration_prior: DispersionPrior = LogNormalDispersion()

    support = Circle()
    dispersed = "concentration"

    def guess(self, y: Array) -> Array:
        """Returns R(2 − R²)/(1 − R²) for the length R of the mean direction, clipped to 0.1 to 1000."""
        R = jnp.hypot(jnp.mean(jnp.cos(y), axis=0), jnp.mean(jnp.sin(y), axis=0))
        return jnp.clip(R * (2 - R**2) / jnp.maximum(1 - R**2, 1e-6), 0.1, 1e3)

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(\kappa^2 A'(\kappa)\) for each log κ, \(A = I_1/I_0\)."""
        return jax.tree.map(lambda leaf: _information(jnp.exp(leaf)), params)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\kappa (\cos(y - f) - 1) - \log(2 \pi e^{-\kappa} I_0(\kappa))\)."""
        k = self.dispersion(params, f)
        return -2.0 * k * jnp.sin((y - f) / 2) ** 2 - jnp.log(i0e(k)) - math.log(2 * math.pi)

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\kappa A(\kappa)\)."""
        k = self.dispersion(params, f)
        return k * i1e(k) / i0e(k)

    def target_mean(self, params: Params, f: Array) -> Array:
        return f

    def target_variance(self, params: Params, f: Array) -> Array:
        """Returns the mean square of the angle, by quadrature over twelve deviations or the half circle."""
        k = self.dispersion(params, f)[..., None]
        reach = jnp.minimum(12.0 / jnp.sqrt(k), math.pi)
        angle = reach * (0.5 * (1.0 + jnp.asarray(_NODES, f.dtype))).reshape(*[1] * f.ndim, -1)
        mass = jnp.exp(-2.0 * k * jnp.sin(angle / 2) ** 2) * jnp.asarray(_WEIGHTS, f.dtype).reshape(*[1] * f.ndim, -1)
        return jnp.sum(mass * angle**2, axis=-1) / jnp.sum(mass, axis=-1)

    def target_entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\log(2 \pi I_0(\kappa)) - \kappa A(\kappa)\)."""
        k = self.dispersion(params, f)
        return math.log(2 * math.pi) + jnp.log(i0e(k)) + k * (1.0 - i1e(k) / i0e(k))

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns draws within π of f."""
        from numpyro.distributions import VonMises as Angles

        with lenient():
            return f + Angles(0.0, self.dispersion(params, f)).sample(key).astype(f.dtype)


def _information(k: Array) -> Array:
    # ½ + 1/(4κ) for a large κ, where the difference would cancel.
    large = k > 300.0
    some = jnp.where(large, 1.0, k)
    A = i1e(some) / i0e(some)
    return jnp.where(large, 0.5 + 1 / (4 * k) + 3 / (8 * k**2), some**2 * (1 - A / some - A**2))
