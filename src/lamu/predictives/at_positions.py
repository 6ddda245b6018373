"""A predictive at every position of a row, from that of all positions one below the other."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from lamu.likelihoods import Likelihood, PerPosition
from lamu.predictives.interface import Predictive
from lamu.record import record, static
from lamu.supports import Support
from lamu.typing import Array, RandomKey

__all__ = ["AtPositions", "at_positions"]


@record
class AtPositions(Predictive):
    r"""\(p(y^* \mid x^*) = \prod_p p(y_p^* \mid x^*)\): means and uncertainties are maps, the density one number a row.

    Draws of two positions of a row are independent.

    Attributes:
        each: the prediction of `N * positions` rows, the positions of a row one below the other.
        positions: the shape of the targets of one row.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import AtPositions, ClassProbabilities
        >>> pixels = ClassProbabilities(jnp.log(jnp.full((8, 2), 0.5)), jnp.full(8, 0.5))
        >>> pred = AtPositions(pixels, (2, 2))
        >>> pred.mean.shape, pred.epistemic.shape, pred.log_prob(jnp.zeros((2, 2, 2))).shape
        ((2, 2, 2, 2), (2, 2, 2), (2,))
    """

    each: Predictive
    positions: tuple[int, ...] = static()

    @property
    def support(self) -> Support:
        """That of every position."""
        return self.each.support

    @property
    def mean(self) -> Array:
        """The means, `[N, *positions]`; of classes their probabilities, `[N, *positions, K]`."""
        return self._map(self.each.mean)

    @property
    def variance(self) -> Array:
        """The variances, in the shape of the mean."""
        return self._map(self.each.variance)

    @property
    def aleatoric(self) -> Array:
        """What more data would not remove, `[N, *positions]`."""
        return self._map(self.each.aleatoric)

    @property
    def epistemic(self) -> Array:
        """What is due to the parameters, `[N, *positions]`."""
        return self._map(self.each.epistemic)

    def log_prob(self, y: Any) -> Array:
        """Returns the sum over positions in nats, `[N]`."""
        y = jnp.asarray(y)
        each = self.each.log_prob(y.reshape(-1, *y.shape[1 + len(self.positions) :]))
        return jnp.sum(each.reshape(y.shape[0], -1), axis=1)

    def cdf(self, y: Any) -> Array:
        """Returns P(Y ≤ y) of every position."""
        y = jnp.asarray(y)
        return self._map(self.each.cdf(y.reshape(-1, *y.shape[1 + len(self.positions) :])))

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws of all targets, `[n, N, *positions]`."""
        drawn = self.each.sample(key, n, first * math.prod(self.positions))
        return drawn.reshape(n, -1, *self.positions, *drawn.shape[2:])

    def _map(self, values: Array) -> Array:
        return values.reshape(-1, *self.positions, *values.shape[1:])


def at_positions(each: Predictive, likelihood: Likelihood) -> Predictive:
    """Returns the prediction of whole rows, from that of the positions of all rows; as it came where rows have one.

    Args:
        each: the prediction of every position.
        likelihood: of the rows.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical, PerPosition
        >>> from lamu.predictives import ClassProbabilities
        >>> from lamu.predictives.at_positions import at_positions
        >>> pixels = ClassProbabilities(jnp.log(jnp.full((8, 2), 0.5)), jnp.full(8, 0.5))
        >>> at_positions(pixels, PerPosition(Categorical(2), (4,))).mean.shape
        (2, 4, 2)
    """
    return AtPositions(each, likelihood.positions) if isinstance(likelihood, PerPosition) else each
