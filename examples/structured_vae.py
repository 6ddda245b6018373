"""A structured autoencoder of a pinwheel: a mixture of Gaussians below a network finds the arms.

Each arm is bent, so that no Gaussian fits it; a network straightens them. The parts of the mixture keep exact beliefs,
by messages, while gradients train the networks: `Conjugate` lets the encoder speak to the mixture as a Gaussian factor
would. The script prints how well the parts match the arms, and the average log density of new points beside that of a
variational autoencoder with the same networks. Of three starts of each the one with the largest log density of the
training points is kept. It writes a picture.

    python examples/structured_vae.py [folder for the picture]
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import adjusted_rand_score

import lamu
from lamu import graphs, latent
from lamu.families import Dirichlet, NormalWishart
from lamu.networks import MLP, Network
from lamu.record import record

ARMS, STEPS = 5, 500
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")


def pinwheel(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random, arm = np.random.default_rng(seed), np.arange(points) % ARMS
    along, across = random.normal(size=(2, points)) * np.array([[0.3], [0.05]]) + np.array([[1.0], [0.0]])
    angle = 2 * np.pi * arm / ARMS + 0.25 * np.exp(along)
    x, y = along * np.cos(angle) - across * np.sin(angle), along * np.sin(angle) + across * np.cos(angle)
    return 2 * np.stack([x, y], axis=1).astype(np.float32), arm


@record
class Bend(Network):
    """The identity and a bend: x + MLP(x), and a bias for outputs beyond those of x. Both networks start near it."""

    bias: float = 0.0

    def init(self, key, x, outputs):
        weights, state = MLP((40, 40)).init(key, x, outputs)
        last = weights["layers"][2]["kernel"]
        beyond = jnp.where(jnp.arange(outputs) < x.shape[1], 0.0, self.bias).astype(x.dtype)
        return {**weights, "layers": {**weights["layers"], 2: {"kernel": 0.1 * last, "bias": beyond}}}, state

    def apply(self, params, state, x, key, train):
        bend, state = MLP((40, 40)).apply(params, state, x, key, train)
        return bend + jnp.pad(x, ((0, 0), (0, bend.shape[1] - x.shape[1]))), state


def structured(m):
    decode = m.network("decode", Bend(), outputs=2)
    weight = m.sample("part.weight", Dirichlet(jnp.ones(ARMS)))
    part = m.sample("part", NormalWishart(jnp.zeros(2), 0.05, 4.0, jnp.eye(2)), plate=ARMS)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        x = m.sample("x", graphs.MultivariateNormal(part[z]))
        m.sample("y", lamu.likelihoods.Gaussian(scale=0.15)(decode(x)))


train, _ = pinwheel(1000, seed=0)
test, arms = pinwheel(1000, seed=2)
adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-2))
graph = lamu.Graph(structured, local={"x": latent.Conjugate(Bend(bias=5.0))})  # messages are precise at first
algorithm = lamu.algorithms.blocks({"part*": lamu.algorithms.svi(0.1), "*": adam})


def best_of_three(graph, algorithm):
    runs = [lamu.fit(graph, {"y": train}, algorithm, steps=STEPS, batch_size=200, seed=seed) for seed in range(3)]
    densities = [lamu.scores.mean_log_prob(run.posterior, {"y": train}, samples=100) for run in runs]
    return runs[int(np.argmax([density.value for density in densities]))].posterior, densities


posterior, densities = best_of_three(graph, algorithm)

vae = latent.models.VAE(2, 2, Bend(), Bend(bias=-1.0), lamu.likelihoods.Gaussian(scale=0.15))
plain, _ = best_of_three(vae, adam)

beliefs = posterior.local({"y": test})
parts = np.asarray(beliefs["z"].mean).argmax(axis=1)
print("log p of the training points, three starts:", ", ".join(map(str, densities)))
print(f"adjusted Rand index of parts and arms, new points: {adjusted_rand_score(arms, parts):.3f}")
log_p, log_p_plain = (np.asarray(p.log_prob({"y": test}, samples=200)) for p in (posterior, plain))
gain = log_p - log_p_plain
print(f"log p(y), new points: {log_p.mean():.3f}; VAE {log_p_plain.mean():.3f} nats")
print(f"the difference: {gain.mean():.3f} ± {gain.std() / np.sqrt(len(gain)):.3f} nats a point")

figure = Figure(figsize=(12, 3.4), layout="constrained")
panels = figure.subplots(1, 4)
new, new_plain = (np.asarray(latent.generate(p, 1000, jax.random.key(1))["y"]) for p in (posterior, plain))
shown = (
    (test, "points, by part", parts),
    (beliefs["x"].mean, "latents x, by part", parts),
    (new, "draws", None),
    (new_plain, "draws of the VAE", None),
)
for axes, (points, title, colours) in zip(panels, shown, strict=True):
    kind = {"c": "0.3"} if colours is None else {"c": colours, "cmap": "tab10", "vmin": 0, "vmax": 9}
    axes.scatter(*np.asarray(points).T, s=4, **kind)
    axes.set(title=title, aspect="equal")
figure.savefig(folder / "structured_vae.png")
