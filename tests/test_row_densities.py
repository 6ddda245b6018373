"""The density of rows by importance weights: right, or with an error that says that it is not."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import genpareto, multivariate_normal, norm, poisson

import lamu
from lamu.convergence import averaged_weights, pareto_shape
from lamu.families import Draws, Point
from lamu.latent.row_proposals import fitted_log_weights
from lamu.networks import Trained

W = np.array([[1.0, -0.5, 0.3, 0.8, 0.0], [0.2, 1.0, -0.7, 0.1, 0.5]])
NOISE = 0.3
DECODER = Trained(lambda w, z: z @ w["slope"], {"slope": jnp.asarray(W)})


def autoencoder(mean: float = 0.0) -> Any:
    """A linear Gaussian decoder, log p(y) = log N(y; 0, WᵀW + σ²I), with an encoder that looks at nothing."""
    encoder = Trained(
        lambda w, y: jnp.broadcast_to(w["constant"][None], (len(y), 4)),
        {"constant": jnp.asarray([mean, mean, 0.0, 0.0])},
    )
    return posterior_of(lamu.latent.models.VAE(2, 5, DECODER, encoder, lamu.likelihoods.Gaussian(NOISE)), 5)


def posterior_of(graph: Any, columns: int) -> Any:
    params = graph.init(jax.random.key(0), graph.rows({"y": jnp.zeros((1, columns))}).full())[0]
    return lamu.Posterior(graph, Point(params), {}, lamu.predictives.Sampled(), jax.random.key(1))


def exact(y: np.ndarray) -> np.ndarray:
    return multivariate_normal(np.zeros(5), W.T @ W + NOISE**2 * np.eye(5)).logpdf(y)


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    near = rng.normal(size=(4, 2)) @ W
    return np.concatenate([near, [[9.0, -7.0] @ W], [[-6.0, 8.0] @ W]]) + NOISE * rng.normal(size=(6, 5))


def test_a_row_far_from_the_encoders_belief_has_its_density():
    """The last two rows lie 10 prior deviations out, where the belief N(0, I) of the encoder has no draw."""
    y = rows()
    found = lamu.scores.row_log_prob(autoencoder(), {"y": jnp.asarray(y)}, samples=500)
    away = np.abs(found.value - exact(y))
    assert np.all(away < 4.5 * np.maximum(found.error, 0.01))  # fails once in 10⁵ of keys a row
    assert np.all(found.error < 0.2)
    assert np.all(found.shape < 0.7)


def test_rows_that_no_proposal_helps_are_counted_and_their_error_is_infinite(monkeypatch):
    y = rows()
    monkeypatch.setattr("lamu.latent.row_proposals.can_propose", lambda *_: False)
    with pytest.warns(lamu.scores.UnreliableWeights, match=r"weights of \d of 6 rows .*annealed_importance"):
        found = lamu.scores.row_log_prob(autoencoder(), {"y": jnp.asarray(y)}, samples=500)
    assert np.all(np.isinf(found.error[4:]))
    known = np.isfinite(found.error)
    assert np.all(np.abs(found.value - exact(y))[known] < 4.5 * found.error[known])


def test_weights_that_do_not_spread_are_left_alone(monkeypatch):
    monkeypatch.setattr("lamu.latent.row_proposals.fitted_log_weights", None)  # it does not come to that
    encoder = autoencoder()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = lamu.scores.row_log_prob(encoder, {"y": jnp.zeros((2, 5))}, samples=4000)
    np.testing.assert_allclose(found.value, exact(np.zeros((2, 5))), atol=0.25)


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9, 1.4])
def test_the_shape_is_that_of_the_pareto_distribution(shape):
    rng = np.random.default_rng(0)
    found = [pareto_shape(1 + genpareto(shape).rvs(4000, random_state=rng)) for _ in range(20)]
    assert abs(np.mean(found) - shape) < 0.1  # the standard error of the mean is about 0.02, the prior's pull 0.03


def narrow(share: float) -> Any:
    """The decoder with an encoder that has the posterior's mean, and a share of its standard deviations."""
    covariance = np.linalg.inv(W @ W.T / NOISE**2 + np.eye(2))
    log_std = np.log(share * np.sqrt(np.diag(covariance)))
    encoder = Trained(
        lambda w, y: jnp.concatenate([y @ w["mean"], jnp.broadcast_to(w["log_std"], (len(y), 2))], axis=-1),
        {"mean": jnp.asarray(W.T @ covariance / NOISE**2), "log_std": jnp.asarray(log_std)},
    )
    return posterior_of(lamu.latent.models.VAE(2, 5, DECODER, encoder, lamu.likelihoods.Gaussian(NOISE)), 5)


@pytest.mark.stress
def test_log_prob_is_right_where_the_encoder_is_too_narrow():
    """Its weights have k = 1 - 0.1²: a sum that is finite, and 128 draws that miss most of it."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(50, 2)) @ W + NOISE * rng.normal(size=(50, 5))
    posterior = narrow(0.1)
    rows = posterior.model.rows({"y": y}).full()
    plain = np.asarray(posterior.model.row_log_prob(posterior.belief, rows, 128, jax.random.key(2)))
    assert np.mean(plain - exact(y)) < -2.0  # nats, with a standard error of 0.1
    for samples in (None, 1000):
        found = np.asarray(posterior.log_prob({"y": y}, samples))
        # The errors are 0.035 and 0.013, so that one key in 10⁷ fails.
        np.testing.assert_allclose(found, exact(y), atol=0.22 if samples is None else 0.08)
    np.testing.assert_array_equal(found, lamu.scores.row_log_prob(posterior, {"y": y}, 1000).value.astype(found.dtype))


def test_log_prob_warns_of_rows_that_stay_open_and_says_where_their_k_is(monkeypatch):
    y = rows()
    monkeypatch.setattr("lamu.latent.row_proposals.can_propose", lambda *_: False)
    posterior = narrow(0.05)
    with pytest.warns(lamu.scores.UnreliableWeights) as told:
        posterior.log_prob({"y": y}, samples=1000)
    with pytest.warns(lamu.scores.UnreliableWeights):
        shape = lamu.scores.row_log_prob(posterior, {"y": y}, samples=1000).shape
    count = int(np.sum(shape > 0.7))
    assert count >= 4  # k is 0.9975; of 1,000 weights an estimate of it has a standard error of 0.18
    assert f"{count} of 6 rows" in str(told[0].message)
    assert "lamu.scores.row_log_prob(posterior, rows).shape is each row's k" in str(told[0].message)


@pytest.mark.parametrize("samples", [1, 16])
def test_few_samples_are_averages_of_the_encoders_weights(samples, monkeypatch):
    monkeypatch.setattr("lamu.latent.row_proposals.row_log_probs", None)
    posterior, y = narrow(0.1), rows()
    batch = posterior.model.rows({"y": y}).full()
    plain = posterior.model.row_log_prob(posterior.belief, batch, samples, posterior.key)
    np.testing.assert_array_equal(posterior.log_prob({"y": y}, samples), plain)


def test_the_proposal_keeps_the_mode_that_only_the_encoder_has():
    """y = z² + noise has two modes of z, a curvature is of one: a proposal without the encoder is log 2 too low."""
    decoder = Trained(lambda w, z: w["scale"] * z**2, {"scale": jnp.ones(())})
    wide = Trained(lambda w, y: jnp.broadcast_to(w["both"], (len(y), 2)), {"both": jnp.asarray([0.0, np.log(2.0)])})
    posterior = posterior_of(lamu.latent.models.VAE(1, 1, decoder, wide, lamu.likelihoods.Gaussian(NOISE)), 1)
    y = np.array([[4.0], [2.5], [6.0]])
    batch = posterior.model.rows({"y": y}).full()
    found = averaged_weights(fitted_log_weights(posterior.model, posterior.belief, batch, 2000, jax.random.key(4)))
    z = np.linspace(-8, 8, 20_001)
    density = np.trapezoid(norm.pdf(z) * norm.pdf(y, z**2, NOISE), z, axis=1)
    assert np.all(np.abs(found.value - np.log(density)) < 5 * found.error)  # fails once in 10⁶ of keys
    assert np.all(found.error < 0.13)


def test_the_sum_is_the_log_of_the_mean_weight():
    weights = np.random.default_rng(0).gamma(2.0, size=(300, 2))
    found = averaged_weights(np.log(weights) - 700)
    np.testing.assert_allclose(found.value, np.log(weights.mean(axis=0)) - 700)
    np.testing.assert_allclose(found.error, weights.std(axis=0, ddof=1) / weights.mean(axis=0) / np.sqrt(300))


def test_weights_of_fitted_proposals_are_traced_once_for_any_number_of_rows() -> None:
    """A trace runs Newton's method through the decoder, and takes longer than the weights of some rows."""
    traces = []

    def decoded(w: Any, z: jax.Array) -> jax.Array:
        traces.append(1)
        return z @ w["slope"]

    decoder = Trained(decoded, {"slope": jnp.asarray(W)})
    encoder = Trained(lambda w, y: y @ w["slope"], {"slope": jnp.zeros((5, 4))})
    posterior = posterior_of(lamu.latent.models.VAE(2, 5, decoder, encoder, lamu.likelihoods.Gaussian(NOISE)), 5)
    weights = lambda y: fitted_log_weights(
        posterior.model, posterior.belief, posterior.model.rows({"y": y}).full(), 4, jax.random.key(0)
    )
    whole = weights(rows())
    traces.clear()
    np.testing.assert_allclose(weights(rows()[:5]), whole[:, :5], rtol=1e-6)
    assert not traces


class _Odd:
    """A belief of which every fourth draw is no number."""

    def __init__(self, belief: Any) -> None:
        self.belief = belief

    def __getattr__(self, name: str) -> Any:
        return getattr(self.belief, name)

    def draws(self, key: Any, count: int) -> Any:
        odd = lambda leaf: leaf.at[::4].set(jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
        return jax.tree.map(odd, self.belief.draws(key, count))


@pytest.mark.stress
def test_draws_of_a_graph_that_are_no_numbers_are_counted_and_left_out() -> None:
    y = np.concatenate([np.random.default_rng(0).normal(size=(30, 2)), np.full((1, 2), 5.0)])
    graph = lamu.graphs.models.GaussianMixture(2, 2)
    posterior = lamu.fit(graph, {"y": y}, lamu.algorithms.vmp(), steps=5).posterior
    batch, key = graph.rows({"y": y}).full(), jax.random.key(1)
    whole = np.asarray(posterior.model.row_log_prob(posterior.belief, batch, 4000, key))
    with pytest.warns(lamu.scores.UnreliableWeights, match=r"^1000 of 4000 draws of the parameters are not finite"):
        found = np.asarray(posterior.model.row_log_prob(_Odd(posterior.belief), batch, 4000, jax.random.key(1)))
    # The averages of 3,000 and 4,000 draws have errors of a few hundredths of a nat.
    np.testing.assert_allclose(found, whole, atol=0.1)
    with pytest.warns(lamu.scores.UnreliableWeights, match=r"^1 of 1 draws .* 31 rows, and 31 have no other and stay"):
        found = posterior.model.row_log_prob(_Odd(posterior.belief), batch, 1, key)
    assert np.isnan(np.asarray(found)).all()


def test_a_weight_that_is_no_number_counts_as_zero_and_is_told() -> None:
    log_weights = np.log(np.random.default_rng(0).uniform(0.5, 1.5, size=(200, 3)))
    plain = averaged_weights(log_weights)
    log_weights[7, 1], log_weights[9, 1], log_weights[7, 2] = np.nan, np.inf, -np.inf
    with pytest.warns(lamu.scores.UnreliableWeights, match=r"^2 of 200 draws .* at 1 of 3 rows: "):
        found = averaged_weights(log_weights)
    np.testing.assert_allclose(found.value, plain.value, atol=0.02)
    assert found.value[0] == plain.value[0]
    assert np.all(found.value[1:] < plain.value[1:])
    assert not found.unreliable.any()


def test_missing_entries_of_a_row_have_a_density_where_a_draw_has_none() -> None:
    from lamu.predictives.graph import DrawnRows, DrawnVariable
    from lamu.predictives.padding import with_padded_programs

    f = np.random.default_rng(0).normal(size=(8, 3, 1, 1))
    f[2, 1] = np.nan
    law = lamu.likelihoods.Gaussian()
    part = DrawnVariable(
        jnp.zeros((3, 1)), jnp.zeros((3, 1), bool), law, jnp.asarray(f), {"log_scale": jnp.zeros((8, 3, 1, 1))}
    )
    y = jnp.zeros((3, 1))
    expected = np.log(np.nansum(np.exp(norm.logpdf(f[..., 0, 0])), axis=0) / 8)
    rows = DrawnRows({"known": y, "y": part})  # the one variable with missing entries needs no name
    for ask in (part.log_prob, with_padded_programs(part).log_prob, rows.log_prob, lambda y: rows.log_prob({"y": y})):
        with pytest.warns(lamu.scores.UnreliableWeights, match=r"^1 of 8 draws .* at 1 of 3 rows"):
            np.testing.assert_allclose(ask(y), expected, rtol=1e-6)
    assert np.all(np.asarray(rows.cdf(y)["known"]) == 1.0)
    with pytest.raises(TypeError, match=r"x and y are missing; give them by name, as in \{'x': ...\}"):
        DrawnRows({"x": part, "y": part}).log_prob(y)


def of_draws(model: Any, network: Any) -> Any:
    """A posterior of one chain of four draws."""
    draws = Draws({"network": jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], network), "likelihood": {}})
    return lamu.Posterior(model, draws, {}, lamu.predictives.Sampled(), jax.random.key(1))


def line(slope: list[float]) -> Any:
    model = lamu.Model(
        Trained(lambda w, x: x * w["slope"], {"slope": jnp.ones(())}), lamu.likelihoods.Gaussian(scale=1.0)
    )
    return of_draws(model, {"slope": np.asarray(slope)})


LINE = line([0.5, np.nan, 2.0, 1.0])
X, Y = np.arange(5.0)[:, None], np.arange(5.0)


def test_a_draw_that_diverged_is_left_out_of_predictions_which_say_so() -> None:
    others = line([0.5, 2.0, 1.0]).predict(X)
    with pytest.warns(lamu.scores.UnreliableWeights, match=r"^1 of 4 draws of the parameters are not finite"):
        pred = LINE.predict(X)
    for one, two in ((pred.mean, others.mean), (pred.std, others.std), (pred.log_prob(Y), others.log_prob(Y))):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    assert pred.interval(0.5)[0].tolist() == others.interval(0.5)[0].tolist()


def test_predictions_of_draws_none_of_which_is_a_number_stay_nan() -> None:
    assert np.isnan(line([np.nan, np.inf]).predict(X[1:]).mean).all()


@pytest.mark.parametrize("budget", [None, 96])
def test_outputs_that_are_no_numbers_have_a_density_of_zero(budget: int | None) -> None:
    """Weights that are finite and of which a network makes NaN: at row 0 of the second draw, 0 · ∞."""
    network = Trained(lambda w, x: x * jnp.exp(w["log"]), {"log": jnp.zeros(())})
    model = lamu.Model(network, lamu.likelihoods.Gaussian(scale=1.0))
    posterior = of_draws(model, {"log": np.asarray([0.0, 2000.0, 0.5, -0.5])})
    f = X * np.exp([0.0, -np.inf, 0.5, -0.5])
    density = norm.pdf(Y[:, None], f)
    density[:, 1] = 0.0
    with lamu.memory.within(budget) if budget else contextlib.nullcontext():
        pred = posterior.predict(X)
        assert bool(pred.deferred) == bool(budget)
        with pytest.warns(lamu.scores.UnreliableWeights, match=r"^1 of 4 draws have a density that is NaN"):
            found = pred.log_prob(Y)
        np.testing.assert_allclose(found, np.log(density.mean(axis=1)), rtol=1e-5)
        assert np.isfinite(pred.monte_carlo_error(Y))


def test_conjugate_targets_leave_out_draws_that_are_no_numbers() -> None:
    model = lamu.ConjugateModel(lamu.observations.Poisson(), lamu.families.Gamma(2.0, 1.0))
    rate = np.asarray([0.5, np.nan, 2.0, 1.0])
    with pytest.warns(lamu.scores.UnreliableWeights, match=r"^1 of 4 draws of the parameters"):
        found = of_draws(model, jnp.asarray(rate)).log_prob(np.asarray([0, 1, 4]))
    expected = np.log(np.mean(poisson.pmf(np.asarray([0, 1, 4]), np.delete(rate, 1)[:, None]), axis=0))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_programs_leave_out_draws_that_are_no_numbers() -> None:
    def program(X: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(X * w, 1.0), obs=y)

    target = lamu.from_numpyro(program, {"X": X[:, 0], "y": Y}, rows="rows")
    slope = np.asarray([0.5, np.nan, 2.0, 1.0])
    posterior = of_draws(target, {"w": jnp.asarray(slope)})
    expected = np.log(np.mean(norm.pdf(Y, X[:, 0] * np.delete(slope, 1)[:, None]), axis=0))
    asked = (lambda: posterior.predict({"X": X[:, 0]}).log_prob(Y), lambda: posterior.log_prob({"X": X[:, 0], "y": Y}))
    for ask in asked:
        with pytest.warns(lamu.scores.UnreliableWeights, match=r"^1 of 4 draws of the parameters"):
            np.testing.assert_allclose(ask(), expected, rtol=1e-5)


def test_a_target_that_is_nan_is_no_fault_of_the_draws() -> None:
    """Its density is NaN as of any prediction; it was called a fault of all draws."""
    x, y = np.eye(4), np.arange(8.0).reshape(4, 2)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
    prediction = lamu.fit(model, (x, y), lamu.algorithms.ivon(), steps=5).posterior.predict(x)
    y[1, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = prediction.log_prob(y)
    np.testing.assert_array_equal(np.isnan(found), [False, True, False, False])
