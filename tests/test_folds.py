"""Ensembles over folds: who has seen what, which scale is chosen, and what is pooled."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import lamu
from lamu.data.arrays import Arrays
from lamu.folds import centred, folds_of
from lamu.priors import LearnedNormal, Normal
from lamu.running.training_fit import constant_of

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
Y = X @ np.array([1.0, -1.0]) + 0.3 * rng.normal(size=30)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.3))
ADAM = lamu.algorithms.adam(0.05)
GIVEN: dict[str, Any] = {"epochs": 20, "batch_size": 12}


def test_folds_part_the_rows_and_spread_the_classes() -> None:
    parts = folds_of(np.arange(11), 3, seed=1, stratify=False)
    assert sorted(np.concatenate(parts)) == list(range(11))
    assert [len(part) for part in parts] == [4, 4, 3]
    labels = np.repeat([0, 1, 2], [10, 5, 5])
    for part in folds_of(labels, 5, seed=0, stratify=True):
        assert np.bincount(labels[part]).tolist() == [2, 1, 1]
    assert not np.array_equal(parts[0], folds_of(np.arange(11), 3, seed=2, stratify=False)[0])


def test_every_member_is_a_fit_without_its_fold_that_its_fold_validates() -> None:
    found = lamu.fit_folds(MODEL, (X, Y), ADAM, folds=3, seed=4, **GIVEN)
    for k, held in enumerate(folds_of(Y, 3, seed=4, stratify=False)):
        learned = np.setdiff1d(np.arange(30), held)
        alone = lamu.fit(MODEL, (X[learned], Y[learned]), ADAM, seed=4 + k, validation=(X[held], Y[held]), **GIVEN)
        member = jax.tree.map(lambda leaf, k=k: leaf[k], found.posterior.belief.stacked)
        for ours, theirs in zip(jax.tree.leaves(member), jax.tree.leaves(alone.posterior.belief), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(found.nll[k], lamu.scores.nll(alone.posterior.predict(X[held]), Y[held]))


def test_the_ensemble_predicts_the_average_of_its_members() -> None:
    found = lamu.fit_folds(MODEL, (X, Y), ADAM, folds=2, **GIVEN)
    assert isinstance(found, lamu.FoldedFit)
    each = [np.exp(member.posterior.predict(X).log_prob(Y)) for member in found.fits]
    np.testing.assert_allclose(np.exp(found.posterior.predict(X).log_prob(Y)), np.mean(each, axis=0))


def test_the_width_of_least_out_of_fold_density_is_taken() -> None:
    learned = lamu.Model(MODEL.network, MODEL.likelihood, LearnedNormal(0.02))
    found = lamu.fit_folds(learned, (X, Y), ADAM, folds=2, **GIVEN)
    assert list(found.scales) == [0.02, 0.04, 0.01]
    best = min(found.scales, key=lambda scale: found.scales[scale])
    assert best == 0.04  # weights of one are far out under each of them, least under the widest
    for scale, nll in found.scales.items():
        known = lamu.Model(MODEL.network, MODEL.likelihood, Normal(scale))
        np.testing.assert_allclose(nll, lamu.fit_folds(known, (X, Y), ADAM, folds=2, **GIVEN).nll.mean())
    np.testing.assert_allclose(found.nll.mean(), found.scales[best])
    assert found.posterior.model.prior == Normal(best)


def test_a_large_fold_decides_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamu.folds._ENOUGH_ROWS", 15)
    learned = lamu.Model(MODEL.network, MODEL.likelihood, LearnedNormal(0.02))
    found = lamu.fit_folds(learned, (X, Y), ADAM, folds=2, **GIVEN)
    assert len(found.fits) == 2
    np.testing.assert_allclose(found.scales[0.04], found.nll[0])


def test_what_cannot_be_is_said() -> None:
    for options, words in (
        ({"folds": 1}, "folds=1"),
        ({"folds": 31}, "folds=31"),
        ({"validation": 0.1}, "validation=0.1"),
    ):
        with pytest.raises(ValueError, match=words):
            lamu.fit_folds(MODEL, (X, Y), ADAM, **{**GIVEN, **options})


def test_an_interrupt_ends_the_ensemble_and_begins_no_further_member() -> None:
    begun: list[int] = []

    def stop(done: int, _: Any) -> None:
        begun.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lamu.fit_folds(MODEL, (X, Y), ADAM, folds=3, callbacks=[stop], **GIVEN)
    assert len(begun) == 1


class Level:
    """A network of one's own, with two leaves of the shape of its outputs."""

    def init(self, key: Any, x: Any, outputs: int) -> tuple[Any, Any]:
        of = lambda *shape: jax.numpy.full(shape, 0.1, x.dtype)
        return {"level": of(outputs), "slope": of(x.shape[1], outputs), "factor": of(outputs)}, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> tuple[Any, Any]:
        return params["factor"][None] * (x @ params["slope"]) + params["level"][None], state


@pytest.mark.parametrize("network", [lamu.networks.Linear(), Level()])
def test_members_start_at_the_constant_model(network: Any) -> None:
    # Adam's 500 steps from zero ended at a mean of 88 for counts of 1,024.
    time = np.array([1.0, 50.0] * 15)
    y = rng.poisson(20.0 * time)
    model = lamu.Model(network, lamu.likelihoods.Poisson()).standardised(X, y)
    data = {"x": X, "y": y, "offset": np.log(time)}
    found = lamu.fit_folds(model, data, lamu.algorithms.adam(1e-6), folds=2, epochs=1)
    mean = found.posterior.predict(np.zeros((1, 2)), offset=np.zeros(1)).mean
    np.testing.assert_allclose(mean, y.sum() / time.sum(), rtol=0.1)
    assert found.posterior.model == model == found.fits[0].posterior.model
    with pytest.raises(ValueError, match="epochs=0 would make a posterior of the random weights"):
        lamu.fit_folds(model, data, lamu.algorithms.laplace(), folds=2, epochs=0)


def test_the_constant_model_counts_rows_by_their_weights() -> None:
    y, weight = np.repeat([1, 100], 15), np.repeat([1.5, 0.5], 15)
    data, mean = {"x": X, "y": y, "weight": weight}, (1.5 * 1 + 0.5 * 100) / 2
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Poisson()).standardised(X, y)
    np.testing.assert_allclose(np.exp(centred(model, data).network.level), mean, rtol=1e-2)
    found = lamu.fit_folds(model, data, lamu.algorithms.adam(1e-6), folds=2, epochs=1)
    np.testing.assert_allclose(found.posterior.predict(X).mean, mean, rtol=1e-2)


def test_linear_members_of_high_counts_are_near_maximum_likelihood() -> None:
    y = rng.poisson(1000 * np.exp(0.3 * X[:, 0]))
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Poisson()).standardised(X, y)
    found = lamu.fit_folds(model, (X, y), folds=2, epochs=300)
    np.testing.assert_allclose(found.posterior.predict(X).mean, 1000 * np.exp(0.3 * X[:, 0]), rtol=0.1)


def test_the_best_constant_is_searched_by_two_programs(caplog: pytest.LogCaptureFixture) -> None:
    """The place where the search begins was fourteen programs of one operation each."""
    batch = Arrays.of((X, np.arange(30))).example(30)
    with jax.log_compiles():
        intercept, _ = constant_of(lamu.likelihoods.Poisson(), batch)
    assert intercept == pytest.approx(np.log(14.5), rel=1e-2)
    compiled = [record.getMessage() for record in caplog.records if "XLA compilation of jit(" in record.getMessage()]
    assert len([message for message in compiled if "<lambda>" not in message]) <= 2


@pytest.mark.stress
def test_without_an_algorithm_it_is_the_default_of_the_command_line() -> None:
    x, y = lamu.data.load("iris")
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(3)).standardised(x, y)
    found = lamu.fit_folds(model, (x, y), folds=2)
    adam = lamu.algorithms.adam(lamu.rate.Annealed(0.01))
    expected = lamu.fit_folds(model, (x, y), adam, folds=2, batch_size=64, epochs=500, stop=100)
    np.testing.assert_array_equal(found.posterior.predict(x).mean, expected.posterior.predict(x).mean)
    assert len(lamu.fit_folds(model, (x, y), folds=2, steps=4).fits[0].history["loss"]) == 4
