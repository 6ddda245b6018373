"""What a network knows between its rows

A network with one hidden layer on forty rows with a gap: the inner band is what the weights leave open, the outer one
holds nine of ten new targets. Lectures on Bayesian deep learning, after Blundell et al. (2015), figure 5.
"""

import numpy as np

import lamu


def draw():
    random = np.random.default_rng(0)
    x = np.concatenate([random.uniform(-1.5, -0.5, 20), random.uniform(0.4, 1.5, 20)])[:, None]
    y = np.sin(3 * x[:, 0]) + 0.5 * x[:, 0] + 0.15 * random.normal(size=40)
    model = lamu.Model(
        lamu.networks.MLP((32,), activation="tanh"), lamu.likelihoods.Gaussian(0.15), lamu.priors.Normal(1.0)
    )
    algorithm = lamu.algorithms.laplace(lamu.algorithms.adam(lamu.rate.Annealed(0.03)))
    posterior = lamu.fit(model, (x, y), algorithm, steps=2000, batch_size=40, progress=False).posterior
    return lamu.plots.predictive_bands(posterior, x, y).figure
