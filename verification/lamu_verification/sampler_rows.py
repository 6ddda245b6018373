"""The checks of the full-batch samplers, each in float64, with the same noise by hand or in BlackJAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.data.batch import Batch
from lamu.loop import fit
from lamu.mcmc.chains import LogTarget
from lamu.mcmc.hamiltonian import hmc
from lamu.mcmc.metropolis import RandomWalk, mala, random_walk, ula
from lamu.mcmc.step_sizes import Polynomial, RootMeanSquare
from lamu.mcmc.stochastic_gradient import psgld, sghmc, sgld, sgnht
from lamu.mcmc.subsampling import SequentialTest, minibatch_mh
from lamu.mcmc.tempering import parallel_tempering
from lamu.typing import State
from lamu_verification import problems, references
from lamu_verification.problems import Check, Problem, flat

__all__ = ["sampler_rows", "stochastic_rows"]


STEPS, STEP_SIZE = 20, 0.12


def sampler_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the sampler; each is a function without arguments."""
    return {
        "random_walk": _random_walk,
        "mala": _mala,
        "ula": _ula,
        "hmc": _hmc,
        "parallel_tempering": _parallel_tempering,
        "minibatch_mh": _minibatch_mh,
    }


def _random_walk() -> Check:
    problem = problems.regression()
    return _against_hand("random_walk", random_walk(1, 0, STEPS, step_size=STEP_SIZE), problem, _tested(problem))


def _mala() -> Check:
    problem = problems.regression()
    return _against_hand("mala", mala(1, 0, STEPS, step_size=STEP_SIZE), problem, _tested(problem, drift=True))


def _ula() -> Check:
    problem = problems.regression()
    return _against_hand("ula", ula(1, 0, STEPS, step_size=STEP_SIZE), problem, lambda at, z, u: _drift(problem, at, z))


def _minibatch_mh() -> Check:
    """Checks that a certain test is Metropolis–Hastings, and the moments at the default error against closed forms."""
    # With 2,000 rows the test of 100 at a time stops early: its bias is a part of the measured error, and may be a
    # tenth of a posterior standard deviation, compared with Monte Carlo errors of some hundredths.
    problem = problems.regression()
    sampler = minibatch_mh(1, 0, STEPS, rows=5, test=SequentialTest(0.0), step_size=STEP_SIZE)
    certain = _against_hand("minibatch_mh", sampler, problem, _tested(problem), splits=4, coin=2)
    large = problems.regression(rows=2000)
    posterior = fit(large.objective.model, (large.x, large.y), minibatch_mh(draws=4000), seed=2).posterior
    draws = np.asarray(jax.vmap(jax.vmap(lambda params: tree.ravel(params)[0]))(posterior.samples))
    draws = draws.reshape(-1, draws.shape[-1])
    mean, precision, _ = references.linear_regression(large.design, large.y, large.scale, large.precision)
    sd = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    error = max(np.max(np.abs(draws.mean(0) - mean) / sd), np.max(np.abs(draws.std(0) / sd - 1)))
    words = f"NumPy by hand, {STEPS} certain transitions (1e-10); moments of 2,000 rows at the shipped error (.15 sd)"
    return Check("minibatch_mh", words, max(certain.deviation / 1e-10, float(error) / 0.15), 1.0)


def _hmc() -> Check:
    from blackjax.mcmc import hmc as kernel

    problem, length = problems.regression(), 2.0
    target = LogTarget(problem.objective, Batch.of(problem.x, problem.y), {})
    transition: Any = kernel.build_kernel()

    @jax.jit
    def move(key: Any, state: State) -> Any:
        share = jax.random.uniform(jax.random.fold_in(jax.random.clone(key), 2))
        steps = jnp.ceil(share * length / STEP_SIZE).astype(jnp.int32)
        with lenient():
            ones = jnp.ones(len(problem.design[0]))
            return transition(jax.random.key_data(key), state, target, STEP_SIZE, ones, steps)[0]

    start, positions = _walk(hmc(1, 0, STEPS, length, step_size=STEP_SIZE), problem)
    with lenient():
        state: Any = kernel.init(start, target)
    deviation = 0.0
    for key, mine in zip(_keys(), positions, strict=True):
        state = move(key, state)
        deviation = max(deviation, float(np.max(np.abs(flat(state.position) - mine))))
    return Check("hmc", f"blackjax.hmc, the same keys, {STEPS} paths of random length", deviation, 1e-10)


def _parallel_tempering() -> Check:
    """Checks two random walks and their exchange, by hand."""
    problem, hot = problems.regression(), 3.0
    sampler = parallel_tempering(1, 0, STEPS, (1.0, hot), RandomWalk(), step_size=STEP_SIZE)
    start, positions = _walk(sampler, problem)
    density, deviation = _density(problem), 0.0
    replicas = [flat(start), flat(start)]
    for key, mine in zip(_keys(), positions, strict=True):
        move_key, exchange_key = jax.random.split(key)
        for k, (own, temperature) in enumerate(zip(jax.random.split(move_key), (1.0, hot), strict=True)):
            noise_key, accept_key = jax.random.split(own)
            noise = np.asarray(jax.random.normal(noise_key, replicas[k].shape, jnp.float64))
            new = replicas[k] + STEP_SIZE * np.sqrt(temperature) * noise
            u = float(jax.random.uniform(accept_key, dtype=jnp.float64))
            replicas[k] = new if np.log(u) < (density(new) - density(replicas[k])) / temperature else replicas[k]
        level = float(jax.random.uniform(jax.random.split(exchange_key)[1], (2,), jnp.float64)[0])
        if np.log(level) < (1.0 - 1.0 / hot) * (density(replicas[1]) - density(replicas[0])):
            replicas.reverse()
        deviation = max(deviation, float(np.max(np.abs(replicas[0] - mine))))
    reference = f"NumPy by hand on linear regression, {STEPS} transitions of two replicas"
    return Check("parallel_tempering", reference, deviation, 1e-10)


def _against_hand(
    name: str, sampler: Any, problem: Problem, move: Callable[..., np.ndarray], splits: int = 2, coin: int = 1
) -> Check:
    start, positions = _walk(sampler, problem)
    position, deviation = flat(start), 0.0
    for key, mine in zip(_keys(), positions, strict=True):
        keys = jax.random.split(key, splits)
        noise = np.asarray(jax.random.normal(keys[0], position.shape, jnp.float64))
        position = move(position, noise, float(jax.random.uniform(keys[coin], dtype=jnp.float64)))
        deviation = max(deviation, float(np.max(np.abs(position - mine))))
    return Check(name, f"NumPy by hand on linear regression, {STEPS} transitions", deviation, 1e-10)


def _tested(problem: Problem, drift: bool = False) -> Callable[..., np.ndarray]:
    """Returns a Metropolis–Hastings transition, by hand."""
    density = _density(problem)

    def proposed(there: np.ndarray, here: np.ndarray) -> float:
        offset = there - (_drift(problem, here, np.zeros_like(here)) if drift else here)
        return float(-0.5 * offset @ offset / STEP_SIZE**2)

    def move(at: np.ndarray, z: np.ndarray, u: float) -> np.ndarray:
        new = _drift(problem, at, z) if drift else at + STEP_SIZE * z
        return new if np.log(u) < density(new) - density(at) + proposed(at, new) - proposed(new, at) else at

    return move


def _density(problem: Problem) -> Callable[[np.ndarray], float]:
    """Returns the log density of the target, by hand."""

    def density(theta: np.ndarray) -> float:
        residual = problem.y - problem.design @ theta
        return float(-0.5 * residual @ residual / problem.scale**2 - 0.5 * problem.precision * theta @ theta)

    return density


def _drift(problem: Problem, at: np.ndarray, z: np.ndarray) -> np.ndarray:
    gradient = problem.design.T @ (problem.y - problem.design @ at) / problem.scale**2 - problem.precision * at
    return at + 0.5 * STEP_SIZE**2 * gradient + STEP_SIZE * z


def _walk(sampler: Any, problem: Problem) -> tuple[Any, list[np.ndarray]]:
    """Returns the initial position of a sampler's chain, and its position after every transition."""
    batch = Batch.of(problem.x, problem.y)
    state = sampler.init(jax.random.key(0), problem.objective, batch)
    start, step, positions = jax.tree.map(lambda leaf: leaf[0], state.chains.position), jax.jit(sampler.step), []
    for t in range(STEPS):
        state, info = step(jax.random.fold_in(jax.random.key(1), t), state, batch, problem.objective)
        positions.append(flat(jax.tree.map(lambda leaf: leaf[0], info.draw.position)))
    return start, positions


def _keys() -> list[Any]:
    """Returns the keys of the chain."""
    return [jax.random.split(jax.random.fold_in(jax.random.key(1), t), 1)[0] for t in range(STEPS)]


STOCHASTIC_STEPS = 20
LENGTHS: dict[str, Any] = {"chains": 1, "warmup": STOCHASTIC_STEPS, "draws": 1, "thinning": 1}


def stochastic_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the sampler; each is a function without arguments."""
    return {"sgld": _sgld, "psgld": _psgld, "sghmc": _sghmc, "sgnht": _sgnht}


def _sgld() -> Check:
    def move(t: int, w: np.ndarray, memory: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        step_size = 0.1 * (1 + t / 10) ** -0.6
        return w - step_size * gradient + np.sqrt(2 * step_size / rows) * z, memory

    return _stochastic_against_hand("sgld", sgld(Polynomial(0.1, offset=10.0, power=0.6), **LENGTHS), move, None)


def _psgld() -> Check:
    def move(t: int, w: np.ndarray, square: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        square = 0.9 * square + 0.1 * gradient**2
        metric = 1 / (0.05 + np.sqrt(square / (1 - 0.9 ** (t + 1))))
        return w - 0.05 * metric * gradient + np.sqrt(2 * 0.05 * metric / rows) * z, square

    algorithm = psgld(0.05, preconditioner=RootMeanSquare(0.9, 0.05), **LENGTHS)
    return _stochastic_against_hand("psgld", algorithm, move, 0.0)


def _sghmc() -> Check:
    """Checks the velocity form of Chen, Fox & Guestrin (2014), equation 15."""

    def move(t: int, w: np.ndarray, v: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        beta = 0.1 * 0.02 * rows / 2  # the authors' beta, for a gradient with the variance 0.02
        v = (1 - 0.3) * v - 0.1 * gradient + np.sqrt(2 * (0.3 - beta) * 0.1 / rows) * z
        return w + v, v

    algorithm = sghmc(0.1, friction=0.3, noise_estimate=0.02, **LENGTHS)
    return _stochastic_against_hand("sghmc", algorithm, move, 0.0)


def _sgnht() -> Check:
    """Checks velocity and friction of Ding et al. (2014), algorithm 2, at the temperature of the parameters."""

    def move(t: int, w: np.ndarray, memory: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        v, zeta = memory
        v = (1 - zeta) * v - 0.1 * gradient + np.sqrt(2 * 0.3 * 0.1 / rows) * z
        return w + v, (v, zeta + (rows * (1 - zeta / 2) * v @ v / len(w) - 0.1) / rows)

    # Their thermostat has the inertia of N / T rows.
    algorithm = sgnht(0.1, friction=0.3, inertia=float(len(problems.logistic().y)), **LENGTHS)
    return _stochastic_against_hand("sgnht", algorithm, move, (0.0, 0.3))


def _stochastic_against_hand(name: str, algorithm: Any, move: Callable[..., Any], memory: Any) -> Check:
    """Returns logistic regression on padded batches by the algorithm and by hand."""
    problem = problems.logistic()
    batches = (problem.batches(16) * 7)[:STOCHASTIC_STEPS]
    state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    step, rows, position = jax.jit(algorithm.step), len(problem.y), flat(state.position)
    for t, batch in enumerate(batches):
        key = jax.random.fold_in(jax.random.key(3), t)
        chain = jax.tree.map(lambda leaf: leaf[0], state.position)
        z = flat(tree.normal(jax.random.split(jax.random.clone(key), 1)[0], chain))
        state, _ = step(key, state, batch, problem.objective)
        real = np.asarray(batch.mask) > 0
        x, y = np.column_stack([np.ones(real.sum()), np.asarray(batch.x)[real]]), np.asarray(batch.y)[real]
        gradient = x.T @ (1 / (1 + np.exp(-x @ position)) - y) / len(y) + problem.precision * position / rows
        position, memory = move(t, position, memory, gradient, z, rows)
    deviation = float(np.max(np.abs(flat(state.position) - position)))
    return Check(name, f"NumPy by hand on logistic regression, {STOCHASTIC_STEPS} steps", deviation, 1e-12)
