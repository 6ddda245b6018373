"""scikit-learn's models on a table with their defaults: those of `lamu compare`, and its multilayer perceptron."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd

from lamu.tabular.peers import peer, quiet

__all__ = ["PEERS", "TREES", "peer_scores"]

PEERS = ("linear", "mlp", "boosting", "forest")
TREES = ("boosting", "forest")


def peer_scores(name: str, x: pd.DataFrame, y: np.ndarray, train: Any, test: Any, kind: str) -> tuple[Any, float]:
    """Returns the log density of every test row in nats, and the seconds that it took.

    Args:
        name: one of `PEERS`; `lamu.tabular.peers.peer` says how each comes by a density.
        x: the features; words become codes.
        y: the targets.
        train: the training rows.
        test: the test rows.
        kind: "regression", "counts" or "classes".
    """
    start = time.perf_counter()
    inputs, levels = _encoded(x)
    labels = np.unique(y) if kind == "classes" else np.zeros(0)
    targets = np.searchsorted(labels, y) if kind == "classes" else y
    kind = "binary" if len(labels) == 2 else kind
    with quiet():
        pred = peer(name, kind, inputs[train], targets[train], inputs[test], levels, len(labels))
    return np.asarray(pred.log_prob(targets[test]), float), time.perf_counter() - start


def _encoded(x: pd.DataFrame) -> tuple[np.ndarray, tuple[int, ...]]:
    """Numbers, and the codes 1 to K of words, with K of each column."""
    parts, levels = [], []
    for column in x:
        words = x[column].dtype.kind not in "iufb"
        codes, known = pd.factorize(x[column], sort=True) if words else (x[column], ())
        parts.append(np.asarray(codes, float) + words)
        levels.append(len(known))
    return np.column_stack(parts), tuple(levels)
