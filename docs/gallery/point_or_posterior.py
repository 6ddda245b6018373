"""A point is certain far from all data, a posterior is not

The entropy of the predicted class on two moons, for the mode alone and for Laplace's method around it. Lectures on
Bayesian deep learning: what the data leave open (after Kendall & Gal 2017).
"""

from sklearn.datasets import make_moons

import lamu
from lamu.plots.style import canvas, head


def draw():
    x, y = make_moons(120, noise=0.15, random_state=0)
    model = lamu.Model(
        lamu.networks.MLP((16,), activation="tanh"), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(1.0)
    )
    mode = lamu.algorithms.adam(lamu.rate.Annealed(0.03))
    figure = canvas(8.4, 3.4)
    for axes, name, algorithm in zip(
        figure.subplots(1, 2), ("The mode", "Laplace's method"), (mode, lamu.algorithms.laplace(mode)), strict=True
    ):
        posterior = lamu.fit(model, (x, y), algorithm, steps=1000, batch_size=120, progress=False).posterior
        lamu.plots.entropy_map(posterior, x, axes)
        head(axes, name)
    return figure
