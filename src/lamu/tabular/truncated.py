r"""Normal noise of which nothing lies below zero, for targets that are positive.

A Gaussian's tail knows no end: where the noise is as wide as the mean is far from zero, its intervals reach below it.
What is known of every target, that it is positive, is conditioned on,

\[ p(y \mid f) = \frac{N(y; m, s^2)}{\Phi(m / s)}, \quad y > 0, \]

which makes every positive target likelier, and nothing changes where the tail below zero holds nothing. Whether targets
are positive, the rows say: had they not to be, some of N would have been expected below zero.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.bisection import bisect
from lamu.likelihoods import Likelihood
from lamu.likelihoods.normal_tails import log_normal_cdf, log_normal_pdf
from lamu.record import record
from lamu.supports import PositiveReal
from lamu.typing import Array, Params, RandomKey

__all__ = ["Truncated", "are_positive"]

_TAIL, _DEPTH = 5.0, 12  # from where on moments are continued fractions, and their terms: below 1e-8 there
_REACH = 40.0  # deviations beyond the mean, of which an exponential tail leaves e⁻⁴⁰
_EVIDENCE = 3.0  # nats by which held-out rows are likelier: e⁻³ is the chance that none of them lies below zero


@record
class Truncated(Likelihood):
    r"""A likelihood of one normal target, given that the target is positive.

    Mean, variance and entropy are those of the truncated normal, with \(\beta = m/s\) and
    \(h = \phi(\beta)/\Phi(\beta)\):

    \[ E[y] = s (\beta + h), \quad \operatorname{Var}[y] = s^2 (1 - h (\beta + h)), \quad
       H[y] = \log\big(\sqrt{2 \pi e}\, s\, \Phi(\beta)\big) - \tfrac12 \beta h. \]

    A target of zero or below has the density zero.

    Attributes:
        base: the likelihood of normal noise, of which m is the mean and s² the variance.

    Source: Johnson, Kotz & Balakrishnan (1994), section 13.10.1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gaussian
        >>> from lamu.tabular.truncated import Truncated
        >>> likelihood = Truncated(Gaussian(scale=1.0))
        >>> likelihood.mean({}, jnp.array([[0.0], [9.0]])).round(4).tolist()
        [0.797..., 9.0]
        >>> likelihood.cdf({}, jnp.array([[0.0]]), jnp.array([1.0])).round(4).tolist()
        [0.682...]
    """

    base: Any

    support = PositiveReal()

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are positive, one a row."""
        super().check(y)
        if np.ndim(y) != 1:
            raise ValueError(f"the targets have the shape {np.shape(y)}; give one a row, which is truncated at zero")

    def outputs(self, y: Any) -> int:
        """Returns the base's width."""
        return self.base.outputs(y)

    def init(self, y: Any) -> Params:
        """Returns the base's initial parameters."""
        return self.base.init(y)

    def log_prior(self, params: Params) -> Array:
        """Returns the base's log density of its dispersion parameters."""
        return self.base.log_prior(params)

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        """Returns the base's draw."""
        return self.base.sample_prior(key, params)

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log N(y; m, s^2) - \log \Phi(m/s)\) in nats, `[batch]`; −∞ at zero and below."""
        y = jnp.asarray(y).astype(f.dtype)
        inside = self.base.log_prob(params, f, y) - log_normal_cdf(self._normal(params, f)[0])
        return jnp.where(y > 0, inside, -jnp.inf)

    def mean(self, params: Params, f: Array) -> Array:
        """Returns E[y | f], `[batch]`."""
        beta, scale = self._normal(params, f)
        return scale * _moments(beta)[0]

    def variance(self, params: Params, f: Array) -> Array:
        """Returns Var[y | f], `[batch]`."""
        beta, scale = self._normal(params, f)
        return scale**2 * _moments(beta)[1]

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns H[y | f] in nats, `[batch]`."""
        beta, scale = self._normal(params, f)
        hazard = _moments(beta)[0] - beta
        return jnp.log(scale) + 0.5 * np.log(2 * np.pi * np.e) + log_normal_cdf(beta) - 0.5 * beta * hazard

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one positive draw a row, by bisection of the distribution function, which knows the far tail."""
        mean, deviation = self.mean(params, f), jnp.sqrt(self.variance(params, f))
        level = jax.random.uniform(key, mean.shape, f.dtype)
        ends = jnp.zeros_like(mean), mean + _REACH * deviation
        return bisect(lambda y: self.cdf(params, f, y) < level, ends, 60 if f.dtype == jnp.float64 else 30)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(1 - \Phi((m - y)/s) / \Phi(m/s)\), and zero at zero and below, `[batch]`."""
        beta, scale = self._normal(params, f)
        y = jnp.maximum(jnp.asarray(y).astype(f.dtype), 0.0)
        return -jnp.expm1(log_normal_cdf(beta - y / scale) - log_normal_cdf(beta))

    def _normal(self, params: Params, f: Array) -> tuple[Array, Array]:
        """β and s."""
        scale = jnp.sqrt(self.base.variance(params, f))
        return self.base.mean(params, f) / scale, scale


def _moments(beta: Array) -> tuple[Array, Array]:
    """Mean and variance of the truncated normal of deviation one and mean β."""
    far = beta < -_TAIL
    t = jnp.where(far, -beta, _TAIL)
    fraction = jnp.zeros_like(t)
    for n in range(_DEPTH, 1, -1):
        fraction = n / (t + fraction)
    # h = t + 1 / (t + 2 / (t + 3 / ...)), so that no difference is taken of what is nearly the same.
    far_mean = 1 / (t + fraction)
    far_variance = far_mean * (fraction - far_mean)
    near = jnp.where(far, 0.0, beta)
    hazard = jnp.exp(log_normal_pdf(near) - log_normal_cdf(near))
    mean = near + hazard
    return jnp.where(far, far_mean, mean), jnp.where(far, far_variance, 1 - hazard * mean)


def are_positive(
    means: np.ndarray, deviations: np.ndarray, y: np.ndarray, fold: np.ndarray, weights: np.ndarray
) -> bool:
    r"""Returns whether targets must be positive, by rows that their members have not seen.

    All of them are, and together they are likelier by three nats where nothing lies below zero,

    \[ \sum_i \log \frac{\sum_c w_c\, p_{c k(i)}(y_i) / \Phi(m_{ci} / s_{ci})}{\sum_c w_c\, p_{c k(i)}(y_i)} > 3, \]

    a likelihood ratio. Of targets that are far from zero, beside the noise, it says nothing, and they stay as they are:
    one that is negative then is no impossibility.

    Args:
        means: of every member, `[candidates, folds, N, 1]`.
        deviations: of its noise, in the same shape.
        y: the targets, `[N, 1]`.
        fold: the fold of every row, `[N]`.
        weights: of the candidates, which sum to one.

    Examples:
        >>> import numpy as np
        >>> from lamu.tabular.truncated import are_positive
        >>> y, fold, ones = np.linspace(0.1, 5.0, 100)[:, None], np.arange(100) % 2, np.ones((1, 2, 100, 1))
        >>> are_positive(1.5 * ones, ones, y, fold, np.ones(1)), are_positive(9 * ones, ones, y, fold, np.ones(1))
        (True, False)
    """
    from scipy.special import log_ndtr

    if y.shape[-1] != 1 or y.min() <= 0:
        return False
    rows = np.arange(len(y))
    mean, deviation = means[:, fold, rows, 0], deviations[:, fold, rows, 0]
    plain = -(((y[:, 0] - mean) / deviation) ** 2) / 2 - np.log(deviation) + np.log(weights)[:, None]
    truncated = plain - log_ndtr(mean / deviation)
    gain = np.logaddexp.reduce(truncated, axis=0) - np.logaddexp.reduce(plain, axis=0)
    return bool(gain.sum() > _EVIDENCE)
