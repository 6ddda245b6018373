"""Words of the command line for the parts that a recipe is made of: objects in Python, a word or two here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lamu.data.spelling import nearest

__all__ = ["part", "parts", "takes_words"]


def takes_words(setting: str) -> bool:
    """Returns whether a setting is chosen by a word."""
    return setting in _TABLES


def parts(setting: str) -> dict[str, Any]:
    """Returns the words of a setting and what they stand for."""
    return _TABLES[setting]()


def part(setting: str, word: str) -> Any:
    """Returns what a word stands for."""
    from lamu.algorithms.post_hoc.selection import Matching
    from lamu.algorithms.post_hoc.subnetwork import LargestVariance

    known = parts(setting)
    if word in known:
        return known[word]
    if setting == "weights" and ("/" in word or "*" in word):
        return Matching(word)
    if setting == "weights" and word.isdigit():
        return LargestVariance(int(word))
    raise ValueError(f"there is no {setting} {word!r}; {nearest(word, known)}")


def _weights() -> dict[str, Any]:
    from lamu.algorithms.post_hoc.selection import AllWeights, HeadWeights

    return {"all": AllWeights(), "last_layer": HeadWeights()}


def _structures() -> dict[str, Any]:
    from lamu import operators as known

    return {
        "dense": known.Dense,
        "diagonal": known.Diagonal,
        "blocks": known.DenseBlocks,
        "kronecker": known.KroneckerFactored(),
        "low_rank": known.LowRankStructure(20),
        "matrix_free": known.MatrixFreeStructure(),
        "per_class": known.OutputBlocks,
        "shared_basis": known.OutputEigen,
    }


def _curvatures() -> dict[str, Any]:
    from lamu.objective import curvature as known

    return {
        "ggn": known.GaussNewton(),
        "sampled": known.SampledGaussNewton(1),
        "fisher": known.SquaredGradients(),
        "hessian": known.Hessian(),
    }


_TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "weights": _weights,
    "structure": _structures,
    "curvature": _curvatures,
}
