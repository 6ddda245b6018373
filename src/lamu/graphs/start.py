"""Where beliefs start: one update from random latents, since at the prior all members of a plate are alike."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.dtype_policy import lenient
from lamu.families import Dirichlet as Shares
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, log_joint, shape_of
from lamu.graphs.program import Site
from lamu.graphs.statistics import Categories, Numbers, Simplex, States, Vectors
from lamu.typing import RandomKey

__all__ = ["first_beliefs"]


def first_beliefs(
    key: RandomKey,
    shared: tuple[Site, ...],
    in_rows: tuple[Site, ...],
    inputs: tuple[str, ...],
    blocks: tuple[tuple[str, ...], ...],
    batch: Batch,
    temperature: Any,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Returns beliefs about the shared variables after one update from random latents."""
    # The latents of a row are a draw of their prior; shares are even, since a sparse draw would deal documents out to
    # topics at random. Of a category only K rows have one, each another: every category starts from one random row.
    # Shared numbers start at a draw, so that the sides of a product are not both zero, and so do the members of plates
    # that only a draw tells apart.
    local_key, shared_key = jax.random.split(key)
    alike = {name: s.factor.first_concentration for s in in_rows if s.factor.exchangeable for name in s.factor.names}
    statistics = _priors(shared_key, shared, alike, batch.weight.dtype, temperature, given)
    count = batch.mask.shape[0]
    order = jax.random.permutation(local_key, count)
    keys = jax.random.split(jax.random.fold_in(local_key, 1), count)
    by_name = {site.name: site for site in shared}

    def one(statistics: dict[str, Any], data: Any, place: Any, key: RandomKey) -> Any:
        # A factor without messages says nothing that a first belief could take in.
        exact = tuple(site for site in in_rows if site.factor.exact)
        row = Row.of(exact, inputs, data, temperature, batch.weight.dtype)
        at = Environment(statistics, temperature=temperature)
        return row.log_joint(at, _random_latents(key, row, place, jax.lax.stop_gradient(at)))

    def F(statistics: dict[str, Any]) -> Any:
        rows = jax.vmap(one, in_axes=(None, 0, 0, 0))(statistics, batch.y, order, keys)
        return (batch.total(rows) + log_joint(shared, Environment(statistics))) / temperature

    beliefs: dict[str, Any] = {}
    for block in blocks:
        slopes = jax.grad(lambda own, rest=statistics: F({**rest, **own}))({name: statistics[name] for name in block})
        for name in block:
            beliefs[name] = slopes[name].belief()
            statistics = {**statistics, name: by_name[name].kind.under(beliefs[name])}
    return beliefs


def _priors(
    key: RandomKey,
    shared: tuple[Site, ...],
    alike: dict[str, float],
    dtype: Any,
    temperature: Any,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Returns μ of the priors one after the other; T of a draw for numbers, vectors and those that are alike."""
    statistics: dict[str, Any] = dict(given)
    for number, site in enumerate(shared):
        if site.name in given:
            continue
        natural = _own(site, Environment(statistics), dtype, temperature)
        belief = natural.belief()
        if site.kind in (Numbers, Vectors) or site.name in alike:
            if alike.get(site.name, 0.0) > 0.0:
                belief = Shares(jnp.maximum(belief.concentration, alike[site.name]))
            with lenient():
                statistics[site.name] = site.kind.of(belief.sample(jax.random.fold_in(key, number)))
        else:
            statistics[site.name] = site.kind.under(belief)
    return statistics


def _random_latents(key: RandomKey, row: Row, place: Any, at: Environment) -> dict[str, Any]:
    """Returns T of a draw of the latents of a row, which stands at a place among all rows."""
    latent: dict[str, Any] = {}
    zeros = row.zeros(at)
    for number, site in enumerate(row.latent):
        if site.kind is Categories:
            drawn = _exemplar(place, zeros[site.name].probabilities)
            if site.name in row.evidence:  # a label that is known is where its category starts
                tie = row.evidence[site.name].probabilities
                drawn = jnp.where(jnp.any(tie < 0), (tie == 0).astype(drawn.dtype), drawn)
            latent[site.name] = Categories(drawn)
            continue
        if issubclass(site.kind, States):
            one_hot = zeros[site.name].probabilities
            drawn = jax.random.categorical(jax.random.fold_in(key, number), one_hot)
            latent[site.name] = site.kind.of(jax.nn.one_hot(drawn, one_hot.shape[-1], dtype=one_hot.dtype))
            continue
        if site.kind is Simplex:
            log = zeros[site.name].log
            latent[site.name] = Simplex.of(jnp.full_like(log, 1.0 / log.shape[-1]))
            continue
        natural = _own(site, row.environment(at, {**zeros, **latent}), dtype_of(at), row.temperature)
        drawn = natural.belief().sample(jax.random.fold_in(key, number))
        # Below a category that has no value in this row, a latent has no prior, and counts nowhere.
        drawn = jnp.where(jnp.isfinite(drawn), drawn, jnp.zeros_like(drawn))
        with lenient():
            tiny = jnp.asarray(jnp.finfo(drawn.dtype).tiny ** 0.25, drawn.dtype)
            latent[site.name] = site.kind.of(jnp.maximum(drawn, tiny) if site.kind.constraint else drawn)
    return latent


def _exemplar(place: Any, like: Any) -> Any:
    """Returns one-hot vectors in the first K places, and zeros in the others."""
    K = like.shape[-1]
    return jnp.broadcast_to(jax.nn.one_hot(place, K, dtype=like.dtype), like.shape)


def _own(site: Site, at: Environment, dtype: Any, temperature: Any) -> Any:
    """Returns the natural parameters of a variable given its arguments alone."""

    def own(x: Any) -> Any:
        return log_joint((site,), Environment({**at.statistics, site.name: x}, at.inputs, at.temperature))

    return tree.scale(jax.grad(own)(site.kind.zeros(shape_of(site), dtype)), 1.0 / temperature)
