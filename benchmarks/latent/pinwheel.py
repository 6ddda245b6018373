"""A mixture below a network on a pinwheel, beside a variational autoencoder with the same networks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.metrics import adjusted_rand_score

import lamu
from benchmarks.latent.rows import log_prob, told
from lamu import graphs, latent
from lamu.families import Dirichlet, NormalWishart
from lamu.latent import models
from lamu.networks import MLP, Network
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

ARMS, NOISE, STARTS = 5, 0.15, 3


def main(quick: bool) -> None:
    """Prints the log density of new points under both, and how well the parts match the arms."""
    points, steps = (500, 300) if quick else (1_000, 500)
    print(f"pinwheel: {points:,} points of {ARMS} arms (asked: log p of new points not below the VAE's, ARI from 0.9)")
    train, _ = pinwheel(points, seed=100)
    test, arms = pinwheel(1_000, seed=101)
    mixture = lamu.Graph(_structured, local={"x": latent.Conjugate(Bend(bias=5.0))})  # messages are precise at first
    adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-2))
    exact = lamu.algorithms.blocks({"part*": lamu.algorithms.svi(0.1), "*": adam})
    vae = models.VAE(2, 2, Bend(), Bend(bias=-1.0), lamu.likelihoods.Gaussian(scale=NOISE))
    ours, plain = _best(mixture, exact, train, steps), _best(vae, adam, train, steps)
    of_mixture, of_vae = (log_prob(posterior, test, 200) for posterior in (ours, plain))
    parts = np.asarray(ours.local({"y": test})["z"].mean).argmax(axis=1)
    print(f"  log p a point: mixture below a network {told(of_mixture)}, VAE {told(of_vae)}, gain", end="")
    print(f" {told(of_mixture - of_vae)}; ARI of parts and arms {adjusted_rand_score(arms, parts):.3f}", flush=True)


def pinwheel(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points of bent arms, `[points, 2]`, and the arm of each.

    Args:
        points: how many.
        seed: of the points; the judged ones are 100 to learn from and 101.
    """
    random, arm = np.random.default_rng(seed), np.arange(points) % ARMS
    along, across = random.normal(size=(2, points)) * np.array([[0.3], [0.05]]) + np.array([[1.0], [0.0]])
    angle = 2 * np.pi * arm / ARMS + 0.25 * np.exp(along)
    x, y = along * np.cos(angle) - across * np.sin(angle), along * np.sin(angle) + across * np.cos(angle)
    return 2 * np.stack([x, y], axis=1).astype(np.float32), arm


@record
class Bend(Network):
    """The identity and a bend, x + MLP(x), and a bias of outputs beyond those of x; it starts near them.

    Attributes:
        bias: of the outputs beyond.
    """

    bias: float = 0.0

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns weights of a small bend."""
        weights, state = MLP((40, 40)).init(key, x, outputs)
        last = weights["layers"][2]["kernel"]
        beyond = jnp.where(jnp.arange(outputs) < x.shape[1], 0.0, self.bias).astype(x.dtype)
        return {**weights, "layers": {**weights["layers"], 2: {"kernel": 0.1 * last, "bias": beyond}}}, state

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the outputs."""
        bend, state = MLP((40, 40)).apply(params, state, x, key, train)
        return bend + jnp.pad(x, ((0, 0), (0, bend.shape[1] - x.shape[1]))), state


def _structured(m: graphs.Program) -> None:
    decode = m.network("decode", Bend(), outputs=2)
    weight = m.sample("part.weight", Dirichlet(jnp.ones(ARMS)))
    part = m.sample("part", NormalWishart(jnp.zeros(2), 0.05, 4.0, jnp.eye(2)), plate=ARMS)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        x = m.sample("x", graphs.MultivariateNormal(part[z]))
        m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(decode(x)))


def _best(graph: lamu.Graph, algorithm: Any, train: np.ndarray, steps: int) -> lamu.Posterior:
    """Returns the posterior, of several starts, with the largest log density of the rows that it learned from."""
    posteriors = [
        lamu.fit(graph, {"y": train}, algorithm, steps=steps, batch_size=200, seed=seed).posterior
        for seed in range(STARTS)
    ]
    return max(posteriors, key=lambda posterior: log_prob(posterior, train, 100).mean())
