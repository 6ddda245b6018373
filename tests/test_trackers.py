"""Trackers as callbacks of a run: each value once, under its name, at its step."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lamu
from lamu.trackers import MLflow, TensorBoard, WandB

X = np.random.default_rng(0).normal(size=(40, 2))
Y = X @ np.array([1.0, -1.0])


class Package(SimpleNamespace):
    """Stands for each of the packages, and keeps what was logged: `(step, name, value)`."""

    def __init__(self, logged: list[tuple[int, str, float]], **others: Any) -> None:
        super().__init__(logged=logged, **others)

    def add_scalar(self, name: str, value: float, steps: int) -> None:
        self.logged.append((steps, name, value))

    def flush(self) -> None: ...

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.logged += [(step, name, value) for name, value in metrics.items()]

    log = log_metrics

    def init(self) -> Any:
        return self


def to_folder() -> TensorBoard:
    return TensorBoard("runs/first")


@pytest.mark.parametrize("make", [to_folder, MLflow, WandB])
def test_a_run_is_logged_at_its_steps(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[int, str, float]] = []
    package = Package(logged, run=None, SummaryWriter=lambda folder: Package(logged, folder=folder))
    for name in ("torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, package)
    seen: list[tuple[int, str, float]] = []
    keep = lambda steps, last: seen.extend((steps, name, value) for name, value in last.items())
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    options: Any = {"epochs": 3, "batch_size": 10, "validation": 0.25}
    lamu.fit(model, (X, Y), lamu.algorithms.sgd(1e-3), callbacks=[make(), keep], **options)
    assert logged == seen
    assert {name for _, name, _ in logged} >= {"loss", "validation_nll"}
    assert logged[-1][0] == 9


def test_the_active_run_is_taken_before_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    active, new = Package([]), Package([])
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=active, init=lambda: new))
    WandB()(1, {"loss": 0.5})
    assert (active.logged, new.logged) == ([(1, "loss", 0.5)], [])


@pytest.mark.parametrize(
    ("make", "module", "install"),
    [
        (to_folder, "torch.utils.tensorboard", "pip install tensorboard torch"),
        (MLflow, "mlflow", "pip install mlflow"),
        (WandB, "wandb", "pip install wandb"),
    ],
)
def test_a_missing_package_is_one_sentence(
    make: Any, module: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=f"needs {module!r}, which is not installed; {install}$"):
        make()


@pytest.mark.parametrize("make", [TensorBoard, MLflow, WandB])
def test_what_cannot_log_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=rf"lamu\.trackers\.{make.__name__} got 3, which has no"):
        make(3)
