r"""Regression with normal noise \(y = f + \sigma \varepsilon\): σ is given, or learned with a weak prior of its own."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.stats import norm

from lamu.likelihoods.dispersion import DispersionPrior, LogNormalDispersion
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.normal_tails import log_normal_cdf, log_normal_interval
from lamu.record import record
from lamu.supports import Real
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Gaussian"]

_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)  # of a standard normal number, nats


@record
class Gaussian(Likelihood):
    r"""Normal noise around the outputs, each with its own: \(p(y \mid f) = \prod_k N(y_k \mid f_k, \sigma_k^2)\).

    The targets are `[batch]` where there is one output, `[batch, outputs]` where there are several. Quadratic in f,
    hence log-concave.

    Without a scale the noise is learned: the parameters are `{"log_scale": ...}`, the \(\log \sigma_k\) of shape
    `[outputs]`, with the prior \(\log \sigma_k \sim N(0, 3^2)\) unless told otherwise. It is weak, and meant for
    targets of order one: two standard deviations span σ from 1/400 to 400 (standardise them, or let `Scaled` do it).

    Attributes:
        scale: the noise standard deviation σ of every output, in the target's units; None where it is learned.
        scale_prior: the prior of a learned σ.

    Raises:
        ValueError: if the scale is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gaussian
        >>> log_prob = Gaussian(scale=1.0).log_prob({}, jnp.zeros((2, 1)), jnp.array([0.0, 1.0]))
        >>> [f"{value:.3f}" for value in log_prob]
        ['-0.919', '-1.419']
        >>> Gaussian().init(jnp.array([-1.0, 1.0]))["log_scale"].tolist()
        [0.0]
    """

    scale: Number | None = None
    scale_prior: DispersionPrior = LogNormalDispersion()

    support = Real()
    log_concave = True
    quadratic = True

    def __post_init__(self) -> None:
        if self.scale is None or isinstance(self.scale, Tracer):
            return
        if not 0.0 < self.scale < float("inf"):
            raise ValueError(
                f"the noise scale {self.scale} is not positive and finite; give a standard deviation, or leave it"
                " out to learn it"
            )

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are finite numbers, `[batch]` or `[batch, outputs]`."""
        y = np.asarray(y)
        if not jnp.issubdtype(y.dtype, np.number):
            raise ValueError(
                f"the target {y.ravel()[:1].tolist()} is not a number; Gaussian is for regression, and classes go with"
                " Categorical or Bernoulli once they are encoded as integers"
            )
        if y.ndim not in (1, 2):
            raise ValueError(f"the targets have shape {y.shape}; Gaussian takes [batch] or [batch, outputs]")
        if y.ndim == 2 and y.shape[1] == 1:
            raise ValueError(f"the targets have shape {y.shape}, a single column; pass y[:, 0], of shape [batch]")
        bad = ~np.isfinite(y)
        if bad.any():
            row = np.argwhere(bad)[0, 0]
            raise ValueError(
                f"{bad.sum()} of the targets are not finite, the first of them, {y[bad][0]}, in row {row}; drop them"
            )

    def outputs(self, y: Any) -> int:
        """Returns the number of values a row has."""
        return 1 if jnp.ndim(y) == 1 else jnp.shape(y)[1]

    def init(self, y: Any) -> Params:
        """Returns the log standard deviation of the targets, as if f explained nothing; zero where they do not vary."""
        if self.scale is not None:
            return {}
        y = jnp.asarray(y)
        dtype = y.dtype if jnp.issubdtype(y.dtype, jnp.floating) else jnp.result_type(float)
        y = y.astype(dtype).reshape(-1, self.outputs(y))
        spread = jnp.std(y, axis=0)
        varies = jnp.isfinite(spread) & (spread > jnp.finfo(dtype).eps * jnp.max(jnp.abs(y), axis=0))
        return {"log_scale": jnp.log(jnp.where(varies, spread, jnp.ones_like(spread)))}

    def log_prior(self, params: Params) -> Array:
        r"""Returns the log density of the \(\log \sigma_k\) in nats; zero where the noise is given."""
        if self.scale is not None:
            return jnp.asarray(0.0)
        return jnp.sum(self.scale_prior.log_prob(params["log_scale"]))

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        r"""Returns draws of the \(\log \sigma_k\); nothing where the noise is given."""
        if self.scale is not None:
            return params
        return {"log_scale": self.scale_prior.draw(key, params["log_scale"].shape, params["log_scale"].dtype)}

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(E[-\partial^2 \log p / \partial (\log \sigma_k)^2] = 2\) for each output, of one row."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, 2.0), params)

    def widened(self, params: Params, factor: Number) -> Params:
        return jax.tree.map(lambda leaf: leaf + jnp.log(jnp.asarray(factor, leaf.dtype)), params)

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\sum_k \log N(y_k \mid f_k, \sigma_k^2)\) in nats, `[batch]`."""
        scale = self._scale(params, f)[None]  # whose square may be no number of single precision
        return jnp.sum(norm.logpdf((_columns(y, f) - f) / scale) - jnp.log(scale), axis=-1)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\operatorname{diag}(1/\sigma_k^2)\), `[batch, outputs, outputs]`."""
        precision = jnp.diag(1.0 / self._scale(params, f) ** 2)
        return jnp.broadcast_to(precision[None], (*f.shape, f.shape[-1]))

    def mean(self, params: Params, f: Array) -> Array:
        return _target(f)

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma_k^2\) in the target's shape."""
        return _target(jnp.broadcast_to(self._scale(params, f)[None] ** 2, f.shape))

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sum_k \tfrac12 \log(2 \pi e \sigma_k^2)\) in nats, `[batch]`."""
        entropy = jnp.sum(_ENTROPY + jnp.log(self._scale(params, f)))
        return jnp.broadcast_to(entropy, f.shape[:1])

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        r"""Returns one draw \(f + \sigma \varepsilon\) a row, in the target's shape."""
        return _target(f + self._scale(params, f)[None] * jax.random.normal(key, f.shape, f.dtype))

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\Phi((y_k - f_k)/\sigma_k)\), output by output, in the target's shape."""
        return _target(norm.cdf(_columns(y, f), f, self._scale(params, f)[None]))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        r"""Returns \(\log \Phi(\pm(y_k - f_k)/\sigma_k)\), output by output, in the target's shape."""
        z = self._deviations(params, f, y)
        return log_normal_cdf(z), log_normal_cdf(-z)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns the log probability of an interval, output by output, in the target's shape."""
        return log_normal_interval(self._deviations(params, f, lower), self._deviations(params, f, upper))

    def marginal(self, params: Params, mean: Array, covariance: Array) -> tuple[Array, Array]:
        r"""Returns the exact \(\int p(y \mid f) N(f \mid m, C) df = N(m, C + \operatorname{diag}(\sigma_k^2))\).

        Returns:
            The mean and the covariance of the targets, in the same shapes.
        """
        return mean, covariance + jnp.diag(self._scale(params, mean) ** 2)[None]

    def _scale(self, params: Params, f: Array) -> Array:
        """σ, `[outputs]`, in the dtype of f."""
        if self.scale is None:
            return jnp.exp(params["log_scale"]).astype(f.dtype)
        return jnp.full(f.shape[-1:], self.scale, f.dtype)

    def _deviations(self, params: Params, f: Array, y: Array) -> Array:
        return _target((_columns(y, f) - f) / self._scale(params, f)[None])


def _columns(y: Array, f: Array) -> Array:
    """The targets as `[batch, outputs]`; a reshape, so that another size is an error and is never broadcast."""
    return jnp.reshape(y, f.shape).astype(f.dtype)


def _target(columns: Array) -> Array:
    """`[batch, outputs]` in the target's shape."""
    return columns[:, 0] if columns.shape[-1] == 1 else columns
