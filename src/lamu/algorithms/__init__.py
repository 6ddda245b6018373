"""Algorithms: recipes of the Bayesian learning rule, one file each."""

from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.ensembles.deep_ensemble import deep_ensemble
from lamu.algorithms.optimisers.adam import adam
from lamu.algorithms.optimisers.gradient_descent import gradient_descent
from lamu.algorithms.optimisers.map_estimate import map_estimate
from lamu.algorithms.optimisers.sgd import sgd
from lamu.algorithms.post_hoc.laplace import laplace
from lamu.algorithms.post_hoc.last_layer import last_layer
from lamu.algorithms.table import registry
from lamu.algorithms.variational.ivon import ivon
from lamu.algorithms.variational.vogn import vogn
from lamu.algorithms.variational.von import von

__all__ = [
    "adam",
    "conjugate",
    "deep_ensemble",
    "gradient_descent",
    "ivon",
    "laplace",
    "last_layer",
    "map_estimate",
    "registry",
    "sgd",
    "vogn",
    "von",
]
