"""Parameter spaces: all parameters at once, or the network's parameters with the dispersions as a point estimate."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.objective.objective import Objective
from lamu.operators import BlockDiagonal, Diagonal, Operator, Scalar
from lamu.operators.interface import is_operator
from lamu.priors.parts import same_leaves
from lamu.record import record
from lamu.typing import Params

__all__ = ["AllParameters", "NetworkParameters"]


@record
class AllParameters:
    """All free parameters at once; the prior is a part of the loss.

    Examples:
        >>> from lamu.objective import AllParameters
        >>> AllParameters().split({"network": 1.0, "likelihood": 2.0})
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
class NetworkParameters:
    """The network's free weights. The dispersions are the rest: a point, moved beside the belief.

    Examples:
        >>> from lamu.objective import NetworkParameters
        >>> NetworkParameters().split({"network": 1.0, "likelihood": 2.0})
        (1.0, 2.0)
    """

    def split(self, params: Params) -> tuple[Params, Params]:
        """Returns the weights and the dispersions."""
        return params["network"], params["likelihood"]

    def join(self, coordinates: Params, rest: Params) -> Params:
        """Returns the parameters again."""
        return {"network": coordinates, "likelihood": rest}

    def conjugate_prior(self, objective: Objective, coordinates: Params) -> tuple[Params, Operator] | None:
        """Returns the prior's mean and precision a row, δ / N, of the Gaussian leaves; None where none is Gaussian.

        What is Gaussian of a prior enters a Gaussian belief exactly, through these; mean and precision are zero at the
        other leaves, which the loss takes in (`lamu.objective.NonGaussian`). The precision is an operator: a
        `Diagonal`, or that of the belief which is the prior.
        """
        known = objective.model.free_prior.gaussian(coordinates)
        if known is None:
            return None
        mean = _filled(known.mean, coordinates, jnp.zeros_like)
        precision = known.precision
        if isinstance(precision, Diagonal | Scalar):
            precision = Diagonal(_filled(precision.diagonal(known.mean), coordinates, jnp.zeros_like))
        elif isinstance(precision, BlockDiagonal) and not same_leaves(known.mean, coordinates):
            precision = BlockDiagonal(_filled(precision.blocks, coordinates, lambda x: Diagonal(jnp.zeros_like(x))))
        return mean, precision.scale(1.0 / objective.data_size)


def _filled(part: Params, like: Params, missing: Any) -> Params:
    """The tree with something in the place of each None, its arrays in the shapes and dtypes of another."""

    def leaf(value: Any, x: Any) -> Any:
        if value is None:
            return None if x is None else missing(x)
        return value if is_operator(value) else jnp.broadcast_to(value, x.shape).astype(x.dtype)

    stop = lambda node: node is None or is_operator(node)
    return jax.tree.map(leaf, part, like, is_leaf=stop)
