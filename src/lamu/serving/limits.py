"""The limits of a server, and its refusals."""

from __future__ import annotations

from dataclasses import dataclass, fields

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HttpProtocol", "Limits", "Refused"]

_UNREAD = 65_536  # bytes, as h11 has it


@dataclass(frozen=True)
class Limits:
    """The limits of a server."""

    body: int = 1_000_000  # bytes of a request
    rows: int = 1024  # of a request, and of what is predicted at once
    waiting: int = 64  # requests that are read, wait or are predicted; a further one is refused with 503
    seconds: float = 10.0  # that a request may take, its body and the wait included

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise ValueError(f"the limit of {limit.name} is {getattr(self, limit.name)}; give a positive number")


class HttpProtocol(HttpToolsProtocol):
    """HTTP as httptools reads it, with a bound on what its parser keeps, which has none: endless heads and trailers."""

    # httptools took .55 to .66 ms of the server's processor a request alone, and .30 in batches of 16; h11 .73 to .86
    # and .41 to .45 (November 2026).
    unread = 0  # bytes since a head or a part of a body was read

    def data_received(self, data: bytes) -> None:
        """Reads bytes, and closes the connection where too many of them are no request."""
        self.unread += len(data)
        super().data_received(data)
        if self.unread > _UNREAD and not self.transport.is_closing():
            self.send_400_response(f"The head of the request has more than {_UNREAD:,} bytes.")

    def on_headers_complete(self) -> None:
        """Takes the head of a request."""
        self.unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        self.unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Takes the end of a request."""
        self.unread = 0
        super().on_message_complete()


class Refused(Exception):
    """A request that gets no prediction: a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
