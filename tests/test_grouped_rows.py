"""Rows of one group, such as a patient: on one side of every split, of folds and of validation rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lamu
from lamu import composition
from lamu.algorithms.ensembles.deep_ensemble import Bootstrap, deep_ensemble
from lamu.data import Arrays, split
from lamu.data.copies import cases, copies_together
from lamu.data.splits import group_codes
from lamu.folds import folds_for, folds_of
from lamu.record import record
from lamu.running.history import mean_and_margin, split_validation, validation_pairs
from lamu.scores import ece_if_calibrated
from lamu.sklearn import BayesianClassifier, estimator
from lamu.supports import TwoClasses

rng = np.random.default_rng(0)
PATIENTS = np.repeat(np.arange(20), rng.integers(1, 7, 20))
N = len(PATIENTS)
SICK = (rng.uniform(size=20) < 0.4).astype(np.int32)[PATIENTS]
X = rng.normal(size=(N, 2))
COIN = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())


def apart(groups: Any, *parts: Any) -> bool:
    """Whether no group is in two parts, and each has rows."""
    groups = np.asarray(groups)
    numbers = [set(groups[np.asarray(part, int)]) for part in parts]
    return all(numbers) and sum(map(len, numbers)) == len(set.union(*numbers))


@pytest.mark.parametrize("seed", range(5))
def test_folds_and_splits_have_whole_groups_and_even_sizes_and_classes(seed: int) -> None:
    parts = folds_of(SICK, 4, seed, stratify=True, groups=PATIENTS)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    assert apart(PATIENTS, *parts)
    largest = np.bincount(PATIENTS).max()
    assert np.ptp([len(part) for part in parts]) <= largest
    assert np.ptp([SICK[part].sum() for part in parts]) <= largest
    train, test = split(SICK, 0.25, seed, stratify=True, groups=PATIENTS)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(N))
    assert apart(PATIENTS, train, test)
    assert abs(len(test) - N / 4) <= largest
    assert 0 < SICK[test].sum() < SICK.sum()


def test_rare_classes_are_held_out_as_often_as_their_share_and_never_whole() -> None:
    groups = np.repeat(np.arange(20), 6)
    classes = np.repeat([0, 1, 2, 3], [66, 36, 12, 6])  # of eleven, six, two and one group
    parts = [split(classes, 0.2, seed, stratify=True, groups=groups) for seed in range(60)]
    assert all(set(classes[train]) == {0, 1, 2, 3} for train, _ in parts)
    assert all(12 <= len(test) <= 36 for _, test in parts)
    assert 0.1 < np.mean([2 in classes[test] for _, test in parts]) < 0.7


def test_many_groups_are_dealt_evenly_and_together() -> None:
    """A step of Python for each group took 3.7 s for 200,000 of them; now equal groups are dealt at once."""
    groups = np.repeat(np.arange(30_000), 2)
    classes = (np.arange(30_000) % 10 == 0)[groups] * 1
    parts = folds_of(classes, 5, 0, stratify=True, groups=groups)
    assert apart(groups, *parts)
    assert {(len(part), classes[part].sum()) for part in parts} == {(12_000, 1200)}
    train, test = split(classes, 0.2, 0, stratify=True, groups=groups)
    assert apart(groups, train, test)
    assert (len(test), classes[test].sum()) == (12_000, 1200)


def test_the_seed_moves_groups_and_large_groups_leave_rows_on_both_sides() -> None:
    assert len({tuple(split(N, 0.2, seed, groups=PATIENTS)[1]) for seed in range(5)}) == 5
    for groups in (np.repeat(np.arange(count), 3) for count in (2, 3, 4)):
        for share in (0.1, 0.8):
            assert apart(groups, *split(len(groups), share, groups=groups))


@pytest.mark.parametrize(
    "groups",
    [
        ["b", "a", "a"],
        pd.Series(["b", "a", "a"], dtype="category"),
        [2**40, 1, 1],
        [0.5, 0.25, 0.25],
        jnp.array([3, 1, 1]),
    ],
)
def test_groups_are_numbers_or_words(groups: Any) -> None:
    first, *rest = group_codes(groups, 3).tolist()
    assert rest[0] == rest[1] != first


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([1, 1, 1, 1], "groups is the same in all rows, so that no row is left to judge by"),
        (["a", None, "b", "b"], "groups has no value in 1 of 4 rows, first in row 1; give each row its group"),
        ([1.0, 2.0, np.nan, 1.0], "first in row 2"),
        ([1, 2], r"groups has the shape \(2,\); pass one group a row, the shape \(4,\)"),
        ([1, 1, 2, 2], "folds=3 cannot be made of 2 groups; give a number from 2 to the groups"),
    ],
)
def test_groups_that_cannot_be_split_are_refused(groups: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        folds_of(np.zeros(4), 3, 0, stratify=False, groups=groups)
    with pytest.raises(ValueError, match=said):
        lamu.fit_table(
            np.arange(4.0)[:, None], [0.0, 1.0, 3.0, 2.0], lamu.likelihoods.Gaussian(), groups=groups, folds=3
        )


def test_groups_are_part_of_the_rows_and_of_every_choice_by_validation() -> None:
    names = np.array([f"patient {number}" for number in PATIENTS])
    rows = Arrays.of({"x": X, "y": SICK, "groups": names, "mask": np.arange(N) > 0})
    assert rows.groups.shape == (N - 1,)
    kept, held = split_validation(rows, 0.2, COIN, seed=1)
    assert held is not None
    assert not np.isin(np.asarray(kept.groups), np.asarray(held.groups)).any()
    pairs = validation_pairs(rows, None, COIN, 0, 0.2, 30)
    assert len(pairs) > 1
    for learned, judging in pairs:
        assert not np.isin(np.asarray(learned.groups), np.asarray(judging.groups)).any()
    few = Arrays.of({"x": X, "y": SICK, "groups": PATIENTS % 3})
    assert len(validation_pairs(few, None, COIN, 0, 0.2, N)) == 3
    found = lamu.fit_folds(COIN, {"x": X, "y": SICK, "groups": names}, lamu.algorithms.adam(0.1), epochs=1, folds=3)
    assert apart(PATIENTS, *found.held)
    assert folds_for(N, PATIENTS % 3) == 3


def test_the_rows_of_a_group_are_one_observation_of_a_difference() -> None:
    more = rng.normal(0.1, 1.0, size=50)
    each, of_groups = np.arange(100), np.repeat(np.arange(50), 2)
    alone = mean_and_margin(more, np.ones(50))
    assert mean_and_margin(np.repeat(more, 2), np.ones(100), of_groups) == pytest.approx(alone)
    rows = mean_and_margin(np.repeat(more, 2), np.ones(100))
    assert rows == pytest.approx((alone[0], alone[1] / 2**0.5))
    assert mean_and_margin(np.repeat(more, 2), np.ones(100), each) == pytest.approx(rows)


def test_the_groups_of_a_target_without_inputs_are_those_of_its_rows() -> None:
    named = {"height": X[:, 0], "groups": PATIENTS}
    assert Arrays.named(named, ["height"]).groups.tolist() == PATIENTS.tolist()
    assert Arrays.named(named, ["height", "groups"]).groups is None  # a variable of that name


def test_equal_rows_of_two_groups_are_two_rows() -> None:
    rows = {"x": np.zeros((4, 1)), "y": np.zeros(4)}
    assert cases(Arrays.of(rows)).weight.tolist() == [4.0]
    kept = cases(Arrays.of({**rows, "groups": ["a", "a", "a", "b"]}))
    assert kept.weight.tolist() == [3.0, 1.0]
    assert len(set(kept.groups.tolist())) == 2


@pytest.mark.parametrize("wide", [False, True], ids=["few columns", "many columns"])
def test_copies_of_rows_are_on_one_side_too(wide: bool) -> None:
    y = rng.normal(size=20)
    x = np.concatenate([rng.normal(size=(20, 1)), np.zeros((20, 60 * wide))], axis=1)
    if wide:  # two rows that differ in a column that is not read first
        x[1, 0], x[1, 1], y[1] = x[0, 0], 1.0, y[0]
    copied = np.repeat(np.arange(20), 3)
    rows = Arrays.of((x[copied], y[copied]))
    assert len(set(copies_together(rows).groups.tolist())) == 20
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
    for learned, judging in [split_validation(rows, 0.2, model, 0), *validation_pairs(rows, None, model, 0, 0.2, 60)]:
        assert not np.isin(np.asarray(learned.groups), np.asarray(judging.groups)).any()
    found = lamu.fit_folds(model, (x[copied], y[copied]), lamu.algorithms.adam(0.1), epochs=1, folds=3)
    assert apart(copied, *found.held)
    # Few copies, as they happen to be, the cases of a table of frequencies, and rows with groups stay as they are.
    few = Arrays.of((x[np.r_[:20, 0]], y[np.r_[:20, 0]]))
    cells = Arrays.of((np.zeros((60, 1)), copied % 2))
    grouped = Arrays.of({"x": x[copied], "y": y[copied], "groups": np.arange(60)})
    assert all(copies_together(each) is each for each in (few, cells, grouped))


def test_estimators_hand_groups_to_their_folds(monkeypatch: Any) -> None:
    asked: list[Any] = []

    def answer(x: Any, y: Any, *_: Any, **options: Any) -> Any:
        asked.append((np.asarray(x), y, options["weight"], options["groups"]))
        return SimpleNamespace(posterior=posterior)

    posterior = lamu.fit(COIN, (X, SICK), lamu.algorithms.adam(0.1), epochs=1).posterior
    monkeypatch.setattr(estimator, "fit_table", answer)
    x, y = np.concatenate([X, X[:1], X[:1]]), np.concatenate([SICK, SICK[:1], SICK[:1]])
    patients = [f"patient {number}" for number in [*PATIENTS, PATIENTS[0], PATIENTS[-1]]]
    BayesianClassifier().fit(x, y, groups=patients)
    ((rows, _, weight, groups),) = asked
    assert len(rows) == N + 1  # a copy of another patient is a row of its own
    assert sorted(weight.tolist())[-2:] == [1.0, 2.0]
    codes = dict(zip(map(tuple, x[:N].tolist()), group_codes(patients, N + 2), strict=False))
    first = tuple(X[0].tolist())
    assert all(codes[row] == code for row, code in zip(map(tuple, rows.tolist()), groups, strict=True) if row != first)
    assert {code for row, code in zip(map(tuple, rows.tolist()), groups, strict=True) if row == first} == {
        *group_codes([patients[0], patients[-1]], 2).tolist()
    }
    with pytest.raises(ValueError, match="pass one group a row"):
        BayesianClassifier().fit(x, y, groups=patients[1:])


def test_resamples_draw_whole_groups(monkeypatch: Any) -> None:
    data, batches = {"x": X, "y": SICK, "groups": PATIENTS}, []

    @record
    class Seen(Bootstrap):
        def batch(self, member: Any, batch: Any) -> Any:
            batches.append(batch.groups)
            return super().batch(member, batch)

    fitted = lamu.fit(COIN, data, deep_ensemble(lamu.algorithms.adam(0.1), 2, Seen()), epochs=1, batch_size=16)
    assert batches
    assert all(groups is not None for groups in batches)
    rows = Arrays.of(data)
    batch = next(rows.batches(N + 3))
    weights = [np.asarray(Bootstrap().batch(member, batch).weight)[:N] for member in range(2)]
    drawn: list[Any] = []
    monkeypatch.setattr(composition, "fit", lambda _, rows, *__, **___: drawn.append(rows.weight) or fitted)
    monkeypatch.setattr(composition, "pooled", lambda *_: fitted.posterior)
    composition.bootstrap(COIN, data, lamu.algorithms.laplace(), resamples=2)
    for first, second in (weights, np.asarray(drawn)):
        counts = np.stack([first, second])
        assert all(len(set(counts[member, patient == PATIENTS])) == 1 for member in (0, 1) for patient in range(20))
        assert (first != second).any()
        assert (counts == 0).any()
    assert np.sum(np.asarray(drawn)[0, np.unique(PATIENTS, return_index=True)[1]]) == 20


def test_calibration_errors_of_groups_are_compared_with_those_of_groups() -> None:
    """Ten rows of each of 300 patients were taken for 3,000 rows, whose right error is a third of it."""
    random = np.random.default_rng(0)
    p = random.uniform(0.5, 1.0, size=300)
    y = (random.uniform(size=300) < p).astype(int)
    patients = np.repeat(np.arange(300), 10)
    of = lambda p: SimpleNamespace(support=TwoClasses(), mean=p)
    alone, rows = ece_if_calibrated(of(p)), ece_if_calibrated(of(np.repeat(p, 10)))
    of_groups = ece_if_calibrated(of(np.repeat(p, 10)), y=np.repeat(y, 10), groups=patients)
    assert rows.value < 0.45 * alone.value
    assert of_groups.value == pytest.approx(alone.value, rel=0.2)
    with pytest.raises(ValueError, match="groups need the targets of their rows"):
        ece_if_calibrated(of(p), groups=np.arange(300))


def recognisable(seed: int, patients: int = 20, times: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Patients with eight measured numbers each, which identify them and say little of their effect."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(patients), times)
    measured, effect = random.normal(size=(patients, 8)), random.normal(size=patients)
    dose = random.normal(size=len(groups))
    noise = 0.3 * random.normal(size=len(groups))
    return np.column_stack([measured[groups], dose]), effect[groups] + 0.5 * dose + noise, groups


@pytest.mark.stress
def test_a_table_of_patients_predicts_new_ones() -> None:
    x, y, groups = recognisable(0)
    x_new, y_new, _ = recognisable(1)
    given: dict[str, Any] = {"steps": 300, "progress": False}
    of_rows = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), **given)
    of_groups = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), groups=groups, **given)
    errors = [lamu.scores.nll(each.posterior.predict(x_new), y_new) for each in (of_rows, of_groups)]
    shares = [lamu.scores.coverage(each.posterior.predict(x_new), y_new, level=0.9) for each in (of_rows, of_groups)]
    assert errors[0] > of_rows.stacked_nll + 1.0
    assert errors[1] < min(errors[0] - 1.0, of_groups.stacked_nll + 0.3)
    assert shares[0] < 0.6 < 0.8 < shares[1]


def test_copies_of_rows_without_features() -> None:
    """A validation share of a graph without inputs was "too many indices for array" where rows repeat."""
    from lamu.data.copies import are_cells

    assert are_cells(np.zeros((4, 0)), np.array([0, 1, 1, 2]))
    assert not are_cells(np.zeros((1, 0)), np.array([0]))
