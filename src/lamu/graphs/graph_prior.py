"""The joint density of a graph's shared variables as a prior, and a graph under beliefs about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.constraints import Constraints
from lamu.families import Gaussian, Product
from lamu.graphs.expressions import Environment
from lamu.graphs.factor import Known
from lamu.graphs.joint import dtype_of, in_dtype, log_joint, own_natural
from lamu.graphs.network import applications
from lamu.graphs.normal_factors import NormalFactor
from lamu.graphs.potential import AtMean, Potential
from lamu.graphs.program import GraphSite
from lamu.graphs.statistics import Numbers, Statistics, Vectors
from lamu.likelihoods.bases import FixedDispersion
from lamu.operators import Diagonal, Scalar
from lamu.priors import Normal, Prior
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, RandomKey

__all__ = ["GraphPrior", "enters_openly", "fixed", "statistics_under", "supports"]


@record
class GraphPrior(Prior):
    """Joint density of the shared variables, in real coordinates."""

    # Networks have their own prior, and encoders' parameters none. Fixed coordinates are merged with
    # the free ones, so that variables that depend on them keep their priors.

    sites: Any  # the shared sites
    constraints: Constraints  # the map from coordinates to variables
    weights: Prior = Normal(1.0)  # the prior of the networks' weights
    networks: tuple[str, ...] = static(default=())  # their names
    frozen: Any = None  # fixed coordinates, or None
    expected: Any = None  # statistics under a belief of fixed variables, by name, or None

    def check(self, params: Params) -> None:
        # Raises what the prior of the networks' weights raises.
        if self.networks:
            self.weights.check(self._of_networks(params))

    def log_prob(self, params: Params) -> Array:
        # Returns log p(θ) with the Jacobian, in nats.
        value, volume = self.of_variables(params), self._volume(params)
        free = self._of_networks(params)
        network_term = self.weights.log_prob(free) if jax.tree.leaves(free) else jnp.zeros(())
        return value + network_term.astype(value.dtype) + volume.astype(value.dtype)

    def of_variables(self, params: Params) -> Array:
        """Returns the log density of the shared variables in nats, without Jacobian and networks."""
        theta = self.constraints.constrain(params if self.frozen is None else tree.merged(params, self.frozen))[0]
        with lenient():
            statistics = {site.name: site.kind.of(theta[site.name]) for site in self.sites} | (self.expected or {})
        return log_joint(in_dtype(self.sites, dtype_of(statistics)), Environment(statistics))

    def exponential(self, params: Params) -> Any:
        # Returns the product of the variables' own beliefs.
        own = {}
        for site in self.sites:
            if site.name not in params:
                continue
            if not isinstance(site.factor, Known):
                raise TypeError(
                    f"the prior of {site.name!r} depends on {', '.join(sorted(site.factor.names)) or 'no belief'}, so "
                    "that no natural parameters are the prior's alone; give it a belief of lamu.families, or fit again"
                )
            own[site.name] = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype_of(params)), site.factor.belief)
        return Product(own)

    def given(self, frozen: Params) -> GraphPrior:
        # Returns the prior given fixed coordinates.
        return replace(self, frozen=frozen)

    def gaussian(self, params: Params) -> Gaussian | None:
        # Returns the independent Gaussian coordinates, with None for the others.
        #
        # These are networks' weights under a Gaussian prior, and variables of normal factors that are not arguments of
        # others, given fixed coordinates.
        arguments = frozenset().union(*(site.factor.names for site in self.sites))
        normal = {s.name: s for s in self.sites if isinstance(s.factor, NormalFactor) and s.name not in arguments}
        own = self._of_networks(params)
        network_prior = self.weights.gaussian(own) if own else None
        if network_prior is not None and not isinstance(network_prior.precision, Diagonal | Scalar):
            network_prior = None
        mean: Params = dict(network_prior.mean) if network_prior else {}
        precision: Params = dict(network_prior.precision.diagonal(network_prior.mean)) if network_prior else {}
        for name, site in normal.items():
            if name in params and jax.tree.leaves(params[name]):
                mean[name], precision[name] = self._of_normal(site, params)
        if not mean:
            return None
        for name in params.keys() - mean.keys():
            mean[name] = precision[name] = jax.tree.map(lambda leaf: None, params[name])
        return Gaussian(mean, Diagonal(precision))

    def _of_normal(self, site: GraphSite, params: Params) -> tuple[Any, Any]:
        """Returns mean and precision of a variable of a normal factor given the others, from the message to it."""
        others = {name: part for name, part in (self.frozen or {}).items() if jax.tree.leaves(part)}
        theta = self.constraints.constrain(others)[0]
        with lenient():
            given = {s.name: s.kind.of(theta[s.name]) for s in self.sites if s.name in theta}
        statistics = {**given, **(self.expected or {})}
        natural: Any = own_natural(site, Environment(statistics), dtype_of(params))
        precision = -2.0 * natural.second
        return natural.first / precision, precision

    def _of_networks(self, params: Params) -> Params:
        return {name: params[name] for name in self.networks if jax.tree.leaves(params[name])}

    def _volume(self, params: Params) -> Array:
        variables = [site.name for site in self.sites]
        return self.constraints.constrain({name: params[name] for name in variables})[1]

    def sample(self, key: RandomKey, params: Params) -> Params:
        # Returns a sample, variable after variable, as coordinates.
        values = self.drawn(key, dtype_of(params))
        own = self.weights.sample(jax.random.fold_in(key, len(self.sites)), self._of_networks(params))
        others = {name: part for name, part in params.items() if name not in values}
        return {**others, **self.constraints.unconstrain(values), **(own if self.networks else {})}

    def drawn(self, key: RandomKey, dtype: DTypeLike) -> dict[str, Any]:
        """Returns a sample of the shared variables by name, in their own space; fixed ones at their values."""
        frozen = {name: part for name, part in (self.frozen or {}).items() if jax.tree.leaves(part)}
        fixed, values = self.constraints.constrain(frozen)[0], {}
        environment = Environment({})
        for number, site in enumerate(self.sites):
            values[site.name] = (
                fixed[site.name]
                if site.name in fixed
                else own_natural(site, environment, dtype).belief().sample(jax.random.fold_in(key, number))
            )
            with lenient():
                environment = environment.having({site.name: site.kind.of(values[site.name])})
        return values


def supports(sites: tuple[GraphSite, ...]) -> tuple[tuple[str, Any], ...]:
    """Returns the constraints of the variables by path."""
    table: dict[str, Any] = {}
    for site in sites:
        for below, constraint in site.kind.constraint.items():
            table[f"{site.name}/{below}" if below else site.name] = constraint
    return tuple(table.items())


def statistics_under(sites: tuple[GraphSite, ...], beliefs: tuple[Any, ...]) -> dict[str, Statistics]:
    r"""Returns \(E_q[T(\theta)]\) by name, of shared variables that enter exact factors only."""
    # A factor is affine in the statistics of each argument, so that F at μ is the expectation, and a likelihood's is by
    # quadrature. A network needs values.
    open_to = frozenset().union(*(enters_openly(site) for site in sites))
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


def enters_openly(site: GraphSite) -> frozenset[str]:
    """Returns the variables that enter a site through a network, or a likelihood without an expectation."""
    if isinstance(site.factor, Potential) and isinstance(site.factor.expectation, AtMean):
        return site.factor.names
    return frozenset().union(*(call.names for call in applications(site.factor)))
