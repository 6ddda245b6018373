"""Arrays, splits, bundled sets and tables: what comes in is right, and what is wrong is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import data
from lamu.data import Arrays, DataError, TargetEncoding, bundled, table
from lamu.record import decode, encode

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


# Bundled sets


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("digits", (1797, 64), 10),
        ("breast_cancer", (569, 30), 2),
        ("diabetes", (442, 10), None),
        ("iris", (150, 4), 3),
        ("wine", (178, 13), 3),
    ],
)
def test_bundled_sets_have_their_shapes_and_dtypes(name, shape, classes):
    x, y = data.load(name)
    assert x.shape == shape
    assert y.shape == shape[:1]
    assert x.dtype == np.float32
    assert len(bundled.columns(name)) == shape[1]
    if classes is None:
        assert y.dtype == np.float32
    else:
        assert y.dtype == np.int32
        assert set(y.tolist()) == set(range(classes))


def test_digits_are_scaled_to_the_unit_interval():
    x, _ = data.load("digits")
    assert x.min() == 0.0
    assert x.max() == 1.0


def test_an_unknown_set_is_met_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"'digit'; did you mean 'digits'\?"):
        data.load("digit")
    with pytest.raises(ValueError, match="choose one of 'breast_cancer', 'diabetes'"):
        data.load("zzzz")


# Splits


def test_a_split_is_a_partition_and_the_same_for_the_same_seed():
    train, test = data.split(103, 0.2, seed=3)
    assert len(test) == 21
    assert sorted([*train, *test]) == list(range(103))
    again, other = data.split(103, 0.2, seed=3), data.split(103, 0.2, seed=4)
    np.testing.assert_array_equal(test, again[1])
    assert not np.array_equal(test, other[1])


def test_a_stratified_split_keeps_the_shares_of_the_classes():
    y = np.repeat([0, 1, 2], [50, 30, 20])
    train, test = data.split(y, 0.2, seed=0, stratify=True)
    np.testing.assert_array_equal(np.bincount(y[test]), [10, 6, 4])
    np.testing.assert_array_equal(np.bincount(y[train]), [40, 24, 16])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rows": 10, "test_size": 0.0}, "test_size is 0.0"),
        ({"rows": 10, "test_size": 1.5}, "test_size is 1.5"),
        ({"rows": 1}, "leave no row to learn from"),
        ({"rows": 10, "stratify": True}, "needs the targets"),
        ({"rows": ["a", "a", "b"], "stratify": True}, "the class 'b' has one row"),
        ({"rows": [0, 0, 1, 1, 2, 2], "stratify": True}, "too few for 3 classes"),
    ],
)
def test_an_impossible_split_is_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        data.split(**arguments)
    assert is_one_sentence(str(caught.value))


# Arrays


def test_arrays_take_pairs_mappings_and_themselves():
    x, y = jnp.ones((3, 2)), jnp.zeros(3)
    pair, mapping = Arrays.of((x, y)), Arrays.of({"x": x, "y": y, "weight": [1, 2, 3]})
    assert pair.count == mapping.count == 3
    assert pair.weight.tolist() == [1.0, 1.0, 1.0]
    assert mapping.weight.tolist() == [1.0, 2.0, 3.0]
    assert mapping.weight.dtype == x.dtype
    assert Arrays.of(pair) is pair


@pytest.mark.parametrize(
    ("x", "y", "x_dtype", "y_dtype"),
    [
        (np.float32, np.float64, np.float32, np.float32),
        (np.float64, np.float32, np.float64, np.float64),
        (np.uint8, np.int32, np.float64, np.int32),
        (bool, bool, np.float64, np.int32),
        (np.float32, np.int64, np.float32, np.int64),
        (np.float32, np.uint8, np.float32, np.int32),
        (jnp.bfloat16, np.float32, jnp.bfloat16, jnp.bfloat16),
    ],
)
@pytest.mark.parametrize("of", [np.ones, jnp.ones])
def test_arrays_keep_floats_and_whole_targets(of, x, y, x_dtype, y_dtype):
    rows = Arrays.of((of((4, 2), x), of(4, y)))
    assert rows.x.dtype == x_dtype
    assert rows.y.dtype == y_dtype
    assert rows.weight.dtype == x_dtype
    assert isinstance(rows.x, jax.Array)


def test_without_64_bits_arrays_are_32_bits_and_large_targets_are_refused():
    with jax.enable_x64(False):
        rows = Arrays.of((np.ones((2, 1)), np.arange(2)))
        assert rows.x.dtype == np.float32
        assert rows.y.dtype == np.int32
        with pytest.raises(ValueError, match="beyond int32, up to 4294967296"):
            Arrays.of((np.ones((2, 1)), np.array([0, 2**32])))
        with pytest.raises(
            ValueError, match=r"x is NaN or infinite in float32 in 1 place, first 1e\+300 in row 1, column 0"
        ):
            Arrays.of((np.array([[0.0], [1e300]]), np.arange(2)))


def test_batches_come_in_order_and_the_last_is_padded_and_masked():
    x = np.arange(14.0).reshape(7, 2)
    rows = Arrays.of({"x": x, "y": np.arange(7), "weight": np.arange(1.0, 8.0)})
    batches = list(rows.batches(3))
    assert [batch.x.shape for batch in batches] == [(3, 2)] * 3
    assert [batch.mask.tolist() for batch in batches] == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    kept = np.concatenate([np.asarray(batch.x)[np.asarray(batch.mask) > 0] for batch in batches])
    np.testing.assert_array_equal(kept, x)
    total = sum(float(batch.total(batch.y.astype(x.dtype))) for batch in batches)
    assert total == float(np.sum(np.arange(7) * np.arange(1.0, 8.0)))
    assert float(rows.full().count) == 7.0
    assert float(rows.full().total(rows.y.astype(x.dtype))) == total


@pytest.mark.parametrize("size", [2, 5, 9])
def test_an_example_has_the_shapes_of_the_batches(size):
    rows = Arrays.of((np.ones((5, 2, 3)), np.zeros((5, 4))))
    example, first = rows.example(size), next(rows.batches(size))
    assert jax.tree.map(jnp.shape, example) == jax.tree.map(jnp.shape, first)
    assert float(example.count) == min(size, 5)
    with pytest.raises(ValueError, match="a batch has 0 rows"):
        rows.example(0)
    with pytest.raises(ValueError, match="a batch has -1 rows"):
        rows.batches(-1)


def test_arrays_are_pytrees_that_are_saved_and_read():
    rows = Arrays.of((np.ones((2, 1)), [0, 1]))
    doubled = jax.jit(lambda rows: jax.tree.map(lambda leaf: leaf + leaf, rows))(rows)
    assert doubled.x.tolist() == [[2.0], [2.0]]
    arrays: dict[str, np.ndarray] = {}
    again = decode(encode(rows, arrays), arrays)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), rows, again))


ONE = np.ones((2, 2))


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ((ONE, np.ones(3)), ValueError, "x has 2 rows and y has 3"),
        ((np.ones((0, 2)), np.ones(0)), ValueError, "no rows"),
        ((np.ones((2, 0)), np.ones(2)), ValueError, r"x has the shape \(2, 0\)"),
        ((np.ones((2, 1)), np.ones((2, 0))), ValueError, r"and y \(2, 0\)"),
        ((1.0, 2.0), ValueError, "leading axis"),
        ((np.array([[0.0, np.nan], [np.inf, 0.0]]), np.ones(2)), ValueError, "2 places, first nan in row 0, column 1"),
        ((jnp.array([[0.0, 1.0], [jnp.inf, 0.0]]), np.ones(2)), ValueError, "1 place, first inf in row 1, column 0"),
        ((np.full((2, 2, 2), -np.inf), np.ones(2)), ValueError, r"8 places, first -inf in row 0 at \(0, 0\)"),
        ((ONE, np.array([0.0, np.nan])), ValueError, "y is NaN or infinite in float64 in 1 place, first nan in row 1;"),
        ((np.array([["a"], [1]], object), np.ones(2)), TypeError, "x has the dtype object"),
        ((ONE, ["cat", "dog"]), TypeError, "y has the dtype <U3"),
        ((ONE.astype(complex), np.ones(2)), TypeError, "complex128"),
        (([[1.0], [1.0, 2.0]], np.ones(2)), ValueError, "different lengths"),
        ({"x": ONE, "y": [0, 1], "weights": [1, 1]}, ValueError, r"'weights'; did you mean 'weight'\?"),
        ({"x": ONE}, ValueError, "lacks 'y'"),
        ({"x": ONE, "y": [0, 1], "weight": [1.0]}, ValueError, r"shape \(1,\)"),
        ({"x": ONE, "y": [0, 1], "weight": [-1.0, 1.0]}, ValueError, "the smallest is -1"),
        ({"x": ONE, "y": [0, 1], "weight": [0.0, 0.0]}, ValueError, "nor all zero"),
        ({"x": ONE, "y": [0, 1], "weight": [np.nan, 0.0]}, ValueError, "weight is NaN"),
        ((ONE, ONE, ONE), ValueError, "a tuple of 3 parts"),
        ("digits", TypeError, "data is a str"),
    ],
)
def test_arrays_refuse_in_one_sentence(given, kind, sentence):
    with pytest.raises(kind, match=sentence) as caught:
        Arrays.of(given)
    assert is_one_sentence(str(caught.value))


# Tables


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
    assert read.encoding == TargetEncoding("target", task, labels, ("a", "b"))
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
    assert read.encoding == TargetEncoding("y", "binary", (0, 1), ("x0", "x1"))
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


REFUSED = {
    "no file": (None, "target", None, "there is no file"),
    "empty": ("", "target", None, "is empty"),
    "blank header": ("\n1,2\n", "target", None, "empty first line"),
    "no header": ("1.0,2.0,3\n1.0,2.0,4\n", "target", None, "no header but begins with '1.0,2.0,3'"),
    "same column twice": ("a,a,target\n1,2,3\n", "target", None, "more than one column 'a'"),
    "header only": ("a,b,target\n", "target", None, "0 rows of data"),
    "few rows": (good(4), "target", None, "4 rows of data, too few to learn from"),
    "unknown target": (good(), "targte", None, r"no column 'targte' .* did you mean 'target'\?"),
    "no target": (good(), None, None, "name one of 'a', 'b', 'target'"),
    "unknown task": (good(), "target", "regresion", r"no task 'regresion'; did you mean 'regression'\?"),
    "only a target": ("target\n" + "1\n2\n" * 5, "target", None, "no column but the target"),
    "words": (good() + "5,six,1\n", "target", None, "non-numeric column 'b', first the value 'six'"),
    "two columns of words": (good() + "five,six,1\n", "target", None, "columns 'a', 'b', first the value 'five'"),
    "missing": (good() + ",,1\n2,,\n", "target", None, r"columns 'a' \(1\), 'b' \(2\), 'target' \(1\)"),
    "nan": (good() + "nan,1,1\n", "target", None, r"missing values in the column 'a' \(1\)"),
    "infinite": (good() + "inf,1,1\n", "target", None, "1 infinite value, first in row 10 of the column 'a'"),
    "infinite target": (good() + "1,1,-inf\n", "target", None, "infinite in 1 row, first row 10"),
    "constant": ("a,target\n" + "1,7\n2,7\n" * 5, "target", None, "is 7 in every row"),
    "one class": ("a,target\n" + "1,cat\n2,cat\n" * 5, "target", None, "is 'cat' in every row"),
    "identifiers": ("a,target\n" + "".join(f"1,n{i}\n" for i in range(21)), "target", None, "21 different texts"),
    "text as numbers": ("a,target\n" + "1,cat\n2,dog\n" * 5, "target", "regression", "the value 'cat'"),
    "three of two": ("a,target\n" + "1,1\n2,2\n3,3\n" * 5, "target", "binary", "has 3 distinct values"),
    "real classes": ("a,target\n" + "1,0.5\n2,1.5\n" * 5, "target", "classes", "the value 0.5, which is no class"),
    "ragged": (good() + "1,2,3,4,5\n", "target", None, "no regular table"),
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
    with pytest.raises(DataError, match=r"unknown type '\.parquet'; give a \.csv or \.npz file"):
        table.read(csv_file(tmp_path, "x", "table.parquet"), "target")
    with pytest.raises(DataError, match=r"no bundled set 'digit'; did you mean 'digits'\?"):
        table.read("digit", "target")
    with pytest.raises(DataError, match=r"no \.npz file of plain arrays"):
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


# Tables to predict


def test_a_table_is_matched_by_name_and_extra_columns_are_named(tmp_path):
    fitted = TargetEncoding("target", "binary", ("no", "yes"), ("a", "b"))
    path = csv_file(tmp_path, "b,extra,target,a\n2,word,yes,1\n4,word,no,3\n")
    matched = table.match(path, fitted)
    assert matched.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert matched.y.tolist() == [1, 0]
    assert matched.notes == ("ignored the extra column 'extra'",)


def test_a_table_to_predict_needs_no_target(tmp_path):
    fitted = TargetEncoding("target", "regression", (), ("a", "b"))
    assert table.match(csv_file(tmp_path, "a,b\n1,2\n"), fitted).y is None
    assert table.match(csv_file(tmp_path, "a,b,target\n1,2,\n3,4,\n"), fitted).y is None
    assert table.match(csv_file(tmp_path, "a,b,target\n1,2,5\n"), fitted).y.tolist() == [5.0]


def test_labels_that_look_like_numbers_stay_text(tmp_path):
    fitted = TargetEncoding("target", "binary", ("01", "x"), ("a",))
    assert table.match(csv_file(tmp_path, "a,target\n1,01\n2,01\n"), fitted).y.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,target\n1,yes\n", "lacks the column 'b' that the model was fitted on"),
        ("a,b,target\n", "a header and no rows"),
        ("a,b,target\n1,2,maybe\n", "the value 'maybe', which is none of the classes 'no', 'yes'"),
        ("a,b,target\n1,two,yes\n", "first the value 'two'"),
        ("a,b,target\n1,,yes\n", r"missing values in the column 'b' \(1\)"),
        ("a,b,target\n1,2,yes\n1,2,\n", r"missing values in the column 'target' \(1\)"),
    ],
)
def test_a_table_to_predict_is_refused_in_one_sentence(tmp_path, text, sentence):
    fitted = TargetEncoding("target", "binary", ("no", "yes"), ("a", "b"))
    with pytest.raises(DataError, match=sentence) as caught:
        table.match(csv_file(tmp_path, text), fitted)
    assert is_one_sentence(str(caught.value).replace(str(tmp_path), ""))


def test_an_encoding_is_saved_and_read():
    fitted = TargetEncoding("target", "classes", ("a", "b", "c"), ("x0",))
    assert decode(encode(fitted, {}), {}) == fitted
