"""Training in threads, each with its own checkpoints and share of the progress bar."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from lamu.running.checkpoints import Checkpoints
from lamu.running.progress import Progress
from lamu.tabular.training import Path, Stretches

__all__ = ["Trainings", "stretches_kept", "trainings"]

_FEWEST = 3  # threads, so that no architecture waits for another's compilation


class Trainings:
    """Starts trainings by the names of their parts."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        learn: Callable[[Any, Callable[[int], None], Stretches], Path],
        kept: Mapping[str, Stretches],
        fits: Mapping[str, int],
        steps: int,
        bar: Progress,
    ) -> None:
        self.stopped = threading.Event()
        self._pool, self._learn, self._kept, self._bar = pool, learn, kept, bar
        self._fits, self._steps, self._done = fits, steps, dict.fromkeys(fits, 0)
        self._wide = jax.dtypes.canonicalize_dtype(float) == np.float64
        self._device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]

    def start(self, plans: Mapping[str, Any]) -> Future[list[Path]]:
        """Trains plans sequentially in a thread."""
        return self._pool.submit(self._run, plans)

    def leave_out(self, parts: Iterable[str]) -> None:
        """Counts parts that are not trained as done."""
        self._done.update(dict.fromkeys(parts, self._steps))

    def _run(self, plans: Mapping[str, Any]) -> list[Path]:
        # Threads do not inherit the precision and the device of their parent's context.
        try:
            with jax.enable_x64(self._wide), jax.default_device(self._device):
                return [self._learn(plan, self._counter(part), self._kept[part]) for part, plan in plans.items()]
        except BaseException:
            self.stopped.set()
            raise

    def _counter(self, part: str) -> Callable[[int], None]:
        def count(steps: int) -> None:
            if self.stopped.is_set():
                raise KeyboardInterrupt
            self._done[part] = steps
            done = sum(fits * self._done[each] for each, fits in self._fits.items())
            self._bar.update(done // sum(self._fits.values()))

        return count


@contextmanager
def trainings(
    learn: Callable[[Any, Callable[[int], None], Stretches], Path],
    kept: Mapping[str, Stretches],
    fits: Mapping[str, int],
    steps: int,
    bar: Progress,
) -> Iterator[Trainings]:
    """Context manager that starts trainings in threads; `fits` are the numbers of members of each part."""
    # An error in the block or in a training, or an interruption, ends every training after its current stretch.
    with ThreadPoolExecutor(max(_FEWEST, os.cpu_count() or 1)) as pool:
        started = Trainings(pool, learn, kept, fits, steps, bar)
        try:
            yield started
        except BaseException:
            started.stopped.set()  # the pool waits for its threads
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def stretches_kept(checkpoint: Any, run: Mapping[str, str], resume: bool) -> Stretches:
    """Returns the checkpoints of a part; raises an error if there are some without `resume`."""
    keeper = checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
    stretches = Stretches(keeper, run)
    if stretches.exist and not resume and keeper is not None:
        raise ValueError(
            f"there are checkpoints in {str(keeper.folder)!r} already, which would be overwritten; go on from them "
            "with resume=True, or choose another folder"
        )
    return stretches
