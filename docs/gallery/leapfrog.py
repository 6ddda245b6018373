"""Leapfrog steps keep the energy

A pendulum from rest at an angle of 2.5: Euler's steps gain energy without end, leapfrog steps of the same length stay
near the orbit, which is why their end can be proposed. From SGD to gradient-based MCMC, Hamiltonian dynamics.
"""

import jax.numpy as jnp
import numpy as np

from lamu.mcmc.hamiltonian import Phase, leapfrog
from lamu.plots.style import ACCENT, GREY, canvas, head, tidy

STEP, STEPS = 0.3, 80


def log_density(angle):
    return jnp.sum(jnp.cos(angle))


def draw():
    at, ones = jnp.array([2.5]), jnp.ones(1)
    phase = Phase(at, jnp.zeros(1), log_density(at), -jnp.sin(at))
    euler, orbit = [(2.5, 0.0)], [(2.5, 0.0)]
    for _ in range(STEPS):
        phase = leapfrog(log_density, phase, STEP, ones, 1)
        orbit.append((float(phase.position[0]), float(phase.momentum[0])))
        angle, speed = euler[-1]
        euler.append((angle + STEP * speed, speed - STEP * np.sin(angle)))
    figure = canvas(8.4, 3.2)
    plane, energies = figure.subplots(1, 2)
    for name, path, colour in (("Euler", euler, GREY), ("leapfrog", orbit, ACCENT)):
        angle, speed = np.array(path).T
        plane.plot(angle, speed, ".-", color=colour, linewidth=0.8, markersize=4)
        energies.plot(0.5 * speed**2 - np.cos(angle), color=colour, linewidth=1.4, label=name)
    plane.set(xlim=(-4, 4), ylim=(-4, 4), xlabel="angle", ylabel="momentum")
    energies.set(xlabel="step", ylabel="energy")
    energies.legend(frameon=False)
    head(plane, "Position and momentum")
    head(energies, "Energy")
    for axes in (plane, energies):
        tidy(axes)
    return figure
