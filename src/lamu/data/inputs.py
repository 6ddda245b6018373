"""From features to inputs x: levels, medians and indicators are learned from the training rows and used on all others.

This is the only place where anything is learned from features, so that nothing about a test row can reach a model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lamu.data.encoding import Encoding
from lamu.data.features import Features
from lamu.data.imputation import learn_joint
from lamu.data.precision import origin_and_unit
from lamu.data.wording import DataError, counted, listed, plural

__all__ = ["LACKING", "learn", "transform"]

LACKING = "(missing)"  # the level of words that are missing, where such a level was learned


def learn(features: Features, rows: Any, impute: bool, y: Any = None, classes: int = 0) -> dict[str, Any]:
    """Returns what an encoding needs to know of the features: levels, fills, indicators and the joint distribution.

    Args:
        features: the features.
        rows: the training rows: indices, or a slice.
        impute: whether missing values will be filled.
        y: the targets of all rows, which missing numbers are drawn given; None where they have their medians.
        classes: how many classes the targets are indices of; 0 for numbers.

    Returns:
        `columns`, `levels`, `fills`, `indicators`, `units` and `joint` of an `Encoding`.

    Raises:
        DataError: for a column of which every training row lacks its value.

    Examples:
        >>> import numpy as np
        >>> from lamu.data.features import Features
        >>> from lamu.data.inputs import learn
        >>> features = Features(("a",), np.array([[1.0], [np.nan], [5.0], [90.0]]), ((),))
        >>> learn(features, [0, 1, 2], impute=True)
        {'columns': ('a',), 'levels': ((),), 'fills': (3.0,), 'indicators': ('a',), 'units': (), 'joint': None}
    """
    columns = [features.values[rows, column] for column in range(len(features.columns))]
    lacking = [np.isnan(column) for column in columns]
    ever, always = [bool(lacks.any()) for lacks in lacking], [bool(lacks.all()) for lacks in lacking]
    empty = [name for name, lacks in zip(features.columns, always, strict=True) if lacks]
    if empty:
        raise DataError(
            f"the {plural('column', empty)} {listed(empty)} {'has' if len(empty) == 1 else 'have'} no value in any of "
            f"the {len(columns[0])} rows to learn from; drop {'it' if len(empty) == 1 else 'them'}"
        )
    levels: list[tuple[str, ...]] = []
    fills: list[float | None] = []
    units: list[tuple[str, float, float]] = []
    for column, known in enumerate(features.levels):
        present = columns[column][~lacking[column]] if ever[column] else columns[column]
        seen = [known[index] for index in np.unique(present).astype(int)] if known else []
        if known and ever[column] and LACKING not in seen:
            seen.append(LACKING)
        levels.append(tuple(seen))
        fills.append(None if known else float(np.median(present)))
        found = None if known else origin_and_unit(present)
        if found is not None:
            units.append((features.columns[column], *found))
    indicators = [
        name for name, lacks, known in zip(features.columns, ever, features.levels, strict=True) if lacks and not known
    ]
    joint = None
    if impute and indicators and y is not None:
        coded, _ = _coded(replace(features, values=features.values[rows]), tuple(levels))
        joint = learn_joint(coded, tuple(map(len, levels)), np.asarray(y)[rows], classes)
    return {
        "columns": features.columns,
        "levels": tuple(levels),
        "fills": tuple(fills) if impute else (),
        "indicators": tuple(indicators) if impute else (),
        "units": tuple(units),
        "joint": joint,
    }


def transform(
    features: Features, encoding: Encoding, learned: Any = None, y: Any = None, which: int | None = None
) -> tuple[np.ndarray, list[str]]:
    """Returns the features as the inputs that a model of this encoding takes, and a note on each thing made up.

    Args:
        features: the features, in the order of the encoding's columns, without missing values unless it imputes.
        encoding: what was learned.
        learned: the rows that it was learned from, whose missing numbers are drawn given their targets.
        y: the targets of all rows, for these.
        which: the number of a completion, of missing numbers that are drawn; None for their medians given the rest.

    Returns:
        x, float64 `[rows, len(encoding.names)]`, and the notes.

    Examples:
        >>> import numpy as np
        >>> from lamu.data import Encoding
        >>> from lamu.data.features import Features
        >>> from lamu.data.inputs import transform
        >>> encoding = Encoding("y", "regression", (), ("a", "b"), ((), ("ox", "cow")), (3.0, None), ("a",))
        >>> features = Features(("a", "b"), np.array([[np.nan, 0.0], [2.0, 1.0]]), ((), ("cow", "hen")))
        >>> transform(features, encoding)[0].tolist()
        [[3.0, 2.0, 1.0], [2.0, 0.0, 0.0]]
    """
    joint, drawn = encoding.joint, () if encoding.joint is None else encoding.joint.drawn
    x, unknown = _coded(features, encoding.levels)
    lacking = np.isnan(features.values)
    filled = []
    if joint is not None:
        incomplete, x = x, joint.central(x) if which is None else joint.draw(x, which)
        if learned is not None:
            x[learned] = joint.given_targets(incomplete[learned], np.asarray(y)[learned])
    for column, (name, known) in enumerate(zip(encoding.columns, encoding.levels, strict=True)):
        lacks = lacking[:, column]
        count = int(lacks.sum())
        if count and known and LACKING in known:
            filled.append((name, f"{count} as a level of their own"))
        elif count and column in drawn:
            filled.append((name, f"{count} by draws given the rest of their rows"))
        elif count and not known:
            x[lacks, column] = encoding.fills[column]
            filled.append((name, f"{count} by the median {encoding.fills[column]:g}"))
        # In 64 bits, before a model that may have 32 sees it.
        origin, unit = encoding.origin_and_unit(name)
        if (origin, unit) != (0.0, 1.0):
            x[:, column] = (x[:, column] - origin) / unit
    marks = [lacking[:, encoding.columns.index(name)] for name in encoding.indicators]
    marked = "; columns of their own mark where numbers were missing" if marks else ""
    notes = [f"filled the missing values of {counted(filled)}{marked}"] if filled else []
    if marks:
        x = np.concatenate([x, np.stack(marks, axis=1).astype(x.dtype)], axis=1)
    return x, [*notes, *unknown]


def _coded(features: Features, levels: tuple[tuple[str, ...], ...]) -> tuple[np.ndarray, list[str]]:
    """Returns the features with words as positions among known levels, from 1, and a note on each unknown word."""
    x, unknown = features.values.copy(), []
    for column, (name, known) in enumerate(zip(features.columns, levels, strict=True)):
        if not known:
            continue
        code = {level: index + 1.0 for index, level in enumerate(known)}
        table = np.asarray([*(code.get(level, 0.0) for level in features.levels[column]), code.get(LACKING, 0.0)])
        values = features.values[:, column]
        x[:, column] = table[np.where(np.isnan(values), -1, values).astype(int)]
        unknown += _unknown(name, features, column, code)
    return x, unknown


def _unknown(name: str, features: Features, column: int, code: dict[str, float]) -> list[str]:
    """Returns the note on the levels of a column that training did not show."""
    values = features.values[:, column]
    present = values[~np.isnan(values)].astype(int)
    counts = np.bincount(present, minlength=len(features.levels[column]))
    new = [
        (level, int(count)) for level, count in zip(features.levels[column], counts, strict=True) if level not in code
    ]
    lacks = len(values) - len(present)
    if lacks and LACKING not in code:
        new.append((LACKING, lacks))
    if not new:
        return []
    return [
        f"the column {name!r} has values that training did not have: {counted(new, most=5)}; "
        "the model treats them as unknown"
    ]
