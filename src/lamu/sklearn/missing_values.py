"""Missing numbers of an estimator's inputs, filled as those of a table are (`lamu fit --impute`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamu.data.encoding import Encoding
from lamu.data.features import Features
from lamu.data.imputation import DRAWS
from lamu.data.inputs import learn, transform

__all__ = ["completions", "learn_encoding", "training_rows"]


def learn_encoding(x: np.ndarray, y: np.ndarray, classes: int, columns: Sequence[str]) -> Encoding:
    """Returns what missing numbers become: draws given the rest of the row where these predict a column, or its median.

    Args:
        x: training inputs `[rows, columns]`, NaN where a number is missing.
        y: the targets, `[rows]`: numbers, or the indices of classes.
        classes: how many; 0 for numbers.
        columns: their names.

    Raises:
        ValueError: for a column without a value.

    Examples:
        >>> import numpy as np
        >>> from lamu.sklearn.missing_values import learn_encoding
        >>> encoding = learn_encoding(np.array([[1.0, 0.0], [np.nan, 1.0], [3.0, 2.0]]), np.zeros(3), 0, ["a", "b"])
        >>> encoding.fills, encoding.indicators
        ((2.0, 1.0), ('a',))
    """
    learned = learn(_features(x, columns), np.arange(len(x)), impute=True, y=y, classes=classes)
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
        >>> training_rows(learn_encoding(x, y, 0, ["a"]), x, y).tolist()
        [[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]
    """
    return transform(_features(x, encoding.columns), encoding, np.arange(len(x)), y)[0].astype(x.dtype)


def completions(encoding: Encoding, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns rows to predict, once for each draw of their missing numbers: ten arrays, or one where none is drawn.

    Args:
        encoding: what was learned from the training rows.
        x: inputs `[rows, columns]`, NaN where a number is missing.

    Examples:
        >>> import numpy as np
        >>> from lamu.sklearn.missing_values import completions, learn_encoding
        >>> encoding = learn_encoding(np.array([[1.0], [np.nan], [3.0]]), np.zeros(3), 0, ["a"])
        >>> [part.tolist() for part in completions(encoding, np.array([[np.nan], [5.0]]))]
        [[[2.0, 1.0], [5.0, 0.0]]]
    """
    drawn = () if encoding.joint is None else encoding.joint.drawn
    which = range(DRAWS) if np.isnan(x[:, list(drawn)]).any() else (None,)
    features = _features(x, encoding.columns)
    return tuple(transform(features, encoding, which=each)[0].astype(x.dtype) for each in which)


def _features(x: np.ndarray, columns: Sequence[str]) -> Features:
    return Features(tuple(columns), np.asarray(x, np.float64), ((),) * len(columns))
