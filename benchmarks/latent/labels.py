"""Semi-supervised classification of MNIST: M2 and M1+M2 beside the same classifier on the labels alone.

The labelled rows are repeated with a weight of one over the number of copies, so that a quarter of every batch has
labels; the sum over rows stays the same.
"""

from __future__ import annotations

import numpy as np

import lamu
from benchmarks.latent.rows import Rows, fitted, images
from lamu.latent import models
from lamu.networks import MLP

PUBLISHED = {
    100: "published: M2 11.97, M1+M2 3.33; reruns 17.8, 9.3",
    1_000: "published: M2 3.60, M1+M2 2.40; reruns 4.9, 5.7",
}
ASKED = {100: 5, 1_000: 1}
HIDDEN, CODES, STYLES, SHARE = 300, 50, 20, 0.25
WEIGHT, WEIGHT_OF_CODES = 1.0, 10.0  # what a label counts in M2, and above the codes of M1


def main(quick: bool) -> None:
    """Prints percent of errors on the test images, over draws of the labels."""
    draws, steps = ((0,), 500) if quick else ((0, 1, 2), 2_000)
    print(f"labels: percent of errors on MNIST's test images, {len(draws)} draws of the labels, {steps:,} steps of 128")
    mnist = images("mnist", binary=True)
    vae = fitted(models.VAE(CODES, 784, MLP((HIDDEN,)), MLP((HIDDEN,))), mnist.train, 1e-3, 2 * steps)
    for labels, published in PUBLISHED.items():
        errors = np.array([_errors(mnist, vae, labels, draw, steps) for draw in draws])
        means, spreads = errors.mean(0), errors.std(0, ddof=1 if len(draws) > 1 else 0) / len(draws) ** 0.5
        names = ("labels alone", "M2", "M1+M2")
        found = ", ".join(f"{n} {m:.1f} ± {s:.1f}" for n, m, s in zip(names, means, spreads, strict=True))
        print(
            f"  {labels:5,} labels: {found} (asked: M2 {ASKED[labels]} below alone, M1+M2 below M2; {published})",
            flush=True,
        )


def _errors(mnist: Rows, vae: lamu.Posterior, labels: int, draw: int, steps: int) -> tuple[float, float, float]:
    known = balanced(mnist.train_labels, labels, draw)
    classifier = lamu.Model(MLP((HIDDEN,)), lamu.likelihoods.Categorical(10))
    adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-3))
    rows = mnist.train[known], mnist.train_labels[known].astype(np.int32)
    alone = lamu.fit(classifier, rows, adam, steps=1_000, batch_size=100, seed=draw).posterior
    pixels = m2(mnist.train, mnist.train_labels, known, lamu.likelihoods.Bernoulli(), WEIGHT, steps, draw)
    codes, test = (np.asarray(vae.local({"y": part})["z"].mean) for part in (mnist.train, mnist.test))
    stacked = m2(codes, mnist.train_labels, known, lamu.likelihoods.Gaussian(), WEIGHT_OF_CODES, 2 * steps, draw)
    p = (np.asarray(alone.predict(mnist.test).mean), classes(pixels, mnist.test), classes(stacked, test))
    return tuple(100 * float(np.mean(each.argmax(-1) != mnist.test_labels)) for each in p)


def balanced(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns the numbers of rows that keep their labels, as many of each class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return np.concatenate([order[labels[order] == c][: count // 10] for c in range(10)])


def m2(
    y: np.ndarray,
    labels: np.ndarray,
    known: np.ndarray,
    likelihood: lamu.likelihoods.Likelihood,
    alpha: float,
    steps: int,
    seed: int,
) -> lamu.Posterior:
    """Returns M2 of rows of which some keep their labels."""
    others = np.setdiff1d(np.arange(len(y)), known)
    copies = max(1, round(SHARE / (1 - SHARE) * len(others) / len(known)))
    rows = np.concatenate([others, np.repeat(known, copies)])
    c = np.where(np.arange(len(rows)) < len(others), np.nan, labels[rows])
    weight = np.where(np.isnan(c), 1.0, 1.0 / copies).astype(np.float32)
    share, pixels = len(known) / len(y), y.shape[1]
    graph = models.SemiSupervised(10, STYLES, pixels, (HIDDEN,), alpha, likelihood, share)
    adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-3))
    data = {"y": y[rows], "c": c, "weight": weight}
    return lamu.fit(graph, data, adam, steps=steps, batch_size=128, seed=seed).posterior


def classes(posterior: lamu.Posterior, y: np.ndarray) -> np.ndarray:
    """Returns the probabilities of the classes of rows without labels."""
    return np.asarray(posterior.local({"y": y})["c"].mean)
