r"""Regression with normal noise whose width is the network's own: \(y = f_1 + e^{f_2} \varepsilon\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.likelihoods.gaussian import Gaussian
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["HeteroscedasticGaussian"]

_WIDEST = 20.0  # deviations from e^-20 to e^20 are all that standardised targets need, and what float32 can square


@record
class HeteroscedasticGaussian:
    r"""Normal noise whose deviation depends on the inputs: \(p(y \mid f) = \prod_k N(y_k \mid f_k, e^{2 f_{K+k}})\).

    The network has two outputs a target: first the K means, then the K logarithms of the deviations. The targets are
    `[batch]` where there is one, `[batch, K]` where there are several. There are no dispersions: the prior on the
    weights is all that keeps the deviations from following single rows. Not concave in f jointly. Logarithms beyond ±20
    count as ±20.

    Source: Nix & Weigend (1994); Lakshminarayanan, Pritzel & Blundell (2017), equation 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import HeteroscedasticGaussian
        >>> f = jnp.array([[1.0, 0.0], [1.0, jnp.log(2.0)]])
        >>> HeteroscedasticGaussian().variance({}, f).tolist()
        [1.0, 4.0]
    """

    task = "regression"
    log_concave = False
    quadratic = False

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are finite numbers, `[batch]` or `[batch, targets]`."""
        Gaussian().check(y)

    def outputs(self, y: Any) -> int:
        """Returns two for every value that a row has."""
        return 2 * Gaussian().outputs(y)

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
        r"""Returns \(\sum_k \log N(y_k \mid f_k, e^{2 f_{K+k}})\) in nats, `[batch]`."""
        noise = _noise(f)
        return jnp.sum(noise.log_prob(jnp.reshape(y, noise.loc.shape).astype(f.dtype)), axis=-1)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\operatorname{diag}(e^{-2 f_{K+k}}, 2)\), `[batch, outputs, outputs]`."""
        _, log_scale = _halves(f)
        about_scale = jnp.where(jnp.abs(log_scale) < _WIDEST, jnp.full_like(log_scale, 2.0), jnp.zeros_like(log_scale))
        return jax.vmap(jnp.diag)(jnp.concatenate([jnp.exp(-2 * log_scale), about_scale], axis=-1))

    def mean(self, params: Params, f: Array) -> Array:
        """Returns the first half of f, in the target's shape."""
        return _target(_halves(f)[0])

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(e^{2 f_{K+k}}\) in the target's shape."""
        return _target(jnp.exp(2 * _halves(f)[1]))

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sum_k \tfrac12 \log(2 \pi e) + f_{K+k}\) in nats, `[batch]`."""
        return jnp.sum(_noise(f).entropy(), axis=-1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        r"""Returns one draw a row, in the target's shape."""
        return _target(_noise(f).sample(key))

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the normal distribution function, output by output, in the target's shape."""
        noise = _noise(f)
        return _target(noise.cdf(jnp.reshape(y, noise.loc.shape).astype(f.dtype)))

    def marginal(self, params: Params, mean: Array, covariance: Array) -> None:
        """Returns None: with Gaussian f the target is no Gaussian."""
        return


def _noise(f: Array) -> Any:
    """The distribution of every target, `[batch, targets]`."""
    from numpyro.distributions import Normal

    mean, log_scale = _halves(f)
    return Normal(mean, jnp.exp(log_scale))


def _halves(f: Array) -> tuple[Array, Array]:
    """The means and the logarithms of the deviations, each `[batch, targets]`."""
    mean, log_scale = jnp.split(f, 2, axis=-1)
    return mean, jnp.clip(log_scale, -_WIDEST, _WIDEST)


def _target(columns: Array) -> Array:
    """`[batch, targets]` in the target's shape."""
    return columns[:, 0] if columns.shape[-1] == 1 else columns
