"""Sizes: checks of arguments of constructors, and rows padded to few sizes, so that one program serves many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import numpy as np

from lamu.typing import Array, PyTree

__all__ = ["block", "filled", "is_spread", "joined_blocks", "ladder", "padded_blocks", "require", "sized"]

_Of = TypeVar("_Of", bound=Any)
_SEVERAL = ("tuple[int, ...]", "tuple[int, int]")


def require(condition: object, message: str) -> None:
    """Raises a ValueError where a condition on a number is false; one on a traced number is taken to hold."""
    if isinstance(condition, bool | np.bool_) and not condition:
        raise ValueError(message)


def sized(of: _Of) -> _Of:
    """Decorator that refuses arguments annotated as integers that are not integers, or are below one."""
    return _class(of) if isinstance(of, type) else _function(of)


def _function(of: Any) -> Any:
    signature = inspect.signature(of)
    names = {name: str(each.annotation) for name, each in signature.parameters.items() if _is_size(each.annotation)}

    @functools.wraps(of)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            values = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the call's own error names the argument
            return of(*args, **kwargs)
        for name, annotation in names.items():
            if name in values:
                _require(of.__name__, name, values[name], annotation)
        return of(*args, **kwargs)

    return checked


def _class(of: Any) -> Any:
    annotations: dict[str, Any] = {}
    for base in reversed(of.__mro__):
        annotations |= inspect.get_annotations(base)
    names = {name: str(each) for name, each in annotations.items() if _is_size(each)}
    before = getattr(of, "__post_init__", None)

    def __post_init__(self: object) -> None:  # noqa: N807
        for name, annotation in names.items():
            _require(type(self).__name__, name, getattr(self, name), annotation, least=None)
        if before is not None:
            before(self)
        for name, annotation in names.items():
            _require(type(self).__name__, name, getattr(self, name), annotation)

    of.__post_init__ = __post_init__
    return of


def _is_size(annotation: object) -> bool:
    return str(annotation) == "int" or annotation is int or str(annotation) in _SEVERAL


def _require(owner: str, name: str, value: Any, annotation: str, least: int | None = 1) -> None:
    if annotation in _SEVERAL:
        several = isinstance(value, tuple | list) and (annotation == _SEVERAL[0] or len(value) == 2)
        if not several or not all(_is_whole(each, least) for each in value):
            example = "(64,)" if annotation == _SEVERAL[0] else "(28, 28)"
            raise ValueError(f"{owner} has {name}={value!r}; give whole numbers from 1, for instance {example}")
    elif not _is_whole(value, least):
        raise ValueError(f"{owner} has {name}={value!r}; give a whole number from 1")


def _is_whole(value: Any, least: int | None) -> bool:
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    return is_integer and (least is None or int(value) >= least)


# A program has one shape, and the number of rows varies. Rows are padded to a ladder of sizes by repeating the last
# one, and the results are cut to the original rows. Rows are independent, so that only the rounding of products
# changes, whose order of summation depends on the shape.


_FEW = 64  # up to this size every second size is a power of two; above, every fourth


def ladder(count: int) -> int:
    """Returns the next of the sizes 1, 2, 3, 4, 6, 8, 12, ..., 64, 80, 96, 112, 128, 160, ..."""
    return -(-count // _step(count - 1)) * _step(count - 1)


@functools.lru_cache(maxsize=1024)
def block(count: int, most: int) -> int:
    """Returns the size of blocks for `count` rows: a size of the ladder, and at most `most`."""
    most = most // _step(most) * _step(most)
    return ladder(-(-count // -(-count // most)))


def _step(below: int) -> int:
    """Returns the distance between the sizes around a number."""
    power = 1 << below.bit_length()
    return max(1, power // (4 if power <= _FEW else 8))


def is_spread(x: object) -> bool:
    """Whether rows are on several devices, from which padding would gather them."""
    return isinstance(x, jax.Array) and len(x.sharding.device_set) > 1


def padded_blocks(rows: PyTree, count: int, size: int) -> Iterator[PyTree]:
    """Yields blocks of rows, all of one size; the last one repeats its last row."""
    if count == size:
        yield rows
        return
    rows = jax.tree.map(np.asarray, rows)
    for start in range(0, count, size):
        missing = max(0, start + size - count)
        yield jax.tree.map(lambda leaf: filled(leaf[start : start + size], missing), rows)  # noqa: B023  (at once)


def filled(leaf: np.ndarray, missing: int, axis: int = 0) -> np.ndarray:
    """Returns an array with its last row repeated `missing` more times."""
    return np.concatenate([leaf, np.repeat(np.take(leaf, [-1], axis), missing, axis)], axis) if missing else leaf


def joined_blocks(leaves: tuple[Array | np.ndarray, ...], count: int, axis: int) -> Array:
    """Joins the results of blocks into one array, without the padding of the last block."""
    host = [np.asarray(leaf) for leaf in leaves]
    joined = host[0] if len(host) == 1 else np.concatenate(host, axis=axis)
    return jax.device_put(joined[(slice(None),) * axis + (slice(0, count),)])  # `jnp.asarray` compiles for each shape
