r"""An algorithm of one's own with particles: Stein variational gradient descent.

Particles move along a kernelised gradient of the log posterior, which pulls them to where it is large, and a repulsion
that keeps them apart:

$$ \theta_i \leftarrow \theta_i + \frac\epsilon P \sum_j \Bigl( k(\theta_j, \theta_i)\, \nabla \log p(\theta_j \mid D)
   + \nabla_{\theta_j} k(\theta_j, \theta_i) \Bigr) $$

with a Gaussian kernel whose width follows from the median distance. The particles are the posterior, a belief of draws
like a sampler's: predicting, scoring, saving and loading need nothing more.

    python examples/yours/svgd.py
    lamu fit diabetes --algorithm svgd:SVGD --set particles=20 --epochs 50 --out run   # in this folder

Source: Liu & Wang (2016), algorithm 1.
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import lamu
from lamu import tree
from lamu.families import Draws
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Traits
from lamu.record import record, static


@record
class State:
    """All particles, along a leading axis, and the memory of the optimiser that moves them."""

    particles: object
    memory: object
    network_state: object


@record
class SVGD:
    """Stein variational gradient descent by Adam."""

    particles: int = static(default=50)
    learning_rate: float = static(default=0.05)
    spread: float = static(default=0.5)

    traits = Traits()
    choices = Choices("draws", "kernelised", "none", departures=("no step of the rule",))

    def init(self, key, objective, batch):
        params, network_state = objective.model.init(key, batch)
        start = lambda key: tree.add(params, tree.normal(key, params), self.spread)
        particles = jax.vmap(start)(jax.random.split(key, self.particles))
        return State(particles, optax.adam(self.learning_rate).init(particles), network_state)

    def step(self, key, state, batch, objective):
        _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], state.particles))
        theta = jax.vmap(lambda particle: ravel_pytree(particle)[0])(state.particles)  # [particles, D]
        loss = lambda one: objective.mean_loss(unravel(one), batch, state.network_state)[0]
        values, gradients = jax.vmap(jax.value_and_grad(loss))(theta)
        scores = -objective.concentration * gradients  # of the log posterior, not of the mean loss

        difference = theta[:, None] - theta[None, :]
        squared = jnp.sum(difference**2, axis=-1)
        width = jnp.median(squared) / jnp.log(self.particles + 1.0) + 1e-12
        kernel = jnp.exp(-squared / width)
        direction = (kernel @ scores + 2 / width * jnp.einsum("ij,ijd->id", kernel, difference)) / self.particles

        ascent = jax.vmap(unravel)(-direction)
        updates, memory = optax.adam(self.learning_rate).update(ascent, state.memory)
        return State(tree.add(state.particles, updates), memory, state.network_state), Info(jnp.mean(values))

    def posterior(self, key, state, objective, data, trace):
        draws = jax.tree.map(lambda leaf: leaf[None], state.particles)  # one chain
        return Posterior(objective.model, Draws(draws), state.network_state, Sampled(), key)


def flat(params):
    """Returns draws of the weights as `[draws, D]`."""
    return np.concatenate(
        [np.reshape(leaf, (-1, leaf.shape[-1])) for leaf in jax.tree.leaves(params["network"])], axis=1
    )


if __name__ == "__main__":
    lamu.testing.check_algorithm(SVGD())  # every law that it must obey
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 1)).astype(np.float32)
    y = (0.5 + 2 * x[:, 0] + 0.8 * random.normal(size=60)).astype(np.float32)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.8))
    exact = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
    posterior = lamu.fit(model, (x, y), SVGD(), steps=1000, batch_size=60).posterior
    for name, params in (
        ("exact", exact.sample(exact.key, 20_000)),
        ("SVGD", posterior.belief.draws(posterior.key, 50)),
    ):
        weights = flat(params)
        print(f"{name:6} bias and slope: mean {weights.mean(0).round(3)}, sd {weights.std(0).round(3)}")
    pred, truth = posterior.predict(x, samples=50), exact.predict(x)
    print(f"nll {lamu.scores.nll(pred, y):.4f}, that of the exact posterior {lamu.scores.nll(truth, y):.4f}")
    folder = posterior.save(Path(tempfile.mkdtemp()) / "posterior")
    print("loaded, the same predictions:", bool((lamu.load(folder).predict(x, samples=50).mean == pred.mean).all()))
