"""SGLD and SGHMC, seconds a gradient, beside BlackJAX's, on an MLP 784-400-400-10 of 478,410 weights.

Batches of 128, one chain, a compiled scan whose state is given away; every step is one gradient and one normal draw a
weight. BlackJAX's SGHMC draws its momentum anew every ten steps and keeps none between calls: it is not the same
algorithm, but its cost is of the same things.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from benchmarks.speed.race import Race, row
from benchmarks.speed.rows.steps import multilayer
from benchmarks.speed.timing import Side, carried, here
from lamu.mcmc import sghmc, sgld
from lamu.objective import Objective

DATA, ROWS, STEPS, STEP_SIZE, FRICTION = 60_000, 128, 10, 1e-3, 0.1
LENGTHS: dict[str, Any] = {"chains": 1, "warmup": 0, "draws": 1, "thinning": STEPS}


class Problem:
    """One batch, one start, and one loss for both sides."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.x = jnp.asarray(generator.random((ROWS, 784), np.float32))
        self.y = jnp.asarray(generator.integers(0, 10, ROWS).astype(np.int32))
        self.batch = lamu.data.Batch.of(self.x, self.y)
        model = lamu.Model(lamu.networks.MLP((400, 400)), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
        self.objective = Objective(model, DATA)
        self.params = model.init(jax.random.key(0), self.batch)[0]

    def gradient(self, position: Any, batch: Any) -> Any:
        """What BlackJAX asks for: the gradient of the log density's estimate, a sum over the data."""
        x, y = batch

        def log_density(params: Any) -> jax.Array:
            layers = list(params["network"]["layers"].values())
            loss = optax.softmax_cross_entropy_with_integer_labels(multilayer(layers, x), y).mean()
            squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
            return -DATA * loss - squares / 2

        return jax.grad(log_density)(position)

    def theirs(self, kernel: Any, calls: int) -> Side:
        """BlackJAX's steps, in the same units: their step size multiplies a sum over the data."""

        @partial(jax.jit, donate_argnums=0)
        def run(position: Any, x: jax.Array, y: jax.Array) -> Any:
            def body(position: Any, t: jax.Array) -> Any:
                key = jax.random.fold_in(jax.random.key(1), t)
                return kernel.step(key, position, (x, y), STEP_SIZE / DATA), None

            position, _ = jax.lax.scan(body, position, jnp.arange(calls))
            return (position, x, y), position

        return here("BlackJAX", carried(run, jax.tree.map(jnp.copy, self.params), self.x, self.y), STEPS)

    def ours(self, sampler: Any) -> Side:
        """The sampler's steps, each with a key of its own; draws are not stacked, as the loop does not."""

        def step(state: Any, batch: Any, t: Any) -> Any:
            state, info = sampler.step(jax.random.fold_in(jax.random.key(1), t), state, batch, self.objective)
            return state, info.loss

        @partial(jax.jit, donate_argnums=0)
        def run(state: Any, batch: Any) -> Any:
            state, loss = jax.lax.scan(lambda state, t: step(state, batch, t), state, jnp.arange(STEPS))
            return (state, batch), loss

        first = sampler.init(jax.random.key(0), self.objective, self.batch)
        program = (jax.jit(step), (first, self.batch, 0))
        return here("lamu", carried(run, jax.tree.map(jnp.copy, first), self.batch), STEPS, program)

    def apart(self) -> float:
        """How far one step of SGLD at temperature zero is from theirs, as a share of the step."""
        import blackjax

        sampler = sgld(STEP_SIZE, chains=1, start=self.params)
        cold = Objective(self.objective.model, DATA, jnp.zeros(()))
        state = sampler.init(jax.random.key(0), cold, self.batch)
        mine = sampler.step(jax.random.key(1), state, self.batch, cold)[0].position
        other = blackjax.sgld(self.gradient).step(
            jax.random.key(1), self.params, (self.x, self.y), STEP_SIZE / DATA, temperature=0.0
        )
        flat = lambda params: np.asarray(lamu.tree.ravel(params)[0], np.float64).ravel()
        step = flat(other) - flat(self.params)
        apart = float(np.linalg.norm(flat(mine) - flat(other)) / np.linalg.norm(step))
        assert apart < 1e-2, f"a step at temperature zero is {apart:.0e} of its length from theirs"
        return apart


@row("sgld", "SGLD, MLP 784-400-400-10, batch 128")
def sgld_row(quick: bool) -> Race:
    import blackjax

    problem = Problem()
    same = f"one step at temperature zero, to {problem.apart():.0e} of its length"
    sides = problem.ours(sgld(STEP_SIZE, **LENGTHS)), problem.theirs(blackjax.sgld(problem.gradient), STEPS)
    return Race(sides[:1], sides[1:], "gradient", same, 20 if quick else 50)


@row("sghmc", "SGHMC, the same network")
def sghmc_row(quick: bool) -> Race:
    import blackjax

    problem = Problem()
    same = f"one step of SGLD at temperature zero, to {problem.apart():.0e} of its length"
    kernel = blackjax.sghmc(problem.gradient, num_integration_steps=10, alpha=FRICTION)
    sides = problem.ours(sghmc(STEP_SIZE, friction=FRICTION, **LENGTHS)), problem.theirs(kernel, STEPS // 10)
    return Race(sides[:1], sides[1:], "gradient", same, 20 if quick else 50)
