"""The estimators: scikit-learn's own checks, and what they promise beyond them."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import lamu
from lamu.sklearn import BayesianClassifier, BayesianRegressor, GaussianMixture, load
from lamu.sklearn import estimator as estimators
from lamu.sklearn.estimator import distinct, refuse_words
from lamu.store import StoreError


def linear(kind: Any, **options: Any) -> Any:
    return kind(network=lamu.networks.Linear(), algorithm=lamu.algorithms.laplace(), random_state=0, **options)


def table(rows: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A line with an asymmetric slope and noise of standard deviation 0.5, far from the origin."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2)) * [1.0, 30.0]
    return x, 100.0 + x @ [2.0, -0.1] + 0.5 * rng.normal(size=rows)


# Those of the checks that tell mistakes of an interface from each other: the others fit once more for what these see.
CHECKS = (
    "check_estimator_tags_renamed",
    "check_no_attributes_set_in_init",
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_estimators_unfitted",
    "check_n_features_in_after_fitting",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_estimators_empty_data_messages",
    "check_estimators_pickle",
    "check_dtype_object",
    "check_classifiers_one_label",
    "check_classifiers_classes",
    "check_methods_sample_order_invariance",
    "check_get_params_invariance",
    "check_dict_unchanged",
    "check_fit_idempotent",
)


@pytest.mark.stress
def test_a_linear_classifier_passes_what_tells_mistakes_apart():
    left = set(CHECKS)
    for estimator, check in estimator_checks_generator(linear(BayesianClassifier)):
        name = check.func.__name__
        if name in CHECKS:
            check(estimator)
            left.discard(name)
    assert not left


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore:the prior's scale:UserWarning")  # of rows of a single class, which one check fits
@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
def test_a_linear_model_passes_every_check_of_scikit_learn(kind):
    check_estimator(linear(kind), on_skip=None)  # the checks of other array libraries are skipped


@pytest.mark.stress
@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
def test_the_default_passes_every_check_of_scikit_learn(kind):
    check_estimator(kind(), on_skip=None)


@pytest.mark.stress
def test_the_default_is_the_mixture_of_a_table_and_any_choice_is_not():
    x, y = table(40)
    x, y, weight, *_ = distinct(x, y, np.where(x[:, 0] > 0, 2.0, 1.0))
    regressor = BayesianRegressor(random_state=0).fit(x, y, weight)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    with jax.enable_x64(True):
        found = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), weight=weight, seed=seed).posterior.predict(x)
        np.testing.assert_array_equal(regressor.predict(x), np.asarray(found.mean))
    few = BayesianRegressor(random_state=0, epochs=1).fit(x, y)
    assert type(few.posterior_.model.network).__name__ != "TableNetwork"


def test_rows_that_repeat_are_one_row_with_the_sum_of_their_weights():
    x, y, weight = (
        np.array([[1.0], [0.0], [1.0], [1.0]]),
        np.array([2.0, 3.0, 2.0, 4.0]),
        np.array([0.5, 0.0, 2.0, 1.0]),
    )
    x, y, weight, *_ = distinct(x, y, weight)
    assert x[:, 0].tolist() == [1.0, 1.0]
    assert y.tolist() == [2.0, 4.0]
    assert weight.tolist() == [2.5, 1.0]


@pytest.mark.stress
def test_missing_numbers_are_drawn_given_the_rest_of_the_row(tmp_path):
    rng = np.random.default_rng(1)
    x, _ = table(400)
    x[:, 1] = x[:, 0] + 0.1 * rng.normal(size=400)  # so that what is missing can be told
    y = 2 * x[:, 0] + 0.1 * rng.normal(size=400)
    holes = np.where((rng.random(x.shape) < 0.3) & (np.arange(400) > 0)[:, None], np.nan, x)
    regressor = linear(BayesianRegressor).fit(holes, y)
    without, other = np.array([[np.nan, 1.0]]), np.array([[np.nan, np.nan]])
    mean, std = regressor.predict(np.concatenate([without, other]), return_std=True)
    assert abs(mean[0] - 2.0) < 0.3  # the median of the column would be 0
    assert std[0] < 0.6 * std[1]  # which a row of which nothing is known has to be content with
    assert regressor.n_features_in_ == 2
    back = load(regressor.save(tmp_path / "regressor"))
    np.testing.assert_array_equal(back.predict(holes), regressor.predict(holes))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(regressor)).predict(holes), regressor.predict(holes))
    # A row that is written twice counts twice, holes or not.
    twice, weight = np.concatenate([holes, holes[:50]]), np.r_[np.full(50, 2.0), np.ones(350)]
    repeated = linear(BayesianRegressor).fit(twice, np.concatenate([y, y[:50]]))
    weighted = linear(BayesianRegressor).fit(holes, y, weight)
    np.testing.assert_array_equal(repeated.predict(holes), weighted.predict(holes))
    with pytest.raises(ValueError, match="'x1' has no value in any of the 10 rows"):
        linear(BayesianRegressor).fit(np.where([True, False], x[:10], np.nan), y[:10])


@pytest.mark.stress
def test_intervals_and_draws_agree_with_the_noise_that_made_the_data():
    x, y = table()
    regressor = linear(BayesianRegressor).fit(x, y)
    mean, std = regressor.predict(x, return_std=True)
    interval = regressor.predict_interval(x, 0.9)
    draws = regressor.sample_y(x, n_samples=400, random_state=1)
    np.testing.assert_allclose(std, 0.5, rtol=0.15)  # standard error of a standard deviation from 200 rows: 5 %
    np.testing.assert_allclose(interval[:, 1] - interval[:, 0], 2 * 1.645 * std, rtol=1e-2)
    assert draws.shape == (200, 400)
    with pytest.raises(ValueError, match="n_samples == 0, must be >= 1"):
        regressor.sample_y(x, n_samples=0)
    # Means and spreads over 80,000 draws; 5 standard errors.
    assert abs((draws - mean[:, None]).mean()) < 5 * 0.5 / np.sqrt(draws.size)
    assert abs((draws - mean[:, None]).std() / std.mean() - 1) < 5 / np.sqrt(2 * draws.size)


@pytest.mark.stress
def test_the_precision_is_that_of_the_data():
    x, y = table(40)
    before = jnp.result_type(float)
    wide, narrow = (linear(BayesianRegressor).fit(x.astype(dtype), y) for dtype in (np.float64, np.float32))
    assert wide.predict(x).dtype == np.float64
    assert narrow.predict(x).dtype == np.float32
    assert jnp.result_type(float) == before
    np.testing.assert_allclose(wide.predict(x), narrow.predict(x), rtol=1e-3)


def test_columns_of_a_frame_are_known_by_their_names():
    x, y = table(40)
    frame = pd.DataFrame(x, columns=["near", "far"])
    regressor = linear(BayesianRegressor).fit(frame, y)
    assert regressor.feature_names_in_.tolist() == ["near", "far"]
    with pytest.raises(ValueError, match="feature names"):
        regressor.predict(frame[["far", "near"]])
    # A frame of polars is the same table.
    columns = polars.DataFrame({name: frame[name].to_numpy() for name in frame})
    of_polars = clone(regressor).fit(columns, y)
    assert of_polars.feature_names_in_.tolist() == ["near", "far"]
    np.testing.assert_array_equal(of_polars.predict(columns), regressor.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        of_polars.predict(columns[["far", "near"]])


def test_what_was_learned_comes_back_bit_for_bit(tmp_path):
    x, y = lamu.data.load("iris")
    names = np.array(["setosa", "versicolor", "virginica"], object)[np.asarray(y, int)]
    frame = pd.DataFrame(np.asarray(x, float), columns=list("abcd"))
    classifier = linear(BayesianClassifier).fit(frame, names)
    saved, pickled = load(classifier.save(tmp_path / "classifier")), pickle.loads(pickle.dumps(classifier))
    for other in (saved, pickled):
        assert (other.predict_proba(frame) == classifier.predict_proba(frame)).all()
        assert (other.predict(frame) == classifier.predict(frame)).all()
        assert other.predict_proba(frame).dtype == np.float64
    with pytest.raises(NotFittedError):
        BayesianClassifier().save(tmp_path / "nothing")
    with pytest.raises(StoreError, match="no estimator"):
        load(classifier.posterior_.save(tmp_path / "posterior"))


@pytest.mark.stress
def test_counts_have_their_own_likelihood():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1))
    y = rng.poisson(np.exp(0.5 + 0.8 * x[:, 0]))
    regressor = linear(BayesianRegressor, likelihood=lamu.likelihoods.Poisson()).fit(x, y)
    interval = regressor.predict_interval(x)
    assert (interval == np.round(interval)).all()
    assert (interval >= 0).all()
    with pytest.raises(ValueError, match="-1"):
        linear(BayesianRegressor, likelihood="poisson").fit(x, y - 1)
    with pytest.raises(ValueError, match="there is no likelihood 'ordinal' for such a target"):
        linear(BayesianRegressor, likelihood="ordinal").fit(x, y)


def test_the_defaults_of_a_linear_network_are_laplace_and_a_prior_about_the_constant_model(monkeypatch):
    # About zero it drew the 2.3 % of a class in 600 rows to 3.1 %, and the mean of sixty durations of 3,386 to 2,964.
    # Points of folds, the default of other networks, covered .86 of sixty Weibull rows by intervals of 90 %.
    given = []

    def recorder(model, _, algorithm, **__):
        given.append(model.network.level)
        assert algorithm == lamu.algorithms.laplace()
        raise InterruptedError

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 1)), rng.gamma(2.0, 1500.0, size=30)
    network, weight = lamu.networks.Linear(), np.r_[np.zeros(10), np.full(20, 2)]
    asked = (("gamma", None), ("gamma", lamu.priors.Normal(1.0)), ("gaussian", None), ("gamma_reciprocal", None))
    for likelihood, prior in asked:
        estimator = BayesianRegressor(likelihood, network=network, prior=prior)
        with monkeypatch.context() as patch:
            patch.setattr(estimators, "fit", recorder)
            with pytest.raises(InterruptedError):
                estimator.fit(x, y, weight)
    np.testing.assert_allclose(given[0], np.log(y[10:].mean()), atol=0.01)
    assert given[1] is given[2] is None
    np.testing.assert_allclose(1 / given[3], y[10:].mean(), rtol=1e-3)
    classifier = linear(BayesianClassifier).fit(x, np.r_[np.zeros(25), np.ones(5)])
    np.testing.assert_allclose(classifier.posterior_.model.network.level, np.log(5 / 25), atol=0.1)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))


@pytest.mark.stress
def test_ordered_classes_have_their_own_likelihood():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = np.array(["1 low", "2 middle", "3 high"])[np.digitize(x[:, 0] + 0.3 * rng.logistic(size=200), [-0.5, 0.5])]
    ordinal = BayesianClassifier(
        "ordinal", network=lamu.networks.Linear(bias=False), algorithm=lamu.algorithms.laplace()
    )
    assert ordinal.fit(x, y).score(x, y) > 0.7
    assert type(ordinal.posterior_.model.likelihood).__name__ == "Ordinal"


def test_scores_of_cross_validation_are_those_of_a_linear_model():
    x, y = table()
    assert cross_val_score(linear(BayesianRegressor), x, y, cv=2).min() > 0.95


def test_a_class_alone_is_refused_in_words():
    x, _ = table(10)
    with pytest.raises(ValueError, match="all rows are of the class 'a'"):
        BayesianClassifier().fit(x, ["a"] * 10)


@pytest.mark.parametrize("form", ["text", "category", "numbers of pandas", "array", "list"])
def test_codes_with_leading_zeros_are_not_read_as_numbers(form):
    """scikit-learn makes 2139 of "02139", which a model takes for a size; other numbers in texts are numbers."""
    codes, plain = np.array(["02139", "10001", "94110"] * 4), np.array(["0.5", "3", "0"] * 4)
    frame = pd.DataFrame({"a": np.arange(12.0), "zip": pd.Series(codes, dtype=object)})
    if form == "category":
        frame["zip"] = frame["zip"].astype("category")
    X = {"array": frame.to_numpy(), "list": frame.to_numpy().tolist()}.get(form, frame)
    if form == "numbers of pandas":
        X = frame.set_axis([0, 1], axis=1)
    for estimator in (BayesianClassifier(), BayesianRegressor(), GaussianMixture()):
        with pytest.raises(ValueError, match=r"holds codes such as '02139', which would be read as the number 2139"):
            estimator.fit(X, np.arange(12) % 2)
    refuse_words(frame.assign(zip=plain))
    refuse_words(frame["a"].to_numpy()[:, None])


@pytest.mark.parametrize(("missing", "dtype"), [(None, object), (pd.NA, "string"), (np.nan, float)])
def test_missing_targets_are_told_with_their_row(missing, dtype):
    """scikit-learn says "'<' not supported between instances of 'NoneType' and 'str'"."""
    y = pd.Series([0, 1, missing, 1] * 3, dtype=object).astype(dtype)
    with pytest.raises(ValueError, match=r"contains NaN: 3 missing values, the first .* in row 2; leave such rows out"):
        BayesianClassifier().fit(np.arange(12.0)[:, None], y)


def test_durations_are_no_targets():
    """They were counted in nanoseconds, in silence."""
    with pytest.raises(ValueError, match=r"y holds dates or durations, as .*counted in nanoseconds; give numbers"):
        BayesianRegressor().fit(np.arange(12.0)[:, None], pd.to_timedelta(np.arange(12), unit="D"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pd.Series([1.0, pd.NA], dtype=object), r"<NA> among objects; write X.convert_dtypes"),
        (
            pd.date_range("2020", periods=2, tz="UTC"),
            "dates such as 2020-01-01 00:00:00.00:00, which are not numbers; give days since the first",
        ),
        (pd.period_range("2020", periods=2, freq="M"), "dates such as 2020-01, which"),
    ],
)
def test_other_objects_are_told_with_their_column(values, said):
    with pytest.raises(ValueError, match=f"the column 'a' holds .*{said}"):
        refuse_words(pd.DataFrame({"a": values}))


def test_a_category_that_training_lacks_widens_a_prediction():
    """All zeros of one-hot columns are a draw from the known categories; of 90 % intervals 70 % held such targets."""
    rng = np.random.default_rng(0)
    effect = rng.normal(size=12)
    code, number = rng.integers(0, 11, 300), rng.normal(size=(300, 1))
    one_hot = np.eye(12)[code]  # the last of them is no training row's
    X = np.concatenate([number, one_hot, rng.integers(0, 2, (300, 1))], axis=1)
    y = number[:, 0] + effect[code] + 0.1 * rng.normal(size=300)
    regressor = linear(BayesianRegressor).fit(X, y)
    known, unseen, dead = X[:1].copy(), X[:1].copy(), X[:1].copy()
    unseen[0, 1:13] = 0
    dead[0, 1:13] = np.eye(12)[11]
    with pytest.warns(lamu.data.UnfamiliarRows, match=r"'x12' was 0 in all training rows .* \(1 is the first of 1\)"):
        mean, std = regressor.predict(np.concatenate([known, unseen, dead]), return_std=True)
    spread = effect[:11].std()
    assert std[0] < 0.15
    np.testing.assert_allclose(std[1], spread * np.sqrt(1 + 4 / 8), rtol=0.35)  # the kernel of Student's t about each
    assert abs(mean[1] - number[0, 0] - effect[:11].mean()) < 0.35 * spread
    assert spread < std[2] < 10 * spread


@pytest.mark.parametrize("kind", ["category", "object", "array", "dates"])
def test_words_and_dates_are_told_with_their_column(kind):
    """scikit-learn says "could not convert string to float: 'red'", and of no column."""
    frame = pd.DataFrame({"a": np.arange(12.0), "colour": pd.Series(["red", "blue"] * 6, dtype=object)})
    if kind == "dates":
        frame["colour"] = pd.Timestamp("2020-01-01")
    X = frame.astype({"colour": "category"}) if kind == "category" else frame
    word = "holds dates" if kind == "dates" else "holds the word 'blue', which is not a number; encode it as categories"
    name = "column 1 of X" if kind == "array" else "the column 'colour'"
    with pytest.raises(ValueError, match=f"{name} {word}"):
        BayesianClassifier().fit(frame.to_numpy() if kind == "array" else X, np.arange(12) % 2)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ({"a": 1j * np.ones(6)}, range(6), "the column 'a' holds complex numbers"),
        ({"a": np.arange(6.0)}, ["1.5", "none"] * 3, "y holds the word 'none', which is not a number"),
        (
            {"a": 1e300 * np.arange(6.0)},
            range(6),
            "x in column 0 runs from 0 to 5e.300, .*; divide it by 5e.300 first",
        ),
        ({}, range(6), "X has 0 feature.*; give a column"),
    ],
)
def test_tables_that_cannot_be_read_are_told_in_words(X: dict, y: Any, message: str) -> None:
    """They were errors of NumPy and scikit-learn that name no column: of a sequence, of no array, of a scale [inf]."""
    with pytest.raises(ValueError, match=message):
        BayesianRegressor(network=lamu.networks.Linear()).fit(pd.DataFrame(X, index=range(6)), list(y))


@pytest.mark.parametrize("value", [[1, 2], {"foo": 1}])
def test_columns_of_lists_are_told_in_the_words_that_scikit_learn_checks(value: Any) -> None:
    X = pd.DataFrame({"a": [value] * 6})
    message = "the column 'a' holds .* such as .*, where each argument must be a string or a number; give a column"
    for kind in (BayesianRegressor, BayesianClassifier):
        with pytest.raises(TypeError, match=message):
            linear(kind).fit(X, [0, 1] * 3)


def test_rows_are_read_by_what_scikit_learn_reads_alone() -> None:
    """As its checks do: no function of NumPy but the conversion is called on other libraries' arrays."""

    class Foreign:
        def __init__(self, rows: np.ndarray) -> None:
            self.rows = rows

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return self.rows if dtype is None else self.rows.astype(dtype)

        def __array_function__(self, function: Any, *_: Any) -> Any:
            raise TypeError(f"{function.__name__} is not for this array")

    x, y = np.arange(12.0).reshape(6, 2) ** 1.5, np.arange(6.0)
    model = linear(BayesianRegressor)
    np.testing.assert_array_equal(model.fit(Foreign(x), y).predict(x), model.fit(x, y).predict(x))


def test_classes_of_two_types_or_with_spaces_are_told() -> None:
    x = pd.DataFrame({"a": np.arange(6.0)})
    with pytest.raises(ValueError, match="y holds classes of the types int and str; give one type"):
        linear(BayesianClassifier).fit(x, np.array([1, "a"] * 3, object))
    with pytest.warns(UserWarning, match="the classes 'yes' and 'yes ' differ in spaces alone"):
        linear(BayesianClassifier).fit(x, ["yes", "no", "yes "] * 2)


def test_ordered_classes_that_are_words_are_told_their_order() -> None:
    """Of low, mid and high the alphabet made an order of its own: .46 of 120 rows were right, and .78 by numbers."""
    x, words = pd.DataFrame({"a": np.arange(12.0)}), np.repeat(["low", "mid", "high"], 4)
    ordered = linear(BayesianClassifier).set_params(likelihood="ordinal")
    with pytest.warns(
        UserWarning, match=r"order by the alphabet, 'high' < 'low' < 'mid', may not be theirs; number them"
    ):
        ordered.fit(x, pd.Categorical(words, categories=["low", "mid", "high"], ordered=True))
    ordered.fit(x, np.repeat([0, 1, 2], 4))
    ordered.fit(x, np.repeat(["1 low", "2 mid", "3 high"], 4))
    ordered.fit(x, np.where(words == "low", "no", "yes"))  # two classes have one order
    with pytest.raises(TypeError, match=r"the classes of Ordinal are words, .* number them"):
        lamu.likelihoods.Ordinal.of(words)


def test_nullable_columns_with_gaps_are_numbers() -> None:
    # A nullable column of truth values was said to hold objects, and to be converted to what it was.
    x = pd.DataFrame({"a": np.arange(12.0), "b": pd.array([True, None, False] * 4, "boolean")})
    x["c"] = pd.array([1, 2, None] * 4, "Int64")
    plain = x.astype({"b": float, "c": float})
    of = lambda table: linear(BayesianRegressor).fit(table, np.arange(12.0)).predict(table)
    np.testing.assert_array_equal(of(x), of(plain))


@pytest.mark.parametrize("wrong", ["laplace", lamu.algorithms.laplace])
def test_what_is_no_algorithm_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"algorithm=.*laplace"):
        BayesianRegressor(network=lamu.networks.Linear(), algorithm=wrong).fit(*table(5))
