"""Dates as numbers when that is asked: ages from the first training row, and phases of the year, week and day."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from lamu.data import DataError, Encoding, table

DAYS = pd.date_range("2019-01-01", periods=30, freq="9D")


def written(path, sold, **options):
    pd.DataFrame({"a": np.arange(30.0), "sold": sold, "y": np.arange(30) / 7}).to_csv(path, index=False)
    return table.read(path, "y", **options)


def test_dates_are_ages_and_phases(tmp_path):
    read = written(tmp_path / "table.csv", DAYS.strftime("%Y-%m-%d"), dates=True)
    names = ["sold (days)", *(f"sold ({wave} of the {of})" for of in ("year", "week") for wave in ("sin", "cos"))]
    assert list(read.encoding.names) == ["a", *names]
    np.testing.assert_allclose(read.x[:, 1], 9.0 * np.arange(30))
    year, week = 2 * np.pi * (DAYS.day_of_year - 1) / 365, 2 * np.pi * DAYS.day_of_week / 7
    expected = [np.sin(year), np.cos(year), np.sin(week), np.cos(week)]
    np.testing.assert_allclose(read.x[:, 2:], np.stack(expected, axis=1), atol=1e-9)


def test_times_have_a_phase_of_the_day(tmp_path):
    stamps = pd.date_range("2019-01-01", periods=30, freq="5h")
    read = written(tmp_path / "table.csv", stamps.strftime("%Y-%m-%dT%H:%M"), dates=True)
    assert read.encoding.names[-2:] == ("sold (sin of the day)", "sold (cos of the day)")
    np.testing.assert_allclose(read.x[:, -1], np.cos(2 * np.pi * stamps.hour / 24), atol=1e-6)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%d %B %Y", "%Y/%m/%d"])
def test_each_way_of_writing_is_the_same_date(tmp_path, form):
    read = written(tmp_path / "table.csv", DAYS.strftime(form), dates=True)
    np.testing.assert_allclose(read.x[:, 1], 9.0 * np.arange(30))


def test_a_parquet_file_says_the_same(tmp_path):
    frame = pd.DataFrame({"sold": DAYS, "y": np.arange(30) / 7})
    frame.to_parquet(tmp_path / "table.parquet")
    np.testing.assert_allclose(table.read(tmp_path / "table.parquet", "y", dates=True).x[:, 0], 9.0 * np.arange(30))


def test_ages_begin_with_the_training_rows_and_are_saved(tmp_path):
    text = list(DAYS.strftime("%m/%d/%Y"))
    fitted = written(tmp_path / "table.csv", text, dates=True).refit(np.arange(5, 25))
    np.testing.assert_allclose(fitted.x[:, 1], 9.0 * (np.arange(30) - 5))
    encoding = Encoding.of(json.loads(json.dumps(fitted.encoding.describe())))
    assert encoding == fitted.encoding
    # A date of which day and month could be told apart in training alone.
    new = tmp_path / "new.csv"
    new.write_text("a,sold\n1,03/04/2019\n", encoding="utf-8")
    assert table.match(new, encoding).x[0, 1] == (pd.Timestamp("2019-03-04") - DAYS[5]).days
    new.write_text("a\n1\n", encoding="utf-8")
    with pytest.raises(DataError, match="lacks the column 'sold' that the model"):
        table.match(new, encoding)


def test_a_missing_date_is_filled_where_that_is_asked(tmp_path):
    text = [None, *DAYS.strftime("%Y-%m-%d")[1:]]
    with pytest.raises(DataError, match="missing values in the columns 'sold \\(days\\)'"):
        written(tmp_path / "table.csv", text, dates=True)
    read = written(tmp_path / "table.csv", text, dates=True, impute=True)
    assert np.isfinite(read.x).all()
    assert "sold (days) is missing" in read.encoding.names


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (list(DAYS.strftime("%Y-%m-%d")), {}, "with --dates, or drop it"),
        ([f"{1 + i % 12:02d}/{1 + i % 12:02d}/2019" for i in range(30)], {"dates": True}, "cannot be told apart"),
        ([f"{1 + i % 12}/{20 + i % 8}/19" for i in range(30)], {"dates": True}, "year with four digits"),
        (
            [f"{i % 24}:30" for i in range(30)],
            {"dates": True},
            "'0:30' in the column 'sold' of dates, which is not a date",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, values, options, message):
    with pytest.raises(DataError, match=message):
        written(tmp_path / "table.csv", values, **options)
