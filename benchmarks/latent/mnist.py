"""The VAE of MNIST, its pixels drawn once to bits: 20 latents, 400 units, by Adam, and by IVON on the decoder."""

from __future__ import annotations

import numpy as np

import lamu
from benchmarks.latent.rows import images, told
from lamu.algorithms import adam, blocks, ivon
from lamu.latent import models

ALGORITHMS = {"Adam": adam(1e-3), "IVON on the decoder": blocks({"decode/*": ivon(), "local/*": adam(1e-3)})}
STEPS, QUICK_STEPS, LATENTS, SAMPLES = 10_000, 1_000, 20, 128


def main(quick: bool) -> None:
    """Prints the log density of test images, and the gain of a Bayesian decoder where rows are few."""
    steps, rows = (QUICK_STEPS, 500) if quick else (STEPS, 2_000)
    print(
        f"mnist: log p(y) in nats, {SAMPLES} importance samples, the first {rows:,} test images, {steps:,} steps of 128"
    )
    print("  published: -97.10 (fixed bits, 65,000 steps), -84.78 (new bits every step, 50 importance samples, long)")
    mnist = images("mnist", binary=True)
    test = mnist.test[:rows]
    for name, algorithm in ALGORITHMS.items():
        density = _density(mnist.train, algorithm, steps, test)
        print(f"  60,000 images, {name:20} {told(density)}   (asked: -97.0)", flush=True)
    for count in (500, 2_000, 10_000):
        found = {name: _density(mnist.train[:count], each, steps // 5, test) for name, each in ALGORITHMS.items()}
        gain = found["IVON on the decoder"] - found["Adam"]
        print(
            f"  {count:6,} images, {steps // 5:,} steps: Adam {told(found['Adam'])}, IVON by {told(gain)} more",
            flush=True,
        )


def _density(train: np.ndarray, algorithm: lamu.protocol.Algorithm, steps: int, test: np.ndarray) -> np.ndarray:
    posterior = lamu.fit(models.VAE(LATENTS, 784), {"y": train}, algorithm, steps=steps, batch_size=128).posterior
    return np.asarray(posterior.log_prob({"y": test}, samples=SAMPLES), float)
