"""The table of samplers."""

from __future__ import annotations

from lamu.mcmc.no_u_turn import nuts
from lamu.protocol import Recipe

__all__ = ["registry"]

_RECIPES = (Recipe("nuts", nuts, "Hoffman & Gelman 2014; BlackJAX's kernel"),)


def registry() -> dict[str, Recipe]:
    """Returns every sampler by its public name.

    Examples:
        >>> import lamu
        >>> list(lamu.mcmc.registry())
        ['nuts']
    """
    return {recipe.name: recipe for recipe in _RECIPES}
