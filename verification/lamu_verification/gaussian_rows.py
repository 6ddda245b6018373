"""The checks of the Gaussian algorithms, each in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.optimisers import adagrad, kfac, newton, rmsprop, sam
from lamu.algorithms.variational.lie_group import lie_group
from lamu.algorithms.variational.online_newton import bsam, noisy_kfac, ogn, slang
from lamu.base.compile_once import lenient
from lamu.data.batch import Batch
from lamu.expectations import FenchelRelaxation
from lamu.geometry import Affine, Straight
from lamu.objective.curvature import Damped, GaussNewton, RootScaledGradient
from lamu.protocol import Algorithm
from lamu.update_rules import PlainAverage
from lamu_verification import gaussian_references as references
from lamu_verification import problems
from lamu_verification.problems import Check, Problem, distance, flat

__all__ = ["gaussian_rows", "kronecker_rows", "low_rank_rows"]


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
    batches = [Batch.of(problem.x, problem.y)] * 6
    start, state = _walk(newton(), problem, batches)
    expected = references.newton(_plain(batches), flat(start.mean), len(problem.y), problem.precision)
    precision = np.asarray(state.precision.dense(state.mean)) * len(problem.y)
    deviation = max(distance(flat(state.mean), expected[0]), distance(precision, expected[1]))
    words = "NumPy by hand on logistic regression, iterate and Hessian, 6 steps; a network's minimum by SciPy's BFGS"
    return Check("newton", words, max(deviation, _below_newton()), 1e-10)


def _below_newton() -> float:
    """Returns how far BFGS descends below the end of Newton's method on a network, in nats per row, from nearby."""
    from scipy.optimize import minimize

    problem = problems.classes()
    batch = Batch.of(problem.x, problem.y)
    state, step = newton().init(jax.random.key(4), problem.objective, batch), jax.jit(newton().step)
    for _ in range(80):
        state, _ = step(jax.random.key(5), state, batch, problem.objective)
    end, unravel = tree.ravel(state.mean)
    loss = lambda z: problem.objective.mean_loss({"network": unravel(z), "likelihood": {}}, batch, {})[0]
    values = jax.jit(jax.value_and_grad(loss))
    nearby = np.asarray(end) + 0.01 * np.random.default_rng(0).normal(size=end.shape)
    best = minimize(lambda z: tuple(np.asarray(part) for part in values(z)), nearby, jac=True, method="BFGS", tol=1e-9)
    return abs(float(loss(end)) - best.fun)


def _rmsprop() -> Check:
    import optax

    return _against_optax("rmsprop", rmsprop(1e-2), optax.rmsprop(1e-2), "optax.rmsprop, 100 steps")


def _adagrad() -> Check:
    import optax

    return _against_optax("adagrad", adagrad(0.1), optax.adagrad(0.1), "optax.adagrad, 100 steps")


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
    curvature = flat(state.precision.values) - precision / rows
    deviation = max(distance(flat(state.mean), mean), distance(curvature, h))
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
    # The reference gets the algorithm's draws, so its keys are copied on purpose.
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
    """Returns the states before and after one step per batch."""
    start = state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    step = jax.jit(algorithm.step)
    for key, batch in zip(_keys(), batches, strict=False):
        state, _ = step(key, state, batch, problem.objective)
    return start, state


def _plain(batches: list[Batch]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns design matrix and targets of the real rows of every batch."""
    pairs = []
    for batch in batches:
        real = np.asarray(batch.mask) > 0
        x = np.asarray(batch.x)[real]
        pairs.append((np.column_stack([np.ones(len(x)), x]), np.asarray(batch.y)[real]))
    return pairs


def _against_optax(name: str, algorithm: Any, optimiser: Any, words: str) -> Check:
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


# The rule's own step at rate one: without averages, damping, clipping or delayed updates.
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
    """Checks the precision after a step, and its mean over keys against the posterior's, with the scatter of draws."""
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
    error = np.max(np.abs(ends.mean(0) - mean) / (width / np.sqrt(len(keys))))
    # The variance of n normal numbers has a relative standard error of √(2/n).
    unlike = np.max(np.abs(ends.var(0) / width**2 - 1)) / np.sqrt(2 / len(keys))
    words = "linear regression: precision of one step (1e-10), mean and scatter over 4,000 keys (4.5 standard errors)"
    return Check("noisy_kfac", words, max(deviation / 1e-10, float(error) / 4.5, float(unlike) / 4.5), 1.0)


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
        # The reference gets the algorithm's draws, so its keys are copied on purpose.
        noise = flat(tree.normal(jax.random.split(jax.random.clone(key))[0], state.mean))
        state, _ = step(key, state, batch, problem.objective)
        root = np.diag(d**-0.5)
        theta = m + root @ _power(np.eye(len(m)) + root @ u @ u.T @ root, -0.5) @ noise / np.sqrt(rows)
        gradients = _gradients(batch, theta)
        leading = _leading(gradients.T @ gradients / len(gradients), 2)
        total = 0.9 * (u @ u.T + np.diag(d)) + 0.1 * (gradients.T @ gradients / len(gradients) + prior * np.eye(len(m)))
        u = _leading(0.9 * u @ u.T + 0.1 * leading @ leading.T, 2)
        d = np.diagonal(total) - np.sum(u**2, axis=1)
        v = 0.8 * v + 0.2 * gradients.mean(0)
        direction = np.linalg.solve(u @ u.T + np.diag(d), v / (1 - 0.8 ** (t + 1)) + prior * m)
        m = m - 0.1 * np.clip(direction, -0.3, 0.3)
    precision = np.asarray(state.precision.dense(state.mean))
    deviation = max(np.max(np.abs(flat(state.mean) - m)), np.max(np.abs(precision - u @ u.T - np.diag(d))))
    words = f"NumPy by hand with whole matrices, rank 2, on logistic regression, {STEPS} steps"
    return Check("slang", words, float(deviation), 1e-10)


def _gradients(batch: Batch, theta: np.ndarray) -> np.ndarray:
    """Returns the gradient of the negative log likelihood for every real row."""
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
