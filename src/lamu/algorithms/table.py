"""Table of algorithms: the public ones that are registered as recipes."""

from __future__ import annotations

from lamu import algorithms
from lamu.protocol import Recipe, recipes_of

__all__ = ["registry"]

# As table 1 of Khan & Rue (2021): optimisers, deep learning, then approximate inference.
_KINDS = (
    "optimisers",
    "variational",
    "descent",
    "discrete",
    "post_hoc",
    "ensembles",
    "mixtures",
    "moments",
    "black_box",
    "mirror",
)


def registry() -> dict[str, Recipe]:
    """Returns every algorithm by its public name.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.registry()["ivon"].choices.curvature
        'Price'
    """
    return recipes_of(algorithms, first=_KINDS)
