"""The function F of statistics: the log joint of a row, and of the shared variables."""

# \[ F = \sum_a \log p(x_a \mid \text{arguments}) \]
#
# at \(T(\theta)\) the log joint itself, at \(\mu\) its expectation under a belief whose variables are independent.

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.data.arrays import Incomplete
from lamu.graphs.expressions import Environment
from lamu.graphs.network import applications
from lamu.graphs.program import GraphSite
from lamu.graphs.statistics import Categories
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Statistics

__all__ = ["Row", "log_joint", "misses_some", "names_above", "own_natural"]


def log_joint(
    sites: tuple[GraphSite, ...], environment: Environment, observed: Mapping[str, Any] | None = None
) -> Array:
    """Returns the sum of the log densities of some sites in nats."""
    masks = observed or {}
    with lenient():  # the arguments of a factor broadcast as in NumPy
        terms = [
            site.factor.mixed_log_density(environment.statistics[site.name], environment, masks.get(site.name))
            for site in sites
        ]
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())


def own_natural(
    site: GraphSite, environment: Environment, dtype: DTypeLike | None = None, temperature: Any = 1.0
) -> Statistics:
    """Returns λ of a variable from its own factor, over T."""
    zero = site.kind.zeros(shape_of(site, environment), dtype_of(environment.statistics) if dtype is None else dtype)
    slope = jax.grad(lambda x: log_joint((site,), environment.having({site.name: x})))(zero)
    return tree.scale(slope, 1.0 / temperature)


@record
class Row:
    """One row: its observations, and its open variables."""

    sites: Any  # the sites of the row
    known: Any  # T of the observations, by name
    observed: Any  # which entries are observed, for variables with missing ones
    inputs: Any  # the inputs by name
    # By name, terms added to the natural parameters of a latent: for a category that is missing in some rows only, or
    # by a network.
    evidence: Any
    temperature: Any = 1.0  # T
    data: Any = None  # raw observations by name, with any valid value for missing entries
    # The categories with evidence that all rows observe, so that one value of each is possible.
    labelled: tuple[str, ...] = static(default=())

    @classmethod
    def of(
        cls,
        sites: tuple[GraphSite, ...],
        inputs: tuple[str, ...],
        data: Mapping[str, Any],
        temperature: Any,
        dtype: DTypeLike | None = None,
    ) -> Row:
        """Returns the row described by data."""
        given, observed, evidence, raw = {}, {}, {}, {}
        labelled = []
        needed = names_above(sites)
        # Unobserved variables without descendants integrate to one.
        sites = tuple(s for s in sites if s.name in needed or value_of(data, s.name)[0] is not None)
        for site in sites:
            value, mask = value_of(data, site.name)
            if value is None or (mask is not None and not misses_some(site, needed)):
                continue
            if mask is not None:
                value = jnp.where(mask, value, jnp.asarray(site.factor.neutral, value.dtype))
            raw[site.name] = value
            with lenient():
                given[site.name] = in_dtype(site.factor.statistics(value), dtype)
            if site.kind is Categories and (site.supervised or (mask is not None and site.name in needed)):
                # A category on which other variables depend is latent, with its value, if observed, as evidence.
                one_hot = given.pop(site.name).probabilities
                free = jnp.zeros((), bool) if mask is None else ~mask
                if mask is None:
                    labelled.append(site.name)
                evidence[site.name] = Categories(jnp.where((one_hot > 0) | free, 0.0, -1e30).astype(one_hot.dtype))
            elif mask is not None:
                observed[site.name] = mask
        row_inputs = in_dtype({name: data[name] for name in inputs}, dtype)
        return cls(sites, given, observed, row_inputs, evidence, temperature, raw, tuple(labelled))

    @property
    def latent(self) -> tuple[GraphSite, ...]:
        """The sites of the variables that are not observed."""
        return tuple(site for site in self.sites if site.name not in self.known)

    @property
    def coupled(self) -> bool:
        """Whether two latents meet in a factor, or one in a factor or a network that is not affine in it."""
        return self.coupled_given(())

    def coupled_given(self, known: Collection[str]) -> bool:
        """Returns whether the row is `coupled` if some more of its variables have values."""
        names = {site.name for site in self.latent} - {*known}
        for site in self.sites:
            if site.name in names and not site.factor.conjugate:
                return True
            meeting = names & {site.name, *site.factor.names}
            called = any(names & call.names for call in applications(site.factor))
            open_to = meeting - {site.name} - site.factor.mixed_over()
            if len(meeting) > 1 or called or (open_to and not site.factor.affine):
                return True
        return False

    def given(self, name: str, value: Any) -> Row:
        """Returns the row with a value for a latent, for locals that sample it."""
        site = next(site for site in self.latent if site.name == name)
        with lenient():
            statistics = in_dtype(site.kind.of(value), dtype_of(self.known, value))
        statistics_by_name = {**self.known, name: statistics}
        return replace(self, known=statistics_by_name)

    def zeros(self, environment: Environment) -> dict[str, Any]:
        """Returns the zero statistics of the latents."""
        dtype, zeros = dtype_of(environment, self.known), {}
        for site in self.latent:  # in program order, since a shape may depend on earlier variables
            zeros[site.name] = site.kind.zeros(shape_of(site, self.environment(environment, zeros)), dtype)
        return zeros

    def evaluated(self, environment: Environment) -> Row:
        """Returns the row whose factors have precomputed everything that does not depend on its latents."""
        row_environment = self.environment(environment, {})
        with lenient():
            factors = {
                site.name: site.factor.evaluated(self.known[site.name], row_environment)
                for site in self.sites
                if site.name in self.known
            }
        return replace(self, sites=tuple(replace(s, factor=factors.get(s.name, s.factor)) for s in self.sites))

    def environment(self, environment: Environment, latent: Mapping[str, Any]) -> Environment:
        """Returns the environment with all statistics."""
        return Environment({**environment.statistics, **self.known, **latent}, self.inputs, self.temperature)

    def log_joint(self, environment: Environment, latent: Mapping[str, Any]) -> Array:
        """Returns F of the row in nats."""
        F = log_joint(self.sites, self.environment(environment, latent), self.observed)
        # The evidence about a category with a value is one more factor.
        tied = [tree.dot(part, self.known[name]) for name, part in self.evidence.items() if name in self.known]
        return sum((part.astype(F.dtype) for part in tied), F)


def prepared(sites: tuple[GraphSite, ...], environment: Environment) -> tuple[GraphSite, ...]:
    """Returns the sites of rows whose factors have precomputed everything that is the same for all rows."""
    with lenient():
        return tuple(replace(site, factor=site.factor.prepared(environment)) for site in sites)


def names_above(sites: tuple[GraphSite, ...]) -> frozenset[str]:
    """Returns the variables on which others of some sites depend."""
    return frozenset().union(*(site.factor.names for site in sites))


def misses_some(site: GraphSite, needed: frozenset[str]) -> bool:
    """Returns whether entries of a variable may be missing in some rows only; otherwise it is latent in all."""
    return site.factor.misses and (site.name not in needed or site.kind is Categories)


def value_of(data: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Returns the data of a name, and which entries are observed; None for all, and without data."""
    if f"{name}.ids" in data:
        return (data[f"{name}.ids"], data[f"{name}.counts"]), None
    value = data.get(name)
    return (value.value, value.observed) if isinstance(value, Incomplete) else (value, None)


def shape_of(site: GraphSite, environment: Environment | None = None) -> tuple[int, ...]:
    """Returns the shape of a variable, at the inputs and statistics of a row if an input determines it."""
    # Raises a ValueError if only the data determine it.
    if site.shape is not None:
        return site.shape
    if environment is not None:
        with suppress(TypeError), lenient():  # for a factor without a mean to inspect
            return jnp.broadcast_shapes(site.plate, jnp.shape(site.factor.predicted(environment)[0]))
    raise ValueError(
        f"{site.name!r} is not in the data, and its shape depends on an input; put it in the data, or give its "
        "arguments a known shape"
    )


def in_dtype(values: Any, dtype: DTypeLike | None) -> Any:
    """Returns a tree with its floating arrays in a dtype, and integers unchanged."""
    floating = lambda leaf: jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if floating(leaf) else leaf, values)


def dtype_of(*trees: Any) -> Any:
    """Returns the floating dtype of statistics."""
    leaves = [leaf for leaf in jax.tree.leaves(trees) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    with lenient():
        return jnp.result_type(*leaves) if leaves else jnp.result_type(float)
