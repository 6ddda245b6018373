"""One algorithm of `lamu compare` in its own process: `python -m lamu.cli.worker TASK ANSWER`."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lamu.cli.learning import (
    DEFAULT,
    Runs,
    budget,
    candidates,
    default_algorithm,
    default_folds,
    default_settings,
    learner_for,
    model_for,
)
from lamu.cli.predicting import estimates, predicted, score_rows
from lamu.cli.printing import dump
from lamu.cli.recipes import build, find, parse
from lamu.cli.request import Request, learning_rows
from lamu.data import Arrays
from lamu.data.table import Table
from lamu.folds import epochs_of
from lamu.memory import most_held
from lamu.posterior import Posterior
from lamu.predictives import Predictive
from lamu.priors import LearnedNormal
from lamu.protocol import Algorithm
from lamu.running.progress import SeveralRuns
from lamu.scores import evidence
from lamu.tabular.peers import PEERS, peer, quiet
from lamu.typing import Document, Options, Targets

__all__ = ["equal_budget", "fit_and_score", "main", "peer_contest"]


def peer_contest(request: Request, name: str, splits: int) -> Document:
    """Returns the result of `lamu.cli.worker.fit_and_score` for one of scikit-learn's models."""
    full_table, answers = request.read(), []
    for seed in range(request.seed, request.seed + splits):
        table, train, test = learning_rows(full_table, request, seed)
        table = table.with_medians()
        encoding, x, y = table.encoding, np.asarray(table.x), np.asarray(table.y)
        seen, beside = table.beside.get("exposure"), table.beside_of(train)
        of_rows, groups = beside.get("weight"), beside.get("groups")
        counts = encoding.task == "regression" and candidates(encoding, x[train], y[train], of_rows)[0] == "counts"
        exposure = None if seen is None else (seen[train], seen[test])
        kind, labels = "counts" if counts else encoding.task, len(encoding.labels)
        start = time.perf_counter()
        with quiet():
            pred = peer(
                name, kind, x[train], y[train], x[test], encoding.cardinalities, labels, of_rows, exposure, groups
            )
        seconds = time.perf_counter() - start
        about = {"steps": 0, "seconds": seconds, "prior_scales_tried": {}, "temperature": 1.0, "evidence": None}
        answers.append(_scored(pred, table, test, y[test]) | about)
    return {"splits": answers, "streams": 1, "epochs": None, "memory": most_held()}


# A separate process isolates the algorithm's peak memory and its failures. TASK and ANSWER are JSON
# files; ANSWER is written when the process ends normally, whether or not the algorithm failed.


def fit_and_score(
    request: Request, algorithm: str, settings: tuple[str, ...], splits: int, keep: str | None = None
) -> Document:
    """Fits an algorithm on each split and scores it on the other rows."""
    # `keep`: a folder for the posterior of each split, for a comparison with a reference: all then have the model's
    # initial prior, since posteriors under different priors are not comparable. None keeps nothing.
    if algorithm in PEERS:
        return peer_contest(request, algorithm, splits)
    recipe = find(default_algorithm() if algorithm == DEFAULT else algorithm)
    learner = build(recipe, default_settings() if algorithm == DEFAULT else parse(settings, recipe))
    loop: Options = {}
    full_table = request.read()
    answers = []
    for seed in range(request.seed, request.seed + splits):
        table, train, test = learning_rows(full_table, request, seed)
        data = Arrays.of(table.data)
        learned_from = {name: getattr(data, name)[train] for name in table.data}
        x, y, weight = learned_from["x"], learned_from["y"], learned_from.get("weight")
        likelihood = request.likelihood_for(table.encoding, learned_from, seed).name
        model, _ = model_for(table.encoding, x, y, likelihood, algorithm, request.prior_scale, weight)
        folds = default_folds(len(x), None, learned_from.get("groups")) if algorithm == DEFAULT else 0
        loop = request.loop(learner, len(x), folds) if folds else equal_budget(request, learner, len(x))
        start = time.perf_counter()
        if keep is not None and isinstance(model.prior, LearnedNormal):
            model = replace(model, prior=model.prior.at(model.prior.start))
        runs = Runs(request, model, learner, algorithm, len(x), folds, loop)
        way = learner_for(runs, table.encoding, likelihood, default=algorithm == DEFAULT)
        learned = way.learn(learned_from, seed, {})
        seconds = time.perf_counter() - start
        pred = predicted(learned.posterior, table, test, **request.prediction())
        if keep is not None:
            Path(keep).mkdir(exist_ok=True)
            learned.posterior.save(Path(keep) / f"{seed}")
        about = {
            "steps": learned.steps,
            "seconds": seconds,
            "prior_scales_tried": {scale: nll + table.encoding.log_unit for scale, nll in learned.scales.items()},
            "temperature": learned.temperature,
            "evidence": _evidence(learned.posterior, learned_from, table.encoding.log_unit),
        }
        answers.append(_scored(pred, table, test, data.y[test]) | about)
    epochs = None if algorithm == DEFAULT else loop.get("epochs")
    return {"splits": answers, "streams": learner.traits.streams, "epochs": epochs, "memory": most_held()}


def _scored(pred: Predictive, table: Table, test: np.ndarray, y: Targets) -> Document:
    """Returns the scores of a prediction, with the nll and the weight of every row."""
    rows, beside = score_rows(pred, y, table.encoding), table.beside_of(test)
    scores = estimates(rows, beside.get("weight"), beside.get("groups"))
    return {
        "scores": {name: estimate.value for name, estimate in scores.items()},
        "standard_errors": {name: estimate.error for name, estimate in scores.items()},
        "nll": rows["nll"],
        "weight": beside.get("weight"),
        "groups": np.asarray(beside["groups"]) if "groups" in beside else None,
    }


def equal_budget(request: Request, learner: Algorithm, rows: int) -> Document:
    """Returns the options of the loop for comparisons: no early stopping, hence equal steps for all algorithms."""
    names = set(budget(learner, rows))
    if learner.traits.length is None and learner.traits.batching != "once":
        names.add("epochs")
    loop = {name: value for name, value in request.loop(learner, rows).items() if name in names}
    return loop if "validation" not in names else {"epochs": epochs_of(rows * (1 - loop["validation"])), **loop}


def _evidence(posterior: Posterior, data: Mapping[str, Any], log_unit: float) -> float | None:
    """Returns the log evidence, or its lower bound; None if the belief has no finite one."""
    # It is that of the original targets, whose density is smaller by their unit, row by row.
    try:
        log_evidence = evidence(posterior, data).value
    except TypeError:
        return None
    rows = float(np.sum(data["weight"])) if "weight" in data else len(data["x"])
    return log_evidence - log_unit * rows if math.isfinite(log_evidence) else None


def main(task: str, answer: str) -> int:
    """Reads the task, runs it and writes the answer; for a failed algorithm, the reason in one sentence."""
    document = json.loads(Path(task).read_text(encoding="utf-8"))
    try:
        request, settings = Request(**document["request"]), tuple(document["settings"])
        # The progress bar of the whole comparison continues from the previous process.
        with SeveralRuns(document["splits"], None, "comparing", **document.get("before", {})):
            answered = fit_and_score(request, document["algorithm"], settings, document["splits"], document.get("keep"))
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # any error becomes this algorithm's row of the table
        reason = " ".join(str(error).split())
        ours = isinstance(error, ValueError | TypeError | RuntimeError) and "\n" not in str(error) and reason
        answered = {"failure": reason if ours else f"{type(error).__name__}: {reason}"}
    Path(answer).write_text(dump(answered), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
