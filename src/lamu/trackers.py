"""Callbacks of `lamu.fit` that write a run to TensorBoard, MLflow or Weights & Biases.

A callback is a function of the number of steps done and of the last value of each column of the history ("loss",
"residual", and "validation_nll" with held-out rows); these three are such functions. Their packages are imported when a
callback is constructed, and are not dependencies of Lamu.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = ["MLflow", "TensorBoard", "WandB"]


class TensorBoard:
    """Writes each column of the history as a scalar of TensorBoard, by the number of steps.

    Args:
        writer: the folder of the run, or a `SummaryWriter` (of `torch.utils.tensorboard`, or `tensorboardX`).

    Raises:
        ModuleNotFoundError: without the package, where a folder is given.
        TypeError: for any other value.

    Examples:
        >>> import lamu
        >>> class Writer:
        ...     def add_scalar(self, name, value, steps):
        ...         print(name, round(value, 1), steps)
        ...
        ...     def flush(self): ...
        >>> lamu.trackers.TensorBoard(Writer())(64, {"loss": 0.52})
        loss 0.5 64
    """

    def __init__(self, writer: Any) -> None:
        if isinstance(writer, str | os.PathLike):
            writer = _package("torch.utils.tensorboard", self, "tensorboard torch").SummaryWriter(os.fspath(writer))
        _require(self, writer, "add_scalar", "a folder, or a SummaryWriter")
        self._writer = writer

    def __call__(self, steps: int, last: Mapping[str, float]) -> None:
        """Writes the last values."""
        for name, value in last.items():
            self._writer.add_scalar(name, value, steps)
        self._writer.flush()


class MLflow:
    """Logs the columns of the history as metrics of the active MLflow run, which MLflow starts where there is none.

    Args:
        client: the module `mlflow`, or an object with `log_metrics`; imported where None.

    Raises:
        ModuleNotFoundError: without the package.
        TypeError: for a client without `log_metrics`.

    Examples:
        >>> import lamu
        >>> class Client:
        ...     def log_metrics(self, metrics, step):
        ...         print(metrics, step)
        >>> lamu.trackers.MLflow(Client())(64, {"loss": 0.5})
        {'loss': 0.5} 64
    """

    def __init__(self, client: Any = None) -> None:
        self._client = _package("mlflow", self, "mlflow") if client is None else client
        _require(self, self._client, "log_metrics", "the module mlflow, or nothing")

    def __call__(self, steps: int, last: Mapping[str, float]) -> None:
        """Logs the last values."""
        self._client.log_metrics(dict(last), step=steps)


class WandB:
    """Logs the columns of the history to a run of Weights & Biases.

    W&B drops values of steps before the last one of a run. After steps logged by others, or by this tracker for an
    earlier fit, the step numbers therefore continue from the last one.

    Args:
        run: the result of `wandb.init`; the active run where None, or a new one.

    Raises:
        ModuleNotFoundError: without the package, where no run is given.
        TypeError: for a run without `log`.

    Examples:
        >>> import lamu
        >>> class Run:
        ...     def log(self, values, step):
        ...         print(values, step)
        >>> lamu.trackers.WandB(Run())(64, {"loss": 0.5})
        {'loss': 0.5} 64
    """

    def __init__(self, run: Any = None) -> None:
        if run is None:
            wandb = _package("wandb", self, "wandb")
            run = wandb.run or wandb.init()
        _require(self, run, "log", "what wandb.init() returned, or nothing")
        self._run, self._before, self._steps = run, 0, 0

    def __call__(self, steps: int, last: Mapping[str, float]) -> None:
        """Logs the last values."""
        try:
            taken = int(self._run.step)
        except AttributeError:  # a substitute without a step count
            taken = 0
        if steps <= self._steps or self._before + steps < taken:  # another fit, or steps logged by others
            self._before = max(self._before + self._steps, taken)
        self._steps = steps
        self._run.log(dict(last), step=self._before + steps)


def _package(module: str, tracker: Any, install: str) -> Any:
    """Imports the package of a tracker."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"lamu.trackers.{type(tracker).__name__} needs {module!r}, which is not installed; pip install {install}"
        ) from error


def _require(tracker: Any, client: Any, method: str, remedy: str) -> None:
    if not callable(getattr(client, method, None)):
        raise TypeError(f"lamu.trackers.{type(tracker).__name__} got {client!r}, which has no {method}; give {remedy}")
