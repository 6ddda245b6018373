"""The parts of a run: blocks of steps, validation, history, checkpoints, progress and convergence."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.running.checkpoints import CheckpointError, Checkpoints, NotWritten, Unsaved
    from lamu.running.history import Best, History
    from lamu.running.progress import Progress
    from lamu.running.resume import Resumption
    from lamu.running.schedule import Block
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "Best",
    "Block",
    "CheckpointError",
    "Checkpoints",
    "History",
    "NotWritten",
    "Progress",
    "Resumption",
    "Unsaved",
]
