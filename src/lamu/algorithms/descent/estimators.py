r"""Single-sample estimators of \(E_q[-\log p(D|\theta)]\): shared weights, local reparameterisation and Flipout."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.base import fast_random
from lamu.data.batch import with_offset
from lamu.families.location_scale import BaseDistribution, LocationScale, StandardNormal
from lamu.objective import BatchLoss
from lamu.objective.curvature.reader.flat_jaxpr import ELEMENTWISE, MOVES, FlatJaxpr, Values
from lamu.objective.curvature.reader.parameter_uses import ParameterUse, is_lookup, sites
from lamu.record import record
from lamu.typing import Array, DTypeLike, PyTree, RandomKey, State

__all__ = [
    "Estimator",
    "Flipout",
    "Global",
    "LocalReparameterisation",
    "Plan",
    "anew",
    "flipped",
    "local",
    "outputs_by_rows",
]


# With \(w = m + s z\) and data a, a site that is linear in w has \(y = u(m, a) + u(s z, a)\). The noise added to the
# first term has the distribution of the second under weights sampled for the row:
#
# * if every weight is used once in an output, the product is normal, with variance \(u(s^2, a^2)\);
# * one sample of the weights for all rows, with signs flipped by row in and out of the site, has the same marginals;
# * weights of elementwise uses are so few that they are sampled for each row.


@dataclass(frozen=True)
class Plan:
    """How the output of a site is sampled."""

    site: ParameterUse
    noise: Callable[[RandomKey, int], PyTree]  # noise for the rows, from a key and their number: arrays `[batch, ...]`
    # One row's output, from the program's values, the bases of m, s and s z, and the row's noise.
    output: Callable[..., Array]


def anew(program: FlatJaxpr, site: ParameterUse, gaussian: bool) -> Plan | None:
    """Returns the plan that samples weights for each row, for an elementwise use; else None."""
    if program.steps[site.step].name not in ELEMENTWISE:
        return None
    shape, dtype = program.avals[site.base].shape, program.avals[site.base].dtype

    def numbers(key: RandomKey, rows: int) -> Array:
        return fast_random.normal(key, (rows, *shape), dtype) if gaussian else _signs(key, (rows, *shape), dtype)

    def output(values: Values, bases: tuple[Array, Array, Array], z: Array) -> Array:
        centre, scale, away = bases
        return site.use(program, centre + (scale * z if gaussian else away * z), _given(site, values))

    return Plan(site, numbers, output)


def local(program: FlatJaxpr, site: ParameterUse) -> Plan | None:
    """Returns the plan that samples outputs; None if a weight is used at several positions or not in a product."""
    axes = _axes(program, site)
    if axes is None or axes[2] > 1:
        return None
    step = program.steps[site.step]
    out, other = _aval_out(program, site), _other(program, site)

    def numbers(key: RandomKey, rows: int) -> Array:
        return fast_random.normal(key, (rows, *out.shape), out.dtype)

    def output(values: Values, bases: tuple[Array, Array, Array], z: Array) -> Array:
        centre, scale, _ = bases
        given = _given(site, values)
        squares = given if step.name == "gather" else {**given, other: jnp.square(given[other])}
        variance = site.use(program, jnp.square(scale), squares)
        # If all inputs are zero there is no noise, and the root has no derivative.
        seen = variance > 0
        root = jnp.where(seen, jnp.sqrt(jnp.where(seen, variance, jnp.ones_like(variance))), jnp.zeros_like(variance))
        return site.use(program, centre, given) + root * z

    return Plan(site, numbers, output)


def flipped(program: FlatJaxpr, site: ParameterUse) -> Plan | None:
    """Returns the plan that flips signs of one sample of the weights; None if the use is not a product."""
    axes = _axes(program, site)
    if axes is None:
        return None
    ins, outs, _ = axes
    step = program.steps[site.step]
    out, other = _aval_out(program, site), _other(program, site)
    of_out = tuple(size if axis in outs else 1 for axis, size in enumerate(out.shape))
    given_aval = program.avals[other]
    of_in = tuple(size if axis in ins else 1 for axis, size in enumerate(given_aval.shape))

    def numbers(key: RandomKey, rows: int) -> tuple[Array, Array]:
        # One hash for both: signs of the inputs, then of the outputs.
        first, second = math.prod(of_in), math.prod(of_out)
        signs = _signs(key, (rows, first + second), out.dtype)
        return signs[:, :first].reshape(rows, *of_in), signs[:, first:].reshape(rows, *of_out)

    def output(values: Values, bases: tuple[Array, Array, Array], signs: tuple[Array, Array]) -> Array:
        centre, _, away = bases
        given = _given(site, values)
        turned = given if not ins else {**given, other: given[other] * _broadcast(signs[0], given[other])}
        moved = site.use(program, away, turned)
        return site.use(program, centre, given) + moved * _broadcast(signs[1], moved)

    return None if step.name == "gather" and ins else Plan(site, numbers, output)


def _axes(program: FlatJaxpr, site: ParameterUse) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Returns which axes of data and output index the weights, and at how many positions each is used."""
    if site.spread or site.loop is not None:
        return None
    step, out = program.steps[site.step], _aval_out(program, site)
    settings = step.equation.params
    if step.name == "dot_general":
        place = _other(program, site)
        if place is None:
            return None
        contracted, batched = settings["dimension_numbers"]
        side = 1 - site.position
        ins = (*contracted[side], *batched[side])
        shape = program.avals[place].shape
        free = [axis for axis in range(len(shape)) if axis not in ins]
        mine = len(program.avals[site.base].shape) - len(contracted[0]) - len(batched[0])
        start = len(batched[0]) + (len(free) if site.position == 1 else 0)
        return ins, tuple(range(start, start + mine)), math.prod(shape[axis] for axis in free)
    if step.name == "conv_general_dilated":
        if site.position != 1 or settings["batch_group_count"] != 1 or _other(program, site) is None:
            return None
        lhs, _, result = settings["dimension_numbers"]
        places = math.prod(out.shape) // out.shape[result[1]]
        return (lhs[1],), (result[1],), places
    table = program.avals[site.base].shape
    if step.name == "gather" and site.position == 0 and is_lookup(settings, table, out.shape):
        trailing = tuple(range(len(out.shape) - len(table) + 1, len(out.shape)))
        return (), trailing, math.prod(out.shape) // math.prod(table[1:])
    return None


def _other(program: FlatJaxpr, site: ParameterUse) -> int:
    """Returns the index of the data that the weights are multiplied with."""
    return program.steps[site.step].reads[1 - site.position]


def _aval_out(program: FlatJaxpr, site: ParameterUse) -> Any:
    (place,) = program.steps[site.step].writes
    assert place is not None
    return program.avals[place]


def _given(site: ParameterUse, values: Values) -> Values:
    return {place: values[place] for place in site.given}


def _broadcast(signs: Array, like: Array) -> Array:
    return jnp.broadcast_to(signs, like.shape).astype(like.dtype)


def _signs(key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    words = fast_random.bits(key, math.prod(shape))
    return jnp.where(words >> 31 == 0, jnp.ones((), dtype), -jnp.ones((), dtype)).reshape(shape)


LOG = logging.getLogger("lamu")


def outputs_by_rows(
    key: RandomKey,
    belief: LocationScale,
    loss: BatchLoss,
    choose: Callable[..., Plan | None],
    name: str,
) -> Array:
    """Returns f of every row in training mode, `[batch, outputs]`, each with its own sample of the weights."""
    # The network is traced for one row and read (`lamu.objective.curvature.reader`). Weights for which `choose`
    # returns None are sampled once for all rows, which the logger `lamu` reports.
    if jax.tree.leaves(loss.network_state):
        raise TypeError(
            f"{name}() draws for single rows, and the rows of a network with a state (batch statistics) are not "
            "independent in training; use the estimator Global()"
        )
    structure = jax.tree.structure(belief.location)
    shared_key, site_key, layer_key = jax.random.split(key, 3)
    x = loss.batch.x
    # A row's key depends only on its number, so that padding changes nothing.
    rows = [x, jax.vmap(lambda i: jax.random.fold_in(layer_key, i))(jnp.arange(x.shape[0]))]

    def network(leaves: list[Array], row: list[Array]) -> Array:
        params = loss.space.join(structure.unflatten(leaves), loss.rest)
        return loss.objective.model.outputs(params, loss.network_state, row[0][None], row[1], train=True)[0][0]

    centre, scale = jax.tree.leaves(belief.location), jax.tree.leaves(belief.scale)
    z = jax.tree.leaves(belief.base_distribution.draw(shared_key, belief.location))
    away = [s * e for s, e in zip(scale, z, strict=True)]
    program = FlatJaxpr(network, [_shape(leaf) for leaf in centre], [_shape(row, 1) for row in rows])
    plans = _plans(program, choose, belief, x.shape[0], name)
    planned = {plan.site.leaf for plan in plans}
    leaves = [m if i in planned else m + d for i, (m, d) in enumerate(zip(centre, away, strict=True))]
    shared = program.before(leaves)
    bases = [
        tuple(plan.site.through(program, part[plan.site.leaf], shared) for part in (centre, scale, away))
        for plan in plans
    ]
    noises = [plan.noise(jax.random.fold_in(site_key, i), x.shape[0]) for i, plan in enumerate(plans)]
    plan_of_step = {plan.site.step: i for i, plan in enumerate(plans)}

    def row_outputs(row: list[Array], noises: list[PyTree]) -> Array:
        values = {**shared, **dict(zip(program.examples, row, strict=True))}
        for number, step in enumerate(program.steps):
            if number in plan_of_step:
                (out,) = step.writes
                assert out is not None
                index = plan_of_step[number]
                values[out] = plans[index].output(values, bases[index], noises[index])
            elif step.dependent:
                step.advance(values)
        return program.results(values)[0]

    return jax.vmap(row_outputs)(rows, noises)


def _plans(
    program: FlatJaxpr,
    choose: Callable[..., Plan | None],
    belief: LocationScale,
    batch: int,
    name: str,
) -> list[Plan]:
    """Returns the plans of leaves whose every use has one, and logs the leaves that have none."""
    uses, reasons = sites(program)
    numbers = {site.step for site in uses}
    for number, step in enumerate(program.steps):
        # A use without a gradient (`stop_gradient`) is not a site, but it reads the weights too.
        for place in step.reads:
            out = step.writes[0] if step.writes else None
            if place in program.views and number not in numbers and out not in program.views:
                reasons.setdefault(program.views[place][0], f"enters a `{step.name}`")
    plans = []
    for site in uses:
        if not all(program.steps[number].name in MOVES for number in site.single):
            reasons.setdefault(site.leaf, "is changed before it meets data")
        plan = None if site.leaf in reasons else choose(program, site)
        if plan is None:
            reasons.setdefault(site.leaf, f"meets data in a `{program.steps[site.step].name}`")
        plans.append(plan)
    if reasons:
        paths = jax.tree_util.tree_flatten_with_path(belief.location)[0]
        which = "; ".join(
            f"{jax.tree_util.keystr(paths[i][0]) or 'the parameter'} {jnp.shape(paths[i][1])} {reasons[i]}"
            for i in sorted(reasons)
        )
        LOG.warning("%s draws once for all %d rows the parameters that cannot be read: %s", name, batch, which)
    return [plan for plan in plans if plan is not None and plan.site.leaf not in reasons]


def _shape(array: Any, skip: int = 0) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape[skip:], array.dtype)


# All three have the same expectation. With a sample per example, the examples' gradients are independent and the
# variance of their average falls as 1/B; with one sample per batch it does not fall with B.


@record
class Estimator:
    """Single-sample estimate of the expected loss; the base class samples once for all rows."""

    joint: ClassVar[bool] = False  # whether all rows share one θ, which divergences by importance weights need

    def require(self, base_distribution: BaseDistribution) -> None:
        """Raises a TypeError if the estimator cannot sample from the base distribution; never, by default."""

    def value(self, key: RandomKey, belief: LocationScale, loss: BatchLoss) -> tuple[Array, State]:
        """Returns an estimate of the mean loss in nats per row, and the network's new state."""
        draw_key, layer_key = jax.random.split(key)
        return loss.value(belief.sample(draw_key), loss.rest, layer_key)


@record
class Global(Estimator):
    r"""One sample \(\theta = m + s z\) for all rows of the batch."""

    joint = True


@record
class LocalReparameterisation(Estimator):
    """Samples a layer's outputs instead of its weights: a sample per row, at the cost of two products."""

    # For a dense layer with inputs a and independent normal weights, \(w_{jk} \sim N(m_{jk}, s_{jk}^2)\),
    #
    # \[ y_k \sim N\Big( \sum_j a_j m_{jk},\; \sum_j a_j^2 s_{jk}^2 \Big) \]
    #
    # exactly and independently. If a row uses a weight at several positions (a convolution, a layer over positions),
    # outputs are correlated, and independent samples would belong to another model: such layers are sampled as by
    # `Flipout`, which keeps the expectation. Unreadable parameters have one sample for all rows, and are logged.
    #
    # Source: Kingma, Salimans & Welling (2015), section 2.3.

    def require(self, base_distribution: BaseDistribution) -> None:
        """Accepts only the standard normal."""
        if not isinstance(base_distribution, StandardNormal):
            raise TypeError(
                f"LocalReparameterisation() adds up normal weights, not those of {type(base_distribution).__name__}(); "
                "use Flipout() or Global()"
            )

    def value(self, key: RandomKey, belief: LocationScale, loss: BatchLoss) -> tuple[Array, State]:
        """Returns the mean loss with sampled outputs of every layer, and the network's (empty) state."""

        def choose(program: FlatJaxpr, site: ParameterUse) -> Plan | None:
            return local(program, site) or flipped(program, site) or anew(program, site, gaussian=True)

        return _mean_loss(loss, outputs_by_rows(key, belief, loss, choose, type(self).__name__))


@record
class Flipout(Estimator):
    r"""One sample of the weights for all rows, with signs by row: \((x_i \circ u_i)\,\Delta \circ v_i\)."""

    # With \(\Delta = s z\) and u, v of independent signs, \(\Delta \circ u_i v_i^\top\) is distributed as Δ, and is
    # uncorrelated between rows. A convolution has one sign a channel. It costs two products; the belief
    # need only be symmetric. Parameters that cannot be read have one sample for all rows, and are logged.
    #
    # Source: Wen et al. (2018), section 3.

    def require(self, base_distribution: BaseDistribution) -> None:
        """Accepts symmetric base distributions."""
        if not base_distribution.symmetric:
            raise TypeError(
                f"Flipout() changes signs, and {type(base_distribution).__name__}() is not symmetric; use Global()"
            )

    def value(self, key: RandomKey, belief: LocationScale, loss: BatchLoss) -> tuple[Array, State]:
        """Returns the mean loss with random signs for every row, and the network's (empty) state."""

        def choose(program: FlatJaxpr, site: ParameterUse) -> Plan | None:
            return flipped(program, site) or anew(program, site, gaussian=False)

        return _mean_loss(loss, outputs_by_rows(key, belief, loss, choose, type(self).__name__))


def _mean_loss(loss: BatchLoss, f: Array) -> tuple[Array, State]:
    objective, likelihood = loss.objective, loss.objective.model.likelihood
    values = likelihood.log_prob(loss.rest, with_offset(f, loss.batch.offset), loss.batch.y)
    counts = objective.row_factor(loss.batch).astype(values.dtype)
    total = -jnp.sum(jnp.where(counts > 0, values, jnp.zeros_like(values)) * counts)
    prior = -likelihood.log_prior(loss.rest) / objective.data_size
    return total + prior.astype(total.dtype), loss.network_state
