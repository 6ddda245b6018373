"""Answers that depend on shapes alone, found once: how much a row takes is asked at every call, and never changes."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

__all__ = ["once_a_shape"]

Answer = TypeVar("Answer")
_MOST = 128  # answers of one function that are kept, the latest asked for


def once_a_shape(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Returns the function with a memory: arguments of known structure, shapes and dtypes are not computed again."""
    # Arrays count by shape and dtype, everything else by value. JAX's default float is a part of the question.
    #
    # `function`: of pytrees; what it returns must not depend on the arrays' numbers.
    known: OrderedDict[Any, Answer] = OrderedDict()

    @functools.wraps(function)
    def remembered(*arguments: Any, **named: Any) -> Answer:
        leaves, structure = jax.tree.flatten((arguments, named))
        question = (structure, tuple(map(_told, leaves)), jnp.result_type(float))
        try:
            hash(question)
        except TypeError:  # somebody's own object, which cannot be told from another
            return function(*arguments, **named)
        if question not in known:
            known[question] = function(*arguments, **named)
            if len(known) > _MOST:
                known.popitem(last=False)
        known.move_to_end(question)
        return known[question]

    return remembered


def _told(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else leaf
