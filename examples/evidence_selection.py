"""Which network? Ask the evidence, which needs no rows set aside.

The evidence is the probability of the targets with the weights averaged out: it rewards a network that fits, and
charges it for every weight that it had to pin down to do so. Laplace's method estimates it from one pass over the data
at the mode, and chooses by it the scale of the prior and the noise as well (MacKay 1992).

For a line and for networks of one and two hidden layers on the diabetes set, the script prints evidence per row and,
beside it, the negative log likelihood of rows that no choice has seen: the lower, the better, as the evidence is the
better the higher. It says which network each would choose, and what following the evidence costs. Two splits.

    python examples/evidence_selection.py
"""

import numpy as np

import lamu

NETWORKS = {
    "line": lamu.networks.Linear(),
    "4": lamu.networks.MLP((4,), activation="tanh"),
    "16": lamu.networks.MLP((16,), activation="tanh"),
    "8, 8": lamu.networks.MLP((8, 8), activation="tanh"),
}
SPLITS = (0, 1)

x, y = lamu.data.load("diabetes")
evidence, nll = (np.zeros((len(SPLITS), len(NETWORKS))) for _ in range(2))
for i, seed in enumerate(SPLITS):
    train, test = lamu.data.split(len(x), 0.3, seed)
    for j, network in enumerate(NETWORKS.values()):
        model = lamu.Model(network, lamu.likelihoods.Gaussian(), lamu.priors.LearnedNormal(0.5))
        model = model.standardised(x[train], y[train])
        posterior = lamu.fit(
            model, (x[train], y[train]), lamu.algorithms.laplace(), steps=800, batch_size=64, seed=seed
        ).posterior
        evidence[i, j] = float(posterior.evidence) / len(train)
        nll[i, j] = lamu.scores.nll(posterior.predict(x[test]), y[test])

print("hidden units   evidence a row   held-out nll   (nats, means over two splits)")
for j, name in enumerate(NETWORKS):
    print(f"{name:12}{evidence[:, j].mean():17.4f}{nll[:, j].mean():15.4f}")
by_evidence, in_hindsight = evidence.argmax(1), nll.argmin(1)
names = list(NETWORKS)
print("\nchosen by evidence, split by split:  ", ", ".join(names[j] for j in by_evidence))
print("best on held-out rows, in hindsight:", ", ".join(names[j] for j in in_hindsight))
lost = nll[np.arange(len(SPLITS)), by_evidence] - nll.min(1)
widest = nll[:, -1] - nll.min(1)
print(
    f"what following the evidence costs: {lost.mean():.4f} nats a row; always taking the deepest: {widest.mean():.4f}"
)
