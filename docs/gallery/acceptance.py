"""What is accepted at which step size

The share of proposals that are accepted from draws of a normal with 30 deviations from 0.5 to 2. A random walk needs
the smallest steps, the gradient of MALA and the paths of HMC allow larger ones. Dashed: the shares at which each moves
farthest in high dimensions, 0.234, 0.574 and 0.651. From SGD to gradient-based MCMC.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lamu.mcmc.hamiltonian import Phase, leapfrog
from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

SIZES, DEVIATIONS, DRAWS = np.geomspace(0.05, 2.0, 25), jnp.geomspace(0.5, 2.0, 30), 1000
SAMPLERS = {"random walk": (0, 0.234, GREY), "MALA": (1, 0.574, INK), "HMC, 5 leapfrog steps": (5, 0.651, ACCENT)}


def log_density(theta):
    return -0.5 * jnp.sum((theta / DEVIATIONS) ** 2)


def accepted(key, size, steps):
    """The probability that one proposal is accepted; MALA is a path of one step."""
    position, momentum = jax.random.normal(key, (2, len(DEVIATIONS)))
    position = position * DEVIATIONS
    if steps == 0:
        return jnp.minimum(1.0, jnp.exp(log_density(position + size * momentum) - log_density(position)))
    begin = Phase(position, momentum, log_density(position), -position / DEVIATIONS**2)
    end = leapfrog(log_density, begin, size, jnp.ones(len(DEVIATIONS)), steps)
    energy = lambda phase: 0.5 * jnp.sum(phase.momentum**2) - log_density(phase.position)
    return jnp.minimum(1.0, jnp.exp(energy(begin) - energy(end)))


def draw():
    figure, keys = canvas(5.4, 3.4), jax.random.split(jax.random.key(0), DRAWS)
    axes = figure.subplots()
    for name, (steps, best, colour) in SAMPLERS.items():
        share = jax.vmap(lambda size, steps=steps: jax.vmap(lambda key: accepted(key, size, steps))(keys).mean())
        axes.plot(SIZES, share(jnp.asarray(SIZES)), color=colour, linewidth=1.6, label=name)
        axes.axhline(best, color=colour, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xscale="log", xlabel="step size", ylabel="share accepted", ylim=(0, 1.03))
    axes.minorticks_off()
    axes.set_xticks((0.05, 0.1, 0.2, 0.5, 1, 2), ("0.05", "0.1", "0.2", "0.5", "1", "2"))
    axes.legend(frameon=False, fontsize=8)
    head(axes, "Acceptance")
    tidy(axes)
    return figure
