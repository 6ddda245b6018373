"""Beliefs about angles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import i0e

from lamu.dtype_policy import lenient
from lamu.families.exponential import Domain, ExponentialFamily, Positive, Real, sample_leaves, total
from lamu.record import record
from lamu.typing import Array, Params, RandomKey, Statistics

__all__ = ["VonMises"]


@record
class VonMises(ExponentialFamily):
    r"""An angle in \((-\pi, \pi]\): \(T = (\cos\theta, \sin\theta)\), \(\lambda = \kappa\,(\cos m, \sin m)\).

    \[ A = \log 2\pi I_0(\lVert\lambda\rVert), \qquad \mu = \frac{I_1(\kappa)}{I_0(\kappa)}\,(\cos m, \sin m) \]

    No formula leads from μ to κ; Newton's method does.

    Attributes:
        location: m, an angle, determined up to full turns.
        concentration: κ, positive.

    Examples:
        >>> from lamu.families import VonMises
        >>> round(float(VonMises(0.5, 2.0).expectation().family().concentration), 4)
        2.0
    """

    location: Params
    concentration: Params

    domains: ClassVar[Mapping[str, Domain]] = {"location": Real(), "concentration": Positive()}
    events: ClassVar[tuple[int, ...]] = (0, 0)
    unbounded: ClassVar[bool] = True

    def to_natural(self) -> Any:
        """Returns κ (cos m, sin m)."""
        along = lambda part: jax.tree.map(lambda m, kappa: kappa * part(m), self.location, self.concentration)
        return along(jnp.cos), along(jnp.sin)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> VonMises:
        """Returns the belief with this vector's angle and length."""
        cosine, sine = values
        return cls(jax.tree.map(jnp.arctan2, sine, cosine), jax.tree.map(_length, cosine, sine))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns log 2π I₀(κ)."""

        def leaf(cosine: Array, sine: Array) -> Array:
            kappa = _length(cosine, sine)
            return kappa + jnp.log(2.0 * jnp.pi * i0e(kappa))

        return total(leaf, *values)

    @classmethod
    def guess(cls, values: Any) -> VonMises:
        """Returns the belief with the usual approximation to κ."""
        length = _length(*values)
        room = jnp.maximum(1.0 - length**2, jnp.finfo(length.dtype).eps)
        return cls(jnp.arctan2(values[1], values[0]), length * (2.0 - length**2) / room)

    def statistics(self, theta: Params) -> Statistics:
        """Returns the cosine and the sine of θ."""
        return jax.tree.map(jnp.cos, theta), jax.tree.map(jnp.sin, theta)

    @property
    def mean(self) -> Params:
        """The mean direction, the angle of E (cos θ, sin θ), in (−π, π]."""
        return jax.tree.map(lambda m: jnp.arctan2(jnp.sin(m), jnp.cos(m)), self.location)

    def sample(self, key: RandomKey) -> Params:
        """Returns angles in (−π, π], by Best and Fisher's rejection."""
        from numpyro.distributions import VonMises as Angle

        def draw(k: RandomKey, m: Array, kappa: Array) -> Array:
            with lenient():
                return Angle(m, kappa).sample(k).astype(m.dtype)

        return sample_leaves(key, draw, self.location, self.concentration)


def _length(cosine: Array, sine: Array) -> Array:
    """Returns the length of the vector, kept off zero, where it has no derivative."""
    return jnp.sqrt(jnp.maximum(cosine**2 + sine**2, jnp.finfo(cosine.dtype).tiny))
