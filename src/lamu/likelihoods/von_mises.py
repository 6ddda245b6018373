r"""Angles: \(p(y \mid f) \propto e^{\kappa \cos(y - f)}\)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e, i1e

from lamu.dtype_policy import lenient
from lamu.likelihoods.dispersion import Dispersed, DispersionPrior, LogNormalDispersion, require_positive
from lamu.record import record
from lamu.supports import Circle
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["VonMises"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)


@record
class VonMises(Dispersed):
    r"""Von Mises distributed angles in radians around the direction f. Not log-concave.

    Draws lie within π of f, the mean is f, and the variance is the mean square of the angle between y and f. There is
    no distribution function, as a circle has no first point.

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
    leaf = "log_concentration"

    def __post_init__(self) -> None:
        require_positive("concentration", self.concentration, "give κ above 0, or leave it out to learn it")

    @property
    def given(self) -> Number | None:
        return self.concentration

    @property
    def dispersion_prior(self) -> DispersionPrior:
        return self.concentration_prior

    def guess(self, y: Array) -> Array:
        """Returns κ of the length R of the mean direction, R(2 − R²)/(1 − R²), from 0.1 to 1000."""
        R = jnp.hypot(jnp.mean(jnp.cos(y), axis=0), jnp.mean(jnp.sin(y), axis=0))
        return jnp.clip(R * (2 - R**2) / jnp.maximum(1 - R**2, 1e-6), 0.1, 1e3)

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(\kappa^2 A'(\kappa)\) for each log κ, \(A = I_1/I_0\)."""
        return jax.tree.map(lambda leaf: _information(jnp.exp(leaf)), params)

    def density(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\kappa (\cos(y - f) - 1) - \log(2 \pi e^{-\kappa} I_0(\kappa))\)."""
        k = self.dispersion(params, f)
        return -2.0 * k * jnp.sin((y - f) / 2) ** 2 - jnp.log(i0e(k)) - math.log(2 * math.pi)

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \(\kappa A(\kappa)\)."""
        k = self.dispersion(params, f)
        return k * i1e(k) / i0e(k)

    def location(self, params: Params, f: Array) -> Array:
        return f

    def spread(self, params: Params, f: Array) -> Array:
        """Returns the mean square of the angle, by quadrature over twelve deviations or the half circle."""
        k = self.dispersion(params, f)[..., None]
        reach = jnp.minimum(12.0 / jnp.sqrt(k), math.pi)
        angle = reach * (0.5 * (1.0 + jnp.asarray(_NODES, f.dtype))).reshape(*[1] * f.ndim, -1)
        mass = jnp.exp(-2.0 * k * jnp.sin(angle / 2) ** 2) * jnp.asarray(_WEIGHTS, f.dtype).reshape(*[1] * f.ndim, -1)
        return jnp.sum(mass * angle**2, axis=-1) / jnp.sum(mass, axis=-1)

    def surprise(self, params: Params, f: Array) -> Array:
        r"""Returns \(\log(2 \pi I_0(\kappa)) - \kappa A(\kappa)\)."""
        k = self.dispersion(params, f)
        return math.log(2 * math.pi) + jnp.log(i0e(k)) + k * (1.0 - i1e(k) / i0e(k))

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns draws within π of f."""
        from numpyro.distributions import VonMises as Angles

        with lenient():
            return f + Angles(0.0, self.dispersion(params, f)).sample(key).astype(f.dtype)


def _information(k: Array) -> Array:
    # ½ + 1/(4κ) for a large κ, where the difference would lose it.
    large = k > 300.0
    some = jnp.where(large, 1.0, k)
    A = i1e(some) / i0e(some)
    return jnp.where(large, 0.5 + 1 / (4 * k) + 3 / (8 * k**2), some**2 * (1 - A / some - A**2))
