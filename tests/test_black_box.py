from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu.algorithms.black_box import BlackBox, BlackBoxState, igo, natural_search_gradient, utilities
from lamu.data import Batch
from lamu.density import LogDensity, nothing
from lamu.families import Gaussian, Point
from lamu.objective import Objective
from lamu.operators import Dense

rng = np.random.default_rng(2)
D, DRAWS = 3, 8
ROOT = np.tril(rng.normal(size=(D, D))) + 2 * np.eye(D)
MEAN = rng.normal(size=D)
NOTHING = Batch.of(*nothing())


def loss(x):
    return jnp.sum(jnp.abs(x - 1.0)) + x[0] * x[1]


def xnes(noise: np.ndarray, losses: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The natural gradient of Glasmachers et al. (2010), algorithm 1: in the local coordinates of A, and back."""
    n = len(losses)
    order = np.argsort(losses)
    raw = np.maximum(0.0, np.log(n / 2 + 1) - np.log(np.arange(1, n + 1)))
    u = np.empty(n)
    u[order] = raw / raw.sum() - 1 / n
    delta, matrix = u @ noise, sum(w * (np.outer(s, s) - np.eye(D)) for w, s in zip(u, noise, strict=True))
    return root @ delta, matrix


def exponential(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(np.exp(values)) @ vectors.T


@pytest.mark.parametrize("monotone", [lambda v: v, lambda v: np.exp(0.5 * v)], ids=["the loss", "a transform"])
def test_the_natural_gradient_is_that_of_xnes_on_the_same_draws(monotone) -> None:
    noise = rng.normal(size=(DRAWS, D))
    draws = MEAN + noise @ ROOT.T
    losses = np.array([float(loss(x)) for x in draws])
    shift, matrix = xnes(noise, losses, ROOT)
    belief = Gaussian(jnp.asarray(MEAN), Dense(jnp.asarray(np.linalg.inv(ROOT @ ROOT.T))))
    dm, dsigma = natural_search_gradient(belief, jnp.asarray(draws), utilities(jnp.asarray(monotone(losses))))
    np.testing.assert_allclose(dm, shift, rtol=1e-9)
    np.testing.assert_allclose(dsigma, ROOT @ matrix @ ROOT.T, rtol=1e-9, atol=1e-9)


def test_a_step_is_that_of_xnes_up_to_third_order_in_its_rate() -> None:
    """The exponential map of the covariance and the retraction of the precision, at two rates: an eighth of the gap."""
    state = BlackBoxState(
        jnp.zeros((), jnp.int32), {"network": jnp.asarray(MEAN), "likelihood": {}},
        Dense(jnp.asarray(np.linalg.inv(ROOT @ ROOT.T))), {},
    )  # fmt: skip
    objective = Objective(LogDensity(lambda x: -loss(x), jnp.zeros(D)), 1.0)
    draw_key = jax.random.split(jax.random.key(3))[0]
    belief = Gaussian(state.mean, state.precision.factored())
    draws = np.asarray(belief.draws(draw_key, DRAWS)["network"])
    losses = np.array([float(loss(x)) for x in draws])
    gaps = []
    for rate in (0.02, 0.01):
        after, _ = igo(0.5, rate, samples=DRAWS).step(jax.random.key(3), state, NOTHING, objective)
        shift, matrix = xnes(np.linalg.solve(ROOT, (draws - MEAN).T).T, losses, ROOT)
        np.testing.assert_allclose(after.mean["network"], MEAN + 0.5 * shift, rtol=1e-9)
        expected = ROOT @ exponential(rate * matrix) @ ROOT.T
        gaps.append(np.max(np.abs(np.linalg.inv(after.precision.matrix) - expected)))
    assert 7.0 < gaps[0] / gaps[1] < 9.5
    assert np.all(np.linalg.eigvalsh(np.asarray(after.precision.matrix)) > 0)


def test_the_posterior_is_a_point_and_mistakes_say_what_to_do() -> None:
    algorithm = igo()
    assert isinstance(algorithm, BlackBox)
    objective = Objective(LogDensity(lambda x: -loss(x), jnp.zeros(D)), 1.0)
    state = algorithm.init(jax.random.key(0), objective, NOTHING)
    assert isinstance(algorithm.posterior(jax.random.key(0), state, objective, None, None).belief, Point)
    with pytest.raises(ValueError, match="samples=1"):
        igo(samples=1)
    with pytest.raises(ValueError, match="init_scale=0"):
        igo(init_scale=0.0)
