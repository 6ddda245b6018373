"""How close a posterior comes to a reference: closed forms, and moments that are off by a known amount."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu import scores
from lamu.families import Draws, Ensemble, Point
from lamu.likelihoods import Categorical, Gaussian
from lamu.posterior import Posterior
from lamu.predictives import Deferred, GaussianPredictive, MixturePredictive, Sampled
from lamu.scores import Fidelity, Moments
from lamu.supports import Classes, TwoClasses

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(30, 2))


def normal(mean: Any, std: Any) -> GaussianPredictive:
    mean, std = jnp.asarray(mean), jnp.asarray(std)
    return GaussianPredictive(mean, (std**2)[:, None, None], std**2 / 2)


def chains(draws: np.ndarray) -> Posterior:
    """Draws `[chains, draws, 3]` of a linear network's bias and two slopes, as a sampler's posterior."""
    kernel, bias = jnp.asarray(draws[..., 1:, None]), jnp.asarray(draws[..., :1])
    samples = {"network": {"layers": {0: {"bias": bias, "kernel": kernel}}}, "likelihood": {}}
    model = lamu.Model(lamu.networks.Linear(), Gaussian(scale=1.0))
    return Posterior(model, Draws(samples), {}, Sampled(), jax.random.key(0))


def test_the_distance_of_normals_is_a_closed_form() -> None:
    mean, std = RANDOM.normal(size=6), RANDOM.uniform(0.5, 2.0, 6)
    assert scores.wasserstein(normal(mean + 0.7, std), normal(mean, std)) == pytest.approx(0.7, rel=1e-6)
    wider = scores.wasserstein(normal(mean, 3 * std), normal(mean, std))
    assert wider == pytest.approx(np.mean(2 * std * np.sqrt(2 / np.pi)), rel=1e-4)
    assert scores.wasserstein(normal(mean, std), normal(mean, std)) == 0.0


def test_the_distance_of_mixtures_is_scipys_of_many_draws() -> None:
    f = RANDOM.normal(size=(2, 5, 1, 1)) * 3
    one, other = (MixturePredictive.equal(Gaussian(scale=0.3), {}, jnp.asarray(part)) for part in f)
    draws = [np.asarray(part)[RANDOM.integers(0, 5, 200_000), 0, 0] + 0.3 * RANDOM.normal(size=200_000) for part in f]
    assert scores.wasserstein(one, other) == pytest.approx(stats.wasserstein_distance(*draws), rel=0.02)


def test_distances_are_of_the_same_rows_of_a_regression() -> None:
    one = normal(np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match="one of these is of classes"):
        scores.wasserstein(MixturePredictive.equal(Categorical(2), {}, jnp.zeros((1, 3, 2))), one)
    with pytest.raises(ValueError, match=r"\(\(3,\), \(2,\)\)"):
        scores.wasserstein(one, normal(np.zeros(2), np.ones(2)))


def test_a_deferred_prediction_is_as_far_as_one_in_memory() -> None:
    posterior = chains(RANDOM.normal(size=(1, 4, 3)))
    prepared = Sampled().prepare(posterior.model, posterior.belief, {}, samples=4, key=jax.random.key(1))
    whole, parts = prepared.at(jnp.asarray(X), None), Deferred(prepared, jnp.asarray(X), None, rows=16)
    other = normal(np.zeros(30), np.ones(30))
    assert scores.wasserstein(parts, other) == pytest.approx(scores.wasserstein(whole, other), rel=1e-9)


def test_moments_are_off_by_what_they_are_off_by() -> None:
    exact = RANDOM.normal(size=(4, 500, 3)) * np.array([1.0, 2.0, 0.5])
    found = scores.moments(chains(exact + np.array([0.0, 1.0, 0.0])), chains(exact))
    assert isinstance(found, Moments)
    assert found.names == tuple(f"network/layers/0/{name}" for name in ("bias[0]", "kernel[0]", "kernel[1]"))
    np.testing.assert_allclose(found.shift, [0.0, 0.5, 0.0], atol=0.02)
    np.testing.assert_allclose(found.spread, 1.0)
    assert abs(found.mean_errors[1]) == pytest.approx(0.5 / np.sqrt(2 / 2000), rel=0.2)
    assert found.largest > found.bound
    assert "beyond the 1 % bound" in str(found)
    wide = scores.moments(chains(1.5 * exact), chains(exact))
    np.testing.assert_allclose(wide.spread, 1.5)
    assert (wide.square_errors > 5.0).all()
    assert np.abs(wide.mean_errors).max() < wide.bound


def test_errors_count_effective_draws() -> None:
    """Chains with an autocorrelation of 0.95 have a fortieth of the draws: by all of them the error would be 6 σ."""

    def autoregressive(seed: int) -> np.ndarray:
        generator, rows = np.random.default_rng(seed), []
        state = generator.normal(size=(4, 3))
        for _ in range(1000):
            state = 0.95 * state + np.sqrt(1 - 0.95**2) * generator.normal(size=(4, 3))
            rows.append(state)
        return np.stack(rows, axis=1)

    found = scores.moments(chains(autoregressive(0)), chains(autoregressive(1)))
    assert found.largest < found.bound
    assert (found.effective < 4000 / 20).all()
    naive = found.mean_errors * np.sqrt(4000 / found.effective)
    assert np.abs(naive).max() > np.abs(found.mean_errors).max() * 4


def test_an_exact_posterior_is_close_and_a_point_is_not() -> None:
    y = X @ np.array([1.0, -1.0]) + RANDOM.normal(size=30)
    model = lamu.Model(lamu.networks.Linear(), Gaussian(scale=1.0))
    exact = lamu.fit(model, (X, y), lamu.algorithms.conjugate()).posterior
    same = scores.fidelity(exact, exact, X, y)
    assert isinstance(same, Fidelity)
    assert same.wasserstein is not None
    assert same.coverage is not None
    assert same.wasserstein.value == 0.0
    assert same.coverage.value == pytest.approx(0.9, abs=1e-6)
    assert same.nll is not None
    assert same.nll.value == 0.0
    assert same.agreement is None
    assert same.moments is not None
    assert same.moments.largest < same.moments.bound  # independent draws of one Gaussian, at fixed keys
    point = Posterior(model, Point(exact.mean), {}, Sampled(), jax.random.key(1))
    found = scores.fidelity(point, exact, X)
    assert found.coverage is not None
    assert found.coverage.value < 0.9  # a point's intervals are too narrow
    assert found.own_coverage is not None
    assert found.own_coverage.value == pytest.approx(0.9, abs=1e-6)
    assert found.moments is not None
    np.testing.assert_allclose(found.moments.spread, 0.0, atol=1e-12)
    for line in ("W1", "held by 90% regions", "moments of 3 parameters"):
        assert line in str(found)


def test_classes_are_compared_by_label_and_probability() -> None:
    samples = RANDOM.normal(size=(2, 3, 9))

    def posterior(draws: np.ndarray) -> Posterior:
        leaves = {"bias": jnp.asarray(draws[..., :3]), "kernel": jnp.asarray(draws[..., 3:].reshape(2, 3, 2, 3))}
        model = lamu.Model(lamu.networks.Linear(), Categorical(3))
        belief = Draws({"network": {"layers": {0: leaves}}, "likelihood": {}})
        return Posterior(model, belief, {}, Sampled(), jax.random.key(0))

    one, other = posterior(samples), posterior(samples + 0.3 * RANDOM.normal(size=samples.shape))
    found, preds = scores.fidelity(one, other, X), (one.predict(X), other.predict(X))
    assert found.agreement is not None
    assert found.total_variation is not None
    assert found.coverage is not None
    assert found.agreement.value == scores.agreement(*preds)
    assert found.total_variation.value == pytest.approx(scores.total_variation(*preds))
    by_hand = np.sum(np.asarray(preds[1].mean) * np.asarray(preds[0].prediction_set(0.9)), axis=1)
    assert found.coverage.value == pytest.approx(by_hand.mean())
    assert found.wasserstein is None
    with pytest.raises(ValueError, match="predicts Classes\\(number=3\\) and the reference Real\\(\\)"):
        scores.fidelity(one, chains(np.zeros((1, 2, 3))), X)


def test_every_position_of_a_row_has_classes_of_its_own() -> None:
    p, q = np.array([[0.9, 0.2, 0.6], [0.4, 0.7, 0.1]]), np.array([[0.8, 0.7, 0.6], [0.3, 0.6, 0.9]])
    two = [SimpleNamespace(support=TwoClasses(), mean=mean) for mean in (p, q)]
    many = [SimpleNamespace(support=Classes(2), mean=np.stack([1 - mean, mean], axis=-1)) for mean in (p, q)]
    for one, other in (two, many):
        assert scores.agreement(one, other) == pytest.approx(4 / 6)
        assert scores.total_variation(one, other) == pytest.approx(np.mean(np.abs(p - q)))
        np.testing.assert_allclose(scores.entropy(one), -p * np.log(p) - (1 - p) * np.log1p(-p), rtol=1e-12)


def test_weights_of_hidden_layers_are_not_compared() -> None:
    """The units of two runs stand in another order: their moments would say nothing."""
    model = lamu.Model(lamu.networks.MLP((2,)), Gaussian(scale=1.0))
    params, _ = model.init(jax.random.key(0), lamu.data.Batch.of(jnp.asarray(X), jnp.zeros(30)))
    belief = Ensemble(Point(jax.tree.map(lambda leaf: leaf[None], params)))
    posterior = Posterior(model, belief, {}, Sampled(), jax.random.key(0))
    assert scores.fidelity(posterior, posterior, X).moments is None
    with pytest.raises(ValueError, match="nothing to compare: give x"):
        scores.fidelity(posterior, posterior)
    with pytest.raises(ValueError, match="9 coordinates and the reference about 3"):
        scores.moments(posterior, chains(np.zeros((1, 2, 3))))


def test_densities_are_compared_without_inputs() -> None:
    density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta["a"] ** 2), {"a": jnp.zeros(2)})

    def posterior(scale: float) -> Posterior:
        draws = {"network": {"a": jnp.asarray(scale * RANDOM.normal(size=(2, 400, 2)))}, "likelihood": {}}
        return Posterior(density, Draws(draws), {}, Sampled(), jax.random.key(0))

    found = scores.fidelity(posterior(1.0), posterior(1.0))
    assert found.moments is not None
    assert found.moments.largest < found.moments.bound
    assert found.moments.names == ("network/a[0]", "network/a[1]")
    assert "p" not in str(found.agreement or "")


def test_a_small_budget_changes_no_distance() -> None:
    one, other = normal(np.zeros(300), np.ones(300)), normal(np.ones(300), np.ones(300))
    with lamu.memory.within("1MB"):
        assert scores.wasserstein(one, other) == pytest.approx(1.0, rel=1e-6)
