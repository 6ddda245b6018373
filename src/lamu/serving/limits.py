"""The limits of a server, and the errors for refused requests."""

from __future__ import annotations

from dataclasses import dataclass, fields

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HttpProtocol", "Limits", "Refused"]

_UNREAD = 65_536  # bytes, the limit of h11


@dataclass(frozen=True)
class Limits:
    """The limits of a server."""

    body: int = 1_000_000  # bytes of a request
    rows: int = 1024  # of a request, and of a batch
    waiting: int = 64  # the largest number of open requests; further ones get status 503
    seconds: float = 10.0  # the time-out of a request, including its body and waiting

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise ValueError(f"the limit of {limit.name} is {getattr(self, limit.name)}; give a positive number")


class HttpProtocol(HttpToolsProtocol):
    """The HTTP protocol of httptools with a limit on the size of heads and trailers, which its parser lacks."""

    # Processor time of the server a request: with httptools .55 to .66 ms alone and .30 in batches of 16, with h11 .73
    # to .86 and .41 to .45 (November 2026).
    unread = 0  # bytes since the last complete head or part of a body

    def data_received(self, data: bytes) -> None:
        """Reads bytes, and closes the connection after too many without a complete head or body part."""
        self.unread += len(data)
        super().data_received(data)
        if self.unread > _UNREAD and not self.transport.is_closing():
            self.send_400_response(f"The head of the request has more than {_UNREAD:,} bytes.")

    def on_headers_complete(self) -> None:
        """Handles the head of a request."""
        self.unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Handles a part of a body."""
        self.unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handles the end of a request."""
        self.unread = 0
        super().on_message_complete()


class Refused(Exception):
    """The error for a refused request, with a status and a message."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
