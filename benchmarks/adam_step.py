"""One step of Adam through the rule beside optax's, on a million parameters: what the rule itself costs.

A linear map of a thousand inputs to a thousand classes on eight rows, so that the gradient is cheap and the update is
most of the step. Both sides have the same loss, prior included, and both are one compiled scan that donates its state.

    python -m benchmarks.adam_step
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from benchmarks.pairs import Ratio, alternate, carried
from lamu.objective import Objective

SIDE, ROWS, STEPS, DATA = 1000, 8, 20, 60_000


def main() -> None:
    print(f"{'':44} {'ours':>11} {'optax':>11}")
    print(adam_step())


def adam_step(pairs: int = 20) -> Ratio:
    """Times both sides in alternated pairs."""
    generator = np.random.default_rng(0)
    x = jnp.asarray(generator.normal(size=(ROWS, SIDE)), jnp.float32)
    y = jnp.asarray(generator.integers(0, SIDE, ROWS).astype(np.int32))
    batch = lamu.data.Batch.of(x, y)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(SIDE), lamu.priors.Normal(1.0))
    objective, rule, theirs = Objective(model, DATA), lamu.algorithms.adam(1e-3), optax.adam(1e-3)
    state = rule.init(jax.random.key(0), objective, batch)
    layer = jax.tree.map(jnp.copy, state.mean["network"]["layers"][0])

    def loss(layer: Any) -> jax.Array:
        logits = x @ layer["kernel"] + layer["bias"]
        weights = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(layer))
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean() + weights / (2 * DATA)

    @partial(jax.jit, donate_argnums=(0, 1))
    def plain(layer: Any, memory: Any) -> Any:
        def body(carry: Any, _: None) -> Any:
            layer, memory = carry
            value, gradient = jax.value_and_grad(loss)(layer)
            updates, memory = theirs.update(gradient, memory, layer)
            return (optax.apply_updates(layer, updates), memory), value

        return jax.lax.scan(body, (layer, memory), None, STEPS)

    @partial(jax.jit, donate_argnums=0)
    def through_the_rule(state: Any) -> Any:
        def body(state: Any, t: jax.Array) -> Any:
            return rule.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)

        state, info = jax.lax.scan(body, state, jnp.arange(STEPS))
        return (state,), info.loss

    name = f"adam, {SIDE * SIDE + SIDE:,} parameters, {ROWS} rows"
    return alternate(name, carried(through_the_rule, state), carried(plain, layer, theirs.init(layer)), STEPS, pairs)


if __name__ == "__main__":
    main()
