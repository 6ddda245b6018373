"""VOGN on its way to the posterior

The mean of VOGN's belief from where it starts (dots), with ellipses at one standard deviation, over the posterior of a
logistic regression with two weights. Right: its standard deviations, which the squares of single gradients teach.
Fast yet simple natural-gradient descent for variational inference, figure 1.
"""

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.objective import Objective
from lamu.plots.style import ACCENT, GREY, canvas, head, tidy

ROWS, STEPS, BATCH = 80, 250, 10
CIRCLE = np.stack([np.cos(np.linspace(0, 7, 100)), np.sin(np.linspace(0, 7, 100))])


def problem():
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, 2)).astype(np.float32)
    y = (random.uniform(size=ROWS) < 1 / (1 + np.exp(-x @ [2.0, -1.0]))).astype(np.int32)
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(3.0))
    return model, x, y


def path(model, x, y):
    """Means, and precisions a row, of every step."""
    objective, algorithm = Objective(model, ROWS), lamu.algorithms.vogn(learning_rate=0.1, b2=0.97, max_step=None)
    state = algorithm.init(jax.random.key(0), objective, lamu.data.Batch.of(x, y))

    def step(state, key):
        own, rows = jax.random.split(key)
        chosen = jax.random.choice(rows, ROWS, (BATCH,), replace=False)
        batch = lamu.data.Batch.of(jnp.asarray(x)[chosen], jnp.asarray(y)[chosen])
        state, _ = algorithm.step(own, state, batch, objective)
        return state, (state.mean, state.precision)

    return jax.lax.scan(step, state, jax.random.split(jax.random.key(1), STEPS))[1]


def draw():
    model, x, y = problem()
    means, precisions = path(model, x, y)
    kernel = lambda tree: np.asarray(jax.tree.leaves(tree)[0]).reshape(STEPS, 2)
    means, deviations = kernel(means), (ROWS * kernel(precisions)) ** -0.5
    figure = canvas(8.4, 3.6)
    plane, widths = figure.subplots(1, 2)
    grid = np.stack(np.meshgrid(np.linspace(0, 5, 100), np.linspace(-2.5, 0.7, 100)), axis=-1)
    logits = grid @ x.T
    values = np.sum(y * logits - np.logaddexp(0, logits), axis=-1) - np.sum(grid**2, axis=-1) / 18
    plane.contour(
        *np.moveaxis(grid, -1, 0), values - values.max(), levels=[-8, -4.5, -2, -0.5], colors=[GREY], linestyles="solid"
    )
    plane.plot(*means.T, ".-", color=ACCENT, markersize=3, linewidth=0.6)
    for mean, deviation in zip(means[::50], deviations[::50], strict=True):
        plane.plot(*(mean[:, None] + deviation[:, None] * CIRCLE), color=ACCENT, linewidth=1)
    plane.set(xlabel="first weight", ylabel="second weight")
    head(plane, "The belief")
    for deviation, colour, name in zip(deviations.T, (ACCENT, GREY), ("first", "second"), strict=True):
        widths.plot(deviation, color=colour, linewidth=1.4, label=f"{name} weight")
    widths.set(xlabel="step", ylabel="standard deviation", ylim=(0, None))
    widths.legend(frameon=False)
    head(widths, "Its standard deviations")
    for axes in (plane, widths):
        tidy(axes)
    return figure
