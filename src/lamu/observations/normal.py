"""Observations of normal numbers: an unknown mean, a mean and a precision, and vectors of both."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import betainc
from jax.scipy.stats import norm

from lamu.families import Gaussian, NormalGamma, NormalWishart
from lamu.observations.interface import Observation, require_numbers
from lamu.record import record
from lamu.typing import Array, Number, Params

__all__ = ["MultivariateNormal", "Normal", "NormalMean"]

_LOG_2PI = math.log(2 * math.pi)


@record
class NormalMean(Observation):
    r"""Normal numbers of an unknown mean and known width, \(p(y \mid \theta) = N(y \mid \theta, s^2)\).

    \[ t = (y, -\tfrac12)/s^2 \]

    Conjugate to `lamu.families.Gaussian` about one number; a new target is normal.

    Attributes:
        scale: s.

    Raises:
        ValueError: if it is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.families import Gaussian, NormalGamma, NormalWishart
        >>> from lamu.operators import Scalar
        >>> prior = Gaussian(jnp.zeros(()), Scalar(1.0))
        >>> model = lamu.ConjugateModel(lamu.observations.NormalMean(scale=1.0), prior)
        >>> posterior = lamu.fit(model, {"y": [1.0, 2.0, 3.0]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.mean["network"])
        1.5
    """

    scale: Number = 1.0

    family: ClassVar[type] = Gaussian

    def __post_init__(self) -> None:
        if not isinstance(self.scale, Tracer) and not 0.0 < self.scale < float("inf"):
            raise ValueError(f"the scale {self.scale} is not positive and finite; it is a standard deviation")

    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns the quadratic with E[θ] and E[θ²] in it."""
        s = jnp.asarray(self.scale, y.dtype)
        first, second = statistics
        (square,) = jax.tree.leaves(second)
        away = y**2 - 2 * y * first + square.reshape(())
        return -away / (2 * s**2) - jnp.log(s) - _LOG_2PI / 2

    def distribution(self, params: Params, f: Array) -> Any:
        from numpyro.distributions import Normal

        return Normal(f[:, 0], jnp.full(f.shape[:1], self.scale, f.dtype))

    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns m, s² and 1/S."""
        variance = belief.precision.variance(belief.mean)
        return belief.mean, jnp.full((), self.scale, variance.dtype) ** 2, variance

    def cdf_under(self, belief: Any, y: Array) -> Array:
        """Returns the normal distribution function."""
        mean, noise, spread = self.moments(belief)
        return norm.cdf((y - mean) / jnp.sqrt(noise + spread))

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are `[batch]`."""
        require_numbers(y, "NormalMean")


@record
class Normal(Observation):
    r"""Normal numbers of unknown mean x and precision τ, \(p(y \mid \theta) = N(y \mid x, 1/\tau)\).

    \[ t = (\tfrac12,\; -\tfrac12 y^2,\; y,\; -\tfrac12) \quad\text{beside}\quad
       T = (\log\tau, \tau, \tau x, \tau x^2) \]

    Conjugate to `lamu.families.NormalGamma`; a new target has Student's distribution with 2a degrees of freedom, whose
    variance exists for a > 1.

    Examples:
        >>> import lamu
        >>> prior = lamu.families.NormalGamma(location=0.0, count=1.0, shape=1.0, rate=1.0)
        >>> model = lamu.ConjugateModel(lamu.observations.Normal(), prior)
        >>> posterior = lamu.fit(model, {"y": [1.0, 2.0, 3.0]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.belief.factors["network"].location)
        1.5
    """

    family: ClassVar[type] = NormalGamma

    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns the quadratic in y with the expected statistics in it."""
        log, tau, first, second = statistics
        return (log - tau * y**2 + 2 * first * y - second - _LOG_2PI) / 2

    def distribution(self, params: Params, f: Array) -> Any:
        from numpyro.distributions import Normal as Numbers

        return Numbers(f[:, 0], 1 / jnp.sqrt(f[:, 1]))

    def outputs(self, y: Any) -> int:
        """Returns two: mean and precision."""
        return 2

    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns m, b/(a − 1) and that over κ."""
        noise = _over(belief.rate, belief.shape - 1)
        return belief.location, noise, noise / belief.count

    def cdf_under(self, belief: Any, y: Array) -> Array:
        """Returns Student's distribution function."""
        a, b, count = belief.shape, belief.rate, belief.count
        return student_cdf((y - belief.location) / jnp.sqrt(b * (count + 1) / (a * count)), 2 * a)

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are `[batch]`."""
        require_numbers(y, "Normal")


@record
class MultivariateNormal(Observation):
    r"""Normal vectors of unknown mean x and precision matrix Λ, \(p(y \mid \theta) = N(y \mid x, \Lambda^{-1})\).

    \[ t = (\tfrac12,\; -\tfrac12 y y^\top,\; y,\; -\tfrac12) \quad\text{beside}\quad
       T = (\log\det\Lambda, \Lambda, \Lambda x, x^\top \Lambda x) \]

    Conjugate to `lamu.families.NormalWishart`; a new target has the multivariate Student distribution with
    \(\nu - p + 1\) degrees of freedom, whose covariance exists for more than two.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> prior = lamu.families.NormalWishart(jnp.zeros(2), 1.0, 4.0, jnp.eye(2))
        >>> model = lamu.ConjugateModel(lamu.observations.MultivariateNormal(), prior)
        >>> y = jnp.array([[1.0, 0.0], [2.0, 1.0], [3.0, -1.0]])
        >>> posterior = lamu.fit(model, {"y": y}, lamu.algorithms.conjugate()).posterior
        >>> posterior.belief.factors["network"].location.tolist()
        [1.5, 0.0]
    """

    family: ClassVar[type] = NormalWishart

    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns the quadratic in y with the expected statistics in it."""
        log, precision, first, second = statistics
        return (log - y @ precision @ y + 2 * first @ y - second - y.size * _LOG_2PI) / 2

    def distribution(self, params: Params, f: Array) -> Any:
        from numpyro.distributions import MultivariateNormal as Vectors

        size = (math.isqrt(1 + 4 * f.shape[1]) - 1) // 2
        return Vectors(f[:, :size], precision_matrix=f[:, size:].reshape(-1, size, size))

    def outputs(self, y: Any) -> int:
        """Returns p + p²: the mean and the precision matrix."""
        return jnp.shape(y)[-1] * (jnp.shape(y)[-1] + 1)

    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns m, the diagonal of V⁻¹ over ν − p − 1, and that over κ; `[p]` each."""
        scatter = jnp.diagonal(belief.scale_inverse)
        noise = _over(scatter, belief.degrees - scatter.size - 1)
        return belief.location, noise, noise / belief.count

    def cdf_under(self, belief: Any, y: Array) -> Array:
        """Returns Student's distribution function, output by output."""
        scatter, count = jnp.diagonal(belief.scale_inverse), belief.count
        degrees = belief.degrees - scatter.size + 1
        scale = jnp.sqrt(scatter * (count + 1) / (count * degrees))
        away = y - jnp.broadcast_to(belief.location, y.shape)
        return student_cdf(away / jnp.broadcast_to(scale, y.shape), degrees)

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are `[batch, outputs]`."""
        require_numbers(y, "MultivariateNormal", dimensions=2)


def _over(numerator: Array, denominator: Array) -> Array:
    """Returns the quotient, infinite where the denominator is not positive: the moment does not exist."""
    safe = jnp.where(denominator > 0, denominator, jnp.ones_like(denominator))
    return jnp.where(denominator > 0, numerator / safe, jnp.inf)


def student_cdf(z: Array, degrees: Array) -> Array:
    """Returns the distribution function of Student's t with so many degrees of freedom."""
    degrees = jnp.broadcast_to(degrees, z.shape)
    tail = betainc(degrees / 2, jnp.full_like(z, 0.5), degrees / (degrees + z**2)) / 2
    return jnp.where(z > 0, 1 - tail, tail)
