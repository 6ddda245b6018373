"""The twelve tables on which `lamu fit` is developed and measured beside scikit-learn's models."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.splits import folder

__all__ = ["KINDS", "QUICK", "table"]

# What the target is; the target's column is "target".
KINDS = {
    "yacht": "regression",
    "energy": "regression",
    "concrete": "regression",
    "wine_red": "regression",
    "german_credit": "classes",
    "vehicle": "classes",
    "spambase": "classes",
    "satellite": "classes",
    "a1a": "classes",
    "epil": "counts",
    "biochemists": "counts",
    "nmes1988": "counts",
}
QUICK = ("yacht", "concrete", "german_credit", "vehicle", "epil", "biochemists")
_COUNTS = {"epil": "y", "biochemists": "art", "nmes1988": "visits"}
_MOST = 20_000  # rows, the first of a seeded order


def table(name: str) -> pd.DataFrame:
    """Returns the rows of a table; classes are words, so that no reader takes them for numbers."""
    if name in _COUNTS:
        frame = pd.read_csv(folder() / "rdatasets" / f"{name}.csv")
        return frame.rename(columns={_COUNTS[name]: "target"})
    path = folder() / "uci" / f"{name}.npz"
    with np.load(path if path.exists() else folder() / "tabular" / f"{name}.npz") as archive:
        ends = [end for end in ("", "_train", "_test") if f"X{end}" in archive]
        x = np.concatenate([archive[f"X{end}"] for end in ends]).astype(np.float64)
        y = np.concatenate([archive[f"y{end}"] for end in ends])
    kept = np.sort(np.random.default_rng(0).permutation(len(x))[:_MOST])
    frame = pd.DataFrame(x[kept], columns=[f"x{index}" for index in range(x.shape[1])])
    return frame.assign(
        target=y[kept].astype(float) if KINDS[name] == "regression" else [f"c{each}" for each in y[kept]]
    )
