"""Simple reference densities for models of rows: independent columns, one Gaussian, one topic."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom, norm

from lamu.latent import Columns

__all__ = ["reference_log_probs"]

_SWEEPS, _SETTLED = 200, 1e-6
_LEAST_SHARE = 1e-9  # of a column's variance in any direction, if columns determine each other


def reference_log_probs(name: str, columns: Columns, train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the log density of each test row by the name of a reference, in the units of the table."""
    if name == "lda":
        return {"one topic": _unigram(train, test)}
    independent = {"independent columns": _independent(columns, train, test)}
    if set(columns.kinds) != {"number"}:
        return independent
    return {**independent, "one Gaussian": _gaussian(train, test)}


def _unigram(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    counts = train.sum(axis=0) + 0.05  # the prior of a topic's words
    return test @ np.log(counts / counts.sum())


def _independent(columns: Columns, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    total = np.zeros(len(test))
    for position, kind in enumerate(columns.kinds):
        train_values, test_values = train[:, position], test[:, position]
        train_values, present = train_values[~np.isnan(train_values)], ~np.isnan(test_values)
        value = test_values[present]
        if kind in ("number", "positive"):
            logs = kind == "positive"
            train_values, point = (np.log(train_values), np.log(value)) if logs else (train_values, value)
            density = norm.logpdf(point, train_values.mean(), train_values.std()) - (point if logs else 0.0)
        elif kind == "count":
            density = _negative_binomial(train_values, value)
        else:
            levels = max(len(columns.encoding.levels[position]), 2)
            shares = np.bincount(train_values.astype(int), minlength=levels) + 1.0
            density = np.log(shares / shares.sum())[value.astype(int)]
        total[present] += density
    return total


def _negative_binomial(seen: np.ndarray, value: np.ndarray) -> np.ndarray:
    mean = seen.mean()
    of = lambda log_theta, counts: nbinom.logpmf(counts, np.exp(log_theta), 1 / (1 + mean / np.exp(log_theta)))
    best: Any = minimize_scalar(lambda log_theta: -of(log_theta, seen).sum(), bounds=(-5.0, 10.0), method="bounded")
    return of(best.x, value)


def _gaussian(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    mean, covariance = _moments(train)
    density = np.zeros(len(test))
    patterns, which = np.unique(~np.isnan(test), axis=0, return_inverse=True)
    for number, observed in enumerate(patterns):
        rows = np.flatnonzero(np.ravel(which) == number)
        if observed.any():
            residuals = test[np.ix_(rows, observed)] - mean[observed]
            root = np.linalg.cholesky(covariance[np.ix_(observed, observed)])
            white = np.linalg.solve(root, residuals.T)
            log_det = 2 * np.log(np.diag(root)).sum()
            density[rows] = -0.5 * ((white**2).sum(axis=0) + log_det + observed.sum() * np.log(2 * np.pi))
    return density


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the maximum-likelihood mean and covariance, by expectation maximisation if entries are missing."""
    scale = np.nanstd(rows, axis=0)
    rows = rows / scale
    holes = np.isnan(rows)
    mean = np.nanmean(rows, axis=0)
    least = _LEAST_SHARE * np.eye(len(mean))
    filled = np.where(holes, mean, rows)
    covariance = np.cov(filled.T, bias=True).reshape(len(mean), len(mean)) + least
    patterns, which = np.unique(holes, axis=0, return_inverse=True)
    for _ in range(_SWEEPS if holes.any() else 0):
        extra, before = np.zeros_like(covariance), covariance
        for number, missing in enumerate(patterns):
            numbers, observed = np.flatnonzero(np.ravel(which) == number), ~missing
            if missing.any():
                gain = np.linalg.solve(covariance[np.ix_(observed, observed)], covariance[np.ix_(observed, missing)])
                filled[np.ix_(numbers, missing)] = (
                    mean[missing] + (rows[np.ix_(numbers, observed)] - mean[observed]) @ gain
                )
                residual = covariance[np.ix_(missing, missing)] - covariance[np.ix_(missing, observed)] @ gain
                extra[np.ix_(missing, missing)] += len(numbers) * residual
        mean = filled.mean(axis=0)
        covariance = (filled - mean).T @ (filled - mean) / len(rows) + extra / len(rows) + least
        if np.abs(covariance - before).max() < _SETTLED:
            break
    return mean * scale, covariance * np.outer(scale, scale)
