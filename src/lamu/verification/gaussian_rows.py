"""The checks of the Gaussian rows, each in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.optimisers.adagrad import adagrad
from lamu.algorithms.optimisers.newton import newton
from lamu.algorithms.optimisers.rmsprop import rmsprop
from lamu.algorithms.optimisers.sam import sam
from lamu.algorithms.variational.bsam import bsam
from lamu.algorithms.variational.lie_group import lie_group
from lamu.algorithms.variational.ogn import ogn
from lamu.data.batch import Batch
from lamu.dtype_policy import lenient
from lamu.expectations import FenchelRelaxation
from lamu.geometry import Affine, Straight
from lamu.objective.curvature import Damped, RootScaledGradient
from lamu.protocol import Algorithm
from lamu.update_rules import PlainAverage
from lamu.verification import gaussian_references as references
from lamu.verification import problems
from lamu.verification.check import Check
from lamu.verification.problems import Problem
from lamu.verification.vectors import distance, flat

__all__ = ["gaussian_rows"]

STEPS = 20


def gaussian_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {
        "newton": _newton,
        "rmsprop": _rmsprop,
        "adagrad": _adagrad,
        "sam": _sam,
        "ogn": _ogn,
        "bsam": _bsam,
        "lie_group": _lie_group,
    }


def _newton() -> Check:
    problem = problems.logistic()
    whole = [Batch.of(problem.x, problem.y)] * 6
    start, state = _walk(newton(), problem, whole)
    expected = references.newton(_plain(whole), flat(start.mean), len(problem.y), problem.precision)
    precision = np.asarray(state.precision.dense(state.mean)) * len(problem.y)
    deviation = max(distance(flat(state.mean), expected[0]), distance(precision, expected[1]))
    return Check("newton", "NumPy by hand on logistic regression, iterate and Hessian, 6 steps", deviation, 1e-10)


def _rmsprop() -> Check:
    import optax

    return _beside_optax("rmsprop", rmsprop(1e-2), optax.rmsprop(1e-2), "optax.rmsprop, 100 steps")


def _adagrad() -> Check:
    import optax

    return _beside_optax("adagrad", adagrad(0.1), optax.adagrad(0.1), "optax.adagrad, 100 steps")


def _sam() -> Check:
    problem, batches = _logistic()
    start, state = _walk(sam(0.3, radius=0.2, momentum=0.5), problem, batches)
    point = references.sam(
        _plain(batches), flat(start.mean), len(problem.y), problem.precision, rate=0.3, radius=0.2, momentum=0.5
    )
    return Check(
        "sam", f"NumPy by hand on logistic regression, {STEPS} steps", distance(flat(state.mean), point), 1e-12
    )


def _ogn() -> Check:
    problem, batches = _logistic()
    start, state = _walk(ogn(0.1, 0.8, 0.95, hess_init=0.3, max_step=0.3), problem, batches)
    rows, precision = len(problem.y), problem.precision
    mean, h = references.ogn(_plain(batches), flat(start.mean), rows, precision, 0.1, 0.8, 0.95, 0.3, 0.3)
    found = flat(state.precision.values) - precision / rows
    deviation = max(distance(flat(state.mean), mean), distance(found, h))
    return Check("ogn", f"NumPy by hand on logistic regression, {STEPS} steps", deviation, 1e-12)


def _bsam() -> Check:
    problem, batches = _logistic()
    paper = bsam(
        0.1,
        b2=0.95,
        radius=0.1,
        hess_init=0.3,
        max_step=None,
        curvature=Damped(RootScaledGradient(), 0.2),
        geometry=Straight(),
        expectation=FenchelRelaxation,
        momentum=PlainAverage(0.8),
    )
    start, state = _walk(paper, problem, batches)
    # The reference is given the very draws of the algorithm, so its keys are copies, on purpose.
    noises = [flat(tree.normal(jax.random.split(jax.random.clone(key), 3)[0], start.mean)) for key in _keys()]
    mean, s = references.bsam(
        _plain(batches), noises, flat(start.mean), len(problem.y), problem.precision, 0.1, 0.8, 0.95, 0.1, 0.2, 0.3
    )
    deviation = max(distance(flat(state.mean), mean), distance(flat(state.precision.values), s))
    return Check("bsam", f"NumPy by hand on logistic regression, {STEPS} steps", deviation, 1e-12)


def _lie_group() -> Check:
    problem, batches = _logistic()
    start, state = _walk(lie_group(Affine(share=0.3), 0.2, momentum=0.8), problem, batches)
    shift = start.element.shift
    noises = [flat(tree.normal(jax.random.split(jax.random.clone(key))[0], shift)) for key in _keys()]
    b, a = references.affine_group(
        _plain(batches), noises, flat(shift), len(problem.y), problem.precision, rate=0.2, momentum=0.8, share=0.3
    )
    deviation = max(distance(flat(state.element.shift), b), distance(flat(state.element.scale), a))
    words = f"NumPy by hand, matrix exponential by its series, affine group, {STEPS} steps"
    return Check("lie_group", words, deviation, 1e-12)


def _logistic() -> tuple[Problem, list[Batch]]:
    problem = problems.logistic()
    return problem, (problem.batches(16) * 7)[:STEPS]


def _keys() -> list[Any]:
    return [jax.random.fold_in(jax.random.key(3), t) for t in range(STEPS)]


def _walk(algorithm: Algorithm, problem: Problem, batches: list[Batch]) -> tuple[Any, Any]:
    """Returns the states before and after one step a batch."""
    start = state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    step = jax.jit(algorithm.step)
    for key, batch in zip(_keys(), batches, strict=False):
        state, _ = step(key, state, batch, problem.objective)
    return start, state


def _plain(batches: list[Batch]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns design matrix and targets of the real rows of every batch."""
    found = []
    for batch in batches:
        real = np.asarray(batch.mask) > 0
        x = np.asarray(batch.x)[real]
        found.append((np.column_stack([np.ones(len(x)), x]), np.asarray(batch.y)[real]))
    return found


def _beside_optax(name: str, algorithm: Any, optimiser: Any, words: str) -> Check:
    import optax

    problem = problems.classes()
    batches = (problem.batches(16) * 25)[:100]
    first = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    state, params = first, first.mean
    memory = optimiser.init(params)
    step = jax.jit(algorithm.step)
    gradient = jax.jit(jax.grad(lambda params, batch: problem.objective.mean_loss(params, batch, {})[0]))
    for t, batch in enumerate(batches):
        state, _ = step(jax.random.fold_in(jax.random.key(3), t), state, batch, problem.objective)
        with lenient():
            updates, memory = optimiser.update(gradient(params, batch), memory, params)
        params = optax.apply_updates(params, updates)
    return Check(name, words, distance(flat(state.mean), flat(params)), 1e-12)
