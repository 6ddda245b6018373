"""What a run needs to go on after it was cut short: when it is written, and how it comes back."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.running.checkpoints import CheckpointError, Checkpoints
from lamu.running.history import History
from lamu.running.validation import Best

__all__ = ["Resumption"]


class Resumption:
    """A run's checkpoints; without a folder it keeps nothing."""

    def __init__(self, keeper: Checkpoints | None, run: Mapping[str, Any]) -> None:
        self._keeper = keeper
        self._run = dict(run)
        self._at = time.monotonic()
        self._step: int | None = None
        self._written = True

    @classmethod
    def of(cls, checkpoint: str | os.PathLike[str] | Checkpoints | None, run: Mapping[str, Any]) -> Resumption:
        """Returns the resumption of a run by what `fit` was given."""
        keeper = checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
        return cls(keeper, run)

    @property
    def folder(self) -> Path | None:
        """Where the checkpoints are."""
        return None if self._keeper is None else Path(self._keeper.folder)

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return self._keeper is not None and self._keeper.latest() is not None

    def keep(self, state: Any, history: History, best: Best, now: bool = False) -> None:
        """Writes a checkpoint if it is time to; one that cannot be written is a warning, and the run goes on."""
        # `now`: write in any case, unless nothing has happened since the last one.
        if self._keeper is None or history.steps in (0, self._step):
            return
        if not (now or best.stopped or time.monotonic() - self._at >= self._keeper.every):
            return
        validated = best.state is not None
        facts = {
            "run": self._run,
            "best": {"nll": best.nll, "passes": best.passes} if validated else None,
            "stopped": best.stopped,
        }
        content = {"state": state, "best": best.state if validated else state}
        score = best.nll if validated else None
        self._written = self._keeper.try_to_save(
            history.steps, content, score, facts, history.arrays(), quietly=not self._written
        )
        self._at, self._step = time.monotonic(), history.steps

    def restore(
        self, state: Any, history: History, best: Best, algorithm: Any, objective: Objective, batch: Batch
    ) -> Any:
        """Returns the state of the last checkpoint, and fills history and best; the given state where there is none."""
        step = None if self._keeper is None else self._keeper.latest()
        if self._keeper is None or step is None:
            return state
        content, facts, arrays = self._keeper.restore(step, {"state": state, "best": state})
        for name, value in self._run.items():
            if facts["run"].get(name) != value:
                raise CheckpointError(
                    f"the checkpoint in {str(self.folder)!r} is of a run with {name}={facts['run'].get(name)!r}, and "
                    f"this one has {value!r}; give the same, or choose another folder"
                )
        history.restore(arrays, _draws(algorithm, state, objective, batch))
        if facts["best"] is not None:
            best.state, best.nll, best.passes = content["best"], facts["best"]["nll"], facts["best"]["passes"]
        best.stopped = facts["stopped"]
        self._step = step
        return content["state"]


def _draws(algorithm: Any, state: Any, objective: Objective, batch: Batch) -> Any:
    """Returns the structure of the draws that a step yields."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    _, info = jax.eval_shape(algorithm.step, key, state, batch, objective)
    return jax.tree.structure(info.draw)
