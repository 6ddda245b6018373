"""What do priors of weights say of functions? Nine priors of one network, drawn before any data.

Each panel has twelve functions of a network with two hidden layers under one prior, over one input, and the band that
holds nine tenths of two hundred. Heavy tails make a few weights do most of the work, and jumps; a shared scale lets
whole functions be flat or steep; fan-in keeps the spread whatever the width.

    python examples/priors_gallery.py [picture.png]
"""

import sys

import jax
import matplotlib.pyplot as plt
import numpy as np

import lamu
from lamu.priors import (
    Cauchy,
    FanIn,
    GeneralisedNormal,
    Hierarchical,
    Horseshoe,
    Laplace,
    Normal,
    Scale,
    ScaleMixture,
    StudentT,
)

UNITS, DRAWS, SHOWN = (50, 50), 200, 12
PRIORS = {
    "Normal(1.0)": Normal(1.0),
    "Normal by fan-in": Normal(FanIn(1.4)),
    "Laplace by fan-in": Laplace(FanIn(1.0)),
    "StudentT(df=3) by fan-in": StudentT(FanIn(0.8), df=3.0),
    "Cauchy by 1 / inputs": Cauchy({"layers/0/*": 1.0, "*kernel": 1.0 / UNITS[0], "*bias": 1.0}),
    "GeneralisedNormal(power=0.5)": GeneralisedNormal(FanIn(0.2), power=0.5),
    "ScaleMixture": ScaleMixture(0.1, 0.6, 0.05),
    "Hierarchical, a scale a layer": Hierarchical(Normal(FanIn(1.4)), (Scale(by="layer", leaves="*"),)),
    "Horseshoe(0.1)": Horseshoe(0.1, weights=Normal(1.0)),
}


x = np.linspace(-3, 3, 120)[:, None]
figure, panels = plt.subplots(3, 3, figsize=(10, 8), layout="constrained", sharex=True)
print("median over draws of the standard deviation of a function along the input")
for axes, (name, prior) in zip(panels.ravel(), PRIORS.items(), strict=True):
    model = lamu.Model(lamu.networks.MLP(UNITS, "tanh"), lamu.likelihoods.Gaussian(0.1), prior)
    draws = np.asarray(model.prior_mean(jax.random.key(0), DRAWS, x))
    low, high = np.quantile(draws, (0.05, 0.95), axis=0)
    axes.fill_between(x[:, 0], low, high, color="#e1e6eb", linewidth=0)
    axes.plot(x[:, 0], draws[:SHOWN].T, color="#1b6ca8", linewidth=0.9, alpha=0.7)
    limit = 1.5 * max(high.max(), -low.min())
    axes.set(title=name, ylim=(-limit, limit))
    print(f"{name:32}{np.median(draws.std(axis=1)):6.2f}", flush=True)
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "priors_gallery.png", dpi=110)
