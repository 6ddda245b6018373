"""The evidence chooses the complexity

The exact log evidence of polynomials on thirty rows of a cubic. Too low a degree cannot fit; beyond the third the fit
gains nothing and the evidence falls a little. Lectures on Bayesian deep learning, marginal likelihood.
"""

import numpy as np

import lamu


def draw():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, 30)
    y = 2 * x**3 - x + 0.1 * random.normal(size=30)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.1), lamu.priors.Normal(1.0))
    estimates = {}
    for degree in range(1, 9):
        # A column of zeros says nothing, and leaves the shapes as they are: one program for all degrees.
        powers = np.stack([x**power * (power <= degree) for power in range(1, 9)], axis=1)
        posterior = lamu.fit(model, (powers, y), lamu.algorithms.conjugate(), progress=False).posterior
        estimates[degree] = lamu.scores.evidence(posterior, (powers, y))
    return lamu.plots.evidence_curve(estimates, "degree").figure
