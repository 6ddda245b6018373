"""What a run is made of beside its steps: blocks, validation, history, checkpoints, progress."""

from lamu.running.checkpoints import CheckpointError, Checkpoints, NotWritten, Resumption, Unsaved
from lamu.running.history import History
from lamu.running.progress import Progress
from lamu.running.schedule import Block
from lamu.running.validation import Best

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
