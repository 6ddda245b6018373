"""A predictive whose targets are shifted and scaled, each row's by numbers of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from lamu.predictives.interface import Predictive
from lamu.record import record
from lamu.supports import Support
from lamu.typing import Array, RandomKey

__all__ = ["Moved"]


@record
class Moved(Predictive):
    r"""The distribution of \(a + b\, y^*\), with \(y^*\) of a regression.

    Attributes:
        base: the predictive of y*.
        shift: a, in the shape of the mean.
        scale: b, positive, in the shape of the mean.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive
        >>> from lamu.predictives.moved import Moved
        >>> base = GaussianPredictive(jnp.ones(1), jnp.ones((1, 1, 1)), jnp.ones(1))
        >>> pred = Moved(base, jnp.ones(1), jnp.full(1, 2.0))
        >>> pred.mean.tolist(), pred.variance.tolist()
        ([3.0], [4.0])
    """

    base: Any
    shift: Any
    scale: Any

    @property
    def support(self) -> Support:
        """The base's support."""
        return self.base.support

    @property
    def deferred(self) -> bool:
        """Whether the base is computed some rows at a time."""
        return bool(self.base.deferred)

    @property
    def mean(self) -> Array:
        """A + b E[y*]."""
        return self.shift + self.scale * self.base.mean

    @property
    def variance(self) -> Array:
        """b² Var[y*]."""
        return self.scale**2 * self.base.variance

    @property
    def aleatoric(self) -> Array:
        """That of the base, times b²."""
        return self.scale**2 * self.base.aleatoric

    @property
    def epistemic(self) -> Array:
        """That of the base, times b²."""
        return self.scale**2 * self.base.epistemic

    def log_prob(self, y: Any) -> Array:
        """Returns the log density in nats, `[N]`; of a censored target the log of a probability."""
        unit = jnp.log(self.scale)
        if isinstance(y, Mapping):
            unit = jnp.where(jnp.asarray(y["censored"]) == 1, jnp.zeros_like(unit), unit)
        return self.base.log_prob(self._before(y)) - unit.reshape(len(unit), -1).sum(axis=1)

    def left_out(self, y: Any) -> tuple[Array, ...]:
        """Returns `log_prob(y)` without each of the base's draws."""
        unit = self.base.log_prob(self._before(y)) - self.log_prob(y)
        return tuple(group - unit[None] for group in self.base.left_out(self._before(y)))

    def cdf(self, y: Any) -> Array:
        """Returns P(a + b Y* ≤ y)."""
        return self.base.cdf(self._before(y))

    def quantile(self, probability: float) -> Array:
        """Returns the quantile of each target, from the base's."""
        return self.shift + self.scale * self.base.quantile(probability)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws of the base, shifted and scaled."""
        return self.shift[None] + self.scale[None] * self.base.sample(key, n, first)

    def _before(self, y: Any) -> Any:
        if isinstance(y, Mapping):
            return {**y, "value": self._before(y["value"])}
        return (jnp.asarray(y) - self.shift) / self.scale
