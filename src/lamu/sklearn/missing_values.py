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
    """Returns what missing numbers become: draws given the rest of the row, of columns complete in training too."""
    learned = learn(_features(x, columns), np.arange(len(x)), impute=True, y=y, classes=classes, weight=weight)
    # No units: the precision is the rows' own.
    return Encoding("y", "classes" if classes else "regression", (), **{**learned, "units": ()})


def training_rows(encoding: Encoding, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns complete training rows, with a column of ones and zeros for each that lacks numbers."""
    return transform(_features(x, encoding.columns), encoding, np.arange(len(x)), y)[0].astype(x.dtype)


def new_rows(encoding: Encoding, x: np.ndarray) -> Completions:
    """Returns rows to predict, one that lacks numbers once for each draw of them."""
    found = completions(_features(x, encoding.columns), encoding)
    return replace(found, x=found.x.astype(x.dtype))


def _features(x: np.ndarray, columns: Sequence[str]) -> Features:
    return Features(tuple(columns), np.asarray(x, np.float64), ((),) * len(columns))
