"""A predictive in closed form whose outputs are independent: a normal distribution for each number."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.likelihoods import Likelihood
from lamu.predictives.interface import Predictive
from lamu.predictives.rows import drawn, row_keys
from lamu.record import record
from lamu.supports import Real, Support
from lamu.typing import Array, Params, RandomKey

__all__ = ["IndependentGaussian"]


@record
class IndependentGaussian(Predictive):
    r"""\(y^*_k \sim N(\mathrm{centre}_k, \mathrm{spread}_k)\), each output by itself, the noise included.

    Attributes:
        centre: E[y], `[N, K]`, or `[N]` for one output.
        spread: Var[y], in the same shape.
        noise: the part of the variances that is noise, in the same shape.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import IndependentGaussian
        >>> pred = IndependentGaussian(jnp.zeros((1, 2)), 4.0 * jnp.ones((1, 2)), jnp.ones((1, 2)))
        >>> pred.std.tolist(), pred.epistemic.tolist()
        ([[2.0, 2.0]], [[3.0, 3.0]])
    """

    centre: Array
    spread: Array
    noise: Array

    @classmethod
    def of(cls, likelihood: Likelihood, dispersion: Params, mean: Array, variance: Array) -> IndependentGaussian:
        """Returns the predictive of a quadratic likelihood for independent normal outputs.

        Args:
            likelihood: p(y | f), whose mean is affine in f, output by output.
            dispersion: its parameters.
            mean: `[N, K]`.
            variance: `[N, K]`.
        """
        ones = jnp.ones_like(mean)
        centre, slope = jax.jvp(lambda f: likelihood.mean(dispersion, f), (mean,), (ones,))
        noise = likelihood.variance(dispersion, mean)
        return cls(centre, slope**2 * variance.reshape(centre.shape) + noise, noise)

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
        return self.spread

    @property
    def aleatoric(self) -> Array:
        """The noise variance."""
        return self.noise

    @property
    def epistemic(self) -> Array:
        """The variance of the mean under the belief."""
        return self.spread - self.noise

    def log_prob(self, y: Any) -> Array:
        """Returns the sum over outputs of their log densities in nats, shape `[N]`."""
        away = (jnp.asarray(y).astype(self.centre.dtype).reshape(self.centre.shape) - self.centre) ** 2 / self.spread
        each = -(away + jnp.log(self.spread) + math.log(2 * math.pi)) / 2
        return jnp.sum(each.reshape(each.shape[0], -1), axis=1)

    def cdf(self, y: Any) -> Array:
        """Returns P(Y ≤ y) of every output."""
        return jax.scipy.stats.norm.cdf(y, self.centre, self.std)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws, independent between rows and outputs."""
        rows, shape = self.centre.shape[0], self.centre.shape[1:]
        normal = lambda key: jax.random.normal(key, shape, self.centre.dtype)
        draw = lambda key: self.centre + self.std * jax.vmap(normal)(row_keys(key, rows, first))
        return drawn(draw, jax.random.split(key, n))
