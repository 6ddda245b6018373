"""What do 395 news reports write about? Topics by stochastic variational inference.

Latent Dirichlet allocation of the Reuters reports, `text/reuters395.npz` below the folder LAMU_DATA: every word of a
document is of a topic, every document a mixture of topics. Minibatches of 64 documents, whose shares are at their best
in each step; the rate falls as (1 + t)^-0.7. The script prints the most probable words of each topic, and the shares of
one document. Without the folder it says so and ends.

    LAMU_DATA=folder python examples/topics.py [picture.png]
"""

import itertools
import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import lamu
from lamu.graphs import models

TOPICS, EPOCHS = 8, 30
file = Path(os.environ.get("LAMU_DATA", "")) / "text" / "reuters395.npz"
if not file.exists():
    print("set LAMU_DATA to the folder of the data sets, which holds text/reuters395.npz")
    sys.exit()

held = np.load(file)
ends, lengths = held["indptr"], np.diff(held["indptr"])
ids, counts = np.zeros((2, len(lengths), lengths.max()), np.int32)
for row, (start, end) in enumerate(itertools.pairwise(ends)):
    ids[row, : end - start], counts[row, : end - start] = held["indices"][start:end], held["counts"][start:end]

graph = models.Topics(TOPICS, len(held["vocab"]))
algorithm = lamu.algorithms.svi(kappa=0.7)
fit = lamu.fit(graph, {"words": (ids, counts)}, algorithm, batch_size=64, epochs=EPOCHS)
topic = np.asarray(fit.posterior.mean["network"]["topic"])
for k in range(TOPICS):
    print(f"{k}: {' '.join(held['vocab'][np.argsort(-topic[k])[:9]])}")
share = np.asarray(fit.posterior.local({"words": (ids[:1], counts[:1])})["share"].mean[0])
print(f"\n{held['titles'][0]}")
print(", ".join(f"{share[k]:.0%} of topic {k}" for k in np.argsort(-share)[:3]))

if len(sys.argv) > 1:
    figure, panels = plt.subplots(2, TOPICS // 2, figsize=(10, 5))
    for k, axes in enumerate(panels.flat):
        first = np.argsort(topic[k])[-9:]
        axes.barh(held["vocab"][first], topic[k][first])
        axes.set_title(f"topic {k}, {topic[k][first].sum():.0%} of its words", fontsize=9)
        axes.tick_params(labelsize=8)
    figure.supxlabel("probability of the word in the topic", fontsize=9)
    figure.tight_layout()
    figure.savefig(sys.argv[1], dpi=150)
