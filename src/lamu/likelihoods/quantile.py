r"""Quantile regression: the pinball loss as a density, the asymmetric Laplace distribution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu.likelihoods.dispersion import DispersionPrior, LogNormalDispersion, Scale, require_positive
from lamu.likelihoods.normal_tails import log1mexp
from lamu.record import record
from lamu.supports import Real
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Quantile"]


@record
class Quantile(Scale):
    r"""A target whose quantile of a given level is f.

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
        if not isinstance(self.level, Tracer) and not 0.0 < self.level < 1.0:
            raise ValueError(f"the level {self.level} is not between 0 and 1; give 0.9 for the upper tenth")
        require_positive("scale", self.scale, "give σ above 0, or leave it out to learn it")

    @property
    def given(self) -> Number | None:
        return self.scale

    @property
    def dispersion_prior(self) -> DispersionPrior:
        return self.scale_prior

    def guess(self, y: Array) -> Array:
        """Returns the mean pinball loss about the quantile of the targets."""
        return jnp.mean(self._pinball(y - jnp.quantile(y, self.level, axis=0)[None]), axis=0)

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns one for each log σ."""
        return jax.tree.map(jnp.ones_like, params)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        scale = self.dispersion(params, f)
        return jnp.log(self._product(f)) - jnp.log(scale) - self._pinball((y - f) / scale)

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \(\tau (1 - \tau)/\sigma^2\)."""
        return self._product(f) / self.dispersion(params, f) ** 2

    def location(self, params: Params, f: Array) -> Array:
        r"""Returns \(f + \sigma (1 - 2\tau)/(\tau (1 - \tau))\)."""
        return f + self.dispersion(params, f) * (1.0 - 2.0 * self.level) / self._product(f)

    def spread(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma^2 (1 - 2\tau + 2\tau^2)/(\tau (1 - \tau))^2\)."""
        return (self.dispersion(params, f) / self._product(f)) ** 2 * (1.0 - 2.0 * self._product(f))

    def surprise(self, params: Params, f: Array) -> Array:
        r"""Returns \(1 + \log(\sigma/(\tau (1 - \tau)))\)."""
        return 1.0 + jnp.log(self.dispersion(params, f)) - jnp.log(self._product(f))

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns f and the difference of two exponential draws of the two slopes."""
        up, down = jax.random.exponential(key, (2, *f.shape), f.dtype)
        return f + self.dispersion(params, f) * (up / self.level - down / (1.0 - self.level))

    def below(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the distribution function."""
        u = (y - f) / self.dispersion(params, f)
        left = self.level * jnp.exp((1.0 - self.level) * jnp.where(u < 0, u, 0.0))
        right = 1.0 - (1.0 - self.level) * jnp.exp(-self.level * jnp.where(u < 0, 0.0, u))
        return jnp.where(u < 0, left, right)

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of both tails, each an exponential on its side."""
        u = (y - f) / self.dispersion(params, f)
        left, right = jnp.where(u < 0, u, 0.0), jnp.where(u < 0, 0.0, u)
        below = jnp.log(jnp.asarray(self.level, f.dtype)) + (1.0 - self.level) * left
        above = jnp.log1p(-jnp.asarray(self.level, f.dtype)) - self.level * right
        return jnp.where(u < 0, below, log1mexp(above)), jnp.where(u < 0, log1mexp(below), above)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns the log probability of an interval of one output, its part below f and its part above."""
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
