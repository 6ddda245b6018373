"""scikit-learn's models on the rows of `lamu compare`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from lamu.cli.predictions import estimates, score_rows
from lamu.cli.request import Request, learning_rows
from lamu.cli.target_choice import candidates
from lamu.memory import most_held
from lamu.tabular.peers import peer, quiet

__all__ = ["peer_contest"]


def peer_contest(request: Request, name: str, splits: int) -> dict[str, Any]:
    """Returns what `lamu.cli.worker.contest` returns, of one of scikit-learn's models."""
    whole, found = request.read(), []
    for seed in range(request.seed, request.seed + splits):
        table, train, test = learning_rows(whole, request, seed)
        table = table.with_medians()
        encoding, x, y = table.encoding, np.asarray(table.x), np.asarray(table.y)
        counts = encoding.task == "regression" and candidates(encoding, x[train], y[train])[0] == "counts"
        kind, labels = "counts" if counts else encoding.task, len(encoding.labels)
        start = time.perf_counter()
        with quiet():
            pred = peer(name, kind, x[train], y[train], x[test], encoding.cardinalities, labels)
        seconds = time.perf_counter() - start
        rows = score_rows(pred, y[test], encoding)
        scores = estimates(rows)
        found.append(
            {
                "scores": {score: each.value for score, each in scores.items()},
                "standard_errors": {score: each.error for score, each in scores.items()},
                "nll": rows["nll"],
                "steps": 0,
                "seconds": seconds,
                "prior_scales_tried": {},
                "temperature": 1.0,
                "evidence": None,
            }
        )
    return {"splits": found, "streams": 1, "epochs": None, "memory": most_held()}
