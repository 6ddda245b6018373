"""A step of a VAE 784-400-20-400-784 on one batch of 128 rows, by Adam: NumPyro's SVI and a scan without a library."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from benchmarks.speed.race import Race, row
from benchmarks.speed.timing import Side, carried, here
from lamu.latent import models
from lamu.objective import Objective

ROWS, PIXELS, HIDDEN, LATENTS, N = 128, 784, 400, 20, 60_000
STEPS = 10


def ours(y: Any) -> tuple[Side, Any]:
    """Steps of `adam` on the graph of a VAE."""
    graph, algorithm = models.VAE(LATENTS, PIXELS), lamu.algorithms.adam(1e-3)
    objective, batch = Objective(graph, N), graph.read({"y": y}).full()
    state = jax.jit(algorithm.init)(jax.random.key(0), objective, batch)
    step = lambda key, state, batch: algorithm.step(key, state, batch, objective)

    @partial(jax.jit, donate_argnums=0)
    def run(state: Any, batch: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        keys = jax.random.split(key, STEPS + 1)
        state, info = jax.lax.scan(lambda state, key: step(key, state, batch), state, keys[1:])
        return (state, batch, keys[0]), info.loss

    program = (jax.jit(step), (jax.random.key(0), state, batch))
    call = carried(run, jax.tree.map(jnp.copy, state), batch, jax.random.key(1))
    return here("lamu", call, STEPS, program), call


def dense(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ layer["kernel"] + layer["bias"]


def first_layers(key: jax.Array) -> dict[str, Any]:
    """The weights of both networks by hand."""
    sizes = {
        "in": (PIXELS, HIDDEN),
        "moments": (HIDDEN, 2 * LATENTS),
        "up": (LATENTS, HIDDEN),
        "out": (HIDDEN, PIXELS),
    }
    return {
        name: {"kernel": jax.random.normal(k, size) * (2 / size[0]) ** 0.5, "bias": jnp.zeros(size[1])}
        for k, (name, size) in zip(jax.random.split(key, 4), sizes.items(), strict=True)
    }


def bare(y: Any) -> tuple[Side, Any]:
    """The same steps without any part of the library, nor a prior of the weights."""
    optimiser = optax.adam(1e-3)

    def loss(layers: Any, y: jax.Array, key: jax.Array) -> jax.Array:
        mean, log_scale = jnp.split(dense(layers["moments"], jax.nn.relu(dense(layers["in"], y))), 2, axis=1)
        z = mean + jnp.exp(log_scale) * jax.random.normal(key, mean.shape)
        logits = dense(layers["out"], jax.nn.relu(dense(layers["up"], z)))
        reconstruction = jnp.sum(y * logits - jax.nn.softplus(logits), axis=1)
        divergence = jnp.sum((jnp.exp(2 * log_scale) + mean**2 - 1) / 2 - log_scale, axis=1)
        return jnp.mean(divergence - reconstruction)

    def step(layers: Any, memory: Any, y: jax.Array, key: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(layers, y, key)
        updates, memory = optimiser.update(gradient, memory, layers)
        return (optax.apply_updates(layers, updates), memory), value

    @partial(jax.jit, donate_argnums=(0, 1))
    def run(layers: Any, memory: Any, y: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        keys = jax.random.split(key, STEPS + 1)
        (layers, memory), values = jax.lax.scan(lambda carry, key: step(*carry, y, key), (layers, memory), keys[1:])
        return (layers, memory, y, keys[0]), values

    layers = first_layers(jax.random.key(0))
    carry = (layers, optimiser.init(layers), y, jax.random.key(1))
    call = carried(run, *jax.tree.map(jnp.copy, carry[:2]), *carry[2:])
    return here("bare scan", call, STEPS, (jax.jit(step), carry)), call


def numpyro(y: Any) -> tuple[Side, Any]:
    """NumPyro's SVI on the same networks, the state given away."""
    import numpyro
    from numpyro import distributions
    from numpyro.infer import SVI, Trace_ELBO

    first = first_layers(jax.random.key(0))

    def network(*names: str) -> Any:
        return [numpyro.param(name, first[name]) for name in names]

    def model(y: jax.Array) -> None:
        up, out = network("up", "out")
        with numpyro.plate("rows", len(y)):
            z = numpyro.sample("z", distributions.Normal(0, 1).expand([LATENTS]).to_event(1))
            logits = dense(out, jax.nn.relu(dense(up, z)))
            numpyro.sample("y", distributions.Bernoulli(logits=logits).to_event(1), obs=y)

    def guide(y: jax.Array) -> None:
        enter, moments = network("in", "moments")
        mean, log_scale = jnp.split(dense(moments, jax.nn.relu(dense(enter, y))), 2, axis=1)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("z", distributions.Normal(mean, jnp.exp(log_scale)).to_event(1))

    svi = SVI(model, guide, numpyro.optim.Adam(1e-3), Trace_ELBO())

    @partial(jax.jit, donate_argnums=0)
    def run(state: Any, y: jax.Array) -> tuple[Any, jax.Array]:
        state, losses = jax.lax.scan(lambda state, _: svi.update(state, y), state, length=STEPS)
        return (state, y), losses / ROWS

    call = carried(run, svi.init(jax.random.key(1), y), y)
    return here("NumPyro", call, STEPS), call


@row("vae", "VAE step, 784-400-20-400-784, batch 128")
def vae(quick: bool) -> Race:
    y = jnp.asarray(np.random.default_rng(0).uniform(size=(ROWS, PIXELS)) < 0.2, jnp.float32)
    made = [ours(y), numpyro(y), bare(y)]
    # The negative bound of one batch, after as many steps on each side.
    bounds = [float(np.mean([np.mean(call()) for _ in range(30)][-5:])) for _, call in made]
    # Ours has the prior of the weights, of which the constant is all that tells.
    bounds[0] -= (
        0.5 * np.log(2 * np.pi) * sum(leaf.size for leaf in jax.tree.leaves(first_layers(jax.random.key(0)))) / N
    )
    assert max(bounds) / min(bounds) < 1.05, f"the losses after 300 steps are {bounds}"
    told = ", ".join(f"{bound:.1f}" for bound in bounds)
    sides = tuple(side for side, _ in made)
    same = f"the loss of a row after 300 steps, {told}"
    return Race(sides[:1], sides[1:], "step", same, 30 if quick else 100, first="ran before")
