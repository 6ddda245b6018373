"""Which weights the data determine

The weights of ten measurements in a regression on the progression of diabetes, with the intervals that hold half and
nine tenths of the posterior. Lectures on Bayesian deep learning: a distribution in the place of every weight.
"""

import jax

import lamu


def draw():
    x, y = lamu.data.load("diabetes")
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
    posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate(), progress=False).posterior
    return lamu.plots.weight_posteriors(posterior, jax.random.key(0), "*kernel").figure
