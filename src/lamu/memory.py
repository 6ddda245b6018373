"""Memory limit, shared by fitting, prediction, curvature and scoring.

The limit is for memory beyond that already in use. Nothing is measured during the work: sizes are computed before, work
is split into chunks that fit, and work that cannot be split is refused.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import Var, jaxprs_in_params

__all__ = [
    "at_least",
    "budget",
    "bytes_of",
    "demand",
    "free",
    "held_by",
    "largest_array",
    "limit",
    "most_held",
    "numbers_written",
    "parse",
    "shown",
    "within",
]


# Larger chunks are no faster, since they exceed the cache.
_LARGEST_CHUNK = 64 * 2**20
_CHUNKS_AT_ONCE = 4  # a chunk, its derivative, their combination, and a reserve
_SHARE_OF_FREE = 0.5
_LATELY = 0.5  # seconds
_FALLBACK = 4 * 2**30
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SHOWN = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))

_looked: tuple[float, int] = (-math.inf, 0)
_limit: ContextVar[int | None] = ContextVar("memory limit", default=None)


def parse(size: object) -> int:
    """Returns a size in bytes.

    Args:
        size: a number of bytes, or a number with a unit: kB, MB, GB, TB (powers of ten), KiB, MiB, GiB, TiB.

    Raises:
        ValueError: for anything else, or for less than one byte.

    Examples:
        >>> from lamu.memory import parse
        >>> parse("2GB"), parse("1.5 KiB"), parse(4096)
        (2000000000, 1536, 4096)
    """
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([a-z]*)\s*", size.lower())
        number = float(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else math.nan
    else:
        number = float(size) if isinstance(size, int | float) else math.nan
    if not 1 <= number < math.inf:
        raise ValueError(f"max_memory={size!r} is not a size; write a number and a unit, such as '2GB' or '500MiB'")
    return int(number)


@contextmanager
def within(size: object) -> Iterator[None]:
    """Context manager that sets the limit; None leaves it as it is.

    Args:
        size: as `parse` takes it.

    Examples:
        >>> from lamu import memory
        >>> with memory.within("1GB"):
        ...     memory.limit()
        1000000000
    """
    if size is None:
        yield
        return
    token = _limit.set(parse(size))
    try:
        yield
    finally:
        _limit.reset(token)


def limit() -> int:
    """Returns the memory limit in bytes: the one set, or else half of the free memory.

    Examples:
        >>> from lamu import memory
        >>> memory.limit() > 0
        True
    """
    chosen = _limit.get()
    return chosen if chosen is not None else max(int(_lately_free() * _SHARE_OF_FREE), 1)


def budget() -> int:
    """Returns the size of one chunk of work in bytes: a quarter of the limit, and at most 64 MiB.

    Examples:
        >>> from lamu import memory
        >>> with memory.within("64MiB"):
        ...     memory.budget() == 16 * 2**20
        True
    """
    return max(min(limit() // _CHUNKS_AT_ONCE, _LARGEST_CHUNK), 1)


def demand(size: Any, what: str, instead: str) -> None:
    """Raises a ValueError where work that cannot be split exceeds the limit.

    Args:
        size: in bytes.
        what: the name of the work, the beginning of a sentence.
        instead: the nearest alternative that fits.

    Raises:
        ValueError: one sentence with both sizes and what to do instead.

    Examples:
        >>> from lamu import memory
        >>> with memory.within("1MB"):
        ...     memory.demand(8e6, "a dense precision of 1,000 weights", "take structure=Diagonal")
        Traceback (most recent call last):
            ...
        ValueError: a dense precision of 1,000 weights takes 8.0 MB and 1.0 MB may be used; take structure=Diagonal
    """
    if size > limit():
        raise ValueError(f"{what} takes {shown(size)} and {shown(limit())} may be used; {instead}")


def shown(size: Any) -> str:
    """Returns a size as text with a unit.

    Examples:
        >>> from lamu.memory import shown
        >>> shown(1_234_000), shown(12)
        ('1.2 MB', '12 B')
    """
    for unit, bytes_each in _SHOWN:
        if size >= bytes_each:
            return f"{size / bytes_each:.1f} {unit}"
    return f"{size:.0f} B"


def at_least(size: Any) -> str:
    """Returns a size as text, rounded up to a short value for `max_memory`.

    Examples:
        >>> from lamu.memory import at_least, shown
        >>> shown(1_234_000), at_least(1_234_000)
        ('1.2 MB', '1.3 MB')
    """
    for unit, bytes_each in _SHOWN:
        if size >= bytes_each:
            return f"{math.ceil(10 * size / bytes_each) / 10:.1f} {unit}"
    return f"{math.ceil(size)} B"


def _lately_free() -> int:
    """Returns the free memory, cached for half a second: otherwise it takes a sixth of a small prediction's time."""
    global _looked
    now = time.monotonic()
    if now - _looked[0] > _LATELY:
        _looked = now, free()
    return _looked[1]


def free() -> int:
    """Returns the bytes of free memory of the host, or of the container where there is one.

    Examples:
        >>> from lamu.memory import free
        >>> free() > 0
        True
    """
    room = [_available(), _left_of_group()]
    figures = [value for value in room if value is not None]
    return max(min(figures), 1) if figures else _FALLBACK


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not known on every system
        return None


def _left_of_group() -> int | None:
    """Returns the free bytes under a container's limit; None where there is no limit."""
    group = Path("/sys/fs/cgroup")
    try:
        most = (group / "memory.max").read_text().strip()
        if most == "max":
            return None
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # The file cache counts as used, but is released on demand.
        used = int((group / "memory.current").read_text()) - int(statistics.get("inactive_file", 0))
        return max(int(most) - used, 1)
    except (OSError, ValueError):
        return None


_STATUS = Path("/proc/self/status")


def most_held() -> int | None:
    """Returns the peak memory of this process in bytes; None where the system does not report it.

    On Linux it is read from /proc: `getrusage` includes the memory of the parent when the process was started.

    Examples:
        >>> from lamu.memory import most_held
        >>> held = most_held()
        >>> held is None or held > 2**20
        True
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def bytes_of(structure: object) -> int:
    """Returns the bytes of a tree of arrays, or of their shapes; other leaves count zero.

    Args:
        structure: a pytree of arrays, random keys or `jax.ShapeDtypeStruct`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.memory import bytes_of
        >>> bytes_of({"w": jnp.zeros((3, 2), jnp.float32), "name": 1})
        24
    """
    leaves = [leaf for leaf in jax.tree.leaves(structure) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def held_by(function: Any, *arguments: Any) -> int:
    """Returns the bytes that a jitted function allocates beyond its arguments: temporaries and new results.

    The compiler reports it. A later call with the same arguments runs the same compiled program, which JAX caches.

    Args:
        function: a result of `jax.jit`.
        *arguments: arrays, or their shapes.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.memory import held_by
        >>> x = jax.ShapeDtypeStruct((100, 100), jnp.float32)
        >>> held_by(jax.jit(lambda x: x @ x), x) >= 40_000
        True
    """
    analysis = function.lower(*arguments).compile().memory_analysis()
    if analysis is None:  # not every backend reports it
        return 0
    return analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes


def largest_array(function: Callable[..., object], *arguments: object) -> int:
    """Returns the bytes of the largest intermediate array of a function; nothing is compiled.

    Args:
        function: any function that JAX can trace.
        *arguments: arrays, or their shapes.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.memory import largest_array
        >>> x = jax.ShapeDtypeStruct((100, 10), jnp.float32)
        >>> largest_array(lambda x: jnp.sum(x @ x.T), x)
        40000
    """
    return _largest(jax.make_jaxpr(function)(*arguments).jaxpr)


def _largest(jaxpr: Any) -> int:
    sizes = [bytes_of(variable.aval) for equation in jaxpr.eqns for variable in equation.outvars]
    inside = [_largest(inner) for equation in jaxpr.eqns for inner in jaxprs_in_params(equation.params)]
    return max([*sizes, *inside], default=0)


def numbers_written(program: Any, inputs: int) -> int:
    """Returns the number of values written by equations of a program that depend on its last inputs.

    A transposed weight is written once for all rows, so it does not count for the memory of a row.

    Args:
        program: a jaxpr, for instance `jax.jit(f).trace(...).jaxpr.jaxpr`.
        inputs: the number of inputs, counted from the last one.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.memory import numbers_written
        >>> program = jax.make_jaxpr(lambda w, x: x @ w.T)(jnp.zeros((5, 3)), jnp.zeros((1, 3))).jaxpr
        >>> numbers_written(program, 1), numbers_written(program, 2)
        (5, 20)
    """
    dependent = set(program.invars[len(program.invars) - inputs :])
    total = 0
    for equation in program.eqns:
        if any(isinstance(place, Var) and place in dependent for place in equation.invars):
            dependent.update(equation.outvars)
            total += sum(math.prod(place.aval.shape) for place in equation.outvars)
    return total
