"""Counts of events at a rate."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Counts, Positive
from lamu.record import record
from lamu.typing import Array

__all__ = ["Poisson", "PoissonFactor"]


def Poisson(rate: Any) -> PoissonFactor:
    r"""Returns the factor of counts, \(x\, E\log r - E r - \log x!\), which are observed.

    Args:
        rate: r: positive numbers, or variables with a `Gamma` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Winn & Bishop (2005), section 2.3.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Poisson(3.0).shape
        ()
    """
    return PoissonFactor(argument(rate, Positive, "the rate of Poisson"))


@record
class PoissonFactor(Factor):
    """Counts. Use `Poisson`."""

    rate: Any  # r

    kind = Counts

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"rate": self.rate}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.rate.shape

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        rate = self.rate.of_kind(Positive, at)
        count = jnp.asarray(x.value, jnp.result_type(rate.log))
        return summed(count * rate.log - rate.value - gammaln(count + 1.0), observed)

    def predicted(self, at: Environment) -> tuple[Array, Array]:
        # Returns the rate twice.
        rate = self.rate.of_kind(Positive, at).value
        return rate, rate

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for anything but whole numbers from zero.
        bad = observed & ((value < 0) | (value != np.floor(value)))
        if bad.any():
            raise ValueError(f"{name} is {value[bad][0]:g} in a row; counts are whole numbers from 0")
