"""The checks of Kronecker-factored curvature, in float64: on one layer with a constant output factor it is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.optimisers.kfac import kfac
from lamu.algorithms.variational.noisy_kfac import noisy_kfac
from lamu.data.batch import Batch
from lamu.objective.curvature import GaussNewton
from lamu.verification import problems
from lamu.verification.check import Check

__all__ = ["kronecker_rows"]

# The rule's own step at rate one: nothing averaged, damped, clipped or put off.
PLAIN: dict[str, Any] = {
    "b1": 0.0,
    "b2": 0.0,
    "damping": 0.0,
    "max_step": None,
    "inverse_update_period": 1,
    "rank": None,
    "factor_update_period": 1,
}


def kronecker_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"kfac": _kfac, "noisy_kfac": _noisy_kfac}


def _kfac() -> Check:
    mean, precision, expected_mean, expected = _after_one_step(kfac(1.0, **PLAIN))
    deviation = max(np.max(np.abs(mean - expected_mean)), np.max(np.abs(precision - expected)) / np.max(expected))
    return Check("kfac", "linear regression in closed form, one step", float(deviation), 1e-10)


def _noisy_kfac() -> Check:
    """The precision after a step; and its mean over keys, which is the posterior's, with the scatter of its draws."""
    # The curvature of linear regression is the same at every draw, and its gradient is linear in the draw: from
    # \(\theta \sim N(m_0, \Sigma_0)\) a step of rate one ends at \(m^* - S^{-1} H (\theta - m_0)\), H the likelihood's
    # part of S.
    algorithm = noisy_kfac(1.0, **PLAIN)
    _, precision, mean, expected = _after_one_step(algorithm)
    deviation = float(np.max(np.abs(precision - expected)) / np.max(expected))
    problem = problems.regression()
    batch = Batch.of(problem.x, problem.y)
    algorithm = replace(algorithm, curvature=GaussNewton())
    state = algorithm.init(jax.random.key(4), problem.objective, batch)
    before = algorithm.belief(state, problem.objective)
    spread = np.linalg.inv(np.asarray(before.precision.dense(before.mean)))
    keys = jax.random.split(jax.random.key(3), 4_000)
    ends = jax.jit(jax.vmap(lambda key: tree.ravel(algorithm.step(key, state, batch, problem.objective)[0].mean)[0]))(
        keys
    )
    ends = np.asarray(ends)
    data = problem.scale**-2 * problem.design.T @ problem.design
    gain = np.linalg.solve(expected, data)
    scatter = gain @ spread @ gain.T
    width = np.sqrt(np.diagonal(scatter))
    away = np.max(np.abs(ends.mean(0) - mean) / (width / np.sqrt(len(keys))))
    # A variance of n normal numbers has a standard error of √(2/n) of itself.
    unlike = np.max(np.abs(ends.var(0) / width**2 - 1)) / np.sqrt(2 / len(keys))
    words = "linear regression: precision of one step (1e-10), mean and scatter over 4,000 keys (4.5 standard errors)"
    return Check("noisy_kfac", words, max(deviation / 1e-10, float(away) / 4.5, float(unlike) / 4.5), 1.0)


def _after_one_step(algorithm: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the belief's mean and precision after one step on all data, and the posterior's."""
    problem = problems.regression()
    batch = Batch.of(problem.x, problem.y)
    algorithm = replace(algorithm, curvature=GaussNewton())
    state = algorithm.init(jax.random.key(4), problem.objective, batch)
    state, _ = jax.jit(algorithm.step)(jax.random.key(3), state, batch, problem.objective)
    belief = algorithm.belief(state, problem.objective)
    noise = problem.scale**-2
    expected = noise * problem.design.T @ problem.design + problem.precision * np.eye(problem.design.shape[1])
    mean = np.linalg.solve(expected, noise * problem.design.T @ problem.y)
    precision = belief.precision.dense(belief.mean)
    return np.asarray(tree.ravel(belief.mean)[0]), np.asarray(precision), mean, expected
