"""Trackers as callbacks of a run: each value once, under its name, at its step."""

from __future__ import annotations

import sys
from pathlib import Path
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


def fit(*callbacks: Any) -> None:
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    options: Any = {"epochs": 3, "batch_size": 10, "validation": 0.25}
    lamu.fit(model, (X, Y), lamu.algorithms.sgd(1e-3), callbacks=callbacks, **options)


@pytest.mark.parametrize("make", [to_folder, MLflow, WandB])
def test_a_run_is_logged_at_its_steps(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[int, str, float]] = []
    package = Package(logged, run=None, SummaryWriter=lambda folder: Package(logged, folder=folder))
    for name in ("torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, package)
    seen: list[tuple[int, str, float]] = []
    keep = lambda steps, last: seen.extend((steps, name, value) for name, value in last.items())
    fit(make(), keep)
    assert logged == seen
    assert {name for _, name, _ in logged} >= {"loss", "validation_nll"}
    assert logged[-1][0] == 9


def test_the_active_run_is_taken_before_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    active, new = Package([]), Package([])
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=active, init=lambda: new))
    WandB()(1, {"loss": 0.5})
    assert (active.logged, new.logged) == ([(1, "loss", 0.5)], [])


class Rising(Package):
    """A run of Weights & Biases as others have used it: its steps only rise, and values of earlier ones are dropped."""

    step = 0

    def log(self, metrics: dict[str, float], step: int) -> None:
        if step >= self.step:
            self.step = step
            self.log_metrics(metrics, step)


def test_steps_of_a_second_fit_and_behind_those_of_others_are_not_dropped() -> None:
    run = Rising([])
    tracker = WandB(run)
    for steps in (4, 9, 4, 9, 12, 1):
        tracker(steps, {"loss": 0.5})
    assert [step for step, *_ in run.logged] == [4, 9, 13, 18, 21, 22]
    run.step = 100
    WandB(run)(1, {"loss": 0.5})
    assert run.logged[-1] == (101, "loss", 0.5)


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


def package(module: str, install: str) -> Any:
    """The package itself; the test is skipped where it is not installed."""
    return pytest.importorskip(module, reason=f"not run: {install} is not installed", exc_type=ImportError)


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    module = "tensorboard.backend.event_processing.event_accumulator"
    reader = package(module, "tensorboard").EventAccumulator(str(tmp_path))
    seen: list[tuple[int, dict[str, float]]] = []
    fit(TensorBoard(tmp_path), lambda steps, last: seen.append((steps, dict(last))))
    reader.Reload()
    for name in seen[-1][1]:
        scalars = [(each.step, each.value) for each in reader.Scalars(name)]
        assert scalars == [(steps, pytest.approx(last[name])) for steps, last in seen if name in last], name


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_mlflow_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = package("mlflow", "mlflow")
    seen: list[tuple[int, dict[str, float]]] = []
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        fit(MLflow(), lambda steps, last: seen.append((steps, dict(last))))
    client = mlflow.tracking.MlflowClient()
    for name in seen[-1][1]:
        metrics = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]
        assert metrics == [(steps, pytest.approx(last[name])) for steps, last in seen if name in last], name


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_weights_and_biases_takes_two_fits_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = package("wandb", "wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path) as run:
        tracker = WandB()
        written: list[tuple[int, int]] = []
        for _ in range(2):
            fit(tracker, lambda steps, _: written.append((steps, run.step)))
    steps = [step for _, step in written]
    assert steps == sorted(set(steps)), "W&B drops values of steps before its last"
    assert steps[-1] == 2 * written[-1][0]
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
