"""Predictive rules where they must coincide: linear models, wide draws, members of an ensemble."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm, poisson

from lamu import memory
from lamu.families import Draws, Ensemble, Gamma, Gaussian, Point, Product
from lamu.families.matrix_normal import NoiseScale
from lamu.geometry import Geometry, Retraction, Straight
from lamu.likelihoods import Bernoulli, Categorical, Poisson, Scaled
from lamu.likelihoods import Gaussian as Noise
from lamu.model import Model
from lamu.networks import MLP, Linear, Network
from lamu.operators import Dense, Diagonal, Kronecker, OutputBlocks
from lamu.posterior import Posterior, default_samples, load
from lamu.predictives import (
    ClassProbabilities,
    ClosedForm,
    Deferred,
    GaussianPredictive,
    LaplaceBridge,
    Linearised,
    LinearisedMarginal,
    MixturePredictive,
    Pooling,
    Predictive,
    PredictiveRule,
    Probit,
    Sampled,
    TangentDraws,
    Weighted,
)
from lamu.predictives.gaussian import StudentRule
from lamu.predictives.interface import jackknife, mean_deviations
from lamu.predictives.linearised import _root
from lamu.predictives.mixture import logsumexp_of_others
from lamu.predictives.moment_propagation import Propagated
from lamu.predictives.sampled import DrawnOutputs
from lamu.tree import dimension, ravel
from tests.for_each import for_each

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(7, 2)))


def belief_of(model: Model, outputs: int) -> Product:
    weights, _ = model.network.init(jax.random.key(1), X, outputs)
    size = dimension(weights)
    root = np.random.default_rng(2).normal(size=(size, size)) / 2
    precision = Dense(jnp.asarray(root @ root.T + 2 * np.eye(size)))
    return Product({"network": Gaussian(weights, precision), "likelihood": Point({})})


def test_protocols_know_their_own() -> None:
    assert isinstance(Straight(), Geometry)
    assert isinstance(Retraction(), Geometry)
    assert isinstance(MLP((3,)), Network)
    assert all(isinstance(rule, PredictiveRule) for rule in (ClosedForm(), Linearised(), Sampled(), Pooling(Sampled())))


def test_closed_form_is_the_linear_algebra() -> None:
    model = Model(Linear(), Noise(scale=0.5))
    belief = belief_of(model, 1)
    pred = ClosedForm().predict(model, belief, {}, X, 1, KEY)
    assert isinstance(pred, GaussianPredictive)
    gaussian: Any = belief.factors["network"]
    design = np.column_stack([np.ones(7), X])
    covariance = np.linalg.inv(gaussian.precision.matrix)
    np.testing.assert_allclose(pred.mean, design @ ravel(gaussian.mean)[0], rtol=1e-10)
    np.testing.assert_allclose(pred.epistemic, np.einsum("nd,de,ne->n", design, covariance, design), rtol=1e-10)
    np.testing.assert_allclose(pred.aleatoric, 0.25)


def test_closed_form_refuses_what_is_not_linear_and_gaussian() -> None:
    model = Model(Linear(), Bernoulli())
    with pytest.raises(TypeError, match="linear network and a Gaussian likelihood"):
        ClosedForm().predict(model, belief_of(model, 1), {}, X, 1, KEY)


@pytest.mark.parametrize(("likelihood", "outputs"), [(Bernoulli(), 1), (Categorical(3), 3)])
def test_linearised_is_sampled_where_nothing_is_linearised(likelihood, outputs: int) -> None:
    """The mean of 20,000 probabilities has a standard error below 0.0036; five of them, 21 times: 1 in 80,000 runs."""
    model = Model(Linear(), likelihood)
    belief = belief_of(model, outputs)
    one = Linearised().predict(model, belief, {}, X, 20_000, KEY)
    other = Sampled().predict(model, belief, {}, X, 20_000, jax.random.key(5))
    assert isinstance(one, MixturePredictive)
    np.testing.assert_allclose(one.mean, other.mean, atol=5 * np.sqrt(2) * 0.0036)
    np.testing.assert_allclose(one.epistemic, other.epistemic, atol=0.03)


def test_linearised_of_two_outputs_is_jointly_normal() -> None:
    model = Model(MLP((3,), "tanh"), Noise(scale=0.5))
    belief = belief_of(model, 2)
    pred: Any = Linearised().predict(model, belief, {}, X, 1, KEY)
    y = np.random.default_rng(3).normal(size=(7, 2))
    expected = [multivariate_normal(pred.mean[i], pred.covariance[i]).logpdf(y[i]) for i in range(7)]
    np.testing.assert_allclose(pred.log_prob(y), expected, rtol=1e-8)


def test_linearised_refuses_a_belief_that_is_no_gaussian() -> None:
    model = Model(Linear(), Bernoulli())
    with pytest.raises(TypeError, match="needs a Gaussian belief"):
        Linearised().predict(model, Point({"network": {}, "likelihood": {}}), {}, X, 1, KEY)


@pytest.mark.parametrize("weights", [None, (0.7, 0.3, 0.0)])
def test_pooled_is_the_mixture_of_its_members(weights: tuple[float, ...] | None) -> None:
    model = Model(Linear(), Noise(scale=0.5))
    params = [{"network": model.network.init(jax.random.key(s), X, 1)[0], "likelihood": {}} for s in range(3)]
    log_weights = None if weights is None else jnp.log(jnp.array(weights))
    belief = Ensemble(Point(jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)), log_weights)
    pred = Pooling(Sampled()).predict(model, belief, {}, X, 3, jax.random.key(0))
    assert isinstance(pred, Weighted)
    assert isinstance(pred, Predictive)
    f = jnp.stack([model.outputs(p, {}, X)[0] for p in params])
    whole = MixturePredictive.equal(model.likelihood, {}, f)
    if log_weights is not None:
        whole = replace(whole, log_weights=log_weights)
    y = jnp.linspace(-1.0, 1.0, 7)
    for name in ("mean", "variance", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(pred, name), getattr(whole, name), rtol=1e-10, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(pred.log_prob(y), whole.log_prob(y), rtol=1e-10)
    np.testing.assert_allclose(pred.cdf(y), whole.cdf(y), rtol=1e-10)
    # The mean of 4,000 draws: 7 of them within four standard errors fails once in 2,200 runs.
    drawn = pred.sample(jax.random.key(1), 4000)
    assert np.all(np.abs(drawn.mean(axis=0) - pred.mean) < 4 * pred.std / np.sqrt(4000))


def test_pooling_refuses_a_single_belief() -> None:
    model = Model(Linear(), Bernoulli())
    with pytest.raises(TypeError, match="averages an ensemble, not a Product"):
        Pooling(Sampled()).predict(model, belief_of(model, 1), {}, X, 1, KEY)


def draws_of(seed: int, draws: int) -> MixturePredictive:
    f = jnp.asarray(np.random.default_rng(seed).normal(size=(draws, 7, 1)))
    return MixturePredictive.equal(Noise(scale=0.5), {}, f, drawn=True)


def without(pred: MixturePredictive, s: int) -> MixturePredictive:
    return MixturePredictive.equal(pred.likelihood, {}, jnp.delete(pred.f, s, axis=0), drawn=True)


def test_what_is_left_without_a_draw_is_the_predictive_without_it() -> None:
    y = jnp.linspace(-8.0, 8.0, 7)  # the ends are so far out that one draw is nearly all of the density
    pred, other = draws_of(0, 5), draws_of(1, 3)
    (left,) = pred.left_out(y)
    np.testing.assert_allclose(left, [without(pred, s).log_prob(y) for s in range(5)], rtol=1e-12)
    first, second = Weighted.equal((pred, other)).left_out(y)
    np.testing.assert_allclose(
        first, [Weighted.equal((without(pred, s), other)).log_prob(y) for s in range(5)], rtol=1e-12
    )
    np.testing.assert_allclose(
        second, [Weighted.equal((pred, without(other, s))).log_prob(y) for s in range(3)], rtol=1e-12
    )
    # A difference from the whole sum would be minus infinity for the second.
    np.testing.assert_allclose(logsumexp_of_others(jnp.array([0.0, -200.0])), [-200.0, 0.0])


def test_the_jackknife_of_an_average_is_its_standard_error() -> None:
    """Where the statistic is an average it is exact: any other factor than (S - 1)/S shows."""
    values = np.random.default_rng(0).normal(size=(6, 9))
    left = (values.sum(axis=0) - values) / 5
    error = jackknife([mean_deviations(jnp.asarray(left))])
    assert error == pytest.approx(values.mean(axis=1).std(ddof=1) / np.sqrt(6), rel=1e-12)
    parts = [jackknife([mean_deviations(jnp.asarray(left))]) for _ in range(2)]
    both = jackknife([mean_deviations(jnp.asarray(left)), mean_deviations(jnp.asarray(left))])
    assert both == pytest.approx(np.linalg.norm(parts), rel=1e-12)
    real = jnp.arange(9) < 4
    np.testing.assert_allclose(mean_deviations(jnp.asarray(left), real) / 4, mean_deviations(jnp.asarray(left[:, :4])))


def spread_and_error(rule: PredictiveRule, belief: object, model: Model, draws: int, y: np.ndarray) -> tuple:
    """The standard deviation of the mean log density over 300 keys, and what single predictions say of it."""

    @jax.jit
    @jax.vmap
    def ask(key: jax.Array) -> tuple:
        pred = rule.prepare(model, belief, {}, draws, key).at(X, None)
        return jnp.mean(pred.log_prob(y)), [mean_deviations(group) for group in pred.left_out(y)]

    means, groups = ask(jax.random.split(jax.random.key(7), 300))
    errors = [jackknife([group[i] for group in groups]) for i in range(300)]
    return float(np.std(means, ddof=1)), float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize("pooled", [False, True])
def test_monte_carlo_error_is_the_spread_over_keys(pooled: bool) -> None:
    """The spread over 300 keys is known to 4 %: off by more than 20 % once in a million; found 0.2 % and 4 %."""
    model = Model(Linear(), Noise(scale=1.0))
    belief, y = belief_of(model, 1), np.random.default_rng(3).normal(size=7)
    wide: Any = belief.factors["network"]
    narrow = Gaussian(wide.mean, wide.precision.scale(4.0))
    belief = Product({"network": narrow, "likelihood": Point({})})
    rule: PredictiveRule = Sampled()
    if pooled:
        others = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.1 * leaf]), belief)
        belief, rule = Ensemble(others), Pooling(Sampled())
    spread, error = spread_and_error(rule, belief, model, 60, y)
    assert error == pytest.approx(spread, rel=0.2)


def test_a_prediction_averages_the_kept_draws_of_a_sampler_unless_they_are_many_numbers() -> None:
    model = Model(Linear(bias=False), Noise(scale=0.5))
    weights = jax.random.normal(KEY, (2, 45, 3, 1)) + 2.0
    network = jax.tree.map(lambda leaf: weights, belief_of(model, 1).factors["network"].mean)
    kept = Draws({"network": network, "likelihood": {}})
    x = np.asarray(jax.random.normal(jax.random.key(1), (4, 3)))
    found = Posterior(model, kept, {}, Sampled(), KEY).predict(x).mean
    np.testing.assert_allclose(found, x @ np.mean(weights, axis=(0, 1))[:, 0], rtol=1e-5)
    assert default_samples(replace(kept, samples={"w": np.broadcast_to(0.0, (2, 2000, 3))})) == 1024
    assert default_samples(replace(kept, samples={"w": np.broadcast_to(0.0, (2, 2000, 2**16))})) == 256
    assert default_samples(belief_of(model, 1)) == 32


def test_what_comes_from_draws_is_asked_once_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked at every standard deviation, it took ten times as long as the deviation of one row."""
    asked: list[str] = []
    plain = Scaled._averaged
    monkeypatch.setattr(Scaled, "_averaged", lambda self, *parts: asked.append(self.name) or plain(self, *parts))
    for f in (0.0, 1.0):
        likelihood = Scaled(Noise(scale=0.5), np.asarray(f), np.asarray(2.0))
        MixturePredictive.equal(likelihood, {}, jnp.full((3, 7, 1), f)).variance.block_until_ready()
    assert len(asked) == 1


def test_monte_carlo_error_is_zero_without_draws_and_unknown_of_one() -> None:
    y = np.arange(7) % 2
    model = Model(Linear(), Bernoulli())
    belief = belief_of(model, 1)
    certain = Product({"network": Point(belief.factors["network"].mean), "likelihood": Point({})})
    members = Ensemble(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), certain))
    for rule, q in (
        (Linearised(), belief),  # quadrature
        (Sampled(), certain),
        (Sampled(), members),
        (Pooling(Sampled()), members),
    ):
        assert rule.predict(model, q, {}, X, 8, jax.random.key(1)).monte_carlo_error(y) == 0.0
    normal = Model(Linear(), Noise(scale=0.5))
    assert ClosedForm().predict(normal, belief_of(normal, 1), {}, X, 8, jax.random.key(1)).monte_carlo_error(y) == 0.0
    classes = Model(Linear(), Categorical(3))
    assert Linearised().predict(classes, belief_of(classes, 3), {}, X, 8, jax.random.key(1)).monte_carlo_error(y) > 0.0
    assert np.isnan(Sampled().predict(model, belief, {}, X, 1, jax.random.key(1)).monte_carlo_error(y))


CLASSES = Model(Linear(), Categorical(3))
BINARY = Model(Linear(), Bernoulli())


def outputs_of(model: Model, belief: Product) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the outputs of a linear network, by explicit matrices."""
    gaussian: Any = belief.factors["network"]
    outputs = lambda vector, x: model.outputs({"network": ravel(gaussian.mean)[1](vector)}, {}, x[None])[0][0]
    vector = ravel(gaussian.mean)[0]
    J = jax.vmap(jax.jacrev(outputs), (None, 0))(vector, X)
    covariance = np.einsum("nkd,de,nle->nkl", J, np.linalg.inv(gaussian.precision.matrix), J)
    return np.asarray(jax.vmap(outputs, (None, 0))(vector, X)), covariance


def test_probit_shrinks_each_logit_by_its_variance() -> None:
    for model, outputs in ((CLASSES, 3), (BINARY, 1)):
        belief = belief_of(model, outputs)
        mean, covariance = outputs_of(model, belief)
        shrunk = mean / np.sqrt(1 + np.pi / 8 * np.einsum("nkk->nk", covariance))
        pred = Probit().predict(model, belief, {}, X, 1, KEY)
        assert isinstance(pred, ClassProbabilities)
        expected = jax.nn.softmax(shrunk, axis=1) if outputs == 3 else jax.nn.sigmoid(shrunk[:, 0])
        np.testing.assert_allclose(pred.mean, expected, rtol=1e-6)
        y = np.arange(7) % (outputs if outputs == 3 else 2)
        chosen = pred.probabilities[np.arange(7), y]
        np.testing.assert_allclose(pred.log_prob(y), np.log(chosen), rtol=1e-6)
        np.testing.assert_allclose(pred.total, -np.sum(pred.probabilities * np.log(pred.probabilities), 1), rtol=1e-9)
        assert np.all(pred.epistemic >= 0)


def test_the_bridge_is_the_dirichlet_of_the_projected_logits() -> None:
    """By hand from a covariance projected to logits that sum to zero; and a Dirichlet's own entropy."""
    belief = belief_of(CLASSES, 3)
    mean, covariance = outputs_of(CLASSES, belief)
    across, total = covariance.sum(axis=2), covariance.sum(axis=(1, 2))
    mean = mean - across * (mean.sum(axis=1) / total)[:, None]
    covariance = covariance - across[:, :, None] * across[:, None, :] / total[:, None, None]
    variance = np.einsum("nkk->nk", covariance)
    alpha = (1 - 2 / 3 + np.exp(mean) / 9 * np.exp(-mean).sum(axis=1)[:, None]) / variance
    pred: Any = LaplaceBridge().predict(CLASSES, belief, {}, X, 1, KEY)
    np.testing.assert_allclose(pred.mean, alpha / alpha.sum(axis=1)[:, None], rtol=1e-6)
    # The mean entropy of 20,000 draws is known to 0.004 nats: five of them, 7 times, once in 250,000 runs.
    drawn = np.stack([np.random.default_rng(i).dirichlet(alpha[i], size=20_000) for i in range(7)])
    entropy = -np.sum(drawn * np.log(np.maximum(drawn, 1e-300)), axis=2)
    np.testing.assert_allclose(pred.expected_entropy, entropy.mean(axis=1), atol=5 * 0.004)
    binary = LaplaceBridge().predict(BINARY, belief_of(BINARY, 1), {}, X, 1, KEY)
    np.testing.assert_allclose(binary.probabilities.sum(axis=1), 1.0)


def test_probit_is_nearer_to_the_average_over_draws_than_the_mean_is() -> None:
    for model, outputs in ((CLASSES, 3), (BINARY, 1)):
        belief = belief_of(model, outputs)
        drawn = Linearised().predict(model, belief, {}, X, 20_000, jax.random.key(9)).mean
        plain = model.likelihood.mean({}, jnp.asarray(outputs_of(model, belief)[0]))
        probit = Probit().predict(model, belief, {}, X, 1, KEY).mean
        assert np.mean(np.abs(probit - drawn)) < 0.6 * np.mean(np.abs(plain - drawn))


@pytest.mark.parametrize(("model", "outputs"), [(CLASSES, 3), (BINARY, 1)], ids=["classes", "binary"])
def test_a_temperature_of_the_probit_divides_the_logits(model: Model, outputs: int) -> None:
    """Mean and deviation by T: a variance divided by T once alone is another prediction."""
    belief = belief_of(model, outputs)
    mean, covariance = outputs_of(model, belief)
    f = mean / 2.5 / np.sqrt(1 + np.pi / 8 * np.einsum("nkk->nk", covariance) / 2.5**2)
    expected = model.likelihood.mean({}, jnp.asarray(f))
    pred = Probit(temperature=2.5).predict(model, belief, {}, X, 1, KEY)
    np.testing.assert_allclose(pred.mean, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"temperature=-1\.0 divides the logits"):
        Probit(temperature=-1.0)


def test_marginal_outputs_are_the_diagonal_of_the_joint_ones() -> None:
    model = Model(MLP((3,), "tanh"), Scaled(Noise(scale=0.5), np.zeros(2), np.array([1.0, 3.0])))
    belief = belief_of(model, 2)
    joint = Linearised().predict(model, belief, {}, X, 1, KEY)
    marginal = LinearisedMarginal().predict(model, belief, {}, X, 1, KEY)
    assert isinstance(marginal, GaussianPredictive)
    for name in ("mean", "variance", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(marginal, name), getattr(joint, name), rtol=1e-9, err_msg=name)
    y = np.random.default_rng(3).normal(size=(7, 2))
    expected = norm.logpdf(y, marginal.mean, marginal.std).sum(axis=1)
    np.testing.assert_allclose(marginal.log_prob(y), expected, rtol=1e-9)
    np.testing.assert_allclose(marginal.cdf(y), joint.cdf(y), rtol=1e-9)
    # 4,000 draws: 14 means within four standard errors fail once in 1,100 runs.
    drawn = marginal.sample(jax.random.key(8), 4000)
    assert np.all(np.abs(drawn.mean(axis=0) - marginal.mean) < 4 * marginal.std / np.sqrt(4000))


def test_draws_of_the_tangent_are_draws_of_the_outputs() -> None:
    """A linear network, 4,000 draws: 21 means within five standard errors fail once in 80,000 runs."""
    belief = belief_of(CLASSES, 3)
    mean, covariance = outputs_of(CLASSES, belief)
    pred: Any = TangentDraws().predict(CLASSES, belief, {}, X, 4000, KEY)
    away = np.asarray(pred.f.mean(axis=0)) - mean
    assert np.all(np.abs(away) < 5 * np.sqrt(np.einsum("nkk->nk", covariance) / 4000))
    np.testing.assert_allclose(np.var(pred.f, axis=0), np.einsum("nkk->nk", covariance), rtol=0.15)


def belief_with(network: Network, precision: Any) -> tuple[Model, Product]:
    """A model of three classes, and a belief of a precision that is made of its weights."""
    model = Model(network, Categorical(3))
    weights, _ = network.init(jax.random.key(1), X, 3)
    return model, Product({"network": Gaussian(weights, precision(weights)), "likelihood": Point({})})


dense = lambda weights: Dense(9.0 * jnp.eye(dimension(weights)) + 1.0)
diagonal = lambda weights: Diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, 9.0), weights))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("network", "precision", "drawn"),
    [
        (Linear(), dense, True),
        (Linear(), lambda weights: Kronecker(9.0 * jnp.eye(3) + 1.0, jnp.eye(3) + 0.3), True),
        (Linear(), diagonal, False),
        (Linear(), lambda weights: OutputBlocks(jnp.broadcast_to(9.0 * jnp.eye(3) + 1.0, (3, 3, 3))), False),
        (MLP((4,), "tanh"), dense, True),
        (MLP((4,), "tanh"), diagonal, False),
    ],
    ids=["dense", "factors", "diagonal", "per output", "dense network", "diagonal network"],
)
def test_the_linearised_rule_draws_outputs_of_their_mean_and_covariance(
    network: Network, precision: Any, drawn: bool
) -> None:
    """Weights are drawn where that takes less.

    4,000 draws: 21 means within five standard errors fail once in 80,000 runs; of a variance, or a covariance in units
    of the deviations, 0.12 are five standard errors.
    """
    model, belief = belief_with(network, precision)
    parts = model, belief, {}, 4000, KEY
    prepared = Linearised().prepare(*parts)
    assert isinstance(prepared, DrawnOutputs) == drawn
    pred: Any = prepared.at(X, None)
    mean, spread = Linearised().outputs(*parts).normal(X, None)
    covariance = spread if spread.ndim == 3 else jax.vmap(jnp.diag)(spread)
    std = np.sqrt(np.einsum("nkk->nk", covariance))
    away = np.asarray(pred.f - mean[None]) / std[None]
    assert np.all(np.abs(away.mean(axis=0)) < 5 / np.sqrt(4000))
    correlation = np.asarray(covariance) / (std[:, :, None] * std[:, None, :])
    np.testing.assert_allclose(np.einsum("snk,snl->nkl", away, away) / 4000, correlation, atol=0.12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_root_of_a_singular_covariance_is_one_to_rounding(dtype: Any) -> None:
    """Of full rank, of one, of none, and with a direction that all logits share."""
    random = np.random.default_rng(0).normal(size=(3, 5, 5))
    centre = np.eye(5) - 1 / 5
    full = random @ random.transpose(0, 2, 1) * np.array([1e-6, 1.0, 1e6])[:, None, None]
    rank = random[:1, :, :1] @ random[:1, :, :1].transpose(0, 2, 1)
    covariance = np.concatenate([full, rank, np.zeros((1, 5, 5)), centre[None], centre @ full @ centre])
    root = np.asarray(_root(jnp.asarray(covariance, dtype)), float)
    largest = np.abs(covariance).max(axis=(1, 2), keepdims=True)
    assert np.all(np.isfinite(root))
    assert np.all(np.abs(root @ root.transpose(0, 2, 1) - covariance) <= 30 * jnp.finfo(dtype).eps * largest + 1e-30)
    assert np.all(np.triu(root, 1) == 0)


def test_classes_are_refused_where_there_are_none() -> None:
    regression = Model(Linear(), Noise(scale=0.5))
    for rule in (Probit(), LaplaceBridge()):
        with pytest.raises(TypeError, match="asked of a regression"):
            rule.predict(regression, belief_of(regression, 1), {}, X, 1, KEY)
    with pytest.raises(TypeError, match="knows no normal outputs"):
        Probit(Sampled())
    pred = Probit().predict(CLASSES, belief_of(CLASSES, 3), {}, X, 1, KEY)
    with pytest.raises(TypeError, match="classes have no cdf"):
        pred.cdf(0)
    # 4,000 draws of 7 rows: a frequency within 4.5 standard errors of at most 0.008.
    drawn = np.asarray(pred.sample(jax.random.key(2), 4000))
    assert np.max(np.abs(np.mean(drawn == 1, axis=0) - pred.mean[:, 1])) < 4.5 * 0.008


ROWS = jnp.concatenate([jnp.tile(X[:1], (20, 1)), -X[:1]])  # a sum over the first twenty, and two far apart


@for_each("noise", [Point({}), NoiseScale(Gamma(jnp.array([15.0]), jnp.array([4.0])))])
@for_each("rule", [Linearised(), Pooling(Linearised())])
def test_joint_draws_have_the_covariances_of_rows(noise: Any, rule: Any) -> None:
    """Draws of a closed form are of each row alone: the deviation of a mean of twenty alike was a quarter of this.

    The deviations of 4,000 draws, from as many functions, are known to 1.7 %; 4.5 standard errors are 8 %.
    """
    model = Model(Linear(), Noise(scale=0.5) if isinstance(noise, Point) else Noise())
    belief: Any = Product({"network": belief_of(model, 1).factors["network"], "likelihood": noise})
    size = 0.25 if isinstance(noise, Point) else 4.0 / 14.0  # E[σ²]
    unit = 1.0 if isinstance(noise, Point) else 15.0 / 14.0  # of the weights, whose variances are at b / a
    design = np.column_stack([np.ones(21), ROWS])
    covariance = unit * design @ np.linalg.inv(belief.factors["network"].precision.matrix) @ design.T
    belief = belief if isinstance(rule, Linearised) else Ensemble(jax.tree.map(lambda leaf: leaf[None], belief))
    state: Any = {}
    alone = Posterior(model, belief, state, rule, KEY)
    pred, joint = alone.predict(ROWS), alone.joint().predict(ROWS, samples=4000)
    np.testing.assert_allclose(joint.std, pred.std, rtol=0.06)
    draws = np.asarray(joint.sample(jax.random.key(7), 4000))
    contrast = np.r_[np.ones(20) / 20, 0.0], np.r_[1.0, np.zeros(19), -1.0], np.r_[np.ones(20) / 20, 1.0]
    for weights in contrast:
        due = np.sqrt(weights @ covariance @ weights + size * weights @ weights)
        np.testing.assert_allclose((draws @ weights).std(), due, rtol=0.08)


def test_draws_of_a_quadrature_are_of_each_row_alone() -> None:
    """A node common to all rows would order them: of 4,000 draws a correlation is known to 0.016."""
    model = Model(Linear(), Poisson())
    posterior = Posterior(model, belief_of(model, 1), {}, Linearised(), KEY)
    rows = jnp.concatenate([X[:1], X[:1]])
    alone, joint = (each.predict(rows, samples=4000) for each in (posterior, posterior.joint()))
    draws = {name: np.log1p(pred.sample(jax.random.key(7), 4000)) for name, pred in (("a", alone), ("j", joint))}
    assert abs(np.corrcoef(draws["a"].T)[0, 1]) < 0.07 < 0.2 < np.corrcoef(draws["j"].T)[0, 1]
    np.testing.assert_allclose(draws["a"].mean(axis=0), draws["j"].mean(), rtol=0.1)
    tail = alone.sample(jax.random.key(7), 4000)[:, 1:]
    np.testing.assert_array_equal(posterior.predict(rows[1:]).sample(jax.random.key(7), 4000, first=1), tail)


def test_joint_draws_of_other_rules() -> None:
    assert Sampled().joint() == Sampled()
    assert StudentRule().joint() == Propagated().joint() == Sampled()
    assert LaplaceBridge().joint() == ClosedForm().joint() == LinearisedMarginal().joint() == TangentDraws()
    posterior = Posterior(CLASSES, belief_of(CLASSES, 3), {}, Probit(temperature=3.0), KEY)
    cool, plain = (
        posterior.with_rule(rule).joint().predict(X, samples=50).f for rule in (Probit(temperature=3.0), Probit())
    )
    np.testing.assert_allclose(cool, plain / 3.0, rtol=1e-9)


@pytest.mark.parametrize("rule", [Probit(), LaplaceBridge(), LinearisedMarginal(), TangentDraws()], ids=repr)
def test_rules_are_saved_and_loaded_and_work_in_chunks(rule: PredictiveRule, tmp_path, monkeypatch) -> None:
    posterior = Posterior(CLASSES, belief_of(CLASSES, 3), {}, Linearised(), KEY).with_rule(rule)
    pred = posterior.predict(X, samples=8)
    again = load(posterior.save(tmp_path / "rule"))
    np.testing.assert_array_equal(again.predict(X, samples=8).mean, pred.mean)
    monkeypatch.setattr(memory, "budget", lambda: 1)
    deferred = posterior.predict(X, samples=8)
    assert isinstance(deferred, Deferred)
    np.testing.assert_allclose(deferred.mean, pred.mean, rtol=1e-9)
    np.testing.assert_allclose(deferred.epistemic, pred.epistemic, rtol=1e-6, atol=1e-9)


@for_each("draws", [1_000, 20_000, 60_000])
def test_averages_over_many_draws_are_exact_in_single_precision(draws: int) -> None:
    """Certain events had the probability 1.0005 under 60,000 draws, and a mean of 2,000 was 1.04 too large."""
    dtype = jnp.float32
    sure = MixturePredictive.equal(Bernoulli(), {}, jnp.full((draws, 2, 1), 40.0, dtype))
    np.testing.assert_allclose(sure.mean, 1.0, rtol=1e-6)
    years = 2000.0 + np.random.default_rng(0).normal(size=(draws, 2, 1)).astype(np.float32)
    pred = MixturePredictive.equal(Noise(scale=1.0), {}, jnp.asarray(years, dtype))
    np.testing.assert_allclose(pred.mean, years.astype(float).mean(axis=(0, 2)), atol=1e-3)
    np.testing.assert_allclose(pred.variance, 1.0 + years.astype(float).var(axis=(0, 2)), rtol=2e-3)
    infinite = MixturePredictive.equal(Noise(scale=1.0), {}, jnp.full((draws, 1, 1), jnp.inf, dtype))
    assert np.isinf(infinite.mean).all()


@pytest.mark.parametrize("wide", [2.0, 7.0, 12.0])
def test_a_count_whose_log_mean_is_hardly_known_has_its_small_numbers(wide: float) -> None:
    """A lower end in the hundreds, where half of the mass is below ten: bisection had left them out of reach."""
    log_rate = 1.0 + wide * norm.ppf((np.arange(401) + 0.5) / 401)
    pred = MixturePredictive.equal(Poisson(), {}, jnp.asarray(log_rate[:, None, None], jnp.float32))
    lower, upper = (float(end[0]) for end in pred.interval(0.9))
    below = lambda y: np.mean(poisson.cdf(y, np.exp(log_rate)))
    assert (lower, np.signbit(lower)) == (0.0, False)
    assert below(upper) == pytest.approx(0.9, abs=4e-3)
    median = float(pred.quantile(0.5)[0])
    assert below(median - 1) < 0.5 <= below(median)
