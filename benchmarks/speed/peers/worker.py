"""Runs tasks on request: a line on standard input names one, and a line of JSON tells its seconds and peak memory."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["serve"]


def serve(tasks: Mapping[str, Callable[[], Any]]) -> None:
    """Answers until standard input ends.

    Args:
        tasks: by name. What one returns, if it is a dictionary, is added to its answer.
    """
    for line in sys.stdin:
        begun, worked = time.perf_counter(), time.process_time()
        result = tasks[line.strip()]()
        answer: dict[str, Any] = {"wall": time.perf_counter() - begun, "processor": time.process_time() - worked}
        answer["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        print(json.dumps(answer | (result if isinstance(result, dict) else {})), flush=True)
