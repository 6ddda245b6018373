"""Every law on every row, and every broken twin against the laws that must reject it.

`make test` runs each law on few rows: on one of every structure, where the rows of a kind are structures; of the other
kinds on rows with and without each trait that the law's rows have. No row goes without a law. Of the twins it runs the
first that each law must reject. `make laws` runs the other fields and twins; what must pass before a change is merged
is both.
"""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.laws import harness
from tests.laws.harness import LAWS, ROWS, TRAITS, TWINS, Law, Row, Twin, vocabulary

HERE = Path(__file__).parent
OTHERS = ("__init__", "harness", "test_laws", "test_scale_faults")
KINDS = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in OTHERS)
for kind in KINDS:
    importlib.import_module(f"tests.laws.{kind}")

CASES = [(law, row) for law in LAWS for row in ROWS if row.kind == law.kind and law.applies(row)]
REJECTIONS = [
    (twin, law) for twin in TWINS for name in twin.laws for law in LAWS if (law.kind, law.name) == (twin.row.kind, name)
]


STRUCTURED = ("curvature", "operators")  # their rows stand for structures, which traits tell apart only together


def short_fields() -> set[tuple[str, str, str]]:
    """Kind, law and row of what `make test` runs; no law and no row goes without."""
    chosen: set[tuple[str, str, str]] = set()
    for kind in KINDS:
        # A row that repeats what a shorter one says, on another model, is for the long run.
        rows = [row for row in ROWS if row.kind == kind and "long" not in row.traits]
        laws = [law for law in LAWS if law.kind == kind]
        times = dict.fromkeys((row.name for row in rows), 0)
        for law in laws:
            waiting = [row for row in rows if law.applies(row)]
            wanted = {row.name: {*_features(row, waiting)} for row in waiting}
            missing = set().union(*wanted.values())
            while missing:
                best = max(waiting, key=lambda row: (len(wanted[row.name] & missing), -times[row.name]))
                missing -= wanted[best.name]
                times[best.name] += 1
                chosen.add((kind, law.name, best.name))
        unseen = [row for row in rows if not times[row.name]]
        chosen |= {(kind, next(law.name for law in laws if law.applies(row)), row.name) for row in unseen}
    return chosen


def _features(row: Row, beside: list[Row]) -> Iterator[object]:
    """What a law must have seen of a row: that it is a row, and its structure or its traits, those it lacks too."""
    yield "a row"
    if row.kind in STRUCTURED:
        yield row.traits
    else:
        yield from ((trait, trait in row.traits) for trait in set().union(*(other.traits for other in beside)))


SHORT = short_fields()


@pytest.mark.parametrize(
    ("law", "row"),
    [
        pytest.param(
            law,
            row,
            id=f"{law.kind}-{law.name}-{row.name}",
            marks=[] if (law.kind, law.name, row.name) in SHORT else [pytest.mark.laws],
        )
        for law, row in CASES
    ],
)
def test_law(law: Law, row: Row) -> None:
    law.check(row)


FIRST = {(law.kind, law.name): twin.row.name for twin, law in reversed(REJECTIONS)}


@pytest.mark.parametrize(
    ("twin", "law"),
    [
        pytest.param(
            twin,
            law,
            id=f"{law.kind}-{law.name}-{twin.row.name}",
            marks=[] if FIRST[law.kind, law.name] == twin.row.name else [pytest.mark.laws],
        )
        for twin, law in REJECTIONS
    ],
)
def test_twin_is_rejected(twin: Twin, law: Law, record_property) -> None:
    record_property("twin", f"{twin.row.kind}: {twin.row.name}")
    record_property("law", f"{law.kind}: {law.name}")
    assert law.applies(twin.row), "the law is not for this row, sound or broken"
    with pytest.raises(AssertionError) as rejection:
        law.check(twin.row)
    assert is_the_laws_own(rejection.value), f"not judged: {rejection.value!r}"


def is_the_laws_own(error: BaseException) -> bool:
    """Whether an assertion was made by a law, and neither by the library nor out of an error of another type."""
    installed = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [path for path in installed if "site-packages" not in path.parts]
    return ours[-1].parent == HERE and error.__cause__ is None


def test_a_twin_that_cannot_be_run_is_not_rejected() -> None:
    def broken(row: Row) -> None:
        try:
            raise TypeError("a set-up that fails")
        except TypeError as error:
            raise AssertionError("looks like a rejection") from error

    with pytest.raises(AssertionError) as rejection:
        broken(ROWS[0])
    assert not is_the_laws_own(rejection.value)


def test_a_misspelt_trait_is_an_error() -> None:
    vocabulary("spelling", "random gaussian")
    try:
        with pytest.raises(ValueError, match="'randon' is no trait of the kind 'spelling'"):
            harness.row("spelling", "some row", None, "randon gaussian")
        with pytest.raises(ValueError, match="'randon' is no trait of the kind 'spelling'"):
            harness.law("spelling", when="randon")
    finally:
        del TRAITS["spelling"]


def test_every_trait_is_had_by_a_row_and_asked_for_by_a_law() -> None:
    for kind, words in TRAITS.items():
        had = frozenset().union(*(row.traits for row in ROWS if row.kind == kind))
        asked = frozenset().union(*(law.when for law in LAWS if law.kind == kind))
        asked |= set(re.findall(r'"(\w+)" (?:not )?in \w+\.traits', (HERE / f"{kind}.py").read_text()))
        assert words == had - {"long"}, f"of {kind}, no row has {sorted(words - had)}"
        assert words <= asked, f"of {kind}, no law asks for {sorted(words - asked)}"


def test_every_row_has_a_law_and_every_law_a_row() -> None:
    assert {row.name for row in ROWS} == {row.name for _, row in CASES}
    assert {(law.kind, law.name) for law in LAWS} == {(law.kind, law.name) for law, _ in CASES}


def test_the_short_run_leaves_no_law_and_no_row_out() -> None:
    assert {name for _, _, name in SHORT} == {row.name for row in ROWS if "long" not in row.traits}
    assert {(kind, name) for kind, name, _ in SHORT} == {(law.kind, law.name) for law in LAWS}


def test_the_short_run_shows_every_law_each_structure_and_each_trait() -> None:
    for law in LAWS:
        rows = [row for row in ROWS if row.kind == law.kind and law.applies(row) and "long" not in row.traits]
        seen = [row for row in rows if (law.kind, law.name, row.name) in SHORT]
        assert {row.traits for row in seen} == {row.traits for row in rows} or law.kind not in STRUCTURED
        assert {trait for row in seen for trait in row.traits} == {trait for row in rows for trait in row.traits}


def test_every_law_can_fail() -> None:
    rejecting = {(law.kind, law.name) for _, law in REJECTIONS}
    toothless = {(law.kind, law.name) for law in LAWS} - rejecting
    assert not toothless, f"laws that no twin tests: {sorted(toothless)}"


def test_every_named_law_exists() -> None:
    known = {(law.kind, law.name) for law in LAWS}
    assert all((twin.row.kind, name) in known for twin in TWINS for name in twin.laws)
