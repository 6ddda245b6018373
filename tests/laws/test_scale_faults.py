"""Every fault in a scale, planted into every row of `tests.laws.stochastic`, is rejected by one of its laws.

Which faults are none in a row (a point knows no temperature), the row says in its extra `immune`. The faults of one
stage alone may change nothing without a word: a posterior need not read N a second time.

`make test` runs every third row that is not long, and `make laws` all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.laws import recipes  # noqa: F401  (its rows are tried too)
from tests.laws.harness import LAWS, ROWS, Row
from tests.laws.stochastic import APART, BELIEVED, FAULTS, SHARP, SOUND, Fault, ends_of, prefetch

RUNS, SETTING = 6, 0
SUBJECTS = [row for row in ROWS if row.kind == "stochastic"]


def changed(row: Row, **extras: object) -> Row:
    return Row(row.kind, row.name, row.subject, row.traits, {**row.extras, **extras})


def verdicts(row: Row) -> dict[str, str]:
    """By fault, the first law that rejects it; "none" where it changes nothing."""
    # With half as many runs, standard errors are wider.
    few = changed(row, runs=RUNS, settings=(SETTING,), sharp=2 * row.extras.get("sharp", SHARP))
    laws = [law for law in LAWS if law.kind == row.kind and law.applies(row)]
    faults = {name: fault for name, fault in FAULTS.items() if name not in BELIEVED or "belief" in row.traits}
    faults = {name: fault for name, fault in faults.items() if name.split(",")[0] not in row.extras.get("immune", ())}
    prefetch(few, [(SETTING, fault, seed) for fault in (SOUND, *faults.values()) for seed in range(RUNS)])
    for law in laws:
        law.check(few)  # as few runs as these are enough for a sound row
    found = {}
    for name, fault in faults.items():
        found[name] = "SURVIVED"
        if same(few, fault):
            found[name] = "none"
            continue
        for law in laws:
            try:
                law.check(changed(few, planted=fault))
            except AssertionError:
                found[name] = law.name
                break
    return found


def same(row: Row, fault: Fault) -> bool:
    ends = [ends_of(changed(row, planted=which), SETTING, RUNS) for which in (SOUND, fault)]
    return all(np.array_equal(one, other) for one, other in zip(*ends, strict=True))


def test_rows_of_recipes_are_tried() -> None:
    """Where this file is collected alone, too."""
    assert "variational_head" in {row.name for row in SUBJECTS}


def fields() -> list[Any]:
    """Every row; those that `make test` leaves to `make laws` are marked."""
    short = [row.name for row in SUBJECTS if "long" not in row.traits][::3]
    marks = lambda row: [] if row.name in short else [pytest.mark.laws]
    return [pytest.param(row, id=row.name, marks=marks(row)) for row in SUBJECTS]


@pytest.mark.parametrize("row", fields())
def test_every_fault_in_a_scale_is_rejected(row: Row) -> None:
    found = verdicts(row)
    for name, law in found.items():
        print(f"{row.name}: {name}: {law}")
    survived = {name for name, law in found.items() if law == "SURVIVED" or (law == "none" and name not in APART)}
    assert not survived, f"{row.name} passes all its laws with {sorted(survived)}"
