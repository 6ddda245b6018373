"""A mean-field belief is too narrow

Two Gaussian beliefs about a Gaussian of correlation 0.9 (grey): with a diagonal precision the variances are those of
one number given the other, with a full precision they are right. Ellipses at one and two standard deviations.
Lectures on Bayesian deep learning, after Blei, Kucukelbir & McAuliffe (2017), figure 1.
"""

import jax.numpy as jnp
import numpy as np

import lamu
from lamu.geometry import Retraction
from lamu.operators import Dense, Diagonal
from lamu.plots.style import ACCENT, GREY, canvas, head, tidy

COVARIANCE = np.array([[1.0, 0.9], [0.9, 1.0]])
CIRCLE = np.stack([np.cos(np.linspace(0, 7, 200)), np.sin(np.linspace(0, 7, 200))])


def covariance(structure):
    precision = jnp.linalg.inv(jnp.asarray(COVARIANCE))
    target = lamu.LogDensity(lambda theta: -0.5 * theta @ precision @ theta, jnp.ones(2))
    algorithm = lamu.algorithms.von(0.1, structure=structure, geometry=Retraction())
    belief = lamu.fit(target, None, algorithm, steps=300, progress=False).posterior.belief.factors["network"]
    return np.stack([belief.precision.solve(column) for column in jnp.eye(2)])


def draw():
    figure = canvas(6.4, 3.2)
    for axes, name, structure in zip(figure.subplots(1, 2), ("diagonal", "full"), (Diagonal, Dense), strict=True):
        for matrix, colour in ((COVARIANCE, GREY), (covariance(structure), ACCENT)):
            for radius in (1, 2):
                axes.plot(*(radius * np.linalg.cholesky(matrix) @ CIRCLE), color=colour, linewidth=1.4)
        head(axes, f"{name} precision")
        tidy(axes)
    return figure
