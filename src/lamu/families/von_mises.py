"""Beliefs about angles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax.scipy.special import i0e

from lamu.dtype_policy import lenient
from lamu.families.exponential import Domain, Finite, Formulas, Positive, TextbookFamily
from lamu.record import record
from lamu.typing import Array, Params, RandomKey, Statistics

__all__ = ["VonMises"]


@record
class VonMises(TextbookFamily):
    r"""An angle in \((-\pi, \pi]\): \(T = (\cos\theta, \sin\theta)\), \(\lambda = \kappa\,(\cos m, \sin m)\).

    \[ A = \log 2\pi I_0(\lVert\lambda\rVert), \qquad \mu = \frac{I_1(\kappa)}{I_0(\kappa)}\,(\cos m, \sin m) \]

    The inverse from μ to κ has no formula and uses Newton's method.

    Attributes:
        location: m, an angle, up to full turns.
        concentration: κ, positive.

    Examples:
        >>> from lamu.families import VonMises
        >>> round(float(VonMises(0.5, 2.0).expectation().family().concentration), 4)
        2.0
    """

    location: Params
    concentration: Params

    domains: ClassVar[Mapping[str, Domain]] = {"location": Finite(), "concentration": Positive()}
    events: ClassVar[tuple[int, ...]] = (0, 0)
    unbounded: ClassVar[bool] = True

    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda m, kappa: (kappa * jnp.cos(m), kappa * jnp.sin(m)),
        textbook=lambda cosine, sine: (jnp.arctan2(sine, cosine), _length(cosine, sine)),
        partition=lambda cosine, sine: _log_normaliser(_length(cosine, sine)),
        statistics=lambda angle: (jnp.cos(angle), jnp.sin(angle)),
        mean=lambda m, kappa: jnp.arctan2(jnp.sin(m), jnp.cos(m)),  # the mean direction, in (−π, π]
        draw=lambda key, m, kappa: _draw(key, m, kappa),
    )

    @classmethod
    def guess(cls, values: Statistics) -> VonMises:
        """Returns the belief with the usual approximation to κ."""
        length = _length(*values)
        room = jnp.maximum(1.0 - length**2, jnp.finfo(length.dtype).eps)
        return cls(jnp.arctan2(values[1], values[0]), length * (2.0 - length**2) / room)


def _draw(key: RandomKey, m: Array, kappa: Array) -> Array:
    """Returns angles in (−π, π], by Best and Fisher's rejection."""
    from numpyro.distributions import VonMises as Angle

    with lenient():
        return Angle(m, kappa).sample(key).astype(m.dtype)


def _log_normaliser(kappa: Array) -> Array:
    """Returns log 2π I₀(κ)."""
    return kappa + jnp.log(2.0 * jnp.pi * i0e(kappa))


def _length(cosine: Array, sine: Array) -> Array:
    """Returns the length of the vector, bounded away from zero, where it has no derivative."""
    return jnp.sqrt(jnp.maximum(cosine**2 + sine**2, jnp.finfo(cosine.dtype).tiny))
