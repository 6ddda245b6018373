"""Digits in two numbers

The two latent variables of a variational autoencoder of 8 × 8 images, coloured by the digit, which it has not seen.
Bayesian reasoning and deep learning, deep latent-variable models.
"""

import numpy as np

import lamu
from lamu.latent import models
from lamu.networks import MLP


def draw():
    x, labels = (np.asarray(part) for part in lamu.data.load("digits"))
    pixels = (x.reshape(len(x), -1) > 0.5 * x.max()).astype(np.float32)
    graph = models.VAE(2, 64, decoder=MLP((64,)), encoder=MLP((64,)))
    algorithm = lamu.algorithms.adam(lamu.rate.Annealed(5e-3))
    fit = lamu.fit(graph, {"y": pixels}, algorithm, steps=1000, batch_size=128, progress=False)
    return lamu.plots.latent_map(fit.posterior.local({"y": pixels})["z"].mean, labels).figure
