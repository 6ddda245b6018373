"""Missing halves and new digits

A deep latent-variable model of 8 × 8 images: from the upper half of a digit (NaN below) a chain of draws fills in the
lower one (their mean, and the last), and draws of the prior are new images. Bayesian reasoning and deep learning:
imputation and simulation.
"""

import jax
import numpy as np

import lamu
from lamu import latent
from lamu.latent import models
from lamu.networks import MLP


def draw():
    x, _ = lamu.data.load("digits")
    pixels = (np.asarray(x).reshape(len(x), -1) > 0.5).astype(np.float32)
    train, shown = pixels[:1600], pixels[1600:1612]
    graph = models.VAE(8, 64, decoder=MLP((64,)), encoder=MLP((64,)))
    algorithm = lamu.algorithms.adam(lamu.rate.Annealed(5e-3))
    posterior = lamu.fit(graph, {"y": train}, algorithm, steps=500, batch_size=128, progress=False).posterior
    holes = np.where(np.arange(64)[None] < 32, shown, np.nan)
    draws = latent.impute(posterior, {"y": holes}, jax.random.key(1), draws=40)["y"]
    rows = {
        "image": shown,
        "given": holes,
        "mean": np.mean(draws, axis=0),
        "one draw": draws[-1],
        "new images": latent.generate(posterior, 12, jax.random.key(3))["y"],
    }
    return lamu.plots.image_rows(rows, shape=(8, 8))[0].figure
