"""Thirty real tables, each read with a sensible target or refused with one good sentence, and what one is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from lamu.data import DataError, Encoding, split, table

FOLDER = Path(os.environ.get("LAMU_DATA", "")) / "rdatasets"
pytestmark = pytest.mark.skipif(not (os.environ.get("LAMU_DATA") and FOLDER.is_dir()), reason="LAMU_DATA is not set")

# The target of each table, and the task that its type decides.
TARGETS = {
    "affairs": ("rating", "classes"),
    "badhealth": ("numvisit", "regression"),
    "beps": ("vote", "classes"),
    "biochemists": ("art", "regression"),
    "birthwt": ("low", "binary"),
    "cancer": ("status", "binary"),
    "cbpp": ("incidence", "regression"),
    "contraception": ("use", "binary"),
    "doctorvisits": ("visits", "regression"),
    "epil": ("y", "regression"),
    "faithful": ("eruptions", "regression"),
    "housing": ("Sat", "classes"),
    "insectsprays": ("count", "regression"),
    "lynx": ("value", "regression"),
    "mcycle": ("accel", "regression"),
    "mroz": ("lfp", "binary"),
    "nile": ("value", "regression"),
    "nmes1988": ("visits", "regression"),
    "ovarian": ("fustat", "binary"),
    "penguins": ("species", "classes"),
    "pima_te": ("type", "binary"),
    "pima_tr": ("type", "binary"),
    "quine": ("Days", "regression"),
    "radon": ("log_radon", "regression"),
    "sleepstudy": ("Reaction", "regression"),
    "tobin": ("durable", "regression"),
    "veteran": ("celltype", "classes"),
    "wine": ("response", "regression"),
}
LACKING = {"cancer": 6, "penguins": 5}  # how many of the columns lack values


@pytest.mark.parametrize("name", TARGETS)
def test_a_real_table_is_read_split_and_read_again(name):
    target, task = TARGETS[name]
    path = FOLDER / f"{name}.csv"
    if name in LACKING:
        with pytest.raises(DataError, match="missing values in the columns"):
            table.read(path, target)
    read = table.read(path, target, impute=name in LACKING)
    assert read.encoding.task == task
    train, _ = split(read.y, stratify=task != "regression")
    fitted = read.refit(train)
    assert fitted.x.shape == (len(read.y), len(fitted.encoding.cardinalities))
    assert np.isfinite(fitted.x).all()
    for column, count in enumerate(fitted.encoding.cardinalities):
        if count:
            assert set(fitted.x[train, column]) == set(range(1, count + 1))
    encoding = Encoding.of(json.loads(json.dumps(fitted.encoding.describe())))
    assert encoding == fitted.encoding
    again = table.match(path, encoding)
    # What training rows lack was drawn given their targets, of which a table to predict knows nothing.
    np.testing.assert_array_equal(again.with_medians().x, fitted.with_medians().x)
    others = np.setdiff1d(np.arange(len(fitted.x)), train)
    np.testing.assert_array_equal(again.x[others], fitted.x[others])
    np.testing.assert_array_equal(again.y, fitted.y)


def test_no_real_table_is_left_out():
    assert {path.stem for path in FOLDER.glob("*.csv")} == {*TARGETS, "coal", "galaxies"}


@pytest.mark.parametrize(("name", "target"), [("coal", "date"), ("galaxies", "dat")])
def test_a_table_of_one_column_is_refused(name, target):
    with pytest.raises(DataError, match=f"no column but the target '{target}'; add at least one"):
        table.read(FOLDER / f"{name}.csv", target)


def test_what_a_stranger_is_told():
    penguins = table.read(FOLDER / "penguins.csv", "species", impute=True)
    numbers = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
    drawn = ", ".join(f"{name!r} (2 by draws given the rest of their rows)" for name in numbers)
    assert penguins.notes == (
        f"filled the missing values of {drawn}, 'sex' (11 by draws given the rest of their rows); columns of their own "
        "mark where values were missing",
    )
    assert penguins.encoding.names[-5:] == tuple(f"{name} is missing" for name in (*numbers, "sex"))
    radon = table.read(FOLDER / "radon.csv", "log_radon")
    assert (radon.encoding.cardinalities, radon.notes) == ((0, 0, 0, 85), ())
    train, _ = split(radon.y)
    (note,) = radon.refit(train).notes
    assert note.startswith("the column 'county_name' has values that training did not have: ")
    with pytest.raises(DataError, match=r"'sex' \(11\); .*; a target is never filled: drop the rows without it"):
        table.read(FOLDER / "penguins.csv", "sex")
    with pytest.raises(DataError, match="'county_name' has 85 different texts"):
        table.read(FOLDER / "radon.csv", "county_name")
    (note,) = table.read(FOLDER / "doctorvisits.csv", "visits").notes
    assert note == "the target 'visits' has 10 whole values, taken as regression; --task classes overrides"
