"""The table of algorithms, in the order of the paper's: optimisation, deep learning, inference."""

from __future__ import annotations

from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.ensembles.deep_ensemble import deep_ensemble
from lamu.algorithms.optimisers.adam import adam
from lamu.algorithms.optimisers.gradient_descent import gradient_descent
from lamu.algorithms.optimisers.map_estimate import map_estimate
from lamu.algorithms.optimisers.sgd import sgd
from lamu.algorithms.post_hoc.laplace import laplace
from lamu.algorithms.post_hoc.last_layer import last_layer
from lamu.algorithms.variational.ivon import ivon
from lamu.algorithms.variational.vogn import vogn
from lamu.algorithms.variational.von import von
from lamu.protocol import Recipe

__all__ = ["registry"]

_RECIPES = (
    Recipe("gradient_descent", gradient_descent, "Khan & Rue 2021, section 1.3.1"),
    Recipe("sgd", sgd, "Khan & Rue 2021, section 4.1"),
    Recipe("adam", adam, "Kingma & Ba 2015; Khan & Rue 2021, section 4.2"),
    Recipe("map_estimate", map_estimate, "any optax optimiser"),
    Recipe("von", von, "Khan et al. 2018, section 3"),
    Recipe("vogn", vogn, "Khan et al. 2018, equations 11 and 12"),
    Recipe("ivon", ivon, "Shen et al. 2024, algorithm 1"),
    Recipe("laplace", laplace, "MacKay 1992; Khan & Rue 2021, section 4.4"),
    Recipe("last_layer", last_layer, "Snoek et al. 2015; Kristiadi et al. 2020"),
    Recipe("deep_ensemble", deep_ensemble, "Lakshminarayanan et al. 2017"),
    Recipe("conjugate", conjugate, "Khan & Rue 2021, section 5.1"),
)


def registry() -> dict[str, Recipe]:
    """Returns every algorithm by its public name.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.registry()["ivon"].choices.curvature
        'Price'
    """
    return {recipe.name: recipe for recipe in _RECIPES}
