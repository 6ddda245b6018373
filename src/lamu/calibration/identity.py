"""Whether rows to calibrate on are rows that training has seen: they would promise what new rows do not keep."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

__all__ = ["require_unseen"]


def require_unseen(calibration: Any, training: Any) -> None:
    """Raises a ValueError where rows to calibrate on stand among the rows of training.

    A row is the same where features and target agree bit for bit. A table that repeats itself has equal rows on both
    sides of any split: as many are let pass as the share of training rows that have a twin in training explains, and
    three standard errors more.

    Args:
        calibration: `(x, y)`, the rows to calibrate on.
        training: `(x, y)`, the rows that were learned from.

    Raises:
        ValueError: where they overlap, or have different features.

    Examples:
        >>> import numpy as np
        >>> from lamu.calibration import require_unseen
        >>> x, y = np.arange(6.0)[:, None], np.arange(6.0)
        >>> require_unseen((x[4:], y[4:]), (x[:4], y[:4]))
        >>> require_unseen((x[3:], y[3:]), (x[:4], y[:4]))
        Traceback (most recent call last):
            ...
        ValueError: 1 of 3 rows to calibrate on are rows of training too, the first one row 0; calibrate on others
    """
    ours, theirs = _prints(calibration), _prints(training)
    known, counts = np.unique(theirs, return_counts=True)
    shared = np.isin(ours, known)
    repeated = float(np.sum(counts[counts > 1]) / len(theirs))
    explained = len(ours) * repeated + 3 * math.sqrt(len(ours) * repeated * (1 - repeated))
    if shared.sum() > explained:
        raise ValueError(
            f"{int(shared.sum())} of {len(ours)} rows to calibrate on are rows of training too, the first one row "
            f"{int(np.argmax(shared))}; calibrate on others"
        )


def _prints(rows: Any) -> np.ndarray:
    """Returns a fingerprint of each row, `[N]`."""
    x, y = (np.asarray(part) for part in rows)
    if len(x) != len(y) or not len(x):
        raise ValueError(f"the rows have features of shape {x.shape} and targets of shape {y.shape}; give one of each")
    # One dtype: the same numbers are the same rows, whoever holds them.
    table = np.concatenate([part.reshape(len(x), -1).astype(np.float32) for part in (x, y)], axis=1)
    return np.array([hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in table])
