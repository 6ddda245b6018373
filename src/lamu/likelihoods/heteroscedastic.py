r"""Regression with normal noise whose width is the network's own: \(y = f_1 + \sigma(f_2)\, \varepsilon\)."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.stats import norm

from lamu.likelihoods.gaussian import Gaussian
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.normal_tails import log_normal_cdf, log_normal_interval
from lamu.record import record
from lamu.supports import Real
from lamu.typing import Array, Params, RandomKey

__all__ = ["HeteroscedasticGaussian"]

_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)  # of a standard normal number, nats
_NARROWEST = 1e-6  # of standardised targets; below it float32 cannot square what is left
_ONE = 0.5413248546129181  # softplus of it is one


@record
class HeteroscedasticGaussian(Likelihood):
    r"""Normal noise whose deviation depends on the inputs: \(p(y \mid f) = \prod_k N(y_k \mid f_k, \sigma_k^2)\).

    \[ \sigma_k = \tau \, (10^{-6} + \log(1 + e^{f_{K+k} + c})), \qquad c = \log(e - 1) \]

    The network has two outputs a target: first the K means, then one number for each deviation, which is one at zero,
    grows like that number above and falls like its exponential below. An exponential throughout would let one long step
    widen the noise so far that no gradient brings it back. The targets are `[batch]` where there is one, `[batch, K]`
    where there are several. There are no dispersions: the prior on the weights is all that keeps the deviations from
    following single rows. Not concave in f jointly.

    Attributes:
        factor: τ, of every deviation; `lamu.fit_table` sets it by held-out rows.

    Raises:
        ValueError: for a factor that is not positive and finite.

    Source: Nix & Weigend (1994); Lakshminarayanan, Pritzel & Blundell (2017), equation 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import HeteroscedasticGaussian
        >>> variance = HeteroscedasticGaussian().variance({}, jnp.array([[1.0, 0.0], [1.0, 100.0]]))
        >>> [round(float(value), 2) for value in variance**0.5]
        [1.0, 100.54]
    """

    factor: Any = 1.0

    support = Real()

    def __post_init__(self) -> None:
        if not isinstance(self.factor, Tracer) and not np.all(np.isfinite(self.factor) & np.greater(self.factor, 0)):
            raise ValueError(f"the factor {self.factor} is not positive and finite; give 1 for those of f")

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are finite numbers, `[batch]` or `[batch, targets]`."""
        Gaussian().check(y)

    def outputs(self, y: Any) -> int:
        """Returns two for every value that a row has."""
        return 2 * Gaussian().outputs(y)

    def output_scales(self, width: int) -> tuple[str, ...]:
        return ("means",) * (width // 2) + ("log deviations",) * (width - width // 2)

    def init(self, y: Any) -> Params:
        """Returns nothing: the noise is the network's."""
        return {}

    def log_prior(self, params: Params) -> Array:
        """Returns zero: there are no dispersions."""
        return jnp.asarray(0.0)

    def dispersion_information(self, params: Params) -> Params:
        """Returns nothing, as there are no dispersions."""
        return params

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\sum_k \log N(y_k \mid f_k, \sigma_k^2)\) in nats, `[batch]`."""
        mean, scale = self._halves(f)
        away = jnp.reshape(y, mean.shape).astype(f.dtype) - mean
        return jnp.sum(norm.logpdf(away / scale) - jnp.log(scale), axis=-1)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\operatorname{diag}(1, 2 \sigma_k'^2) / \sigma_k^2\), `[batch, outputs, outputs]`."""
        _, scale = self._halves(f)
        slope = jnp.asarray(self.factor, f.dtype) * jax.nn.sigmoid(jnp.split(f, 2, axis=-1)[1] + _ONE)
        return jax.vmap(jnp.diag)(jnp.concatenate([scale**-2, 2 * (slope / scale) ** 2], axis=-1))

    def mean(self, params: Params, f: Array) -> Array:
        """Returns the first half of f, in the target's shape."""
        return _target(self._halves(f)[0])

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma_k^2\) in the target's shape."""
        return _target(self._halves(f)[1] ** 2)

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sum_k \tfrac12 \log(2 \pi e \sigma_k^2)\) in nats, `[batch]`."""
        return jnp.sum(_ENTROPY + jnp.log(self._halves(f)[1]), axis=-1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        mean, scale = self._halves(f)
        return _target(mean + scale * jax.random.normal(key, mean.shape, f.dtype))

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the normal distribution function, output by output, in the target's shape."""
        mean, scale = self._halves(f)
        return _target(norm.cdf(jnp.reshape(y, mean.shape).astype(f.dtype), mean, scale))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of both normal tails, output by output, in the target's shape."""
        z = self._deviations(f, y)
        return log_normal_cdf(z), log_normal_cdf(-z)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns the log probability of an interval, output by output, in the target's shape."""
        return log_normal_interval(self._deviations(f, lower), self._deviations(f, upper))

    def marginal(self, params: Params, mean: Array, covariance: Array) -> None:
        """Returns None: with Gaussian f the target is no Gaussian."""
        return

    def _deviations(self, f: Array, y: Array) -> Array:
        mean, scale = self._halves(f)
        return _target((jnp.reshape(y, mean.shape).astype(f.dtype) - mean) / scale)

    def _halves(self, f: Array) -> tuple[Array, Array]:
        """The means and the deviations, each `[batch, targets]`."""
        mean, wide = jnp.split(f, 2, axis=-1)
        return mean, jnp.asarray(self.factor, f.dtype) * (_NARROWEST + jax.nn.softplus(wide + _ONE))


def _target(columns: Array) -> Array:
    """`[batch, targets]` in the target's shape."""
    return columns[:, 0] if columns.shape[-1] == 1 else columns
