"""Missing numbers as draws given the rest of their row: the closed forms, what is learned from, and predictions."""

from __future__ import annotations

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lamu
from lamu.data import Encoding, split, table
from lamu.data.imputation import DRAWS, learn_joint
from tests.command_line import QUICK, runner

CORRELATION, NOISE, SLOPES = 0.8, 0.5, np.array([1.0, 2.0])


def pair(rows: int, seed: int = 0):
    """Two correlated columns, and a target of both."""
    random = np.random.default_rng(seed)
    x = random.multivariate_normal(np.zeros(2), [[1.0, CORRELATION], [CORRELATION, 1.0]], rows)
    return x, x @ SLOPES + NOISE * random.normal(size=rows)


def with_holes(x, share: float = 0.3, seed: int = 1):
    return np.where(np.random.default_rng(seed).random(x.shape) < share, np.nan, x)


def written(path, x, y):
    pd.DataFrame(x, columns=[f"x{c}" for c in range(x.shape[1])]).assign(y=y).to_csv(path, index=False)
    return table.read(path, "y", impute=True)


@pytest.fixture(scope="module")
def joint():
    x, y = pair(20_000)
    return learn_joint(with_holes(x, 0.2), (0, 0), y, classes=0)


def test_draws_have_the_moments_of_the_conditional(joint):
    assert joint.drawn == (0, 1)
    x = np.array([[np.nan, 1.0], [np.nan, -0.5]])
    draws = np.stack([joint.draw(x, which)[:, 0] for which in range(DRAWS)])
    # Scores of 64 quantiles, and a covariance of 20,000 rows: 0.05 is the error of both.
    np.testing.assert_allclose(joint.central(x)[:, 0], CORRELATION * x[:, 1], atol=0.05)
    np.testing.assert_allclose(draws.mean(axis=0), CORRELATION * x[:, 1], atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(1 - CORRELATION**2), atol=0.05)


def test_training_rows_are_completed_given_their_targets(joint):
    x, y = pair(20_000, seed=2)
    found = joint.given_targets(np.column_stack([np.full(len(x), np.nan), x[:, 1]]), y)
    # As the complete rows, and so is the regression on them; without the target it would be a different one.
    np.testing.assert_allclose(np.linalg.lstsq(found, y, rcond=None)[0], SLOPES, atol=0.1)
    np.testing.assert_allclose(np.corrcoef(found.T)[0, 1], CORRELATION, atol=0.02)
    assert np.corrcoef(found[:, 0], x[:, 0])[0, 1] > 0.8


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_and_words_say_something_of_a_number(classes):
    random = np.random.default_rng(0)
    y, word = random.integers(0, classes, 2000), random.integers(1, 4, 2000)
    x = np.column_stack([2.0 * y + 3.0 * word + 0.1 * random.normal(size=2000), word])
    x[:500, 0] = np.nan
    joint = learn_joint(x, (0, 3), y, classes)
    assert joint.drawn == (0,)
    levels = [float(joint.central(np.array([[np.nan, code]]))[0, 0]) for code in (1.0, 2.0, 3.0)]
    assert np.diff(levels) == pytest.approx([3.0, 3.0], abs=1.0)
    given = joint.given_targets(np.array([[np.nan, 2.0]] * 200), np.repeat([0, 1], 100))[:, 0]
    assert given[100:].mean() - given[:100].mean() == pytest.approx(2.0, abs=1.0)


def test_a_column_of_few_values_gets_one_of_them():
    random = np.random.default_rng(0)
    latent = random.normal(size=1000)
    x = np.column_stack([latent > 0.5, latent + 0.3 * random.normal(size=1000)]).astype(float)
    x[::3, 0] = np.nan
    joint = learn_joint(x, (0, 0), latent, classes=0)
    draws = np.stack([joint.draw(x[::3], which)[:, 0] for which in range(DRAWS)])
    assert set(np.unique(draws)) == {0.0, 1.0}
    assert draws[:, x[::3, 1] > 1.5].mean() > 0.8 > 0.2 > draws[:, x[::3, 1] < -0.5].mean()


def test_a_column_that_nothing_predicts_keeps_its_median(tmp_path):
    random = np.random.default_rng(0)
    x = with_holes(random.normal(size=(300, 3)))
    x[:, 2] = np.nan_to_num(x[:, 0]) + 0.1 * random.normal(size=300)
    read = written(tmp_path / "table.csv", x, random.normal(size=300))
    assert read.encoding.joint.drawn == (0,)
    assert "'x0'" in read.notes[0]
    assert "by draws given the rest of their rows), 'x1'" in read.notes[0]
    assert "by the median" in read.notes[0]
    lacks = np.isnan(x[:, 1])
    np.testing.assert_array_equal(read.x[lacks, 1], np.nanmedian(x[:, 1]))
    assert len(np.unique(read.x[np.isnan(x[:, 0]), 0])) > 50
    medians = read.with_medians()
    np.testing.assert_array_equal(medians.x[np.isnan(x[:, 0]), 0], np.nanmedian(x[:, 0]))


def test_few_rows_keep_medians():
    x, y = pair(60)
    assert learn_joint(with_holes(x), (0, 0), y, classes=0) is None


def test_nothing_of_test_rows_or_their_targets_is_learned(tmp_path):
    x, y = pair(200)
    x = with_holes(x)
    train, test = split(200)
    first = written(tmp_path / "first.csv", x, y).refit(train)
    other, target = x.copy(), y.copy()
    other[test], target[test] = -3 * np.nan_to_num(x[test][::-1]), 9 - y[test]
    second = written(tmp_path / "second.csv", other, target).refit(train)
    assert first.encoding == second.encoding
    np.testing.assert_array_equal(first.x[train], second.x[train])
    # The targets of rows to predict do not reach what they are predicted from.
    third = written(tmp_path / "third.csv", x, np.where(np.isin(np.arange(200), test), 9 - y, y)).refit(train)
    np.testing.assert_array_equal(first.completions(test), third.completions(test))
    np.testing.assert_array_equal(first.x[test], third.x[test])


def test_completions_depend_on_their_row_alone_and_agree_where_nothing_is_missing(tmp_path):
    x, y = pair(200)
    x = with_holes(x)
    read = written(tmp_path / "table.csv", x, y)
    alone = [read.completions([row]) for row in range(200)]
    found = read.completions(slice(None))
    assert len(found) == DRAWS
    for row, parts in enumerate(alone):
        missing = np.isnan(x[row]).any()
        assert len(parts) == (DRAWS if missing else 1)
        np.testing.assert_allclose(np.concatenate(parts), np.stack([each[row] for each in found])[: len(parts)])
        assert missing == (np.ptp([each[row] for each in found], axis=0).max() > 0)
    # What is matched later, as a saved encoding says, is completed in the same way.
    encoding = Encoding.of(json.loads(json.dumps(read.encoding.describe())))
    assert encoding == read.encoding
    np.testing.assert_array_equal(table.match(tmp_path / "table.csv", encoding).completions(slice(None)), found)


def test_an_altered_joint_is_refused(joint):
    described = joint.describe()
    with pytest.raises(ValueError, match="has 2 means for 3 scores"):
        type(joint).of({**described, "mean": described["mean"][:2]})
    with pytest.raises(ValueError, match="2 columns of quantiles; give 3"):
        type(joint).of({**described, "quantiles": described["quantiles"][:2]})


def test_draws_predict_better_than_medians_and_know_what_they_lack(tmp_path):
    """With a linear model, on rows of which three in ten numbers are missing."""
    x, y = pair(2000)
    x = with_holes(x)
    read, (train, test) = written(tmp_path / "table.csv", x, y), split(2000, 0.5)
    read = read.refit(train)

    def predictive(x_train, *x_new):
        """Least squares, and a Gaussian with the spread of its residuals."""
        design = lambda x: np.column_stack([np.ones(len(x)), x])
        weights = np.linalg.lstsq(design(x_train), read.y[train], rcond=None)[0]
        spread = float(np.std(read.y[train] - design(x_train) @ weights))
        means = np.stack([design(x) @ weights for x in x_new])[:, :, None]
        return lamu.predictives.MixturePredictive.equal(lamu.likelihoods.Gaussian(scale=spread), {}, jnp.asarray(means))

    pred, y_test = predictive(read.x[train], *read.completions(test)), read.y[test]
    medians = read.with_medians()
    plain = predictive(medians.x[train], medians.x[test])
    better = lamu.scores.difference(lamu.scores.nll, pred, plain, y_test)
    assert better.value < -3 * better.error
    lower, upper = pred.interval(0.9)
    width, count = np.asarray(upper - lower), np.isnan(x[test]).sum(axis=1)
    widths = [width[count == k].mean() for k in range(3)]
    assert widths[0] < 0.75 * widths[1] < 0.75 * 0.75 * widths[2] * 2
    for k in range(3):
        covered = ((lower <= y_test) & (y_test <= upper))[count == k]
        # Ten draws, and a standard error of sqrt(.09 / rows).
        assert covered.mean() == pytest.approx(0.9, abs=0.04 + 3 * np.sqrt(0.09 / len(covered)))


@pytest.mark.stress
def test_a_saved_run_predicts_what_was_written(tmp_path, capsys, monkeypatch):
    lamu_command = runner(capsys, tmp_path, monkeypatch)
    x, y = pair(200)
    written(tmp_path / "table.csv", with_holes(x), y)
    ran = lamu_command("fit", "table.csv", "--target", "y", "--out", "run", "--impute", *QUICK)
    assert ran.code == 0, ran.err
    assert "by draws given the rest of their rows" in ran.out
    ran = lamu_command("predict", "run", "table.csv", "--out", "all.csv")
    assert ran.code == 0, ran.err
    assert "this is the table that was fitted" in ran.out
    before = pd.read_csv(tmp_path / "run" / "predictions.csv")
    now = pd.read_csv(tmp_path / "all.csv").iloc[before["row"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(now, before, rtol=1e-4, atol=1e-4)


def test_a_table_without_holes_has_no_joint(tmp_path):
    x, y = pair(100)
    read = written(tmp_path / "table.csv", x, y)
    assert read.encoding.joint is None
    assert read.with_medians() is read
    assert replace(read.encoding, joint=None) == read.encoding
