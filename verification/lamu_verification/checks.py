"""The checks, one per row of the table, each in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.blockwise import blocks
from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.ensembles.deep_ensemble import deep_ensemble
from lamu.algorithms.optimisers import adam, gradient_descent, map_estimate, sgd
from lamu.algorithms.post_hoc.laplace import laplace, last_layer
from lamu.algorithms.variational.online_newton import ivon, vogn, von
from lamu.base.compile_once import lenient
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Exact
from lamu.loop import fit
from lamu.mcmc.hamiltonian import nuts
from lamu.operators import Dense
from lamu.priors import Laplace
from lamu.protocol import Algorithm
from lamu.typing import State
from lamu_verification import problems, references
from lamu_verification.conjugate_rows import conjugate_rows
from lamu_verification.discrete_rows import discrete_rows
from lamu_verification.gaussian_rows import gaussian_rows, kronecker_rows, low_rank_rows
from lamu_verification.inference_rows import anchor_rows, graph_rows, program_rows
from lamu_verification.latent_rows import latent_rows
from lamu_verification.likelihood_rows import likelihood_rows
from lamu_verification.problems import Check, Problem, distance, flat
from lamu_verification.recipe_rows import recipe_checks
from lamu_verification.sampler_rows import sampler_rows, stochastic_rows
from lamu_verification.training_rows import (
    descent_rows,
    evidence_rows,
    filter_rows,
    iterate_rows,
    moment_rows,
    scale_rows,
)

__all__ = ["checks", "latent_checks", "likelihood_checks"]


def checks() -> dict[str, Callable[[], Check]]:
    """Returns the check of every algorithm by its public name; each is a function without arguments."""
    table = {
        "gradient_descent": _gradient_descent,
        "sgd": _sgd,
        "blocks": _blocks,
        "adam": _adam,
        "map_estimate": _map_estimate,
        "von": _von,
        "vogn": _vogn,
        "ivon": _ivon,
        "laplace": _laplace,
        "last_layer": _last_layer,
        "deep_ensemble": _deep_ensemble,
        "conjugate": _conjugate,
        "nuts": _nuts,
    }
    table |= gaussian_rows() | discrete_rows() | conjugate_rows() | graph_rows()
    table |= kronecker_rows() | low_rank_rows() | descent_rows()
    table |= filter_rows() | iterate_rows() | moment_rows()
    table |= stochastic_rows() | sampler_rows()
    table |= recipe_checks() | evidence_rows() | program_rows() | scale_rows()
    return {name: _in_double(check) for name, check in table.items()}


def likelihood_checks() -> dict[str, Callable[[], Check]]:
    """Returns the check of every likelihood and of the anchors, by name; each is a function without arguments."""
    return {name: _in_double(check) for name, check in (likelihood_rows() | anchor_rows()).items()}


def latent_checks() -> dict[str, Callable[[], Check]]:
    """Returns the checks of bounds, flows, locals and coders by public name; each is a function without arguments."""
    return {name: _in_double(check) for name, check in latent_rows().items()}


def _in_double(check: Callable[[], Check]) -> Callable[[], Check]:
    def run() -> Check:
        with jax.enable_x64(True):
            return check()

    return run


def _gradient_descent() -> Check:
    problem = problems.regression()
    design, batch = problem.design, Batch.of(problem.x, problem.y)

    def gradient(theta: np.ndarray) -> np.ndarray:
        data = design.T @ (design @ theta - problem.y) / problem.scale**2
        return (data + problem.precision * theta) / len(problem.y)

    start, after = _run(gradient_descent(0.05), problem, [batch] * 100)
    expected = references.gradient_descent(gradient, flat(start), rate=0.05, steps=100)
    return Check("gradient_descent", "NumPy by hand, 100 steps", distance(flat(after), expected), 1e-12)


def _sgd() -> Check:
    import optax

    return _against_optax("sgd", sgd(0.1, momentum=0.9), optax.sgd(0.1, momentum=0.9), "optax.sgd, momentum, 100 steps")


def _blocks() -> Check:
    import optax

    parts = blocks({"*kernel": sgd(0.1, momentum=0.9), "*": sgd(0.1, momentum=0.9)})
    return _against_optax("blocks", parts, optax.sgd(0.1, momentum=0.9), "optax.sgd on all of two blocks, 100 steps")


def _adam() -> Check:
    import optax

    return _against_optax("adam", adam(1e-2), optax.adam(1e-2), "optax.adam, 100 steps")


def _against_optax(name: str, algorithm: Algorithm, optimiser: Any, words: str) -> Check:
    import optax

    problem = problems.classes()
    batches = (problem.batches(16) * 25)[:100]
    start, after = _run(algorithm, problem, batches)
    state, params = optimiser.init(start), start
    loss = jax.jit(jax.grad(lambda params, batch: problem.objective.mean_loss(params, batch, {})[0]))
    for batch in batches:
        with lenient():
            updates, state = optimiser.update(loss(params, batch), state, params)
        params = optax.apply_updates(params, updates)
    return Check(name, words, distance(flat(after), flat(params)), 1e-12)


def _map_estimate() -> Check:
    import optax

    problem = problems.regression()
    _, after = _run(map_estimate(optax.lbfgs()), problem, [Batch.of(problem.x, problem.y)] * 40)
    mean, _, _ = references.linear_regression(problem.design, problem.y, problem.scale, problem.precision)
    deviation = max(distance(flat(after), mean), _lasso_distance(problem))
    return Check("map_estimate", "ridge regression in closed form; scikit-learn's Lasso, same zeros", deviation, 1e-6)


def _lasso_distance(problem: Problem) -> float:
    """Returns the largest difference of a weight from the Lasso's, or infinity if the supports differ."""
    import optax
    from sklearn.linear_model import Lasso

    rows, alpha = len(problem.y), 0.5
    prior = Laplace(problem.scale**2 / (alpha * rows))
    model = replace(problem.objective.model, prior=prior)
    other = replace(problem, objective=replace(problem.objective, model=model))
    _, after = _run(map_estimate(optax.lbfgs()), other, [Batch.of(problem.x, problem.y)] * 60)
    lasso = Lasso(alpha=alpha, fit_intercept=False, tol=1e-14, max_iter=100_000).fit(problem.design, problem.y)
    weights = np.asarray(flat(after))
    same = np.array_equal(weights == 0, lasso.coef_ == 0) and 0 < np.count_nonzero(weights) < len(weights)
    return distance(weights, lasso.coef_) if same else float("inf")


def _von() -> Check:
    problem = problems.regression()
    posterior = _whole(problem, von(0.5, Dense, Exact()), steps=60)
    deviation = _gaussian_distance(posterior, problem)
    return Check("von", "linear regression in closed form, mean and precision", deviation, 1e-6)


def _laplace() -> Check:
    import optax

    problem = problems.regression()
    posterior = _whole(problem, laplace(optimizer=map_estimate(optax.lbfgs()), structure=Dense), steps=60)
    deviation = max(_gaussian_distance(posterior, problem), abs(float(posterior.evidence) - _expected(problem)[2]))
    return Check("laplace", "linear regression in closed form, with evidence", deviation, 1e-6)


def _last_layer() -> Check:
    import optax

    # A linear network is its own last layer.
    problem = problems.regression()
    algorithm = last_layer(optimizer=map_estimate(optax.lbfgs()))
    posterior = _whole(problem, algorithm, steps=60)
    deviation = max(_gaussian_distance(posterior, problem), abs(float(posterior.evidence) - _expected(problem)[2]))
    return Check("last_layer", "linear regression in closed form, with evidence", deviation, 1e-6)


def _deep_ensemble() -> Check:
    """Each member is a separate run of optax's Adam from its own initial values, which all differ."""
    import optax

    problem, key, count = problems.classes(), jax.random.key(0), 3
    batches = (problem.batches(16) * 5)[:20]
    algorithm = deep_ensemble(adam(1e-2), members=count)
    state, step = algorithm.init(key, problem.objective, batches[0]), jax.jit(algorithm.step)
    starts = [jax.tree.map(lambda leaf, k=k: leaf[k], state.mean) for k in range(count)]
    apart = min(distance(flat(starts[a]), flat(starts[b])) for a in range(count) for b in range(a))
    for t, batch in enumerate(batches):
        state, _ = step(jax.random.fold_in(jax.random.key(1), t), state, batch, problem.objective)
    gradient = jax.jit(jax.grad(lambda params, batch: problem.objective.mean_loss(params, batch, {})[0]))
    deviation = 0.0 if apart > 0.1 else float("inf")
    for k, params in enumerate(starts):
        optimiser = optax.adam(1e-2)
        memory = optimiser.init(params)
        for batch in batches:
            with lenient():
                updates, memory = optimiser.update(gradient(params, batch), memory, params)
            params = optax.apply_updates(params, updates)
        weights = flat(jax.tree.map(lambda leaf, k=k: leaf[k], state.mean))
        deviation = max(deviation, distance(weights, flat(params)))
    return Check("deep_ensemble", "optax.adam from each member's own start, 20 steps", deviation, 1e-12)


def _conjugate() -> Check:
    problem = problems.regression()
    posterior = fit(problem.objective.model, (problem.x, problem.y), conjugate(), batch_size=7).posterior
    evidence = _expected(problem)[2]
    deviation = max(_gaussian_distance(posterior, problem), abs(float(posterior.evidence) - evidence))
    return Check("conjugate", "linear regression in closed form, with evidence", deviation, 1e-10)


def _nuts() -> Check:
    problem = problems.regression()
    sampler = nuts(chains=4, warmup=300, draws=500)
    posterior = fit(problem.objective.model, (problem.x, problem.y), sampler, seed=1).posterior
    draws = jax.vmap(jax.vmap(lambda params: tree.ravel(params)[0]))(posterior.samples)
    mean, precision, _ = _expected(problem)
    z = _z_scores(np.asarray(draws), mean, np.sqrt(np.diagonal(np.linalg.inv(precision))))
    # Four means: the largest of four standard normals exceeds 4 once in 4,000 runs; the seed is fixed.
    return Check("nuts", "linear regression in closed form, means in standard errors", z, 4.0)


def _ivon() -> Check:
    return _against_hand("ivon", ivon, references.ivon_logistic)


def _vogn() -> Check:
    return _against_hand("vogn", vogn, references.vogn_logistic)


def _against_hand(name: str, make: Callable[..., Any], by_hand: Callable[..., Any]) -> Check:
    """Returns 20 steps compared with the same steps by hand, with the same draws; some batches are padded."""
    problem, rate, b1, b2, hess_init, max_step = problems.logistic(), 0.1, 0.8, 0.95, 0.3, 0.2
    algorithm = make(rate, b1, b2, hess_init=hess_init, max_step=max_step)
    batches = (problem.batches(16) * 7)[:20]
    keys = [jax.random.fold_in(jax.random.key(3), t) for t in range(20)]
    state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    start = flat(state.mean)
    # The reference gets the algorithm's draws, so its keys are copied on purpose.
    noises = [flat(tree.normal(jax.random.split(jax.random.clone(key))[0], state.mean)) for key in keys]
    step = jax.jit(algorithm.step)
    for key, batch in zip(keys, batches, strict=True):
        state, _ = step(key, state, batch, problem.objective)
    real = [np.asarray(batch.mask) > 0 for batch in batches]
    plain = [
        (np.column_stack([np.ones(kept.sum()), np.asarray(batch.x)[kept]]), np.asarray(batch.y)[kept])
        for kept, batch in zip(real, batches, strict=True)
    ]
    rows = len(problem.y)
    mean, h = by_hand(plain, noises, start, rows, problem.precision, rate, b1, b2, hess_init, max_step)
    curvature = flat(state.precision.values) - problem.precision / rows
    deviation = max(distance(flat(state.mean), mean), distance(curvature, h))
    return Check(name, "NumPy by hand on logistic regression, 20 steps", deviation, 1e-12)


def _run(algorithm: Algorithm, problem: Problem, batches: list[Batch]) -> tuple[Any, Any]:
    """Returns the parameters before and after one step per batch."""
    key = jax.random.key(0)
    state = algorithm.init(key, problem.objective, batches[0])
    start = _params(algorithm, state, problem)
    step = jax.jit(algorithm.step)
    for t, batch in enumerate(batches):
        state, _ = step(jax.random.fold_in(key, t), state, batch, problem.objective)
    return start, _params(algorithm, state, problem)


def _whole(problem: Problem, algorithm: Algorithm, steps: int) -> Any:
    """Returns the posterior after some full-batch steps."""
    rows = (problem.x, problem.y)
    return fit(problem.objective.model, rows, algorithm, steps=steps, batch_size=len(problem.y)).posterior


def _params(algorithm: Algorithm, state: State, problem: Problem) -> Any:
    data = Arrays.of((problem.x, problem.y))
    return algorithm.posterior(jax.random.key(0), state, problem.objective, data, None).mean


def _expected(problem: Problem) -> tuple[np.ndarray, np.ndarray, float]:
    temperature = float(problem.objective.temperature)
    return references.linear_regression(problem.design, problem.y, problem.scale, problem.precision, temperature)


def _gaussian_distance(posterior: Any, problem: Problem) -> float:
    mean, precision, _ = _expected(problem)
    belief = posterior.belief.factors["network"]
    return max(distance(flat(belief.mean), mean), distance(np.asarray(belief.precision.dense(belief.mean)), precision))


def _z_scores(draws: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> float:
    """Returns the largest error of a mean in standard errors, with the effective sample size of ArviZ."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notice about the next version of ArviZ at import
        import arviz

    size = np.array([float(arviz.ess(draws[..., i])) for i in range(draws.shape[-1])])
    return float(np.max(np.abs(draws.mean(axis=(0, 1)) - mean) / (deviation / np.sqrt(size))))
