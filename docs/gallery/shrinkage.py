"""Heavy tails leave large effects alone

The posterior mean of one effect against its estimate, whose standard error is 1, under five priors of median size 0.7
(left), and the priors (right, logarithm). A normal prior shrinks all estimates by the same factor; under heavier tails
large ones are left alone, and under the horseshoe small ones are shrunk more too. Lectures on Bayesian deep learning.
"""

import numpy as np
from scipy import stats

from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

GRID = np.linspace(-60, 60, 24001)  # of even number of cells, so that zero is a point
ESTIMATES, SIZE = np.linspace(0, 8, 60), 0.7


def horseshoe(theta):
    """The density of a normal whose deviation is half-Cauchy, by quadrature over the deviation."""
    angles = (np.arange(400) + 0.5) / 400 * np.pi / 2
    return np.mean(stats.norm.pdf(theta[:, None], 0, np.tan(angles)), axis=1)


def scaled(density, theta):
    """A density stretched so that half of its mass is within SIZE of zero."""
    unit = density(GRID)
    inside = np.cumsum(unit) / unit.sum()
    median = GRID[np.searchsorted(inside, 0.75)]
    return density(theta * median / SIZE) * median / SIZE


PRIORS = {
    "normal": (stats.norm.pdf, GREY, "-"),
    "Laplace": (stats.laplace.pdf, INK, "--"),
    "Student-t, 3 degrees": (lambda theta: stats.t.pdf(theta, 3), INK, "-"),
    "Cauchy": (stats.cauchy.pdf, ACCENT, "--"),
    "horseshoe": (horseshoe, ACCENT, "-"),
}


def draw():
    figure = canvas(8.4, 3.6)
    means, densities = figure.subplots(1, 2)
    means.plot(ESTIMATES, ESTIMATES, color=GREY, linewidth=0.8, linestyle=(0, (1, 3)))
    weight = stats.norm.pdf(ESTIMATES[:, None], GRID[None])
    line = np.linspace(0.01, 6, 200)
    for name, (density, colour, style) in PRIORS.items():
        joint = weight * scaled(density, GRID)
        mean = (joint @ GRID) / joint.sum(axis=1)
        means.plot(ESTIMATES, mean, color=colour, linestyle=style, linewidth=1.4, label=name)
        densities.plot(line, scaled(density, line), color=colour, linestyle=style, linewidth=1.4)
    means.set(xlabel="estimate, in standard errors", ylabel="posterior mean")
    means.legend(frameon=False, fontsize=8)
    densities.set(xlabel="effect", ylabel="prior density", yscale="log", ylim=(1e-5, 5))
    head(means, "Shrinkage")
    head(densities, "Priors")
    for axes in (means, densities):
        tidy(axes)
    return figure
