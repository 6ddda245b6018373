"""What a step costs: the rule's recipes beside a plain optax Adam step, on one network, in one run.

784-400-400-10, batch 128, as a scan of steps over one batch with the state given away. The reference package of IVON
was measured at 2.0 times its own Adam on this network; the draw of noise is the limit.

    python -m benchmarks.step_cost
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
from benchmarks.pairs import alternate, carried
from lamu.objective import Objective

STEPS, ROWS = 50, 128


def main() -> None:
    generator = np.random.default_rng(0)
    x = jnp.asarray(generator.random((ROWS, 784), np.float32))
    y = jnp.asarray(generator.integers(0, 10, ROWS).astype(np.int32))
    batch = lamu.data.Batch.of(x, y)
    model = lamu.Model(lamu.networks.MLP((400, 400)), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    objective = Objective(model, 60_000)
    params, _ = model.init(jax.random.key(0), batch)

    def plain(optimiser: Any) -> Callable[[], None]:
        """Adam without any part of the library, not even its loss: what a user would write."""
        layers = [params["network"]["layers"][i] for i in range(3)]

        def loss(layers: Any) -> jax.Array:
            hidden = x
            for layer in layers[:-1]:
                hidden = jax.nn.relu(hidden @ layer["kernel"] + layer["bias"])
            logits = hidden @ layers[-1]["kernel"] + layers[-1]["bias"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        @partial(jax.jit, donate_argnums=(0, 1))
        def run(layers: Any, memory: Any) -> Any:
            def body(carry: Any, _: None) -> Any:
                layers, memory = carry
                value, gradient = jax.value_and_grad(loss)(layers)
                updates, memory = optimiser.update(gradient, memory, layers)
                return (optax.apply_updates(layers, updates), memory), value

            return jax.lax.scan(body, (layers, memory), None, STEPS)

        return carried(run, jax.tree.map(jnp.copy, layers), optimiser.init(layers))

    def ours(algorithm: Any) -> Callable[[], None]:
        @partial(jax.jit, donate_argnums=0)
        def run(state: Any) -> Any:
            def body(state: Any, t: jax.Array) -> Any:
                return algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)

            state, info = jax.lax.scan(body, state, jnp.arange(STEPS))
            return (state,), info.loss

        return carried(run, algorithm.init(jax.random.key(0), objective, batch))

    print(f"{'':44} {'ours':>11} {'optax Adam':>11}")
    for name in ("sgd", "adam", "ivon"):
        algorithm = getattr(lamu.algorithms, name)()
        print(alternate(f"{name}, MLP 784-400-400-10, batch 128", ours(algorithm), plain(optax.adam(1e-3)), STEPS))


if __name__ == "__main__":
    main()
