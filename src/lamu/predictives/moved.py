"""Predictives whose targets are shifted and scaled, each row's by numbers of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu.predictives.interface import Predictive
from lamu.predictives.wrapper import PredictiveWrapper
from lamu.record import record
from lamu.typing import Array, RandomKey

__all__ = ["Moved", "RescaledPredictive"]


class RescaledPredictive(PredictiveWrapper):
    r"""The distribution of \(a + b\, y^*\), with \(y^*\) of a regression and \(b > 0\), all in the mean's shape."""

    # Of a row that is known to lie in a range (`censored`, or `value` and `upper`) the density is a probability, which
    # has no unit: it is the base's.

    @property
    @abstractmethod
    def factors(self) -> Array:
        """The factors b, in the shape of the mean."""

    @abstractmethod
    def forward(self, values: Array) -> Array:
        """Returns a + b y* of values in the shape of the mean."""

    @abstractmethod
    def backward(self, y: Array) -> Array:
        """Returns (y − a)/b of targets in the shape of the mean."""

    @property
    def mean(self) -> Array:
        # A + b E[y*].
        return self.forward(self.base.mean)

    @property
    def variance(self) -> Array:
        """b² Var[y*]."""
        return self.factors**2 * self.base.variance

    @property
    def aleatoric(self) -> Array:
        """That of the base, times b²."""
        return self.factors**2 * self.base.aleatoric

    @property
    def epistemic(self) -> Array:
        """That of the base, times b²."""
        return self.factors**2 * self.base.epistemic

    def log_prob(self, y: Any) -> Array:
        """Returns the log density in nats, `[N]`; of a row that is known to lie in a range the log of a probability."""
        return super().log_prob(y) - self._log_units(y)

    def left_out(self, y: Any) -> tuple[Array, ...]:
        units = self._log_units(y)[None]
        return tuple(group - units for group in super().left_out(y))

    def quantile(self, probability: float) -> Array:
        """Returns the quantile of each target, from the base's."""
        return self.forward(self.base.quantile(probability))

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws of the base, shifted and scaled."""
        return jax.vmap(self.forward)(self.base.sample(key, n, first))

    def target_rows(self, y: Any) -> Any:
        """Returns the targets of the base, the upper ends of ranges with them."""
        if isinstance(y, Mapping):
            return {name: self.target_rows(part) if name in ("value", "upper") else part for name, part in y.items()}
        return self.backward(jnp.asarray(y))

    def _log_units(self, y: Any) -> Array:
        """The logarithm of the Jacobian of each row, `[N]`."""
        units = jnp.log(self.factors)
        units = units.reshape(len(units), -1).sum(axis=1)
        in_range = jnp.zeros(units.shape, bool)
        if isinstance(y, Mapping) and "censored" in y:
            in_range = jnp.asarray(y["censored"]) == 1
        if isinstance(y, Mapping) and "upper" in y:
            in_range = jnp.asarray(y["upper"]) > jnp.asarray(y["value"])
        return jnp.where(in_range, jnp.zeros_like(units), units)


@record
class Moved(RescaledPredictive):
    r"""The distribution of \(a + b\, y^*\), with \(y^*\) of a regression."""

    base: Any  # the predictive of y*
    shift: Array  # a, in the shape of the mean
    scale: Array  # b, positive, in the shape of the mean

    @property
    def factors(self) -> Array:
        # The field `scale`.
        return self.scale

    def forward(self, values: Array) -> Array:
        return self.shift + self.scale * values

    def backward(self, y: Array) -> Array:
        return (y - self.shift) / self.scale

    def of_rows(self, rows: slice, part: Predictive) -> Moved:
        # Returns some rows, with their shifts and scales.
        return Moved(part, self.shift[rows], self.scale[rows])
