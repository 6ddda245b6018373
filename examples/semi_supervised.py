"""A hundred labels and a thousand digits without: model M2 of Kingma et al. (2014) beside a classifier alone.

The same network classifies in both. In M2 it is also q(c | y) of a generative model. It learns from the hundred digits
with labels first, and from there on from all, with labels in every batch (`oversample_labelled`). The picture sweeps
the class at a fixed style: each row is one digit and its style in all ten classes.

    python examples/semi_supervised.py [folder for the picture]
"""

import sys
from pathlib import Path

import jax
import numpy as np

import lamu
from lamu.latent import analogies, models, oversample_labelled
from lamu.networks import MLP

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
x, labels = (np.asarray(part) for part in lamu.data.load("digits"))
pixels = (x.reshape(len(x), -1) > 0.5 * x.max()).astype(np.float32)
order = np.random.default_rng(0).permutation(len(pixels))
train, test = order[:1400], order[1400:]
known = np.concatenate([train[labels[train] == c][:10] for c in range(10)])
adam = lamu.algorithms.adam(lamu.rate.Annealed(3e-3))


def errors(probabilities) -> float:
    return float(np.mean(np.argmax(probabilities, axis=-1) != labels[test]))


classifier = lamu.Model(MLP((100,)), lamu.likelihoods.Categorical(10))
alone = lamu.fit(classifier, (pixels[known], labels[known]), adam, steps=1000, batch_size=100).posterior
print(f"the classifier alone, 100 labels: {errors(alone.predict(pixels[test]).mean):.1%} wrong")

graph = models.SemiSupervised(10, 3, 64, (100,), labelled=len(known) / len(train))
c = np.where(np.isin(train, known), labels[train], np.nan)
first = lamu.fit(
    graph, {"y": pixels[known], "c": labels[known].astype(float)}, adam, steps=500, batch_size=100
).posterior
rows = oversample_labelled({"y": pixels[train], "c": c})
posterior = lamu.fit(graph.starting_at(first.mean), rows, adam, steps=1500, batch_size=128).posterior
print(f"M2, and 1,300 digits without one: {errors(posterior.local({'y': pixels[test]})['c'].mean):.1%} wrong")

shown = np.array([test[labels[test] == c][0] for c in (2, 3, 4, 6, 9)])
rows = {"y": pixels[shown], "c": labels[shown].astype(float)}
swept = analogies(posterior, rows, jax.random.key(0))["y"]
lamu.plots.analogies(pixels[shown], swept, shape=(8, 8))[0].figure.savefig(folder / "semi_supervised.png")
