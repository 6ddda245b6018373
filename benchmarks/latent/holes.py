"""Missing pixels of Fashion-MNIST: filled in beside factor analysis and the mean, and learned around."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

import lamu
from benchmarks.latent.rows import fitted, images, log_prob, told
from lamu import graphs, latent
from lamu.latent import models
from lamu.networks import MLP

LATENTS, HIDDEN, FACTORS = 20, 300, 20
# Where pixels are filled in; chosen on the last 10,000 training images. With a noise of their own, pixels of the
# margin, which hardly vary, outweigh all others, and the fit does not get near its optimum in these steps.
RATE, WARMUP, NOISE = 3e-3, 50, 0.12


def main(quick: bool) -> None:
    """Prints errors and coverage of filled pixels, and the log density lost by missing ones."""
    steps, count, tests = (600, 2_000, 100) if quick else (4_000, 10_000, 500)
    _filled(2 * steps, count, tests)
    _learned(2 * steps, count, tests)


def _filled(steps: int, count: int, tests: int) -> None:
    print("holes: pixels of Fashion-MNIST in [0, 1] filled in (asked: below both others, 90 % intervals cover 85-95 %)")
    fashion = images("fashion_mnist", binary=False)
    random, test = np.random.default_rng(1), fashion.test[:tests]
    center = fashion.train[:count].mean(0)
    # Learned from rows of which every one shows a share of its own, so that the encoder knows all shares.
    shown = random.uniform(size=(count, 784)) < random.uniform(0.05, 1.0, (count, 1))
    train = np.where(shown, fashion.train[:count], np.nan).astype(np.float32) - center
    graph = models.VAE(LATENTS, 784, MLP((HIDDEN,)), MLP((HIDDEN,)), likelihood=lamu.likelihoods.Gaussian(scale=NOISE))
    vae = fitted(graph, train, RATE, steps)
    analysis = graphs.models.FactorAnalysis(FACTORS, 784)
    factors = lamu.fit(analysis, {"y": train}, lamu.algorithms.vmp(), steps=30)  # as many rows as the VAE
    for share in (0.2, 0.1):
        seen = random.uniform(size=test.shape) < share
        holes = np.where(seen, test - center, np.nan).astype(np.float32)
        draws = latent.impute(vae, {"y": holes}, jax.random.key(0), draws=100, warmup=WARMUP)["y"]
        means = {
            "VAE": np.mean(draws, axis=0),
            "FA with holes": np.asarray(factors.posterior.predict({"y": holes}).mean),
            "mean": np.zeros_like(test),
        }
        errors = {n: [np.mean((m - test + center)[i][~seen[i]] ** 2) for i in range(tests)] for n, m in means.items()}
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        inside = ((low <= test - center) & (test - center <= high))[~seen]
        found = ", ".join(f"{n} {np.mean(e):.4f} ± {np.std(e) / tests**0.5:.4f}" for n, e in errors.items())
        print(f"  {share:.0%} observed: squared error {found}; 90 % intervals cover {inside.mean():.1%}", flush=True)


def _learned(steps: int, count: int, tests: int) -> None:
    print("holes: learning from half of the pixels of MNIST (asked: within 3 nats)")
    mnist = images("mnist", binary=True)
    train, test = mnist.train[:count], mnist.test[:tests]
    half = np.where(np.random.default_rng(2).uniform(size=train.shape) < 0.5, train, np.nan).astype(np.float32)
    graph = models.VAE(LATENTS, 784, MLP((HIDDEN,)), MLP((HIDDEN,)))
    # The encoder of half rows has never read a whole one; log p is of the decoder, whatever the proposal.
    refined = replace(graph, local={name: latent.Refined(local, 30, 0.1) for name, local in graph.local.items()})
    of = lambda y: replace(fitted(graph, y, 1e-3, steps), model=refined)
    whole, partly = (log_prob(of(y), test) for y in (train, half))
    lost = told(whole - partly)
    print(f"  {count:,} images: all pixels {told(whole)}, half missing {told(partly)}, lost {lost}", flush=True)
