"""What the training of an architecture needs to go on after it was cut short: where all members are, and their path."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lamu.running.checkpoints import CheckpointError, Checkpoints

__all__ = ["Stretches"]


class Stretches:
    """The checkpoints of one architecture, between stretches; without a folder it keeps nothing."""

    def __init__(self, keeper: Checkpoints | None, run: Mapping[str, str]) -> None:
        self._keeper = keeper
        self._run = dict(run)
        self._at = time.monotonic()
        self._step: int | None = None
        self._written = True

    @property
    def exist(self) -> bool:
        """Whether there is a checkpoint."""
        return self._keeper is not None and self._keeper.latest() is not None

    def keep(self, steps: int, carry: Any, path: Sequence[Any], now: bool = False) -> None:
        """Writes a checkpoint if the last one is older than the checkpoints' seconds; a failure is a warning."""
        if self._keeper is None or steps == self._step:
            return
        if now or time.monotonic() - self._at >= self._keeper.every:
            stacked = [np.stack(leaves) for leaves in zip(*map(jax.tree.leaves, path), strict=True)]
            extra = {str(number): leaf for number, leaf in enumerate(stacked)}
            facts = {"run": self._run}
            self._written = self._keeper.try_to_save(steps, carry, facts=facts, extra=extra, quietly=not self._written)
            self._at, self._step = time.monotonic(), steps

    def restore(self, carry: Any) -> tuple[int, Any, list[Any]]:
        """Returns steps done, carry and path of the last checkpoint; where there is none, the start."""
        step = None if self._keeper is None else self._keeper.latest()
        if self._keeper is None or step is None:
            return 0, carry, []
        carry, facts, extra = self._keeper.restore(step, carry)
        for name, value in self._run.items():
            if facts["run"].get(name) != value:
                raise CheckpointError(
                    f"the checkpoint in {str(Path(self._keeper.folder))!r} is of a fit with "
                    f"{name}={facts['run'].get(name)!r}, and this one has {value!r}; give the same, or another folder"
                )
        self._step = step
        structure = jax.tree.structure((carry[0], 0))
        leaves = [extra[str(number)] for number in range(structure.num_leaves)]
        return step, carry, [structure.unflatten(each) for each in zip(*leaves, strict=True)]
