"""What a step costs: recipes beside a plain optax step on the same network, in one run.

An MLP 784-400-400-10 and a LeNet-like ConvNet, a scan of steps over one batch, which is an argument, with the state
given away. The reference package of IVON was measured at 2.0 times its own Adam on this MLP at batch 128; the draw of
noise is the limit.

    python -m benchmarks.step_cost              all of it
    python -m benchmarks.step_cost ivon vogn    some recipes
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from benchmarks.pairs import alternate, carried
from lamu.objective import Objective

NETWORKS = {
    "MLP": (lamu.networks.MLP((400, 400)), (784,), 50),
    "ConvNet": (lamu.networks.ConvNet((6, 16), widths=(120, 84), kernel=5), (28, 28), 20),
}
PEERS = {"sgd": optax.sgd(1e-2), "adam": optax.adam(1e-3)}

# recipe, network, rows, peer, and the most that the ratio's lower end should be
CONTESTS = (
    ("sgd", "MLP", 128, "sgd", None),
    ("adam", "MLP", 128, "adam", None),
    ("ivon", "MLP", 128, "adam", 1.5),
    ("ivon", "MLP", 512, "adam", 1.2),
    ("ogn", "MLP", 128, "sgd", 1.7),
    ("vogn", "MLP", 128, "sgd", 2.2),
    ("noisy_kfac", "MLP", 128, "sgd", 3.0),
    ("slang", "MLP", 128, "sgd", 4.0),
    ("ivon", "ConvNet", 128, "adam", None),
    ("ogn", "ConvNet", 128, "sgd", 3.0),
    ("vogn", "ConvNet", 128, "sgd", 3.0),
)


def multilayer(layers: Any, x: jax.Array) -> jax.Array:
    """The MLP as a user would write it, without any part of the library."""
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    return x @ layers[-1]["kernel"] + layers[-1]["bias"]


class Race:
    """One network on one batch: our steps and the plain optimiser's."""

    def __init__(self, network: str, rows: int) -> None:
        """Draws the batch and the first weights."""
        self.network, shape, self.steps = NETWORKS[network]
        generator = np.random.default_rng(0)
        self.x = jnp.asarray(generator.random((rows, *shape), np.float32))
        self.y = jnp.asarray(generator.integers(0, 10, rows).astype(np.int32))
        self.batch = lamu.data.Batch.of(self.x, self.y)
        likelihood, prior = lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0)
        self.objective = Objective(lamu.Model(self.network, likelihood, prior), 60_000)
        self.params = self.objective.model.init(jax.random.key(0), self.batch)[0]["network"]

    def plain(self, optimiser: Any) -> Callable[[], None]:
        """The optimiser alone: not even the loss is the library's, and of the network only the convolutions."""
        if isinstance(self.network, lamu.networks.MLP):
            layers, apply = list(self.params["layers"].values()), multilayer
        else:
            layers, apply = self.params, lambda params, x: self.network.apply(params, {}, x, None, True)[0]

        def loss(layers: Any, x: jax.Array, y: jax.Array) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(apply(layers, x), y).mean()

        @partial(jax.jit, donate_argnums=(0, 1))
        def run(layers: Any, memory: Any, x: jax.Array, y: jax.Array) -> Any:
            def body(carry: Any, _: None) -> Any:
                layers, memory = carry
                value, gradient = jax.value_and_grad(loss)(layers, x, y)
                updates, memory = optimiser.update(gradient, memory, layers)
                return (optax.apply_updates(layers, updates), memory), value

            return jax.lax.scan(body, (layers, memory), None, self.steps)

        given = lambda layers, memory: run(layers, memory, self.x, self.y)
        return carried(given, jax.tree.map(jnp.copy, layers), optimiser.init(layers))

    def ours(self, algorithm: Any) -> Callable[[], None]:
        """The recipe's steps, each with a key of its own."""

        @partial(jax.jit, donate_argnums=0)
        def run(state: Any, batch: lamu.data.Batch) -> Any:
            def body(state: Any, t: jax.Array) -> Any:
                return algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, batch, self.objective)

            state, info = jax.lax.scan(body, state, jnp.arange(self.steps))
            return (state,), info.loss

        given = lambda state: run(state, self.batch)
        return carried(given, algorithm.init(jax.random.key(0), self.objective, self.batch))


def main() -> None:
    """Prints a line for each contest."""
    wanted = sys.argv[1:] or [name for name, *_ in CONTESTS]
    print(f"{'':44} {'ours':>11} {'plain':>11}")
    for name, network, rows, peer, goal in CONTESTS:
        if name not in wanted:
            continue
        race = Race(network, rows)
        algorithm = getattr(lamu.algorithms, name)()
        title = f"{name}, {network}, batch {rows}, to {peer}"
        found = alternate(title, race.ours(algorithm), race.plain(PEERS[peer]), race.steps)
        print(found, "" if goal is None else f"  goal {goal}", flush=True)


if __name__ == "__main__":
    main()
