"""A variational autoencoder of handwritten digits: a code of every image, new images, and missing halves filled in.

The digits of scikit-learn, 8 × 8 pixels cut to black and white. Two latents are enough for a map; eight make better
images. The script prints the average log density of held-out images by importance sampling, which is comparable between
models, beside the bound, which is not, and writes two pictures.

    python examples/vae.py [folder for the pictures]
"""

import sys
from pathlib import Path

import jax
import numpy as np

import lamu
from lamu import latent
from lamu.latent import models
from lamu.networks import MLP

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
x, labels = (np.asarray(part) for part in lamu.data.load("digits"))
pixels = (x.reshape(len(x), -1) > 0.5 * x.max()).astype(np.float32)
order = np.random.default_rng(0).permutation(len(pixels))
train, test = order[:1400], order[1400:]


def fitted(latents: int) -> lamu.Posterior:
    graph = models.VAE(latents, 64, decoder=MLP((100,)), encoder=MLP((100,)))
    rate = lamu.rate.Annealed(3e-3)
    return lamu.fit(graph, {"y": pixels[train]}, lamu.algorithms.adam(rate), steps=1500, batch_size=128).posterior


posteriors = {latents: fitted(latents) for latents in (2, 8)}
for latents, posterior in posteriors.items():
    held_out = {"y": pixels[test]}
    bound = lamu.scores.mean_log_prob(posterior, held_out, samples=1)
    density = lamu.scores.mean_log_prob(posterior, held_out, samples=100)
    print(f"{latents} latents: log p(y) {density} nats an image; by one draw, a bound, {bound}")

belief = posteriors[2].local({"y": pixels[test]})["z"]
lamu.plots.latent_map(belief.mean, labels[test]).figure.savefig(folder / "vae_map.png")

shown, posterior = pixels[test][:12], posteriors[8]
holes = np.where(np.arange(64)[None, :] < 32, shown, np.nan)
draws = latent.impute(posterior, {"y": holes}, jax.random.key(1), draws=200)["y"]
wrong = np.mean(np.round(np.mean(draws, axis=0))[:, 32:] != shown[:, 32:])
print(f"lower halves filled in: {wrong:.0%} of the pixels wrong, {np.mean(shown[:, 32:] > 0):.0%} are ink")
rows = {
    "image": shown,
    "reconstruction": latent.reconstruct(posterior, {"y": shown}, jax.random.key(2))["y"],
    "upper half": holes,
    "filled, mean": np.mean(draws, axis=0),
    "filled, a draw": draws[-1],
    "new images": latent.generate(posterior, 12, jax.random.key(3))["y"],
}
lamu.plots.image_rows(rows, shape=(8, 8))[0].figure.savefig(folder / "vae_images.png")
