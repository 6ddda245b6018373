"""Numbers that float32 cannot hold as they are: the answer is right in their own units, or they are refused."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lamu as library
from lamu.data import Arrays
from lamu.data.table import match, read
from tests.command_line import assert_refused

ROWS = 200
UNIX = 1_700_000_000


@pytest.fixture(autouse=True)
def in_32_bits():
    with jax.enable_x64(False):
        yield


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=ROWS)
    return x, x + 0.25 * random.normal(size=ROWS)


FIT = ("--target", "y", "--out", "run", "--algorithm", "laplace", "--epochs", "60", "--no-report")


def fitted(lamu, table: pd.DataFrame, *words: str):
    table.to_csv("table.csv", index=False, float_format="%.17g")
    ran = lamu("fit", "table.csv", *FIT, *words, "--json")
    assert ran.code == 0, ran.err
    return ran.document


PLAIN = {}  # the scores of the same table in units of one, found once


@pytest.mark.parametrize(
    ("origin", "unit"),
    [
        (1e12, 1.0),
        pytest.param(0.0, 1e25, marks=pytest.mark.stress),
        (0.0, 1e-20),
        pytest.param(2.0**62, 2.0**40, marks=pytest.mark.stress),
    ],
)
def test_the_command_line_predicts_and_scores_targets_of_any_size_in_their_own_units(lamu, origin, unit):
    x, z = data()
    if not PLAIN:
        PLAIN.update(fitted(lamu, pd.DataFrame({"x": x, "y": z}))["metrics"]["scores"])
    scores = fitted(lamu, pd.DataFrame({"x": x, "y": origin + unit * z}), "--force")["metrics"]["scores"]
    expected = PLAIN
    assert scores["rmse"] / unit == pytest.approx(expected["rmse"], rel=0.02)
    assert scores["nll"] - np.log(unit) == pytest.approx(expected["nll"], abs=0.05)
    assert abs(scores["coverage"] - expected["coverage"]) < 0.06
    assert scores["coverage"] > 0.7
    written = pd.read_csv("run/predictions.csv")
    assert np.sqrt(np.mean((written["mean"] - written["target"]) ** 2)) == pytest.approx(scores["rmse"], rel=1e-4)
    # Terms of order one cancel to a few thousandths: an absolute error, of single precision, beside the relative one.
    assert -written["log_prob"].mean() == pytest.approx(scores["nll"], rel=1e-5, abs=1e-6)
    inside = (written["lower"] <= written["target"]) & (written["target"] <= written["upper"])
    assert inside.mean() == pytest.approx(scores["coverage"])
    again = lamu("predict", "run", "table.csv", "--json").document
    assert again["scores"]["rmse"] / unit == pytest.approx(0.25, rel=0.25)
    # As float32 holds the spread, and not the distance from zero.
    assert [row["target"] - origin for row in again["predictions"]] == pytest.approx(list(unit * z), abs=1e-3 * unit)
    shown = lamu("predict", "run", "table.csv").out
    assert len({line.split("│")[3] for line in shown.splitlines() if line.count("│") == 7}) > 15


@pytest.mark.stress
def test_unix_seconds_are_an_input_like_any_other(lamu):
    x, _ = data()
    seconds = UNIX + np.round(600 * x)
    y = seconds - UNIX + 60 * np.random.default_rng(1).normal(size=ROWS)
    document = fitted(lamu, pd.DataFrame({"time": seconds.astype(int), "y": y}))
    assert document["metrics"]["scores"]["rmse"] < 90
    notes = document["config"]["notes"]
    assert any("'time' is counted from 1699998" in note and "float32" in note for note in notes)
    assert [name for name, _, _ in document["config"]["units"]] == ["time"]


def test_units_are_learned_from_the_training_rows_alone_and_are_only_there_where_they_are_needed():
    table = read("diabetes")
    assert table.encoding.units == ()
    assert table.y.max() == 346.0


def test_units_of_a_table_to_predict_are_those_of_training(tmp_path):
    x, z = data()
    frame = pd.DataFrame({"x": UNIX + x, "y": 1e12 + z})
    frame.to_csv(tmp_path / "all.csv", index=False, float_format="%.17g")
    rows = np.arange(100)
    fit = read(tmp_path / "all.csv", "y").refit(rows)
    assert fit.x[rows].min() == 0.0
    assert fit.x[rows].max() == 1.0
    assert fit.encoding.units == read(tmp_path / "all.csv", "y").refit(rows).encoding.units
    assert fit.encoding.units != read(tmp_path / "all.csv", "y").encoding.units
    other = match(tmp_path / "all.csv", fit.encoding)
    np.testing.assert_array_equal(other.x, fit.x)
    np.testing.assert_array_equal(other.y, fit.y)
    np.testing.assert_allclose(fit.encoding.decode(fit.y), 1e12 + z, rtol=1e-15)
    assert type(fit.encoding).of(json.loads(json.dumps(fit.encoding.describe()))) == fit.encoding


def test_whole_numbers_that_not_even_float64_tells_apart_are_refused(lamu):
    x, _ = data()
    pd.DataFrame({"x": x, "y": 2**62 + np.arange(ROWS)}).to_csv("table.csv", index=False)
    assert_refused(lamu("fit", "table.csv", *FIT), "4611686018427387904", "subtract")


# In Python


def linear():
    return library.Model(library.networks.Linear(), library.likelihoods.Gaussian())


@pytest.mark.parametrize(
    ("x", "y", "parts"),
    [
        (1.0, lambda z: 1e12 + z, ("y runs from 9999999", "float32", "7 digits", "subtract 9999999")),
        (1.0, lambda z: 2**62 + 100 * np.argsort(z), ("y runs from 46116860184273", "subtract 4611686018427387904")),
        (1.0, lambda z: 1e25 * z, ("y runs from", "e+25", "square", "divide it by 5e+25 first")),
        (1.0, lambda z: 1e-20 * z, ("y runs from", "e-20", "square", "divide it by 5e-20 first")),
        (UNIX, lambda z: z, ("x in column 0 runs from 16999", "subtract 16999")),
    ],
)
def test_numbers_that_float32_would_destroy_are_refused_before_any_compute(x, y, parts):
    inputs, z = data()
    rows = (x + inputs[:, None], y(z))
    for attempt in (
        lambda: linear().standardised(*rows),
        lambda: library.fit(linear(), rows, library.algorithms.adam()),
        lambda: library.fit_folds(linear(), rows, library.algorithms.adam()),
        lambda: library.fit_prior_scale(linear(), rows, library.algorithms.adam()),
    ):
        with pytest.raises(ValueError, match="float32") as caught:
            attempt()
        for part in parts:
            assert part in str(caught.value)
        assert "\n" not in str(caught.value)


def test_targets_on_a_device_whose_squares_float32_cannot_hold_are_refused_too():
    x, z = data()
    with pytest.raises(ValueError, match="square"):
        linear().standardised(jnp.asarray(x[:, None]), jnp.asarray(1e25 * z))
    assert type(linear().standardised(jnp.asarray(x[:, None]), jnp.asarray(z)).likelihood).__name__ == "Scaled"


def test_what_float32_holds_is_taken_as_it_comes():
    x, z = data()
    columns = np.stack([x, np.ones(ROWS), UNIX + 1e7 * x, 16_000_000.0 + np.arange(ROWS), 0.1 + 1e-17 * x], axis=1)
    model = linear().standardised(columns, 2000 + z)
    scale = model.network.scale
    np.testing.assert_allclose(scale[[0, 2, 3]], columns[:, [0, 2, 3]].std(axis=0), rtol=1e-6)
    assert scale[1] == scale[4] == 1.0
    Arrays.to_fit((columns, 2000 + z))
    narrow = slice(0, 2)  # of rows to predict or to validate on the range says nothing
    Arrays.of((UNIX + columns[narrow], 1e12 + z[narrow]))


def test_inputs_to_predict_that_are_infinite_in_float32_are_refused():
    x, z = data()
    fit = library.fit(linear().standardised(x[:, None], z), (x[:, None], z), library.algorithms.adam(), epochs=1)
    with pytest.raises(ValueError, match="infinity in float32"):
        fit.posterior.predict(np.full((1, 1), 1e300))


def test_two_rows_that_are_near_each_other_are_no_crowd():
    """Three ten-thousandths apart float32 tells them, and rounding moves neither by a thousandth of that."""
    x = np.array([[1.0, 1.2345], [5.0, 1.2348], [2.0, 1.2347]])
    kept = Arrays.to_fit((x, np.arange(3.0))).x
    np.testing.assert_array_equal(np.argsort(kept, axis=0), np.argsort(x, axis=0))
    np.testing.assert_allclose(np.ptp(kept, axis=0), np.ptp(x, axis=0), rtol=1e-3)
    model = linear()
    np.testing.assert_allclose(model.standardised(x, x[:, 0]).network.scale, x.std(axis=0), rtol=1e-3)
    with pytest.raises(ValueError, match=r"subtract 1\.2345 from it first"):  # targets come back in their units
        model.standardised(x, x[:, 1])
    seconds = UNIX + np.arange(0.0, 86_400.0, 30.0)  # 128 s are one in float32
    with pytest.raises(ValueError, match="subtract 1700000000 from it first"):
        Arrays.to_fit((seconds[:, None], np.arange(len(seconds)) * 1.0))
    with pytest.raises(ValueError, match="subtract 1700000000 from it first"):  # told apart, by five steps
        Arrays.to_fit((UNIX + np.array([[0.0], [640.0], [300.0]]), np.arange(3.0)))


def test_a_posterior_of_64_bits_predicts_where_jax_computes_in_32(tmp_path):
    """It was an error of JAX about dtypes; as an estimator's `posterior_`, whose fit has the digits of its rows."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 2))
    y = x @ [1.0, -0.5] + 0.3 * generator.normal(size=40)
    with jax.enable_x64(True):
        model = linear().standardised(x, y)
        posterior = library.fit(model, (x, y), library.algorithms.laplace(), steps=50, batch_size=40).posterior
        exact = np.asarray(posterior.predict(x).mean)
        posterior.save(tmp_path / "posterior")
    predictive = posterior.predict(x)
    assert predictive.mean.dtype == np.float32
    np.testing.assert_allclose(predictive.mean, exact, atol=1e-5)
    loaded = library.load(tmp_path / "posterior")  # which rounds as well
    np.testing.assert_array_equal(predictive.mean, loaded.predict(x).mean)
    np.testing.assert_array_equal(predictive.log_prob(y), loaded.predict(x).log_prob(y))
    drawn, again = (each.sample(jax.random.key(0), 3)["network"] for each in (posterior, loaded))
    jax.tree.map(np.testing.assert_array_equal, drawn, again)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(posterior.predict(x).mean, exact)  # the posterior itself has kept its digits
