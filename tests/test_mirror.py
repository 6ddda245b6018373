"""Hedge and mirror descent: equal to the updates by hand, Hedge's bound against an adversary, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import Entropy, Hypentropy, Simplex, mirror_descent
from lamu.data import Batch
from lamu.density import nothing
from lamu.families import Categorical
from lamu.objective import Objective
from lamu.rule import hedge_step, natural_step
from tests.for_each import for_each

NUMBERS = np.random.default_rng(3)


def test_hedge_multiplies_weights_by_exponentials() -> None:
    belief, weights = Categorical(jnp.log(jnp.array([0.2, 0.5, 0.3]))), np.array([0.2, 0.5, 0.3])
    for losses in NUMBERS.normal(size=(30, 3)):
        belief = hedge_step(belief, jnp.asarray(losses), 0.3)
        weights = weights * np.exp(-0.3 * losses)
        weights /= weights.sum()
        np.testing.assert_allclose(belief.mean, weights, rtol=1e-12)


def test_hedge_is_bayes_rule_for_log_losses_and_the_rule_with_the_prior_for_its_memory() -> None:
    """The rule at ρ = 1, with its entropy and the prior in the loss, is Hedge that starts at the prior."""
    prior, densities = np.array([0.2, 0.5, 0.3]), NUMBERS.uniform(0.1, 2.0, size=3)
    after = hedge_step(Categorical(jnp.log(jnp.asarray(prior))), -jnp.log(jnp.asarray(densities)), 1.0)
    np.testing.assert_allclose(after.mean, prior * densities / (prior @ densities), rtol=1e-12)
    belief = Categorical(jnp.log(jnp.asarray(prior)))
    probabilities = lambda mu: jnp.append(mu.values, 1 - jnp.sum(mu.values))
    loss = lambda mu: -probabilities(mu) @ (jnp.log(jnp.asarray(densities)) + jnp.log(jnp.asarray(prior)))
    same = natural_step(belief.natural(), jax.grad(loss)(belief.expectation()), 1.0).family()
    np.testing.assert_allclose(same.mean, after.mean, rtol=1e-12)


@for_each("n, rounds", [(2, 400), (10, 1000), (50, 300)])
def test_the_regret_of_hedge_keeps_its_bound_against_an_adversary(n: int, rounds: int) -> None:
    """An adversary sees the weights, and gives the loss one to the half of the experts with the larger weights."""
    rate = np.sqrt(8 * np.log(n) / rounds)

    def play(belief: Any, _: Any) -> Any:
        order = jnp.argsort(
            jnp.argsort(belief.logits + 1e-9 * jnp.arange(n, dtype=belief.logits.dtype))
        )  # without ties
        losses = (order >= n - n // 2).astype(belief.logits.dtype)
        return hedge_step(belief, losses, rate), (belief.mean @ losses, losses)

    paid, losses = jax.jit(lambda: jax.lax.scan(play, Categorical(jnp.zeros(n)), None, rounds)[1])()
    regret, bound = float(paid.sum() - losses.sum(axis=0).min()), np.sqrt(rounds * np.log(n) / 2)
    assert 0.05 * bound < regret <= bound, (regret, bound)  # and the adversary is worth the name


def stepped(mirror_map: Any, start: np.ndarray, gradient: np.ndarray, steps: int = 20) -> np.ndarray:
    """Returns θ after steps of mirror descent on a linear loss."""
    target = lamu.LogDensity(lambda theta: -jnp.sum(theta * gradient), jnp.asarray(start))
    algorithm, objective, batch = mirror_descent(0.1, mirror_map), Objective(target, 1.0), Batch.of(*nothing())
    state = algorithm.init(jax.random.key(0), objective, batch)
    for _ in range(steps):
        state, _ = algorithm.step(jax.random.key(1), state, batch, objective)
    return np.asarray(state.params["network"])


@pytest.mark.stress
def test_each_map_has_its_classic() -> None:
    gradient, start = np.array([0.5, -1.0, 2.0]), np.array([0.2, 0.5, 0.3])
    factors = start * np.exp(-2 * gradient)
    np.testing.assert_allclose(stepped(Entropy(), start, gradient), factors, rtol=1e-12)
    np.testing.assert_allclose(stepped(Simplex(), start, gradient), factors / factors.sum(), rtol=1e-12)
    signed = np.array([-0.2, 0.0, 0.3])
    due = 0.7 * np.sinh(np.arcsinh(signed / 0.7) - 2 * gradient)
    np.testing.assert_allclose(stepped(Hypentropy(0.7), signed, gradient), due, rtol=1e-10, atol=1e-12)
    # As β grows, β times the rate is that of gradient descent.
    flat = stepped(Hypentropy(1e6), signed, gradient * 1e-6)
    np.testing.assert_allclose(flat, signed - 2 * gradient, rtol=1e-6, atol=1e-9)


def test_hedge_is_mirror_descent_on_the_simplex() -> None:
    losses, start = np.array([0.5, 0.1, 0.9, 0.3]), np.array([0.4, 0.3, 0.2, 0.1])
    belief = Categorical(jnp.log(jnp.asarray(start)))
    for _ in range(20):
        belief = hedge_step(belief, jnp.asarray(losses), 0.1)
    np.testing.assert_allclose(stepped(Simplex(), start, losses), belief.mean, rtol=1e-12)


def test_a_network_reaches_the_mode_of_a_regression() -> None:
    x = NUMBERS.normal(size=(40, 3))
    y = x @ [1.0, -2.0, 0.0] + 0.1 * NUMBERS.normal(size=40)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
    fit = lamu.fit(model, (x, y), mirror_descent(0.05), steps=2000, batch_size=40, progress=False)
    exact = lamu.fit(model, (x, y), lamu.algorithms.conjugate(), progress=False).posterior
    np.testing.assert_allclose(fit.posterior.predict(x).mean, exact.predict(x).mean, atol=1e-4)


@for_each(
    "mirror_map, start, text",
    [
        (Entropy(), np.array([0.5, -0.5]), "one starts at -0.5; use Hypentropy"),
        (Simplex(), np.array([0.5, 0.6]), "sum to 1.1 at the start"),
        (Hypentropy(0.0), np.array([0.5]), "beta=0.0 is not a scale"),
    ],
)
def test_a_start_outside_the_domain_is_refused(mirror_map: Any, start: np.ndarray, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        stepped(mirror_map, start, np.ones_like(start))


def test_losses_of_another_number_of_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="give one an expert"):
        hedge_step(Categorical(jnp.zeros(3)), jnp.zeros(2), 1.0)
