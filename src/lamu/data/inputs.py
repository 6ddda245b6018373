"""Encodes features as inputs x: levels, medians, indicators and the joint distribution of the training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from lamu.data import columns as dates
from lamu.data.columns import Words, kind, names_rows, numbers, refuse_word, words
from lamu.data.encoding import Encoding
from lamu.data.imputation import DRAWS, MOST_LEVELS, Completions, JointOfColumns, learn_joint, uniforms
from lamu.data.precision import origin_and_unit
from lamu.data.sources import Source
from lamu.data.wording import DataError, at, counted, listed, plural, quoted
from lamu.typing import Targets

__all__ = [
    "LACKING",
    "Features",
    "Selection",
    "completions",
    "features_to_predict",
    "known_positions",
    "learn",
    "one_hot",
    "refuse_dates",
    "training_features",
    "transform",
]


_TRUTH = {"True": 1.0, "False": 0.0}
_AS_TRUTH = {"1": "True", "1.0": "True", "0": "False", "0.0": "False"}


@dataclass(frozen=True)
class Features:
    """The features of a table before encoding."""

    columns: tuple[str, ...]  # their names
    # Numbers, and positions among the levels, float64 `[rows, columns]`; NaN for missing values.
    values: np.ndarray
    levels: tuple[tuple[str, ...], ...]  # the levels of each column, sorted; empty for a column of numbers
    notes: tuple[str, ...] = ()  # one sentence for each column of ambiguous kind


def training_features(source: Source, columns: Sequence[str]) -> Features:
    """Returns the training features; the values decide which columns are numbers and which are words."""
    notes: list[str] = []
    columns_read: list[tuple[np.ndarray, tuple[str, ...]]] = []
    for name in columns:
        values = source[name]
        column_kind = _kind(source, name)
        if column_kind == "numbers":
            columns_read.append((numbers(values), ()))
            continue
        column = words(values)
        if column.dated():
            raise refuse_dates(source, name, column.levels[0])
        number = ~np.isnan(column.numbers) if column_kind == "text" else None
        if number is not None and number.all():
            notes.append(f"the column {name!r} is text and holds only numbers, taken as numbers")
            columns_read.append((column.parsed, ()))
            continue
        _refuse_words(source, name, column, number)
        if number is not None and number.any():
            word, _ = column.first(number)
            notes.append(f"the column {name!r} has numbers and words such as {quoted(word)}, all taken as categories")
        columns_read.append(_positions(column))
    return _joined(source, columns, columns_read, notes)


def features_to_predict(source: Source, columns: Sequence[str], levels: Sequence[tuple[str, ...]]) -> Features:
    """Returns the features of a table to predict, each of its kind in training."""
    columns_read: list[tuple[np.ndarray, tuple[str, ...]]] = []
    for name, column_levels in zip(columns, levels, strict=True):
        values = source[name]
        column_kind = _kind(source, name)
        if column_levels:
            columns_read.append(
                _positions(
                    _booleans_as_text(words(values)) if {*column_levels} <= {*_TRUTH, LACKING} else words(values)
                )
            )
        elif column_kind == "text":
            column = words(values)
            truth = _booleans_as_text(column)
            if {*truth.levels} <= {*_TRUTH} and not {*column.levels} & {*_AS_TRUTH}:  # of a column of zeros and ones
                columns_read.append((truth.spread(np.array([_TRUTH[level] for level in truth.levels])).to_numpy(), ()))
                continue
            number = ~np.isnan(column.numbers)
            if not number.all():
                raise refuse_word(source.name, name, *column.first(number))
            columns_read.append((column.parsed, ()))
        else:
            columns_read.append((numbers(values), ()))
    return _joined(source, columns, columns_read, [])


def refuse_dates(source: Source, column: str, value: str | None = None, advice: str = dates.OPTION) -> DataError:
    """Returns the error about a column of dates or times."""
    such = "" if value is None else f" such as {quoted(value)}"
    return DataError(f"{source.name} has the column {column!r} of dates or times{such}; {advice}")


def _kind(source: Source, name: str) -> str:
    column_kind = kind(source[name])
    if column_kind == "dates":
        present = source[name].dropna()
        raise refuse_dates(source, name, str(present.iloc[0]) if len(present) else None)
    if column_kind not in ("numbers", "text", "levels"):
        raise DataError(
            f"{source.name} has the column {name!r} of {column_kind}, which are neither numbers nor text; drop it"
        )
    return column_kind


def _refuse_words(source: Source, name: str, column: Words, number: np.ndarray | None) -> None:
    """Raises a DataError for words that are not levels: a few words among numbers, and identifiers."""
    stray = column.stray() if number is not None else None
    levels, present = len(column.levels), int(column.counts.sum())
    many = names_rows(levels, present)
    readable = column.readable if number is not None else None
    if (
        stray is None
        and many
        and readable is not None
        and not readable.all()
        and 2 * column.counts[readable].sum() > present
    ):
        stray = column.first(readable)
    if stray is not None:
        raise refuse_word(source.name, name, *stray)
    if many:
        raise DataError(
            f"{source.name} has {levels} different texts in {present} rows of the column {name!r}, such as "
            f"{quoted(column.levels[0])}, which look like identifiers; drop the column"
        )


def _positions(column: Words) -> tuple[np.ndarray, tuple[str, ...]]:
    return np.where(column.codes < 0, np.nan, column.codes), column.levels


def _booleans_as_text(column: Words) -> Words:
    """Returns truth values in Python's spelling: TRUE, true and 1 are True."""
    import pandas as pd

    spelled = {text: _AS_TRUTH.get(text, text.title()) for text in column.levels}
    capital = {text: truth for text, truth in spelled.items() if truth in _TRUTH}
    return words(pd.Series([text if text is None else capital.get(text, text) for text in column.texts], dtype=object))


def _joined(
    source: Source, columns: Sequence[str], columns_read: list[tuple[np.ndarray, tuple[str, ...]]], notes: Sequence[str]
) -> Features:
    values, first, count = np.empty((len(source.frame), len(columns_read)), np.float64), None, 0
    for index, (column, _) in enumerate(columns_read):
        values[:, index] = column
        infinite = np.flatnonzero(np.isinf(column))
        count += len(infinite)
        if len(infinite) and (first is None or infinite[0] < first[0]):
            first = int(infinite[0]), index
    if first is not None:
        row, index = first
        more = "" if count == 1 else f", the first of {count} infinite values"
        raise DataError(
            f"{source.name} has {values[row, index]} {at(row)} of the column {columns[index]!r}{more}; "
            "replace it or drop the row"
        )
    return Features(tuple(columns), values, tuple(levels for _, levels in columns_read), tuple(notes))


# The only place where anything is learned from features, so that test rows cannot influence a model.


Selection: TypeAlias = np.ndarray | slice | Sequence[int]  # of rows
LACKING = "(missing)"  # the level of missing words, if such a level was learned
_FURTHEST = 8.0  # quantiles of Student's t, which has no mean with two known words


def learn(
    features: Features,
    rows: Selection,
    impute: bool,
    y: Targets = None,
    classes: int = 0,
    weight: np.ndarray | None = None,
) -> dict[str, Any]:
    """Returns the encoding's statistics of the features: levels, fills, indicators and the joint distribution."""
    columns = [features.values[rows, column] for column in range(len(features.columns))]
    lacking = [np.isnan(column) for column in columns]
    ever, always = [bool(lacks.any()) for lacks in lacking], [bool(lacks.all()) for lacks in lacking]
    empty = [name for name, lacks in zip(features.columns, always, strict=True) if lacks]
    if empty:
        raise DataError(
            f"the {plural('column', empty)} {listed(empty)} {'has' if len(empty) == 1 else 'have'} no value in any of "
            f"the {len(columns[0])} rows to learn from; drop {'it' if len(empty) == 1 else 'them'}"
        )
    row_weights = None if weight is None else np.asarray(weight)[rows]
    levels: list[tuple[str, ...]] = []
    fills: list[float | None] = []
    units: list[tuple[str, float, float]] = []
    ranges: list[tuple[str, float, float]] = []
    for column, column_levels in enumerate(features.levels):
        present = columns[column][~lacking[column]] if ever[column] else columns[column]
        seen = [column_levels[index] for index in np.unique(present).astype(int)] if column_levels else []
        if ever[column] and LACKING not in seen and not (impute and len(seen) <= MOST_LEVELS) and column_levels:
            seen.append(LACKING)
        levels.append(tuple(seen))
        counts = None if row_weights is None else row_weights[~lacking[column]]
        fills.append(None if column_levels else _median(present, counts))
        scale = None if column_levels else origin_and_unit(present)
        if scale is not None:
            units.append((features.columns[column], *scale))
        if not column_levels:
            ranges.append((features.columns[column], float(present.min()), float(present.max())))
    indicators = [
        name for name, lacks, seen in zip(features.columns, ever, levels, strict=True) if lacks and LACKING not in seen
    ]
    joint = None
    if impute:
        coded, _ = _coded(replace(features, values=features.values[rows]), tuple(levels))
        coded[np.stack(lacking, axis=1) & (coded == 0)] = np.nan  # missing words, to be drawn
        joint = learn_joint(coded, tuple(map(len, levels)), np.asarray(y)[rows], classes, row_weights)
    return {
        "columns": features.columns,
        "levels": tuple(levels),
        "fills": tuple(fills) if impute else (),
        "indicators": tuple(indicators) if impute else (),
        "units": tuple(units),
        "ranges": tuple(ranges),
        "one_hot": tuple(
            tuple(features.columns[column] for column in block)
            for block in one_hot([_ones(values, of) for values, of in zip(columns, features.levels, strict=True)])
        ),
        "joint": joint,
    }


def _median(values: np.ndarray, weight: np.ndarray | None) -> float:
    """Returns the weighted median."""
    if weight is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    above = np.cumsum(weight[order])
    ends = [np.searchsorted(above, above[-1] / 2, side=side) for side in ("left", "right")]
    return float(np.mean(values[order[np.minimum(ends, len(values) - 1)]]))


def transform(
    features: Features, encoding: Encoding, learned: Selection | None = None, y: Targets = None
) -> tuple[np.ndarray, list[str]]:
    """Returns the features as inputs for a model with this encoding, and a note on each filled value."""
    # Rows to predict use `completions`; here a missing number is the median given the rest of its row, and an
    # unknown word is 0.
    joint = encoding.joint
    x, unknown = _coded(features, encoding.levels)
    lacking = np.isnan(features.values)
    filled = []
    if joint is not None:
        incomplete, x = np.where(lacking & (x == 0), np.nan, x), joint.central(x)
        if learned is not None:
            x[learned] = joint.given_targets(incomplete[learned], np.asarray(y)[learned])
    for column, (name, column_levels) in enumerate(zip(encoding.columns, encoding.levels, strict=True)):
        count = int(lacking[:, column].sum())
        if not count:
            continue
        if LACKING in column_levels:
            filled.append((name, f"{count} as a level of their own"))
        elif joint is not None:
            filled.append((name, f"{count} by draws given the rest of their rows"))
        elif not column_levels:
            x[lacking[:, column], column] = encoding.fills[column]
            filled.append((name, f"{count} by the median {encoding.fills[column]:g}"))
    marked = "; columns of their own mark where values were missing" if encoding.indicators else ""
    notes = [f"filled the missing values of {counted(filled)}{marked}"] if filled else []
    return _finished(x, lacking, encoding), [*notes, *unknown, *outside_training(features, encoding)]


def completions(features: Features, encoding: Encoding) -> Completions:
    """Returns the inputs of rows to predict, with draws of missing values and new words."""
    x, _ = _coded(features, encoding.levels)
    words = np.array([bool(column_levels) for column_levels in encoding.levels])
    unknown, lacking = words[None] & (x == 0), np.isnan(features.values)
    missing = lacking & (unknown | ~words[None])
    joint = encoding.joint
    if joint is None:
        missing = missing & ~lacking  # without imputation, missing values never get here
        words_alone = tuple((c, len(column_levels)) for c, column_levels in enumerate(encoding.levels) if column_levels)
        joint = JointOfColumns((), words_alone)
    unseen = unknown & ~missing
    drawn = np.flatnonzero((missing | unseen).any(axis=1))
    if not len(drawn):
        return Completions.of(_finished(x, lacking, encoding))
    incomplete = np.where(missing[drawn] | unseen[drawn], np.nan, x[drawn])
    completed = joint.draws(incomplete, unseen[drawn])
    counts = np.where(np.isin(np.arange(len(x)), drawn), DRAWS, 1)
    row = np.repeat(np.arange(len(x)), counts)
    x = np.repeat(x, counts, axis=0)
    x[np.isin(row, drawn)] = completed.reshape(-1, x.shape[1])
    alone = np.array([len(column_levels) == 1 for column_levels in encoding.levels])
    x[unseen[row] & alone[None]] = 0.0  # as another value of a column that was constant: no draw of one is wider
    x = _finished(x, lacking[row], encoding)
    return Completions(x, row, _spread(row, drawn, incomplete, unseen[drawn], list(map(len, encoding.levels))))


def _spread(
    row: np.ndarray, drawn: np.ndarray, incomplete: np.ndarray, unseen: np.ndarray, levels: Sequence[int]
) -> np.ndarray:
    """Returns each completion's distance from its known word, in standard deviations between completions."""
    # K known words are K observations of a word's effect, and a kernel of Student's t around each, of 2 / sqrt(K)
    # standard deviations between words, gives a distribution of the next one: its 90 % interval covers .90 for
    # every K from 2 on if the effects are normal, that of the K words alone .33 for K = 2 and .86 for 20.
    from scipy.special import stdtrit

    spread = np.zeros(len(row))
    is_drawn = np.isin(row, drawn)
    fewest = np.where(unseen, np.asarray(levels)[None], np.iinfo(int).max).min(axis=1, initial=np.iinfo(int).max)
    uniform = uniforms(incomplete, [incomplete.shape[1]], DRAWS)[:, :, 0]
    freedom = np.clip(fewest - 1.0, 1.0, 1e6)[:, None]
    noise = np.clip(stdtrit(freedom, uniform), -_FURTHEST, _FURTHEST) * 2.0 / np.sqrt(freedom)
    spread[is_drawn] = np.where((unseen.any(axis=1) & (fewest > 1))[:, None], noise, 0.0).ravel()
    return spread


def _finished(x: np.ndarray, lacking: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Returns completed rows in the encoding's units, followed by its indicators."""
    for column, name in enumerate(encoding.columns):
        # In 64 bits, before they are passed to a model with 32 bits.
        origin, unit = encoding.origin_and_unit(name)
        if (origin, unit) != (0.0, 1.0):
            x[:, column] = (x[:, column] - origin) / unit
    marks = [lacking[:, encoding.columns.index(name)] for name in encoding.indicators]
    return np.concatenate([x, np.stack(marks, axis=1).astype(x.dtype)], axis=1) if marks else x


def outside_training(features: Features, encoding: Encoding) -> list[str]:
    """Returns a note on each column that had one value in all training rows, or lies far from them in most rows."""
    # No training row tells the effect; predictions of tables are widened by its prior, those of points are not.
    notes = []
    place = {name: index for index, name in enumerate(features.columns)}
    for block in encoding.one_hot:
        ones = [_ones(features.values[:, place[name]], features.levels[place[name]]) for name in block]
        if zeros := int(np.sum(np.all(np.equal(ones, 0), axis=0))):
            notes.append(
                f"the columns {listed(block)}, of which each training row has exactly one, are all zero in {zeros} of "
                f"{len(features.values)} rows; a new category is predicted without an effect, and intervals may be too "
                "narrow: give the column of the categories itself"
            )
    for name, low, known in encoding.ranges:
        values = features.values[:, features.columns.index(name)]
        values, width = values[~np.isnan(values)], known - low
        others = values[values != known] if low == known else values[:0]
        if low < known and 2 * np.sum((values < low - width) | (values > known + width)) > len(values):
            notes.append(
                f"the column {name!r} runs from {values.min():g} to {values.max():g} here, and from {low:g} to "
                f"{known:g} in training; check its unit, as predictions so far outside are extrapolated"
            )
        if len(others):
            notes.append(
                f"the column {name!r} was {known:g} in all training rows and has other values here ({others[0]:g} is "
                f"the first of {len(others)}); their effect is not known, and intervals may be too narrow"
            )
    return notes


def one_hot(columns: Sequence[np.ndarray]) -> list[list[int]]:
    """Returns the groups of successive columns of zeros and ones of which every row has exactly one."""
    blocks: list[list[int]] = []
    block: list[int] = []
    total = np.zeros(len(columns[0]) if len(columns) else 0)  # of the block's columns in each row
    for column, values in enumerate(columns):
        if not values.any():  # a category that these rows do not have
            continue
        if not np.isin(values[:_GLANCE], (0, 1)).all() or not np.isin(values, (0, 1)).all() or values.all():
            block, total = [], np.zeros(len(values))
            continue
        block.append(column)
        total = total + values
        while total.max() > 1:
            total = total - columns[block.pop(0)]
        if total.all():
            blocks.append(block)
            block, total = [], np.zeros(len(values))
    return blocks


_GLANCE = 1000  # rows that tell of nearly every column of numbers that it is one


def _ones(values: np.ndarray, levels: Sequence[str]) -> np.ndarray:
    """Returns a column of numbers, or positions of truth values as zeros and ones; NaN for other words."""
    ones = np.array([*(_TRUTH.get(level, np.nan) for level in levels), np.nan])
    return ones[np.where(np.isnan(values), -1, values).astype(int)] if levels else values


def known_positions(features: Features, levels: tuple[tuple[str, ...], ...]) -> tuple[np.ndarray, list[str]]:
    """Returns the features with words as positions among known levels, from 0, NaN for others, and notes on those."""
    x, _ = _coded(features, levels)
    unknown = []
    for column, (name, column_levels) in enumerate(zip(features.columns, levels, strict=True)):
        if column_levels:
            x[:, column] = np.where(x[:, column] == 0, np.nan, x[:, column] - 1)
            new = _new_levels(features, column, column_levels)
            if new:
                unknown.append(f"the column {name!r} has new values, taken as missing: {counted(new, most=5)}")
    return x, unknown


def _coded(features: Features, levels: tuple[tuple[str, ...], ...]) -> tuple[np.ndarray, list[str]]:
    """Returns the features with words as positions among known levels, from 1, and a note on each unknown word."""
    x, unknown = features.values.copy(), []
    for column, (name, column_levels) in enumerate(zip(features.columns, levels, strict=True)):
        if not column_levels:
            continue
        code = {level: index + 1.0 for index, level in enumerate(column_levels)}
        table = np.asarray([*(code.get(level, 0.0) for level in features.levels[column]), code.get(LACKING, 0.0)])
        values = features.values[:, column]
        x[:, column] = table[np.where(np.isnan(values), -1, values).astype(int)]
        unknown += _unknown(name, features, column, column_levels)
    return x, unknown


def _unknown(name: str, features: Features, column: int, levels: Sequence[str]) -> list[str]:
    """Returns the note on levels of a column that are not in the training rows."""
    new = _new_levels(features, column, levels)
    if not new:
        return []
    if len(levels) == 1:  # as of a number in `outside_training`
        return [
            f"the column {name!r} was {levels[0]!r} in all training rows and has other values here: "
            f"{counted(new, most=5)}; their effect is not known, and intervals may be too narrow"
        ]
    return [
        f"the column {name!r} has values that training did not have: {counted(new, most=5)}; each is predicted as a "
        f"new draw from the {len(set(levels) - {LACKING})} known values, with a wider interval"
    ]


def _new_levels(features: Features, column: int, levels: Sequence[str]) -> list[tuple[str, int]]:
    """Returns the unknown levels of a column, and how often each occurs."""
    values = features.values[:, column]
    present = values[~np.isnan(values)].astype(int)
    counts = np.bincount(present, minlength=len(features.levels[column]))
    return [
        (level, int(count)) for level, count in zip(features.levels[column], counts, strict=True) if level not in levels
    ]
