r"""Laws of stochastic-gradient dynamics: what one step does to a Gaussian, exactly.

A row's subject makes the sampler of a step size. On a linear regression with known noise, all its rows in a batch, one
step is linear in the chain's state and in its noise: the matrices A and B of \(z' = A z + B \xi + c\) are read off the
code (A by differentiation, B by solving for it over many keys), and the stationary covariance follows without a single
draw: \(\Sigma = A \Sigma A^\top + B B^\top\). The trait "linear" says so; "descent" that at T = 0 it is an optimiser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import solve_discrete_lyapunov

import lamu
from lamu import tree
from lamu.algorithms import sgd
from lamu.data import Batch
from lamu.mcmc import psgld, sghmc, sgld, sgnht
from lamu.mcmc.dynamics import Friction
from lamu.objective import Objective
from lamu.priors import Normal
from lamu.record import record, static
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("stochastic_dynamics", "descent linear")

N, NOISE, PRIOR, KEYS = 15, 0.8, 0.7, 12
rng = np.random.default_rng(3)
mixed = rng.normal(size=(N, 2))
X = np.column_stack([mixed[:, 0], 0.6 * mixed[:, 0] + 0.4 * mixed[:, 1]])
Y = X @ np.array([1.0, 2.0]) + 0.5 + NOISE * rng.normal(size=N)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(NOISE), Normal(PRIOR))
BATCH = Batch.of(jnp.asarray(X), jnp.asarray(Y))
DESIGN = np.column_stack([np.ones(N), X])
CURVATURE = DESIGN.T @ DESIGN / NOISE**2 / N + np.eye(3) / PRIOR**2 / N  # of the mean loss
LENGTHS = {"chains": 1, "warmup": 0, "draws": 1, "thinning": 1}
FRICTION = 0.3

momentum = partial(sgd, momentum=1.0 - FRICTION)
rubbed = {"friction": FRICTION, "optimiser": momentum}
ROWS_OF = {
    made.name: made
    for made in (
        row("stochastic_dynamics", "sghmc", partial(sghmc, friction=FRICTION, **LENGTHS), "linear descent", **rubbed),
        row("stochastic_dynamics", "sgld", partial(sgld, **LENGTHS), "linear descent", friction=1.0, optimiser=sgd),
        row("stochastic_dynamics", "sgnht", partial(sgnht, friction=FRICTION, **LENGTHS), "descent", **rubbed),
        row("stochastic_dynamics", "psgld", partial(psgld, **{**LENGTHS, "warmup": 5})),
    )
}


def objective(temperature: Any, data_size: float = N) -> Objective:
    return Objective(MODEL, data_size, temperature)


@jax.jit
def stepped(algorithm: Any, key: Any, state: Any, batch: Batch, objective: Objective) -> Any:
    return algorithm.step(key, state, batch, objective)[0]


@jax.jit
def begun(algorithm: Any, key: Any, objective: Objective, batch: Batch) -> Any:
    return algorithm.init(key, objective, batch)


def flat(params: Any) -> np.ndarray:
    return np.asarray(tree.ravel(params)[0])


def moving(state: Any) -> Any:
    """What moves of a chain: its position and its momentum."""
    return state.position, state.momentum


@jax.jit
def ends(algorithm: Any, keys: Any, state: Any, vectors: Any, told: Objective) -> Any:
    """Where a step takes what moves of a chain, a row of vectors a key."""
    back = tree.ravel(moving(state))[1]

    def move(key: Any, vector: Any) -> Any:
        position, momentum = back(vector)
        new, _ = algorithm.step(key, replace(state, position=position, momentum=momentum), BATCH, told)
        return tree.ravel(moving(new))[0]

    return jax.vmap(move)(keys, vectors)


def matrices(algorithm: Any, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """A and B of one step: what it does to the state, and to standard normal noise."""
    told = objective(temperature)
    state = begun(algorithm, jax.random.key(0), told, BATCH)
    vector = tree.ravel(moving(state))[0]
    unit = jnp.eye(len(vector))
    vectors = jnp.concatenate([vector[None] + unit, jnp.broadcast_to(vector, (KEYS, len(vector)))])
    first, rest = jax.random.key(1), jax.random.split(jax.random.key(2), KEYS - 1)
    with jax.debug_key_reuse(False):  # one key for all of A
        keys = jnp.concatenate([jnp.broadcast_to(first, (len(vector) + 1,)), rest])
        found = np.asarray(ends(algorithm, keys, state, vectors, told))
        # The noise that each key is: that of the one chain.
        like = jax.tree.map(lambda leaf: leaf[0], state.position)
        noise = jax.vmap(lambda key: tree.ravel(tree.normal(jax.random.split(key, 1)[0], like))[0])(keys[len(vector) :])
    same = found[len(vector) :]
    design = np.column_stack([np.ones(KEYS), noise])
    solved, _, rank, _ = np.linalg.lstsq(design, same)
    assert rank == 4
    np.testing.assert_allclose(design @ solved, same, atol=1e-12, err_msg="a step is linear in its own noise alone")
    return (found[: len(vector)] - same[:1]).T, solved[1:].T


def stationary(row: Row, step_size: float, temperature: float) -> np.ndarray:
    """The covariance of the position that steps of this size leave as it is."""
    A, B = matrices(row.subject(step_size), temperature)
    assert np.max(np.abs(np.linalg.eigvals(A))) < 1
    return solve_discrete_lyapunov(A, B @ B.T)[:3, :3]


def posterior_covariance(temperature: float) -> np.ndarray:
    return temperature / N * np.linalg.inv(CURVATURE)


@law("stochastic_dynamics", when="linear")
def stationary_covariance_is_the_closed_form(row: Row) -> None:
    """At two temperatures: that of the target, but for what a step of this size adds."""
    for temperature in (1.0, 0.5):
        for step_size in (0.1, 0.4):
            lost = np.eye(3) - step_size * CURVATURE / (2 * (2 - row.extras["friction"]))
            expected = np.linalg.solve(lost, posterior_covariance(temperature))
            np.testing.assert_allclose(stationary(row, step_size, temperature), expected, rtol=1e-8)


@law("stochastic_dynamics", when="linear")
def bias_falls_as_the_step(row: Row) -> None:
    exact = posterior_covariance(1.0)
    bias = [np.linalg.norm(stationary(row, step_size, 1.0) - exact) for step_size in (0.1, 0.05, 0.025)]
    np.testing.assert_allclose([bias[0] / bias[1], bias[1] / bias[2]], 2.0, rtol=0.06)
    assert bias[-1] < 0.03 * np.linalg.norm(exact)


@law("stochastic_dynamics", when="descent")
def at_temperature_zero_it_is_the_optimiser(row: Row) -> None:
    """On minibatches, from the same start, for 20 steps."""
    told, algorithm, optimiser = objective(jnp.zeros(())), row.subject(0.05), row.extras["optimiser"](0.05)
    state = begun(algorithm, jax.random.key(0), told, BATCH)
    weights = jax.tree.map(lambda leaf: leaf[0], state.position)["network"]
    started = replace(told, model=MODEL.starting_at({"network": weights, "likelihood": {}}), temperature=1.0)
    other = begun(optimiser, jax.random.key(0), started, BATCH)
    for t in range(20):
        batch = jax.tree.map(lambda leaf, t=t: jnp.roll(leaf, 5 * t, axis=0)[:5], BATCH)
        state = stepped(algorithm, jax.random.key(t), state, batch, told)
        other = stepped(optimiser, jax.random.key(t), other, batch, started)
    np.testing.assert_allclose(flat(state.position), flat(other.mean), rtol=0, atol=1e-12)


@law("stochastic_dynamics")
def noise_is_of_the_step_the_chain_and_the_temperature(row: Row) -> None:
    """From one state: two keys and two chains differ; the noise is √T in size; at T = 0 there is none."""
    algorithm = row.subject(0.05, chains=2)
    state = begun(algorithm, jax.random.key(0), objective(1.0), BATCH)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), (state.position, state.momentum))
    state = replace(state, position=same[0], momentum=same[1])
    ends = {
        (temperature, seed): np.asarray(
            jax.vmap(lambda p: tree.ravel(p)[0])(
                stepped(algorithm, jax.random.key(seed), state, BATCH, objective(jnp.asarray(temperature))).position
            )
        )
        for temperature in (0.0, 1.0, 4.0)
        for seed in (1, 2)
    }
    np.testing.assert_array_equal(ends[0.0, 1], ends[0.0, 2])
    np.testing.assert_array_equal(ends[0.0, 1][0], ends[0.0, 1][1])
    noise, more, other = (ends[which] - ends[0.0, 1] for which in ((1.0, 1), (4.0, 1), (1.0, 2)))
    np.testing.assert_allclose(more, 2 * noise, rtol=1e-9)
    assert np.all(np.abs(noise - other) > 1e-6)
    assert np.all(np.abs(noise[0] - noise[1]) > 1e-6)


@record
class Broken:
    """A sampler whose step is another function of the sampler and the step's arguments."""

    of: Any
    fault: Callable[..., Any] = static()

    def init(self, key: Any, objective: Any, batch: Any) -> Any:
        return self.of.init(key, objective, batch)

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        return self.fault(self.of, key, state, batch, objective)


def twin_of(name: str, fault: str, laws: str, step: Callable[..., Any]) -> None:
    of = ROWS_OF[name]
    twin(of, fault, laws, lambda step_size, **more: Broken(of.subject(step_size, **more), step))


def told(change: Callable[[Objective], Objective]) -> Callable[..., Any]:
    """Every step with another objective."""
    return lambda of, key, state, batch, objective: of.step(key, state, batch, change(objective))


def after(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Every step with another new state: `change(old, new)`."""

    def step(of: Any, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        new, info = of.step(key, state, batch, objective)
        return change(state, new), info

    return step


def reflected(old: Any, new: Any) -> Any:
    return replace(new, position=jax.tree.map(lambda a, b: 2 * a - b, old.position, new.position))


def by_the_old_momentum(old: Any, new: Any) -> Any:
    """The position moves first: the gradient of one step is for the next one."""
    at = old.momentum["p"]
    return replace(new, position=jax.tree.map(lambda x, p: x + jnp.sqrt(0.05) * p, old.position, at))


def one_for_all(old: Any, new: Any) -> Any:
    """Every chain with the noise of the first."""
    return replace(new, position=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), new.position))


closed = "stationary_covariance_is_the_closed_form"
both = f"{closed} bias_falls_as_the_step"
twin_of("sgld", "inverted temperature", closed, told(lambda o: replace(o, temperature=1 / o.temperature)))
twin_of("sgld", "N forgotten in the noise", both, told(lambda o: replace(o, temperature=o.temperature * N)))
twin_of("sghmc", "half the noise", both, told(lambda o: replace(o, temperature=o.temperature / 2)))
twin_of("sghmc", "prior dropped", both, told(lambda o: replace(o, model=replace(o.model, prior=Normal(1e6)))))
twin_of("sgld", "uphill", "at_temperature_zero_it_is_the_optimiser", after(reflected))
twin_of(
    "sghmc",
    "noise of no friction's",
    closed,
    lambda of, *rest: replace(of, momentum=Friction(0.2)).step(*rest),
)
twin_of("sghmc", "without friction", both, lambda of, *rest: replace(of, momentum=Friction(jnp.zeros(()))).step(*rest))
twin_of("sghmc", "position first", "at_temperature_zero_it_is_the_optimiser", after(by_the_old_momentum))
twin_of(
    "sghmc",
    "noise at temperature zero",
    "at_temperature_zero_it_is_the_optimiser noise_is_of_the_step_the_chain_and_the_temperature",
    told(lambda o: replace(o, temperature=o.temperature + 1e-6)),
)
alone = "noise_is_of_the_step_the_chain_and_the_temperature"
twin_of("sghmc", "one key for all steps", alone, lambda of, _, *rest: of.step(jax.random.key(0), *rest))
twin_of("sghmc", "one key for all chains", alone, after(one_for_all))
twin_of("sgld", "T for its root", alone, told(lambda o: replace(o, temperature=o.temperature**2)))
