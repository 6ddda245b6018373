"""MADE and NADE: every output sees the inputs before it, so that a model's likelihood is the density of a row."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.latent import MADE, NADE, ancestral
from lamu.likelihoods import Bernoulli, Categorical, PerPosition

D = 4
EVERY_ROW = jnp.asarray(list(itertools.product([0.0, 1.0], repeat=D)))


def made(network, likelihood, rows=EVERY_ROW):
    """A model with parameters far from their first ones."""
    model = lamu.Model(network, likelihood)
    params, _ = model.init(jax.random.key(0), lamu.data.Batch.of(rows, rows))
    return model, lamu.tree.add(params, lamu.tree.normal(jax.random.key(1), params), 0.5)


@pytest.mark.parametrize("network", [MADE((7, 5)), MADE((3,), "tanh"), NADE(6)], ids=repr)
def test_an_output_sees_the_inputs_before_it(network) -> None:
    _, params = made(network, PerPosition(Bernoulli(), (D,)))
    f = lambda x: network.apply(params["network"], {}, x[None], None, False)[0][0]
    sees = np.asarray(jax.vmap(jax.jacobian(f))(EVERY_ROW + 0.1)) != 0
    np.testing.assert_array_equal(sees.any(0), np.tril(np.ones((D, D), bool), -1))


@pytest.mark.parametrize("network", [MADE((7,)), NADE(6)], ids=repr)
def test_the_density_of_all_rows_sums_to_one(network) -> None:
    model, params = made(network, PerPosition(Bernoulli(), (D,)))
    log_p, _ = model.log_likelihood(params, {}, lamu.data.Batch.of(EVERY_ROW, EVERY_ROW))
    np.testing.assert_allclose(jnp.exp(log_p).sum(), 1.0, rtol=1e-12)


def test_a_mask_that_lets_an_input_see_itself_is_no_density(monkeypatch) -> None:
    from lamu.latent import autoregressive as module

    masks = module.layer_masks
    monkeypatch.setattr(module, "layer_masks", lambda *a: [np.ones_like(mask) for mask in masks(*a)])
    model, params = made(MADE((7,)), PerPosition(Bernoulli(), (D,)))
    log_p, _ = model.log_likelihood(params, {}, lamu.data.Batch.of(EVERY_ROW, EVERY_ROW))
    assert abs(float(jnp.exp(log_p).sum()) - 1.0) > 1e-3


def test_several_numbers_a_position_stand_side_by_side() -> None:
    rows = jnp.asarray(list(itertools.product([0.0, 1.0, 2.0], repeat=2)))
    model = lamu.Model(MADE((6,)), PerPosition(Categorical(3), (2,)))
    batch = lamu.data.Batch.of(rows, rows.astype(int))
    params, _ = model.init(jax.random.key(0), batch)
    params = lamu.tree.add(params, lamu.tree.normal(jax.random.key(1), params), 0.5)
    log_p, _ = model.log_likelihood(params, {}, batch)
    np.testing.assert_allclose(jnp.exp(log_p).sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("network", [MADE((7,)), NADE(6)], ids=repr)
def test_ancestral_draws_have_the_density(network) -> None:
    """A chi-squared test of 4,000 draws in 16 cells; the quantile 45 is passed by chance in 8 of 100,000 keys."""
    model, params = made(network, PerPosition(Bernoulli(), (D,)))
    draws = ancestral(model, params, jax.random.key(3), 4000)
    cells = np.asarray(draws) @ (2 ** np.arange(D)[::-1])
    counts = np.bincount(cells.astype(int), minlength=16)
    log_p, _ = model.log_likelihood(params, {}, lamu.data.Batch.of(EVERY_ROW, EVERY_ROW))
    expected = 4000 * np.exp(np.asarray(log_p))
    assert np.sum((counts - expected) ** 2 / expected) < 45


def test_training_finds_a_dependence_between_positions() -> None:
    first = np.random.default_rng(0).integers(0, 2, size=(200, 1))
    y = np.concatenate([first, first, 1 - first], axis=1).astype(float)
    model = lamu.Model(MADE((8,)), PerPosition(Bernoulli(), (3,)))
    posterior = lamu.fit(model, (y, y), lamu.algorithms.adam(0.05), epochs=100).posterior
    log_p, _ = model.log_likelihood(posterior.mean, {}, lamu.data.Batch.of(jnp.asarray(y), jnp.asarray(y)))
    assert float(log_p.mean()) > -0.8  # the first position is a coin, log 2 = 0.69; independent positions have 2.08


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="no hidden layer"):
        MADE(())
    with pytest.raises(ValueError, match="2 outputs, which is not a multiple; give the data as inputs and as targets"):
        MADE((4,)).init(jax.random.key(0), jnp.zeros((1, 3)), 2)
    with pytest.raises(ValueError, match="a whole number from 1"):
        NADE(0)
    model, params = made(MADE((4,)), PerPosition(Bernoulli(), (D,)))
    with pytest.raises(ValueError, match="n=0 is not possible"):
        ancestral(model, params, jax.random.key(0), 0)
    with pytest.raises(TypeError, match="likelihood is Bernoulli"):
        ancestral(lamu.Model(MADE((4,)), Bernoulli()), params, jax.random.key(0), 1)
