"""The checks of stochastic-gradient samplers: their paths by hand in NumPy, with the very draws, each in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.mcmc.preconditioners import RootMeanSquare
from lamu.mcmc.step_sizes import Polynomial
from lamu.mcmc.stochastic_hamiltonian import sghmc, sgnht
from lamu.mcmc.stochastic_langevin import psgld, sgld
from lamu.verification import problems
from lamu.verification.check import Check
from lamu.verification.vectors import flat

__all__ = ["stochastic_rows"]

STEPS = 20
LENGTHS: dict[str, Any] = {"chains": 1, "warmup": STEPS, "draws": 1, "thinning": 1}


def stochastic_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the sampler; each is a function without arguments."""
    return {"sgld": _sgld, "psgld": _psgld, "sghmc": _sghmc, "sgnht": _sgnht}


def _sgld() -> Check:
    def move(t: int, w: np.ndarray, memory: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        step_size = 0.1 * (1 + t / 10) ** -0.6
        return w - step_size * gradient + np.sqrt(2 * step_size / rows) * z, memory

    return _beside_hand("sgld", sgld(Polynomial(0.1, offset=10.0, power=0.6), **LENGTHS), move, None)


def _psgld() -> Check:
    def move(t: int, w: np.ndarray, square: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        square = 0.9 * square + 0.1 * gradient**2
        metric = 1 / (0.05 + np.sqrt(square / (1 - 0.9 ** (t + 1))))
        return w - 0.05 * metric * gradient + np.sqrt(2 * 0.05 * metric / rows) * z, square

    algorithm = psgld(0.05, preconditioner=RootMeanSquare(0.9, 0.05), **LENGTHS)
    return _beside_hand("psgld", algorithm, move, 0.0)


def _sghmc() -> Check:
    """In the velocity of Chen, Fox & Guestrin (2014), equation 15."""

    def move(t: int, w: np.ndarray, v: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        known = 0.1 * 0.02 * rows / 2  # the authors' beta, of a gradient with the variance 0.02
        v = (1 - 0.3) * v - 0.1 * gradient + np.sqrt(2 * (0.3 - known) * 0.1 / rows) * z
        return w + v, v

    algorithm = sghmc(0.1, friction=0.3, noise_estimate=0.02, **LENGTHS)
    return _beside_hand("sghmc", algorithm, move, 0.0)


def _sgnht() -> Check:
    """In the velocity and the friction of Ding et al. (2014), algorithm 2, at the temperature of the parameters."""

    def move(t: int, w: np.ndarray, memory: Any, gradient: np.ndarray, z: np.ndarray, rows: int) -> Any:
        v, zeta = memory
        v = (1 - zeta) * v - 0.1 * gradient + np.sqrt(2 * 0.3 * 0.1 / rows) * z
        return w + v, (v, zeta + (rows * (1 - zeta / 2) * v @ v / len(w) - 0.1) / rows)

    # Their thermostat is as inert as N / T rows.
    algorithm = sgnht(0.1, friction=0.3, inertia=float(len(problems.logistic().y)), **LENGTHS)
    return _beside_hand("sgnht", algorithm, move, (0.0, 0.3))


def _beside_hand(name: str, algorithm: Any, move: Callable[..., Any], memory: Any) -> Check:
    """Returns logistic regression on padded batches by the algorithm and by hand."""
    problem = problems.logistic()
    batches = (problem.batches(16) * 7)[:STEPS]
    state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    step, rows, found = jax.jit(algorithm.step), len(problem.y), flat(state.position)
    for t, batch in enumerate(batches):
        key = jax.random.fold_in(jax.random.key(3), t)
        chain = jax.tree.map(lambda leaf: leaf[0], state.position)
        z = flat(tree.normal(jax.random.split(jax.random.clone(key), 1)[0], chain))
        state, _ = step(key, state, batch, problem.objective)
        real = np.asarray(batch.mask) > 0
        x, y = np.column_stack([np.ones(real.sum()), np.asarray(batch.x)[real]]), np.asarray(batch.y)[real]
        gradient = x.T @ (1 / (1 + np.exp(-x @ found)) - y) / len(y) + problem.precision * found / rows
        found, memory = move(t, found, memory, gradient, z, rows)
    deviation = float(np.max(np.abs(flat(state.position) - found)))
    return Check(name, f"NumPy by hand on logistic regression, {STEPS} steps", deviation, 1e-12)
