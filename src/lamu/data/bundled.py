"""Real data sets that need no download: scikit-learn carries them, and the package ships none itself."""

from __future__ import annotations

import numpy as np

from lamu.data.spelling import nearest

__all__ = ["columns", "load", "names"]

# For each name: the factor that takes x to its scale, and the dtype of y (whole numbers are classes).
_SETS: dict[str, tuple[float, type[np.generic]]] = {
    "breast_cancer": (1.0, np.int32),
    "diabetes": (1.0, np.float32),
    "digits": (1.0 / 16.0, np.int32),  # pixels are 0 to 16
    "iris": (1.0, np.int32),
    "wine": (1.0, np.int32),
}


def names() -> tuple[str, ...]:
    """Returns the names that `load` knows.

    Examples:
        >>> from lamu import data
        >>> data.names()
        ('breast_cancer', 'diabetes', 'digits', 'iris', 'wine')
    """
    return tuple(_SETS)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns a bundled real data set.

    | name | rows | columns | target |
    |---|---|---|---|
    | `"breast_cancer"` | 569 | 30 | binary: 0 malignant, 1 benign |
    | `"diabetes"` | 442 | 10 | regression: progression after a year |
    | `"digits"` | 1797 | 64 | ten classes; x are 8 by 8 pixels in [0, 1] |
    | `"iris"` | 150 | 4 | three classes |
    | `"wine"` | 178 | 13 | three classes |

    Args:
        name: one of `names()`.

    Returns:
        x, float32 `[rows, columns]`, and y, `[rows]`: int32 for classes and binary targets, float32 for regression.

    Raises:
        ValueError: for an unknown name; the message has the nearest one.

    Examples:
        >>> from lamu import data
        >>> x, y = data.load("digits")
        >>> x.shape, x.dtype, float(x.max()), y.dtype
        ((1797, 64), dtype('float32'), 1.0, dtype('int32'))
    """
    content, factor, dtype = _read(name)
    return (np.asarray(content.data) * factor).astype(np.float32), np.asarray(content.target).astype(dtype)


def columns(name: str) -> tuple[str, ...]:
    """Returns the names of the columns of x of a bundled set."""
    return tuple(str(column) for column in _read(name)[0].feature_names)


def _read(name: str):
    if name not in _SETS:
        raise ValueError(f"there is no bundled data set {name!r}; {nearest(name, _SETS)}")
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(), *_SETS[name]
