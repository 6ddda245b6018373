"""Row weights: they reach every fit of the estimators, their scale is said, and a row without weight is no row."""

from __future__ import annotations

import contextlib
import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import lamu
from lamu import composition, folds, validation_choice
from lamu.data import UnscaledWeights
from lamu.data.arrays import warn_of_scale
from lamu.data.copies import copies_apart, repeats
from lamu.likelihoods import Gaussian, Scaled
from lamu.priors import LearnedNormal, Normal
from lamu.running.history import split_validation
from lamu.sklearn import BayesianClassifier, BayesianRegressor
from lamu.sklearn import estimator as estimators
from lamu.sklearn.estimator import distinct
from lamu.tabular import stacked_fit

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 2)) * [1.0, 5.0] + [3.0, 0.0]
Y = 10.0 + X @ [2.0, -0.3] + 0.5 * RANDOM.normal(size=40)
WEIGHT = RANDOM.integers(1, 4, 40).astype(float)
CONJUGATE = lamu.algorithms.conjugate()
MODEL = lamu.Model(lamu.networks.Linear(), Gaussian(0.5), Normal(2.0)).standardised(X, Y)


@cache
def closed_form() -> lamu.Posterior:
    return lamu.fit(MODEL, (X, Y), CONJUGATE).posterior


def said(run: Any) -> list[str]:
    """What is said of the scale of weights."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(each.message) for each in caught if issubclass(each.category, UnscaledWeights)]


class Recorder:
    """Stands for a fit: keeps what it was given, and returns a posterior or ends the run."""

    def __init__(self, ends: bool = False) -> None:
        self.given: Any = None
        self.options: dict[str, Any] = {}
        self.ends = ends

    def __call__(self, *given: Any, **options: Any) -> Any:
        self.given, self.options = given, options
        if self.ends:
            raise InterruptedError
        return SimpleNamespace(posterior=closed_form())


# ------------------------------------------------------------------------------------------------------------- scale


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (
            np.full(40, 1 / 40),
            "weight sums to 1 over 40 rows, so that they count as 1 rows and the posterior stays closer",
        ),
        (
            np.full(40, 2.5),
            "weight sums to 100 over 40 rows, so that they count as 100 rows and the posterior is narrower",
        ),
        (np.r_[np.zeros(30), np.full(10, 0.1)], "sums to 1 over 10 rows"),
        (np.full(40, 3.0), None),  # rows written three times
        (np.r_[np.zeros(39), 1.0], None),
        (RANDOM.uniform(0.4, 1.6, 40), None),
        (np.full(40, 0.51), None),
        (np.full(40, 0.49), "sums to 19.6 over 40 rows"),
        (np.full(40, 1.99), None),
        (np.full(40, 2.01), "sums to 80.4 over 40 rows"),
    ],
)
def test_weights_of_another_scale_are_said(weight: np.ndarray, words: str | None) -> None:
    found = said(lambda: warn_of_scale(weight))
    assert len(found) == (words is not None)
    if words is not None:
        assert words in found[0]


def test_the_advice_makes_the_rows_count_as_many_as_they_are() -> None:
    weight = RANDOM.uniform(0.0, 2.0, 40) / 40
    (words,) = said(lambda: warn_of_scale(weight, "sample_weight"))
    advice = words.partition("give ")[2]
    np.testing.assert_allclose(eval(advice, {"sample_weight": weight}).sum(), 40, rtol=1e-3)
    assert not said(lambda: warn_of_scale(eval(advice, {"sample_weight": weight})))


LINEAR = {"network": lamu.networks.Linear(), "likelihood": Gaussian(0.5), "prior": Normal(2.0), "random_state": 0}


@pytest.mark.parametrize("options", [{**LINEAR, "algorithm": CONJUGATE}, {}], ids=["conjugate", "default"])
def test_estimators_say_it_once_of_the_rows_as_they_came(options: dict[str, Any], monkeypatch: Any) -> None:
    def table(*_: Any, weight: Any, **options: Any) -> Any:
        warn_of_scale(weight)
        return SimpleNamespace(posterior=closed_form())

    monkeypatch.setattr(estimators, "fit_table", table)
    # Forty rows of which twenty are written again: merged they would be twenty of a sum above two each.
    x, y = np.concatenate([X[:20], X[:20]]), np.concatenate([Y[:20], Y[:20]])
    fit = lambda weight: BayesianRegressor(**options).fit(x, y, weight)
    (words,) = said(lambda: fit(np.full(40, 1 / 40)))
    assert words.startswith("sample_weight sums to 1 over 40 rows")
    assert words.endswith("give sample_weight * 40 / 1")
    assert not said(lambda: fit(np.full(40, 1.5)))


def test_every_fit_says_it_once(monkeypatch: Any) -> None:
    for module in (folds, validation_choice, composition):
        monkeypatch.setattr(module, "fit", Recorder(ends=True))
    monkeypatch.setattr(stacked_fit, "constant_of", Recorder(ends=True))
    data = {"x": X, "y": Y, "weight": np.full(40, 1 / 40)}
    learned = lamu.Model(MODEL.network, MODEL.likelihood, LearnedNormal(1.0))
    adam = lamu.algorithms.adam(0.01)

    def begun(run: Any) -> None:
        with contextlib.suppress(InterruptedError):
            run()

    for run in (
        lambda: lamu.fit(MODEL, data, CONJUGATE),
        lambda: lamu.fit_folds(MODEL, data, CONJUGATE, folds=2),
        lambda: lamu.fit_prior_scale(learned, data, adam, steps=2),
        lambda: lamu.fit_temperature(MODEL, data, adam, temperatures=(1.0, 0.5), steps=2),
        lambda: lamu.composition.bootstrap(MODEL, data, CONJUGATE, resamples=2),
        lambda: lamu.fit(
            lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0)),
            {"y": np.arange(40) % 2, "weight": data["weight"]},
            CONJUGATE,
        ),
        lambda: lamu.fit_table(X, Y, Gaussian(), weight=data["weight"], folds=2, steps=15),
    ):
        (words,) = said(lambda run=run: begun(run))
        assert words.startswith("weight sums to 1 over 40 rows, so that they count as 1 rows")


def test_rows_that_judge_must_count_something() -> None:
    rows = MODEL.read({"x": X, "y": Y, "weight": np.r_[np.zeros(39), 1e-3]})
    judged = {"x": X[:5], "y": Y[:5], "weight": np.full(5, 1e-3)}
    # At any scale they judge alike, and nothing is said.
    assert not said(lambda: split_validation(rows, judged, MODEL, 0))
    assert split_validation(rows, rows.take(np.arange(38, 40)), MODEL, 0)[1].count == 2
    with pytest.raises(ValueError, match="the 39 rows set aside have the weight 0 and cannot validate"):
        split_validation(rows, rows.take(np.arange(39)), MODEL, 0)
    with pytest.raises(ValueError, match="the 8 rows set aside have the weight 0"):
        split_validation(rows, 0.2, MODEL, 0)


# --------------------------------------------------------------------------------------------------------- estimators

ONE_OPTION: list[dict[str, Any]] = [
    {"network": lamu.networks.Linear()},
    {"prior": Normal(0.3)},
    {"epochs": 7},
    {"algorithm": CONJUGATE},
    {"algorithm": CONJUGATE, "network": lamu.networks.Linear(), "prior": Normal(0.3), "epochs": 7, "batch_size": 11},
]


def names_of(option: Any) -> str:
    return "-".join(option) or "none"


@pytest.mark.parametrize("option", ONE_OPTION, ids=names_of)
@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
def test_every_option_of_an_estimator_reaches_the_fit_with_all_weights(
    option: dict[str, Any], kind: Any, monkeypatch: Any
) -> None:
    single, folded, tabular = Recorder(), Recorder(), Recorder()
    for name, recorder in (("fit", single), ("fit_folds", folded), ("fit_table", tabular)):
        monkeypatch.setattr(estimators, name, recorder)
    regression = kind is BayesianRegressor
    target = Y if regression else (np.median(Y) < Y).astype(int)
    of_rows = np.arange(40, dtype=np.int32) // 2
    found = kind(random_state=3, **option).fit(X, target, WEIGHT, groups=of_rows)
    algorithm = option.get("algorithm", lamu.algorithms.laplace() if "network" in option else None)  # of a linear one
    used, others = (folded, single) if algorithm is None else (single, folded)
    assert others.given is tabular.given is None
    model, data, *rest = used.given
    x, y, weight, _, groups = distinct(X, target, WEIGHT, of_rows)
    assert set(data) == {"x", "y", "weight", "groups"}
    for name, expected in (("x", x), ("y", y), ("weight", weight), ("groups", groups)):
        np.testing.assert_array_equal(data[name], expected)
    assert rest == ([] if algorithm is None else [algorithm])
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    expected = {"seed": seed, "batch_size": option.get("batch_size", 64)}
    assert used.options == expected | ({"epochs": 7} if "epochs" in option else {})
    unlearned = "algorithm" in option  # conjugate() chooses no scale
    assert model.prior == option.get("prior", Normal(0.5) if unlearned else LearnedNormal(0.5))
    network = option.get("network", lamu.networks.MLP((64, 64)))
    assert model.network.base == network
    assert found.posterior_ is closed_form()
    # Columns and target are standardised by the rows that were given, not by the distinct ones.
    every = np.repeat(np.arange(40), WEIGHT.astype(int))
    np.testing.assert_allclose(model.network.shift, X[every].mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.network.scale, X[every].std(axis=0), rtol=1e-12)
    if regression:
        assert isinstance(model.likelihood, Scaled)
        np.testing.assert_allclose(model.likelihood.shift, Y[every].mean(), rtol=1e-12)
        np.testing.assert_allclose(model.likelihood.scale, Y[every].std(), rtol=1e-12)
    else:
        assert model.likelihood == lamu.likelihoods.Bernoulli()


def test_without_an_option_a_table_is_fitted_with_all_weights(monkeypatch: Any) -> None:
    recorder = Recorder()
    monkeypatch.setattr(estimators, "fit_table", recorder)
    BayesianRegressor("student_t", random_state=5).fit(X, Y, WEIGHT)
    x, y, likelihood = recorder.given
    rows, targets, weight, *_ = distinct(X, Y, WEIGHT)
    for given, expected in ((x, rows), (y, targets), (recorder.options["weight"], weight)):
        np.testing.assert_array_equal(given, expected)
    cells, cases = np.tile(X[:20], (2, 1)), np.repeat([0.0, 1.0], 20)
    BayesianRegressor("student_t", random_state=5).fit(cells, cases, WEIGHT)  # copies are cases, which folds separate
    np.testing.assert_array_equal(recorder.options["weight"], np.ones(int(WEIGHT.sum())))
    assert recorder.given[1].sum() == WEIGHT[20:].sum()
    assert likelihood == lamu.likelihoods.StudentT()
    assert recorder.options["seed"] == int(np.random.RandomState(5).randint(2**31 - 1))


def test_weights_of_an_estimator_give_the_posterior_of_weighted_least_squares() -> None:
    """Closed form: precision X'WX / σ² + 1 / s² and its mean, of columns standardised by the weighted moments."""
    weight = RANDOM.uniform(0.2, 1.8, 40)
    found = BayesianRegressor(**LINEAR, algorithm=CONJUGATE).fit(X, Y, weight)
    mean = lambda a: np.average(a, axis=0, weights=weight)
    scale = lambda a: np.sqrt(mean((a - mean(a)) ** 2))
    design = np.column_stack([(X - mean(X)) / scale(X), np.ones(40)])
    z = (Y - mean(Y)) / scale(Y)
    precision = design.T @ (weight[:, None] * design) / 0.25 + np.eye(3) / 4.0
    beta = np.linalg.solve(precision, design.T @ (weight * z) / 0.25)
    expected, std = found.predict(X, return_std=True)
    np.testing.assert_allclose(expected, mean(Y) + scale(Y) * design @ beta, rtol=1e-9)
    variance = 0.25 + np.einsum("ij,jk,ik->i", design, np.linalg.inv(precision), design)
    np.testing.assert_allclose(std, scale(Y) * np.sqrt(variance), rtol=1e-9)


def test_a_weight_of_two_is_the_row_written_twice() -> None:
    option: dict[str, Any] = {"network": lamu.networks.Linear(), "algorithm": lamu.algorithms.adam(0.05), "epochs": 4}
    every = np.repeat(np.arange(40), WEIGHT.astype(int))
    weighted = BayesianRegressor(random_state=0, **option).fit(X, Y, WEIGHT).predict(X)
    repeated = BayesianRegressor(random_state=0, **option).fit(X[every], Y[every]).predict(X)
    without = BayesianRegressor(random_state=0, **option).fit(X, Y).predict(X)
    np.testing.assert_array_equal(weighted, repeated)
    assert np.abs(weighted - without).max() > 1e-3


# ------------------------------------------------------------------------------------------------- standardised, table


def test_columns_are_standardised_by_their_weighted_moments() -> None:
    weight = np.r_[np.full(39, 1.0), 1e-6]
    far = np.r_[X[:39], [[1e4, -1e4]]]
    model = lamu.Model(lamu.networks.Linear(), Gaussian()).standardised(far, np.r_[Y[:39], 1e4], weight)
    near = lamu.Model(lamu.networks.Linear(), Gaussian()).standardised(X[:39], Y[:39])
    np.testing.assert_allclose(model.network.shift, near.network.shift, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(float(model.likelihood.shift), float(near.likelihood.shift), rtol=1e-3)
    assert float(model.likelihood.scale) < 5 * float(near.likelihood.scale)  # 1e4 · 1e-3 / √39 in a deviation
    twice = lamu.Model(lamu.networks.Linear(), Gaussian()).standardised(X, Y, np.full(40, 2.0))
    once = lamu.Model(lamu.networks.Linear(), Gaussian()).standardised(X, Y)
    np.testing.assert_allclose(twice.network.scale, once.network.scale, rtol=1e-6)


def test_a_table_leaves_out_rows_without_weight(monkeypatch: Any) -> None:
    recorder = Recorder(ends=True)
    monkeypatch.setattr(stacked_fit, "constant_of", recorder)
    weight = np.where(np.arange(40) % 4 == 0, 0.0, 1.0)
    with pytest.raises(InterruptedError):
        lamu.fit_table(X, np.where(weight == 0, -1e3, Y), Gaussian(), weight=weight, folds=2, steps=15)
    batch = recorder.given[1]
    assert float(batch.count) == 30
    np.testing.assert_allclose(np.asarray(batch.y)[:30], Y[weight > 0], rtol=1e-6)


def test_the_target_of_a_table_is_scaled_by_its_weighted_moments(monkeypatch: Any) -> None:
    recorder = Recorder(ends=True)
    monkeypatch.setattr(stacked_fit, "constant_of", recorder)
    with jax.enable_x64(True), pytest.raises(InterruptedError):
        lamu.fit_table(X, Y, Gaussian(0.7), weight=WEIGHT, folds=2, steps=15)
    likelihood, batch = recorder.given
    every = np.repeat(Y, WEIGHT.astype(int))
    np.testing.assert_allclose(float(likelihood.shift), every.mean(), rtol=1e-12)
    np.testing.assert_allclose(float(likelihood.scale), every.std(), rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(batch.y)[:40], Y)  # a row is in one fold
    np.testing.assert_array_equal(np.asarray(batch.weight)[:40], WEIGHT)
    np.testing.assert_array_equal(np.asarray(batch.mask), np.r_[np.ones(40), np.zeros(len(batch.mask) - 40)])


def test_the_evidence_integrates_dispersions_over_weighted_rows() -> None:
    # It counted rows in their information: with weights of two for each row it was half a log of two a dispersion more.
    y = np.digitize(X[:, 0], [2.5, 3.5])
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Ordinal(3), Normal(1.0)).standardised(X, y)
    laplace, twice = lamu.algorithms.laplace(), np.repeat(np.arange(40), WEIGHT.astype(int))
    weighted = lamu.fit(model, {"x": X, "y": y, "weight": WEIGHT}, laplace, temperature=2.0).posterior
    repeated = lamu.fit(model, (X[twice], y[twice]), laplace, temperature=2.0).posterior
    np.testing.assert_allclose(weighted.evidence, repeated.evidence, atol=0.02)


def test_copies_are_written_out_and_more_than_enough_are_fewer() -> None:
    three = np.array([2.0, 0.0, 3.0])
    assert repeats(three, np.ones(3)).tolist() == [2, 0, 3]
    assert repeats(three + 0.5, np.array([1, 2, 4])).tolist() == [1, 2, 4]
    assert repeats(np.array([3e6, 1e6, 1.0]), np.ones(3)).tolist() == [75_000, 25_000, 1]


def test_folds_separate_the_copies_of_cases_and_not_of_rows_that_are_alone() -> None:
    rng = np.random.default_rng(0)
    alone, cell = rng.normal(size=(40, 2)), np.repeat([[0.0, 1.0], [1.0, 1.0]], 20, axis=0)
    y, twice = np.tile(np.arange(20), 2), np.full(40, 2)
    once, few = np.ones(40), np.where(np.arange(40) < 8, 2, 1)
    assert copies_apart(once, once, alone, y)
    assert copies_apart(few, few, alone, y)  # as in rounded data
    assert not copies_apart(few, once, alone, y)  # by weight
    assert not copies_apart(twice, twice, alone, y)
    assert copies_apart(twice, once, cell, y)
    assert not copies_apart(twice, once, cell, np.repeat([0, 1], 20))


@pytest.mark.parametrize("copies", ["weights", "rows"])
def test_copies_of_rows_are_not_learned_by_heart(copies: str) -> None:
    """Held-out copies of rows chose what knew them: of diabetes with weights of two new rows had 8.4 nats for 5.4."""
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(48, 2)), rng.normal(size=(200, 2))
    y, y_new = (rows[:, 0] + rng.normal(size=len(rows)) for rows in (x, new))
    data = {"x": x, "y": y, "weight": np.full(48, 6.0)}
    if copies == "rows":
        data = {"x": np.repeat(x, 6, axis=0), "y": np.repeat(y, 6), "weight": None}
    found = lamu.fit_table(**data, likelihood=Gaussian(), folds=2, steps=600)
    assert found.stacked_nll > 1.3  # the noise alone has 1.42
    assert lamu.scores.nll(found.posterior.predict(new), y_new) < 1.7


@pytest.mark.stress
def test_rows_that_repeat_predict_their_own_frequencies() -> None:
    """Nine rows that differ, a hundred of each: folds of the eighteen that differ had the odds of none, all near .5."""
    random = np.random.default_rng(0)
    x = random.integers(0, 3, (1000, 2)).astype(np.float32)
    y = (random.random(1000) < 1 / (1 + np.exp(-(x[:, 0] - 1 + 0.5 * (x[:, 1] - 1))))).astype(int)
    grid = np.array([[a, b] for a in range(3) for b in range(3)], np.float32)
    share, rows = (np.array([part[(x == cell).all(axis=1)] for cell in grid], object) for part in (y, np.ones(1000)))
    frequency = np.array([np.mean(part) for part in share])
    error = np.sqrt(frequency * (1 - frequency) / [len(part) for part in rows])
    p = BayesianClassifier(random_state=0).fit(x, y).predict_proba(grid)[:, 1]
    assert (np.abs(p - frequency) < 2.5 * error).all()
    cells, counts = np.unique(np.column_stack([x, y]), axis=0, return_counts=True)
    table = lamu.fit_table(cells[:, :2], cells[:, 2].astype(int), lamu.likelihoods.Bernoulli(), weight=counts)
    assert (np.abs(np.asarray(table.posterior.predict(grid).mean) - frequency) < 2.5 * error).all()
