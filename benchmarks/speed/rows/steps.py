"""A training step of an MLP 784-256-256-10: recipes beside optax's optimisers as one writes them by hand.

A turn is a compiled scan of five steps on one batch, whose state is given away, and a race 100 turns, so that a step
that decomposes now and then enters the mean as often as it comes. Both sides start from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from benchmarks.speed.environments import peers
from benchmarks.speed.race import Race, growth, row
from benchmarks.speed.timing import Side, Worker, carried, here
from lamu.objective import Objective

STEPS, ROUNDS, DATA = 5, 100, 60_000
WIDTHS = (256, 256)
OPTIMISERS = {"sgd": optax.sgd(1e-2), "adam": optax.adam(1e-3)}


def multilayer(layers: Any, x: jax.Array) -> jax.Array:
    """The MLP as one writes it without any part of the library."""
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"][None])
    return x @ layers[-1]["kernel"] + layers[-1]["bias"][None]


def cross_entropy(layers: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(multilayer(layers, x), y).mean()


class Problem:
    """A network on one batch."""

    def __init__(self, rows: int, widths: tuple[int, ...] = WIDTHS, classes: int = 10) -> None:
        generator = np.random.default_rng(0)
        self.x = jnp.asarray(generator.random((rows, 784), np.float32))
        self.y = jnp.asarray(generator.integers(0, classes, rows).astype(np.int32))
        self.batch = lamu.data.Batch.of(self.x, self.y)
        likelihood, prior = lamu.likelihoods.Categorical(classes), lamu.priors.Normal(1.0)
        self.objective = Objective(lamu.Model(lamu.networks.MLP(widths), likelihood, prior), DATA)

    def ours(self, name: str) -> tuple[Any, Any]:
        algorithm = getattr(lamu.algorithms, name)()
        return algorithm, algorithm.init(jax.random.key(0), self.objective, self.batch)

    def layers(self, state: Any) -> list[Any]:
        network = state.mean.get("network", state.mean)
        return [jax.tree.map(jnp.copy, layer) for layer in network["layers"].values()]

    def lamu(self, name: str, algorithm: Any, state: Any) -> Side:
        """The recipe's steps, each with a key of its own."""

        def step(state: Any, batch: Any, t: Any) -> Any:
            return algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, batch, self.objective)

        @partial(jax.jit, donate_argnums=0)
        def run(state: Any, batch: Any) -> Any:
            state, info = jax.lax.scan(lambda state, t: step(state, batch, t), state, jnp.arange(STEPS))
            return (state, batch), info.loss

        program = (jax.jit(step), (state, self.batch, 0))
        return here(f"lamu {name}", carried(run, jax.tree.map(jnp.copy, state), self.batch), STEPS, program)

    def optax(self, name: str, layers: Any) -> Side:
        """The optimiser alone."""
        optimiser = OPTIMISERS[name]
        update = partial(plain_step, optimiser, cross_entropy)

        @partial(jax.jit, donate_argnums=(0, 1))
        def run(layers: Any, memory: Any, x: jax.Array, y: jax.Array) -> Any:
            body = lambda carry, _: update(*carry, x, y)
            (layers, memory), values = jax.lax.scan(body, (layers, memory), None, STEPS)
            return (layers, memory, x, y), values

        carry = (layers, optimiser.init(layers), self.x, self.y)
        program = (jax.jit(update), carry)
        return here(f"optax {name}", carried(run, *jax.tree.map(jnp.copy, carry)), STEPS, program)


def plain_step(optimiser: Any, loss: Callable[..., Any], layers: Any, memory: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)(layers, x, y)
    updates, memory = optimiser.update(gradient, memory, layers)
    return (optax.apply_updates(layers, updates), memory), value


def race(name: str, peer: str, problem: Problem, rounds: int = ROUNDS) -> Race:
    algorithm, state = problem.ours(name)
    layers = problem.layers(state)
    params = {"layers": dict(enumerate(layers))}
    logits = problem.objective.model.network.apply(params, {}, problem.x, None, True)[0]
    ours = optax.softmax_cross_entropy_with_integer_labels(logits, problem.y).mean()
    theirs = cross_entropy(layers, problem.x, problem.y)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    same = f"the loss at the common start, {float(ours):.5f} and {float(theirs):.5f}"
    return Race((problem.lamu(name, algorithm, state),), (problem.optax(peer, layers),), "step", same, rounds)


DRAW = "Beside the gradient a step draws a normal number for each weight, and keeps one array more than Adam."
SQUARES = "A step squares the gradient of every single row, one product of matrices more a layer; SGD has no state."


@row("ivon_128", "IVON step, MLP 784-256-256-10, batch 128", why=DRAW)
def ivon_128(quick: bool) -> Race:
    return race("ivon", "adam", Problem(128))


@row("ivon_512", "IVON step, batch 512", why=DRAW)
def ivon_512(quick: bool) -> Race:
    return race("ivon", "adam", Problem(512))


@row("vogn_128", "VOGN step, batch 128", why=f"{SQUARES} VOGN draws its weights besides.")
def vogn_128(quick: bool) -> Race:
    return race("vogn", "sgd", Problem(128))


@row("ogn_128", "OGN step, batch 128", why=SQUARES)
def ogn_128(quick: bool) -> Race:
    return race("ogn", "sgd", Problem(128))


@row(
    "slang_128",
    "SLANG step, batch 128",
    why="A step makes the gradient of every row, and decomposes a low-rank matrix of as many columns as weights.",
)
def slang_128(quick: bool) -> Race:
    return race("slang", "sgd", Problem(128))


@row(
    "noisy_kfac_128",
    "noisy K-FAC step, batch 128",
    why="A step draws weights by two factors a layer, and now and then decomposes them (the first has 785 rows).",
)
def noisy_kfac_128(quick: bool) -> Race:
    return race("noisy_kfac", "sgd", Problem(128))


@row("adam_rule", "Adam through the rule, a million parameters, 8 rows")
def adam_rule(quick: bool) -> Race:
    """A linear map of a thousand inputs to a thousand classes: the gradient is cheap, and the update most of a step."""
    side, rows = 1000, 8
    generator = np.random.default_rng(0)
    x = jnp.asarray(generator.normal(size=(rows, side)), jnp.float32)
    y = jnp.asarray(generator.integers(0, side, rows).astype(np.int32))
    problem = object.__new__(Problem)
    problem.x, problem.y, problem.batch = x, y, lamu.data.Batch.of(x, y)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(side), lamu.priors.Normal(1.0))
    problem.objective = Objective(model, DATA)
    algorithm = lamu.algorithms.adam(1e-3)
    state = algorithm.init(jax.random.key(0), problem.objective, problem.batch)
    layers = problem.layers(state)

    def loss(layers: Any, x: Any, y: Any) -> Any:
        weights = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(layers))
        return cross_entropy(layers, x, y) + weights / (2 * DATA)

    optimiser = OPTIMISERS["adam"]
    update = partial(plain_step, optimiser, loss)
    step = lambda state, batch, t: algorithm.step(jax.random.key(t), state, batch, problem.objective)
    # The same losses after 20 steps from the same start.
    mine, carry = state, (layers, optimiser.init(layers))
    mine_step, their_step = jax.jit(step), jax.jit(update)
    for t in range(20):
        mine, _ = mine_step(mine, problem.batch, t)
        carry, theirs = their_step(*carry, x, y)
    ours = loss(problem.layers(mine), x, y)
    theirs = loss(carry[0], x, y)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)

    @partial(jax.jit, donate_argnums=(0, 1))
    def run(layers: Any, memory: Any, x: Any, y: Any) -> Any:
        body = lambda carry, _: update(*carry, x, y)
        (layers, memory), values = jax.lax.scan(body, (layers, memory), None, STEPS)
        return (layers, memory, x, y), values

    carry = (layers, optimiser.init(layers), x, y)
    peer = here("optax adam", carried(run, *jax.tree.map(jnp.copy, carry)), STEPS, (their_step, carry))
    same = f"the loss after 20 steps from the same start, {float(ours):.5f} and {float(theirs):.5f}"
    return Race((problem.lamu("adam", algorithm, state),), (peer,), "step", same, ROUNDS)


@row("ivon_torch", "IVON step, batch 128, ivon-opt on PyTorch")
def ivon_torch(quick: bool) -> Race:
    import tempfile
    from pathlib import Path

    problem = Problem(128)
    algorithm = lamu.algorithms.ivon(0.1)
    state = algorithm.init(jax.random.key(0), problem.objective, problem.batch)
    layers = problem.layers(state)
    python = peers("torch", "ivon")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "start.npz"
        arrays = {f"{name}{index}": leaf for index, layer in enumerate(layers) for name, leaf in layer.items()}
        np.savez(path, x=problem.x, y=problem.y, **arrays)
        worker = Worker(python, "benchmarks.speed.peers.torch_steps", str(path), str(DATA))
        theirs = worker.ask("loss")["loss"]
    ours = float(cross_entropy(layers, problem.x, problem.y))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    same = f"the loss at the common start, {ours:.5f} and {theirs:.5f}"
    sides = (worker.side("ivon-opt", "ivon", STEPS), worker.side("torch Adam", "adam", STEPS))
    return Race((problem.lamu("ivon", algorithm, state),), sides, "step", same, ROUNDS, (worker,), spins=True)


def growing(name: str, what: str, sizes: tuple[int, ...], problem: Callable[[int], Problem]) -> None:
    peer = "adam" if name == "ivon" else "sgd"
    register = growth(f"growth_{name}_{what}", f"{name} step as {what} grow", what, sizes)
    register(lambda size: race(name, peer, problem(size), 20))


for _name in ("ivon", "vogn", "noisy_kfac"):
    growing(_name, "units", (64, 128, 256, 512, 1024), lambda units: Problem(128, (units, units)))
    growing(_name, "batch", (32, 128, 512, 2048), lambda rows: Problem(rows))
    growing(_name, "classes", (10, 100, 1000), lambda classes: Problem(128, classes=classes))
