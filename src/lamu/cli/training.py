"""`lamu fit`: from a table to a folder that holds a posterior, its scores, its predictions, and all choices made."""

from __future__ import annotations

import inspect
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamu.cli.folder import draft
from lamu.cli.predictions import columns, score
from lamu.cli.printing import dump, show_document, show_line, show_table
from lamu.cli.recipes import build, find, parse
from lamu.cli.versions import version
from lamu.data import Arrays, TargetEncoding, split
from lamu.data.table import read
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP
from lamu.priors import Normal

__all__ = ["Request", "train"]

_PACKAGES = ("lamu", "jax", "jaxlib", "numpy", "flax", "optax", "scikit-learn", "pandas")


@dataclass(frozen=True)
class Request:
    """What was asked of `lamu fit`.

    Attributes:
        data: a file, or the name of a bundled set.
        target: the target's column; None where the data fix it.
        algorithm: the name of the algorithm.
        settings: its settings, `key=value` each.
        task: "regression", "binary" or "classes"; None where the target's type decides.
        epochs: passes over the training rows; None for the loop's default.
        batch_size: rows of a step; None for the loop's default.
        seed: of the split and of the algorithm.
        test_size: the share of the rows kept for the scores.
    """

    data: str
    target: str | None = None
    algorithm: str = "ivon"
    settings: tuple[str, ...] = ()
    task: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    seed: int = 0
    test_size: float = 0.2


def train(request: Request, out: Path, as_json: bool = False) -> None:
    """Fits a model to a table and writes the folder `out`; prints the scores on the test rows.

    Args:
        request: what to fit.
        out: the folder to make: `posterior/`, `metrics.json`, `predictions.csv`, `config.json`.
        as_json: whether to print one JSON document in place of a table.

    Raises:
        ValueError: for data, a name or a setting that cannot be used.
        FileExistsError: if there is something at `out`.
    """
    _check(request)
    recipe = find(request.algorithm)
    settings = parse(request.settings, recipe)
    algorithm = build(recipe, settings)
    table = read(request.data, request.target, request.task)
    encoding = table.encoding
    data = Arrays.of((table.x, table.y))
    train_rows, test_rows = split(table.y, request.test_size, request.seed, stratify=encoding.task != "regression")
    x, y = data.x[train_rows], data.y[train_rows]
    network, prior = MLP((64, 64)), Normal(1.0)
    model = Model(network, _likelihood(encoding), prior).standardised(x, y)
    given: dict[str, Any] = {"epochs": request.epochs, "batch_size": request.batch_size}
    with draft(out) as folder:
        folder.mkdir(mode=0o755)
        start = time.perf_counter()
        fitted = fit(
            model,
            (x, y),
            algorithm,
            seed=request.seed,
            **{name: value for name, value in given.items() if value is not None},
        )
        seconds = time.perf_counter() - start
        if fitted.interrupted:  # the loop keeps what it has; a folder that holds less than it says would mislead
            raise KeyboardInterrupt
        pred = fitted.posterior.predict(data.x[test_rows])
        metrics = {
            "task": encoding.task,
            "rows": {"train": len(train_rows), "test": len(test_rows)},
            "scores": score(pred, data.y[test_rows]),
            "seconds": seconds,
        }
        config = _config(request, recipe, settings, encoding) | {
            "steps": len(fitted.history["loss"]),
            "network": repr(network),
            "prior": repr(prior),
            "standardised": True,
            "notes": list(table.notes),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        }
        fitted.posterior.save(folder / "posterior")
        (folder / "metrics.json").write_text(dump(metrics), encoding="utf-8")
        (folder / "config.json").write_text(dump(config), encoding="utf-8")
        _write_csv(folder / "predictions.csv", columns(pred, test_rows, data.y[test_rows], encoding))
    if as_json:
        show_document({"out": str(out), "metrics": metrics, "config": config})
        return
    for note in table.notes:
        show_line(f"note: {note}")
    rows = metrics["rows"]
    show_line(
        f"{request.algorithm} on {request.data}: {_described(encoding)}; {rows['train']} rows fitted in {seconds:.1f} s"
    )
    show_table(f"{rows['test']} test rows", ("score", "value"), metrics["scores"].items())
    show_line(f"written to {out}")


def _check(request: Request) -> None:
    for name, value in (("epochs", request.epochs), ("batch-size", request.batch_size)):
        if value is not None and value < (0 if name == "epochs" else 1):
            raise ValueError(
                f"--{name} is {value}; give a whole number that is not {'negative' if name == 'epochs' else 'below 1'}"
            )
    if not 0 <= request.seed < 2**32:
        raise ValueError(f"--seed is {request.seed}; give a whole number from 0 to {2**32 - 1}")


def _likelihood(encoding: TargetEncoding) -> Likelihood:
    if encoding.task == "regression":
        return Gaussian()
    return Bernoulli() if encoding.task == "binary" else Categorical(len(encoding.labels))


def _described(encoding: TargetEncoding) -> str:
    if encoding.task == "regression":
        return f"regression of {encoding.target!r}"
    if encoding.task == "binary":
        return f"binary target {encoding.target!r} ({encoding.labels[1]!r} against {encoding.labels[0]!r})"
    return f"{len(encoding.labels)} classes of {encoding.target!r}"


def _config(request: Request, recipe: Any, settings: dict[str, Any], encoding: TargetEncoding) -> dict[str, Any]:
    """Returns every choice that was made, those of defaults included."""
    loop = inspect.signature(fit).parameters
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(recipe.factory).parameters.items()
        if parameter.default is None or isinstance(parameter.default, bool | int | float | str)
    }
    return {
        "format": 1,
        "data": request.data,
        "target": encoding.target,
        "task": encoding.task,
        "labels": list(encoding.labels),
        "columns": list(encoding.columns),
        "algorithm": recipe.name,
        "settings": {**defaults, **settings},
        "epochs": loop["epochs"].default if request.epochs is None else request.epochs,
        "batch_size": loop["batch_size"].default if request.batch_size is None else request.batch_size,
        "seed": request.seed,
        "test_size": request.test_size,
    }


def _write_csv(path: Path, table: dict[str, Any]) -> None:
    import pandas as pd

    pd.DataFrame(table).to_csv(path, index=False)
