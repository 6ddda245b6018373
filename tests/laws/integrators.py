"""Laws of the integrator of paths: it turns back, is of second order, keeps volumes, and does not heat up.

A row's subject is a function `(log_density, start, step_size, inverse_mass, steps)` that returns the end of a path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.mcmc.hamiltonian import Phase, leapfrog
from tests.laws.harness import Row, law, row, twin

INVERSE_MASS = jnp.array([0.5, 2.0])
POSITION, MOMENTUM = jnp.array([0.3, -0.8]), jnp.array([1.1, 0.4])


def log_density(theta: Any) -> Any:
    """Skewed, coupled, and not Gaussian."""
    return 2.0 * theta[0] - jnp.exp(theta[0]) - 0.5 * (theta[1] - 0.3 * theta[0] ** 2) ** 2


@jax.jit
def at(position: Any, momentum: Any) -> Phase:
    return Phase(position, momentum, *jax.value_and_grad(log_density)(position))


def path(subject: Any, start: Phase, step_size: float, steps: int) -> Phase:
    return jax.jit(subject, static_argnums=0)(log_density, start, step_size, INVERSE_MASS, steps)


sound = row("integrators", "leapfrog", leapfrog)


@law("integrators")
def a_path_turns_back(row: Row) -> None:
    """With the momentum turned round it ends where it began, to 1e-10, after 200 steps there and 200 back."""
    start = at(POSITION, MOMENTUM)
    end = path(row.subject, start, 0.1, 200)
    assert float(jnp.max(jnp.abs(end.position - POSITION))) > 0.1, "a path that goes nowhere"
    back = path(row.subject, replace(end, momentum=-end.momentum), 0.1, 200)
    np.testing.assert_allclose(back.position, POSITION, atol=1e-10)
    np.testing.assert_allclose(-back.momentum, MOMENTUM, atol=1e-10)


@law("integrators")
def the_error_falls_as_the_square_of_the_step(row: Row) -> None:
    """Of the end of a path of length 2, beside one of a step eight times smaller."""
    ends = [path(row.subject, at(POSITION, MOMENTUM), 2.0 / n, n).position for n in (20, 40, 320)]
    coarse, fine = (float(jnp.linalg.norm(end - ends[2])) for end in ends[:2])
    assert 3.6 < coarse / fine < 4.4, coarse / fine


@law("integrators")
def the_energy_does_not_drift(row: Row) -> None:
    """Over 20,000 steps it errs no more than twice what it errs in the first 200."""
    start, errors = at(POSITION, MOMENTUM), []
    for steps in (200, 20_000):

        def follow(now: Phase, _: Any) -> Any:
            now = row.subject(log_density, now, 0.2, INVERSE_MASS, 1)
            return now, now.energy(INVERSE_MASS)

        energies = jax.jit(lambda s, n=steps: jax.lax.scan(follow, s, None, length=n)[1])(start)
        errors.append(float(jnp.max(jnp.abs(energies - start.energy(INVERSE_MASS)))))
    assert errors[1] < 2 * errors[0], errors


@law("integrators")
def volumes_are_kept(row: Row) -> None:
    """The determinant of the map of a path, by forward differentiation."""

    def end(z: Any) -> Any:
        last = row.subject(log_density, at(z[:2], z[2:]), 0.3, INVERSE_MASS, 5)
        return jnp.concatenate([last.position, last.momentum])

    jacobian = jax.jit(jax.jacfwd(end))(jnp.concatenate([POSITION, MOMENTUM]))
    np.testing.assert_allclose(jnp.linalg.det(jacobian), 1.0, rtol=1e-10)


def euler(log_density: Any, start: Phase, step_size: Any, inverse_mass: Any, steps: Any) -> Phase:
    def one(_: Any, now: Phase) -> Phase:
        position = now.position + step_size * inverse_mass * now.momentum
        momentum = now.momentum + step_size * now.gradient
        return Phase(position, momentum, *jax.value_and_grad(log_density)(position))

    return jax.lax.fori_loop(0, steps, one, start)


def whole_kicks(log_density: Any, start: Phase, step_size: Any, inverse_mass: Any, steps: Any) -> Phase:
    """Symplectic Euler: a leapfrog that forgot to halve its first kick and left out its last."""

    def one(_: Any, now: Phase) -> Phase:
        momentum = now.momentum + step_size * now.gradient
        position = now.position + step_size * inverse_mass * momentum
        return Phase(position, momentum, *jax.value_and_grad(log_density)(position))

    return jax.lax.fori_loop(0, steps, one, start)


twin(
    sound,
    "Euler's steps",
    "a_path_turns_back the_error_falls_as_the_square_of_the_step the_energy_does_not_drift volumes_are_kept",
    euler,
)
twin(sound, "whole kicks", "a_path_turns_back the_error_falls_as_the_square_of_the_step", whole_kicks)
