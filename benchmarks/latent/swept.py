"""Analogies: the class of a row swept at its own style, judged by a classifier that M2 has not seen."""

from __future__ import annotations

import jax
import numpy as np

import lamu
from benchmarks.latent.labels import STYLES, WEIGHT, balanced, m2
from benchmarks.latent.rows import images
from lamu.networks import MLP

WIDTHS = (500, 500)  # of the judge, which learns from all labels


def main(quick: bool) -> None:
    """Prints how often the judge reads the class that was swept."""
    steps, rows = (500, 100) if quick else (4_000, 500)
    print("swept: classes of MNIST at the style of test rows (asked: right in 95 % by a separate classifier)")
    mnist = images("mnist", binary=True)
    adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-3))
    data = mnist.train, mnist.train_labels.astype(np.int32)
    classifier = lamu.Model(MLP(WIDTHS), lamu.likelihoods.Categorical(10))
    judge = lamu.fit(classifier, data, adam, steps=2 * steps, batch_size=128).posterior
    read = np.asarray(judge.predict(mnist.test).mean).argmax(-1)
    print(f"  the judge, on test images: {np.mean(read != mnist.test_labels):.1%} wrong")
    for labels in (1_000, len(mnist.train)):
        all_of_them = labels == len(mnist.train)
        known = np.arange(labels) if all_of_them else balanced(mnist.train_labels, labels, 0)
        posterior = m2(mnist.train, mnist.train_labels, known, lamu.likelihoods.Bernoulli(), WEIGHT, steps, 0)
        own = {"y": mnist.test[:rows], "c": mnist.test_labels[:rows].astype(float)}
        swept = np.asarray(lamu.latent.analogies(posterior, own, jax.random.key(0))["y"])
        # The judge knows bits: the means are cut at one half.
        seen = np.asarray(judge.predict((swept > 0.5).reshape(-1, 784).astype(np.float32)).mean).argmax(-1)
        right = (seen.reshape(rows, 10) == np.arange(10)).mean(1)
        error = right.std(ddof=1) / rows**0.5
        print(
            f"  {labels:,} labels, {STYLES} numbers of style: {right.mean():.1%} ± {error:.1%} of {10 * rows:,} right"
        )
