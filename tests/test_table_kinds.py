"""Columns of every kind: words as levels, missing values filled from training rows alone, Parquet beside CSV."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lamu.data import DataError, Encoding, sources, table
from lamu.data.table import Table

NAN = float("nan")
ROWS = 12


def csv_file(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def frame_file(folder: Path, **columns) -> Path:
    frame = pd.DataFrame({name: values * (ROWS // len(values)) for name, values in columns.items()})
    if "target" not in columns:
        frame["target"] = [0.5, 1.5, 2.5] * (ROWS // 3)
    path = folder / "table.parquet"
    frame.to_parquet(path)
    return path


def again(encoding: Encoding) -> Encoding:
    return Encoding.of(json.loads(json.dumps({"seed": 0, **encoding.describe()})))


PETS = """size,pet,indoors,target
1.5,dog,TRUE,1
2.5, cat,FALSE,2
3.5,dog ,TRUE,3
4.5,"ox, red",TRUE,4
5.5,cat,FALSE,5.5
6.5,dog,TRUE,6
"""


# Words


def test_words_are_positions_among_their_sorted_levels(tmp_path):
    read = table.read(csv_file(tmp_path, PETS), "target")
    assert read.encoding.levels == ((), ("cat", "dog", "ox, red"), ("False", "True"))
    assert read.encoding.cardinalities == (0, 3, 2)
    assert read.encoding.names == ("size", "pet", "indoors")
    np.testing.assert_array_equal(
        read.x, [[1.5, 2, 2], [2.5, 1, 1], [3.5, 2, 2], [4.5, 3, 2], [5.5, 1, 1], [6.5, 2, 2]]
    )
    assert read.x.dtype == np.float64
    assert read.notes == ()


def test_a_level_that_no_training_row_has_is_unknown(tmp_path):
    read = table.read(csv_file(tmp_path, PETS), "target").refit(np.array([0, 1, 2, 4]))
    assert read.encoding.levels == ((), ("cat", "dog"), ("False", "True"))
    assert read.x[:, 1].tolist() == [2, 1, 2, 0, 1, 2]
    assert read.notes == (
        "the column 'pet' has values that training did not have: 'ox, red' (1); each is predicted as a new draw from "
        "the 2 known values, with a wider interval",
    )


def test_new_words_at_prediction_are_unknown_and_counted(tmp_path):
    fitted = again(table.read(csv_file(tmp_path, PETS), "target").encoding)
    rows = "".join(f"dog,1,{word}\n" for word in ["true", "False", "maybe"])
    matched = table.match(csv_file(tmp_path, f"pet,size,indoors\n{rows}emu,2,TRUE\nemu,2,TRUE\n1,2,TRUE\n"), fitted)
    np.testing.assert_array_equal(matched.x[:, 1], [2, 2, 2, 0, 0, 0])
    np.testing.assert_array_equal(matched.x[:, 2], [2, 1, 0, 2, 2, 2])
    assert matched.notes == (
        "the column 'pet' has values that training did not have: '1' (1), 'emu' (2); each is predicted as a new draw "
        "from the 3 known values, with a wider interval",
        "the column 'indoors' has values that training did not have: 'maybe' (1); each is predicted as a new draw from "
        "the 2 known values, with a wider interval",
    )


def test_words_that_look_like_numbers_stay_words(tmp_path):
    rows = "".join(f"{code},{i / 2}\n" for i, code in enumerate(["0", "1", "3+", "01"] * 3))
    read = table.read(csv_file(tmp_path, "code,target\n" + rows), "target")
    assert read.encoding.levels == (("0", "01", "1", "3+"),)
    assert read.notes == ("the column 'code' has codes with leading zeros such as '01', taken as categories",)
    matched = table.match(csv_file(tmp_path, "code\n01\n0\n1\n"), read.encoding)
    assert matched.x[:, 0].tolist() == [2, 1, 3]
    assert matched.notes == ()


@pytest.mark.parametrize("codes", [["2019", "2020"], ["A12", "B-7"], ["1.2.3", "1-2"], ["12", "13-14-15"]])
def test_numbers_and_codes_are_no_dates(tmp_path, codes):
    rows = "".join(f"{codes[i % 2]},{i / 2}\n" for i in range(ROWS))
    assert table.read(csv_file(tmp_path, "a,target\n" + rows), "target").x.shape == (ROWS, 1)


def test_many_levels_are_no_identifiers_where_rows_share_them(tmp_path):
    rows = "".join(f"name{i % 60},{i / 2}\n" for i in range(120))
    assert table.read(csv_file(tmp_path, "a,target\n" + rows), "target").encoding.cardinalities == (60,)
    rows = "".join(f"name{i},{i / 2}\n" for i in range(50))
    assert table.read(csv_file(tmp_path, "a,target\n" + rows), "target").encoding.cardinalities == (50,)


@pytest.mark.parametrize("labels", [(0, 2**40), (-(2**70), 2**70), (2**63, 2**63 + 1)])
def test_large_labels_are_classes_without_overflow(tmp_path, labels):
    rows = "".join(f"{i},{labels[i % 2]}\n" for i in range(ROWS))
    read = table.read(csv_file(tmp_path, "a,target\n" + rows), "target")
    assert (read.encoding.task, read.encoding.labels) == ("binary", labels)
    assert read.y.tolist() == [0, 1] * 6
    assert read.y.dtype == np.int32
    assert read.encoding.decode(read.y).tolist() == list(labels) * 6
    assert table.match(tmp_path / "table.csv", again(read.encoding)).y.tolist() == [0, 1] * 6


def test_numbers_beyond_any_float_are_refused(tmp_path):
    rows = "".join(f"{i}{'0' * 400},{i / 2}\n" for i in range(1, ROWS))
    with pytest.raises(DataError, match="'a'"):
        table.read(csv_file(tmp_path, "a,target\n" + rows), "target")


def test_a_count_that_one_row_has_makes_whole_numbers_a_regression(tmp_path):
    rows = "".join(f"{i},{count}\n" for i, count in enumerate([0, 0, 1, 1, 2, 2, 3]))
    read = table.read(csv_file(tmp_path, "a,target\n" + rows), "target")
    assert read.encoding.task == "regression"
    assert read.notes == ("the target 'target' has 4 whole values, taken as regression; --task classes overrides",)
    assert table.read(csv_file(tmp_path, "a,target\n" + rows), "target", "classes").encoding.labels == (0, 1, 2, 3)


# Missing values


GAPS = """age,town,height,target
1,rome,10,1
2,,20,2
,paris,30,3
100,rome,40,4
3,NA,50,5.5
,oslo,null,6
"""


def gaps(folder: Path) -> Table:
    return table.read(csv_file(folder, GAPS), "target", impute=True)


def test_missing_values_are_filled_when_that_is_asked(tmp_path):
    read = gaps(tmp_path)
    assert read.encoding.names == (
        *("age", "town", "height"),
        *("age is missing", "town is missing", "height is missing"),
    )
    assert read.encoding.fills == (2.5, None, 30.0)
    assert read.encoding.levels == ((), ("oslo", "paris", "rome"), ())
    assert read.encoding.cardinalities == (0, 3, 0, 0, 0, 0)
    expected = np.array(
        [
            [1, 3, 10, 0, 0, 0],
            [2, 0, 20, 0, 1, 0],
            [2.5, 2, 30, 1, 0, 0],
            [100, 3, 40, 0, 0, 0],
            [3, 0, 50, 0, 1, 0],
            [2.5, 1, 30, 1, 0, 1],
        ]
    )
    drawn = np.zeros((6, 6), bool)
    drawn[[1, 2, 4, 5, 5], [1, 0, 1, 0, 2]] = True
    np.testing.assert_array_equal(read.x[~drawn], expected[~drawn])
    np.testing.assert_array_equal(read.with_medians().x, expected)
    assert (read.x[drawn] >= [1, 1, 1, 1, 10]).all()
    assert (read.x[drawn] <= [3, 100, 3, 100, 50]).all()
    assert set(read.x[:, 1]) <= {1, 2, 3}  # a missing town is one of those that training rows have
    assert read.notes == (
        "filled the missing values of 'age' (2 by draws given the rest of their rows), 'town' (2 by draws given the "
        "rest of their rows), 'height' (1 by draws given the rest of their rows); columns of their own mark where "
        "values were missing",
    )


def test_nothing_of_the_test_rows_is_learned(tmp_path):
    """Other test rows leave what training rows become, and what was learned, as it was."""
    train, first = [0, 2, 4], gaps(tmp_path).refit([0, 2, 4])
    other = GAPS.replace("2,,20", "9,,90").replace("100,rome", "-7,bern").replace(",oslo,null", "5,oslo,60")
    second = table.read(csv_file(tmp_path, other), "target", impute=True).refit(train)
    assert first.encoding == second.encoding
    assert first.encoding.fills == (2.0, None, 30.0)
    assert first.encoding.indicators == ("age", "town")
    assert first.encoding.levels[1] == ("paris", "rome")
    np.testing.assert_array_equal(first.x[train], second.x[train])
    assert not np.isnan(first.x).any()
    assert first.with_medians().x[5].tolist() == [2, 0, 30, 1, 0]


def test_a_table_to_predict_is_filled_by_what_training_had(tmp_path):
    fitted = again(gaps(tmp_path).refit([0, 2, 3]).encoding)
    assert fitted.imputes
    matched = table.match(csv_file(tmp_path, "age,town,height\n,rome,NaN\n7,,\n"), fitted)
    np.testing.assert_array_equal(matched.with_medians().x, [[50.5, 2, 30, 1], [7, 0, 30, 0]])
    assert matched.notes == (
        "filled the missing values of 'age' (1 by draws given the rest of their rows), 'town' (1 by draws given "
        "the rest of their rows), 'height' (2 by draws given the rest of their rows); columns of their own mark where "
        "values were missing",
    )
    found = matched.completions(slice(None))
    assert set(found.x[found.row == 1, 1]) == {1.0, 2.0}  # towns that training had, half of its rows each


@pytest.mark.parametrize("impute", [False, True])
def test_a_missing_target_is_refused_with_its_count(tmp_path, impute):
    text = GAPS.replace("30,3", "30,").replace("40,4", "40,nan")
    way = "drop those rows, since a target" if impute else "drop .* a target is never filled: drop the rows without it"
    with pytest.raises(DataError, match=rf"'target' \(2\); {way}"):
        table.read(csv_file(tmp_path, text), "target", impute=impute)


def test_missing_values_are_refused_where_nobody_asked(tmp_path):
    with pytest.raises(
        DataError, match=r"'age' \(2\), 'town' \(2\), 'height' \(1\); drop .* or fill them with --impute"
    ):
        table.read(csv_file(tmp_path, GAPS), "target")
    fitted = table.read(csv_file(tmp_path, PETS), "target").encoding
    with pytest.raises(DataError, match=r"'size' \(1\), 'pet' \(1\); fill them or drop .* or fit with --impute"):
        table.match(csv_file(tmp_path, "size,pet,indoors\n,,TRUE\n"), fitted)
    with pytest.raises(DataError, match="'age' has no value in any of the 2 rows to learn from; drop it"):
        gaps(tmp_path).refit([2, 5])


def test_the_word_none_is_a_level(tmp_path):
    rows = "".join(f"{word},{i / 2}\n" for i, word in enumerate(["None", "mild", "severe"] * 3))
    assert table.read(csv_file(tmp_path, "a,target\n" + rows), "target").encoding.levels[0] == (
        "None",
        "mild",
        "severe",
    )


# Files


def test_parquet_says_what_csv_says(tmp_path):
    frame = pd.read_csv(csv_file(tmp_path, PETS), skipinitialspace=True)
    frame.index = pd.Index([7, 9, 2, 4, 8, 1])
    frame.to_parquet(tmp_path / "table.parquet")
    left, right = (table.read(tmp_path / f"table.{kind}", "target") for kind in ("csv", "parquet"))
    assert left.encoding == right.encoding
    np.testing.assert_array_equal(left.x, right.x)
    np.testing.assert_array_equal(table.match(tmp_path / "table.parquet", left.encoding).x, left.x)
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(PETS.encode()))
    assert table.read(tmp_path / "table.csv.gz", "target").encoding == left.encoding
    frame.to_csv(tmp_path / "table.tsv", sep="\t", index=False)
    assert table.read(tmp_path / "table.tsv", "target").encoding == left.encoding


@pytest.mark.parametrize("kind", ["arrow", "feather", "stream.arrow"])
def test_arrow_says_what_csv_says(tmp_path, kind):
    frame = pd.read_csv(csv_file(tmp_path, PETS), skipinitialspace=True)
    frame.index = pd.Index([7, 9, 2, 4, 8, 1])
    content, path = pa.Table.from_pandas(frame), tmp_path / f"table.{kind}"
    writer = pa.ipc.new_stream if kind == "stream.arrow" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, writer(file, content.schema) as out:
        for batch in content.to_batches(max_chunksize=4):
            out.write_batch(batch)
    left, right = table.read(tmp_path / "table.csv", "target"), table.read(path, "target")
    assert left.encoding == right.encoding
    np.testing.assert_array_equal(left.x, right.x)
    np.testing.assert_array_equal(table.match(path, left.encoding).x, left.x)


def test_arrow_files_that_are_refused(tmp_path):
    path = tmp_path / "table.arrow"
    pd.DataFrame({"a": [1.0, 2.0], "y": [1.0, 3.0]}).to_feather(path)
    path.write_bytes(path.read_bytes()[:90])
    with pytest.raises(DataError, match=r"table\.arrow' is not a whole Arrow file \("):
        table.read(path, "y")
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, twice.schema) as out:
        out.write_table(twice)
    with pytest.raises(DataError, match="more than one column 'a'"):
        table.read(path, "a")


def test_parquet_columns_of_many_types(tmp_path):
    path = frame_file(
        tmp_path,
        whole=[1, 2, 3],
        gone=[None, 2, 3],
        price=[decimal.Decimal("1.50"), decimal.Decimal("2"), None],
        grade=[3, 1, 2],
        truth=[True, False, None],
    )
    frame = pd.read_parquet(path)
    frame["grade"] = frame["grade"].astype("category")
    frame.to_parquet(path)
    read = table.read(path, "target", impute=True)
    assert read.encoding.levels == ((), (), (), ("1", "2", "3"), ("False", "True"))
    np.testing.assert_array_equal(
        read.with_medians().x[:3],
        [[1, 2.5, 1.5, 3, 2, 1, 0, 0], [2, 2, 2, 1, 1, 0, 0, 0], [3, 3, 1.75, 2, 0, 0, 1, 1]],
    )
    fitted = table.read(frame_file(tmp_path, a=["1", "2", "3.5"]), "target")
    assert fitted.x[:3, 0].tolist() == [1, 2, 3.5]
    assert fitted.notes == ("the column 'a' is text and holds only numbers, taken as numbers",)


def test_parquet_without_pyarrow_is_refused_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("lamu.data.sources.find_spec", lambda name: None)
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"table\.parquet' needs pyarrow, .* run pip install \"lamu\[arrow\]\""):
        table.read(tmp_path / "table.parquet", "target")


def test_words_of_parquet_are_those_of_csv(tmp_path):
    read = table.read(frame_file(tmp_path, a=["x ", " NA", "y"], b=["1", "2", "3+"]), "target", impute=True)
    assert read.encoding.levels == (("x", "y"), ("1", "2", "3+"))
    pd.DataFrame({"a": ["y", "", "x"], "b": [1.0, 2.0, 3.5]}).to_parquet(tmp_path / "new.parquet")
    matched = table.match(tmp_path / "new.parquet", read.encoding)
    np.testing.assert_array_equal(matched.with_medians().x, [[2, 1, 0], [0, 2, 1], [1, 0, 0]])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([datetime.datetime(2019, 3, 31), datetime.datetime(2020, 1, 1)], "'a' of dates or times such as '2019-03-31"),
        ([datetime.date(2019, 3, 31), None], "'a' of dates or times such as '2019-03-31'; turn it into numbers"),
        ([datetime.timedelta(1), datetime.timedelta(2)], "'a' of dates or times such as '1 day"),
        ([[1], [2, 3]], "the column 'a' of mixed objects, which are neither numbers nor text; drop it"),
        ([b"raw", b"data"], "the column 'a' of bytes, which are"),
        ([1.0, -np.inf], r"has -inf in row 1 .* of the column 'a', the first of 6 infinite values"),
    ],
    ids=["moments", "dates", "spans", "lists", "bytes", "infinite"],
)
def test_parquet_columns_that_are_refused(tmp_path, values, sentence):
    with pytest.raises(DataError, match=sentence):
        table.read(frame_file(tmp_path, a=values), "target")


def test_broken_files_are_refused_in_one_sentence(tmp_path):
    path = frame_file(tmp_path, a=[1, 2])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"is not a whole Parquet file .* write it again") as caught:
        table.read(path, "target")
    assert "\n" not in str(caught.value)
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(PETS.encode())[:-20])
    with pytest.raises(DataError, match="compressed file that ends too early"):
        table.read(tmp_path / "table.csv.gz", "target")
    (tmp_path / "table.csv.gz").write_bytes(PETS.encode())
    with pytest.raises(DataError, match=r"is a damaged compressed file .* copy it again"):
        table.read(tmp_path / "table.csv.gz", "target")


def test_an_archive_of_words_is_a_table(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([["1.5", "cat"], ["2", "dog"]] * 5), y=np.array([True, False] * 5))
    read = table.read(tmp_path / "t.npz")
    assert read.encoding.levels == ((), ("cat", "dog"))
    assert read.encoding.labels == (False, True)
    assert read.x[:2].tolist() == [[1.5, 1], [2, 2]]


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"task": "classs"}, ValueError),
        ({"levels": [[]]}, ValueError),
        ({"fills": [1.0]}, ValueError),
        ({"indicators": ["weight"]}, ValueError),
        ({"columns": [1, 2, 3]}, TypeError),
        ({"levels": [[], [1], []]}, TypeError),
        ({"target": None}, TypeError),
    ],
)
def test_an_altered_encoding_is_refused(tmp_path, changed, kind):
    described = gaps(tmp_path).encoding.describe()
    assert Encoding.of(described) == gaps(tmp_path).encoding
    with pytest.raises(kind):
        Encoding.of(described | changed)
    with pytest.raises(KeyError):
        Encoding.of({name: value for name, value in described.items() if name != "columns"})


@pytest.mark.parametrize("late", ["2", "2.5", "", "word", "True", "99999999999999999999"])
def test_a_file_that_is_read_in_chunks_is_that_which_is_read_at_once(tmp_path, monkeypatch, late):
    """What a column is may show in its last rows alone."""
    path = tmp_path / "table.csv"
    rows = [f"{i},{i % 3}.5,w{i % 4},{'' if i % 5 else i},{i % 7}" for i in range(40)]
    path.write_text("\n".join(["a,b,c,d,y", *rows, f"{late},1.5,w1,,3"]) + "\n")
    whole = sources.open_source(path).frame
    monkeypatch.setattr(sources, "_LARGE", 0)
    monkeypatch.setattr(sources, "_CHUNK", 7)
    pd.testing.assert_frame_equal(sources.open_source(path).frame, whole)
