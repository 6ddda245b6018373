"""Checkpoints of a run over several processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent import futures

import jax

from lamu.running.checkpoints import Checkpoints, Snapshot
from lamu.running.compiled_steps import OneDevice
from lamu.running.history import History
from lamu.running.processes import Processes
from lamu.running.resume import Resumption
from lamu.running.shards import is_sharded, require_library
from lamu.running.validation import Best
from lamu.typing import State

__all__ = ["SharedResumption"]


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
        if not self._devices.agreed(due):
            return
        if self._pending is not None:
            self._publish(wait=True)
        self._begin(state, history, best)
        if self._pending is not None and (now or best.stopped):
            self._publish(wait=True)

    def restore(self, state: State, history: History, best: Best, draw: object, resume: bool) -> State:
        if any(map(is_sharded, jax.tree.leaves(state))):
            require_library()  # checked at the start
        return super().restore(state, history, best, draw, resume)

    def _begin(self, state: State, history: History, best: Best) -> None:
        """Copies this process's part, and starts a thread that writes it."""
        step, extra, failure = history.steps, history.arrays(), None
        if self._devices.writes:
            try:
                self._keeper.new_draft(step)
            except OSError as error:
                failure = error
        self._at, self._step = time.monotonic(), step
        if not self._devices.agreed(failure is None):
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
        if not self._processes.least(work.done()):
            return
        failure, self._pending = work.exception(), None
        if failure is not None and not isinstance(failure, OSError | ValueError):
            raise failure
        if not self._processes.least(failure is None) and failure is None:
            failure = OSError("another process could not write its part")
        if self._devices.writes:
            self._written = self._keeper.publish(step, failure, quietly=not self._written)
