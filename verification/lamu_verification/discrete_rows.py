"""Checks of binary weights, dropout, mixtures and black-box search, against classics in NumPy or on a grid."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.black_box import igo
from lamu.algorithms.discrete import Masked, bayesbinn, dropout, mc_dropout, straight_through
from lamu.algorithms.ensembles.mixture import mixture
from lamu.algorithms.mixtures import mixture_vi, multimodal
from lamu.algorithms.optimisers import sgd
from lamu.algorithms.variational.online_newton import ogn
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.density import LogDensity, nothing
from lamu.expectations import Enumeration, Relaxed
from lamu.families import Binary, Point
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.networks.normalisation import Dropout
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.priors import Normal
from lamu.rate import Annealed, Constant, over
from lamu.target import Target
from lamu.typing import Inputs, State
from lamu_verification import gaussian_references as references
from lamu_verification import problems
from lamu_verification.problems import Check, distance, flat

__all__ = ["discrete_rows"]

MODES = np.array([[3.0, 2.0], [-2.805118, 3.131312], [-3.779310, -3.283186], [3.584428, -1.848126]])


def discrete_rows() -> dict[str, Any]:
    """Returns the checks by the public names of the algorithms."""
    return {
        "straight_through": _straight_through,
        "bayesbinn": _bayesbinn,
        "dropout": _dropout,
        "mc_dropout": _mc_dropout,
        "multimodal": _multimodal,
        "mixture_vi": _mixture_vi,
        "mixture": _mixture,
        "igo": _igo,
    }


def _straight_through() -> Check:
    """Checks a logistic regression with binary weights for twenty steps on minibatches."""
    problem = problems.logistic()
    model = replace(problem.objective.model, network=Linear(bias=False))
    objective = replace(problem.objective, model=model)
    algorithm = straight_through(0.5)
    batches = (problem.batches(16) * 7)[:20]
    state, step = algorithm.init(jax.random.key(0), objective, batches[0]), jax.jit(algorithm.step)
    a_row = lambda state: tree.scale(state.belief.half_logit, 1 / objective.concentration)
    latent = np.asarray(tree.ravel(a_row(state))[0])
    for t, batch in enumerate(batches):
        state, _ = step(jax.random.key(t), state, batch, objective)
        real = np.asarray(batch.mask) > 0
        x, y = np.asarray(batch.x)[real], np.asarray(batch.y)[real]
        probability = 1 / (1 + np.exp(-x @ np.where(latent >= 0, 1.0, -1.0)))
        latent = latent - 0.5 * x.T @ (probability - y) / len(y)
    return Check(
        "straight_through",
        "NumPy by hand on logistic regression, 20 steps",
        distance(flat(a_row(state)), latent),
        1e-12,
    )


def _bayesbinn() -> Check:
    """Checks the fixed point by enumeration of the corners, and the mean of a relaxed step over keys by quadrature."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(12, 3))
    y = x @ np.array([1.0, -1.0, 1.0]) + 2.0 * generator.normal(size=12)
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
    energy = ((y[:, None] - x @ corners.T) ** 2).sum(axis=0) / 8.0
    natural = np.zeros(3)
    for _ in range(300):
        for i in range(3):
            others = np.delete((1 + corners * np.tanh(natural)) / 2, i, axis=1).prod(axis=1)
            natural[i] = -(others * energy * corners[:, i]).sum() / 2
    algorithm = replace(bayesbinn(Constant(0.3)), expectation=Enumeration())
    objective, batch = Objective(Model(Linear(bias=False), Gaussian(scale=2.0)), 12.0), Batch.of(x, y)
    state = algorithm.init(jax.random.key(0), objective, batch)
    body = lambda state, t: (algorithm.step(jax.random.key(0), state, batch, objective)[0], None)
    state = jax.jit(lambda state: jax.lax.scan(body, state, None, length=300)[0])(state)
    fixed = distance(flat(state.belief.half_logit), natural)
    error = max(_step_off(objective, batch, state, relaxed) for relaxed in (False, True))
    words = "three signs: the enumerated mean-field belief (1e-8), and mean steps by quadrature (4.5 errors)"
    return Check("bayesbinn", words, max(fixed / 1e-8, error / 4.5), 1.0)


def _step_off(objective: Objective, batch: Batch, state: State, relaxed: bool) -> float:
    """Returns the error of the mean of a step of `bayesbinn`, in standard errors."""
    # The loss is quadratic in the weights and the signs are independent, so that the expectation of a difference is
    # known, and that of a relaxed slope times gradient consists of integrals over one uniform number.
    algorithm = bayesbinn(Constant(0.3), Relaxed(0.5, floor=0.1) if relaxed else None, leaves=("*",))
    natural = np.array([0.4, -0.2, 0.1])
    start = replace(state, belief=Binary(tree.ravel(state.belief.half_logit)[1](jnp.asarray(natural))))
    keys = jax.random.split(jax.random.key(11), 40_000)
    after = lambda key: algorithm.step(key, start, batch, objective)[0].belief.half_logit
    ends = np.asarray(jax.jit(jax.vmap(lambda key: tree.ravel(after(key))[0]))(keys))
    x, y = np.asarray(batch.x), np.asarray(batch.y)
    gram, cross = x.T @ x / 4.0, x.T @ y / 4.0
    if relaxed:
        u = (np.arange(200_000) + 0.5) / 200_000
        theta = np.tanh((natural[:, None] + 0.5 * np.log(u / (1 - u))) / 0.5)
        slope = (1 - theta**2 + 0.1) / (0.5 * (1 - np.tanh(natural)[:, None] ** 2 + 0.1))
        means, slopes, products = theta.mean(1), slope.mean(1), (slope * theta).mean(1)
        gradient = slopes * (gram @ means - cross - np.diagonal(gram) * means) + np.diagonal(gram) * products
    else:
        gradient = gram @ np.tanh(natural) - np.diagonal(gram) * np.tanh(natural) - cross
    expected = (1 - 0.3) * natural - 0.3 * gradient
    return float(np.max(np.abs(ends.mean(0) - expected) / (ends.std(0) / np.sqrt(len(keys)))))


def _noisy(rate: float) -> tuple[Model, Any, Any, np.ndarray]:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    model = Model(MLP((5,), "tanh", dropout=Dropout(rate)), Gaussian(scale=1.0), Normal(2.0))
    params, _ = model.init(jax.random.key(1), Batch.of(x, jnp.zeros(4)))
    first = params["network"]["layers"][0]
    hidden = np.tanh(np.asarray(x @ first["kernel"] + first["bias"][None]))
    return model, params, x, hidden


def _dropout() -> Check:
    """Checks the last layer's gradient by hand, under the step's masks."""
    model, params, x, hidden = _noisy(0.2)
    objective, batch = Objective(model, 4.0), Batch.of(x, jnp.arange(4.0))
    algorithm, key = dropout(sgd(0.1)), jax.random.key(3)
    state = algorithm.init(jax.random.key(1), objective, batch)
    after, _ = algorithm.step(key, state, batch, objective)
    masked = hidden * np.asarray(Dropout(0.2).apply(jnp.ones((4, 5)), jax.random.fold_in(jax.random.clone(key), 0)))
    last = params["network"]["layers"][1]
    kernel, bias = np.asarray(last["kernel"]), np.asarray(last["bias"])
    residuals = masked @ kernel + bias - np.arange(4.0)[:, None]
    expected = kernel - 0.1 * (masked.T @ residuals / 4 + kernel / 4.0 / 4)
    moved = after.mean["network"]["layers"][1]["kernel"]
    return Check(
        "dropout", "the last layer's step by hand under the same masks", distance(flat(moved), expected.ravel()), 1e-12
    )


def _mc_dropout() -> Check:
    """Checks the variance of the outputs, which are linear in the masks of the last hidden layer."""
    model, params, x, hidden = _noisy(0.2)
    assert isinstance(mc_dropout().rule, Masked)
    posterior = Posterior(model, Point(params), {}, mc_dropout().rule, jax.random.key(2))
    pred: Any = posterior.predict(x, samples=4096)
    f = np.asarray(pred.f)[:, :, 0]
    terms = hidden * np.asarray(params["network"]["layers"][1]["kernel"])[:, 0]
    variance = 0.25 * (terms**2).sum(axis=1)
    mean = terms.sum(axis=1) + np.asarray(params["network"]["layers"][1]["bias"])
    z = np.max(np.abs(f.mean(axis=0) - mean) / np.sqrt(variance / 4096))
    # The variance of binary masks has a relative standard error of about 1.5/√4096.
    spread = np.max(np.abs(f.var(axis=0) / variance - 1)) * 64 / 1.5
    return Check("mc_dropout", "mean and variance in closed form, in standard errors", float(max(z, spread)), 4.5)


def _himmelblau(x: Inputs) -> Any:
    return (x[0] ** 2 + x[1] - 11.0) ** 2 + (x[0] + x[1] ** 2 - 7.0) ** 2


def _multimodal() -> Check:
    result = _run(multimodal(0.05, components=16), LogDensity(lambda x: -_himmelblau(x), jnp.zeros(2)), 300)
    distance = np.linalg.norm(np.asarray(result.mean)[:, None] - MODES, axis=-1)
    words = "the four minima of Himmelblau's function, the farthest from a component"
    return Check("multimodal", words, float(distance.min(axis=0).max()), 0.3)


def _mixture_vi() -> Check:
    """Checks the negative evidence bound on a grid in one dimension against −log Z: the remaining divergence."""
    wells = lambda x: 2.0 * (x[0] ** 2 - 1.0) ** 2 + 0.5 * x[0]
    algorithm = over(400, mixture_vi(Annealed(0.1), components=4, samples=4))
    state = _run(algorithm, LogDensity(lambda x: -wells(x), jnp.zeros(1)), 400)
    q = algorithm.belief(state, Objective(LogDensity(lambda x: -wells(x), jnp.zeros(1)), 1.0))
    grid = jnp.linspace(-5.0, 5.0, 4001)[:, None]
    cell, log_p = 10.0 / 4000, -np.asarray(jax.vmap(wells)(grid))
    log_p = log_p - np.log(np.exp(log_p).sum() * cell)
    log_q = np.asarray(jax.vmap(q.log_prob)(grid))
    divergence = float((np.exp(log_q) * (log_q - log_p)).sum() * cell)
    return Check("mixture_vi", "a double well, KL(q || p) in nats on a grid", abs(divergence), 0.05)


def _mixture() -> Check:
    """Checks the density of the mixture against three runs of OGN in NumPy, which draws nothing."""
    problem = problems.logistic()
    algorithm = mixture(ogn(0.1, 0.8, 0.95, hess_init=0.3, max_step=0.3), components=3)
    batches = (problem.batches(16) * 7)[:20]
    state, step = algorithm.init(jax.random.key(0), problem.objective, batches[0]), jax.jit(algorithm.step)
    starts = [np.asarray(tree.ravel(jax.tree.map(lambda leaf, k=k: leaf[k], state.mean))[0]) for k in range(3)]
    for t, batch in enumerate(batches):
        state, _ = step(jax.random.fold_in(jax.random.key(1), t), state, batch, problem.objective)
    data = Arrays.of((problem.x, problem.y))
    belief: Any = algorithm.posterior(jax.random.key(9), state, problem.objective, data, None).belief
    rows, plain = len(problem.y), []
    for batch in batches:
        real = np.asarray(batch.mask) > 0
        plain.append((np.column_stack([np.ones(real.sum()), np.asarray(batch.x)[real]]), np.asarray(batch.y)[real]))
    runs = [references.ogn(plain, start, rows, problem.precision, 0.1, 0.8, 0.95, 0.3, 0.3) for start in starts]
    unravel = tree.ravel(belief.sample(jax.random.key(8))["network"])[1]
    deviation = 0.0
    for point in (runs[0][0], runs[1][0] + 0.1, (runs[0][0] + runs[2][0]) / 2):
        densities = []
        for mean, curvature in runs:
            precision = rows * curvature + problem.precision
            densities.append(np.prod(np.sqrt(precision / (2 * np.pi)) * np.exp(-precision * (point - mean) ** 2 / 2)))
        found = float(belief.factors["network"].log_prob(unravel(jnp.asarray(point))))
        deviation = max(deviation, abs(found - float(np.log(np.mean(densities)))))
    return Check(
        "mixture", "the average density of three runs of OGN by hand, 20 steps, at three points", deviation, 1e-9
    )


def _igo() -> Check:
    """Checks one step of the mean against xNES (Glasmachers et al. 2010) on its draws, in its root coordinates."""
    generator = np.random.default_rng(2)
    root, mean = np.tril(generator.normal(size=(3, 3))) + 2 * np.eye(3), generator.normal(size=3)
    loss = lambda x: jnp.sum(jnp.abs(x - 1.0)) + x[0] * x[1]
    density, algorithm = LogDensity(lambda x: -loss(x), jnp.asarray(mean)), igo(1.0, 1e-4, samples=8)
    objective, batch = Objective(density, 1.0), Batch.of(*nothing())
    state = algorithm.init(jax.random.key(0), objective, batch)
    state = replace(state, precision=replace(state.precision, matrix=jnp.linalg.inv(jnp.asarray(root @ root.T))))
    key = jax.random.key(3)
    after, _ = algorithm.step(key, state, batch, objective)
    belief = algorithm.search(state)
    draws = np.asarray(belief.draws(jax.random.split(jax.random.clone(key))[0], 8)["network"])
    noise, losses = np.linalg.solve(root, (draws - mean).T).T, np.array([float(loss(x)) for x in draws])
    raw = np.maximum(0.0, np.log(5.0) - np.log(np.arange(1, 9)))
    u = np.empty(8)
    u[np.argsort(losses)] = raw / raw.sum() - 1 / 8
    matrix = sum(w * (np.outer(s, s) - np.eye(3)) for w, s in zip(u, noise, strict=True))
    covariance = (np.linalg.inv(np.asarray(after.precision.matrix)) - root @ root.T) / 1e-4
    deviation = max(
        distance(flat(after.mean["network"]), mean + root @ (u @ noise)),
        1e-3 * float(np.max(np.abs(covariance - root @ matrix @ root.T))),
    )
    # The change of the covariance divided by the rate, for a small rate, agrees to first order.
    return Check("igo", "xNES's natural gradient on the same draws", deviation, 1e-5)


def _run(algorithm: Any, density: Target, steps: int) -> Any:
    objective, batch = Objective(density, 1.0), Batch.of(*nothing())
    state = algorithm.init(jax.random.key(0), objective, batch)
    body = lambda state, t: (algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)[0], None)
    return jax.jit(lambda state: jax.lax.scan(body, state, jnp.arange(steps))[0])(state)
