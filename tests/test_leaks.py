"""What flatters a table's scores is said: rows on both sides of the split, a feature that is the target, row names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lamu.data import split, table
from lamu.data.columns import identifiers
from lamu.data.leaks import leaks
from lamu.data.sources import Source
from lamu.tabular import peers
from lamu.tabular.peers import PEERS, peer

RANDOM = np.random.default_rng(0)


def written(tmp_path, frame):
    frame.to_csv(tmp_path / "table.csv", index=False)
    return table.read(tmp_path / "table.csv", "y")


def test_names_of_rows_are_left_out_and_said(tmp_path):
    frame = pd.DataFrame({"id": np.arange(60), "who": [f"n{i}" for i in range(60)], "a": RANDOM.normal(size=60)})
    found = written(tmp_path, frame.assign(y=RANDOM.normal(size=60)))
    assert found.encoding.columns == ("a",)
    assert any("'id' numbers the rows" in note for note in found.notes)
    assert any("60 different texts in 60 rows" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("year", np.arange(60)),  # a number that nobody calls a name
        ("id", np.arange(60) // 2),  # groups, which rows share
        ("id", RANDOM.normal(size=60)),
        ("acid", np.arange(60)),
        ("when", [f"2019-03-{1 + i % 28:02d} {i // 28}:00" for i in range(60)]),  # an error of its own
        ("code", [f"n{i % 30}" for i in range(60)]),
    ],
)
def test_what_is_no_name_stays(name, values):
    assert identifiers(Source("the table", pd.DataFrame({name: values}), None), [name]) == {}


def test_a_table_of_names_alone_is_an_error(tmp_path):
    frame = pd.DataFrame({"who": [f"n{i}" for i in range(60)], "y": RANDOM.normal(size=60)})
    with pytest.raises(ValueError, match="look like identifiers; drop the column"):
        written(tmp_path, frame)


def test_rows_that_repeat_across_the_split_are_counted(tmp_path):
    frame = pd.DataFrame({"a": RANDOM.normal(size=60), "y": RANDOM.normal(size=60)})
    found = written(tmp_path, pd.concat([frame, frame.iloc[:5]]))
    train, test = np.arange(60), np.arange(60, 65)
    assert leaks(found, train, test)[0].startswith("5 of 5 test rows stand among the training rows")
    # The features alone are no repetition: another target is another row.
    assert leaks(replace(found, y=np.asarray(found.y) + (np.arange(65) >= 60)), train, test) == ()


@pytest.mark.parametrize("kind", ["threshold", "categories", "overlap", "affine", "nearly"])
def test_a_feature_that_says_the_target_is_named(tmp_path, kind):
    value = RANDOM.normal(size=80)
    frame = pd.DataFrame({"b": RANDOM.normal(size=80), "a": value})
    words = np.where(value > 0.3, "yes", "no")
    if kind == "categories":
        frame["a"] = np.where(words == "yes", np.where(frame["b"] > 0, "s", "t"), "u")
    y = {
        "affine": 2 * value - 1,
        "nearly": 2 * value + 1e-2 * frame["b"],
        "overlap": np.where(frame["b"] > 0.5, "yes", words),
    }
    found = written(tmp_path, frame.assign(y=y.get(kind, words)))
    train, test = split(len(found.x))
    said = [note for note in leaks(found, train, test) if "'a' predicts 'y' perfectly" in note]
    assert bool(said) == (kind in ("threshold", "categories", "affine"))


ROWS = np.random.default_rng(1).gamma(2.0, size=120)


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        (np.log(ROWS), "in the order of"),
        (np.round(ROWS, 1), "in the order of"),
        (-(ROWS**3), "in the order of"),
        (np.char.add("c", np.digitize(ROWS, [1.0, 2.0, 4.0]).astype(str)), None),  # coarse words, y not one value each
        (np.where(np.arange(120) == ROWS.argmax(), 1.0, 0.0), None),  # one row apart says nothing of the others
        (np.log(ROWS) + 0.02 * RANDOM.normal(size=120), None),
    ],
    ids=["log", "rounded", "falling", "coarse", "one-row", "noisy"],
)
def test_a_monotone_copy_of_a_number_is_said(tmp_path, copy, said):
    found = written(tmp_path, pd.DataFrame({"b": RANDOM.normal(size=120), "a": copy, "y": ROWS}))
    notes = leaks(found, *split(len(found.x)))
    assert [note for note in notes if "'a'" in note and (said or "") in note] == (list(notes) if said else [])
    assert len(notes) == (said is not None)


def test_a_rounded_target_is_in_the_order_of_what_was_rounded(tmp_path):
    found = written(tmp_path, pd.DataFrame({"a": ROWS, "y": np.round(ROWS, 1)}))
    assert "'a' stands in the order of 'y'" in leaks(found, *split(len(found.x)))[0]


@pytest.mark.parametrize(("zeros", "said"), [(0, True), (110, False)])
def test_a_category_that_determines_a_number_is_said(tmp_path, zeros, said):
    """Prices of products; of targets that are nearly all zero, pairs of rows share theirs by chance."""
    product = np.arange(120) // 2
    price = np.where(product < zeros // 2, 0.0, 3.7 * ((7 * product) % 60))
    found = written(tmp_path, pd.DataFrame({"a": [f"p{i}" for i in product], "b": ROWS, "y": price}))
    train, test = np.arange(0, 100), np.arange(100, 120)
    notes = [note for note in leaks(found, train, test) if "'a' predicts 'y' perfectly" in note]
    assert bool(notes) == said


X = np.column_stack([RANDOM.normal(size=80), RANDOM.integers(0, 3, 80)])
THREE = np.digitize(X[:, 0], [-0.5, 0.5])


def fitted(name, task, y):
    return peer(name, task, X[:60], y[:60], X[60:], (0, 2), {"binary": 2, "classes": 3}.get(task, 0))


def test_peers_are_those_that_compare_takes_unless_told():
    assert PEERS == ("linear", "boosting", "forest", "constant")


@pytest.mark.parametrize("name", ["linear", "forest"])
def test_peers_give_probabilities(name):
    pred = fitted(name, "classes", THREE)
    np.testing.assert_allclose(np.asarray(pred.mean).sum(axis=1), 1.0, atol=1e-5)
    assert (np.asarray(pred.mean).argmax(axis=1) == THREE[60:]).mean() > 0.6
    assert np.isfinite(np.asarray(pred.log_prob(THREE[60:]))).all()  # a forest's zeros too
    two = fitted(name, "binary", (X[:, 0] > 0).astype(int))
    assert ((np.asarray(two.mean) > 0.5) == (X[60:, 0] > 0)).mean() > 0.7


def test_peers_give_numbers_with_the_spread_of_held_out_rows():
    y = X[:, 0] + 0.5 * RANDOM.normal(size=80)
    pred = fitted("boosting", "regression", y)
    assert np.corrcoef(pred.mean, X[60:, 0])[0, 1] > 0.7
    assert 0.4 < float(np.sqrt(pred.variance[0])) < 1.2
    assert len(np.unique(np.asarray(pred.variance).round(6))) == 1


@pytest.mark.parametrize(("values", "bins"), [(3, 3), (40, 40), (254, 254), (300, 255)])
def test_boosting_has_bins_for_the_values_of_a_column_and_predicts_as_with_its_default(values, bins, monkeypatch):
    x = np.stack([np.resize(np.arange(values), 1600) % values, np.resize([0, 1, 2], 1600)], axis=1).astype(float)
    x[:1100, 0] %= 7  # the first rows have few of the values
    x = RANDOM.permutation(x) if values == 40 else x
    y = np.digitize(x[:, 0] + RANDOM.normal(size=1600), [2.0, 20.0, 150.0])
    given = []
    pipeline = peers._pipeline
    monkeypatch.setattr(peers, "_pipeline", lambda *told: (given.append(told[-1]), pipeline(*told))[1])
    few = peer("boosting", "classes", x[:1500], y[:1500], x[1500:], (0, 0), 4)
    monkeypatch.setattr(peers, "_bins", lambda x: 255)
    usual = peer("boosting", "classes", x[:1500], y[:1500], x[1500:], (0, 0), 4)
    assert given == [bins, 255]
    np.testing.assert_array_equal(few.f, usual.f)


def test_peers_give_counts_a_mass():
    pred = fitted("linear", "counts", RANDOM.poisson(np.exp(X[:, 0])).astype(float))
    total = sum(np.exp(np.asarray(pred.log_prob(np.full(20, float(count))))) for count in range(200))
    np.testing.assert_allclose(total, 1.0, atol=1e-3)


def test_peers_of_numbers_are_what_they_say():
    x = RANDOM.normal(size=(300, 2))
    y = 3 * x[:, 0] + 2 * RANDOM.normal(size=300)
    linear, boosting, constant = (
        peer(name, "regression", x[:200], y[:200], x[200:], (0, 0)) for name in ("linear", "boosting", "constant")
    )
    found = [float(np.mean(each.log_prob(y[200:]))) for each in (linear, boosting, constant)]
    assert found[0] > found[1]  # the truth is linear
    assert found[0] > found[2] + 0.2
    np.testing.assert_allclose(constant.mean, y[:200].mean(), rtol=1e-5)
    np.testing.assert_allclose(constant.std, y[:200].std(), rtol=0.05)


@pytest.mark.parametrize("name", PEERS)
def test_peers_know_words_and_classes_that_training_lacks(name):
    kind = RANDOM.integers(1, 4, 300)
    y = np.where(kind == 2, 0, 2)  # class 1 is never seen
    x = np.stack([kind, RANDOM.normal(size=300)], axis=1)
    pred = peer(name, "classes", x[:200], y[:200], x[200:], (3, 0), 3)
    log_prob = np.asarray(pred.log_prob(y[200:]))
    assert pred.mean.shape == (100, 3)
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(pred.mean.sum(axis=1), 1.0, rtol=1e-5)
    if name != "constant":  # codes in a line would not tell v from u and w
        assert log_prob.mean() > -0.05
