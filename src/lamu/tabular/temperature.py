"""Scaling of a mixture's noise and logits by held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.choose import bounded, choose

__all__ = ["few_rows_factor", "logit_factor", "noise_factor"]


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
_LEAST = 0.8  # the lower bound of the squared factor's ratio: a few outliers can dominate g
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
    return few_rows_factor(count) * float(np.sqrt(max(own - gain, _LEAST * own)))


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
