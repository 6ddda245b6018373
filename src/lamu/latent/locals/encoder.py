"""Encoder networks that read a row's data, and latents that have been sampled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.elimination import Local
from lamu.graphs.expressions import Environment, Expression, KnownValue, Variable
from lamu.graphs.joint import Row, dtype_of, shape_of
from lamu.graphs.network import arguments
from lamu.graphs.positive_factors import PoissonFactor
from lamu.graphs.potential import Potential
from lamu.graphs.program import GraphSite
from lamu.networks.interface import Network, adapted, outputs
from lamu.supports import Classes, Counts
from lamu.typing import Array, DTypeLike, Params, RandomKey

__all__ = ["EncoderLocal", "encoded", "first_encoder", "latent_site"]


def latent_site(name: str, row: Row) -> GraphSite:
    """Returns the site of a latent of a row."""
    return next(site for site in row.latent if site.name == name)


class EncoderLocal(Local):
    """Base class of locals with a network that reads the row, and the latents that are sampled before theirs."""

    network: Network | Any
    marked = False  # whether the network reads which entries are observed

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))
        if self.given:
            object.__setattr__(self, "given", tuple(self.given))


def first_encoder(
    network: Any,
    key: RandomKey,
    name: str,
    given: tuple[str, ...],
    row: Row,
    outputs: int,
    marked: bool = False,
) -> Params:
    """Returns initial weights of an encoder."""
    latents = {site.name: site for site in row.latent}
    for other in given:
        if (other not in latents and other not in row.known) or other == name:
            others = ", ".join(n for n in latents if n != name) or "none"
            raise ValueError(f"the local of {name!r} is given {other!r}; the row's other latents are {others}")
    dtype = dtype_of(row.known)
    zeros = {n: site.kind.zeros(shape_of(site), dtype) for n, site in latents.items()}
    x = _side_by_side((*_data(given, row, dtype, marked), *_latents(given, row)), row, Environment(zeros), dtype)
    weights, state = network.init(key, jnp.zeros_like(x)[None], outputs)
    if state:
        raise ValueError(
            f"the encoder of {name!r} has a state beside its weights, and the rows of a graph are seen one by one; use "
            "a normaliser without batch statistics, such as GroupNorm()"
        )
    return weights


def encoded(
    network: Any,
    weights: Params,
    name: str,
    given: tuple[str, ...],
    row: Row,
    environment: Environment,
    marked: bool = False,
) -> Array:
    """Returns an encoder's outputs for a row, `[outputs]`. Missing entries count as zero, counts c as log(1 + c)."""
    # A marked encoder reads classes as one-hot vectors, and after every variable which of its entries are observed.
    # A network that can be applied to the data first (`Network.partially_applied`) is applied once a row: `jax.vmap`
    # over values or samples of the given latents then repeats only the part that reads those.
    dtype = dtype_of(weights)
    data, latents = _data(given, row, dtype, marked), _latents(given, row)
    if data and latents:
        of_latents = network.partially_applied(weights, jnp.ravel(_side_by_side(data, row, environment, dtype)))
        if of_latents is not None:
            weights, data = of_latents, ()
    inputs = _side_by_side((*data, *latents), row, environment, dtype)
    return outputs(network, weights, {}, inputs[None], None, False, None)[0][0]


def _data(given: tuple[str, ...], row: Row, dtype: DTypeLike, marked: bool) -> tuple[Expression, ...]:
    """Returns the row's data without the given variables, zero where missing."""
    data: list[Expression] = []
    for site in row.sites:
        # A label that is observed in some rows only is a latent, and given ones come below.
        if site.name in row.data and site.name not in row.evidence and site.name not in given:
            value = jnp.asarray(row.data[site.name], dtype)
            if _counts(site.factor):  # of any size, but a network needs inputs of order one
                value = jnp.log1p(jnp.maximum(value, 0))
            observed = row.observed.get(site.name)
            if marked:
                is_observed = jnp.ones(value.shape, bool) if observed is None else observed
                value, is_observed = _in_columns(site.factor, value), is_observed.astype(dtype)
                shown = is_observed if is_observed.shape == value.shape else is_observed[..., None]
                data += [KnownValue(jnp.where(shown > 0, value, jnp.zeros_like(value))), KnownValue(is_observed)]
                continue
            data.append(KnownValue(value if observed is None else jnp.where(observed, value, jnp.zeros_like(value))))
    return tuple(data)


def _counts(factor: Any) -> bool:
    """Returns whether the observations of a factor are counts."""
    if isinstance(factor, PoissonFactor):
        return True
    return isinstance(factor, Potential) and isinstance(factor.likelihood.support, Counts)


def _in_columns(factor: Any, value: Array) -> Array:
    """Returns labels as one-hot vectors, and anything else unchanged."""
    support = factor.likelihood.support if isinstance(factor, Potential) else None
    if not isinstance(support, Classes):
        return value
    return jax.nn.one_hot(value.astype(jnp.int32), support.number, dtype=value.dtype)


def _latents(given: tuple[str, ...], row: Row) -> tuple[Expression, ...]:
    """Returns the given variables."""
    sites = {site.name: site for site in row.sites}
    return tuple(Variable(other, sites[other].kind.__name__, sites[other].shape) for other in given)


def _side_by_side(inputs: tuple[Expression, ...], row: Row, environment: Environment, dtype: DTypeLike) -> Array:
    """Returns the values of expressions: one unchanged, several as one vector."""
    return arguments(inputs, row.environment(environment, {})).astype(dtype)
