"""The check and the default fit of each recipe, against independent references. New ones are added here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.mirror import Hypentropy, mirror_descent
from lamu.algorithms.variational.variational_head import variational_head
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Categorical
from lamu.rule import hedge_step
from lamu_verification import problems, references
from lamu_verification.problems import Check
from lamu_verification.shipped_rows import GAUSSIAN, Shipped, exact_row

__all__ = ["POINTS", "recipe_checks", "recipe_fits"]

# Algorithms whose posterior is one point, or one point under random masks.
POINTS = {
    "em",
    "gradient_descent",
    "sgd",
    "adagrad",
    "rmsprop",
    "adam",
    "map_estimate",
    "invariant_map",
    "sam",
    "dropout",
    "mc_dropout",
    "straight_through",
    "igo",
    "mirror_descent",
}


def recipe_checks() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"variational_head": _variational_head, "mirror_descent": _mirror_descent}


def recipe_fits() -> dict[str, Callable[[], Shipped]]:
    """Returns the default fits by the public name of the algorithm; each is a function without arguments."""
    return {"variational_head": partial(exact_row, "variational_head", GAUSSIAN)}


def _mirror_descent() -> Check:
    """Checks twenty steps with two maps: regression by the hyperbolic entropy, and Hedge with its weights by hand."""
    problem, rate, beta = problems.regression(), 0.05, 0.5
    algorithm = mirror_descent(rate, Hypentropy(beta))
    batch = Batch.of(problem.x, problem.y)
    state = algorithm.init(jax.random.key(0), problem.objective, batch)
    theta, unravel = tree.ravel(state.params["network"])
    design = np.stack([np.asarray(_outputs(problem, unravel(row))) for row in jnp.eye(len(theta))], axis=1)
    theta, y, n = np.asarray(theta), np.asarray(problem.y), len(problem.y)
    for _ in range(20):
        state, _ = algorithm.step(jax.random.key(1), state, batch, problem.objective)
        gradient = design.T @ (design @ theta - y) / problem.scale**2 / n + problem.precision * theta / n
        theta = beta * np.sinh(np.arcsinh(theta / beta) - rate * gradient)
    deviation = float(np.max(np.abs(np.asarray(tree.ravel(state.params["network"])[0]) - theta)))
    belief, weights = Categorical(jnp.zeros(4)), np.full(4, 0.25)
    for losses in np.random.default_rng(0).uniform(size=(20, 4)):
        belief = hedge_step(belief, jnp.asarray(losses), 0.7)
        weights = weights * np.exp(-0.7 * losses)
        weights = weights / weights.sum()
    deviation = max(deviation, float(np.max(np.abs(np.asarray(belief.mean) - weights))))
    return Check("mirror_descent", "mirror descent and Hedge in NumPy, 20 steps", deviation, 1e-10)


def _outputs(problem: Any, weights: Any) -> Any:
    """Returns the outputs of a linear network at these weights."""
    return problem.objective.model.outputs({"network": weights, "likelihood": {}}, {}, jnp.asarray(problem.x))[0][:, 0]


def _variational_head() -> Check:
    """Checks that at the exact posterior of linear regression the bound is the evidence and its gradient vanishes."""
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
    change = tree.ravel(tree.add(after.params, state.params, -1.0))[0]
    deviation = max(float(jnp.max(jnp.abs(change))), abs(float(found) - evidence))
    words = "linear regression in closed form: a fixed point there, and its bound the evidence"
    return Check("variational_head", words, deviation, 1e-10)
