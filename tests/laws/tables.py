"""Laws of what a table is fitted by: what must not matter does not, and what is not known widens.

A row's subject learns from a frame, its targets and weights, and returns a function of a frame: the mean of every row
and its standard deviation. Its traits: "exact" (a fit that ends at one answer, whatever the order of its rows), "holes"
(numbers may be missing where it predicts), "words" (a column of words), "weights" (rows may have weights).
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lamu
from lamu.cli import main
from lamu.networks import Linear
from lamu.sklearn import BayesianClassifier, BayesianRegressor
from lamu.tabular import stacked_fit
from lamu.tabular.candidates import ADDITIVE, NETWORKS
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("tables", "exact holes weights words")

Predict = Callable[[pd.DataFrame], tuple[np.ndarray, np.ndarray]]
Learn = Callable[..., Predict]

random = np.random.default_rng(0)
WORDS = np.array(["oak", "ash", "elm"])
FRAME = pd.DataFrame({"a": random.normal(size=90), "b": 5 + random.normal(size=90), "word": random.choice(WORDS, 90)})
EFFECT = 3 * (FRAME["word"] == "oak") - 2 * (FRAME["word"] == "elm")
Y = (2 * FRAME["a"] - 2 * FRAME["b"] + EFFECT + 0.5 * random.normal(size=90)).to_numpy()
NEW = FRAME.iloc[::9]


class Few(pytest.MonkeyPatch):
    """A linear candidate and a network, few steps: what is asked here is asked of every mixture."""

    def __enter__(self) -> None:
        self.setattr(stacked_fit, "_steps_for", lambda count, folds: 150)
        self.setattr(stacked_fit, "candidates_for", lambda varying, kernels: (ADDITIVE[:1], NETWORKS[:1]))

    def __exit__(self, *error: object) -> None:
        self.undo()


def line(frame: pd.DataFrame, y: np.ndarray, weight: np.ndarray | None = None) -> Predict:
    options = {"network": Linear(), "algorithm": lamu.algorithms.laplace(), "random_state": 0}
    regressor = BayesianRegressor(**options).fit(frame, y, weight)
    return lambda new: regressor.predict(new, return_std=True)


def halves(frame: pd.DataFrame, y: np.ndarray, weight: np.ndarray | None = None) -> Predict:
    """Two classes: the probability of the second, and the deviation of its indicator."""
    options = {"network": Linear(), "algorithm": lamu.algorithms.laplace(), "random_state": 0}
    classifier = BayesianClassifier(**options).fit(frame, y > np.median(Y), weight)

    def predict(new: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        p = classifier.predict_proba(new)[:, 1]
        return p, np.sqrt(p * (1 - p))

    return predict


def stack(frame: pd.DataFrame, y: np.ndarray, weight: np.ndarray | None = None) -> Predict:
    codes = lambda new: new.assign(word=1 + (new["word"].to_numpy()[:, None] == WORDS).argmax(1)).to_numpy(float)
    levels = [3 if name == "word" else 0 for name in frame]
    with Few():
        found = lamu.fit_table(codes(frame), y, lamu.likelihoods.Gaussian(), weight=weight, levels=levels, folds=2)

    def predict(new: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        pred = found.posterior.predict(codes(new[list(frame)]))
        return np.asarray(pred.mean), np.asarray(pred.std)

    return predict


def command(frame: pd.DataFrame, y: np.ndarray, weight: np.ndarray | None = None) -> Predict:
    assert weight is None
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    frame.assign(y=y).to_csv(folder / "table.csv", index=False)
    words = ["fit", folder / "table.csv", "--target", "y", "--impute", "--folds", "2", "--no-report"]
    with Few():
        assert main([str(word) for word in (*words, "--out", folder / "run")]) == 0

    def predict(new: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        new.to_csv(folder / "new.csv", index=False)
        (folder / "out.csv").unlink(missing_ok=True)
        words = ("predict", folder / "run", folder / "new.csv", "--out", folder / "out.csv")
        assert main([str(word) for word in words]) == 0
        found = pd.read_csv(folder / "out.csv")
        return found["mean"].to_numpy(), ((found["upper"] - found["lower"]) / 3.29).to_numpy()

    return predict


def numbers(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["a", "b"]]


class Subject:
    """How a table is learned, and the columns of it that are read; the fit of the table as it is made once."""

    def __init__(self, learn: Learn, columns: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame) -> None:
        self.learn, self.columns = learn, columns
        self.plain = cache(lambda: learn(columns(FRAME), Y))

    def answers(self) -> tuple[np.ndarray, np.ndarray]:
        return self.plain()(self.columns(NEW))


LINE = row("tables", "BayesianRegressor of a line", Subject(line, numbers), "exact holes weights")
row("tables", "BayesianClassifier of a line", Subject(halves, numbers), "exact weights")
STACK = row("tables", "fit_table", Subject(stack), "weights")
COMMAND = row("tables", "lamu fit", Subject(command), "holes words")


def assert_same(row: Row, one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> None:
    """To a hundredth of a standard deviation; of members that start elsewhere, to half of one, root mean square."""
    off = np.abs(one[0] - other[0]) / one[1]
    ratio = np.abs(np.log(other[1] / one[1]))
    if "exact" in row.traits:
        assert off.max() < 1e-2
        assert ratio.max() < 1e-2
    else:
        assert np.sqrt(np.mean(off**2)) < 0.5
        assert np.median(ratio) < 0.4


@law("tables")
def columns_are_known_by_their_names(row: Row) -> None:
    """In another order they are read by name, or refused, as scikit-learn asks of estimators."""
    frame = row.subject.columns(NEW)
    try:
        turned = row.subject.plain()(frame[frame.columns[::-1]])
    except ValueError as refused:
        if "same order" not in str(refused):
            raise
        return
    for one, other in zip(row.subject.answers(), turned, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@law("tables")
def units_of_a_column_do_not_matter(row: Row) -> None:
    scaled = lambda frame: frame.assign(a=1024 * frame["a"], b=frame["b"] / 1024)
    frame = row.subject.columns(FRAME)
    assert_same(row, row.subject.answers(), row.subject.learn(scaled(frame), Y)(scaled(row.subject.columns(NEW))))


@law("tables")
def rows_have_no_order(row: Row) -> None:
    turned = row.subject.learn(row.subject.columns(FRAME)[::-1], Y[::-1])
    assert_same(row, row.subject.answers(), turned(row.subject.columns(NEW)))


@law("tables", when="weights")
def a_weight_is_a_number_of_repeats(row: Row) -> None:
    frame, weight = row.subject.columns(FRAME), np.where(np.arange(90) < 45, 2, 1)
    weighted = row.subject.learn(frame, Y, weight.astype(float) * 90 / weight.sum())
    heavier = row.subject.learn(frame, Y, weight.astype(float))
    repeated = row.subject.learn(frame.loc[frame.index.repeat(weight)], np.repeat(Y, weight))
    new = row.subject.columns(NEW)
    assert_same(row, repeated(new), heavier(new))
    moved = np.abs(weighted(new)[0] - row.subject.answers()[0])
    assert moved.max() > 1e-4, "the weights made no difference"


@law("tables")
def a_constant_column_is_harmless(row: Row) -> None:
    more = lambda frame: row.subject.columns(frame).assign(same=7.0)
    assert_same(row, row.subject.answers(), row.subject.learn(more(FRAME), Y)(more(NEW)))


@law("tables", when="holes")
def a_missing_number_widens(row: Row) -> None:
    frame, sd = row.subject.columns(NEW), row.subject.answers()[1]
    for columns in (["a"], ["a", "b"]):
        wider = row.subject.plain()(frame.assign(**dict.fromkeys(columns, np.nan)))[1]
        assert wider.mean() > 1.05 * sd.mean()
        sd = wider


@law("tables", when="words")
def an_unknown_word_widens(row: Row) -> None:
    wider = row.subject.plain()(NEW.assign(word="baobab"))[1]
    assert wider.mean() > 1.5 * row.subject.answers()[1].mean()


def plant(of: Row, fault: str, laws: str, learn: Learn) -> None:
    twin(of, fault, laws, Subject(learn, of.subject.columns))


def by_position(frame: pd.DataFrame, y: np.ndarray, weight: Any = None) -> Predict:
    predict = line(frame, y, weight)
    return lambda new: predict(new.set_axis(frame.columns, axis=1))


def clipped(frame: pd.DataFrame, y: np.ndarray, weight: Any = None) -> Predict:
    predict = line(frame.clip(-10, 10), y, weight)
    return lambda new: predict(new.clip(-10, 10))


def counting_columns(frame: pd.DataFrame, y: np.ndarray, weight: Any = None) -> Predict:
    predict = line(frame, y, weight)
    return lambda new: (predict(new)[0], predict(new)[1] * frame.shape[1])


def filled(frame: pd.DataFrame, y: np.ndarray, weight: Any = None) -> Predict:
    predict = line(frame, y, weight)
    return lambda new: predict(new.fillna(frame.mean()))


def of_words_it_knows(frame: pd.DataFrame, y: np.ndarray, weight: Any = None) -> Predict:
    predict = COMMAND.subject.plain()
    return lambda new: predict(new.assign(word=new["word"].where(new["word"].isin(WORDS), "ash")))


plant(LINE, "columns by position", "columns_are_known_by_their_names", by_position)
plant(LINE, "limits in units of the column", "units_of_a_column_do_not_matter", clipped)
plant(LINE, "the first rows alone", "rows_have_no_order", lambda x, y, w=None: line(x[:30], y[:30]))
plant(LINE, "weights forgotten", "a_weight_is_a_number_of_repeats", lambda x, y, w=None: line(x, y))
plant(LINE, "spread a column", "a_constant_column_is_harmless", counting_columns)
plant(LINE, "the mean for what is missing", "a_missing_number_widens", filled)
plant(COMMAND, "the first word for an unknown one", "an_unknown_word_widens", of_words_it_knows)
