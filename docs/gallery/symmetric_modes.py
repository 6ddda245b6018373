"""Modes that are the same function

The posterior of a network with one hidden unit, y = v tanh(w x): the signs of w and v can change together, so that it
has two modes of equal height. A chain stays at the mode where it began (blue: NUTS); the predictions of both are equal.
Lectures on Bayesian deep learning: why weights are harder to summarise than functions.
"""

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.plots.style import ACCENT, GREY, PALE, canvas, head, tidy

X = jnp.linspace(-2, 2, 9)
Y = 1.2 * jnp.tanh(1.5 * X) + 0.3 * jnp.sin(7 * X)
LINE = np.linspace(-3, 3, 100)


def log_density(theta):
    w, v = theta
    return -0.5 * jnp.sum((Y - v * jnp.tanh(w * X)) ** 2) / 0.3**2 - 0.5 * jnp.sum(theta**2) / 2.0**2


def draw():
    target = lamu.LogDensity(log_density, jnp.ones(2))
    sampler = lamu.mcmc.nuts(chains=1, warmup=200, draws=400)
    draws = lamu.fit(target, None, sampler, progress=False).posterior.samples["network"].reshape(-1, 2)
    figure = canvas(8.0, 3.4)
    weights, functions = figure.subplots(1, 2)
    w, v = np.meshgrid(np.linspace(-6, 6, 160), np.linspace(-2.5, 2.5, 160))
    values = np.asarray(jax.vmap(jax.vmap(log_density))(jnp.stack([w, v], axis=-1)))
    levels = values.max() - np.array([12, 8, 4, 2, 0.5])
    weights.contour(w, v, values, levels=levels, colors=[GREY], linewidths=0.9, linestyles="solid")
    weights.plot(*draws.T, ".", color=ACCENT, markersize=2)
    weights.set(xlabel="w", ylabel="v")
    head(weights, "Weights")
    for sign, colour, width in ((1, PALE, 4.0), (-1, ACCENT, 0.5)):
        for w, v in sign * np.asarray(draws[::20]):
            functions.plot(LINE, v * np.tanh(w * LINE), color=colour, linewidth=width)
    functions.plot(X, Y, "o", color="black", markersize=4)
    functions.set(xlabel="x", ylabel="y")
    head(functions, "Functions", "grey: one mode, blue: the other")
    for axes in (weights, functions):
        tidy(axes)
    return figure
