"""Components of a mixture that hold no rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.families import Dirichlet, Point, Product
from lamu.graphs.categorical import CategoricalFactor
from lamu.graphs.expressions import Variable
from lamu.graphs.prior import Known
from lamu.graphs.program import Site
from lamu.typing import Number

__all__ = ["empty_components"]

_NOTHING = 1e-12  # of a weight at a point


def empty_components(sites: tuple[Site, ...], belief: Any, temperature: Number) -> dict[str, tuple[int, ...]]:
    """Returns the components that hold less than one row, by the name of their weight; they are what their prior says.

    Args:
        sites: of the program.
        belief: about the shared variables, a product by name or a point.
        temperature: T, at which it was made.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.families import Dirichlet, Product
        >>> from lamu.graphs.empty import empty_components
        >>> sites = lamu.graphs.models.LatentClass(3, (2,)).sites
        >>> q = Product({"network": Product({"weight": Dirichlet(jnp.array([5.0, 1.2, 3.0]))})})
        >>> empty_components(sites, q, 1.0)
        {'weight': (1,)}
    """
    part: Any = belief.factors.get("network") if isinstance(belief, Product) else None
    by_name = {site.name: site for site in sites}
    found = {}
    for site in sites:
        weight = site.factor.probabilities if isinstance(site.factor, CategoricalFactor) else None
        if not isinstance(weight, Variable) or len(weight.shape or ()) != 1 or weight.name not in by_name:
            continue
        prior: Any = by_name[weight.name].factor
        if isinstance(belief, Point):
            few = np.asarray(belief.mean["network"][weight.name]) <= _NOTHING
        elif isinstance(part, Product) and isinstance(prior, Known) and isinstance(prior.belief, Dirichlet):
            own: Any = part.factors[weight.name]
            before = np.asarray(prior.belief.concentration) - 1.0
            few = float(temperature) * (np.asarray(own.concentration) - 1.0) - before < 1.0
        else:
            continue
        if few.any():
            found[weight.name] = tuple(int(k) for k in np.flatnonzero(few))
    return found
