"""A posterior for a network that is trained already, in a library that knows nothing of this one.

A plain function of JAX is fitted to the digits with optax, as anybody would. `lamu.networks.Trained` takes the function
and its parameters, and `lamu.fit(..., epochs=0)` goes straight to the posterior: Laplace's method for all weights or
the last layer, with the precision dense, in Kronecker factors or diagonal. The scale of the prior is chosen on rows
that were kept for it. Shown are accuracy, negative log likelihood and calibration error on test rows, and how much more
unsure the network is of noise than of digits.

    python examples/trained_network.py
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from lamu.operators import Diagonal, KroneckerFactored

x, y = lamu.data.load("digits")
x = x.astype(np.float32)
train, test = lamu.data.split(y, test_size=0.4, seed=0, stratify=True)
kept, test = test[: len(test) // 4], test[len(test) // 4 :]


def network(theta, x):
    """Two layers of 64, and a head."""
    for layer in ("first", "second"):
        x = jnp.tanh(x @ theta[layer]["kernel"] + theta[layer]["bias"])
    return x @ theta["head"]["kernel"] + theta["head"]["bias"]


def trained(steps=1500):
    """Somebody's training run: no prior, no thought of uncertainty."""
    widths = {"first": (64, 64), "second": (64, 64), "head": (64, 10)}
    keys = dict(zip(widths, jax.random.split(jax.random.key(0), 3), strict=True))
    theta = {
        name: {"kernel": jax.random.normal(keys[name], shape) / shape[0] ** 0.5, "bias": jnp.zeros(shape[1])}
        for name, shape in widths.items()
    }
    optimiser = optax.adamw(3e-3, weight_decay=1e-2)

    def loss(theta, rows):
        logits = network(theta, jnp.asarray(x)[rows])
        return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.asarray(y)[rows]).mean()

    @jax.jit
    def run(theta, key):
        def step(carry, key):
            theta, memory = carry
            rows = jax.random.choice(key, jnp.asarray(train), (64,))
            updates, memory = optimiser.update(jax.grad(loss)(theta, rows), memory, theta)
            return (optax.apply_updates(theta, updates), memory), None

        return jax.lax.scan(step, (theta, optimiser.init(theta)), jax.random.split(key, steps))[0][0]

    return run(theta, jax.random.key(1))


def main():
    """Prints a line a posterior."""
    model = lamu.Model(
        lamu.networks.Trained(network, trained(), head="head/*"),
        lamu.likelihoods.Categorical(10),
        lamu.priors.LearnedNormal(1.0),  # the scale is chosen on the rows kept for it
    )
    data, noise = (x[train], y[train]), np.random.default_rng(0).uniform(size=(200, 64)).astype(np.float32)
    laplace, last_layer = lamu.algorithms.laplace, lamu.algorithms.last_layer
    contestants = {
        "as it came": lamu.algorithms.map_estimate(),
        "last layer, dense": last_layer(),
        "all weights, Kronecker": laplace(structure=KroneckerFactored()),
        "all weights, diagonal": laplace(structure=Diagonal),
    }
    print(f"{'':24} accuracy    NLL     ECE   unsure of digits, of noise (nats)   seconds")
    for name, algorithm in contestants.items():
        start = time.perf_counter()
        held = None if name == "as it came" else (x[kept], y[kept])
        posterior = lamu.fit(model, data, algorithm, epochs=0, validation=held).posterior
        pred, strange = posterior.predict(x[test]), posterior.predict(noise)
        scores = (lamu.scores.accuracy(pred, y[test]), lamu.scores.nll(pred, y[test]), lamu.scores.ece(pred, y[test]))
        unsure = float(pred.total.mean()), float(strange.total.mean())
        seconds = time.perf_counter() - start
        print(
            f"{name:24}  {scores[0]:.3f}   {scores[1]:.4f}  {scores[2]:.4f}        {unsure[0]:.2f}, {unsure[1]:.2f}"
            f"                        {seconds:5.1f}"
        )


if __name__ == "__main__":
    main()
