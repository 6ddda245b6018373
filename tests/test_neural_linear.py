"""The neural linear model: exact regression with unknown noise, by hand in NumPy and SciPy."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, stats

import lamu
from lamu.algorithms import adam, ivon, last_layer, map_estimate, neural_linear
from lamu.algorithms.post_hoc.neural_linear import absorb
from lamu.data import Arrays, Batch
from lamu.families.matrix_normal import LinearNormalGamma
from lamu.likelihoods import Gaussian
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP, BatchNorm, Linear
from lamu.objective import Objective
from lamu.predictives import Sampled, StudentPredictive, StudentRule
from lamu.predictives.gaussian import head_features, head_size, require_head
from lamu.priors import Normal, ScaleMixture

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = X @ np.array([1.0, -1.0]) + 0.3 * X[:, 0] ** 2 + 0.5 * rng.normal(size=40)
TWO = np.column_stack([Y, 2 * Y[::-1] + rng.normal(size=40)])
ALGORITHM = neural_linear(map_estimate(optax.adam(0.05)), prior_rows=3.0)


def fitted(network: Any = MLP((4,), "tanh"), y: Any = Y, **options: Any) -> Any:  # noqa: B008  (a constant)
    model = Model(network, Gaussian(), Normal(0.8)).standardised(X, y)
    return fit(model, (X, y), ALGORITHM, epochs=20, batch_size=40, **options)


def design_of(posterior: Any, x: Any) -> np.ndarray:
    return np.asarray(head_features(posterior.model, posterior.belief.location, {}, jnp.asarray(x))[1])


def by_hand(found: Any, y: np.ndarray, temperature: float = 1.0) -> tuple[Any, ...]:
    """Returns m, Λ, a, b and the log integral of the tempered joint, of one standardised output (Bishop, 3.3)."""
    posterior = found.posterior
    noise = float(np.exp(2 * found.state.params["likelihood"]["log_scale"][0]))
    phi, z = design_of(posterior, X), (y - y.mean()) / y.std()
    width, prior = phi.shape[1], noise / 0.8**2
    a0, b0 = 1.5, 1.5 * noise
    precision = (prior * np.eye(width) + phi.T @ phi) / temperature
    mean = np.linalg.solve(precision, phi.T @ z / temperature)
    # The powers of τ in the joint, over T.
    a = (a0 - 1 + width / 2 + len(z) / 2) / temperature + 1 - width / 2
    b = (b0 + (z @ z) / 2) / temperature - mean @ precision @ mean / 2
    log_gamma = lambda value: float(jax.scipy.special.gammaln(value))
    start = a0 * np.log(b0) - log_gamma(a0) + width / 2 * np.log(prior) - (width + len(z)) / 2 * np.log(2 * np.pi)
    end = log_gamma(a) - a * np.log(b) + width / 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    return mean, precision, a, b, (start - len(z) * np.log(y.std())) / temperature + end


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_belief_and_evidence_are_the_closed_form(temperature: float) -> None:
    found = fitted(temperature=temperature)
    mean, precision, a, b, evidence = by_hand(found, Y, temperature)
    belief = found.posterior.belief
    location = np.concatenate([belief.location["layers"][1]["bias"], belief.location["layers"][1]["kernel"][:, 0]])
    np.testing.assert_allclose(location, mean, rtol=1e-9)
    np.testing.assert_allclose(belief.precision[0], precision, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose((belief.shape[0], belief.rate[0]), (a, b), rtol=1e-9)
    np.testing.assert_allclose(found.posterior.evidence, evidence, rtol=1e-10)


def test_the_prediction_is_students_t() -> None:
    """Mean, scale and degrees of freedom by hand; density, distribution function and quantiles by SciPy."""
    found = fitted()
    mean, precision, a, b, _ = by_hand(found, Y)
    new = rng.normal(size=(6, 2))
    phi = design_of(found.posterior, new)
    spread = 1 + np.einsum("ni,ij,nj->n", phi, np.linalg.inv(precision), phi)
    t = stats.t(2 * a, Y.mean() + Y.std() * phi @ mean, Y.std() * np.sqrt(b / a * spread))
    pred, y = found.posterior.predict(new), np.linspace(-2, 2, 6)
    assert isinstance(pred, StudentPredictive)
    np.testing.assert_allclose(pred.log_prob(y), t.logpdf(y), rtol=1e-9)
    np.testing.assert_allclose(pred.cdf(y), t.cdf(y), rtol=1e-8)
    np.testing.assert_allclose(pred.mean, t.mean(), rtol=1e-9)
    np.testing.assert_allclose(pred.variance, t.var(), rtol=1e-9)
    np.testing.assert_allclose(pred.aleatoric, Y.var() * b / (a - 1), rtol=1e-9)
    for level in (0.02, 0.5, 0.7):
        np.testing.assert_allclose(pred.quantile(level), t.ppf(level), rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="strictly between"):
        pred.quantile(1.0)


@pytest.mark.stress
def test_draws_of_the_belief_predict_the_same() -> None:
    """4,000 draws of weights and noise, averaged: within 2 % of the density at its bulk, with a fixed seed."""
    posterior = fitted().posterior
    exact, drawn = posterior.predict(X[:5]), posterior.with_rule(Sampled()).predict(X[:5], samples=4000)
    np.testing.assert_allclose(drawn.mean, exact.mean, atol=0.02 * float(exact.std.max()))
    np.testing.assert_allclose(drawn.variance, exact.variance, rtol=0.05)
    y = exact.mean + 0.5 * exact.std
    np.testing.assert_allclose(drawn.log_prob(y), exact.log_prob(y), atol=0.02)


@pytest.mark.stress
def test_rows_that_come_later_give_the_answer_of_one_batch() -> None:
    """Half the rows in the pass, the others absorbed in two parts, against all rows in the pass; two outputs."""
    found = fitted(y=TWO)
    algorithm, posterior = ALGORITHM, found.posterior
    objective = Objective(Model(MLP((4,), "tanh"), Gaussian(), Normal(0.8)).standardised(X, TWO), 40.0)
    first = replace(objective, data_size=20.0)
    half = algorithm.posterior(jax.random.key(1), found.state, first, Arrays.of((X[:20], TWO[:20])), None)
    later = absorb(absorb(half, (X[20:25], TWO[20:25])), {"x": X[25:], "y": TWO[25:]})
    whole = algorithm.posterior(jax.random.key(1), found.state, objective, Arrays.of((X, TWO)), None)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10), later.belief, whole.belief
    )
    np.testing.assert_allclose(later.evidence, whole.evidence, rtol=1e-10)
    np.testing.assert_allclose(whole.evidence, posterior.evidence, rtol=1e-10)
    assert float(half.evidence) != float(whole.evidence)
    pred = later.predict(X)
    assert pred.mean.shape == pred.variance.shape == (40, 2)
    assert pred.log_prob(TWO).shape == (40,)
    assert pred.sample(jax.random.key(0), 3).shape == (3, 40, 2)


@pytest.mark.stress
def test_at_the_noise_of_the_mode_it_is_the_last_layer() -> None:
    """The curvature over the noise is the last layer's, which learns another noise, and the means are one nearly."""
    model = Model(Linear(), Gaussian(), Normal(0.8))
    mode = map_estimate(optax.lbfgs())
    parts = [fit(model, (X, Y), make(mode), steps=60, batch_size=40).posterior for make in (neural_linear, last_layer)]
    (exact, laplace), noise = parts, np.exp(2 * parts[1].mean["likelihood"]["log_scale"][0])
    gaussian = laplace.belief.factors["network"]
    at_mode = np.exp(2 * fit(model, (X, Y), mode, steps=60, batch_size=40).posterior.mean["likelihood"]["log_scale"][0])
    own, theirs = exact.belief.precision[0], gaussian.precision.dense(gaussian.mean)
    prior = np.eye(len(own)) / 0.8**2
    np.testing.assert_allclose((own - at_mode * prior) / noise, theirs - prior, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), exact.belief.location, gaussian.mean)


@pytest.mark.stress
def test_weights_and_masks_count_rows() -> None:
    belief = fitted().posterior
    doubled = {"x": X[:5], "y": Y[:5], "weight": np.full(5, 2.0)}
    twice = absorb(absorb(belief, (X[:5], Y[:5])), (X[:5], Y[:5]))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12),
        absorb(belief, doubled).belief,
        twice.belief,
    )
    masked = {"x": X[:7], "y": Y[:7], "mask": np.array([1.0] * 5 + [0.0] * 2)}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12),
        absorb(belief, masked).belief,
        absorb(belief, (X[:5], Y[:5])).belief,
    )


def test_the_belief_is_a_density_with_the_moments_of_its_draws() -> None:
    belief = LinearNormalGamma.of(jnp.array([[0.5]]), jnp.array([[[2.0]]]), jnp.array([3.0]), jnp.array([1.5]))
    theta = lambda w, s: {"network": jnp.array([[w]]), "likelihood": {"log_scale": jnp.array([s])}}
    density = jax.jit(jax.vmap(jax.vmap(lambda w, s: jnp.exp(belief.log_prob(theta(w, s))), (0, None)), (None, 0)))
    w, s = np.linspace(-8, 9, 1201), np.linspace(-3, 4, 801)
    values = np.asarray(density(jnp.asarray(w), jnp.asarray(s)))
    total = integrate.simpson(integrate.simpson(values, x=w, axis=1), x=s)
    np.testing.assert_allclose(total, 1.0, atol=2e-4)
    mean = integrate.simpson(s * integrate.simpson(values, x=w, axis=1), x=s)
    np.testing.assert_allclose(belief.mean["likelihood"]["log_scale"][0], mean, atol=1e-3)
    draws = belief.draws(jax.random.key(2), 4000)
    # Four numbers within five standard errors, with a fixed seed.
    noise = np.exp(2 * np.asarray(draws["likelihood"]["log_scale"][:, 0]))
    assert abs(noise.mean() - float(belief.rate[0] / (belief.shape[0] - 1))) < 5 * noise.std() / 4000**0.5
    weights = np.asarray(draws["network"])[:, 0, 0]
    assert abs(weights.mean() - 0.5) < 5 * weights.std() / 4000**0.5
    assert abs(weights.var() / (0.75 / 2.0) - 1) < 0.2
    np.testing.assert_allclose(belief.quadratic_form(jnp.array([[3.0]])), [[4.5]], rtol=1e-12)
    heavy = StudentPredictive(jnp.zeros(1), jnp.ones(1), jnp.full(1, 1.5), jnp.full(1, 0.5))
    assert np.isinf(heavy.variance[0])
    np.testing.assert_allclose(heavy.quantile(0.999), stats.t(1.5).ppf(0.999), rtol=1e-8)


@pytest.mark.stress
def test_features_are_those_of_the_network() -> None:
    model = Model(MLP((4,), "tanh", BatchNorm()), Gaussian(), Normal(0.8))
    found = fit(model, (X, TWO), neural_linear(adam(0.05)), epochs=3, batch_size=20)
    posterior = found.posterior
    f, phi = head_features(posterior.model, posterior.belief.location, posterior.network_state, jnp.asarray(X))
    layer = posterior.belief.location["layers"][1]
    weights = np.concatenate([np.asarray(layer["bias"])[None], layer["kernel"]])
    np.testing.assert_allclose(phi @ weights, f, rtol=1e-9)
    assert head_size(posterior.belief.location) == (5, 2)
    np.testing.assert_allclose(posterior.predict(X).mean, f, rtol=1e-9)


def test_it_is_saved_and_what_makes_no_sense_is_refused() -> None:
    posterior = fitted().posterior
    with tempfile.TemporaryDirectory() as folder:
        again = lamu.load(posterior.save(Path(folder) / "posterior"))
    np.testing.assert_array_equal(again.predict(X).variance, posterior.predict(X).variance)
    assert isinstance(again.rule, StudentRule)
    with pytest.raises(TypeError, match="Gaussian without one"):
        fit(Model(Linear(), Gaussian(0.4)), (X, Y), ALGORITHM, steps=1)
    with pytest.raises(TypeError, match="Bernoulli without one"):
        fit(Model(Linear(), lamu.likelihoods.Bernoulli()), (X, (Y > 0).astype(int)), ALGORITHM, steps=1)
    with pytest.raises(TypeError, match="not SpikeAndSlab"):
        fit(Model(Linear(), Gaussian(), ScaleMixture()), (X, Y), ALGORITHM, steps=1)
    units = lamu.networks.Standardised(Linear(), np.zeros(2), np.ones(2), unit=np.array([1.0, 30.0]))
    with pytest.raises(TypeError, match=r"here they are \[1.0, 30.0\] times those of output 0"):
        fit(Model(units, Gaussian()), (X, np.stack([Y, Y], axis=1)), ALGORITHM, steps=1)
    with pytest.raises(ValueError, match="prior_rows=0"):
        neural_linear(prior_rows=0)
    other = fit(Model(Linear(), Gaussian()), (X, Y), ivon(0.1), steps=2).posterior
    with pytest.raises(TypeError, match="with_prior"):
        absorb(other, (X, Y))
    with pytest.raises(TypeError, match="Sampled"):
        other.with_rule(StudentRule()).predict(X)
    with pytest.raises(TypeError, match="the leaf 'w'"):
        require_head(Model(Linear(), Gaussian()), {"w": jnp.zeros((2, 3))}, {}, jnp.zeros((1, 2)), 2, "neural_linear()")
    batch = Batch.of(X, Y)
    state = ALGORITHM.init(jax.random.key(0), Objective(Model(Linear(), Gaussian()), 40.0), batch)
    assert ALGORITHM.preview(jax.random.key(0), state, Objective(Model(Linear(), Gaussian()), 40.0)).mean["network"]
