"""IVON on every weight beside Adam where images are few: pixels of MNIST cut at one half, 10 epochs."""

from __future__ import annotations

import numpy as np

import lamu
from benchmarks.latent.rows import images, told
from lamu.latent import models

EPOCHS, LATENTS, SAMPLES = 10, 20, 128


def main(quick: bool) -> None:
    """Prints log densities of both, and the gain of IVON, paired by test image."""
    counts, tests = ((500,), 200) if quick else ((500, 2_000, 10_000), 1_000)
    print(f"few: log p(y) of MNIST cut at 1/2, {EPOCHS} epochs (a prototype on 10,000: IVON -99.2, Adam -100.6)")
    mnist = images("mnist", binary=False)
    train, test = ((part > 0.5).astype(np.float32) for part in (mnist.train, mnist.test[:tests]))
    for count in counts:
        adam, ivon = (
            _density(train[:count], algorithm, test)
            for algorithm in (lamu.algorithms.adam(1e-3), lamu.algorithms.ivon())
        )
        print(f"  {count:6,} images: Adam {told(adam)}, IVON on everything {told(ivon)}, by {told(ivon - adam)} more")


def _density(train: np.ndarray, algorithm: lamu.protocol.Algorithm, test: np.ndarray) -> np.ndarray:
    fit = lamu.fit(models.VAE(LATENTS, 784), {"y": train}, algorithm, epochs=EPOCHS, batch_size=128)
    return np.asarray(fit.posterior.log_prob({"y": test}, samples=SAMPLES), float)
