"""Validation: what is set aside, when a run stops, and which state is returned."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import lamu
from lamu.data import Arrays
from lamu.priors import Normal
from lamu.running.conclusion import Fit, warn_worse_than_mean
from lamu.running.history import Best, split_validation, validation_nll

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=60)
LINEAR = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
COIN = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
DIE = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(8))
WILD = lamu.Model(lamu.networks.MLP((40,)), lamu.likelihoods.Gaussian(), Normal(10.0))


def test_a_share_is_set_aside_by_the_seed_and_never_learned_from() -> None:
    rows = Arrays.of((X, np.arange(60.0)))
    kept, held = split_validation(rows, 0.2, LINEAR, seed=1)
    assert held is not None
    assert (kept.count, held.count) == (48, 12)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept.y, held.y])), np.arange(60.0))
    np.testing.assert_array_equal(np.asarray(held.x), X[np.asarray(held.y, int)])
    again, other = (split_validation(rows, 0.2, LINEAR, seed=seed)[1] for seed in (1, 2))
    assert again is not None
    assert other is not None
    np.testing.assert_array_equal(again.y, held.y)
    assert not np.array_equal(other.y, held.y)


def test_rows_of_training_are_told_among_validation_rows() -> None:
    rows = Arrays.of((X, Y))
    with pytest.warns(
        UserWarning, match="20 of 25 validation rows are training rows too, which reward what knows them"
    ):
        split_validation(rows, (np.concatenate([X[:20], X[:5] + 1.0]), Y[:25]), LINEAR, seed=0)
    split_validation(rows, (X + 1.0, Y), LINEAR, seed=0)
    split_validation(rows, rows.take(np.arange(20)), LINEAR, seed=0)  # rows that were read: another stage's part
    few = np.arange(60) % 4  # each of four rows is on both sides of any split
    split_validation(Arrays.of((X[few], Y[few])), (X[few[:20]], Y[few[:20]]), LINEAR, seed=0)


def test_classes_keep_their_shares_where_they_can() -> None:
    labels = np.repeat([0, 1], [50, 10]).astype(np.int32)
    _, held = split_validation(Arrays.of((X, labels)), 0.2, COIN, seed=0)
    assert held is not None
    assert np.bincount(np.asarray(held.y)).tolist() == [10, 2]
    labels[0] = 7  # a class of one row
    _, held = split_validation(Arrays.of((X, labels)), 0.2, DIE, seed=0)
    assert held is not None
    assert held.count == 12


def test_the_validation_is_the_score_of_the_posterior_on_those_rows() -> None:
    fit = lamu.fit(LINEAR, (X[:40], Y[:40]), lamu.algorithms.adam(0.05), epochs=3, validation=(X[40:], Y[40:]))
    assert fit.history["validation_step"][-1] == len(fit.history["loss"])
    nll = lamu.scores.nll(fit.posterior.predict(X[40:]), Y[40:])
    np.testing.assert_allclose(fit.history["validation_nll"].min(), nll, rtol=1e-10)


def test_weights_count_in_the_validation() -> None:
    """Each row counts by its weight: two rows of weight one and zero are the first row alone."""
    algorithm = lamu.algorithms.adam(0.05)
    fit = lamu.fit(LINEAR, (X, Y), algorithm, epochs=1)
    objective, key = lamu.objective.Objective(LINEAR, 60), lamu.fit(LINEAR, (X, Y), algorithm, epochs=1).posterior.key
    both = Arrays.of({"x": X[:2], "y": Y[:2], "weight": [1.0, 0.0]})
    one = Arrays.of((X[:1], Y[:1]))
    weighted = validation_nll(algorithm, key, fit.state, objective, both)
    np.testing.assert_allclose(weighted, validation_nll(algorithm, key, fit.state, objective, one), rtol=1e-12)


def test_the_posterior_is_that_of_the_best_state() -> None:
    fit = lamu.fit(WILD, (X, Y), lamu.algorithms.adam(0.1), epochs=60, batch_size=16, validation=0.3)
    nll = fit.history["validation_nll"]
    assert nll[-1] > nll.min() + 0.1  # it overfits, and the end is not the best
    _, held = split_validation(Arrays.of((X, Y)), 0.3, LINEAR, seed=0)
    assert held is not None
    found = lamu.scores.nll(fit.posterior.predict(np.asarray(held.x)), np.asarray(held.y))
    np.testing.assert_allclose(found, nll.min(), rtol=1e-8)


def test_a_run_stops_where_the_validation_no_longer_improves() -> None:
    options: dict[str, Any] = {"epochs": 60, "batch_size": 16, "validation": 0.3}
    whole = lamu.fit(WILD, (X, Y), lamu.algorithms.adam(0.1), **options)
    short = lamu.fit(WILD, (X, Y), lamu.algorithms.adam(0.1), stop=20, **options)
    assert len(short.history["loss"]) < len(whole.history["loss"])
    np.testing.assert_array_equal(short.history["loss"], whole.history["loss"][: len(short.history["loss"])])
    steps, nll = (short.history[name] for name in ("validation_step", "validation_nll"))
    assert steps[-1] - steps[nll.argmin()] >= 20 * 3  # three steps an epoch
    called = lamu.fit(WILD, (X, Y), lamu.algorithms.adam(0.1), stop=lambda seen: len(seen["loss"]) >= 50, **options)
    assert 50 <= len(called.history["loss"]) < len(whole.history["loss"])


def test_streams_validate_at_the_end_of_each_pass() -> None:
    batches = [(X[:20], Y[:20]), (X[20:40], Y[20:40])]
    fit = lamu.fit(LINEAR, batches, lamu.algorithms.sgd(0.05), epochs=3, data_size=40, validation=(X[40:], Y[40:]))
    assert fit.history["validation_step"].tolist() == [2, 4, 6]


@pytest.mark.parametrize("of", [None, "laplace"])
def test_ensembles_are_validated_as_one(of: str | None) -> None:
    members = None if of is None else lamu.algorithms.laplace(lamu.algorithms.adam(0.05))
    algorithm = lamu.algorithms.deep_ensemble(members, members=2)
    fit = lamu.fit(LINEAR, (X[:40], Y[:40]), algorithm, epochs=2, validation=(X[40:], Y[40:]))
    assert np.isfinite(fit.history["validation_nll"]).all()
    if of is None:
        nll = lamu.scores.nll(fit.posterior.predict(X[40:]), Y[40:])
        np.testing.assert_allclose(fit.history["validation_nll"].min(), nll, rtol=1e-10)


def test_a_preview_is_the_posterior_of_what_finds_the_mode() -> None:
    """Of Laplace's method, and of an ensemble of it: no pass over the data, and the same keys."""
    point, objective, key = lamu.algorithms.adam(0.05), lamu.objective.Objective(LINEAR, 60), jax.random.key(1)
    rows = Arrays.of((X, Y))
    for found, of in (
        (lamu.algorithms.laplace(point), point),
        (lamu.algorithms.last_layer(point), point),
        (ensemble(lamu.algorithms.laplace(point)), ensemble(point)),
        (ensemble(point), ensemble(point)),
    ):
        state = jax.jit(of.init)(jax.random.key(0), objective, rows.full())
        keys = jax.random.clone(key), jax.random.clone(key)
        one, other = found.preview(keys[0], state, objective), of.posterior(keys[1], state, objective, rows, None)
        assert jax.tree.structure(one) == jax.tree.structure(other)
        for a, b in zip(jax.tree.leaves(one.belief), jax.tree.leaves(other.belief), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.predict(X[:5]).mean, other.predict(X[:5]).mean)


def ensemble(of: Any) -> Any:
    return lamu.algorithms.deep_ensemble(of, members=2)


def test_best_keeps_the_first_of_equals_and_counts_passes() -> None:
    best = Best(stop=2)
    for passes, nll in ((1, 0.5), (2, 0.5), (3, float("nan"))):
        best.update({"w": passes}, nll, passes)
    assert best.state == {"w": 1}
    assert not best.enough(2, {})
    assert best.enough(3, {})


def test_a_first_validation_of_nan_is_no_best_one() -> None:
    best = Best(stop=2)
    for passes, nll in ((1, float("nan")), (2, 0.5), (3, 0.7)):
        best.update({"w": passes}, nll, passes)
    assert best.state == {"w": 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stop": 3}, "validation=0.1"),
        ({"stop": 0, "validation": 0.1}, "stop=0"),
        ({"validation": 1.5}, r"validation=1\.5 is no share of the rows"),
        ({"validation": True}, "validation=True is no share"),
        ({"validation": Y}, "targets alone, and a network needs inputs"),
        ({"validation": (X[:3], Y[:2])}, "x has 3 rows and y has 2"),
        ({"resume": True}, "checkpoint=folder"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        lamu.fit(LINEAR, (X, Y), lamu.algorithms.adam(), epochs=1, **options)


def test_shares_of_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="no rows to set aside"):
        lamu.fit(LINEAR, [(X, Y)], lamu.algorithms.adam(), data_size=60, validation=0.1, epochs=1)


@pytest.mark.stress
def test_a_sampler_reports_the_rows_set_aside_and_chooses_nothing():
    x, y = lamu.data.load("diabetes")
    x, y = x[:120], y[:120]
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x, y)
    sampler = lamu.mcmc.hmc(chains=2, warmup=60, draws=60)
    rows = {"x": x, "y": y, "weight": np.linspace(0.5, 1.5, len(y))}
    fit = lamu.fit(model, rows, sampler, validation=0.25)
    learned, held = split_validation(lamu.data.Arrays.of(rows), 0.25, LINEAR, 0)
    alone = lamu.fit(model, learned, sampler)
    for one, other in zip(
        jax.tree.leaves(fit.posterior.samples), jax.tree.leaves(alone.posterior.samples), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    expected = -np.average(
        np.asarray(alone.posterior.predict(held.x).log_prob(held.y)), weights=np.asarray(held.weight)
    )
    assert fit.history["validation_nll"] == pytest.approx([expected])
    assert fit.history["validation_step"].tolist() == [120]
    with pytest.raises(ValueError, match="stop=3 waits for a best state"):
        lamu.fit(model, rows, sampler, validation=0.25, stop=3)


@cache
def trained() -> lamu.Model:
    return LINEAR.starting_at(lamu.fit(LINEAR, (X[:30], Y[:30]), lamu.algorithms.conjugate()).posterior.mean)


WIDE = lamu.algorithms.von(1e-3)
HOT: dict[str, Any] = {"steps": 40, "temperature": 300.0}  # wider than the posterior, about the same mean


def _told(model: Any, algorithm: Any, **options: Any) -> tuple[lamu.Fit, list[str]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = lamu.fit(model, (X[:30], Y[:30]), algorithm, **options)
    return found, [str(each.message) for each in said if each.category is lamu.WorseThanMean]


def test_a_belief_that_predicts_worse_than_its_mean_is_told_with_the_figures() -> None:
    """The figures are those of predictions by hand, of rows that count twice or not at all."""
    weight = np.repeat([1.0, 2.0, 0.0], 10)
    held = {"x": X[30:], "y": Y[30:], "weight": weight}
    found, [text] = _told(trained(), WIDE, validation=held, **HOT)
    theta, pred = found.posterior.mean["network"]["layers"][0], found.posterior.predict(X[30:])
    mean = X[30:] @ np.asarray(theta["kernel"]) + np.asarray(theta["bias"])
    of_mean = 0.5 * ((Y[30:] - mean[:, 0]) / 0.5) ** 2 + np.log(0.5) + 0.5 * np.log(2 * np.pi)
    of_belief = -np.asarray(pred.log_prob(Y[30:]), float)
    share = weight / weight.sum()
    more = share @ (of_belief - of_mean)
    error = np.sqrt(np.sum(share**2 * (of_belief - of_mean - more) ** 2))
    for figure in (f"by {more:.3g} nats", f"({share @ of_belief:.3g} in", f"of {share @ of_mean:.3g},"):
        assert figure in text
    assert f"up to {max(2 * error, share @ share):.2g} may" in text


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (WIDE, HOT),  # no rows judge
        (WIDE, {**HOT, "validation": (X[30:48], Y[30:48])}),  # too few do
        (lamu.algorithms.adam(0.05), {"steps": 5, "validation": (X[30:], Y[30:])}),  # a point
        (lamu.algorithms.conjugate(), {"validation": (X[30:], Y[30:])}),  # the exact posterior
        (lamu.algorithms.deep_ensemble(members=2), {"steps": 5, "validation": (X[30:], Y[30:])}),  # no single mean
    ],
)
def test_of_no_other_belief_it_is_told(algorithm: Any, options: dict[str, Any]) -> None:
    assert _told(trained() if algorithm is WIDE else LINEAR, algorithm, **options)[1] == []


def test_what_to_do_is_a_longer_run_else_the_temperature_for_classes_and_the_scale_for_numbers() -> None:
    for model, y, name in ((COIN, (Y > 0).astype(float), "fit_temperature"), (LINEAR, Y, "fit_prior_scale")):
        mean = lamu.fit(model, (X, y), lamu.algorithms.adam(0.05), epochs=50).posterior
        wide = lamu.fit(model.starting_at(mean.mean), (X, y), WIDE, **HOT).posterior
        for far, words in ((0.0, name), (9.0, "train longer first")):
            found = Fit(replace(wide, convergence=lamu.Convergence(residual=far)), {}, None)
            with pytest.warns(lamu.WorseThanMean, match=words):
                warn_worse_than_mean(found, Arrays.of((X, y)))


def test_a_search_of_the_scale_does_not_tell_it_of_runs_that_compare() -> None:
    model = replace(trained(), prior=lamu.priors.LearnedNormal())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lamu.fit_prior_scale(model, (X, Y), WIDE, validation=0.5, **HOT)
        lamu.fit_folds(trained(), (X, Y), WIDE, folds=2, **HOT)
    assert not [each for each in said if each.category is lamu.WorseThanMean]


@pytest.mark.parametrize("length", [{"steps": 1}, {"epochs": 1}, {}], ids=["steps", "epoch", "rounds"])
def test_validation_rows_of_another_width_are_refused_before_the_first_step(length) -> None:
    """A run that ended before its first epoch took them in silence."""
    wide = np.ones((10, X.shape[1] + 1))
    with pytest.raises(ValueError, match=r"the validation rows do not fit: inputs have \d features, the network was"):
        lamu.fit(LINEAR, (X, Y), lamu.algorithms.adam(), batch_size=4, validation=(wide, np.ones(10)), **length)
