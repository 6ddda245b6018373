"""Analogies: the class of a row swept at its own style, judged by a classifier that M2 has not seen.

Few numbers of style are part of the question: a large style holds the class too. The judge learns from grey pixels,
which the means of analogies are.
"""

from __future__ import annotations

import jax
import numpy as np

import lamu
from benchmarks.latent.labels import HIDDEN, RATE, STYLES, balanced, m2
from benchmarks.latent.rows import Rows, images
from lamu.latent import models
from lamu.networks import MLP

WIDTHS = (500, 500)  # of the judge, which learns from all labels


def main(quick: bool) -> None:
    """Prints how often the judge reads the class that was swept."""
    steps, rows = (500, 100) if quick else (4_000, 500)
    print("swept: classes of MNIST at the style of test rows (asked: right in 95 % by a separate classifier)")
    mnist, grey = images("mnist", binary=True), images("mnist", binary=False)
    adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-3))
    data = grey.train, grey.train_labels.astype(np.int32)
    classifier = lamu.Model(MLP(WIDTHS), lamu.likelihoods.Categorical(10))
    judge = lamu.fit(classifier, data, adam, steps=steps, batch_size=128).posterior
    read = np.asarray(judge.predict(grey.test).mean).argmax(-1)
    print(f"  the judge, on test images: {np.mean(read != grey.test_labels):.1%} wrong", flush=True)
    own = {"y": mnist.test[:rows], "c": mnist.test_labels[:rows].astype(float)}
    for labels in (len(mnist.train), 1_000):
        posterior = _from_all(mnist, steps) if labels == len(mnist.train) else _from_some(mnist, labels, steps)
        swept = np.asarray(lamu.latent.analogies(posterior, own, jax.random.key(0))["y"])
        seen = np.asarray(judge.predict(swept.reshape(-1, 784)).mean).argmax(-1)
        right = (seen.reshape(rows, 10) == np.arange(10)).mean(1)
        error = right.std(ddof=1) / rows**0.5
        print(
            f"  {labels:,} labels, {STYLES} numbers of style: {right.mean():.1%} ± {error:.1%} of {10 * rows:,} right",
            flush=True,
        )


def _from_all(mnist: Rows, steps: int) -> lamu.Posterior:
    graph = models.SemiSupervised(10, STYLES, 784, (HIDDEN,))
    adam = lamu.algorithms.adam(lamu.rate.Annealed(RATE))
    data = {"y": mnist.train, "c": mnist.train_labels.astype(float)}
    return lamu.fit(graph, data, adam, steps=steps, batch_size=128).posterior


def _from_some(mnist: Rows, labels: int, steps: int) -> lamu.Posterior:
    known = balanced(mnist.train_labels, labels, 0)
    return m2(mnist.train, mnist.train_labels, known, lamu.likelihoods.Bernoulli(), STYLES, steps, 0)
