"""A predictive at every position of a row, from that of all positions one below the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from lamu.likelihoods import Likelihood, PerPosition
from lamu.predictives.interface import Predictive
from lamu.predictives.wrapper import PredictiveWrapper
from lamu.record import record, static
from lamu.typing import Array, RandomKey

__all__ = ["AtPositions", "at_positions"]


@record
class AtPositions(PredictiveWrapper):
    r"""\(p(y^* \mid x^*) = \prod_p p(y_p^* \mid x^*)\): means and uncertainties are maps, the density one number a row.

    Draws of two positions of a row are independent.

    Attributes:
        base: the prediction of `N * positions` rows, the positions of a row one below the other.
        positions: the shape of the targets of one row.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import AtPositions, ClassProbabilities
        >>> pixels = ClassProbabilities(jnp.log(jnp.full((8, 2), 0.5)), jnp.full(8, 0.5))
        >>> pred = AtPositions(pixels, (2, 2))
        >>> pred.mean.shape, pred.epistemic.shape, pred.log_prob(jnp.zeros((2, 2, 2))).shape
        ((2, 2, 2, 2), (2, 2, 2), (2,))
    """

    base: Predictive
    positions: tuple[int, ...] = static()

    @property
    def mean(self) -> Array:
        """The means, `[N, *positions]`; of classes their probabilities, `[N, *positions, K]`."""
        return self._map(self.base.mean)

    @property
    def variance(self) -> Array:
        """The variances, in the shape of the mean."""
        return self._map(self.base.variance)

    @property
    def aleatoric(self) -> Array:
        """What more data would not remove, `[N, *positions]`."""
        return self._map(self.base.aleatoric)

    @property
    def epistemic(self) -> Array:
        """What is due to the parameters, `[N, *positions]`."""
        return self._map(self.base.epistemic)

    def log_prob(self, y: Any) -> Array:
        """Returns the sum over positions in nats, `[N]`."""
        return super().log_prob(y).reshape(-1, self._count).sum(axis=1)

    def left_out(self, y: Any) -> tuple[Array, ...]:
        return tuple(group.reshape(len(group), -1, self._count).sum(axis=2) for group in super().left_out(y))

    def cdf(self, y: Any) -> Array:
        return self._map(super().cdf(y))

    def quantile(self, probability: float) -> Array:
        """Returns the quantile of every position."""
        return self._map(self.base.quantile(probability))

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws of all targets, `[n, N, *positions]`."""
        drawn = self.base.sample(key, n, first * self._count)
        return drawn.reshape(n, -1, *self.positions, *drawn.shape[2:])

    @property
    def rows_at_once(self) -> int:
        """How many whole rows each chunk has, where no row is cut; else all are one chunk."""
        return 0 if self.base.rows_at_once % self._count else self.base.rows_at_once // self._count

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the prediction of some whole rows after the other, or of all at once."""
        if not self.rows_at_once:
            yield slice(0, None), self
            return
        for rows, part in self.base.chunks():
            yield slice(rows.start // self._count, rows.stop // self._count), AtPositions(part, self.positions)

    def target_rows(self, y: Any) -> Array:
        """Returns the targets of all positions, one below the other."""
        y = jnp.asarray(y)
        return y.reshape(-1, *y.shape[1 + len(self.positions) :])

    @property
    def _count(self) -> int:
        return math.prod(self.positions)

    def _map(self, values: Array) -> Array:
        return values.reshape(-1, *self.positions, *values.shape[1:])


def at_positions(each: Predictive, likelihood: Likelihood) -> Predictive:
    """Returns the prediction of whole rows, from that of the positions of all rows; as it came where rows have one."""
    return AtPositions(each, likelihood.positions) if isinstance(likelihood, PerPosition) else each
