"""Where beliefs start: one update from random latents, since at the prior all members of a plate are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.conjugate_target import updated
from lamu.data.batch import Batch
from lamu.dtype_policy import lenient
from lamu.families import Beta, Dirichlet, Point, Product
from lamu.families import Dirichlet as Shares
from lamu.graphs.documents import groups
from lamu.graphs.exemplars import points, spread, with_neighbours
from lamu.graphs.expressions import Environment, StickBreaking, Variable
from lamu.graphs.factor import Known
from lamu.graphs.joint import Row, dtype_of, in_dtype, log_joint, own_natural, shape_of, value_of
from lamu.graphs.network import Applied, arguments, first_weights
from lamu.graphs.potential import Potential
from lamu.graphs.principal import scores
from lamu.graphs.probability_factors import CategoricalFactor
from lamu.graphs.program import GraphSite
from lamu.graphs.series_factors import MarkovFactor
from lamu.graphs.statistics import Categories, Numbers, Probabilities, Series, States, Vectors
from lamu.graphs.words import WordsFactor
from lamu.networks.interface import outputs
from lamu.networks.output_range import output_range, require_scales
from lamu.typing import Array, Belief, Data, DTypeLike, Number, Numeric, Params, RandomKey

__all__ = ["empty_components", "first_beliefs", "first_dispersions", "first_parameters", "likelihoods_of"]


_NOTHING = 1e-12  # of a weight at a point


def empty_components(
    sites: tuple[GraphSite, ...], belief: Belief, temperature: Number, rows: Number | None = None
) -> dict[str, tuple[int, ...]]:
    """Returns the components that hold less than one row, by the name of their weight; they are as their prior says."""
    # Weights are a Dirichlet's or by breaking sticks. A state of a Markov series holds times, and a topic words: less
    # than one of all rows together leaves it empty. A point, which counts nothing, needs to be told the number of rows;
    # without it, and for states of a series, a component is empty whose weight is zero.
    known = _RowsHeld({site.name: site.factor for site in sites}, belief, temperature, rows)
    found: dict[str, tuple[int, ...]] = {}
    for site in sites:
        name, few = known.few(site.factor)
        if few is not None and few.any():
            found[name] = tuple(int(k) for k in np.flatnonzero(few))
    return found


class _RowsHeld:
    """What a belief says of the rows that each component holds."""

    def __init__(self, factors: dict[str, Any], belief: Belief, temperature: Number, rows: Number | None) -> None:
        self.factors, self.temperature = factors, float(temperature)
        self.rows = None if rows is None else float(rows)
        self.point = belief.mean["network"] if isinstance(belief, Point) else None
        part: Any = belief.factors.get("network") if isinstance(belief, Product) else None
        self.beliefs: dict[str, Any] = dict(part.factors) if isinstance(part, Product) else {}

    def few(self, factor: Any) -> tuple[str, np.ndarray | None]:
        """Returns the name of a factor's weights, and which of its components are empty; None where it has none."""
        if isinstance(factor, CategoricalFactor):
            weight = factor.probabilities
            if isinstance(weight, StickBreaking):
                return self._of_sticks(weight)
            if isinstance(weight, Variable) and len(weight.shape or ()) == 1:
                return weight.name, self._fewer(self._in_rows(weight), lambda pi: pi, self._least)
        if isinstance(factor, MarkovFactor) and isinstance(factor.transition, Variable):
            table = self._counts(factor.transition)
            if table is not None:  # a state that no series moves to, and none begins with
                first = self._counts(factor.initial) if isinstance(factor.initial, Variable) else None
                table = np.concatenate([table, first[None]]) if first is not None else table
            return factor.transition.name, self._fewer(table, lambda to: to.sum(axis=0))
        if isinstance(factor, WordsFactor) and isinstance(factor.topic, Variable) and self.point is None:
            return factor.topic.name, self._fewer(self._counts(factor.topic), lambda words: words.sum(axis=-1))
        return "", None

    def _fewer(self, counts: np.ndarray | None, held: Any, least: float | None = None) -> np.ndarray | None:
        if least is None:
            least = _NOTHING if self.point is not None else 1.0
        return None if counts is None else held(counts) < least

    @property
    def _least(self) -> float:
        """What a component must hold, where the rows of a point are known."""
        return _NOTHING if self.point is not None and self.rows is None else 1.0

    def _in_rows(self, weight: Variable) -> np.ndarray | None:
        """Returns how many rows each component holds; at a point of unknown rows the weights."""
        counts, prior = self._counts(weight), self.factors.get(weight.name)
        if counts is None or self.point is None or self.rows is None:
            return counts
        dirichlet = isinstance(prior, Known) and isinstance(prior.belief, Dirichlet)
        before = np.asarray(prior.belief.concentration) - 1.0 if dirichlet else np.zeros_like(counts)  # pyright: ignore[reportOptionalMemberAccess]
        return counts * (self.rows + before.sum()) - before

    def _counts(self, weight: Variable) -> np.ndarray | None:
        """Returns how many rows a Dirichlet has counted, of each category; at a point the weights."""
        if self.point is not None:
            return np.asarray(self.point[weight.name]) if weight.name in self.point else None
        return self._learned(weight.name, Dirichlet, "concentration")

    def _learned(self, name: str, family: type, field: str) -> np.ndarray | None:
        prior = self.factors.get(name)
        if name not in self.beliefs or not isinstance(prior, Known) or not isinstance(prior.belief, family):
            return None
        after, before = (np.asarray(getattr(one, field)) for one in (self.beliefs[name], prior.belief))
        return self.temperature * (after - 1.0) - (before - 1.0)

    def _of_sticks(self, weight: StickBreaking) -> tuple[str, np.ndarray | None]:
        """Returns the components of sticks: a break counts what it takes, and the last also what is left."""
        if not isinstance(weight.breaks, Variable):
            return "", None
        name = weight.breaks.name
        if self.point is not None:
            v = np.asarray(self.point[name]) if name in self.point else None
            taken = None if v is None else np.r_[v, 1.0] * np.r_[1.0, np.cumprod(1.0 - v)]
            taken = taken if taken is None or self.rows is None else self.rows * taken
            return name, self._fewer(taken, lambda pi: pi, self._least)
        taken, left = self._learned(name, Beta, "alpha"), self._learned(name, Beta, "beta")
        both = None if taken is None or left is None else np.r_[taken, left[-1]]
        return name, self._fewer(both, lambda pi: pi)


def first_parameters(graph: Any, key: RandomKey, batch: Batch) -> Params:
    """Returns first parameters: all coordinates, those that are held at their values."""
    constraints = graph.constraints
    frozen = {name: part for name, part in (graph.frozen or {}).items() if jax.tree.leaves(part)}
    weights, own = _fresh(graph, key, batch)
    held = graph.values(constraints.constrain(frozen)[0])
    beliefs = graph.first_beliefs(key, batch, 1.0, {**weights, "local": own, **held})
    means = {name: jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), b.mean) for name, b in beliefs.items()}
    start = constraints.unconstrain(means)
    network = {site.name: start.get(site.name, frozen.get(site.name)) for site in graph.shared} | weights
    return {"network": network | ({"local": own} if own else {}), "likelihood": first_dispersions(graph.in_rows, batch)}


def first_dispersions(sites: tuple[GraphSite, ...], batch: Batch) -> Params:
    """Returns first dispersions by the names of targets, of likelihoods that learn some."""
    dispersions = {
        name: likelihood.init(value_of(batch.y, name)[0])
        for name, likelihood in likelihoods_of(sites).items()
        if value_of(batch.y, name)[0] is not None
    }
    return {name: part for name, part in dispersions.items() if jax.tree.leaves(part)}


def likelihoods_of(sites: tuple[GraphSite, ...]) -> dict[str, Any]:
    """Returns the likelihoods by the names of their targets."""
    return {site.name: site.factor.likelihood for site in sites if isinstance(site.factor, Potential)}


def _fresh(graph: Any, key: RandomKey, batch: Batch) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns fresh weights of the networks, and what the locals learn."""
    local = graph.local or {}
    if not graph.networks and not local:
        return {}, {}
    dtype = batch.weight.dtype
    first = jax.tree.map(lambda leaf: leaf[0], batch.y)
    row = Row.of(in_dtype(graph.in_rows, dtype), graph.columns, first, 1.0, dtype)
    zeros = {site.name: site.kind.zeros(shape_of(site), dtype) for site in graph.shared}
    at = row.environment(Environment(zeros), row.zeros(Environment(zeros)))
    weights = first_weights(jax.random.fold_in(key, 1), row.sites, graph.networks, at)
    _require_scales(row, weights, at)
    latents = {site.name for site in row.latent}
    own = {
        name: each.init(jax.random.fold_in(key, number + 2), name, row, Environment({**zeros, **weights}))
        for number, (name, each) in enumerate(local.items())
        if name in latents
    }
    return weights, {name: part for name, part in own.items() if jax.tree.leaves(part)}


def _require_scales(row: Row, weights: dict[str, Any], at: Environment) -> None:
    """Raises a ValueError for a network that applies the inverse link which its likelihood applies too."""
    for site in row.sites:
        call = getattr(site.factor, "outputs", None)
        if not isinstance(site.factor, Potential) or not isinstance(call, Applied) or len(call.of.widths) != 1:
            continue
        network = call.of.network
        here = Environment({**at.statistics, **weights}, at.inputs, at.temperature)
        x = jax.eval_shape(lambda call=call, here=here: arguments(call.inputs, here)[None])
        of_rows = lambda own, x, network=network: outputs(network, own, {}, x, None, False, None)[0]
        found = output_range(of_rows, weights[call.of.name], x)[0]
        likelihood, width = site.factor.of_entry, site.factor.width
        scales = likelihood.output_scales(width) * (call.of.widths[0] // width)
        require_scales(found, scales, repr(call.of.name), likelihood.name)


def first_beliefs(
    key: RandomKey,
    shared: tuple[GraphSite, ...],
    in_rows: tuple[GraphSite, ...],
    inputs: tuple[str, ...],
    blocks: tuple[tuple[str, ...], ...],
    batch: Batch,
    temperature: Any,
    given: dict[str, Any],
    number: Numeric | None = None,
) -> dict[str, Any]:
    """Returns beliefs about the shared variables after one update from random latents."""
    # The latents of a row are a draw of their prior; shares are even, since a sparse draw would deal documents out to
    # topics at random. Of ascents over all rows those of topics say which documents are alike; svi, whose first
    # minibatches take up such topics again, ended at a perplexity 8 % higher on two collections. Of a category only K
    # rows have one, each another: every category starts from one row, far from those of the others. States of a series
    # are those of the nearest of K times far apart: a draw of them would give all states the mean of the data. Shared
    # numbers start at a draw, so that the sides of a product are not both zero, and so do the members of plates that
    # only a draw tells apart. A vector that loadings multiply starts at principal directions, and a second update
    # brings noise and relevance to the loadings that the first has found.
    local_key, shared_key = jax.random.split(key)
    alike = {name: s.factor.first_concentration for s in in_rows if s.factor.exchangeable for name in s.factor.names}
    statistics = _priors(shared_key, shared, alike, batch.weight.dtype, temperature, given)
    with lenient():
        places = _places(jax.random.fold_in(local_key, 2), in_rows, batch)
        principal = scores(jax.random.fold_in(local_key, 3), in_rows, batch, 0 if number is None else number)
        if number is not None:
            places |= groups(jax.random.fold_in(local_key, 4), in_rows, batch)
    if principal is not None:
        places = {**places, principal[0]: principal[1]}
    keys = jax.random.split(jax.random.fold_in(local_key, 1), batch.mask.shape[0])

    def one(statistics: dict[str, Any], data: Data, places: dict[str, Any], key: RandomKey) -> Any:
        # A factor without messages says nothing that a first belief could take in.
        exact = tuple(site for site in in_rows if site.factor.exact)
        row = Row.of(exact, inputs, data, temperature, batch.weight.dtype)
        at = Environment(statistics, temperature=temperature)
        return row.log_joint(at, _random_latents(key, row, places, jax.lax.stop_gradient(at)))

    def F(statistics: dict[str, Any]) -> Any:
        rows = jax.vmap(one, in_axes=(None, 0, 0, 0))(statistics, batch.y, places, keys)
        return (batch.total(rows) + log_joint(shared, Environment(statistics))) / temperature

    kinds = {site.name: site.kind for site in shared}
    beliefs = updated(F, statistics, blocks, kinds)
    if principal is not None:
        found = {name: kinds[name].under(belief) for name, belief in beliefs.items()}
        beliefs = updated(F, {**statistics, **found}, blocks, kinds)
    # No message of theirs tells the members apart that a category picks, and at one mean all stay alike.
    open_to = [site.factor for site in in_rows if not site.factor.exact and site.factor.mixed_over()]
    apart = frozenset().union(*(factor.names for factor in open_to)) & set(beliefs)
    moved = {name: statistics[name] for name in sorted(apart) if isinstance(statistics[name], Numbers | Vectors)}
    return beliefs | {name: replace(beliefs[name], mean=part.first) for name, part in moved.items()}


def _priors(
    key: RandomKey,
    shared: tuple[GraphSite, ...],
    alike: dict[str, float],
    dtype: DTypeLike,
    temperature: Any,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Returns μ of the priors one after the other; T of a draw for numbers, vectors and those that are alike."""
    statistics: dict[str, Any] = dict(given)
    for number, site in enumerate(shared):
        if site.name in given:
            continue
        natural = own_natural(site, Environment(statistics), dtype, temperature)
        belief = natural.belief()
        if site.kind in (Numbers, Vectors) or site.name in alike:
            if alike.get(site.name, 0.0) > 0.0:
                belief = Shares(jnp.maximum(belief.concentration, alike[site.name]))
            with lenient():
                statistics[site.name] = site.kind.of(belief.sample(jax.random.fold_in(key, number)))
        else:
            statistics[site.name] = site.kind.under(belief)
    return statistics


def _places(key: RandomKey, in_rows: tuple[GraphSite, ...], batch: Batch) -> dict[str, Array]:
    """Returns by the names of categories which each row is the example of, and of states the nearest of each time."""
    seen = tuple(site for site in in_rows if value_of(batch.y, site.name)[0] is not None)
    rows = batch.mask.shape[0]
    places: dict[str, Array] = {}
    for number, site in enumerate(in_rows):
        series = issubclass(site.kind, States)
        if site.shape is None or not (series or site.kind is Categories):
            continue
        compared = points((other for other in seen if other is not site), batch, 2 if series else 1)
        own, count = jax.random.fold_in(key, number), site.shape[-1]
        if series:
            if compared is not None and len(compared[0]) == rows * site.shape[-2]:
                share = 0.5 * jax.random.bernoulli(jax.random.fold_in(own, 0))
                places[site.name] = spread(own, *with_neighbours(*compared, rows, share), count)[1].reshape(rows, -1)
            continue
        if compared is None:
            chosen = jax.random.permutation(own, max(rows, count))[:count]
        else:
            chosen = spread(own, *compared, count)[0]
        label, there = value_of(batch.y, site.name)
        each = jnp.arange(count)
        if there is not None:  # of categories that labels name no other row is an example
            named = jnp.any(there[..., None] & (label[..., None] == each), axis=tuple(range(there.ndim)))
            each = jnp.where(named, count, each)
        places[site.name] = jnp.full(rows, count, each.dtype).at[chosen].set(each, mode="drop")
    return places


def _random_latents(key: RandomKey, row: Row, places: dict[str, Any], at: Environment) -> dict[str, Any]:
    """Returns T of a draw of the latents of a row, of categories and states as their places say."""
    latent: dict[str, Any] = {}
    zeros = row.zeros(at)
    for number, site in enumerate(row.latent):
        if site.kind in (Numbers, Vectors) and site.name in places:
            latent[site.name] = site.kind.of(places[site.name])
            continue
        if site.kind is Categories:
            drawn = _exemplar(places.get(site.name, 0), zeros[site.name].probabilities)
            if site.name in row.evidence:  # a label that is known is where its category starts
                tie = row.evidence[site.name].probabilities
                drawn = jnp.where(jnp.any(tie < 0), (tie == 0).astype(drawn.dtype), drawn)
            latent[site.name] = Categories(drawn)
            continue
        if issubclass(site.kind, States):
            one_hot = zeros[site.name].probabilities
            drawn = places.get(site.name)
            drawn = jax.random.categorical(jax.random.fold_in(key, number), one_hot) if drawn is None else drawn
            latent[site.name] = site.kind.of(jax.nn.one_hot(drawn, one_hot.shape[-1], dtype=one_hot.dtype))
            continue
        if site.kind is Probabilities:
            log = zeros[site.name].log
            even = jnp.full_like(log, 1.0 / log.shape[-1])
            latent[site.name] = Probabilities.of(places.get(site.name, even))
            continue
        if issubclass(site.kind, Series):
            # A draw of a walk with a diffuse start is far from the data, and squares of its steps have no digits left.
            F = lambda x, name=site.name, known=dict(latent): row.log_joint(at, {**zeros, **known, name: x})
            slope = tree.scale(jax.grad(F)(zeros[site.name]), 1.0 / row.temperature)
            latent[site.name] = site.kind.of(slope.belief().mean)
            continue
        natural = own_natural(site, row.environment(at, {**zeros, **latent}), dtype_of(at), row.temperature)
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
