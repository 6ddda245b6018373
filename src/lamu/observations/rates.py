"""Observations of an unknown rate: counts (Poisson) and waiting times (exponential)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaln

from lamu.families import Gamma
from lamu.observations.interface import Observation, require_numbers
from lamu.record import record
from lamu.supports import Counts, PositiveReal
from lamu.typing import Array, Params

__all__ = ["Exponential", "Poisson"]


@record
class Poisson(Observation):
    r"""Counts of an unknown rate, \(p(y \mid \theta) = \theta^y e^{-\theta} / y!\), \(t = (y, -1)\).

    Conjugate to `lamu.families.Gamma`; a new count is negative binomial.

    Examples:
        >>> import lamu
        >>> from lamu.families import Gamma
        >>> model = lamu.ConjugateModel(lamu.observations.Poisson(), Gamma(shape=2.0, rate=1.0))
        >>> posterior = lamu.fit(model, {"y": [3, 5, 4]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.mean["network"])  # (2 + 12) / (1 + 3)
        3.5
    """

    family: ClassVar[type] = Gamma
    support = Counts()

    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns y E[log θ] − E[θ] − log y!."""
        return y * statistics[0] - statistics[1] - gammaln(y + 1)

    def distribution(self, params: Params, f: Array) -> Any:
        from numpyro.distributions import Poisson as Distribution

        return Distribution(f[:, 0])

    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns a/b, a/b and a/b²."""
        mean = belief.shape / belief.rate
        return mean, mean, mean / belief.rate

    def cdf_under(self, belief: Any, y: Array) -> Array:
        r"""Returns \(I_p(a, \lfloor y \rfloor + 1)\) with \(p = b/(b + 1)\)."""
        least = jnp.maximum(jnp.floor(y), 0.0) + 1
        shape, p = (jnp.broadcast_to(v, least.shape) for v in (belief.shape, belief.rate / (belief.rate + 1)))
        return jnp.where(y < 0, 0.0, betainc(shape, least, p))

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are counts, `[batch]`."""
        y = require_numbers(y, "Poisson")
        strange = (y != np.floor(y)) | (y < 0)
        if strange.any():
            raise ValueError(f"the target {y[strange][0]!s} is no count; Poisson takes 0, 1, 2, ...")


@record
class Exponential(Observation):
    r"""Waiting times of an unknown rate, \(p(y \mid \theta) = \theta e^{-\theta y}\), \(t = (1, -y)\).

    Conjugate to `lamu.families.Gamma`; a new waiting time has Lomax's distribution, whose mean exists for a > 1 and
    whose variance for a > 2.

    Examples:
        >>> import lamu
        >>> from lamu.families import Gamma
        >>> model = lamu.ConjugateModel(lamu.observations.Exponential(), Gamma(shape=2.0, rate=1.0))
        >>> posterior = lamu.fit(model, {"y": [0.5, 1.5]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.predict(1).mean[0])  # 3 / (4 - 1)
        1.0
    """

    family: ClassVar[type] = Gamma
    support = PositiveReal()

    def log_density(self, statistics: Any, y: Array) -> Array:
        """Returns E[log θ] − y E[θ]."""
        return statistics[0] - y * statistics[1]

    def distribution(self, params: Params, f: Array) -> Any:
        from numpyro.distributions import Exponential as Waits

        return Waits(f[:, 0])

    def moments(self, belief: Any) -> tuple[Array, Array, Array]:
        """Returns b/(a − 1), E[1/θ²] and Var[1/θ]."""
        a, b = belief.shape, belief.rate
        mean = jnp.where(a > 1, b / jnp.maximum(a - 1, jnp.finfo(b.dtype).tiny), jnp.inf)
        square = jnp.where(a > 2, b * mean / jnp.maximum(a - 2, jnp.finfo(b.dtype).tiny), jnp.inf)
        return mean, square, jnp.where(a > 2, square - mean**2, jnp.inf)

    def cdf_under(self, belief: Any, y: Array) -> Array:
        r"""Returns \(1 - (1 + y/b)^{-a}\)."""
        return -jnp.expm1(-belief.shape * jnp.log1p(jnp.maximum(y, 0.0) / belief.rate))

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are positive, `[batch]`."""
        y = require_numbers(y, "Exponential")
        if (y <= 0).any():
            raise ValueError(f"the target {y[y <= 0][0]!s} is no waiting time; Exponential takes positive numbers")
