"""Metrics of a server in Prometheus' text format."""

from __future__ import annotations

import collections

__all__ = ["Metrics"]

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Metrics:
    """The metrics of a server; only the event loop accesses them."""

    def __init__(self) -> None:
        self.requests: collections.Counter[int] = collections.Counter()  # number of POST /predict by status
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.seconds = 0.0
        self.rows = self.batches = self.waiting = 0

    def answered(self, status: int, seconds: float) -> None:
        """Counts an answer."""
        self.requests[status] += 1
        self.seconds += seconds
        self.buckets[sum(seconds > bound for bound in _BOUNDS)] += 1

    def predicted(self, rows: int) -> None:
        """Counts a batch."""
        self.batches += 1
        self.rows += rows

    def text(self) -> str:
        """Returns the response of `/metrics`."""
        lines = ["# HELP lamu_requests_total Answers to POST /predict.", "# TYPE lamu_requests_total counter"]
        lines += [f'lamu_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.requests.items())]
        name, below = "lamu_request_seconds", 0
        lines += [f"# HELP {name} Time from a request's first byte to its answer.", f"# TYPE {name} histogram"]
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self.buckets, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        lines += [f"{name}_sum {self.seconds:.6f}", f"{name}_count {below}"]
        for name, kind, about, value in (
            ("lamu_rows_total", "counter", "Rows that were predicted.", self.rows),
            ("lamu_batches_total", "counter", "Compiled calls, each of the requests that waited.", self.batches),
            ("lamu_waiting", "gauge", "Requests that are read, wait or are predicted.", self.waiting),
        ):
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"
