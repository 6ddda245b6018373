"""The checks of descent on a belief's parameters, and of the invariant mode, each in float64."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.optimisers.invariant_map import invariant_map
from lamu.algorithms.variational.bayes_by_backprop import bayes_by_backprop
from lamu.data.batch import Batch
from lamu.verification import problems
from lamu.verification.check import Check
from lamu.verification.vectors import distance, flat

__all__ = ["descent_rows"]

STEPS = 20


def descent_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"bayes_by_backprop": _bayes_by_backprop, "invariant_map": _invariant_map}


def _bayes_by_backprop() -> Check:
    """Logistic regression, gradient descent with the very draws of the algorithm, by hand in NumPy."""
    import optax

    problem = problems.logistic()
    batches = (problem.batches(16) * 7)[:STEPS]
    algorithm = bayes_by_backprop(optax.sgd(0.3), init_scale=0.4, factor=1.0)
    state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    mean, raw = flat(state.params["mean"]), flat(state.params["raw"])
    step, n = jax.jit(algorithm.step), len(problem.y)
    for t, batch in enumerate(batches):
        key = jax.random.fold_in(jax.random.key(3), t)
        draw_key = jax.random.split(jax.random.clone(key))[0]
        z = flat(tree.normal(draw_key, state.params["mean"]))
        state, _ = step(key, state, batch, problem.objective)
        real = np.asarray(batch.mask) > 0
        x, y = np.column_stack([np.ones(real.sum()), np.asarray(batch.x)[real]]), np.asarray(batch.y)[real]
        scale, slope = np.log1p(np.exp(raw)), 1 / (1 + np.exp(-raw))
        gradient = x.T @ (1 / (1 + np.exp(-x @ (mean + scale * z))) - y) / len(y)
        mean_step = gradient + problem.precision * mean / n
        raw_step = (gradient * z + (problem.precision * scale - 1 / scale) / n) * slope
        mean, raw = mean - 0.3 * mean_step, raw - 0.3 * raw_step
    deviation = max(distance(flat(state.params["mean"]), mean), distance(flat(state.params["raw"]), raw))
    return Check("bayes_by_backprop", f"NumPy by hand on logistic regression, {STEPS} steps", deviation, 1e-12)


def _invariant_map() -> Check:
    """Logistic regression by Newton's method on the criterion, its gradient by hand in NumPy."""
    problem = problems.logistic()
    batch = Batch.of(problem.x, problem.y)
    algorithm = invariant_map()
    state = algorithm.init(jax.random.key(4), problem.objective, batch)
    step = jax.jit(algorithm.step)
    for t in range(40):
        state, _ = step(jax.random.fold_in(jax.random.key(3), t), state, batch, problem.objective)
    # At the mode the gradient of log p(θ | D) − log det F / 2 is zero.
    x, w = problem.design, flat(state.params["network"])
    p = 1 / (1 + np.exp(-x @ w))
    information = x.T @ (x * (p * (1 - p))[:, None])
    leverage = np.einsum("ij,ij->i", x @ np.linalg.inv(information), x)
    pull = x.T @ (np.asarray(problem.y) - p) - problem.precision * w
    volume = x.T @ (leverage * p * (1 - p) * (1 - 2 * p)) / 2
    hessian = information + problem.precision * np.eye(len(w))
    deviation = float(np.max(np.abs(np.linalg.solve(hessian, pull - volume))))
    return Check("invariant_map", "NumPy by hand: its stationary point on logistic regression", deviation, 1e-7)
