"""A predictive in closed form: a normal distribution for each row, joint or independent between its outputs."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from lamu.likelihoods import Likelihood
from lamu.predictives.chunking import draw_in_chunks, row_keys
from lamu.predictives.interface import Predictive
from lamu.record import record
from lamu.supports import Real, Support
from lamu.typing import Array, Params, RandomKey

__all__ = ["GaussianPredictive"]


@record
class GaussianPredictive(Predictive):
    r"""\(y^* \sim N(\mathrm{centre}, \mathrm{covariance})\), the noise included.

    Attributes:
        centre: E[y], `[N]` for one output, `[N, K]` for several.
        covariance: Cov[y] between the outputs of a row, `[N, K, K]`; where they are independent their variances, in
            the shape of `centre`.
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

    @classmethod
    def independent(
        cls, likelihood: Likelihood, dispersion: Params, mean: Array, variance: Array
    ) -> GaussianPredictive:
        """Returns the predictive of a quadratic likelihood for independent normal outputs.

        Args:
            likelihood: p(y | f), whose mean is affine in f, output by output.
            dispersion: its parameters.
            mean: `[N, K]`.
            variance: `[N, K]`.
        """
        centre, slope = jax.jvp(lambda f: likelihood.mean(dispersion, f), (mean,), (jnp.ones_like(mean),))
        noise = likelihood.variance(dispersion, mean)
        return cls(centre, slope**2 * variance.reshape(centre.shape) + noise, noise)

    @property
    def support(self) -> Support:
        """Real numbers."""
        return Real()

    @property
    def mean(self) -> Array:
        return self.centre

    @property
    def variance(self) -> Array:
        if self._is_independent:
            return self.covariance
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1).reshape(self.centre.shape)

    @property
    def aleatoric(self) -> Array:
        return self.noise

    @property
    def epistemic(self) -> Array:
        """The variance of the mean under the belief."""
        return self.variance - self.noise

    def log_prob(self, y: Any) -> Array:
        """Returns the joint log density of a row's outputs in nats, shape `[N]`."""
        if self._is_independent:
            away = (jnp.asarray(y).astype(self.centre.dtype).reshape(self.centre.shape) - self.centre) ** 2
            each = -(away / self.covariance + jnp.log(self.covariance) + math.log(2 * math.pi)) / 2
            return jnp.sum(each.reshape(each.shape[0], -1), axis=1)
        rows, outputs = self.covariance.shape[:2]
        away = (jnp.asarray(y).astype(self.centre.dtype) - self.centre).reshape(rows, outputs)
        root = jnp.linalg.cholesky(self.covariance)
        white = jax.vmap(lambda r, a: solve_triangular(r, a, lower=True))(root, away)
        determinant = jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        return -jnp.sum(white**2, axis=-1) / 2 - determinant - outputs / 2 * math.log(2 * math.pi)

    def cdf(self, y: Any) -> Array:
        return jax.scipy.stats.norm.cdf(y, self.centre, self.std)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws, correlated between a row's outputs and independent between rows."""
        rows, shape = (
            self.centre.shape[0],
            self.centre.shape[1:] if self._is_independent else self.covariance.shape[1:2],
        )
        normal = lambda key: jax.random.normal(key, shape, self.centre.dtype)
        root = self.std if self._is_independent else jnp.linalg.cholesky(self.covariance)

        def draw(key: RandomKey) -> Array:
            z = jax.vmap(normal)(row_keys(key, rows, first))
            away = root * z if self._is_independent else jnp.einsum("nkl,nl->nk", root, z)
            return self.centre + away.reshape(self.centre.shape)

        return draw_in_chunks(draw, jax.random.split(key, n))

    @property
    def _is_independent(self) -> bool:
        return self.covariance.ndim == self.centre.ndim
