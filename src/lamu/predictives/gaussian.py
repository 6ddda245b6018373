"""A predictive in closed form: a normal distribution for each row."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from lamu.predictives.interface import Predictive
from lamu.predictives.rows import drawn, row_keys
from lamu.record import record
from lamu.supports import Real, Support
from lamu.typing import Array, RandomKey

__all__ = ["GaussianPredictive"]


@record
class GaussianPredictive(Predictive):
    r"""\(y^* \sim N(\mathrm{centre}, \mathrm{covariance})\), the noise included.

    Attributes:
        centre: E[y], `[N]` for one output, `[N, K]` for several.
        covariance: Cov[y] between the outputs of a row, `[N, K, K]`.
        noise: the part of the variances that is noise, in the shape of `centre`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive
        >>> pred = GaussianPredictive(jnp.zeros(1), 4.0 * jnp.ones((1, 1, 1)), jnp.ones(1))
        >>> float(pred.std[0]), float(pred.epistemic[0])
        (2.0, 3.0)
    """

    centre: Array
    covariance: Array
    noise: Array

    @property
    def support(self) -> Support:
        """Real numbers."""
        return Real()

    @property
    def mean(self) -> Array:
        """E[y]."""
        return self.centre

    @property
    def variance(self) -> Array:
        """Var[y] of every output."""
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1).reshape(self.centre.shape)

    @property
    def aleatoric(self) -> Array:
        """The noise variance."""
        return self.noise

    @property
    def epistemic(self) -> Array:
        """The variance of the mean under the belief."""
        return self.variance - self.noise

    def log_prob(self, y: Any) -> Array:
        """Returns the joint log density of a row's outputs in nats, shape `[N]`."""
        rows, outputs = self.covariance.shape[:2]
        away = (jnp.asarray(y).astype(self.centre.dtype) - self.centre).reshape(rows, outputs)
        root = jnp.linalg.cholesky(self.covariance)
        white = jax.vmap(lambda r, a: solve_triangular(r, a, lower=True))(root, away)
        determinant = jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        return -jnp.sum(white**2, axis=-1) / 2 - determinant - outputs / 2 * math.log(2 * math.pi)

    def cdf(self, y: Any) -> Array:
        """Returns P(Y ≤ y) of every output."""
        return jax.scipy.stats.norm.cdf(y, self.centre, self.std)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws, correlated between a row's outputs and independent between rows."""
        rows, outputs = self.covariance.shape[:2]
        root = jnp.linalg.cholesky(self.covariance)
        normal = lambda key: jax.random.normal(key, (outputs,), self.centre.dtype)

        def draw(key: RandomKey) -> Array:
            away = jnp.einsum("nkl,nl->nk", root, jax.vmap(normal)(row_keys(key, rows, first)))
            return self.centre + away.reshape(self.centre.shape)

        return drawn(draw, jax.random.split(key, n))
