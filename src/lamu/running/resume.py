"""Writes checkpoints during a run, and resumes from the last one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent import futures
from dataclasses import fields, replace
from pathlib import Path

import jax

from lamu.data.arrays import Arrays
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.protocol import Algorithm
from lamu.running.checkpoints import CheckpointError, Checkpoints, Snapshot, described, rows_described
from lamu.running.compiled_steps import OneDevice
from lamu.running.history import Best, History
from lamu.running.sharding import Processes, is_sharded, require_library
from lamu.typing import Document, State

__all__ = ["Resumption", "SharedResumption"]


class Resumption:
    """The checkpoints of a run."""

    def __init__(self, keeper: Checkpoints, run: Mapping[str, object], devices: OneDevice | None = None) -> None:
        self._keeper = keeper
        self._devices = OneDevice() if devices is None else devices
        self._run = dict(run)
        self._at = time.monotonic()
        self._step: int | None = None
        self._written = True
        self.folder = Path(keeper.folder)

    @classmethod
    def of(
        cls,
        checkpoint: str | os.PathLike[str] | Checkpoints,
        algorithm: Algorithm,
        objective: Objective,
        rows: Arrays | Stream,
        held_out: Arrays | None,
        seed: int,
        batch_size: int,
        devices: OneDevice,
    ) -> Resumption:
        """Returns the checkpoints of a run, identified by all that determines its steps except their number."""
        if devices.spans_processes:
            cls = SharedResumption
        run = {
            "seed": seed,
            "batch_size": batch_size,
            "data_size": float(objective.data_size),
            "temperature": float(objective.temperature),
            "likelihood_power": float(objective.likelihood_power),
            "validation": None if held_out is None else rows_described(held_out),
            "data": rows_described(rows),
            "algorithm": f"{type(algorithm).__name__} {algorithm.choices}",
            "settings": described(_of_any_length(algorithm)),
            **{field.name: described(getattr(objective.model, field.name)) for field in fields(objective.model)},
        }
        return cls(checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint), run, devices)

    def keep(self, state: State, history: History, best: Best, now: bool = False) -> None:
        """Writes a checkpoint if it is due; only warns where it cannot be written."""
        # `now`: write in any case, unless there were no steps since the last one.
        if history.steps in (0, self._step):
            return
        due = now or best.stopped or time.monotonic() - self._at >= self._keeper.every
        if not due:
            return
        content, score, facts = self._content(state, best)
        self._written = self._keeper.try_to_save(
            history.steps, content, score, facts, history.arrays(), quietly=not self._written
        )
        self._at, self._step = time.monotonic(), history.steps

    def _content(self, state: State, best: Best) -> tuple[State, float | None, Document]:
        """Returns the content of a checkpoint, its score and its facts."""
        validated = best.state is not None
        facts = {
            "run": self._run,
            "best": {"nll": best.nll, "passes": best.passes} if validated else None,
            "stopped": best.stopped,
        }
        content = {"state": state, "best": best.state if validated else state}
        return content, best.nll if validated else None, facts

    def restore(
        self, state: State, history: History, best: Best, draw: object, resume: bool, most: int | None = None
    ) -> State:
        """Returns the state of the last checkpoint, if any, and restores history and best; else the given state."""
        # `most` is the number of steps of this run, where it is known before.
        # `draw` has the shapes of a step's draw. Without `resume`, a folder with checkpoints is an error.
        step = self._keeper.latest()
        first = self._devices.agree(-1 if step is None else step)
        if first != (-1 if step is None else step):
            raise CheckpointError(
                f"the last checkpoint in {str(self.folder)!r} is that of step {step} here and of step {first:.0f} in "
                "process 0; give a folder that all processes see"
            )
        if step is None:
            return state
        if not resume:
            raise ValueError(
                f"there are checkpoints in {str(self.folder)!r} already, which would be overwritten; go on from them "
                "with resume=True, or choose another folder"
            )
        content, facts, arrays = self._keeper.restore(step, {"state": state, "best": state})
        for name, value in self._run.items():
            if facts["run"].get(name) != value:
                raise CheckpointError(
                    f"the checkpoint in {str(self.folder)!r} is of a run with {name}={facts['run'].get(name)!r}, and "
                    f"this one has {value!r}; give the same, or choose another folder"
                )
        if most is not None and step > most:
            raise CheckpointError(
                f"the checkpoint in {str(self.folder)!r} is of step {step}, beyond the {most} steps of this run; give "
                "at least as many epochs, steps or draws as before, or choose another folder"
            )
        history.restore(arrays, jax.tree.structure(draw))
        if facts["best"] is not None:
            best.state, best.nll, best.passes = content["best"], facts["best"]["nll"], facts["best"]["passes"]
        best.stopped = facts["stopped"]
        self._step = step
        return content["state"]


def _of_any_length(algorithm: Algorithm) -> Algorithm:
    """Returns a sampler with one draw; other algorithms unchanged."""
    # The number of draws does not affect its steps: a schedule over cycles has their length from the start.
    from lamu.mcmc.chains import Chains  # imported here, as most runs have no checkpoint
    from lamu.mcmc.dynamics import Dynamics

    return replace(algorithm, draws=1) if isinstance(algorithm, Chains | Dynamics) else algorithm


class SharedResumption(Resumption):
    """The checkpoints of several processes, each of which writes its part while the steps continue."""

    # A thread writes; the processes exchange its status after a block of steps. Once all have written, process 0
    # renames the folder. A process killed before leaves a temporary folder, and the previous checkpoint.

    def __init__(self, keeper: Checkpoints, run: Mapping[str, object], devices: OneDevice | None = None) -> None:
        super().__init__(keeper, run, devices)
        assert isinstance(devices, Processes)
        self._processes = devices
        self._thread = futures.ThreadPoolExecutor(1, "lamu-checkpoint")
        self._pending: tuple[int, futures.Future[None]] | None = None

    def keep(self, state: State, history: History, best: Best, now: bool = False) -> None:
        if self._pending is not None:
            self._publish(wait=now)
        if history.steps in (0, self._step):
            return
        due = now or best.stopped or time.monotonic() - self._at >= self._keeper.every
        if not self._devices.agree(due):
            return
        if self._pending is not None:
            self._publish(wait=True)
        self._begin(state, history, best)
        if self._pending is not None and (now or best.stopped):
            self._publish(wait=True)

    def restore(
        self, state: State, history: History, best: Best, draw: object, resume: bool, most: int | None = None
    ) -> State:
        if any(map(is_sharded, jax.tree.leaves(state))):
            require_library()  # checked at the start
        return super().restore(state, history, best, draw, resume, most)

    def _begin(self, state: State, history: History, best: Best) -> None:
        """Copies this process's part, and starts a thread that writes it."""
        step, extra, failure = history.steps, history.arrays(), None
        if self._devices.writes:
            try:
                self._keeper.new_draft(step)
            except OSError as error:
                failure = error
        self._at, self._step = time.monotonic(), step
        if not self._devices.agree(failure is None):
            self._written = not self._devices.writes or self._keeper.publish(step, failure, quietly=not self._written)
            return
        content, score, facts = self._content(state, best)
        snapshot = Snapshot.of(step, content, score, facts, extra, copy=True)
        work = self._thread.submit(snapshot.write, self._keeper.draft(step), self._devices.writes)
        self._pending = step, work

    def _publish(self, wait: bool) -> None:
        """Renames the folder to a checkpoint if all processes have written; with `wait`, after waiting for them."""
        assert self._pending is not None
        step, work = self._pending
        if wait:
            futures.wait([work])
        if not self._processes.minimum(work.done()):
            return
        failure, self._pending = work.exception(), None
        if failure is not None and not isinstance(failure, OSError | ValueError):
            raise failure
        if not self._processes.minimum(failure is None) and failure is None:
            failure = OSError("another process could not write its part")
        if self._devices.writes:
            self._written = self._keeper.publish(step, failure, quietly=not self._written)
