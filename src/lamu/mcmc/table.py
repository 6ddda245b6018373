"""The table of samplers: the public ones that are registered as recipes."""

from __future__ import annotations

from lamu import mcmc
from lamu.protocol import Recipe, recipes_of

__all__ = ["registry"]


def registry() -> dict[str, Recipe]:
    """Returns every sampler by its public name.

    Examples:
        >>> import lamu
        >>> "nuts" in lamu.mcmc.registry()
        True
    """
    return recipes_of(mcmc)
