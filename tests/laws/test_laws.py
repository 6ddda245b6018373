"""Every law on every row, and every broken twin against the laws that must reject it.

`make test` runs all laws on the first row of a kind, and of the other rows like the fields of one colour on a board:
every law on every other row, every row under every other law. `make stress` runs the other fields, which repeat what
those said about their neighbours.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.laws.harness import LAWS, ROWS, TWINS, Law, Row, Twin

KINDS = sorted(
    path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "harness", "test_laws")
)
for kind in KINDS:
    importlib.import_module(f"tests.laws.{kind}")

CASES = [(law, row) for law in LAWS for row in ROWS if row.kind == law.kind and law.applies(row)]
REJECTIONS = [
    (twin, law) for twin in TWINS for name in twin.laws for law in LAWS if (law.kind, law.name) == (twin.row.kind, name)
]


def is_for_the_long_run(law: Law, row: Row) -> bool:
    """Whether the row repeats what a shorter one says, on another model, or the field has the other colour."""
    if "long" in row.traits:
        return True
    laws = [other for other in LAWS if other.kind == law.kind]
    rows = [other for other in ROWS if other.kind == row.kind and "long" not in other.traits]
    alone = sum(law.applies(other) for other in rows) < 3 or sum(other.applies(row) for other in laws) < 3
    place = next(i for i, other in enumerate(rows) if other is row)
    return not alone and place > 0 and (laws.index(law) + place) % 2 == 1


@pytest.mark.parametrize(
    ("law", "row"),
    [
        pytest.param(
            law,
            row,
            id=f"{law.kind}-{law.name}-{row.name}",
            marks=[pytest.mark.stress] if is_for_the_long_run(law, row) else [],
        )
        for law, row in CASES
    ],
)
def test_law(law: Law, row: Row) -> None:
    law.check(row)


@pytest.mark.parametrize(
    ("twin", "law"), REJECTIONS, ids=[f"{law.kind}-{law.name}-{twin.row.name}" for twin, law in REJECTIONS]
)
def test_twin_is_rejected(twin: Twin, law: Law, record_property) -> None:
    record_property("twin", f"{twin.row.kind}: {twin.row.name}")
    record_property("law", f"{law.kind}: {law.name}")
    with pytest.raises(AssertionError):
        law.check(twin.row)


def test_every_row_has_a_law_and_every_law_a_row() -> None:
    assert {row.name for row in ROWS} == {row.name for _, row in CASES}
    assert {(law.kind, law.name) for law in LAWS} == {(law.kind, law.name) for law, _ in CASES}


def test_every_row_has_a_law_and_every_law_a_row_in_the_short_run_too() -> None:
    short = [(law, row) for law, row in CASES if not is_for_the_long_run(law, row)]
    assert {row.name for _, row in short} == {row.name for row in ROWS if "long" not in row.traits}
    assert {(law.kind, law.name) for law, _ in short} == {(law.kind, law.name) for law in LAWS}


def test_every_law_can_fail() -> None:
    rejecting = {(law.kind, law.name) for _, law in REJECTIONS}
    toothless = {(law.kind, law.name) for law in LAWS} - rejecting
    assert not toothless, f"laws that no twin tests: {sorted(toothless)}"


def test_every_named_law_exists() -> None:
    known = {(law.kind, law.name) for law in LAWS}
    assert all((twin.row.kind, name) in known for twin in TWINS for name in twin.laws)
