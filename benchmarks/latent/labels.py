"""Semi-supervised classification of MNIST: M2 and M1+M2 beside the same classifier on the labels alone.

Both learn from the labelled rows alone first, and go on from there with all rows, of which those with a label are a
quarter of every batch.
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
HIDDEN, CODES = 300, 50
# Chosen on development rows, the last 10,000 training images, with draw 0 of a hundred labels.
STYLES, STYLES_OF_CODES = 3, 5  # numbers of style in M2, and above the codes of M1
RATE, FIRST = 3e-3, 500  # and steps on the labelled rows alone
STEPS, STEPS_OF_CODES, STEPS_OF_VAE = 600, 1_000, 4_000


def main(quick: bool) -> None:
    """Prints percent of errors on the test images, over draws of the labels."""
    draws, shorter = ((0,), 4) if quick else ((0, 1, 2), 1)
    print(f"labels: percent of errors on MNIST's test images, {len(draws)} draws of the labels, {STEPS:,} steps of 128")
    mnist = images("mnist", binary=True)
    vae = fitted(models.VAE(CODES, 784, MLP((HIDDEN,)), MLP((HIDDEN,))), mnist.train, 1e-3, STEPS_OF_VAE // shorter)
    for labels, published in PUBLISHED.items():
        errors = np.array([_errors(mnist, vae, labels, draw, shorter) for draw in draws])
        means, spreads = errors.mean(0), errors.std(0, ddof=1 if len(draws) > 1 else 0) / len(draws) ** 0.5
        names = ("labels alone", "M2", "M1+M2")
        found = ", ".join(f"{n} {m:.1f} ± {s:.1f}" for n, m, s in zip(names, means, spreads, strict=True))
        print(
            f"  {labels:5,} labels: {found} (asked: M2 {ASKED[labels]} below alone, M1+M2 below M2; {published})",
            flush=True,
        )


def _errors(mnist: Rows, vae: lamu.Posterior, labels: int, draw: int, shorter: int) -> tuple[float, ...]:
    known = balanced(mnist.train_labels, labels, draw)
    classifier = lamu.Model(MLP((HIDDEN,)), lamu.likelihoods.Categorical(10))
    adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-3))
    rows = mnist.train[known], mnist.train_labels[known].astype(np.int32)
    alone = lamu.fit(classifier, rows, adam, steps=1_000, batch_size=100, seed=draw).posterior
    pixels = m2(mnist.train, mnist.train_labels, known, lamu.likelihoods.Bernoulli(), STYLES, STEPS // shorter, draw)
    codes, test = (np.asarray(vae.local({"y": part})["z"].mean) for part in (mnist.train, mnist.test))
    gaussian, steps = lamu.likelihoods.Gaussian(), STEPS_OF_CODES // shorter
    stacked = m2(codes, mnist.train_labels, known, gaussian, STYLES_OF_CODES, steps, draw)
    p = (np.asarray(alone.predict(mnist.test).mean), classes(pixels, mnist.test), classes(stacked, test))
    found = tuple(100 * float(np.mean(each.argmax(-1) != mnist.test_labels)) for each in p)
    print(f"    {labels:5,} labels, draw {draw}: alone, M2, M1+M2 {', '.join(f'{e:.2f}' for e in found)}", flush=True)
    return found


def balanced(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Returns the numbers of rows that keep their labels, as many of each class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return np.concatenate([order[labels[order] == c][: count // 10] for c in range(10)])


def m2(
    y: np.ndarray,
    labels: np.ndarray,
    known: np.ndarray,
    likelihood: lamu.likelihoods.Likelihood,
    styles: int,
    steps: int,
    seed: int,
) -> lamu.Posterior:
    """Returns M2 of rows of which some keep their labels: first of those alone, and from there of all."""
    share = len(known) / len(y)
    graph = models.SemiSupervised(10, styles, y.shape[1], (HIDDEN,), labelled=share, likelihood=likelihood)
    c = np.where(np.isin(np.arange(len(y)), known), labels, np.nan)
    adam = lamu.algorithms.adam(lamu.rate.Annealed(RATE))
    first = lamu.fit(graph, {"y": y[known], "c": c[known]}, adam, steps=FIRST, batch_size=128, seed=seed).posterior
    data = lamu.latent.oversample_labelled({"y": y, "c": c})
    return lamu.fit(graph.starting_at(first.mean), data, adam, steps=steps, batch_size=128, seed=seed).posterior


def classes(posterior: lamu.Posterior, y: np.ndarray) -> np.ndarray:
    """Returns the probabilities of the classes of rows without labels."""
    return np.asarray(posterior.local({"y": y})["c"].mean)
