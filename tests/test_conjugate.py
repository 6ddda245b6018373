"""Conjugate models as models: fitted like any other, predicted, saved, stepped by hand, and stochastic."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import lamu
from lamu.algorithms import conjugate
from lamu.algorithms.closed_form.message_passing import svi
from lamu.data import Arrays
from lamu.families import Beta, Dirichlet, Gamma, Gaussian, NormalGamma
from lamu.objective import Objective
from lamu.observations import Bernoulli, Categorical, Exponential, Normal, NormalMean, Poisson
from lamu.operators import Scalar
from lamu.predictives import ClosedForm, Sampled
from lamu.predictives.gaussian import ConjugateRule

COUNTS = lamu.ConjugateModel(Poisson(), Gamma(2.0, 1.5))
SEEN = np.random.default_rng(1).poisson(3.0, 12)


def weights(posterior: Any) -> Any:
    return posterior.belief.factors["network"]


@pytest.fixture(scope="module")
def counted() -> Any:
    return lamu.fit(COUNTS, {"y": SEEN}, conjugate(), batch_size=5).posterior


def test_targets_alone_are_data() -> None:
    rows = Arrays.of({"y": [1, 0, 1], "mask": [1, 1, 0]})
    assert (rows.count, rows.x.shape, rows.y.dtype.kind) == (2, (2, 0), "i")
    assert Arrays.of(np.ones(3, np.float32)).weight.dtype == jnp.float32
    with pytest.raises(ValueError, match="no rows"):
        Arrays.of({"y": []})


def test_a_prediction_is_asked_by_the_number_of_rows(counted: Any, tmp_path: Any) -> None:
    """The rows are exchangeable; scores take them; what was saved predicts the same."""
    pred = counted.predict(len(SEEN))
    assert pred.mean.shape == (12,)
    q = weights(counted)
    expected = stats.nbinom(q.shape, q.rate / (q.rate + 1))
    np.testing.assert_allclose(lamu.scores.nll(pred, SEEN), -expected.logpmf(SEEN).mean(), rtol=1e-10)
    again = lamu.load(counted.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(again.predict(12).log_prob(SEEN), pred.log_prob(SEEN))
    draws = pred.sample(jax.random.key(0), 3)
    assert draws.shape == (3, 12)
    np.testing.assert_array_equal(counted.predict(9).sample(jax.random.key(0), 3), draws[:, :9])
    with pytest.raises(ValueError, match="no rows"):
        counted.predict(0)


def test_sampled_predictions_tend_to_the_closed_form(counted: Any) -> None:
    """4,000 draws: the mean within five standard errors, 1e-6 by chance."""
    sampled = counted.with_rule(Sampled()).predict(1, samples=4000)
    exact = counted.predict(1)
    assert abs(sampled.mean[0] - exact.mean[0]) < 5 * np.sqrt(exact.epistemic[0] / 4000)
    np.testing.assert_allclose(sampled.log_prob(np.array([3])), exact.log_prob(np.array([3])), atol=0.02)


def test_intervals_need_no_variance() -> None:
    """Student's with one degree of freedom has no mean either."""
    prior = NormalGamma(location=1.0, count=2.0, shape=0.5, rate=1.0)
    pred = lamu.observations.Normal()
    from lamu.predictives.gaussian import ConjugatePredictive

    low, high = ConjugatePredictive(pred, prior, rows=1).interval(0.9)
    expected = stats.t(1.0, 1.0, np.sqrt(1.0 * 3.0 / (0.5 * 2.0))).ppf([0.05, 0.95])
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=1e-8)
    assert not np.isfinite(ConjugatePredictive(pred, prior, rows=1).variance[0])
    waits = ConjugatePredictive(Exponential(), Gamma(1.0, 2.0), rows=1)
    assert not np.isfinite(waits.mean[0])
    np.testing.assert_allclose(waits.interval(0.5)[1][0], stats.lomax(1.0, scale=2.0).ppf(0.75), rtol=1e-8)


@pytest.mark.parametrize("name", ["coins", "means"])
def test_a_tempered_evidence_is_the_integral_of_the_tempered_joint(name: str) -> None:
    """By quadrature; the Gaussian has a base measure other than one, which counts 1/T times."""
    T = 0.6
    if name == "coins":
        model, y, ends = lamu.ConjugateModel(Bernoulli(), Beta(1.5, 2.5)), np.array([1, 0, 1, 1]), (0.0, 1.0)
        joint = lambda t: stats.beta(1.5, 2.5).pdf(t) * t**3 * (1 - t)
    else:
        prior = Gaussian(0.3, Scalar(2.0))
        model, y, ends = lamu.ConjugateModel(NormalMean(0.7), prior), np.array([1.0, -0.5]), (-5.0, 5.0)
        joint = lambda t: stats.norm(0.3, 2**-0.5).pdf(t) * stats.norm(t, 0.7).pdf(y).prod()
    expected = np.log(integrate.quad(lambda t: joint(t) ** (1 / T), *ends, epsabs=1e-13, epsrel=1e-12)[0])
    found = lamu.fit(model, {"y": y}, conjugate(), temperature=T).posterior.evidence
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_stochastic_steps_reach_the_posterior() -> None:
    """Exactly after whole epochs with the rate 1/(1 + t); nearly, from a far start, with one that falls more slowly."""
    exact = weights(lamu.fit(COUNTS, {"y": SEEN}, conjugate(), temperature=0.5).posterior)
    for size in (
        4,
        8,
    ):  # twelve rows are two batches of six, where a batch of eight and one of four would weigh the same
        found = weights(lamu.fit(COUNTS, {"y": SEEN}, svi(), epochs=2, batch_size=size, temperature=0.5).posterior)
        np.testing.assert_allclose(found.shape, exact.shape, rtol=1e-12)
    slower = svi(lambda step: (step + 2.0) ** -0.7)
    near = weights(lamu.fit(COUNTS, {"y": SEEN}, slower, epochs=200, batch_size=4, temperature=0.5).posterior)
    np.testing.assert_allclose(near.shape / near.rate, exact.shape / exact.rate, rtol=0.05)
    np.testing.assert_allclose(near.rate, exact.rate, rtol=1e-2)
    linear = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    with pytest.raises(TypeError, match="ConjugateModel"):
        lamu.fit(linear, (np.ones((3, 1)), np.ones(3)), svi(), steps=1)


def test_steps_by_hand_keep_single_precision() -> None:
    data = Arrays.of({"y": SEEN.astype(np.float32)})
    objective, algorithm, key = Objective(COUNTS, 12.0), conjugate(), jax.random.key(0)
    state = algorithm.init(key, objective, data.example(12))
    state, info = algorithm.step(key, state, data.full(), objective)
    assert {leaf.dtype for leaf in jax.tree.leaves((state.belief, state.evidence))} == {jnp.dtype("float32")}
    np.testing.assert_allclose(state.belief.shape, 2.0 + SEEN.sum(), rtol=1e-6)
    assert np.isfinite(info.loss)


@pytest.mark.parametrize(
    ("model", "y", "words"),
    [
        (lamu.ConjugateModel(Bernoulli(), Beta(1.0, 1.0)), [0, 2], "takes 0 and 1"),
        (lamu.ConjugateModel(Bernoulli(), Beta(1.0, 1.0)), [[0], [1]], "shape"),
        (lamu.ConjugateModel(Categorical(2), Dirichlet(jnp.ones(2))), [0, 2], "whole numbers from 0 to 1"),
        (COUNTS, [1.5], "whole numbers from 0"),
        (lamu.ConjugateModel(Exponential(), Gamma(1.0, 1.0)), [0.0], "numbers above 0"),
        (lamu.ConjugateModel(Normal(), NormalGamma(0.0, 1.0, 1.0, 1.0)), [[1.0]], "shape"),
    ],
)
def test_targets_that_cannot_be_are_refused(model: Any, y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lamu.fit(model, {"y": np.array(y)}, conjugate())


def test_what_does_not_fit_a_conjugate_model_says_so(counted: Any) -> None:
    linear = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    regression = lamu.fit(linear, (np.ones((3, 1)), np.ones(3)), conjugate()).posterior
    with pytest.raises(TypeError, match="ConjugateModel"):
        regression.with_rule(ConjugateRule()).predict(np.ones((1, 1)))
    with pytest.raises(TypeError, match="closed form needs"):
        counted.with_rule(ClosedForm()).predict(1)
    with pytest.raises(ValueError, match="no linear predictor"):
        counted.predict(1, offset=np.ones(1))
    with pytest.raises(TypeError, match="conjugate model"):
        Poisson().information({}, jnp.ones((1, 1)))
    with pytest.raises(TypeError, match="no cdf"):
        Bernoulli().cdf({}, jnp.ones((1, 1)), jnp.ones(1))
    with pytest.raises(ValueError, match="scale"):
        NormalMean(0.0)
    with pytest.raises(TypeError, match="interval"):
        lamu.predictives.gaussian.ConjugatePredictive(Bernoulli(), Beta(1.0, 1.0), 1).interval(0.9)


def test_natural_parameters_there_and_back() -> None:
    belief = NormalGamma(0.3, 0.8, 1.7, 1.2)
    again = belief.with_natural(belief.to_natural())
    np.testing.assert_allclose(jax.tree.leaves(again), jax.tree.leaves(belief), rtol=1e-14)
    expected = Beta(2.0, 3.0).log_partition()
    np.testing.assert_allclose(Beta(1.0, 1.0).with_natural(Beta(2.0, 3.0).to_natural()).log_partition(), expected)


@pytest.mark.stress
def test_the_density_of_rows_is_that_of_the_prediction() -> None:
    """Exact under the family itself; an average over 1,000 draws is off by 0.05 less than once in a thousand runs."""
    model = lamu.ConjugateModel(lamu.observations.Poisson(), lamu.families.Gamma(2.0, 1.0))
    y, new = np.array([3.0, 5.0, 4.0]), np.array([2.0, 6.0])
    exact = lamu.fit(model, {"y": y}, lamu.algorithms.conjugate()).posterior
    np.testing.assert_allclose(exact.log_prob({"y": new}), exact.predict(2).log_prob(new), rtol=1e-9)
    sampled = lamu.fit(model, {"y": y}, lamu.mcmc.nuts(chains=1, warmup=100, draws=1000), seed=1).posterior
    np.testing.assert_allclose(sampled.log_prob({"y": new}, samples=1000), exact.log_prob({"y": new}), atol=0.05)
