"""Memory estimates of a precision before a fit, and the structures that fit where it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lamu import memory, tree
from lamu.algorithms.post_hoc.selection import AllWeights, HeadWeights, Matching
from lamu.model import Model
from lamu.operators import Dense, Diagonal, KroneckerFactored, LowRankStructure, OutputEigen
from lamu.target import Target
from lamu.typing import Params

__all__ = ["bytes_held", "foresee"]

_COPIES = 3  # the curvature, the precision, and its factor


def foresee(structure_of: Callable[[Params], Any], choice: Any, model: Target, weights: Params) -> None:
    """Says what the precision will take, and refuses one that cannot fit."""
    # `ValueError`: where it takes more than `lamu.memory.limit()`; the sentence names what would fit.
    patterns = choice.patterns if isinstance(choice, Matching) else None
    if isinstance(choice, AllWeights | HeadWeights):
        patterns = ("*",) if isinstance(choice, AllWeights) else (model.network.head,)
    if patterns is None:
        return
    chosen = _matching(weights, patterns)
    count = tree.dimension(chosen)
    structure = structure_of(chosen)
    size = bytes_held(structure, chosen)
    name = getattr(structure, "__name__", str(structure))
    logging.getLogger("lamu").info(
        "The precision of %s weights, %s, takes about %s; %s may be used.",
        f"{count:,}", name, memory.shown(size), memory.shown(memory.limit()),
    )  # fmt: skip
    memory.demand(size, f"the precision of {count:,} weights, {name},", _nearest(model, weights, chosen))


def bytes_held(structure: Any, weights: Params) -> int:
    """Returns about how many bytes a precision takes with its factor, while it is made."""
    return _COPIES * structure.numbers_held(weights) * jnp.dtype(jnp.result_type(float)).itemsize


def _nearest(model: Target, weights: Params, chosen: Params) -> str:
    head = _matching(weights, (model.network.head if isinstance(model, Model) else "*",))
    candidates = (
        ("structure=KroneckerFactored()", KroneckerFactored(), chosen),
        ("structure=LowRankStructure(20)", LowRankStructure(20), chosen),
        ("weights=HeadWeights()", Dense, head),
        ("weights=HeadWeights() with structure=OutputEigen", OutputEigen, head),
        ("structure=Diagonal", Diagonal, chosen),
    )
    for words, structure, of in candidates:
        size = bytes_held(structure, of)
        if size <= memory.limit():
            return f"give {words}, which takes {memory.shown(size)}"
    return f"nothing smaller fits; give max_memory={memory.at_least(bytes_held(Diagonal, chosen))!r} or more"


def _matching(weights: Params, patterns: tuple[str, ...]) -> Params:
    def kept(name: str, leaf: Any) -> Any:
        return leaf if any(tree.matches(name, pattern) for pattern in patterns) else None

    return tree.map_with_path(kept, weights)
