"""Steps of a VAE by turns in one run: ours, a bare scan, NumPyro's SVI with donated state, and plain PyTorch.

The network is 784-400-20-400-784 on one batch of 128 rows, by Adam. Times are medians of alternated turns; each ratio
is that of the two turns next to each other.
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
from lamu.data import Batch
from lamu.latent import models
from lamu.objective import Objective

ROWS, PIXELS, HIDDEN, LATENTS, N = 128, 784, 400, 20, 60_000
STEPS = 20  # of one turn
Turn = Callable[[], None]


def main(quick: bool) -> None:
    """Prints a ratio of times for every peer; above one, we are slower."""
    print("speed: milliseconds a step, ours and theirs (asked: bare scan <= 1.05, NumPyro <= 0.83, PyTorch <= 0.50)")
    y = (np.random.default_rng(0).uniform(size=(ROWS, PIXELS)) < 0.2).astype(np.float32)
    mine, pairs = ours(y), 5 if quick else 25
    for name, peer in {"bare scan": bare(y), "NumPyro, donated": numpyro(y), "PyTorch": pytorch(y)}.items():
        print(" ", alternate(name, mine, peer, per_call=STEPS, pairs=pairs), flush=True)


def ours(y: np.ndarray) -> Turn:
    """Returns steps of `adam` on the graph of a VAE, one compiled scan."""
    graph, algorithm = models.VAE(LATENTS, PIXELS), lamu.algorithms.adam(1e-3)
    objective, batch = Objective(graph, N), graph.read({"y": y}).full()
    state = jax.jit(algorithm.init)(jax.random.key(0), objective, batch)

    @partial(jax.jit, donate_argnums=0)
    def run(state: Any, batch: Batch, key: jax.Array) -> tuple[Any, jax.Array]:
        keys = jax.random.split(key, STEPS + 1)
        step = lambda state, key: algorithm.step(key, state, batch, objective)
        state, info = jax.lax.scan(step, state, keys[1:])
        return (state, batch, keys[0]), info.loss

    return carried(run, state, batch, jax.random.key(1))


def dense(layer: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Returns an affine map."""
    return x @ layer["kernel"] + layer["bias"]


def first_layers(key: jax.Array) -> dict[str, Any]:
    """Returns the weights of both networks by hand."""
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


def bare(y: np.ndarray) -> Turn:
    """Returns the same steps without any part of the library, nor a prior of the weights."""
    optimiser = optax.adam(1e-3)

    def loss(layers: Any, y: jax.Array, key: jax.Array) -> jax.Array:
        mean, log_scale = jnp.split(dense(layers["moments"], jax.nn.relu(dense(layers["in"], y))), 2, axis=1)
        z = mean + jnp.exp(log_scale) * jax.random.normal(key, mean.shape)
        logits = dense(layers["out"], jax.nn.relu(dense(layers["up"], z)))
        reconstruction = jnp.sum(y * logits - jax.nn.softplus(logits), axis=1)
        divergence = jnp.sum((jnp.exp(2 * log_scale) + mean**2 - 1) / 2 - log_scale, axis=1)
        return jnp.mean(divergence - reconstruction)

    @partial(jax.jit, donate_argnums=(0, 1))
    def run(layers: Any, memory: Any, y: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            layers, memory = carry
            value, gradient = jax.value_and_grad(loss)(layers, y, key)
            updates, memory = optimiser.update(gradient, memory, layers)
            return (optax.apply_updates(layers, updates), memory), value

        keys = jax.random.split(key, STEPS + 1)
        (layers, memory), values = jax.lax.scan(step, (layers, memory), keys[1:])
        return (layers, memory, y, keys[0]), values

    layers = first_layers(jax.random.key(0))
    return carried(run, layers, optimiser.init(layers), jnp.asarray(y), jax.random.key(1))


def numpyro(y: np.ndarray) -> Turn:
    """Returns steps of NumPyro's SVI on the same networks, the state given away, one compiled scan."""
    import numpyro
    from numpyro import distributions
    from numpyro.infer import SVI, Trace_ELBO

    first = first_layers(jax.random.key(0))

    def network(*names: str) -> Any:
        return [numpyro.param(f"{name}", first[name]) for name in names]

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
        return (state, y), losses

    return carried(run, svi.init(jax.random.key(1), jnp.asarray(y)), jnp.asarray(y))


def pytorch(y: np.ndarray) -> Turn:
    """Returns steps of eager PyTorch as its example scripts have them."""
    import torch

    enter, moments = torch.nn.Linear(PIXELS, HIDDEN), torch.nn.Linear(HIDDEN, 2 * LATENTS)
    up, out = torch.nn.Linear(LATENTS, HIDDEN), torch.nn.Linear(HIDDEN, PIXELS)
    parameters = [weight for layer in (enter, moments, up, out) for weight in layer.parameters()]
    optimiser, rows = torch.optim.Adam(parameters, 1e-3), torch.tensor(y)

    def step() -> None:
        mean, log_scale = moments(torch.relu(enter(rows))).chunk(2, dim=1)
        z = mean + torch.exp(log_scale) * torch.randn_like(mean)
        logits = out(torch.relu(up(z)))
        reconstruction = torch.nn.functional.binary_cross_entropy_with_logits(logits, rows, reduction="sum")
        divergence = torch.sum((torch.exp(2 * log_scale) + mean**2 - 1) / 2 - log_scale)
        optimiser.zero_grad()
        ((reconstruction + divergence) / ROWS).backward()
        optimiser.step()

    def turn() -> None:
        for _ in range(STEPS):
            step()

    return turn
