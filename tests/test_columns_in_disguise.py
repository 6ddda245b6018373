"""Columns in disguise: numbers as people write them, codes with leading zeros, and what stands for a missing value."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from lamu.cli.request import Request
from lamu.data import DataError, Encoding, sources, table
from lamu.data.table import Table
from lamu.data.written_numbers import sentinels, written

ROWS = 120
RNG = np.random.default_rng(0)
PRICES = RNG.uniform(100, 9999, ROWS).round()


def saved(folder: Path, name: str = "table.csv", **columns) -> Path:
    frame = pd.DataFrame({name: list(values) for name, values in columns.items()})
    if "y" not in frame:
        frame["y"] = np.linspace(0.5, 7.5, len(frame))
    path = folder / name
    frame.to_parquet(path) if name.endswith("parquet") else frame.to_csv(path, index=False)
    return path


def fitted(read: Table) -> Encoding:
    return Encoding.of(json.loads(json.dumps({"seed": 0, "missing": "text", **read.encoding.describe()})))


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("$115", 115, "$"),
        ("-$1,200.50", -1200.5, "$"),
        ("$-5", -5, "$"),
        ("US$ 12", 12, "US$"),
        ("12 %", 12, "%"),
        ("7%", 7, "%"),
        ("2,675", 2675, ""),
        ("1,234,567.8", 1234567.8, ""),
        ("1 234 567", 1234567, ""),
        ("1\u00a0234", 1234, ""),
        ("1'234.5", 1234.5, ""),
        ("12,34,567", 1234567, ""),
        ("(1,200)", -1200, ""),
        ("($3.50)", -3.5, "$"),
        ("1.5M", 1.5e6, ""),
        ("200K", 2e5, ""),
        ("$2.5bn", 2.5e9, "$"),
        ("$5m", 5e6, "$"),
        ("€ 3", 3, "€"),
        ("3 EUR", 3, "EUR"),
        ("3.5 k€", 3500, "€"),
        ("3 kg", 3, "kg"),
        ("180cm", 180, "cm"),
        ("5 m", 5, "m"),
        ("4 bedrooms", 4, "bedroom"),
        ("37.2 °C", 37.2, "°C"),
        ("120 km/h", 120, "km/h"),
        ("1,200 sq ft", 1200, "sq ft"),
        ("\u22125", -5, ""),
        ("5-", -5, ""),
        ("+3", 3, ""),
        (".5", 0.5, ""),
        ("1e-3", 1e-3, ""),
        ("inf", math.inf, ""),
        ("1.234,56", math.nan, ""),
        ("0,5", math.nan, ""),
    ],
)
def test_a_number_in_disguise_is_that_number(text, value, unit):
    found = written(text)
    assert found is not None
    assert found.unit == unit
    np.testing.assert_allclose(found.point, value, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "value"), [("1.234,56", 1234.56), ("0,5", 0.5), ("1.234", 1234), ("1 234,5 €", 1234.5)]
)
def test_a_decimal_comma_is_read(text, value):
    np.testing.assert_allclose(written(text).comma, value, rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    ["", "A12", "12A", "2nd", "1st", "3D", "10-20", "18+", "<5", "~3", "1/2", "12:30", "1.2.3", "1,2,3", "2019-03-31",
     "12 Main Street", "(5", "--5", "4x4", "$", "%", "1,23,4", "0,123,456", "5 of 7", "$5 €", "+-3", "()"],
)  # fmt: skip
def test_a_word_is_no_number(text):
    assert written(text) is None


DISGUISED = {
    "dollars": [f"${v:,.0f}" for v in PRICES],
    "percents": [f"{v / 100:.1f}%" for v in PRICES],
    "thousands": [f"{v:,.0f}" for v in PRICES],
    "negatives": [f"({v:,.0f})" for v in PRICES],
    "magnitudes": [f"{v / 1e3:.3f}K" for v in PRICES],
    "euros": [f"€ {v:.2f}" for v in PRICES],
    "kilograms": [f"{v:.0f} kg" for v in PRICES],
    "commas": [f"{v:,.2f}".translate(str.maketrans(",.", ".,")) for v in PRICES],
}
SCALES = {"percents": 0.01, "negatives": -1}


@pytest.mark.parametrize("kind", DISGUISED)
@pytest.mark.parametrize("file", ["table.csv", "table.parquet"])
def test_a_column_in_disguise_is_numbers_with_one_note(tmp_path, kind, file):
    """As a feature and as the target, with a level for nearly every row, which was left out as an identifier."""
    values = PRICES * SCALES.get(kind, 1)
    read = table.read(saved(tmp_path, file, a=DISGUISED[kind]), "y")
    np.testing.assert_allclose(read.x[:, 0], values, rtol=1e-9, atol=0.051 if kind == "percents" else 0)
    [note] = read.notes
    assert note.startswith("the column 'a' is written as ")
    assert f"in {ROWS} cells, taken as numbers" in note or kind in ("thousands", "commas")
    again = table.match(tmp_path / file, fitted(read))
    np.testing.assert_array_equal(again.x, read.x)
    assert again.notes == ()
    target = table.read(saved(tmp_path, file, a=PRICES, y=DISGUISED[kind]), "y")
    assert target.encoding.task == "regression"
    np.testing.assert_allclose(target.y, read.x[:, 0])
    np.testing.assert_allclose(table.match(tmp_path / file, fitted(target)).y, target.y)


def test_a_frame_is_read_as_a_file_is(tmp_path):
    frame = pd.DataFrame({"a": DISGUISED["dollars"], "zip": ["02139", "10001"] * (ROWS // 2), "y": PRICES})
    frame.to_csv(tmp_path / "table.csv", index=False)
    from_file = table.read(tmp_path / "table.csv", "y")
    for each in (frame, frame.set_index("y", drop=False), pl.from_pandas(frame)):
        found = table.read(each, "y")
        assert (found.encoding, found.notes) == (from_file.encoding, from_file.notes)
        np.testing.assert_array_equal(found.x, from_file.x)
        np.testing.assert_array_equal(table.match(each, found.encoding).x, found.x)
    with pytest.raises(DataError, match=r"3 is not a table; give a \.csv"):
        table.read(3, "y")


def test_a_number_in_words_among_numbers_in_disguise_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"has 'many' in row 7 .* of the column 'a', which is of numbers; correct it"):
        table.read(saved(tmp_path, a=[*DISGUISED["dollars"][:7], "many", *DISGUISED["dollars"][8:]]), "y")


def test_an_ambiguous_separator_is_said(tmp_path):
    read = table.read(saved(tmp_path, a=[f"{v:,.0f}" for v in PRICES + 1000]), "y")
    assert re.search(r"; '1,\d{3}' is read as (1\d{3}), and could be 1\.\d+$", read.notes[0])
    some = table.read(
        saved(tmp_path, a=[f"{v:,.0f}" for v in [*PRICES[:-1], 980]]), "y"
    )  # 980,000 if it were a decimal
    assert "could be" not in some.notes[0]
    fractions = table.read(saved(tmp_path, a=[f"0,{i:03d}" for i in range(ROWS)]), "y")
    np.testing.assert_allclose(fractions.x[:, 0], np.arange(ROWS) / 1000)


def test_unlike_units_and_signs_are_never_mixed(tmp_path):
    several = [f"{v:.0f} {'kg' if i % 2 else 'g'}" for i, v in enumerate(PRICES)]
    with pytest.raises(
        DataError, match=r"'[0-9]+ k?g' and '[0-9]+ k?g', in different units, in the column 'a'; write all"
    ):
        table.read(saved(tmp_path, a=sorted(several, key=lambda text: text[-2:] == "kg")), "y")
    with pytest.raises(DataError, match="in different units"):
        table.read(saved(tmp_path, a=[f"{v / 1e4:.4f}" + "%" * (i % 2) for i, v in enumerate(PRICES)]), "y")
    with pytest.raises(DataError, match="with different decimal signs, in the column 'a'"):
        table.read(saved(tmp_path, a=[f"{i},5" if i % 2 else f"{i}.5" for i in range(ROWS)]), "y")
    few = table.read(saved(tmp_path, a=["1 day", "2 weeks", "3 months"] * 40), "y")
    assert few.encoding.cardinalities == (3,)
    assert few.notes == ("the column 'a' has '1 day' and '2 weeks', in different units, all taken as categories",)


def test_another_unit_at_prediction_is_said_or_refused(tmp_path):
    read = {kind: fitted(table.read(saved(tmp_path, a=values), "y")) for kind, values in DISGUISED.items()}
    read["plain"] = fitted(table.read(saved(tmp_path, a=PRICES), "y"))
    new = lambda values: saved(tmp_path, "new.csv", a=values)

    bare = table.match(new(PRICES), read["dollars"])
    assert bare.notes == (
        "the column 'a' has numbers without '$', which it had when the model was fitted, taken as numbers in '$'",
    )
    signed = table.match(new(DISGUISED["dollars"]), read["plain"])
    np.testing.assert_array_equal(signed.x[:, 0], PRICES)
    assert signed.notes[0].startswith("the column 'a' is written as '$")
    np.testing.assert_array_equal(bare.x[:, 0], PRICES)
    for kind, values, sentence in (
        (
            "dollars",
            DISGUISED["euros"],
            "has '€ .* in row 0 .* 'a', which was of numbers in '[$]' when .* the same unit",
        ),
        ("plain", DISGUISED["percents"], "which was of numbers without a unit when the model was fitted"),
        ("percents", PRICES / 1e4, "has numbers such as 0.* in the column 'a', which was of numbers in '%'"),
        ("percents", ["0.5", "7%"], "has '0.5' in row 0 .* which was of numbers in '%'"),
        ("kilograms", ["5 lb"], "has '5 lb' in row 0"),
        ("plain", ["1,5", "1.5"], "with another decimal sign; write all"),
        ("plain", ["12", "twelve"], "'twelve' in row 1 .* which is of numbers"),
    ):
        with pytest.raises(DataError, match=sentence):
            table.match(new(values), read[kind])
    assert table.match(new([12.0, 30.0]), read["percents"]).x[:, 0].tolist() == [12, 30]


def test_a_decimal_comma_is_one_at_prediction_too(tmp_path):
    """A file with 1.234 alone, which any program reads as little more than one, is of thousands here."""
    commas = fitted(table.read(saved(tmp_path, a=DISGUISED["commas"]), "y"))
    assert table.match(saved(tmp_path, "new.csv", a=["1.234", "2.500"]), commas).x[:, 0].tolist() == [1234, 2500]
    moved = table.match(saved(tmp_path, "new.csv", a=["1234.5", "2.25"]), commas)
    assert moved.x[:, 0].tolist() == [1234.5, 2.25]
    assert "a point being the decimal sign" in moved.notes[0]
    plain = fitted(table.read(saved(tmp_path, a=PRICES), "y"))
    moved = table.match(saved(tmp_path, "new.csv", a=["1.234,5", "2,25"]), plain)
    assert moved.x[:, 0].tolist() == [1234.5, 2.25]
    assert "a comma being the decimal sign" in moved.notes[0]
    doubtful = table.match(saved(tmp_path, "new.csv", a=["1,234"]), plain)
    assert doubtful.x[0, 0] == 1234
    assert doubtful.notes[0].endswith("'1,234' is read as 1234, and could be 1.234")


# Codes


ZIPS = [*(f"{code:05d}" for code in RNG.choice(99999, 11)), "02139"]


@pytest.mark.parametrize("file", ["table.csv", "table.parquet", "table.csv.gz"])
def test_codes_with_leading_zeros_are_categories(tmp_path, file):
    read = table.read(saved(tmp_path, file, zip=ZIPS * 10), "y")
    assert read.encoding.levels == (tuple(sorted(ZIPS)),)
    assert "the column 'zip' has codes with leading zeros such as '0" in read.notes[0]
    assert table.match(tmp_path / file, fitted(read)).x.tolist() == read.x.tolist()


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_codes_are_found_wherever_they_stand(tmp_path, separator, quote, monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK", 100)
    rows = [f"{i}.5{separator}{quote}{'007' if i == 97 else 10 + i % 9}{quote}{separator}{i % 3}" for i in range(99)]
    (tmp_path / "table.csv").write_text("\n".join([f"a{separator}code{separator}y", *rows]) + "\n")
    read = table.read(tmp_path / "table.csv", "y")
    assert read.encoding.levels[1][0] == "007"
    assert read.encoding.levels[0] == ()


def test_numbers_with_a_zero_in_front_are_no_codes(tmp_path):
    read = table.read(saved(tmp_path, a=[f"0{i % 9}.5" for i in range(ROWS)], b=np.arange(ROWS) / 100), "y")
    assert read.encoding.levels == ((), ())
    assert read.notes == ()


def test_a_code_that_lost_its_zeros_is_the_same_code(tmp_path):
    read = fitted(table.read(saved(tmp_path, zip=ZIPS * 10), "y"))
    for file in ("new.csv", "new.parquet"):
        lost = table.match(saved(tmp_path, file, zip=[int(code) for code in ZIPS]), read)
        assert lost.x[:, 0].tolist() == [1.0 + sorted(ZIPS).index(code) for code in ZIPS]
        assert "codes with other zeros than training had, read as those: " in lost.notes[0]
    numeric = fitted(table.read(saved(tmp_path, zip=np.arange(ROWS) + 10), "y"))
    padded = table.match(saved(tmp_path, "new.csv", zip=["00012", "00013"]), numeric)
    assert padded.x[:, 0].tolist() == [12, 13]
    assert (
        "has codes with leading zeros such as '00012', and was of numbers when the model was fitted" in padded.notes[0]
    )


def test_a_target_of_codes_is_classes(tmp_path):
    read = table.read(saved(tmp_path, a=PRICES, y=["01", "02", "10"] * 40), "y")
    assert (read.encoding.task, read.encoding.labels) == ("classes", ("01", "02", "10"))
    assert table.match(tmp_path / "table.csv", fitted(read)).y.tolist() == [0, 1, 2] * 40


# What stands for a missing value


@pytest.mark.parametrize(
    "mark", ["#DIV/0!", "#N/A", "#VALUE!", "#REF!", "?", "-", "--", ".", "n.a.", "unknown", "Missing"]
)
@pytest.mark.parametrize("file", ["table.csv", "table.parquet"])
def test_a_mark_among_numbers_is_a_missing_value(tmp_path, mark, file):
    values = [mark if i % 2 == 0 and i < 80 else f"{v:.0f}" for i, v in enumerate(PRICES)]  # a third of the column
    path = saved(tmp_path, file, a=values)
    with pytest.raises(DataError, match=r"'a' \(40, among them '.*'\); drop those rows or columns, or fill them"):
        table.read(path, "y")
    read = table.read(path, "y", impute=True)
    assert read.encoding.levels == ((),)
    np.testing.assert_array_equal(read.x[:, 1], [value == mark for value in values])
    assert read.notes[0] == f"the column 'a' has {mark!r} (40), taken as missing values"
    again = table.match(path, fitted(read))
    np.testing.assert_array_equal(again.features.values, read.features.values)
    np.testing.assert_array_equal(again.x[:, 1], read.x[:, 1])
    assert again.notes[0] == read.notes[0]
    with pytest.raises(DataError, match=r"'y' \(40, among them .*\); drop those rows, since a target is never filled"):
        table.read(saved(tmp_path, file, a=PRICES, y=values), "y", impute=True)


def test_marks_among_words(tmp_path):
    read = table.read(saved(tmp_path, a=["ox", "?", "hen"] * 40, b=["+", "-", "+"] * 40), "y", impute=True)
    assert read.encoding.levels == (("hen", "ox"), ("+", "-"))
    again = table.match(saved(tmp_path, "new.csv", a=["#N/A", "ox"], b=["-", "-"]), fitted(read))
    assert again.x.tolist() == [[0, 2, 1], [2, 2, 0]]
    words = table.read(saved(tmp_path, a=["low", "unknown", "high"] * 40), "y")
    assert words.encoding.levels == (("high", "low", "unknown"),)
    kept = table.read(saved(tmp_path, a=["ox", "?", "hen"] * 40), "y", missing=[])
    assert kept.encoding.levels == (("?", "hen", "ox"),)


@pytest.mark.parametrize(
    ("value", "others", "certain"),
    [
        (-999, PRICES / 1000, True),
        (-9999, PRICES / 1000, True),
        (-99, RNG.normal(size=ROWS), True),
        (99, np.arange(ROWS) % 7, True),
        (9999, np.arange(ROWS), True),
        (999, np.arange(ROWS) % 2, True),
        (98, np.arange(ROWS) % 5, True),
        (-999, PRICES, False),  # close beside the range, but the only one below zero
        (99999, np.arange(ROWS) * 400, False),
        (2147483647, np.arange(ROWS), True),
        (-1e30, RNG.normal(size=ROWS), True),
        (-999.25, RNG.normal(size=ROWS), True),
    ],
)
def test_a_number_that_stands_for_a_missing_value_is_named(tmp_path, value, others, certain):
    a = np.asarray(others, float).round(3)
    a[:: ROWS // 6] = value
    read = table.read(saved(tmp_path, a=a), "y", impute=True)
    assert f"the column 'a' has '{value:.12g}' (6), " in read.notes[0]
    assert ("taken as missing values" in read.notes[0]) == certain
    assert f"--missing {'none' if certain else f'{value:.12g}'}" in read.notes[0]
    assert ((read.x[:, 0] == value).sum() == 0) == certain
    np.testing.assert_array_equal(read.x[:, 1] if certain else a == value, a == value)
    again = table.match(tmp_path / "table.csv", fitted(read))
    np.testing.assert_array_equal(again.features.values, read.features.values)
    kept = table.read(tmp_path / "table.csv", "y", missing=[])
    np.testing.assert_array_equal(kept.features.values[:, 0], a)
    assert not any("missing" in note for note in kept.notes)
    declared = table.read(tmp_path / "table.csv", "y", impute=True, missing=[f"{value:.12g}"])
    np.testing.assert_array_equal(declared.x[:, 1], a == value)
    again = table.match(tmp_path / "table.csv", fitted(declared))
    np.testing.assert_array_equal(again.features.values, declared.features.values)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(120.0),  # 99 is one of them
        np.r_[np.arange(60.0), 99],
        np.r_[np.arange(98.0), [99] * 20],
        np.r_[np.zeros(50), [99] * 20],  # two values
        np.r_[RNG.normal(size=50), [50] * 20],
        np.full(50, 99.0),
        np.r_[RNG.normal(scale=1e3, size=50), [-999] * 3],
        np.array([]),
        np.full(30, np.nan),
    ],
)
def test_an_ordinary_number_stands_for_itself(values):
    found = sentinels(values)
    assert not found.certain
    assert not found.suspected


def test_the_command_line_declares_missing_values(tmp_path):
    path = str(saved(tmp_path, a=[-7 if i % 20 == 0 else i % 5 for i in range(ROWS)], b=["ox", "none", "hen"] * 40))
    for text, gone in (("-7, none", (6, 40)), ("none", (0, 0)), (None, (0, 0))):
        found = Request(path, "y", impute=True, missing=text).read()
        assert tuple(np.isnan(found.features.values).sum(axis=0)) == gone, text


def test_two_numbers_that_stand_for_missing_values():
    found = sentinels(np.r_[np.arange(60) % 5, [98] * 4, [99] * 7, [-9.0] * 3])
    assert found.certain == {98: 4, 99: 7}
    assert found.suspected == {-9: 3}
    assert (found.low, found.high) == (0, 4)


@pytest.mark.parametrize("file", ["table.csv", "table.parquet"])
def test_numbers_are_categories_where_the_user_says_so(tmp_path, file):
    shop = [3, 12, 100] * 40
    columns = {"shop": shop, "area_id": [1, 2, 3, 4] * 30, "user_id": ["ann", "bob", "eve"] * 40}
    path = saved(tmp_path, file, **columns, size=RNG.normal(size=ROWS))
    plain, named = table.read(path, "y"), Request(str(path), "y", categories="shop, area_id").read()
    assert plain.encoding.levels == ((), (), ("ann", "bob", "eve"), ())
    said = "'area_id' is taken as numbers; --categories area_id takes them as names, and --groups area_id asks for"
    assert said in " ".join(plain.notes)
    assert "'user_id' is taken as categories; --groups user_id asks for predictions of new" in " ".join(plain.notes)
    assert "--categories" not in " ".join(table.read_columns(path)[2])  # a model without a target has no such option
    assert "'shop'" not in " ".join((*plain.notes, *named.notes))
    assert named.encoding.levels[:2] == (("100", "12", "3"), ("1", "2", "3", "4"))
    assert named.x[:3, 0].tolist() == [3, 2, 1]
    again = table.match(
        saved(tmp_path, "new.csv", shop=[12, 7], area_id=[4, 1], user_id=["bob", "ann"], size=[0, 1]), fitted(named)
    )
    assert again.x[:, :2].tolist() == [[2, 4], [0, 1]]
    with pytest.raises(DataError, match="no feature 'shops' to be of categories; did you mean 'shop'"):
        table.read(path, "y", categories=["shops"])
    with pytest.raises(DataError, match="no feature 'y' to be of categories"):
        table.read(path, "y", categories=["y"])
