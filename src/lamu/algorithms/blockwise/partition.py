"""Which part of blocks a coordinate belongs to."""

from __future__ import annotations

from typing import Any

import jax

from lamu import tree
from lamu.typing import Params

__all__ = ["owners", "rest_of"]


def owners(patterns: tuple[str, ...], coordinates: Params, held: tuple[str, ...] = ()) -> Any:
    """Returns the number of the part of every leaf, a tree like the coordinates."""
    numbers = {pattern: number for number, pattern in enumerate(patterns)}
    found = tree.by_pattern(numbers, coordinates)
    for pattern, number in numbers.items():
        if number not in jax.tree.leaves(found) and not any(tree.matches(path, pattern) for path in held):
            tree.require_matches((pattern,), coordinates)
            raise ValueError(f"every leaf of the block {pattern!r} belongs to a block before it; put {pattern!r} first")
    return found


def rest_of(owner: Any, number: int, coordinates: Params) -> Params:
    """Returns the leaves of all other parts, with None at those of one."""
    return jax.tree.map(lambda k, leaf: None if k == number else leaf, owner, coordinates)
