r"""Regression with several correlated targets: \(y = f + L \varepsilon\), \(\Sigma = L L^\top\) given or learned."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr
from jax.scipy.stats import norm

from lamu.likelihoods.gaussian import Gaussian
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.normal_tails import log_normal_cdf
from lamu.record import record
from lamu.supports import Real
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["MultivariateGaussian"]

_LOG_TWO_PI = math.log(2 * math.pi)


@record
class MultivariateGaussian(Likelihood):
    r"""Normal noise that is correlated between targets: \(p(y \mid f) = N(y \mid f, \Sigma)\). Quadratic in f.

    The targets are `[batch, outputs]`. A learned covariance is \(\Sigma = D U U^\top D\): D the diagonal of
    \(e^{\text{log\_scale}}\), U lower triangular with ones on its diagonal and `params["mixing"]` below, row by row.
    Their priors are \(N(0, 3^2)\) and \(N(0, 1)\), so learning starts from independent noise.

    Attributes:
        covariance: Σ, `[outputs, outputs]`; None where it is learned.

    Raises:
        ValueError: if the covariance is not symmetric and positive definite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import MultivariateGaussian
        >>> likelihood = MultivariateGaussian(jnp.array([[1.0, 0.5], [0.5, 1.0]]))
        >>> likelihood.log_prob({}, jnp.zeros((1, 2)), jnp.zeros((1, 2))).round(3).tolist()
        [-1.694...]
    """

    covariance: Any = None

    support = Real()
    log_concave = True
    quadratic = True

    def __post_init__(self) -> None:
        if self.covariance is None or isinstance(self.covariance, Tracer):
            return
        given = np.asarray(self.covariance, float)
        if given.ndim != 2 or given.shape[0] != given.shape[1]:
            raise ValueError(f"the covariance has shape {given.shape}; give [outputs, outputs]")
        symmetric = np.allclose(given, given.T, rtol=1e-6)
        if not (np.isfinite(given).all() and symmetric and np.linalg.eigvalsh(given).min() > 0):
            raise ValueError(
                f"the covariance {given.tolist()} is not symmetric and positive definite; give the covariance of the "
                "noise, or leave it out to learn it"
            )

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are finite numbers, `[batch, outputs]`, two outputs or more."""
        if np.ndim(y) != 2:
            raise ValueError(f"the targets have shape {np.shape(y)}; MultivariateGaussian takes [batch, outputs]")
        Gaussian().check(y)
        if self.covariance is not None and np.shape(y)[1] != np.shape(self.covariance)[0]:
            raise ValueError(
                f"the targets have {np.shape(y)[1]} outputs, and the covariance {np.shape(self.covariance)[0]}; give "
                "as many"
            )

    def outputs(self, y: Any) -> int:
        """Returns the number of values a row has."""
        return jnp.shape(y)[1]

    def init(self, y: Any) -> Params:
        """Returns the log standard deviations of the targets, without correlation."""
        if self.covariance is not None:
            return {}
        log_scale = Gaussian().init(y)["log_scale"]
        K = log_scale.size
        return {"log_scale": log_scale, "mixing": jnp.zeros(K * (K - 1) // 2, log_scale.dtype)}

    def log_prior(self, params: Params) -> Array:
        """Returns the log density of the parameters in nats; zero where the covariance is given."""
        if self.covariance is not None:
            return jnp.asarray(0.0)
        mixing = jnp.sum(norm.logpdf(params["mixing"]))
        return jnp.sum(norm.logpdf(params["log_scale"], 0.0, 3.0)) + mixing

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        """Returns normal draws of the parameters; nothing where the covariance is given."""
        if self.covariance is not None:
            return params
        keys = dict(zip(("log_scale", "mixing"), jax.random.split(key), strict=True))
        draws = {name: jax.random.normal(k, params[name].shape, params[name].dtype) for name, k in keys.items()}
        return {**draws, "log_scale": 3.0 * draws["log_scale"]}

    def widened(self, params: Params, factor: Number) -> Params | None:
        """Returns the parameters with every deviation times a factor; None where the covariance is given."""
        if self.covariance is not None:
            return None
        leaf = params["log_scale"]
        return {**params, "log_scale": leaf + jnp.log(jnp.asarray(factor, leaf.dtype))}

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density in nats, `[batch]`."""
        L = self._root(params, f)
        z = solve_triangular(L, (jnp.reshape(y, f.shape).astype(f.dtype) - f).T, lower=True)
        return -0.5 * jnp.sum(z**2, axis=0) - 0.5 * f.shape[1] * _LOG_TWO_PI - jnp.sum(jnp.log(jnp.diag(L)))

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\Sigma^{-1}\), `[batch, outputs, outputs]`."""
        root = self.information_root(params, f)
        return root @ root.swapaxes(1, 2)

    def information_root(self, params: Params, f: Array) -> Array:
        r"""Returns \(L^{-\top}\), `[batch, outputs, outputs]`."""
        inverse = solve_triangular(self._root(params, f), jnp.eye(f.shape[1], dtype=f.dtype), lower=True)
        return jnp.broadcast_to(inverse.T[None], (*f.shape, f.shape[1]))

    def mean(self, params: Params, f: Array) -> Array:
        return f

    def variance(self, params: Params, f: Array) -> Array:
        """Returns the diagonal of Σ, `[batch, outputs]`."""
        return jnp.broadcast_to(jnp.sum(self._root(params, f) ** 2, axis=1)[None], f.shape)

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\tfrac12 \log |2 \pi e \Sigma|\) in nats, `[batch]`."""
        logdet = jnp.sum(jnp.log(jnp.diag(self._root(params, f))))
        return jnp.broadcast_to(logdet + 0.5 * f.shape[1] * (1.0 + _LOG_TWO_PI), f.shape[:1])

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw a row, `[batch, outputs]`."""
        return f + jax.random.normal(key, f.shape, f.dtype) @ self._root(params, f).T

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns that of each target alone, `[batch, outputs]`."""
        return ndtr((jnp.reshape(y, f.shape).astype(f.dtype) - f) / jnp.sqrt(self.variance(params, f)))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the tails of each output by itself, `[batch, outputs]`."""
        z = (y.astype(f.dtype) - f) / jnp.sqrt(self.variance(params, f))
        return log_normal_cdf(z), log_normal_cdf(-z)

    def marginal(self, params: Params, mean: Array, covariance: Array) -> tuple[Array, Array]:
        r"""Returns \((m, C + \Sigma)\).

        Returns:
            The mean and the covariance of the targets, in the same shapes.
        """
        L = self._root(params, mean)
        return mean, covariance + (L @ L.T)[None]

    def _root(self, params: Params, f: Array) -> Array:
        """L, `[outputs, outputs]`, in the dtype of f."""
        if self.covariance is not None:
            return jnp.linalg.cholesky(jnp.asarray(self.covariance, f.dtype))
        K = f.shape[1]
        unit = jnp.eye(K, dtype=f.dtype).at[np.tril_indices(K, -1)].set(params["mixing"].astype(f.dtype))
        return jnp.exp(params["log_scale"]).astype(f.dtype)[:, None] * unit
