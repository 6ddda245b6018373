"""The squares of all examples' gradients from one backward pass."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lamu.dtype_policy import network_products
from lamu.objective.curvature.reader.flat_jaxpr import Program, warn_of_rows
from lamu.objective.curvature.reader.loops import loop_contribution, perturbed
from lamu.objective.curvature.reader.parameter_uses import Site, sites
from lamu.objective.curvature.reader.per_example_squares import contribution, in_chunks
from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["Meeting", "Squares", "backward", "squares_and_gradient", "squares_with_norms"]


@dataclass(frozen=True)
class Meeting:
    r"""What one backward pass of \(\sum_i r_i \ell_i(\theta)\) leaves at the places where parameters meet data."""

    # Site k took `inputs[k]` in, and the weighted loss has the gradient `cotangents[k]` in what came out of it: row i's
    # own gradient in the leaf is the pull-back of `cotangents[k][i] / r_i` through the site's equation.

    value: Array  # \(\sum_i r_i \ell_i\)
    gradient: list[Array]  # \(\sum_i r_i g_i\), one array for each leaf
    program: Program  # the equations of one example's loss
    sites: list[Site]  # where a leaf meets data
    held: dict[int, Any]  # the values of all places that no example has a part in
    # For each site, what it reads of the data, by place, `[batch, ...]`; in a loop `[batch, time, ...]`.
    inputs: list[dict[int, Array]]
    cotangents: list[Array]  # for each site, `[batch, ...]`, the weights included; in a loop `[batch, time, ...]`
    unread: dict[int, str]  # the leaves that meet data in no readable way, with the reason
    leaves: list[Array]  # the parameters' leaves
    rows: list[Array]  # the examples' leaves
    one: Callable[[list[Array], list[Array]], Array]  # the loss of one example, of the two lists of leaves


def backward(
    loss: Callable[[Params, Any], Array],
    params: Params,
    examples: Any,
    weights: Array,
    read: Any = True,
    loops: bool = False,
) -> Meeting:
    """Traces the loss of one example, and takes one backward pass of the weighted sum over the batch."""
    leaves, structure = jax.tree.flatten(params)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    rows, of_one = jax.tree.flatten(examples)
    rows = [jnp.asarray(row) for row in rows]
    _require_rows(examples, weights)

    def one(leaves: list[Array], row: list[Array]) -> Array:
        value = loss(structure.unflatten(leaves), of_one.unflatten(row))
        if jnp.shape(value) != ():
            raise ValueError(f"the loss of one example has shape {jnp.shape(value)}; it must be a scalar")
        return value

    shape = lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype)
    followed = jax.tree.leaves(jax.tree.broadcast(read, params))
    of_row = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows]
    program = Program(one, [shape(x) for x in leaves], of_row, followed)
    found, unread = sites(program, loops)
    outs = [_out(program, site) for site in found]
    extra = [jnp.zeros((weights.shape[0], *out.shape), out.dtype) for out in outs]

    def total(leaves: list[Array], extra: list[Array]) -> tuple[Array, tuple[list[Any], dict[int, Any]]]:
        held = program.before(leaves)
        values, given = jax.vmap(lambda row, extra: _forward(program, found, held, row, extra))(rows, extra)
        return jnp.sum(values * weights.astype(values.dtype)), (given, held)

    (value, (given, held)), (gradient, cotangents) = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(
        leaves, extra
    )
    return Meeting(value, gradient, program, found, held, given, cotangents, unread, leaves, rows, one)


def _forward(
    program: Program, found: list[Site], held: dict[int, Any], row: list[Array], extra: list[Array]
) -> tuple[Array, list[dict[int, Array]]]:
    """Runs one example; returns its loss, and what each site reads of it."""
    values = {**held, **dict(zip(program.examples, row, strict=True))}
    reads = perturbed(program, found, values, extra)
    (value,) = program.results(values)
    return value, reads


def _out(program: Program, site: Site) -> Any:
    """Returns shape and dtype of what comes out of a site, in a loop of all its iterations."""
    if site.loop is not None:
        one, length = _out(site.loop.body, site.loop.inner), program.steps[site.step].equation.params["length"]
        return jax.ShapeDtypeStruct((length, *one.shape), one.dtype)
    (place,) = program.steps[site.step].writes
    assert place is not None
    return program.avals[place]


def _require_rows(examples: Any, weights: Array) -> None:
    """Raises a ValueError unless every array of the examples has one row for each weight."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(examples)[0]:
        if jnp.shape(leaf)[:1] != weights.shape:
            raise ValueError(
                f"the examples{jax.tree_util.keystr(path)} have shape {jnp.shape(leaf)} and the weights "
                f"{weights.shape}; give every array of the examples the batch as its leading axis, one row a weight"
            )


@record
class Squares:
    r"""What one backward pass gives of a loss \(\sum_i r_i \ell_i(\theta)\)."""

    value: Any  # \(\sum_i r_i \ell_i\)
    gradient: Params  # \(\sum_i r_i g_i\), like the parameters
    squares: Params  # \(\sum_i r_i g_i^2\), like the parameters
    norms: Any  # \(\lVert g_i \rVert^2\), shape `[batch]`; zero for an example of weight zero


def squares_and_gradient(
    loss: Callable[[Params, Any], Array], params: Params, examples: Any, weights: Array, read: Any = True
) -> tuple[Array, Params, Params]:
    """Returns the weighted sums of losses, gradients and squared gradients of single examples."""
    # \[ \sum_i r_i \ell_i, \qquad \sum_i r_i g_i, \qquad \sum_i r_i g_i^2, \qquad
    #    g_i = \nabla_\theta \ell(\theta, x_i) \]
    #
    # The loss of one example is traced and read: each parameter leaf is followed to the one equation in which it meets
    # data. One backward pass of the batch gives the gradient and the cotangents there; cotangents and inputs are all
    # that the squares need, so single gradients are not held. Cost for a dense layer: one product more than the
    # gradient's two; where weights are shared over positions, or over the iterations of a `scan`, single gradients are
    # formed a few at a time and their sum is the gradient. A leaf that is used more than once, or inside a `while`,
    # `cond` or function with a derivative of its own, is not read: its gradients are taken example by example, and the
    # log `lamu` says so. Exact in every case.
    found = _read(loss, params, examples, weights, read, normed=False)
    return found.value, found.gradient, found.squares


def squares_with_norms(loss: Callable[[Params, Any], Array], params: Params, examples: Any, weights: Array) -> Squares:
    """Returns the same and the squared norms of the single gradients."""
    return _read(loss, params, examples, weights, True, normed=True)


@network_products()  # squares of rows are sums of what is positive: nothing cancels, and no digit is missed
def _read(
    loss: Callable[[Params, Any], Array], params: Params, examples: Any, weights: Array, read: Any, normed: bool
) -> Squares:
    structure = jax.tree.structure(params)
    met = backward(loss, params, examples, weights, read, loops=True)
    warn_of_rows("squared gradients", len(weights), params, met.unread)
    inverse = jnp.where(weights == 0, jnp.zeros_like(weights), 1 / jnp.where(weights == 0, 1, weights))
    squares = [jnp.zeros_like(leaf) for leaf in met.leaves]
    summed: dict[int, list[Array | None]] = defaultdict(list)
    norms = jnp.zeros_like(weights)
    for site, inputs, cotangent in zip(met.sites, met.inputs, met.cotangents, strict=True):
        leaf = met.leaves[site.leaf]
        choose = contribution if site.loop is None else loop_contribution
        rule = choose(met.program, site, met.held[site.base], met.held, inputs, cotangent)
        square, gradient, of_rows = rule(inverse)
        slope = site.slope(met.program, leaf, met.held)
        squares[site.leaf] = squares[site.leaf] + site.back(met.program, square, slope, leaf, met.held)
        summed[site.leaf].append(None if gradient is None else site.pull(met.program, gradient, leaf, met.held))
        if normed:
            norms = norms + of_rows(None if slope is None else slope * slope).astype(norms.dtype)
    if met.unread:
        others, more = _row_by_row(met.one, met.leaves, met.rows, weights, sorted(met.unread), normed)
        for index, square in zip(sorted(met.unread), others, strict=True):
            squares[index] = square
        norms = norms + more.astype(norms.dtype)
    # Where single gradients were formed, their sum is the gradient, and the compiler drops that of the backward pass.
    gradient = list(met.gradient)
    for index, parts in summed.items():
        formed = [part for part in parts if part is not None]
        if len(formed) == len(parts):
            gradient[index] = functools.reduce(jnp.add, formed)
    return Squares(met.value, structure.unflatten(gradient), structure.unflatten(squares), norms * inverse)


def _row_by_row(
    one: Callable[..., Array], leaves: list[Array], rows: list[Array], weights: Array, which: list[int], normed: bool
) -> tuple[list[Array], Array]:
    """Returns the squares of some leaves and their part in the norms, times the weights, one example after another."""

    def at(chosen: list[Array], row: list[Array]) -> Array:
        whole = list(leaves)
        for index, leaf in zip(which, chosen, strict=True):
            whole[index] = leaf
        return one(whole, row)

    def single(row: tuple[list[Array], Array]) -> tuple[list[Array], Array]:
        inputs, weight = row
        found = jax.vmap(jax.grad(at), (None, 0))([leaves[index] for index in which], inputs)
        factor = lambda leaf: weight.astype(leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1))
        # An example of weight zero is padding, whatever stands in it.
        squares = [jnp.where(factor(leaf) == 0, jnp.zeros_like(leaf), leaf * leaf * factor(leaf)) for leaf in found]
        norms = sum((s.reshape(s.shape[0], -1).sum(1).astype(weight.dtype) for s in squares), jnp.zeros_like(weight))
        return [square.sum(0) for square in squares], norms

    # A CPU gains nothing from several at once, an accelerator does.
    chunk = 1 if jax.default_backend() == "cpu" else 16
    squares = in_chunks(lambda row: single(row)[0], (rows, weights), chunk)
    if not normed:
        return squares, jnp.zeros_like(weights)
    return squares, in_chunks(lambda row: single(row)[1], (rows, weights), chunk, stacked=True)
