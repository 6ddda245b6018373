"""Which coordinates a belief is about: all parameters, or the network's weights beside point dispersions."""

from __future__ import annotations

from typing import Any

import jax

from lamu import tree
from lamu.objective.objective import Objective
from lamu.operators import Diagonal, Operator
from lamu.priors import gaussian_belief
from lamu.record import record
from lamu.typing import Params

__all__ = ["Everything", "Weights"]


@record
class Everything:
    """All free parameters at once; the prior is a part of the loss.

    Examples:
        >>> from lamu.objective import Everything
        >>> Everything().split({"network": 1.0, "likelihood": 2.0})
        ({'network': 1.0, 'likelihood': 2.0}, {})
    """

    def split(self, params: Params) -> tuple[Params, Params]:
        """Returns the coordinates and the rest, here nothing."""
        return params, {}

    def join(self, coordinates: Params, rest: Params) -> Params:
        """Returns the parameters again."""
        return coordinates

    def conjugate_prior(self, objective: Objective, coordinates: Params) -> tuple[Params, Operator] | None:
        """Returns None: a point has no use for the prior's natural parameters."""
        return None


@record
class Weights:
    """The network's free weights. The dispersions are the rest: a point, moved beside the belief.

    Examples:
        >>> from lamu.objective import Weights
        >>> Weights().split({"network": 1.0, "likelihood": 2.0})
        (1.0, 2.0)
    """

    def split(self, params: Params) -> tuple[Params, Params]:
        """Returns the weights and the dispersions."""
        return params["network"], params["likelihood"]

    def join(self, coordinates: Params, rest: Params) -> Params:
        """Returns the parameters again."""
        return {"network": coordinates, "likelihood": rest}

    def conjugate_prior(self, objective: Objective, coordinates: Params) -> tuple[Params, Operator] | None:
        """Returns the prior's mean and precision a row, δ / N, where the prior is Gaussian; else None.

        A Gaussian prior enters a Gaussian belief exactly, through these; any other enters through the loss. The
        precision is an operator: a `Diagonal`, or that of the belief which is the prior.
        """
        prior: Any = objective.model.prior
        known: Any = prior.gaussian(coordinates)
        if known is None:
            belief = gaussian_belief(prior, coordinates)
            return None if belief is None else (belief.mean, belief.precision.scale(1.0 / objective.data_size))
        mean, precision = known
        like = coordinates
        mean = jax.tree.map(
            lambda value, leaf: jax.numpy.broadcast_to(value, leaf.shape).astype(leaf.dtype), mean, like
        )
        precision = jax.tree.map(
            lambda value, leaf: jax.numpy.broadcast_to(value, leaf.shape).astype(leaf.dtype), precision, like
        )
        return mean, Diagonal(tree.scale(precision, 1.0 / objective.data_size))
