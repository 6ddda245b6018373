"""From features to inputs x: levels, medians and indicators are learned from the training rows and used on all others.

This is the only place where anything is learned from features, so that nothing about a test row can reach a model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.data.encoding import Encoding
from lamu.data.features import Features
from lamu.data.precision import origin_and_unit
from lamu.data.wording import DataError, counted, listed, plural

__all__ = ["LACKING", "learn", "transform"]

LACKING = "(missing)"  # the level of words that are missing, where such a level was learned


def learn(features: Features, rows: Any, impute: bool) -> dict[str, Any]:
    """Returns what an encoding needs to know of the features: levels, fills and indicators.

    Args:
        features: the features.
        rows: the training rows: indices, or a slice.
        impute: whether missing values will be filled.

    Returns:
        `columns`, `levels`, `fills`, `indicators` and `units` of an `Encoding`.

    Raises:
        DataError: for a column of which every training row lacks its value.

    Examples:
        >>> import numpy as np
        >>> from lamu.data.features import Features
        >>> from lamu.data.inputs import learn
        >>> features = Features(("a",), np.array([[1.0], [np.nan], [5.0], [90.0]]), ((),))
        >>> learn(features, [0, 1, 2], impute=True)
        {'columns': ('a',), 'levels': ((),), 'fills': (3.0,), 'indicators': ('a',), 'units': ()}
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
    return {
        "columns": features.columns,
        "levels": tuple(levels),
        "fills": tuple(fills) if impute else (),
        "indicators": tuple(indicators) if impute else (),
        "units": tuple(units),
    }


def transform(features: Features, encoding: Encoding) -> tuple[np.ndarray, list[str]]:
    """Returns the features as the inputs that a model of this encoding takes, and a note on each thing made up.

    Args:
        features: the features, in the order of the encoding's columns, without missing values unless it imputes.
        encoding: what was learned.

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
    lacking = np.isnan(features.values)
    x, filled, unknown = features.values.copy(), [], []
    for column, (name, known) in enumerate(zip(encoding.columns, encoding.levels, strict=True)):
        lacks = lacking[:, column]
        count = int(lacks.sum())
        if known:
            code = {level: index + 1.0 for index, level in enumerate(known)}
            table = np.asarray([*(code.get(level, 0.0) for level in features.levels[column]), code.get(LACKING, 0.0)])
            x[:, column] = table[np.where(lacks, -1, features.values[:, column]).astype(int)]
            unknown += _unknown(name, features, column, code)
            if count and LACKING in code:
                filled.append((name, f"{count} as a level of their own"))
        elif count:
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
