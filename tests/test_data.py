"""Arrays, splits and bundled sets: what comes in is right, and what is wrong is said in one sentence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import data
from lamu.data import Arrays, sources
from lamu.record import decode, encode
from tests.for_each import for_each


def is_one_sentence(message: str) -> bool:
    return "\n" not in message and 20 < len(message) < 400


# Bundled sets


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("digits", (1797, 64), 10),
        ("fashion_mnist", (6000, 784), 10),
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
    assert len(sources.columns(name)) == shape[1]
    if classes is None:
        assert y.dtype == np.float32
    else:
        assert y.dtype == np.int32
        assert set(y.tolist()) == set(range(classes))


@pytest.mark.parametrize("name", ["digits", "fashion_mnist"])
def test_images_are_scaled_to_the_unit_interval(name):
    x, _ = data.load(name)
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


@for_each(
    "arguments, sentence",
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
        (jnp.bfloat16, np.float32, np.float32, np.float32),
        (np.float16, np.float64, np.float32, np.float32),
    ],
)
@pytest.mark.parametrize("of", [np.ones, jnp.ones])
def test_arrays_keep_floats_and_whole_targets(of, x, y, x_dtype, y_dtype):
    rows = Arrays.of((of((4, 2), x), of(4, y)))
    assert rows.x.dtype == x_dtype
    assert rows.y.dtype == y_dtype
    assert rows.weight.dtype == x_dtype
    assert isinstance(rows.x, jax.Array)


@pytest.mark.parametrize("dtype", [">f8", ">f4", np.longdouble])
def test_floats_that_jax_has_no_type_for_are_read_as_their_values(dtype):
    x = np.array([[1.5], [-2.0]])
    rows = Arrays.of((x.astype(dtype), np.array([3, 1], ">i4")))
    np.testing.assert_array_equal(rows.x, x)
    np.testing.assert_array_equal(rows.y, [3, 1])


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


@for_each(
    "given, kind, sentence",
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
