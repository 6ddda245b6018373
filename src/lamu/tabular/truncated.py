"""Noise of a mixture: truncated for positive targets, and scaled, as logits are, by held-out rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.bisection import search
from lamu.base.choose import bounded, choose
from lamu.families.special import log_normal_cdf, log_normal_interval, log_normal_pdf
from lamu.likelihoods import Likelihood
from lamu.likelihoods.interface import LikelihoodWrapper
from lamu.record import record
from lamu.supports import Real
from lamu.typing import Array, Params, RandomKey, Targets

__all__ = ["Truncated", "few_rows_factor", "logit_factor", "noise_factor", "untruncated_weight"]


_TAIL, _DEPTH = 5.0, 12  # start and number of terms of the continued fractions of moments; error below 1e-8
_LEAST = 1e-9  # the least w, so that a later target below zero has a density in single precision
_REACH = 40.0  # standard deviations beyond the mean, where an exponential tail has the probability e⁻⁴⁰


@record
class Truncated(LikelihoodWrapper):
    """A normal likelihood of one target, truncated at zero with the probability 1 − w."""

    # Density, distribution function and mean are averages of those of the truncated normal and of the normal, with the
    # weights 1 − w and w. For the truncated one, with \(\beta = m/s\) and \(h = \phi(\beta)/\Phi(\beta)\),
    #
    # \[ E[y] = s (\beta + h), \quad \operatorname{Var}[y] = s^2 (1 - h (\beta + h)). \]
    #
    # The average is the normal's density times \(c = (1 - w)/\Phi(\beta) + w\) above zero and times w below, so that
    #
    # \[ H[y] = \tfrac12 \log(2 \pi s^2) + \tfrac12 \big(c (\Phi - \beta \phi) + w (1 - \Phi + \beta \phi)\big)
    #    - c \Phi \log c - w (1 - \Phi) \log w. \]
    #
    # Source: Johnson, Kotz & Balakrishnan (1994), section 13.10.1.

    base: Any  # the likelihood of normal noise, of which m is the mean and s² the variance
    untruncated: Any = 0.0  # w, in [0, 1)

    support, log_concave, quadratic, takes_trials = Real(), False, False, False
    log_cdf, log_survival = Likelihood.log_cdf, Likelihood.log_survival
    check_training, counted = Likelihood.check_training, Likelihood.counted
    information, information_blocks = Likelihood.information, Likelihood.information_blocks
    information_root, information_sum = Likelihood.information_root, Likelihood.information_sum
    information_diagonal = Likelihood.information_diagonal

    @property
    def name(self) -> str:
        return f"Truncated({self.base.name})"

    def check(self, y: Targets) -> None:
        # Raises a ValueError unless there is one finite target a row.
        self.support.check(y, self.name)
        if np.ndim(y) != 1:
            raise ValueError(f"the targets have the shape {np.shape(y)}; give one a row, which is truncated at zero")

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        # Returns the log of the average in nats, `[batch]`; −∞ at zero and below where w is zero.
        y, (keep, w) = jnp.asarray(y).astype(f.dtype), self._log_weights(f)
        plain = self.base.log_prob(params, f, y)
        inside = keep - log_normal_cdf(self._normal(params, f)[0])
        return plain + jnp.where(y > 0, jnp.logaddexp(inside, w), w)

    def mean(self, params: Params, f: Array) -> Array:
        # Returns E[y | f], `[batch]`.
        beta, scale = self._normal(params, f)
        return scale * self._moments(beta)[0]

    def variance(self, params: Params, f: Array) -> Array:
        # Returns Var[y | f], `[batch]`.
        beta, scale = self._normal(params, f)
        return scale**2 * self._moments(beta)[1]

    def entropy(self, params: Params, f: Array) -> Array:
        # Returns H[y | f] in nats, `[batch]`.
        beta, scale = self._normal(params, f)
        keep, w = jnp.exp(jnp.stack(self._log_weights(f)))
        above = jnp.exp(log_normal_cdf(beta))
        # For the truncated normal c φ / Φ and c Φ are finite even where Φ underflows.
        hazard = _moments(beta)[0] - beta
        log_c = jnp.logaddexp(self._log_weights(f)[0] - log_normal_cdf(beta), self._log_weights(f)[1])
        share = keep + w * above  # c Φ
        squares = share * (1 - beta * hazard) + w * (1 - above + beta * hazard * above)
        log_w = jnp.where(w > 0, jnp.log(jnp.where(w > 0, w, 1.0)), 0.0)
        return 0.5 * np.log(2 * np.pi) + jnp.log(scale) + 0.5 * squares - share * log_c - w * (1 - above) * log_w

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        # Returns one draw a row; for the truncated normal by bisection of its distribution function.
        beta, scale = self._normal(params, f)
        which, within, beyond = jax.random.split(key, 3)
        mean, variance = _moments(beta)
        level = jax.random.uniform(within, beta.shape, f.dtype)
        ends = jnp.zeros_like(mean), mean + _REACH * jnp.sqrt(variance)
        below = lambda t: _cdf(beta, t) < level
        positive = scale * search(below, ends)
        plain = self.base.sample(beyond, params, f)
        free = jax.random.uniform(which, beta.shape, f.dtype) < jnp.asarray(self.untruncated, f.dtype)
        return jnp.where(free, plain, positive)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        # Returns the average of \(1 - \Phi((m - y)/s) / \Phi(m/s)\), zero below zero, and of \(\Phi((y - m)/s)\).
        beta, scale = self._normal(params, f)
        y, w = jnp.asarray(y).astype(f.dtype), jnp.asarray(self.untruncated, f.dtype)
        return (1 - w) * _cdf(beta, y / scale) + w * self.base.cdf(params, f, y)

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        # Returns the logarithms of the averages of both tails, `[batch]`.
        (beta, scale), (log_keep, log_w) = self._normal(params, f), self._log_weights(f)
        y = jnp.asarray(y).astype(f.dtype)
        z, (below, above) = jnp.where(y > 0, y / scale, 1.0), self.base.log_tails(params, f, y)
        log_positive = log_normal_cdf(beta)
        within = log_keep + log_normal_interval(beta - z, beta) - log_positive
        beyond = log_keep + log_normal_cdf(beta - z) - log_positive
        lower = jnp.where(y > 0, jnp.logaddexp(within, log_w + below), log_w + below)
        upper = jnp.where(y > 0, jnp.logaddexp(beyond, log_w + above), jnp.logaddexp(log_keep, log_w + above))
        return lower, upper

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        # Returns the log probability of an interval, the average of both normals', `[batch]`.
        (beta, scale), (log_keep, log_w) = self._normal(params, f), self._log_weights(f)
        a, b = (jnp.maximum(jnp.asarray(end).astype(f.dtype), 0.0) / scale for end in (lower, upper))
        some = b > a
        within = log_normal_interval(beta - jnp.where(some, b, 2.0), beta - jnp.where(some, a, 1.0))
        within = jnp.where(some, log_keep + within - log_normal_cdf(beta), -jnp.inf)
        free = log_w + self.base.log_interval(params, f, lower, upper)
        nothing = jnp.isinf(within) & jnp.isinf(free)
        return jnp.where(nothing, -jnp.inf, jnp.logaddexp(jnp.where(nothing, 0.0, within), free))

    def distribution(self, params: Params, f: Array) -> None:
        # Returns None, since the base's is not truncated.
        return

    def marginal(self, params: Params, mean: Array, covariance: Array) -> None:
        # Returns None, since a truncated normal target is not Gaussian.
        return

    def scale_noise(self, params: Params, factor: object) -> None:
        # Returns None, since the truncated probability depends on the noise.
        return

    def _normal(self, params: Params, f: Array) -> tuple[Array, Array]:
        """Returns β and s."""
        scale = jnp.sqrt(self.base.variance(params, f))
        return self.base.mean(params, f) / scale, scale

    def _log_weights(self, f: Array) -> tuple[Array, Array]:
        """Returns log(1 − w) and log w."""
        w = jnp.asarray(self.untruncated, f.dtype)
        return jnp.log1p(-w), jnp.log(w)

    def _moments(self, beta: Array) -> tuple[Array, Array]:
        """Returns mean and variance of the mixture of standard deviation one."""
        w = jnp.asarray(self.untruncated, beta.dtype)
        mean, variance = _moments(beta)
        return (1 - w) * mean + w * beta, (1 - w) * variance + w + w * (1 - w) * (mean - beta) ** 2


def _cdf(beta: Array, t: Array) -> Array:
    """Returns the distribution function of the truncated normal of standard deviation one."""
    return -jnp.expm1(log_normal_cdf(beta - jnp.maximum(t, 0.0)) - log_normal_cdf(beta))


def _moments(beta: Array) -> tuple[Array, Array]:
    """Returns mean and variance of the truncated normal of standard deviation one and mean β."""
    far = beta < -_TAIL
    t = jnp.where(far, -beta, _TAIL)
    fraction = jnp.zeros_like(t)
    for n in range(_DEPTH, 1, -1):
        fraction = n / (t + fraction)
    # h = t + 1 / (t + 2 / (t + 3 / ...)), which avoids a difference of nearly equal numbers.
    far_mean = 1 / (t + fraction)
    far_variance = far_mean * (fraction - far_mean)
    near = jnp.where(far, 0.0, beta)
    hazard = jnp.exp(log_normal_pdf(near) - log_normal_cdf(near))
    mean = near + hazard
    return jnp.where(far, far_mean, mean), jnp.where(far, far_variance, 1 - hazard * mean)


def untruncated_weight(
    means: np.ndarray,
    deviations: np.ndarray,
    y: np.ndarray,
    fold: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray | None = None,
) -> float:
    """Returns w from held-out densities; one if a target is not positive."""
    # \[ \log \frac{1 - w}{w} = \sum_i n_i \log
    #    \frac{\sum_c w_c\, p_{c k(i)}(y_i) / \Phi(m_{ci} / s_{ci})}{\sum_c w_c\, p_{c k(i)}(y_i)}, \]
    #
    # the posterior odds of always positive targets, at even prior odds; w is at least 10⁻⁹. If all targets are far from
    # zero relative to the noise, the rows have no information about w, which is then one half.
    from scipy.special import expit, log_ndtr

    if y.shape[-1] != 1 or y.min() <= 0:
        return 1.0
    rows = np.arange(len(y))
    mean, deviation = means[:, fold, rows, 0], deviations[:, fold, rows, 0]
    plain = -(((y[:, 0] - mean) / deviation) ** 2) / 2 - np.log(deviation) + np.log(weights)[:, None]
    truncated = plain - log_ndtr(mean / deviation)
    gain = np.logaddexp.reduce(truncated, axis=0) - np.logaddexp.reduce(plain, axis=0)
    return max(float(expit(-(gain.sum() if counts is None else gain @ counts))), _LEAST)


# A member's noise matches the member's own errors. The mixture adds the spread of its members, although their mean has
# smaller errors than each member: unscaled intervals of 90 % cover 95 %. Every standard deviation is therefore
# multiplied by \(\tau\),
#
# \[ \tau^2 = c_N^2 \max\big(\tau_0^2 - g, \, \tfrac45 \tau_0^2\big), \qquad
#    g = \sum_c w_c \sum_i \frac{n_i}{N} \bigg(\frac{f_{c k(i)}(x_i) - \bar f_c(x_i)}{\sigma_{c k(i)}(x_i)}\bigg)^2,
#    \qquad N = \sum_i n_i \]
#
# where \(\tau_0\) maximises the held-out density under the members trained without the row, and \(\bar f_c\) is the
# mean of candidate c over its folds. For independent members 2g would have to be subtracted, the spread and the gain of
# averaging. But the other members were trained on row i, which makes g larger than it is at new rows.
#
# The same rows choose the stopping points, the weights of candidates and \(\tau_0\). With few rows \(\tau_0\) is
# therefore too small and uncertain. \(c_N\) corrects for this: the 95 % quantile of Student's t with
# \(\tfrac15 (N + 2)(1 + N/200)\) degrees of freedom over that of the normal distribution, 2.4 for five rows, 1.08 for
# fifty and 1.003 for 500. With these degrees of freedom 90 % intervals of linear tables of 2 to 50 rows are near their
# level. A row of weight two counts as two rows. The share of g that is subtracted rises from zero at 20 rows to one at
# 200.


# The reasons are above; the ends of the searches and the shares of g were not tuned one by one.
_LEAST_SHARE = 0.8  # the lower bound of the squared factor's ratio: a few outliers can dominate g
_NARROWEST, _WIDEST = 0.25, 4.0  # bounds of the first factor of a noise
_NO_GAIN, _ALL_GAIN = 20.0, 200.0  # rows between which the share of g rises
_END = 0.95  # the quantile that is corrected for few rows


def noise_factor(
    means: np.ndarray,
    deviations: np.ndarray,
    y: np.ndarray,
    fold: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray | None = None,
) -> float:
    r"""Returns \(\tau\)."""
    rows, counts = np.arange(len(y)), np.ones(len(y)) if counts is None else counts
    held_means, deviation = means[:, fold, rows], deviations[:, fold, rows]

    def nll(log_factor: float) -> float:
        scale = deviation * np.exp(log_factor)
        log_density = -(((y - held_means) / scale) ** 2 / 2 + np.log(scale)).sum(axis=-1)
        return float(-np.logaddexp.reduce(log_density + np.log(weights)[:, None], axis=0) @ counts / counts.sum())

    own = float(np.exp(2 * choose(nll, bounded, *np.log([_NARROWEST, _WIDEST])).best))
    squares = np.mean(((held_means - means.mean(axis=1)) / deviation) ** 2, axis=2)
    count = float(counts.sum())
    share = min(max((count - _NO_GAIN) / (_ALL_GAIN - _NO_GAIN), 0.0), 1.0)
    gain = share * (np.average(squares, axis=1, weights=counts) @ weights)
    return few_rows_factor(count) * float(np.sqrt(max(own - gain, _LEAST_SHARE * own)))


def few_rows_factor(rows: float) -> float:
    """Returns the correction factor for a scale that was chosen by a number of held-out rows."""
    from scipy.special import ndtri, stdtrit

    rows = max(rows, 2.0)
    return float(stdtrit((rows + 2) / 5 * (1 + rows / 200), _END) / ndtri(_END))


# Priors, early stopping and weight averages make a member's probabilities underconfident, and the mean over folds is
# less certain than each member. All logits are multiplied by \(\beta = \beta_0 e / c_N^2\),
#
# \[ \beta_0 = \arg\max_\beta \; \sum_i n_i \log \sum_c w_c\, p^\beta_{c k(i)}(y_i \mid x_i)
#    - \tfrac12 \Big(\frac{\log \beta}{s}\Big)^2, \qquad
#    H\Big[\tfrac1K \sum_k p^{\beta_0 e}_k\Big] = \tfrac1K \sum_k H\big[p_k^{\beta_0}\big], \quad
#    p_k = \sum_c w_c\, p_{ck} \]
#
# where \(p^\beta\) is the softmax of \(\beta\) times the logits, k(i) the fold of row i, and H the mean entropy over
# rows. \(\beta_0\) calibrates members on held-out rows, and e removes the entropy that averaging over folds adds. The
# same rows choose candidates, the length of training and \(\beta_0\), which makes few rows overconfident: \(c_N\) is
# the correction for few rows as for a noise, 2.4 for five rows and 1.003 for 500. With 3 and 12 rows of three classes
# the negative log density of new rows is 1.11 and .93 nats; it is 1.24 and .94 with a division by \(c_N\) instead of
# its square, and 2.47 and .98 without a correction.
#
# Source: Guo, Pleiss, Sun & Weinberger (2017), for one temperature.


_SPREAD = 0.5  # s
_LOWEST, _HIGHEST = 0.4, 4.0  # bounds of the first factor
_MOST = 1.5  # the upper bound of the second


def logit_factor(
    outputs: np.ndarray, y: np.ndarray, fold: np.ndarray, weights: np.ndarray, counts: np.ndarray | None = None
) -> float:
    r"""Returns \(\beta\)."""
    from scipy.optimize import brentq

    if outputs.shape[-1] == 1:
        outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=-1)
    rows, log_weights = np.arange(len(y)), np.log(weights)
    counts = np.ones(len(y)) if counts is None else counts
    held_logits = outputs[:, fold, rows]

    def loss(log_factor: float) -> float:
        own = _log_softmax(held_logits * np.exp(log_factor))[:, rows, y.astype(int)]
        return (log_factor / _SPREAD) ** 2 / 2 - float(np.logaddexp.reduce(own + log_weights[:, None], axis=0) @ counts)

    first = float(np.exp(choose(loss, bounded, *np.log([_LOWEST, _HIGHEST])).best))

    def members(factor: float) -> np.ndarray:
        return np.einsum("c,ckni->kni", weights, np.exp(_log_softmax(outputs * factor)))

    doubt, few = _entropy(members(first), counts), few_rows_factor(float(counts.sum())) ** 2
    excess = lambda second: _entropy(members(first * second).mean(axis=0), counts) - doubt
    if excess(1.0) <= 0 or excess(_MOST) >= 0:
        return (first if excess(1.0) <= 0 else first * _MOST) / few
    second: Any = brentq(excess, 1.0, _MOST, xtol=1e-3)
    return first * float(second) / few


def _log_softmax(f: np.ndarray) -> np.ndarray:
    f = f - f.max(axis=-1, keepdims=True)
    return f - np.log(np.exp(f).sum(axis=-1, keepdims=True))


def _entropy(p: np.ndarray, counts: np.ndarray) -> float:
    of_rows = -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1)
    return float(np.mean(of_rows @ counts) / counts.sum())
