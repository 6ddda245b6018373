"""Rows in time: later ones are held out, folds are blocks of successive ones, and choices are judged by later rows."""

from __future__ import annotations

import datetime
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lamu
from lamu.cli.request import Request, learning_rows
from lamu.data import Arrays, DataError, split, table
from lamu.data.splits import RowTimes, folds_of
from lamu.running.checkpoints import rows_described
from lamu.running.history import split_validation, validation_pairs
from lamu.sklearn import BayesianRegressor, estimator
from lamu.tabular import stacked_fit

N = 40
rng = np.random.default_rng(0)
DAY = rng.permutation(N) // 2  # two rows a day, in no order
X, Y = rng.normal(size=(N, 2)), rng.normal(size=N)
START = np.datetime64("2024-01-01")
LINE = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())


def later(first: Any, second: Any) -> bool:
    """Whether all days of the second rows are later than all of the first."""
    return max(DAY[np.asarray(first)]) < min(DAY[np.asarray(second)])


@pytest.mark.parametrize(
    "time",
    [
        DAY,
        DAY / 7,
        START + DAY,
        (START + DAY).astype(str),
        [datetime.date(2024, 1, 1) + datetime.timedelta(int(day)) for day in DAY],
        pd.Series(pd.Timestamp("2024-01-01", tz="Europe/Berlin") + pd.to_timedelta(DAY, "D")),
        pd.PeriodIndex(START + DAY, freq="D"),
        jnp.asarray(DAY),
    ],
    ids=["days", "weeks", "datetime64", "text", "dates", "zone", "periods", "jax"],
)
def test_times_are_numbers_or_dates_and_the_latest_are_held_out(time: Any) -> None:
    assert RowTimes.of(time, N).rank.tolist() == DAY.tolist()
    train, test = split(N, 0.25, time=time)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(N))
    assert len(test) == N / 4
    assert later(train, test)


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ([1.0, np.nan, 2.0, 3.0], "time has no value in 1 of 4 rows, first in row 1; give each row its time"),
        (["2024-01-01", None, "2024-01-02", "2024-01-03"], "first in row 1"),
        (np.array(["2024-01-01", "NaT", "2024-01-02", "2024-01-03"], "datetime64[D]"), "first in row 1"),
        (["3/4/2024", "4/4/2024", "5/4/2024", "6/4/2024"], "time is text such as '3/4/2024'; give numbers, dates"),
        ([1, 1, 1, 1], "time is 1 in all rows, so that none is later"),
        ([1, 2], r"time has the shape \(2,\); pass one time a row, the shape \(4,\)"),
    ],
)
def test_times_that_are_none_are_refused(time: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        split(4, time=time)
    with pytest.raises(ValueError, match=said):
        lamu.fit_table(X[:4], Y[:4], lamu.likelihoods.Gaussian(), time=time)


def test_groups_and_time_are_not_given_together() -> None:
    said = "groups and time are both given, .* give groups to predict new groups, and time to predict later rows"
    with pytest.raises(ValueError, match=said):
        split(N, groups=DAY, time=DAY)
    with pytest.raises(ValueError, match=said):
        lamu.fit(LINE, {"x": X, "y": Y, "groups": DAY, "time": DAY}, lamu.algorithms.laplace())
    frame = pd.DataFrame({"a": Y, "shop": DAY % 3, "day": DAY, "y": Y})
    with pytest.raises(DataError, match="'shop' groups the rows and 'day' is their time; give groups to predict new"):
        table.read(frame, "y", beside={"groups": "shop", "time": "day"})


def test_folds_are_blocks_of_whole_times_the_latest_first() -> None:
    time = RowTimes.of(DAY, N)
    parts = folds_of(np.zeros(N), 3, 0, stratify=False, groups=time)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    assert [len(part) for part in parts] == [14, 12, 14]
    assert later(parts[1], parts[0])
    assert later(parts[2], parts[1])
    uneven = RowTimes.of(np.repeat([1, 2, 3, 4, 5], [1, 1, 90, 1, 1]), 94)
    for folds in range(2, 6):
        assert all(len(part) for part in folds_of(np.zeros(94), folds, 0, stratify=False, groups=uneven))
    with pytest.raises(ValueError, match="folds=6 cannot be made of 5 times"):
        folds_of(np.zeros(94), 6, 0, stratify=False, groups=uneven)
    train, test = split(94, 0.5, time=np.asarray(uneven))
    assert (len(train), len(test)) == (2, 92)


def test_times_are_part_of_the_rows_and_choices_are_judged_by_later_ones() -> None:
    data = {"x": X, "y": Y, "time": START + DAY, "mask": np.arange(N) > 0}
    rows = Arrays.of(data)
    assert np.array_equal(rows.groups, DAY[1:])
    assert np.array_equal(rows.take(np.arange(5)).groups, DAY[1:6])
    assert rows_described(rows) != rows_described(Arrays.of({**data, "time": DAY[::-1]}))
    kept, held = split_validation(rows, 0.2, LINE, seed=1)
    assert held is not None
    assert np.max(kept.groups) < np.min(held.groups)
    pairs = validation_pairs(rows, None, LINE, 0, 0.2, N)
    assert len(pairs) == 4
    assert all(np.max(learned.groups) < np.min(judging.groups) for learned, judging in pairs)
    found = lamu.fit_folds(LINE, {"x": X, "y": Y, "time": DAY}, lamu.algorithms.adam(0.1), epochs=1, folds=3)
    assert later(found.held[2], found.held[0])
    named = {"height": X[:, 0], "time": DAY}
    assert isinstance(Arrays.named(named, ["height"]).groups, RowTimes)
    assert Arrays.named(named, ["height", "time"]).groups is None  # a variable of that name


def test_tables_and_estimators_hand_times_to_their_folds(monkeypatch: Any) -> None:
    asked: list[Any] = []

    class Asked(Exception):
        pass

    def folds(*arguments: Any, groups: Any, **options: Any) -> Any:
        asked.append(groups)
        raise Asked

    monkeypatch.setattr(stacked_fit, "folds_of", folds)
    with pytest.raises(Asked):
        lamu.fit_table(X, Y, lamu.likelihoods.Gaussian(), time=START + DAY)
    assert isinstance(asked[-1], RowTimes)
    assert np.array_equal(asked[-1], DAY)

    def fit(x: Any, *_: Any, **given: Any) -> Any:
        asked.append((np.asarray(x), given["groups"]))
        raise Asked

    monkeypatch.setattr(estimator, "fit_table", fit)
    with pytest.raises(Asked):
        BayesianRegressor().fit(X, Y, time=START + DAY)  # its rows are sorted, and their times with them
    x, groups = asked[-1]
    days = dict(zip(map(tuple, X.tolist()), DAY.tolist(), strict=True))
    assert np.asarray(groups).tolist() == [days[row] for row in map(tuple, x.tolist())]


def request(frame: pd.DataFrame, monkeypatch: Any, **options: Any) -> tuple[Any, Any]:
    given = Request(data="frame", target="y", time="sold", **options)
    monkeypatch.setattr(table, "open_source", (lambda plain: lambda _, *rest: plain(frame, *rest))(table.open_source))
    return given.read(), given


FRAME = pd.DataFrame({"a": Y, "sold": pd.Series(START + DAY).dt.strftime("%d.%m.%Y"), "y": X[:, 0]})


@pytest.mark.parametrize("dates", [False, True])
def test_the_command_line_holds_out_the_latest_rows(dates: bool, monkeypatch: Any) -> None:
    full, given = request(FRAME, monkeypatch, dates=dates)
    fitted, train, test = learning_rows(full, given, given.seed)
    assert later(train, test)
    assert len(test) == 0.2 * N
    as_input = "an input by its age and phases" if dates else "no input"
    said = f"'sold' is the time of the rows and {as_input}: the latest 8 of 40 rows are held out"
    assert sum(said in note for note in fitted.notes) == 1
    assert fitted.x.shape[1] == (6 if dates else 1)
    assert isinstance(Arrays.of(fitted.data).groups, RowTimes)
    # Each further split has the test rows before those of the one before, and learns from earlier ones.
    _, earlier, before = learning_rows(full, given, given.seed + 1)
    assert later(earlier, before)
    assert later(before, test)
    assert len(before) == len(test)
    with pytest.raises(ValueError, match=r"--test-size 0\.2 leaves no earlier row to learn from in split 5"):
        learning_rows(full, given, given.seed + 4)
    # Later tables need no time; that of inputs is one of them.
    new = table.match(FRAME.drop(columns=["y"] if dates else ["y", "sold"]), fitted.encoding)
    assert np.array_equal(new.x, fitted.x)
    assert not any("sold" in note for note in new.notes)


def test_dates_whose_rows_are_held_out_at_random_are_told() -> None:
    read = table.read(FRAME, "y", dates=True)
    assert sum("rows are held out at random; to predict later rows, --time sold" in note for note in read.notes) == 1


def walk(seed: int, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """A level that drifts, seen by the time, and an effect of another column."""
    random = np.random.default_rng(seed)
    x = random.normal(size=rows)
    level = np.cumsum(0.15 * random.normal(size=rows))
    return np.column_stack([x, np.arange(rows)]), level + x + 0.3 * random.normal(size=rows)


@pytest.mark.stress
def test_a_table_of_a_drifting_level_promises_what_later_rows_get() -> None:
    given: dict[str, Any] = {"steps": 300, "progress": False}
    gaps: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(3):
        x, y = walk(seed)
        for timed, of in gaps.items():
            time = np.arange(240) if timed else None
            found = lamu.fit_table(x[:240], y[:240], lamu.likelihoods.Gaussian(), time=time, **given)
            of.append(lamu.scores.nll(found.posterior.predict(x[240:]), y[240:]) - found.stacked_nll)
    assert np.median(gaps[False]) > 0.3
    assert np.median(gaps[True]) < np.median(gaps[False]) - 0.2
