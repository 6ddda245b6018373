"""Missing numbers of an estimator's inputs, drawn as those of a table are (`lamu fit --impute`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamu.data.completions import Completions
from lamu.data.encoding import Encoding
from lamu.data.features import Features
from lamu.data.inputs import completions, learn, transform

__all__ = ["learn_encoding", "new_rows", "training_rows"]


def learn_encoding(x: np.ndarray, y: np.ndarray, classes: int, columns: Sequence[str], weight: Any = None) -> Encoding:
    """Returns what missing numbers become: draws given the rest of the row, of columns complete in training too.

    Args:
        x: training inputs `[rows, columns]`, NaN where a number is missing.
        y: the targets, `[rows]`: numbers, or the indices of classes.
        classes: how many; 0 for numbers.
        columns: their names.
        weight: what each row counts; ones where None.

    Raises:
        ValueError: for a column without a value.

    Examples:
        >>> import numpy as np
        >>> from lamu.sklearn.missing_values import learn_encoding
        >>> encoding = learn_encoding(np.array([[1.0, 0.0], [np.nan, 1.0], [3.0, 2.0]]), np.zeros(3), 0, ["a", "b"])
        >>> encoding.fills, encoding.indicators
        ((2.0, 1.0), ('a',))
    """
    learned = learn(_features(x, columns), np.arange(len(x)), impute=True, y=y, classes=classes, weight=weight)
    # No units: the precision is the rows' own.
    return Encoding("y", "classes" if classes else "regression", (), **{**learned, "units": ()})


def training_rows(encoding: Encoding, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns complete training rows, with a column of ones and zeros for each that lacks numbers.

    Args:
        encoding: what was learned from these rows.
        x: as for `learn_encoding`.
        y: likewise.

    Examples:
        >>> import numpy as np
        >>> from lamu.sklearn.missing_values import learn_encoding, training_rows
        >>> x, y = np.array([[1.0], [np.nan], [3.0]]), np.zeros(3)
        >>> found = training_rows(learn_encoding(x, y, 0, ["a"]), x, y)
        >>> found[:, 1].tolist(), bool(1.0 <= found[1, 0] <= 3.0)
        ([0.0, 1.0, 0.0], True)
    """
    return transform(_features(x, encoding.columns), encoding, np.arange(len(x)), y)[0].astype(x.dtype)


def new_rows(encoding: Encoding, x: np.ndarray) -> Completions:
    """Returns rows to predict, one that lacks numbers once for each draw of them.

    Args:
        encoding: what was learned from the training rows.
        x: inputs `[rows, columns]`, NaN where a number is missing.

    Examples:
        >>> import numpy as np
        >>> from lamu.sklearn.missing_values import learn_encoding, new_rows
        >>> encoding = learn_encoding(np.array([[1.0], [np.nan], [3.0]]), np.zeros(3), 0, ["a"])
        >>> found = new_rows(encoding, np.array([[5.0], [np.nan]]))
        >>> found.x[0].tolist(), bool((found.x[found.row == 1, 0] <= 3.0).all())
        ([5.0, 0.0], True)
    """
    found = completions(_features(x, encoding.columns), encoding)
    return replace(found, x=found.x.astype(x.dtype))


def _features(x: np.ndarray, columns: Sequence[str]) -> Features:
    return Features(tuple(columns), np.asarray(x, np.float64), ((),) * len(columns))
