"""The checks of training by the evidence and of last layers with a closed form, each in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.optimisers.map_estimate import map_estimate
from lamu.algorithms.post_hoc.neural_linear import absorb, neural_linear
from lamu.algorithms.post_hoc.online_laplace import online_laplace
from lamu.algorithms.post_hoc.prior_scales import OneScale
from lamu.algorithms.variational.variational_head import variational_head
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.likelihoods import Gaussian
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import Linear
from lamu.operators import Dense
from lamu.priors import Normal
from lamu.verification import problems, references
from lamu.verification.check import Check

__all__ = ["evidence_rows"]


def evidence_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {
        "online_laplace": _online_laplace,
        "neural_linear": _neural_linear,
        "variational_head": _variational_head,
    }


def _online_laplace() -> Check:
    """The prior's scale of linear regression with the greatest evidence, by MacKay's fixed point in NumPy."""
    import optax

    problem = problems.regression()
    algorithm = online_laplace(
        map_estimate(optax.lbfgs()), OneScale(), Dense, burn_in=0, evidence_update_period=1, rate=0.05
    )
    rows = (problem.x, problem.y)
    posterior: Any = fit(problem.objective.model, rows, algorithm, steps=60, batch_size=len(problem.y)).posterior
    precision = problem.precision
    for _ in range(500):
        mean, gram, _ = references.linear_regression(problem.design, problem.y, problem.scale, precision)
        held = len(mean) - precision * np.trace(np.linalg.inv(gram))
        precision = held / (mean @ mean)
    _, _, evidence = references.linear_regression(problem.design, problem.y, problem.scale, precision)
    found = -2 * float(jnp.log(posterior.model.prior.scale))
    deviation = max(abs(found - np.log(precision)), abs(float(posterior.evidence) - evidence))
    words = "linear regression: MacKay's fixed point of the prior's scale, and its evidence"
    return Check("online_laplace", words, float(deviation), 1e-6)


def _neural_linear() -> Check:
    """Normal-Gamma regression by hand in NumPy, the rows in two parts."""
    import optax

    problem = problems.regression()
    model = Model(Linear(), Gaussian(), Normal(problem.precision**-0.5))
    algorithm = neural_linear(map_estimate(optax.lbfgs()), prior_rows=4.0)
    objective = replace(problem.objective, model=model)
    batch = Batch.of(problem.x, problem.y)
    state = algorithm.init(jax.random.key(0), objective, batch)
    for t in range(5):
        state, _ = algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)
    noise = float(np.exp(2 * state.params["likelihood"]["log_scale"][0]))
    first = Arrays.of((problem.x[:12], problem.y[:12]))
    half = replace(objective, data_size=12.0)
    posterior: Any = algorithm.posterior(jax.random.key(2), state, half, first, None)
    belief: Any = absorb(posterior, (problem.x[12:], problem.y[12:])).belief
    design, y = problem.design, problem.y
    precision = problem.precision * noise * np.eye(design.shape[1]) + design.T @ design
    mean = np.linalg.solve(precision, design.T @ y)
    shape, rate = 2.0 + len(y) / 2, 2.0 * noise + (y @ y - mean @ precision @ mean) / 2
    pairs = ((tree.ravel(belief.location)[0], mean), (belief.precision[0], precision))
    deviation = max(float(np.max(np.abs(np.asarray(a) - b))) for a, b in pairs)
    deviation = max(deviation, abs(float(belief.shape[0]) - shape), abs(float(belief.rate[0]) - rate))
    words = "Normal-Gamma regression by hand in NumPy, its rows absorbed in two parts"
    return Check("neural_linear", words, float(deviation), 1e-10)


def _variational_head() -> Check:
    """At the exact posterior of linear regression the bound is the evidence, and its gradient vanishes."""
    import optax

    problem = problems.regression()
    algorithm = variational_head(optax.sgd(1.0))
    batch = Batch.of(problem.x, problem.y)
    mean, gram, evidence = references.linear_regression(problem.design, problem.y, problem.scale, problem.precision)
    state = algorithm.init(jax.random.key(0), problem.objective, batch)
    root = np.linalg.cholesky(np.linalg.inv(gram))
    raw = np.tril(root, -1) + np.diag(np.log(np.diagonal(root)))
    unravel = tree.ravel(state.params["mean"])[1]
    state = replace(state, params={**state.params, "mean": unravel(jnp.asarray(mean)), "raw": jnp.asarray(raw)[None]})
    after, _ = algorithm.step(jax.random.key(1), state, batch, problem.objective)
    data = Arrays.of((problem.x, problem.y))
    found: Any = algorithm.posterior(jax.random.key(2), state, problem.objective, data, None).evidence
    moved = tree.ravel(tree.add(after.params, state.params, -1.0))[0]
    deviation = max(float(jnp.max(jnp.abs(moved))), abs(float(found) - evidence))
    words = "linear regression in closed form: a fixed point there, and its bound the evidence"
    return Check("variational_head", words, deviation, 1e-10)
