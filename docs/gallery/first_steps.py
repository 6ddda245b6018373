"""The first steps of two samplers

Sixty transitions of one chain on a banana: a random walk takes short steps or is refused, Hamiltonian paths follow the
bend. From SGD to gradient-based MCMC; `python -m examples.playground` has the sampler to play with.
"""

import jax.numpy as jnp
import numpy as np

import lamu
from lamu.plots.style import ACCENT, PALE, canvas, head, tidy

HELD = {"chains": 1, "warmup": 0, "draws": 60}
SAMPLERS = {
    "random walk": lamu.mcmc.random_walk(**HELD, step_size=1.0, thinning=1),
    "Hamiltonian Monte Carlo": lamu.mcmc.hmc(**HELD, step_size=0.25),
}


def banana(z):
    return -0.5 * (z[0] / 2.0) ** 2 - 0.5 * ((z[1] - 0.5 * z[0] ** 2 + 2.0) / 0.6) ** 2


def draw():
    figure = canvas(7.6, 3.2)
    x, y = np.meshgrid(np.linspace(-5, 5, 120), np.linspace(-4, 8, 120))
    target = lamu.LogDensity(banana, jnp.array([0.0, -2.0]))
    for axes, (name, sampler) in zip(figure.subplots(1, 2), SAMPLERS.items(), strict=True):
        posterior = lamu.fit(target, None, sampler, seed=1, progress=False).posterior
        draws = np.asarray(posterior.samples["network"])[0]
        axes.contour(x, y, banana([x, y]), levels=[-8, -4.5, -2, -0.5], colors=PALE, linewidths=1, linestyles="solid")
        axes.plot(*draws.T, "o-", color=ACCENT, markersize=3, linewidth=0.8)
        accepted = float(np.mean(np.asarray(posterior.belief.statistics["acceptance"])))
        head(axes, name, f"acceptance {accepted:.0%}")
        tidy(axes)
    return figure
