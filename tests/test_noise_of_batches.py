"""The noise of batches, with friction and without, beside closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.data import Batch
from lamu.mcmc import sghmc
from lamu.mcmc.dynamics import Dynamics, Friction
from lamu.objective import Objective
from lamu.priors import Normal

LEVELS = np.random.default_rng(7).normal(size=40) + 0.5
LEVEL = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(1.0), Normal(2.0))


def spreads(sampler: Dynamics, size: int, looks: np.ndarray, copies: int) -> np.ndarray:
    """The variance about the mode of a mean of numbers, over copies that each see batches of their own, with
    replacement, at some counts of steps."""
    x, y = jnp.ones((40, 1)), jnp.asarray(LEVELS)
    objective, whole = Objective(LEVEL, 40), Batch.of(x, y)
    mode = LEVELS.sum() / (40 + 1 / 2.0**2)
    start = {"network": {"layers": {0: {"kernel": jnp.full((1, 1), mode)}}}, "likelihood": {}}
    state = replace(sampler, start=start, chains=1).init(jax.random.key(0), objective, whole)
    sampler = replace(sampler, chains=1)

    def one(state: Any, key: Any) -> Any:
        chosen_key, step_key = jax.random.split(key)
        chosen = jax.random.randint(chosen_key, (size,), 0, 40)
        batch = jax.tree.map(lambda leaf: leaf[chosen], whole)
        state, _ = sampler.step(step_key, state, batch, objective)
        return state, jax.tree.leaves(state.position)[0].reshape(())

    @jax.jit
    def many(keys: Any) -> Any:
        return jax.vmap(lambda key: jax.lax.scan(one, state, jax.random.split(key, int(looks[-1])))[1])(keys)

    with jax.debug_key_reuse(False):  # the checker takes a vmapped scan over keys for a second use of them
        found = np.asarray(many(jax.random.split(jax.random.key(1), copies)))
    return np.mean((found[:, looks - 1] - mode) ** 2, axis=0)


@pytest.mark.stress
def test_noise_of_batches_without_friction_heats_a_chain_at_a_constant_rate() -> None:
    r"""And beside it, with friction, it is but a stated share of the variance (Chen, Fox & Guestrin 2014, section 3).

    Of a quadratic loss with curvature h a row and batches whose gradients have the variance V, frictionless steps are
    \(x_{t+1} - 2 x_t + x_{t-1} = -\epsilon (h x_t + \xi_t)\), so that with \(2 \cos\omega = 2 - \epsilon h\)

    \[ \operatorname{Var} x_t = \epsilon^2 V \sum_{k=1}^{t} \frac{\sin^2 k\omega}{\sin^2 \omega}
       \approx \frac{\epsilon V}{2 h (1 - \epsilon h / 4)}\, t, \]

    which has no bound. With friction α the noise in the momentum, \(2 \alpha T/N\), grows by \(\epsilon V\), and the
    variance in that proportion: to an eighth more than the posterior's here, of which a part is the step's. A variance
    is of 2,000 independent copies and held to five of its standard errors, \(\sqrt{2/2000}\) of it: a false alarm with
    probability 4e-6 for all six.
    """
    step_size, friction, size, copies = 0.1, 0.6, 40, 2000
    h, noise, error = 1.0 + 0.25 / 40, np.var(LEVELS) / size, 5 * np.sqrt(2 / copies)
    lengths: dict[str, Any] = {"chains": 1, "warmup": 0, "draws": 1, "thinning": 1}
    sampler, looks = sghmc(step_size, friction=friction, **lengths), np.array([60, 125, 250, 500])
    frictionless = replace(sampler, momentum=jax.tree.map(jnp.zeros_like, Friction(friction)))  # refused when called
    heated = spreads(frictionless, size, looks, copies)
    omega = np.arccos(1 - step_size * h / 2)
    swings = np.cumsum(np.sin(omega * np.arange(1, looks[-1] + 1)) ** 2)[looks - 1] / np.sin(omega) ** 2
    np.testing.assert_allclose(heated, step_size**2 * noise * swings, rtol=error)
    rate = step_size * noise / (2 * h * (1 - step_size * h / 4))
    np.testing.assert_allclose(step_size**2 * noise * swings[-1] / looks[-1], rate, rtol=0.02)
    posterior = 1 / (40 * h)
    assert heated[-1] > 15 * posterior

    kept = spreads(sampler, size, np.array([50, 100]), copies)
    stationary = (1 + step_size * noise / (2 * friction / 40)) / (1 - step_size * h / (2 * (2 - friction))) * posterior
    np.testing.assert_allclose(kept, stationary, rtol=error)
    np.testing.assert_allclose(stationary, posterior, rtol=0.125)
