"""One layer of latents or two? Held-out digits choose the depth of a deep latent Gaussian model.

Both models learn scikit-learn's digits at equal steps. The bound, by one draw a row, is what training maximises; the
log density, by 100 importance weights, is what is comparable. The script prints both with standard errors and draws
new digits of either depth.

    python examples/dlgm_depth.py [folder for the picture]
"""

import sys
from pathlib import Path

import jax
import numpy as np

import lamu
from lamu import latent
from lamu.latent import models

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
x, _ = lamu.data.load("digits")
pixels = (np.asarray(x).reshape(len(x), -1) > 0.5 * np.max(x)).astype(np.float32)
order = np.random.default_rng(0).permutation(len(pixels))
train, test = {"y": pixels[order[:1400]]}, {"y": pixels[order[1400:]]}

adam, new = lamu.algorithms.adam(lamu.rate.Annealed(3e-3)), {}
for layers in ((10,), (10, 5)):
    graph = models.DeepLatentGaussian(layers, 64, hidden=(100,))
    posterior = lamu.fit(graph, train, adam, steps=2000, batch_size=128).posterior
    bound = lamu.scores.mean_log_prob(posterior, test, samples=1)
    density = lamu.scores.mean_log_prob(posterior, test, samples=100)
    name = " + ".join(str(width) for width in layers)
    print(f"{name:10} latents: bound {bound}, log p(y) {density} nats an image")
    new[name] = latent.generate(posterior, 16, jax.random.key(0))["y"]
lamu.plots.image_rows(new, shape=(8, 8))[0].figure.savefig(folder / "dlgm_depth.png")
