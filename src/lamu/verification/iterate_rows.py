"""The check of SWAG, in float64: the published algorithm on the iterates that optax makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lamu.algorithms.ensembles.iterates import EverySteps, LowRankDeviations
from lamu.algorithms.ensembles.swag import swag
from lamu.algorithms.optimisers.sgd import sgd
from lamu.data.arrays import Arrays
from lamu.dtype_policy import lenient
from lamu.verification import problems
from lamu.verification.check import Check
from lamu.verification.vectors import flat

__all__ = ["iterate_rows"]

STEPS, RANK, PERIOD, FIRST = 60, 4, 5, 10


def iterate_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"swag": _swag}


def _swag() -> Check:
    import optax

    problem, key = problems.classes(), jax.random.key(0)
    batches = (problem.batches(16) * 15)[:STEPS]
    algorithm = swag(sgd(0.1, momentum=0.9), LowRankDeviations(RANK), EverySteps(PERIOD, FIRST))
    state = algorithm.init(key, problem.objective, batches[0])
    params = {"network": state.inner.mean["network"], "likelihood": state.inner.mean["likelihood"]}
    optimiser = optax.sgd(0.1, momentum=0.9)
    memory = optimiser.init(params)
    step = jax.jit(algorithm.step)
    gradient = jax.jit(jax.grad(lambda params, batch: problem.objective.mean_loss(params, batch, {})[0]))
    mean, second, queue, count = 0.0, 0.0, [], 0
    for t, batch in enumerate(batches):
        state, _ = step(jax.random.fold_in(key, t), state, batch, problem.objective)
        with lenient():
            updates, memory = optimiser.update(gradient(params, batch), memory, params)
        params = optax.apply_updates(params, updates)
        if t >= FIRST and (t - FIRST) % PERIOD == 0:
            theta = flat(params)
            mean = (count * mean + theta) / (count + 1)
            second = (count * second + theta**2) / (count + 1)
            queue, count = [*queue[-(RANK - 1) :], theta - mean], count + 1
    columns = np.stack(queue, axis=1)
    covariance = (np.diag(second - mean**2) + columns @ columns.T / (RANK - 1)) / 2
    data = Arrays.of((problem.x, problem.y))
    posterior: Any = algorithm.posterior(key, state, problem.objective, data, None)
    belief = posterior.belief.factors["network"]
    found = np.asarray(belief.precision.covariance.dense(belief.mean))
    deviation = max(np.max(np.abs(flat(belief.mean) - mean)), np.max(np.abs(found - covariance)))
    words = f"NumPy by hand on optax's iterates, {count} of {STEPS}, rank {RANK}"
    return Check("swag", words, float(deviation), 1e-10)
