"""Tables to predict: read as the table was that the model was fitted on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lamu.data import DataError, Encoding, table
from lamu.record import decode, encode


def csv_file(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def is_one_sentence(message: str) -> bool:
    return "\n" not in message and 20 < len(message) < 400


def test_a_table_is_matched_by_name_and_extra_columns_are_named(tmp_path):
    fitted = Encoding("target", "binary", ("no", "yes"), ("a", "b"))
    path = csv_file(tmp_path, "b,extra,target,a\n2,word,yes,1\n4,word,no,3\n")
    matched = table.match(path, fitted)
    assert matched.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert matched.y.tolist() == [1, 0]
    assert matched.notes == ("ignored the extra column 'extra'",)


def test_a_table_to_predict_needs_no_target(tmp_path):
    fitted = Encoding("target", "regression", (), ("a", "b"))
    assert table.match(csv_file(tmp_path, "a,b\n1,2\n"), fitted).y is None
    assert table.match(csv_file(tmp_path, "a,b,target\n1,2,\n3,4,\n"), fitted).y is None
    assert table.match(csv_file(tmp_path, "a,b,target\n1,2,5\n"), fitted).y.tolist() == [5.0]


def test_a_lacking_column_is_missing_in_every_row_where_missing_values_are_filled(tmp_path):
    rows = "".join(f"{number},{'xyz'[number % 3]},{number % 5},{number % 7}\n" for number in range(30))
    fitted = table.read(csv_file(tmp_path, "a,b,c,target\n" + rows), "target", impute=True).encoding
    empty = table.match(csv_file(tmp_path, "a,b,c\n1,,\n2,,\n"), fitted)
    lacking = table.match(csv_file(tmp_path, "a\n1\n2\n"), fitted)
    assert "table.csv' lacks the columns 'b', 'c', whose values are taken as missing in every row" in lacking.notes[0]
    np.testing.assert_array_equal(lacking.x, empty.x)
    np.testing.assert_array_equal(lacking.features.values, empty.features.values)
    with pytest.raises(DataError, match="lacks the columns 'a', 'b', 'c' that"):
        table.match(csv_file(tmp_path, "d\n1\n"), fitted)


def test_labels_that_look_like_numbers_stay_text(tmp_path):
    fitted = Encoding("target", "binary", ("01", "x"), ("a",))
    assert table.match(csv_file(tmp_path, "a,target\n1,01\n2,01\n"), fitted).y.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,target\n1,yes\n", "its columns are 'a', 'target'; add it, with empty cells where values"),
        ("a,b,target\n", "a header and no rows"),
        ("a,b,target\n1,2,maybe\n", "the value 'maybe', which is none of the classes 'no', 'yes'"),
        ("a,b,target\n1,two,yes\n", "has 'two' in row 0 .* of the column 'b', which is of numbers"),
        ("a,b,target\n1,,yes\n", r"missing values in the column 'b' \(1\)"),
        ("a,b,target\n1,2,yes\n1,2,\n", r"missing values in the column 'target' \(1\)"),
    ],
)
def test_a_table_to_predict_is_refused_in_one_sentence(tmp_path, text, sentence):
    fitted = Encoding("target", "binary", ("no", "yes"), ("a", "b"))
    with pytest.raises(DataError, match=sentence) as caught:
        table.match(csv_file(tmp_path, text), fitted)
    assert is_one_sentence(str(caught.value).replace(str(tmp_path), ""))


def test_an_encoding_is_saved_and_read():
    fitted = Encoding("target", "classes", ("a", "b", "c"), ("x0",))
    assert decode(encode(fitted, {}), {}) == fitted


FRAME = pd.DataFrame(
    {
        "flag": [True, False, True] * 10,
        "code": [1, 2, 3] * 10,
        "bit": [0, 1] * 15,
        "cost": np.linspace(1.0, 2.0, 30),
        "day": [f"2024-01-{day:02d}" for day in range(1, 31)],
        "y": np.sin(np.arange(30.0)),
    }
)
FITTED = table.read(FRAME, "y", dates=True, categories=["code"])


@pytest.mark.parametrize(
    ("column", "spelled"),
    [
        ("flag", lambda values: values.astype(int)),
        ("flag", lambda values: values.astype(float)),
        ("flag", lambda values: values.astype(int).astype(str)),
        ("flag", lambda values: values.astype(str).str.upper()),
        ("flag", lambda values: values.astype("boolean")),
        ("code", lambda values: values.astype(float).astype(str)),
        ("code", lambda values: values.astype(float)),
        ("code", lambda values: pd.Categorical(values, [3, 1, 2])),
        ("bit", lambda values: values == 1),
        ("bit", lambda values: (values == 1).astype(str).str.lower()),
        ("day", lambda values: pd.to_datetime(values).dt.strftime("%d.%m.%Y")),
        ("day", pd.to_datetime),
    ],
)
def test_values_that_a_later_table_spells_otherwise_are_the_same(column: str, spelled: Callable[..., Any]) -> None:
    """Truth values as 0 and 1, codes as 1.0 and days before months were new values, an error, and other days."""
    later = table.match(FRAME.assign(**{column: spelled(FRAME[column])}), FITTED.encoding)
    assert np.array_equal(later.x, FITTED.x)
    assert not any("training did not have" in note for note in later.notes)


def test_dates_whose_day_may_be_the_month_are_refused_in_later_tables_too() -> None:
    with pytest.raises(
        DataError, match=r"has dates such as '01\.02\.2024' in the column 'day', of which day and month"
    ):
        table.match(FRAME.assign(day="01.02.2024"), FITTED.encoding)


def test_a_column_in_another_unit_is_told() -> None:
    encoding = Encoding.of(FITTED.encoding.describe())
    told = [note for note in table.match(FRAME.assign(cost=1000 * FRAME["cost"]), encoding).notes if "unit" in note]
    assert told == [
        "the column 'cost' runs from 1000 to 2000 here, and from 1 to 2 in training; check its unit, as predictions so "
        "far outside are extrapolated"
    ]
    assert table.match(FRAME.assign(cost=FRAME["cost"] + 0.9), encoding).notes == ()


@pytest.mark.parametrize("dtype", [bool, int])
def test_dummy_columns_that_are_all_zero_are_told(dtype: type) -> None:
    """A category that training did not have was all zeros in silence."""
    frame = pd.get_dummies(FRAME[["cost", "code", "y"]], columns=["code"], dtype=dtype)
    fitted = table.read(frame, "y").encoding
    assert fitted.one_hot == (("code_1", "code_2", "code_3"),)
    later = frame.assign(code_2=dtype(0))
    (note,) = table.match(later, Encoding.of(fitted.describe())).notes
    assert "'code_3', of which each training row has exactly one, are all zero in 10 of 30 rows; a new category" in note
    assert table.match(frame, fitted).notes == ()
    assert table.read(frame.assign(code_3=frame["code_2"]), "y").encoding.one_hot == ()


@pytest.mark.parametrize("kind", [bool, int])
@pytest.mark.parametrize("spelled", [str, lambda value: str(value == 1), lambda value: str(value == 1).lower(), float])
def test_truth_values_of_a_target_may_be_spelled_otherwise_too(kind: type, spelled: Callable[..., Any]) -> None:
    frame = FRAME[["cost"]].assign(y=FRAME["bit"].astype(kind))
    fitted = table.read(frame, "y")
    later = table.match(frame.assign(y=[spelled(value) for value in frame["y"].tolist()]), fitted.encoding)
    assert later.y.tolist() == FRAME["bit"].tolist()
