"""A client of `lamu serve`: many requests at a time over connections that are kept, in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Answer:
    status: int
    document: Any
    seconds: float
    body: bytes  # of the request


class Connection:
    """One kept connection, opened again where the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port, self.streams = port, None

    async def ask(self, body: bytes, kind: str = "application/json", path: str = "/predict") -> Answer:
        begun = time.perf_counter()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        for attempt in (0, 1):
            try:
                if self.streams is None:
                    self.streams = await asyncio.open_connection("127.0.0.1", self.port)
                reader, writer = self.streams
                writer.write(head.encode() + body)
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                break
            except (ConnectionError, asyncio.IncompleteReadError):  # a kept connection that was idle for too long
                self.close()
                if attempt:
                    raise
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        content = await reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            self.close()
        status = int(lines[0].split()[1])
        found = json.loads(content) if "json" in fields.get("content-type", "") else content.decode()
        return Answer(status, found, time.perf_counter() - begun, body)

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None


async def clients(port: int, count: int, bodies: Iterator[bytes], seconds: float, see: Callable[[Answer], None]) -> int:
    """Lets so many clients ask one request after the other, and returns how many were answered."""
    end, answered = time.perf_counter() + seconds, 0

    async def client() -> None:
        nonlocal answered
        connection = Connection(port)
        with contextlib.closing(connection):
            while time.perf_counter() < end:
                see(await connection.ask(next(bodies)))
                answered += 1

    await asyncio.gather(*(client() for _ in range(count)))
    return answered


async def paced(port: int, rate: float, bodies: Iterator[bytes], seconds: float, see: Callable[[Answer], None]) -> None:
    """Asks so many requests a second, whatever the answers take."""
    idle: list[Connection] = []
    running: set[asyncio.Task[None]] = set()

    async def one(due: float) -> None:
        connection = idle.pop() if idle else Connection(port)
        answer = await connection.ask(next(bodies))
        answer.seconds = time.perf_counter() - due
        see(answer)
        idle.append(connection)

    begun = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = begun + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(max(due, time.perf_counter())))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    for connection in idle:
        connection.close()
