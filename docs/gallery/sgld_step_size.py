r"""What a Langevin step costs in bias

The variance of SGLD's draws on a standard normal against its step size ε, beside what theory says, 1/(1 − ε/2).
Nothing is rejected, so that the bias falls with the step alone. From SGD to gradient-based MCMC, Langevin dynamics.
"""

import jax.numpy as jnp
import numpy as np

import lamu
from lamu.plots.style import ACCENT, GREY, canvas, head, tidy

SIZES = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)


def variance(size):
    target = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta**2), jnp.zeros(50))
    sampler = lamu.mcmc.sgld(size, chains=2, warmup=200, draws=300, thinning=max(1, round(1 / size)))
    draws = lamu.fit(target, None, sampler, progress=False).posterior.samples["network"]
    return float(np.var(np.asarray(draws)))


def draw():
    figure = canvas(4.8, 3.2)
    axes = figure.subplots()
    line = np.linspace(0, 1.25, 50)
    axes.plot(line, 1 / (1 - line / 2), color=GREY, linewidth=1.4, label="theory")
    axes.plot(SIZES, [variance(size) for size in SIZES], "o", color=ACCENT, label="SGLD")
    axes.set(xlabel="step size ε", ylabel="variance of the draws")
    axes.legend(frameon=False)
    head(axes, "SGLD on a standard normal")
    tidy(axes)
    return figure
