"""Tables to learn from: what the target's type decides, and one sentence for each way a file can be wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lamu import data
from lamu.data import DataError, Encoding, table

ROWS = 30
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(ROWS, 2))


def csv_file(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def csv_table(folder: Path, target, header: str = "a,b,target", name: str = "table.csv") -> Path:
    rows = [f"{a:.6f},{b:.6f},{value}" for (a, b), value in zip(FEATURES, target, strict=True)]
    return csv_file(folder, "\n".join([header, *rows]) + "\n", name)


def is_one_sentence(message: str) -> bool:
    return "\n" not in message and 20 < len(message) < 400


@pytest.mark.parametrize(
    ("target", "task", "labels", "noted"),
    [
        (["no", "yes"], "binary", ("no", "yes"), False),
        (["TRUE", "FALSE"], "binary", (False, True), False),
        ([2, 4], "binary", (2, 4), False),
        (["cat", "ant", "bee"], "classes", ("ant", "bee", "cat"), False),
        ([3, 1, 2], "classes", (1, 2, 3), True),
        ([0.5, 1.5, 2.5], "regression", (), False),
        ([1.0, 2.0, 3.0], "regression", (), True),
        (list(range(ROWS)), "regression", (), False),
    ],
)
def test_the_targets_type_decides_the_task(tmp_path, target, task, labels, noted):
    values = [target[index % len(target)] for index in range(ROWS)]
    read = table.read(csv_table(tmp_path, values), "target")
    assert replace(read.encoding, ranges=()) == Encoding("target", task, labels, ("a", "b"))
    assert [type(label) for label in read.encoding.labels] == [type(label) for label in labels]
    np.testing.assert_allclose(read.x, FEATURES, atol=1e-6)
    assert bool(read.notes) == noted
    assert all("--task" in note for note in read.notes)
    if labels:
        assert read.y.dtype == np.int32
        assert [str(value).upper() for value in read.encoding.decode(read.y)] == [
            str(value).upper() for value in values
        ]
    else:
        np.testing.assert_allclose(read.y, values)


@pytest.mark.parametrize(
    ("target", "task", "labels"),
    [
        ([3, 1, 2], "regression", ()),
        ([1.0, 2.0], "binary", (1, 2)),
        ([0, 1], "classes", (0, 1)),
        ([0, 1], "regression", ()),
        ([f"word{index}" for index in range(ROWS)], "classes", tuple(sorted(f"word{index}" for index in range(ROWS)))),
    ],
)
def test_the_task_can_be_overridden(tmp_path, target, task, labels):
    read = table.read(csv_table(tmp_path, [target[index % len(target)] for index in range(ROWS)]), "target", task)
    assert (read.encoding.task, read.encoding.labels, read.notes) == (task, labels, ())


def test_other_separators_a_byte_order_mark_and_nameless_columns_are_read(tmp_path):
    rows = [f'{index};{a:.6f};"{b:.6f}";{index % 2}' for index, (a, b) in enumerate(FEATURES)]
    path = csv_file(tmp_path, "\ufeff" + "\n".join(['"";a;"b, in cm";target', *rows]))
    read = table.read(path, "target")
    assert read.encoding.columns == ("a", "b, in cm")
    assert read.notes == ("left out 1 column without a name",)
    np.testing.assert_allclose(read.x, FEATURES, atol=1e-6)


@pytest.mark.parametrize("keys", [("X", "y"), ("x", "Y")])
def test_an_npz_file_is_a_table(tmp_path, keys):
    path = tmp_path / "table.npz"
    np.savez(path, **{keys[0]: FEATURES, keys[1]: np.arange(ROWS)[:, None] % 2, "train_idx": np.arange(3)})
    read = table.read(path)
    assert replace(read.encoding, ranges=()) == Encoding("y", "binary", (0, 1), ("x0", "x1"))
    assert read.notes == ("ignored the array 'train_idx'",)
    np.savez(path, X=FEATURES.astype(np.float32), y=np.where(np.arange(ROWS) % 2, "dog", "cat"))
    assert table.read(path, "y").encoding.labels == ("cat", "dog")


@pytest.mark.parametrize("name", data.names())
def test_bundled_sets_are_tables(name):
    read = table.read(name)
    x, y = data.load(name)
    np.testing.assert_array_equal(read.x.astype(np.float32), x)
    np.testing.assert_array_equal(read.y.astype(y.dtype), y)
    assert read.encoding.target == "target"


def good(rows: int = 10) -> str:
    return "a,b,target\n" + "".join(f"{index},{index + 1},{index % 2}\n" for index in range(rows))


def column(*pair: str, target: tuple[str, str] = ("0", "1")) -> str:
    return "a,target\n" + "".join(f'"{pair[i % 2]}",{target[i % 2]}\n' for i in range(10))


def many(text: str, other: str = "", every: int = 100) -> str:
    cells = [(other if other and i % every == 0 else text).format(i) for i in range(60)]
    return "a,target\n" + "".join(f"{cell},{i % 2}\n" for i, cell in enumerate(cells))


def wide(columns: int) -> str:
    names = ",".join(f"c{i}" for i in range(columns))
    return f"{names},target\n" + f"{',' * columns}1\n{','.join('2' * columns)},2\n" * 5


REFUSED = {
    "no file": (None, "target", None, "there is no file"),
    "empty": ("", "target", None, "is empty"),
    "blank header": ("\n1,2\n", "target", None, "empty first line"),
    "no header": ("1.0,2.0,3\n1.0,2.0,4\n", "target", None, "no header but begins with '1.0,2.0,3'"),
    "same column twice": ("a,a,target\n1,2,3\n", "target", None, "more than one column 'a'"),
    "header only": ("a,b,target\n", "target", None, "0 rows of data"),
    "few rows": (good(4), "target", None, "4 rows of data, too few to learn from"),
    "one row": (good(1), "target", None, "has 1 row of data, too few to learn from; give at least 5"),
    "unknown target": (good(), "targte", None, r"no column 'targte' .* did you mean 'target'\?"),
    "no target": (good(), None, None, "name one of 'a', 'b', 'target'"),
    "unknown task": (good(), "target", "regresion", r"no task 'regresion'; did you mean 'regression'\?"),
    "only a target": ("target\n" + "1\n2\n" * 5, "target", None, "no column but the target"),
    "words": (
        good() + "5,six,1\n",
        "target",
        None,
        r"has 'six' in row 10 \(the first is 0\) of the column 'b', which is of numbers",
    ),
    "two columns of words": (
        good() + "five,six,1\n",
        "target",
        None,
        "has 'five' in row 10 .* of the column 'a', which is of numbers; correct it",
    ),
    "missing": (good() + ",,1\n2,,\n", "target", None, r"columns 'a' \(1\), 'b' \(2\), 'target' \(1\)"),
    "nan": (good() + "nan,1,1\n", "target", None, r"missing values in the column 'a' \(1\)"),
    "infinite": (
        good() + "inf,1,1\n",
        "target",
        None,
        r"has inf in row 10 \(the first is 0\) of the column 'a'; replace it",
    ),
    "infinite target": (good() + "1,1,-inf\n", "target", None, "is -inf in row 10 .* infinite in 1 row"),
    "constant": ("a,target\n" + "1,7\n2,7\n" * 5, "target", None, "is 7 in every row"),
    "one class": ("a,target\n" + "1,cat\n2,cat\n" * 5, "target", None, "is 'cat' in every row"),
    "identifiers": ("a,target\n" + "".join(f"1,n{i}\n" for i in range(21)), "target", None, "21 different texts"),
    "text as numbers": (
        "a,target\n" + "1,cat\n2,dog\n" * 5,
        "target",
        "regression",
        "has 'cat' in row 0 .* regression needs numbers",
    ),
    "dates": (
        column("2019-03-31", "2020-12-01"),
        "target",
        None,
        "'a' of dates or times such as '2019-03-31'; turn it",
    ),
    "times": (
        column("2019-03-31T12:30:00Z", "2019-03-31 12:30"),
        "target",
        None,
        r"dates or times .* with --dates, or drop it",
    ),
    "local dates": (column("31.3.2019", "1.4.2019"), "target", None, "column 'a' of dates or times such as '1.4.2019'"),
    "short dates": (column("3/31/19", "12/1/19"), "target", None, "column 'a' of dates or times such as '12/1/19'"),
    "months": (column("31 Mar 2019", "May 2020"), "target", None, "column 'a' of dates or times such as '31 Mar 2019'"),
    "hours": (column("12:30", "8:05 am"), "target", None, "column 'a' of dates or times"),
    "date target": (
        column("1", "2", target=("2019-03", "2020-04")),
        "target",
        None,
        "column 'target' of dates or times",
    ),
    "names": (
        many("name{}"),
        "target",
        None,
        "60 different texts in 60 rows of the column 'a', such as 'name0', .* drop",
    ),
    "mostly numbers": (many("{}.5", "n{}", 4), "target", None, "has 'n0' in row 0 .* of the column 'a', which is of"),
    "words among numbers": (many("{}", "?", 30), "target", None, r"column 'a' \(2, among them '\?'\); drop"),
    "word in the target": (
        good(3) + "1,2,none\n" + "1,2,3\n" * 40,
        "target",
        None,
        "'none' in row 3 .* 'target', which",
    ),
    "no value": ("a,b,target\n" + ",1,1\n,2,2\n" * 5, "target", None, r"column 'a' \(10\)"),
    "many missing": (wide(40), "target", None, r"'c9' \(5\) and 30 more; drop those rows or columns"),
    "three of two": ("a,target\n" + "1,1\n2,2\n3,3\n" * 5, "target", "binary", "has 3 distinct values"),
    "real classes": ("a,target\n" + "1,0.5\n2,1.5\n" * 5, "target", "classes", "the value 0.5, which is not a class"),
    "ragged": (good() + "1,2,3,4,5\n", "target", None, "not a regular table"),
    "short row": (good() + "1,2\n", "target", None, "has 2 fields in row 10 .* where its header has 3"),
    "long rows": ("a,target\n" + "1,2,3\n4,5,6\n" * 5, "target", None, "rows of more fields than its header's 2"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_table_is_refused_in_one_sentence(tmp_path, fault):
    text, target, task, sentence = REFUSED[fault]
    path = tmp_path / "table.csv" if text is None else csv_file(tmp_path, text)
    with pytest.raises(DataError, match=sentence) as caught:
        table.read(path, target, task)
    assert is_one_sentence(str(caught.value).replace(str(tmp_path), ""))


def test_other_files_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        table.read(tmp_path, "target")
    with pytest.raises(
        DataError, match=r"unknown type '\.xlsx'; give a \.csv, \.tsv, \.parquet, \.arrow, \.feather or \.npz file"
    ):
        table.read(csv_file(tmp_path, "x", "table.xlsx"), "target")
    with pytest.raises(DataError, match=r"no bundled set 'digit'; did you mean 'digits'\?"):
        table.read("digit", "target")
    with pytest.raises(DataError, match=r"not an \.npz file of plain arrays"):
        table.read(csv_file(tmp_path, "words", "table.npz"), "y")
    (tmp_path / "latin.csv").write_bytes(b"a,b\n1,\xe9\n")
    with pytest.raises(DataError, match="not text in UTF-8"):
        table.read(tmp_path / "latin.csv", "b")
    for arrays, sentence in [
        ({"features": FEATURES}, "has the arrays 'features' and no 'X'"),
        ({"X": FEATURES[None]}, r"X in .* has the shape \(1, 30, 2\)"),
        ({"X": FEATURES, "y": np.ones(3)}, "give one target a row"),
        ({"X": np.array([[None]]), "y": np.ones(1)}, "plain arrays"),
    ]:
        np.savez(tmp_path / "table.npz", **arrays)
        with pytest.raises(DataError, match=sentence) as caught:
            table.read(tmp_path / "table.npz", "y")
        assert is_one_sentence(str(caught.value).replace(str(tmp_path), ""))
