"""The density of what all rows of a graph share, as a prior."""

from __future__ import annotations

from typing import Any

import jax

from lamu.constraints import Constraints
from lamu.dtype_policy import lenient
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import dtype_of, in_dtype, log_joint
from lamu.graphs.program import Site
from lamu.priors import Prior
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["GraphPrior", "supports"]


@record
class GraphPrior(Prior):
    """The density of what all rows share, of real coordinates.

    Attributes:
        sites: the shared sites.
        constraints: how the variables come of the coordinates.

    Examples:
        >>> from lamu.constraints import Constraints
        >>> from lamu.families import Gamma
        >>> from lamu.graphs.graph_prior import GraphPrior
        >>> from lamu.graphs.prior import Known
        >>> from lamu.graphs.program import Site
        >>> prior = GraphPrior((Site("rate", Known(Gamma(1.0, 1.0)), (), False),), Constraints())
        >>> float(prior.log_prob({"rate": 2.0}))
        -2.0
    """

    sites: Any
    constraints: Constraints

    def log_prob(self, params: Params) -> Array:
        """Returns log p(θ) with the Jacobian, in nats."""
        theta, volume = self.constraints.constrain(params)
        with lenient():
            statistics = {site.name: site.kind.of(theta[site.name]) for site in self.sites}
        value = log_joint(in_dtype(self.sites, dtype_of(statistics)), Environment(statistics))
        return value + volume.astype(value.dtype)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, variable after variable, as coordinates."""
        drawn: dict[str, Any] = {}
        at = Environment({})
        for number, site in enumerate(self.sites):
            zero = site.kind.zeros(site.shape, dtype_of(params))
            slope = jax.grad(
                lambda x, site=site, at=at: log_joint((site,), Environment({**at.statistics, site.name: x}))
            )
            drawn[site.name] = slope(zero).belief().sample(jax.random.fold_in(key, number))
            with lenient():
                at = Environment({**at.statistics, site.name: site.kind.of(drawn[site.name])})
        return self.constraints.unconstrain(drawn)


def supports(sites: tuple[Site, ...]) -> tuple[tuple[str, Any], ...]:
    """Returns the constraints of the variables by path.

    Args:
        sites: the shared sites.
    """
    table: dict[str, Any] = {}
    for site in sites:
        for below, constraint in site.kind.constraint.items():
            table[f"{site.name}/{below}" if below else site.name] = constraint
    return tuple(table.items())
