"""Functions before the data

Twelve functions of the prior of a network with one hidden layer, and the band that holds nine of ten targets.
Lectures on Bayesian deep learning: a prior of weights is one of functions.
"""

import jax
import numpy as np

import lamu


def draw():
    model = lamu.Model(lamu.networks.MLP((50,)), lamu.likelihoods.Gaussian(0.1), lamu.priors.Normal(1.0))
    return lamu.plots.prior_functions(jax.random.key(0), model, np.linspace(-3, 3, 120)[:, None]).figure
