"""Codes of digits in an estimator's inputs, which scikit-learn would read as numbers: "02139" as 2139."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.data.written_numbers import is_code

__all__ = ["refuse_codes"]


def refuse_codes(X: Any) -> None:
    """Raises a ValueError where a column of texts holds codes, which have no order and no size."""
    if hasattr(X, "items"):  # of pandas, whatever its names are
        columns = [(f"the column {name!r}", np.asarray(column)) for name, column in X.items()]
    elif hasattr(X, "iter_columns"):
        columns = [(f"the column {column.name!r}", np.asarray(column)) for column in X.iter_columns()]
    else:
        array = X if isinstance(X, np.ndarray) else np.asarray(X, object) if isinstance(X, list) else np.zeros(0)
        if array.ndim != 2 or array.dtype.kind not in "OU":
            return
        columns = [(f"column {index} of X", column) for index, column in enumerate(array.T)]
    for what, column in columns:
        if column.dtype.kind not in "OU":
            continue
        texts = tuple(sorted({value.strip() for value in column.ravel() if isinstance(value, str)}))
        if is_code(texts):
            code = next(text for text in texts if text[0] == "0" and len(text) > 1)
            raise ValueError(
                f"{what} holds codes such as {code!r}, which would be read as the number {int(code)}; encode it as "
                "categories, for instance by scikit-learn's OneHotEncoder in a pipeline, or where it is a number write "
                "X.astype(float)"
            )
