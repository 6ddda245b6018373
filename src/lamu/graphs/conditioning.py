"""A graph's view of variables that other algorithms learn: expected statistics, values, fixed dispersions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamu.families import Gaussian, Product
from lamu.graphs.network import applications
from lamu.graphs.potential import AtMean, Potential
from lamu.graphs.program import GraphSite
from lamu.graphs.statistics import Numbers, Statistics, Vectors
from lamu.likelihoods.dispersion import FixedDispersion
from lamu.operators import Diagonal
from lamu.typing import Params

__all__ = ["fixed", "statistics_under"]


def statistics_under(sites: tuple[GraphSite, ...], beliefs: tuple[Any, ...]) -> dict[str, Statistics]:
    r"""Returns \(E_q[T(\theta)]\) by name, of shared variables that enter exact factors only."""
    # A factor is affine in the statistics of each argument, so that F at μ is the expectation, and a likelihood's is by
    # quadrature. A network needs values.
    open_to = frozenset().union(*(_open(site) for site in sites))
    statistics: dict[str, Statistics] = {}
    for site in sites:
        if site.in_rows or site.name in open_to:
            continue
        for belief in beliefs:
            if isinstance(belief, Product) and site.name in belief.factors:
                statistics[site.name] = site.kind.under(belief.factors[site.name])
            elif isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal):
                mean = belief.mean.get(site.name)
                if mean is not None and site.kind in (Numbers, Vectors):
                    variance = belief.precision.variance(belief.mean)[site.name]
                    statistics[site.name] = site.kind.under_independent(mean, variance)
    return statistics


def fixed(site: GraphSite, dispersions: Params) -> GraphSite:
    """Returns a site whose likelihood has fixed dispersions, if they are given."""
    factor = site.factor
    if not isinstance(factor, Potential) or site.name not in dispersions:
        return site
    likelihood = FixedDispersion(factor.of_entry, dispersions[site.name])
    return replace(site, factor=replace(factor, likelihood=likelihood))


def _open(site: GraphSite) -> frozenset[str]:
    """Returns the variables that enter a site through a network, or a likelihood without an expectation."""
    if isinstance(site.factor, Potential) and isinstance(site.factor.expectation, AtMean):
        return site.factor.names
    return frozenset().union(*(call.names for call in applications(site.factor)))
