"""Momentum in a narrow valley

Forty steps at one learning rate: across the valley the gradient is twenty times that along it. Momentum adds up the
short steps along the valley. From SGD to gradient-based MCMC, momentum SGD.
"""

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.density import nothing
from lamu.objective import Objective
from lamu.plots.style import ACCENT, PALE, canvas, head, tidy

STEPS = 40


def valley(theta):
    return -0.5 * (theta[0] ** 2 / 20 + theta[1] ** 2)


def path(momentum):
    algorithm = lamu.algorithms.sgd(0.3, momentum=momentum)
    objective, batch = Objective(lamu.LogDensity(valley, jnp.array([-9.0, 1.5])), 1.0), lamu.data.Batch.of(*nothing())
    state = algorithm.init(jax.random.key(0), objective, batch)

    def step(state, key):
        state, _ = algorithm.step(key, state, batch, objective)
        return state, state.mean["network"]

    return np.asarray(jax.lax.scan(step, state, jax.random.split(jax.random.key(1), STEPS))[1])


def draw():
    figure = canvas(7.6, 2.8)
    x, y = np.meshgrid(np.linspace(-10, 6, 90), np.linspace(-3, 3, 90))
    for axes, momentum in zip(figure.subplots(1, 2), (0.0, 0.8), strict=True):
        axes.contour(x, y, valley(np.stack([x, y])), levels=9, colors=PALE, linewidths=1, linestyles="solid")
        axes.plot(*path(momentum).T, "o-", color=ACCENT, markersize=2.5, linewidth=1)
        head(axes, f"momentum {momentum:g}", f"{STEPS} steps")
        tidy(axes)
    return figure
