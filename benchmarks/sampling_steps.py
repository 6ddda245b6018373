"""Gradients per second of SGLD and SGHMC, beside BlackJAX's, on a network of 478,410 weights.

An MLP 784-400-400-10 on batches of 128, one chain, a scan of steps whose state is given away; every step is one
gradient and one normal draw a weight on both sides. First both are asked for the same thing: at temperature zero a step
of SGLD is the same point (it is printed how near). BlackJAX's SGHMC draws its momentum anew every ten steps and has
no memory of it between calls, so that the paths are not the same algorithm's, but their cost is of the same things.

    python -m benchmarks.sampling_steps            needs the extra: pip install "lamu[mcmc]"
    python -m benchmarks.sampling_steps --pairs 40
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from benchmarks.pairs import alternate, carried
from benchmarks.step_cost import multilayer
from lamu.mcmc import sghmc, sgld
from lamu.objective import Objective

DATA, ROWS, STEPS, STEP_SIZE, FRICTION = 60_000, 128, 50, 1e-3, 0.1
GOAL = 1 / 1.3  # of their time, at most


class Race:
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

    def start(self) -> Any:
        """A copy of the first weights."""
        return jax.tree.map(jnp.copy, self.params)

    def theirs(self, name: str) -> Callable[[], None]:
        """BlackJAX's steps, in the same units: their step size multiplies a sum over the data."""
        import blackjax

        size = STEP_SIZE / DATA
        if name == "sgld":
            kernel, calls = blackjax.sgld(self.gradient), STEPS
        else:
            kernel, calls = blackjax.sghmc(self.gradient, num_integration_steps=10, alpha=FRICTION), STEPS // 10

        @partial(jax.jit, donate_argnums=0)
        def run(position: Any, x: jax.Array, y: jax.Array) -> Any:
            def body(position: Any, t: jax.Array) -> Any:
                key = jax.random.fold_in(jax.random.key(1), t)
                return kernel.step(key, position, (x, y), size), None

            position, _ = jax.lax.scan(body, position, jnp.arange(calls))
            return (position,), position

        return carried(lambda position: run(position, self.x, self.y), self.start())

    def ours(self, sampler: Any) -> Callable[[], None]:
        """The sampler's steps, each with a key of its own; draws are not stacked, as the loop does not."""

        @partial(jax.jit, donate_argnums=0)
        def run(state: Any, batch: lamu.data.Batch) -> Any:
            def body(state: Any, t: jax.Array) -> Any:
                state, info = sampler.step(jax.random.fold_in(jax.random.key(1), t), state, batch, self.objective)
                return state, info.loss

            state, loss = jax.lax.scan(body, state, jnp.arange(STEPS))
            return (state,), loss

        first = sampler.init(jax.random.key(0), self.objective, self.batch)
        return carried(lambda state: run(state, self.batch), first)

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
        return float(np.linalg.norm(flat(mine) - flat(other)) / np.linalg.norm(step))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    given, race = parser.parse_args(), Race()
    print(f"one step of SGLD at temperature zero is theirs to {race.apart():.0e} of its length")
    lengths: dict[str, Any] = {"chains": 1, "warmup": 0, "draws": 1, "thinning": STEPS}
    samplers = {"sgld": sgld(STEP_SIZE, **lengths), "sghmc": sghmc(STEP_SIZE, friction=FRICTION, **lengths)}
    print(f"{'':44} {'ours':>11} {'BlackJAX':>11}")
    for name, sampler in samplers.items():
        found = alternate(f"{name}, MLP, batch {ROWS}", race.ours(sampler), race.theirs(name), STEPS, given.pairs)
        rates = f"{1000 / found.ours:.0f} and {1000 / found.theirs:.0f} gradients a second"
        print(found, f"  goal {GOAL:.2f};  {rates}", flush=True)


if __name__ == "__main__":
    main()
