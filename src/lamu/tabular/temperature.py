"""The factor of the logits of a mixture over folds, by its held-out rows."""

# Priors, early stopping and averages along a run leave a member's probabilities less certain than they may be, and the
# mean over folds is less certain than each member. All logits are multiplied by \(\beta = \beta_0 e / c_N\),
#
# \[ \beta_0 = \arg\max_\beta \; \sum_i n_i \log \sum_c w_c\, p^\beta_{c k(i)}(y_i \mid x_i)
#    - \tfrac12 \Big(\frac{\log \beta}{s}\Big)^2, \qquad
#    H\Big[\tfrac1K \sum_k p^{\beta_0 e}_k\Big] = \tfrac1K \sum_k H\big[p_k^{\beta_0}\big], \quad
#    p_k = \sum_c w_c\, p_{ck} \]
#
# where \(p^\beta\) is the softmax of \(\beta\) times the logits, k(i) the fold of row i, and H the mean entropy over
# rows: \(\beta_0\) suits members that have not seen a row, and e takes off what averaging over folds adds to their
# doubt. Few rows choose candidates, the length of training and \(\beta_0\) at once, and are too sure of all: \(c_N\) is
# what so few widen a noise by (`lamu.tabular.noise`), 2.4 for five rows and 1.003 for 500.
#
# Source: Guo, Pleiss, Sun & Weinberger (2017), for one temperature.

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.tabular.noise import few_rows_factor

__all__ = ["logit_factor"]

_SPREAD = 0.5  # s
_LOWEST, _HIGHEST = 0.4, 4.0  # of the first factor
_MOST = 1.5  # of the second


def logit_factor(
    outputs: np.ndarray, y: np.ndarray, fold: np.ndarray, weights: np.ndarray, counts: np.ndarray | None = None
) -> float:
    r"""Returns \(\beta\)."""
    from scipy.optimize import brentq, minimize_scalar

    if outputs.shape[-1] == 1:
        outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=-1)
    rows, log_weights = np.arange(len(y)), np.log(weights)
    counts = np.ones(len(y)) if counts is None else counts
    held = outputs[:, fold, rows]

    def loss(log_factor: float) -> float:
        own = _log_softmax(held * np.exp(log_factor))[:, rows, y.astype(int)]
        return (log_factor / _SPREAD) ** 2 / 2 - float(np.logaddexp.reduce(own + log_weights[:, None], axis=0) @ counts)

    bounds = float(np.log(_LOWEST)), float(np.log(_HIGHEST))
    best: Any = minimize_scalar(loss, bounds=bounds, method="bounded")
    first = float(np.exp(best.x))

    def members(factor: float) -> np.ndarray:
        return np.einsum("c,ckni->kni", weights, np.exp(_log_softmax(outputs * factor)))

    doubt, few = _entropy(members(first), counts), few_rows_factor(float(counts.sum()))
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
