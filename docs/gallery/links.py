"""The generalised-linear table

How the output f of a linear model or a network becomes the mean of a target, for some likelihoods of the table.
Bayesian reasoning and deep learning, generalised linear models.
"""

import jax.numpy as jnp
import numpy as np

from lamu.likelihoods.table import LIKELIHOODS
from lamu.plots.style import ACCENT, canvas, head, tidy

NAMES = ("gaussian", "logit", "probit", "complementary_log_log", "poisson", "gamma")


def draw():
    figure = canvas(8.4, 4.4)
    f = np.linspace(-3, 3, 100)[:, None]
    for axes, name in zip(figure.subplots(2, 3).ravel(), NAMES, strict=True):
        likelihood = LIKELIHOODS[name][1](0)
        mean = likelihood.mean(likelihood.init(jnp.ones(4)), jnp.asarray(f))
        axes.plot(f[:, 0], np.asarray(mean).ravel(), color=ACCENT, linewidth=1.6)
        axes.set(xlabel="f", ylabel="mean")
        head(axes, name)
        tidy(axes)
    return figure
