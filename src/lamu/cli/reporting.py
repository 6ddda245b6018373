"""The reports of `lamu fit` and `lamu compare`, with their baselines."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from lamu import scores
from lamu.cli.learning import Learned
from lamu.cli.output_dir import draft
from lamu.cli.predicting import LEVEL, MEANING, estimates, score_rows
from lamu.data import Encoding
from lamu.data.splits import Groups
from lamu.predictives import MixturePredictive, Predictive
from lamu.report import FittedRun, comparison_report, fit_report
from lamu.report.effects import Effect
from lamu.scores.calibration import estimate
from lamu.tabular.peers import peer, quiet
from lamu.typing import Data, Document, Inputs, Options, Targets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NAME", "baselines", "report_of_comparison", "report_of_fit"]

NAME = "report.html"
_BASELINES = {"boosting": "gradient boosting", "linear": "linear model", "constant": "constant"}


@contextmanager
def baselines(
    x: Inputs,
    y: Targets,
    x_test: Inputs,
    encoding: Encoding,
    counts: bool,
    weight: np.ndarray | None = None,
    exposure: tuple[np.ndarray, np.ndarray] | None = None,
    groups: Groups | None = None,
) -> Iterator[Future[dict[str, MixturePredictive]]]:
    """Fits the baselines in a thread during the work of a `with` block, on processors that this work leaves idle."""
    x, y, x_test = np.asarray(x), np.asarray(y), np.asarray(x_test)
    kind, labels = "counts" if counts else encoding.task, len(encoding.labels)
    # A thread does not inherit the precision of the surrounding block.
    wide = jax.dtypes.canonicalize_dtype(float) == np.float64

    def predicted() -> dict[str, MixturePredictive]:
        if sys.platform == "linux":  # elsewhere threads have no priority
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        with jax.enable_x64(wide):
            return {
                baseline: peer(name, kind, x, y, x_test, encoding.cardinalities, labels, weight, exposure, groups)
                for name, baseline in _BASELINES.items()
            }

    with quiet():
        pool = ThreadPoolExecutor(1)
        try:
            yield pool.submit(predicted)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def report_of_fit(
    learned: Learned,
    pred: Predictive,
    predictions: Mapping[str, np.ndarray],
    encoding: Encoding,
    data: Data,
    split: tuple[np.ndarray, np.ndarray],
    calibration: Figure,
    config: Document,
    seconds: float,
    prediction: Options,
    out: Path,
    baselines: Mapping[str, MixturePredictive],
) -> tuple[str, list[Effect]]:
    """Returns the report of a fit as HTML, and the effect of each feature."""
    train, test = (np.asarray(rows) for rows in split)
    x, y, weight = np.asarray(data.x), np.asarray(data.y), np.asarray(data.weight, float)[test]
    groups = None if data.groups is None else np.asarray(data.groups)[test]
    own = score_rows(pred, y[test], encoding)
    others = {name: score_rows(baseline, y[test], encoding) for name, baseline in baselines.items()}
    # Two with the same name would share a row of the table.
    chosen = "lamu" if config["candidates"] else config["algorithm"]
    name = f"lamu's {chosen}" if chosen in others else chosen
    run = FittedRun(
        posterior=learned.posterior,
        pred=pred,
        predictions=predictions,
        encoding=encoding,
        x=x,
        train=train,
        test=test,
        y_test=y[test],
        histories=learned.histories,
        scores={
            name: estimates(own, weight, groups),
            **{other: estimates(rows, weight, groups) for other, rows in others.items()},
        },
        differences={
            other: estimate(scores.nll, np.asarray(rows["nll"], float) - np.asarray(own["nll"], float), weight, groups)
            for other, rows in others.items()
        },
        meaning=MEANING,
        level=LEVEL,
        calibration=calibration,
        convergence=learned.posterior.convergence,
        config=config,
        seconds=seconds,
        prediction=prediction,
        out=str(out),
        weight=weight,
        groups=groups,
    )
    return fit_report(run), run.effects


def report_of_comparison(
    path: Path,
    about: Document,
    rows: Sequence[Document],
    first: str,
    tables: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]],
    legend: Sequence[str],
    versions: Mapping[str, str],
) -> None:
    """Writes the report of a comparison to a file."""
    text = comparison_report(about, rows, first, tables, MEANING, legend, versions)
    with draft(path) as file:
        file.write_text(text, encoding="utf-8")
