"""Positive numbers: rates and precisions, and variances."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from lamu.graphs.expressions import Environment, Expression, Variable
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Positive, Reciprocal
from lamu.record import record
from lamu.typing import Array

__all__ = ["Gamma", "GammaFactor", "InverseGamma", "InverseGammaFactor"]


def Gamma(shape: Any, rate: Any) -> GammaFactor:
    r"""Returns the factor of positive numbers, \(a E\log b - \log\Gamma(a) + (a-1) E\log x - E b\, E x\).

    Args:
        shape: a, known positive numbers.
        rate: b: positive numbers, or variables with a `Gamma` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Winn & Bishop (2005), section 2.3.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Gamma(2.0, 1.0).shape
        ()
    """
    return GammaFactor(_known(shape), argument(rate, Positive, "the rate of Gamma"))


def InverseGamma(shape: Any, scale: Any) -> InverseGammaFactor:
    r"""Returns the factor of variances, \(a E\log b - \log\Gamma(a) - (a+1) E\log x - E b\, E x^{-1}\).

    Args:
        shape: a, known positive numbers.
        scale: b: positive numbers, or variables with a `Gamma` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Wand, Ormerod, Padoan & Frühwirth (2011), section 2.

    Examples:
        >>> from lamu import graphs
        >>> graphs.InverseGamma(2.0, 1.0).shape
        ()
    """
    return InverseGammaFactor(_known(shape), argument(scale, Positive, "the scale of InverseGamma"))


@record
class GammaFactor(Factor):
    """Positive numbers. Use `Gamma`."""

    a: Any  # the shape
    rate: Any  # b

    kind = Positive

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"rate": self.rate}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return None if self.rate.shape is None else np.broadcast_shapes(jnp.shape(self.a), self.rate.shape)

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        b, a = self.rate.of_kind(Positive, at), self.a
        return summed(a * b.log - gammaln(a) + (a - 1.0) * x.log - b.value * x.value, observed)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for numbers that are not positive.
        _require_positive(name, value, observed)


@record
class InverseGammaFactor(Factor):
    """Variances. Use `InverseGamma`."""

    a: Any  # the shape
    scale: Any  # b

    kind = Reciprocal

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"scale": self.scale}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return None if self.scale.shape is None else np.broadcast_shapes(jnp.shape(self.a), self.scale.shape)

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        b, a = self.scale.of_kind(Positive, at), self.a
        return summed(a * b.log - gammaln(a) - (a + 1.0) * x.log - b.value * x.inverse, observed)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for numbers that are not positive.
        _require_positive(name, value, observed)


def _known(shape: Any) -> Array:
    if isinstance(shape, Expression):
        name = shape.name if isinstance(shape, Variable) else ", ".join(sorted(shape.names))
        raise TypeError(f"the shape is the variable {name!r}, and a closed form needs a known one; give numbers")
    if not np.all(np.asarray(shape) > 0):
        raise ValueError(f"the shape is {np.min(np.asarray(shape)):g}; give positive numbers")
    return jnp.asarray(shape, jnp.result_type(float))


def _require_positive(name: str, value: np.ndarray, observed: np.ndarray) -> None:
    bad = observed & (value <= 0)
    if bad.any():
        raise ValueError(f"{name} is {value[bad][0]:g} in a row; give positive numbers")
