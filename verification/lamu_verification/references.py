"""Reference implementations of the classics in NumPy, independent of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

__all__ = ["gradient_descent", "ivon_logistic", "linear_regression", "vogn_logistic"]


def linear_regression(
    design: np.ndarray, y: np.ndarray, scale: float, precision: float, temperature: float = 1.0
) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns posterior mean, precision and log evidence of Bayesian linear regression (Bishop 3.50 to 3.54)."""
    # At a temperature other than one the evidence is the log integral of the tempered joint.
    rows, size = design.shape
    gram = (design.T @ design / scale**2 + precision * np.eye(size)) / temperature
    mean = np.linalg.solve(gram, design.T @ y / scale**2 / temperature)
    residual = y - design @ mean
    log_likelihood = -rows / 2 * np.log(2 * np.pi * scale**2) - residual @ residual / (2 * scale**2)
    log_prior = size / 2 * np.log(precision / (2 * np.pi)) - precision * mean @ mean / 2
    volume = size / 2 * np.log(2 * np.pi) - np.linalg.slogdet(gram)[1] / 2
    return mean, gram, float((log_likelihood + log_prior) / temperature + volume)


def gradient_descent(
    gradient: Callable[[np.ndarray], np.ndarray], start: np.ndarray, rate: float, steps: int
) -> np.ndarray:
    """Returns the point after some steps of plain gradient descent."""
    point = start.copy()
    for _ in range(steps):
        point = point - rate * gradient(point)
    return point


def ivon_logistic(
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
    noises: Iterable[np.ndarray],
    start: np.ndarray,
    rows: int,
    precision: float,
    rate: float,
    b1: float,
    b2: float,
    hess_init: float,
    max_step: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and curvature h of IVON on logistic regression (Shen et al. 2024, algorithm 1, one draw)."""
    mean, momentum = start.copy(), np.zeros_like(start)
    h, decay = np.full_like(start, hess_init), precision / rows
    for step, ((design, y), noise) in enumerate(zip(batches, noises, strict=True), start=1):
        sigma = 1 / np.sqrt(rows * (h + decay))
        theta = mean + sigma * noise
        gradient = design.T @ (1 / (1 + np.exp(-design @ theta)) - y) / len(y)
        h_hat = gradient * (theta - mean) / sigma**2
        momentum = b1 * momentum + (1 - b1) * gradient
        h = b2 * h + (1 - b2) * h_hat + (1 - b2) ** 2 * (h - h_hat) ** 2 / (h + decay) / 2
        mean = mean - rate * np.clip((momentum / (1 - b1**step) + decay * mean) / (h + decay), -max_step, max_step)
    return mean, h


def vogn_logistic(
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
    noises: Iterable[np.ndarray],
    start: np.ndarray,
    rows: int,
    precision: float,
    rate: float,
    b1: float,
    b2: float,
    hess_init: float,
    max_step: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and curvature of VOGN on logistic regression (Osawa et al. 2019, equations 4 and 5, one draw)."""
    m, v, s = start.copy(), np.zeros_like(start), np.full_like(start, hess_init)
    delta = precision / rows
    for t, ((design, y), noise) in enumerate(zip(batches, noises, strict=True), start=1):
        theta = m + noise / np.sqrt(rows * (s + delta))
        single = (1 / (1 + np.exp(-design @ theta)) - y)[:, None] * design
        v = b1 * v + (1 - b1) * single.mean(axis=0)
        s = b2 * s + (1 - b2) * (single**2).mean(axis=0)
        m = m - rate * np.clip((v / (1 - b1**t) + delta * m) / (s + delta), -max_step, max_step)
    return m, s
