"""Three choices of the rule in a valley

Gradient descent keeps the covariance and follows a point, Adam rescales its coordinates, and VON learns mean and full
covariance together (ellipses at one standard deviation, every tenth step). The talk on the Bayesian learning rule.
"""

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.density import nothing
from lamu.geometry import Retraction
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.plots.style import ACCENT, GREY, PALE, canvas, head, tidy

STEPS, CIRCLE = 60, np.stack([np.cos(np.linspace(0, 7, 100)), np.sin(np.linspace(0, 7, 100))])
ALGORITHMS = {
    "gradient descent": lamu.algorithms.gradient_descent(0.05),
    "Adam": lamu.algorithms.adam(0.1),
    "VON, full Gaussian": lamu.algorithms.von(0.1, structure=Dense, geometry=Retraction()),
}


def valley(theta):
    return -0.5 * (theta[0] ** 2 / 4 + 5 * (theta[1] - 0.3 * theta[0]) ** 2)


def path(algorithm):
    """Means and precisions a row of every step."""
    objective = Objective(lamu.LogDensity(valley, jnp.array([-3.0, 2.0])), 1.0)
    batch = lamu.data.Batch.of(*nothing())
    state = algorithm.init(jax.random.key(0), objective, batch)

    def step(state, key):
        state, _ = algorithm.step(key, state, batch, objective)
        return state, (state.mean, state.precision)

    return jax.lax.scan(step, state, jax.random.split(jax.random.key(1), STEPS))[1]


def draw():
    figure = canvas(9.0, 3.0)
    x, y = np.meshgrid(np.linspace(-4, 4, 90), np.linspace(-3, 3, 90))
    values = valley(np.stack([x, y]))
    for axes, (name, algorithm) in zip(figure.subplots(1, 3), ALGORITHMS.items(), strict=True):
        axes.contour(x, y, values, levels=[-18, -8, -4.5, -2, -0.5], colors=PALE, linewidths=1, linestyles="solid")
        means, precisions = path(algorithm)
        means = np.asarray(means.get("network", means) if isinstance(means, dict) else means)
        axes.plot(*means.T, "o-", color=ACCENT, markersize=2.5, linewidth=1)
        if isinstance(precisions, Dense):
            for mean, matrix in zip(means[::10], np.asarray(precisions.matrix)[::10], strict=True):
                root = np.linalg.cholesky(np.linalg.inv(matrix))
                axes.plot(*(mean[:, None] + root @ CIRCLE), color=GREY, linewidth=0.8)
        head(axes, name)
        tidy(axes)
    return figure
