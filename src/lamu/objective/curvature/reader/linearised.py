"""Runs and linearises a network once on a batch, with pull-backs to the outputs of every use of a parameter."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.compile_once import network_products, widened
from lamu.objective.curvature.reader.flat_jaxpr import FlatJaxpr, Values, warn_of_rows
from lamu.objective.curvature.reader.parameter_uses import ParameterUse, of_rows, sites
from lamu.objective.curvature.reader.per_example_squares import (
    ByRows,
    Rule,
    chunk_of,
    contribution,
    in_chunks,
    meets_once,
)
from lamu.typing import Array, Inputs, Params, PyTree

__all__ = [
    "LinearisedNetwork",
    "backward",
    "linearise",
    "loop_contribution",
    "perturbed",
    "squares_and_gradient",
    "squares_of_outputs",
]


@dataclass(frozen=True)
class LinearisedNetwork:
    r"""The result of one forward pass of \(f(\theta, x_i)\), for any number of backward passes."""

    outputs: Array  # \(f(\theta, x_i)\), `[batch, ...]`
    # From cotangents of the outputs, `[batch, ...]`, to the gradient, one array for each leaf, and the cotangents of
    # the output of each site, `[batch, ...]`. Compiled code removes an unused one of the two.
    pull: Callable[[Array], tuple[list[Array], list[Array]]]
    program: FlatJaxpr  # the equations of one example
    sites: list[ParameterUse]  # the uses of parameters with data
    held: Values  # the values of all places that do not depend on the example
    inputs: list[dict[int, Array]]  # for each site its inputs from the data, by place, `[batch, ...]`
    unread: dict[int, str]  # the leaves whose use is not supported, with the reason
    leaves: list[Array]  # the parameters' leaves
    rows: list[Array]  # the examples' leaves
    one: Callable[[list[Array], list[Array]], Array]  # the function of one example, of the two lists of leaves

    def given(self, number: int, place: int) -> Array:
        """Returns the input of a parameter's use at a place, for every row."""
        return of_rows(self.inputs[number], self.held, place, self.rows[0].shape[0])

    def base(self, number: int) -> Array:
        """Returns p's value at a use, in the precision of its leaf also where the pass rounds it."""
        site = self.sites[number]
        return widened(self.held[site.base], self.leaves[site.leaf].dtype)

    def rule(self, number: int, cotangent: Array) -> Rule:
        """Returns the rule for the squares of a site's gradients."""
        site, inputs = self.sites[number], self.inputs[number]
        choose = contribution if site.loop is None else loop_contribution
        return choose(self.program, site, self.base(number), self.held, inputs, cotangent)

    def square_back(self, number: int, square: Array) -> Array:
        """Returns sums of squares with respect to a site's leaf, from those with respect to p's value."""
        site, leaf = self.sites[number], self.leaves[self.sites[number].leaf]
        slope = site.slope(self.program, leaf, self.held)
        square = square if slope is None else widened(square, slope.dtype) * slope
        return site.pull(self.program, square, leaf, self.held)

    def by_row(
        self, which: Sequence[int], use: Callable[..., list[Array]], values: Array, stacked: bool = False
    ) -> list[Array]:
        """Returns the sum over rows, or all values, of `use` of a row's function of some leaves, and its value."""
        chosen = [self.leaves[index] for index in which]

        def single(row: tuple[list[Array], Array]) -> list[Array]:
            inputs, value = row
            # Random layers get the same key as in the pass of the full batch.
            inputs = [
                jax.random.wrap_key_data(new, impl=jax.random.key_impl(old)) if _is_key(old) else new
                for new, old in zip(inputs, self.rows, strict=True)
            ]

            def function(chosen: list[Array]) -> Array:
                leaves = list(self.leaves)
                for index, leaf in zip(which, chosen, strict=True):
                    leaves[index] = leaf
                return self.one(leaves, inputs)

            return use(function, chosen, value)

        def some(rows: tuple[list[Array], Array]) -> list[Array]:
            results = jax.vmap(single)(rows)
            return results if stacked else [leaf.sum(0) for leaf in results]

        # Several rows at once are faster on accelerators, but not on CPUs.
        chunk = 1 if jax.default_backend() == "cpu" else 16
        rows = [jax.random.key_data(jax.random.clone(row)) if _is_key(row) else row for row in self.rows]
        return in_chunks(some, (rows, values), chunk, stacked)


def linearise(
    function: Callable[..., Array],
    params: Params,
    examples: Inputs,
    read: PyTree = True,
    loops: bool = False,
) -> LinearisedNetwork:
    """Traces a function of one example, runs it on the batch, and stores the residuals of its backward passes."""
    # `read` selects the parameters to follow, and `loops` whether to follow them into a `scan`.
    leaves, structure = jax.tree.flatten(params)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    rows, layout = jax.tree.flatten(examples)
    rows = [jnp.asarray(row) for row in rows]
    single = lambda leaves, row: function(structure.unflatten(leaves), layout.unflatten(row))
    shape = lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype)
    of_row = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows]
    program = FlatJaxpr(single, [shape(x) for x in leaves], of_row, jax.tree.leaves(jax.tree.broadcast(read, params)))
    uses, unread = sites(program, loops)
    avals = [_out(program, site) for site in uses]
    extra = [jnp.zeros((rows[0].shape[0], *aval.shape), aval.dtype) for aval in avals]

    def run(leaves: list[Array], extra: list[Array]) -> tuple[Array, tuple[list[Values], Values]]:
        fixed = program.before(leaves)

        def of_one(row: list[Array], extra: list[Array]) -> tuple[Array, list[dict[int, Array]]]:
            values = {**fixed, **dict(zip(program.examples, row, strict=True))}
            reads = perturbed(program, uses, values, extra)
            (result,) = program.results(values)
            return result, reads

        outputs, given = jax.vmap(of_one)(rows, extra)
        return outputs, (given, fixed)

    outputs, pull, (given, fixed) = jax.vjp(run, leaves, extra, has_aux=True)
    return LinearisedNetwork(outputs, pull, program, uses, fixed, given, unread, leaves, rows, single)


def _out(program: FlatJaxpr, site: ParameterUse) -> Any:
    """Returns shape and dtype of a site's output, in a loop over all its iterations."""
    if site.loop is not None:
        iteration, length = _out(site.loop.body, site.loop.inner), program.steps[site.step].equation.params["length"]
        return jax.ShapeDtypeStruct((length, *iteration.shape), iteration.dtype)
    (place,) = program.steps[site.step].writes
    assert place is not None
    return program.avals[place]


def _is_key(row: Array) -> bool:
    return jnp.issubdtype(row.dtype, jax.dtypes.prng_key)


# Where an example uses a leaf once, its gradient is an outer product \(a_i d_{ik}^\top\). The squares are then summed
# over directions before they are multiplied by the inputs:
# \(\sum_k (a_i d_{ik}^\top)^2 = a_i^2 \big(\sum_k d_{ik}^2\big)^\top\).


def squares_of_outputs(read: LinearisedNetwork, directions: Array) -> list[Array]:
    r"""Returns \(\sum_{ik} (J_i^\top u_{ik})^2\), one array for each leaf."""
    ones = jnp.ones(directions.shape[1], directions.dtype)
    once = [
        meets_once(read.program, site, read.held[site.base], shape.shape[1:])
        for site, shape in zip(read.sites, jax.eval_shape(read.pull, directions[0])[1], strict=True)
    ]

    dtypes = [read.leaves[site.leaf].dtype for site in read.sites]

    def of_site(number: int, cotangent: Array) -> Array:
        return read.rule(number, cotangent)(ones)[0]

    def along(direction: Array) -> list[Array]:
        cotangents = [widened(d, dtype) for d, dtype in zip(read.pull(direction)[1], dtypes, strict=True)]
        return [d * d if once[number] else of_site(number, d) for number, d in enumerate(cotangents)]

    def add(total: list[Array], direction: Array) -> tuple[list[Array], None]:
        return jax.tree.map(jnp.add, total, along(direction)), None

    def of_all(number: int, cotangents: Array) -> Array:
        if once[number]:
            return jnp.sum(jnp.square(widened(cotangents, dtypes[number])), axis=0)
        rule = read.rule(number, cotangents[0])
        if isinstance(rule, ByRows):
            return rule.over(cotangents)
        parts = [of_site(number, cotangent) for cotangent in cotangents]
        return jnp.sum(jnp.stack(parts), axis=0)

    if all(once):
        # One after the other: CPUs are slower at one sum over the outermost axis.
        zero = jax.tree.map(lambda of: jnp.zeros(of.shape, of.dtype), jax.eval_shape(along, directions[0]))
        sums = jax.lax.scan(add, zero, directions)[0]
    else:
        # All at once and outside of loops, in which convolutions are slow on CPUs; the windows are extracted once.
        sums = [of_all(number, found) for number, found in enumerate(jax.vmap(lambda u: read.pull(u)[1])(directions))]
    squares = [jnp.zeros_like(leaf) for leaf in read.leaves]
    for number, (site, total) in enumerate(zip(read.sites, sums, strict=True)):
        square = of_site(number, jnp.sqrt(total)) if once[number] else total
        squares[site.leaf] = squares[site.leaf] + read.square_back(number, square)
    return squares


def backward(
    loss: Callable[..., Array],
    params: Params,
    examples: Inputs,
    weights: Array,
    read: PyTree = True,
    loops: bool = False,
) -> tuple[LinearisedNetwork, Array, list[Array], list[Array]]:
    r"""Returns the loss \(\sum_i r_i \ell_i\), its gradient, and the output cotangents of each use of a parameter."""
    # Row i's own gradient in the leaf of site k is the pull-back of `cotangents[k][i] / r_i` through the site's
    # equation.
    for path, leaf in jax.tree_util.tree_flatten_with_path(examples)[0]:
        if jnp.shape(leaf)[:1] != weights.shape:
            raise ValueError(
                f"the examples{jax.tree_util.keystr(path)} have shape {jnp.shape(leaf)} and the weights "
                f"{weights.shape}; give every array of the examples the batch as its leading axis, one row a weight"
            )
    met = linearise(loss, params, examples, read, loops)
    if met.outputs.ndim > 1:
        raise ValueError(f"the loss of one example has shape {met.outputs.shape[1:]}; it must be a scalar")
    weights = weights.astype(met.outputs.dtype)
    return met, jnp.sum(met.outputs * weights), *met.pull(weights)


@network_products()  # squares of rows are sums of positive terms, so that nothing cancels and lower precision suffices
def squares_and_gradient(
    loss: Callable[..., Array], params: Params, examples: Inputs, weights: Array, read: PyTree = True
) -> tuple[Array, Params, Params]:
    """Returns the weighted sums of losses, gradients and squared gradients of single examples."""
    # \[ \sum_i r_i \ell_i, \qquad \sum_i r_i g_i, \qquad \sum_i r_i g_i^2, \qquad
    #    g_i = \nabla_\theta \ell(\theta, x_i) \]
    #
    # The loss of one example is traced, and each parameter leaf is followed to the one equation that combines it with
    # data. One backward pass of the batch gives the gradient and the cotangents there. The squares need only cotangents
    # and inputs, so that per-example gradients are not stored. Cost for a dense layer: one product more than the
    # gradient's two. Where weights are shared over positions, or over the iterations of a `scan`, per-example gradients
    # are formed a few at a time, and their sum is the gradient. For a leaf that is used more than once, or inside a
    # `while`, a `cond` or a function with a custom derivative, gradients are computed example by example, and the
    # logger `lamu` warns of it. The result is exact in every case.
    structure = jax.tree.structure(params)
    met, value, gradient, cotangents = backward(loss, params, examples, weights, read, loops=True)
    warn_of_rows("squared gradients", len(weights), params, met.unread)
    inverse = jnp.where(weights == 0, jnp.zeros_like(weights), 1 / jnp.where(weights == 0, 1, weights))
    squares = [jnp.zeros_like(leaf) for leaf in met.leaves]
    summed: dict[int, list[Array | None]] = defaultdict(list)
    for number, (site, cotangent) in enumerate(zip(met.sites, cotangents, strict=True)):
        square, slope = met.rule(number, cotangent)(inverse)
        squares[site.leaf] = squares[site.leaf] + met.square_back(number, square)
        leaf = met.leaves[site.leaf]
        summed[site.leaf].append(None if slope is None else site.pull(met.program, slope, leaf, met.held))
    unread = sorted(met.unread)
    if unread:
        for index, square in zip(unread, met.by_row(unread, _weighted_squares, weights), strict=True):
            squares[index] = square
    # Where per-example gradients were formed, their sum is the gradient, and XLA removes the backward pass's own.
    for index, parts in summed.items():
        formed = [part for part in parts if part is not None]
        if len(formed) == len(parts):
            gradient[index] = functools.reduce(jnp.add, formed)
    return value, structure.unflatten(gradient), structure.unflatten(squares)


def _weighted_squares(function: Callable[..., Array], chosen: list[Array], weight: Array) -> list[Array]:
    """Returns a row's squared gradients, times its weight; zero for padded rows."""
    squared = lambda leaf: leaf * leaf * weight.astype(leaf.dtype)
    gradients = jax.grad(function)(chosen)
    return [jnp.where(weight == 0, jnp.zeros_like(leaf), squared(leaf)) for leaf in gradients]


# The terms added at a site are one more input sequence of the loop, and the site's inputs one more output sequence. A
# leaf that every iteration reads in full (a recurrent network's) is handled like weights shared over positions, with
# time as the positions. Of a leaf that is a sequence (the kernels of repeated layers) each iteration reads one slice.


def perturbed(
    program: FlatJaxpr, uses: Sequence[ParameterUse], values: Values, extra: Sequence[Array]
) -> list[dict[int, Array]]:
    """Runs the steps that depend on an example, with a term added to the output of each use."""
    sites_at_step: dict[int, list[int]] = {}
    for index, site in enumerate(uses):
        sites_at_step.setdefault(site.step, []).append(index)
    reads: list[dict[int, Array]] = [{} for _ in uses]
    for number, step in enumerate(program.steps):
        here = sites_at_step.get(number, [])
        if not step.dependent:
            continue
        if here and uses[here[0]].loop is not None:
            seen = _loop(program, [uses[i] for i in here], values, [extra[i] for i in here])
            for index, read in zip(here, seen, strict=True):
                reads[index] = read
            continue
        step.advance(values)
        for index in here:
            (out,) = step.writes
            values[out] = values[out] + extra[index]
    for site, read in zip(uses, reads, strict=True):
        if site.loop is None:
            read.update({place: values[place] for place in site.given if program.depends(place)})
    return reads


def _loop(program: FlatJaxpr, uses: list[ParameterUse], values: Values, extra: list[Array]) -> list[dict[int, Array]]:
    """Runs a `scan` with terms `[time, ...]` added in its body; returns the inputs of the sites, `[time, ...]`."""
    step, body, inner = program.steps[uses[0].step], uses[0].loop.body, [site.loop.inner for site in uses]
    settings = step.equation.params
    # Inputs that are literals have no place.
    inputs = [
        jnp.asarray(atom.val, atom.aval.dtype) if place is None else values[place]
        for atom, place in zip(step.equation.invars, step.reads, strict=True)
    ]
    count, carries = settings["num_consts"], settings["num_carry"]
    entering = uses[0].loop.entering

    def iteration(carry: list[Array], slices: tuple[list[Array], list[Array]]) -> tuple[list[Array], PyTree]:
        sequence, terms = slices
        arguments = [*inputs[:count], *carry, *sequence]
        rest = [argument for seat, argument in enumerate(arguments) if seat not in entering]
        inside = body.before([arguments[seat] for seat in entering])
        inside.update(zip(body.examples, rest, strict=True))
        perturbed(body, inner, inside, terms)
        seen = [{place: inside[place] for place in site.given} for site in inner]
        out = body.results(inside)
        return out[:carries], (out[carries:], seen)

    start, sequences = inputs[count : count + carries], inputs[count + carries :]
    options = {name: settings[name] for name in ("length", "reverse", "unroll")}
    carry, (out, seen) = jax.lax.scan(iteration, start, (sequences, extra), **options)
    for place, value in zip(step.writes, [*carry, *out], strict=True):
        if place is not None:
            values[place] = value
    return seen


def loop_contribution(
    program: FlatJaxpr, site: ParameterUse, base: Array, fixed: Values, rows: dict[int, Array], cotangent: Array
) -> Rule:
    """Chooses the rule for a site in a loop; the arguments are those of `contribution`, with an axis of time."""
    loop = site.loop
    body, inner = loop.body, loop.inner
    unmoved = not (site.spread or inner.single or inner.spread)
    if loop.stacked and unmoved and body.steps[inner.step].name == "dot_general":
        return _repeated(body, inner, base, rows, cotangent)

    base = base.astype(program.avals[site.base].dtype)

    def enters(base: Array) -> Array:
        values = {**fixed, site.base: base}
        for number in site.spread:
            program.steps[number].advance(values)
        return values[loop.entry]

    def used(view: Array, given: dict[int, Array]) -> Array:
        values = {**given, body.leaves[inner.leaf]: view}
        for number in (*inner.single, *inner.spread):
            body.steps[number].advance(values)
        return body.steps[inner.step].run(values)[0]

    def gradients(row: tuple[dict[int, Array], Array]) -> Array:
        given, cotangent = row
        # Time is an axis of positions: the pull-back sums over it.
        at_once = jax.vmap(used, in_axes=(0 if loop.stacked else None, 0), axis_size=cotangent.shape[0])
        out, pull = jax.vjp(lambda base: at_once(enters(base), given), base)
        return pull(cotangent.astype(out.dtype))[0]

    return ByRows(jax.vmap(gradients), (rows, cotangent), chunk_of(base.size))


def _repeated(body: FlatJaxpr, inner: ParameterUse, base: Array, rows: dict[int, Array], cotangent: Array) -> Rule:
    """Returns the rule of a product, for each layer of a sequence."""
    time_first = lambda leaf: jnp.moveaxis(leaf, 1, 0)
    rows, cotangent = jax.tree.map(time_first, rows), time_first(cotangent)
    layer: Callable[..., Rule] = lambda base, given, cotangent: contribution(body, inner, base, {}, given, cotangent)
    return lambda inverse: jax.vmap(lambda *at: layer(*at)(inverse))(base, rows, cotangent)
