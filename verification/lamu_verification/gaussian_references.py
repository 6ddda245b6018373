"""Reference implementations in NumPy of the Gaussian algorithms, on Bayesian logistic regression."""

# Every function takes the batches of the steps as pairs of design matrix and targets, the initial mean, the number of
# rows of the data, and the prior's precision; `noises` are the standard normal draws of the steps.

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

__all__ = ["affine_group", "bsam", "newton", "ogn", "sam"]

Batches = Iterable[tuple[np.ndarray, np.ndarray]]


def _gradient(design: np.ndarray, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Returns the gradient of the mean negative log likelihood of a batch."""
    return design.T @ (1 / (1 + np.exp(-design @ theta)) - y) / len(y)


def newton(batches: Batches, start: np.ndarray, rows: int, precision: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the iterate of Newton's method on the log posterior, and the last Hessian (Bishop, equation 4.92)."""
    theta, hessian = start.copy(), np.eye(len(start))
    for design, y in batches:
        p = 1 / (1 + np.exp(-design @ theta))
        hessian = design.T @ ((p * (1 - p))[:, None] * design) / len(y) * rows + precision * np.eye(len(start))
        theta = theta - np.linalg.solve(hessian, rows * _gradient(design, y, theta) + precision * theta)
    return theta, hessian


def ogn(
    batches: Batches,
    start: np.ndarray,
    rows: int,
    precision: float,
    rate: float,
    b1: float,
    b2: float,
    hess_init: float,
    max_step: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and curvature of OGN, with bias-corrected momentum and clipped coordinates of each step."""
    m, v, s = start.copy(), np.zeros_like(start), np.full_like(start, hess_init)
    delta = precision / rows
    for t, (design, y) in enumerate(batches, start=1):
        single = (1 / (1 + np.exp(-design @ m)) - y)[:, None] * design
        v = b1 * v + (1 - b1) * single.mean(axis=0)
        s = b2 * s + (1 - b2) * (single**2).mean(axis=0)
        m = m - rate * np.clip((v / (1 - b1**t) + delta * m) / (s + delta), -max_step, max_step)
    return m, s


def sam(
    batches: Batches, start: np.ndarray, rows: int, precision: float, rate: float, radius: float, momentum: float
) -> np.ndarray:
    """Returns the point of SAM with heavy-ball momentum, weight decay outside the maximum (Foret et al. 2021)."""
    m, v = start.copy(), np.zeros_like(start)
    for design, y in batches:
        g = _gradient(design, y, m)
        worst = m + radius * g / np.linalg.norm(g)
        v = momentum * v + _gradient(design, y, worst) + precision / rows * m
        m = m - rate * v
    return m


def bsam(
    batches: Batches,
    noises: Iterable[np.ndarray],
    start: np.ndarray,
    rows: int,
    precision: float,
    rate: float,
    b1: float,
    b2: float,
    radius: float,
    damping: float,
    hess_init: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and scale of bSAM (Möllenhoff & Khan 2023, algorithm 1); the scale starts at `hess_init` + δ/N."""
    decay = precision / rows
    omega, momentum, s = start.copy(), np.zeros_like(start), np.full_like(start, hess_init + decay)
    for (design, y), noise in zip(batches, noises, strict=True):
        g = _gradient(design, y, omega + noise / np.sqrt(rows * s))
        g_worst = _gradient(design, y, omega + radius * g / s)
        s = b2 * s + (1 - b2) * (np.sqrt(s) * np.abs(g) + decay + damping)
        momentum = b1 * momentum + (1 - b1) * (g_worst + decay * omega)
        omega = omega - rate * momentum / s
    return omega, s


def affine_group(
    batches: Batches,
    noises: Iterable[np.ndarray],
    start: np.ndarray,
    rows: int,
    precision: float,
    rate: float,
    momentum: float,
    share: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns shift and scale of the affine Lie-group rule on a diagonal scale, the exponential by its series."""
    # (A, b) exp(−ρ (U/2, V)) is the time-ρ flow of ḃ = −A V, Ȧ = −A U/2 for one coordinate: here by the matrix
    # exponential of [[−ρU/2, −ρV], [0, 0]], forty terms of it.
    b, a = start.copy(), np.full_like(start, 1 / np.sqrt(rows))
    mu, mv = np.zeros_like(start), np.zeros_like(start)
    for (design, y), noise in zip(batches, noises, strict=True):
        theta = b + a * noise
        g = _gradient(design, y, theta) + precision / rows * theta
        mu = momentum * mu + (1 - momentum) * (rows * a * noise * g - 1)
        mv = momentum * mv + (1 - momentum) * rows * a * g
        for i in range(len(b)):
            algebra = np.array([[-rate * mu[i] / 2, -rate * mv[i]], [0.0, 0.0]])
            exponential, term = np.eye(2), np.eye(2)
            for k in range(1, 40):
                term = term @ algebra / k
                exponential = exponential + term
            b[i] = b[i] + a[i] * exponential[0, 1]
            a[i] = a[i] * np.exp(-rate * share * mu[i] / 2)
    return b, a
