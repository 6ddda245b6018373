"""The check of SLANG, in float64: its algorithm with whole matrices."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.variational.slang import slang
from lamu.data.batch import Batch
from lamu.verification import problems
from lamu.verification.check import Check
from lamu.verification.vectors import flat

__all__ = ["low_rank_rows"]

STEPS = 20


def low_rank_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"slang": _slang}


def _slang() -> Check:
    problem = problems.logistic()
    rows, prior = len(problem.y), problem.precision / len(problem.y)
    algorithm = slang(0.1, rank=2, b1=0.8, b2=0.9, hess_init=0.3, max_step=0.3, curvature_update_period=1)
    batches = (problem.batches(16) * 7)[:STEPS]
    state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    m = flat(state.mean)
    v, u, d = np.zeros_like(m), np.zeros((len(m), 2)), np.full_like(m, 0.3 + prior)
    step = jax.jit(algorithm.step)
    for t, batch in enumerate(batches):
        key = jax.random.fold_in(jax.random.key(3), t)
        # The reference is given the very draws of the algorithm, so its keys are copies, on purpose.
        noise = flat(tree.normal(jax.random.split(jax.random.clone(key))[0], state.mean))
        state, _ = step(key, state, batch, problem.objective)
        root = np.diag(d**-0.5)
        theta = m + root @ _power(np.eye(len(m)) + root @ u @ u.T @ root, -0.5) @ noise / np.sqrt(rows)
        gradients = _gradients(batch, theta)
        kept = _leading(gradients.T @ gradients / len(gradients), 2)
        total = 0.9 * (u @ u.T + np.diag(d)) + 0.1 * (gradients.T @ gradients / len(gradients) + prior * np.eye(len(m)))
        u = _leading(0.9 * u @ u.T + 0.1 * kept @ kept.T, 2)
        d = np.diagonal(total) - np.sum(u**2, axis=1)
        v = 0.8 * v + 0.2 * gradients.mean(0)
        direction = np.linalg.solve(u @ u.T + np.diag(d), v / (1 - 0.8 ** (t + 1)) + prior * m)
        m = m - 0.1 * np.clip(direction, -0.3, 0.3)
    precision = np.asarray(state.precision.dense(state.mean))
    deviation = max(np.max(np.abs(flat(state.mean) - m)), np.max(np.abs(precision - u @ u.T - np.diag(d))))
    words = f"NumPy by hand with whole matrices, rank 2, on logistic regression, {STEPS} steps"
    return Check("slang", words, float(deviation), 1e-10)


def _gradients(batch: Batch, theta: np.ndarray) -> np.ndarray:
    """Every real row's gradient of the negative log likelihood."""
    real = np.asarray(batch.mask) > 0
    x = np.asarray(batch.x)[real]
    design = np.column_stack([np.ones(len(x)), x])
    return (1 / (1 + np.exp(-design @ theta)) - np.asarray(batch.y)[real])[:, None] * design


def _leading(matrix: np.ndarray, rank: int) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))


def _power(matrix: np.ndarray, power: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**power) @ vectors.T
