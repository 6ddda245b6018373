"""Sparse is the mode, not the posterior

A regression on twenty inputs under a Laplace prior: the weights of the eighteen that do nothing. Most are zero at the
mode, none is in the posterior mean, and none in a draw (dots: 200 draws). Lectures on Bayesian deep learning: L1.
"""

import numpy as np

import lamu
from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

WEIGHTS, SCALE = 20, 0.05


def draw():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, WEIGHTS))
    y = 2 * x[:, 0] - x[:, 1] + 0.5 * random.normal(size=60)
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(0.5), lamu.priors.Laplace(SCALE))
    adam, options = lamu.algorithms.adam(lamu.rate.Annealed(0.05)), {"steps": 3000, "batch_size": 60, "progress": False}
    mode = lamu.fit(model, (x, y), adam, **options).posterior.mean["network"]["layers"][0]["kernel"][:, 0]
    nuts = lamu.mcmc.nuts(chains=1, warmup=200, draws=400)
    samples = lamu.fit(model, (x, y), nuts, progress=False).posterior.samples["network"]["layers"][0]["kernel"]
    mode, samples = mode[2:], np.asarray(samples).reshape(-1, WEIGHTS)[:, 2:]

    figure = canvas(7.6, 3.4)
    axes = figure.subplots()
    at = np.arange(3, WEIGHTS + 1)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    for row in samples[::2]:
        axes.plot(at + random.uniform(-0.28, 0.28, WEIGHTS - 2), row, ".", color=GREY, markersize=1.6, alpha=0.6)
    axes.plot(at + 0.12, samples.mean(axis=0), "o", color=ACCENT, markersize=4.5, label="posterior mean")
    axes.plot(at - 0.12, mode, "D", color=INK, markersize=3.8, label="mode")
    axes.set(xlabel="weight", ylabel="value", xticks=(3, 5, 10, 15, 20))
    axes.legend(frameon=False, loc="upper right", fontsize=8)
    near = lambda values: int(np.sum(np.abs(values) < 1e-3))
    counts = f"within .001 of zero: mode {near(mode)}, mean {near(samples.mean(axis=0))} of {len(mode)}"
    head(axes, "Weights under a Laplace prior", counts)
    tidy(axes)
    return figure
