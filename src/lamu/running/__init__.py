"""What a run is made of beside its steps: blocks, validation, history, checkpoints, progress."""

from lamu.running.blocks import Block
from lamu.running.checkpoints import CheckpointError, Checkpoints
from lamu.running.held_out import Best
from lamu.running.history import History
from lamu.running.progress import Progress
from lamu.running.resumption import Resumption

__all__ = ["Best", "Block", "CheckpointError", "Checkpoints", "History", "Progress", "Resumption"]
