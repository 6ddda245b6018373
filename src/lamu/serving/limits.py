"""What one server takes at most, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Limits", "Refused"]


@dataclass(frozen=True)
class Limits:
    """What a server takes at most."""

    body: int = 1_000_000  # bytes of a request
    rows: int = 1024  # of a request, and of what is predicted at once
    waiting: int = 64  # requests that are read, wait or are predicted; a further one is refused with 503
    seconds: float = 10.0  # that a request may take, its body and the wait included

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise ValueError(f"the limit of {limit.name} is {getattr(self, limit.name)}; give a positive number")


class Refused(Exception):
    """A request that gets no prediction: a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
