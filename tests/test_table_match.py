"""Tables to predict: read as the table was that the model was fitted on."""

from __future__ import annotations

from pathlib import Path

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


def test_labels_that_look_like_numbers_stay_text(tmp_path):
    fitted = Encoding("target", "binary", ("01", "x"), ("a",))
    assert table.match(csv_file(tmp_path, "a,target\n1,01\n2,01\n"), fitted).y.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,target\n1,yes\n", "lacks the column 'b' that the model was fitted on"),
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
