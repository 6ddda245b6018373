"""Digits drawn in eight steps: a recurrent attentive writer beside an autoencoder with as many parameters.

At each step the encoder looks at the image and at what is still wrong with the canvas, and the decoder writes, on all
of the canvas or on a patch that it moves. The digits are those of scikit-learn, 8 × 8 pixels cut to black and white.
The script prints the bound of held-out images and their average log density by importance sampling, and writes a
picture of the canvas after every step.

    python examples/draw.py [folder for the picture]
"""

import sys
from pathlib import Path

import jax
import numpy as np

import lamu
from lamu.latent import Attention, models
from lamu.networks import MLP

STEPS, LATENTS = 8, 3
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
x, _ = (np.asarray(part) for part in lamu.data.load("digits"))
pixels = (x.reshape(len(x), -1) > 0.5 * x.max()).astype(np.float32)
order = np.random.default_rng(0).permutation(len(pixels))
train, test = pixels[order[:1400]], pixels[order[1400:]]

glimpse = Attention(4, (8, 8))
graphs = {
    "VAE": models.VAE(8, 64, MLP((171,)), MLP((171,))),
    "DRAW": models.DRAW(STEPS, LATENTS, 64, 28),
    "DRAW with attention": models.DRAW(STEPS, LATENTS, 64, 40, read=glimpse, write=glimpse),
}
posteriors = {}
for name, graph in graphs.items():
    adam = lamu.algorithms.adam(lamu.rate.Annealed(3e-3))
    posterior = posteriors[name] = lamu.fit(graph, {"y": train}, adam, steps=1500, batch_size=128).posterior
    parameters = sum(leaf.size for leaf in jax.tree.leaves(posterior.mean))
    bound, density = (lamu.scores.mean_log_prob(posterior, {"y": test}, samples=samples) for samples in (1, 200))
    print(f"{name}, {parameters:,} parameters: bound by one draw {bound}, log p(y) {density} nats an image")

rows = {"image": test[:12]}
for name, short in (("DRAW", "step"), ("DRAW with attention", "attention")):
    posterior = posteriors[name]
    z = posterior.local({"y": test[:12]})["z"].mean
    network, weights = posterior.model.networks[0].network, posterior.mean["network"]["decode"]
    canvases = jax.vmap(lambda z, network=network, weights=weights: network.canvases(weights, z, 64))(z)
    rows |= {f"{short} {t + 1}": jax.nn.sigmoid(canvases[:, t]) for t in range(STEPS)}
lamu.plots.image_rows(rows, shape=(8, 8))[0].figure.savefig(folder / "draw.png")
