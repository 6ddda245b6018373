"""The squares of all examples' gradients from one backward pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.contributions import contribution, in_chunks
from lamu.objective.curvature.reader.program import Program
from lamu.objective.curvature.reader.sites import Site, sites
from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["Squares", "squares_and_gradient", "squares_with_norms"]

LOG = logging.getLogger("lamu")


@record
class Squares:
    r"""What one backward pass gives of a loss \(\sum_i r_i \ell_i(\theta)\).

    Attributes:
        value: \(\sum_i r_i \ell_i\).
        gradient: \(\sum_i r_i g_i\), like the parameters.
        squares: \(\sum_i r_i g_i^2\), like the parameters.
        norms: \(\lVert g_i \rVert^2\), shape `[batch]`; zero for an example of weight zero.

    Examples:
        >>> from lamu.objective.curvature.reader import Squares
        >>> Squares(value=1.0, gradient={}, squares={}, norms=None).value
        1.0
    """

    value: Any
    gradient: Params
    squares: Params
    norms: Any


def squares_and_gradient(
    loss: Callable[[Params, Any], Array], params: Params, examples: Any, weights: Array
) -> tuple[Array, Params, Params]:
    r"""Returns the weighted sums of losses, gradients and squared gradients of single examples.

    \[ \sum_i r_i \ell_i, \qquad \sum_i r_i g_i, \qquad \sum_i r_i g_i^2, \qquad
       g_i = \nabla_\theta \ell(\theta, x_i) \]

    The loss of one example is traced and read: each parameter leaf is followed to the one equation in which it meets
    data. One backward pass of the batch gives the gradient and the cotangents there; cotangents and inputs are all that
    the squares need, so single gradients are not held. Cost for a dense layer: one product more than the gradient's
    two. A leaf that is used more than once, or inside a loop, is not read: its gradients are taken example by example,
    and the log `lamu` says so. Exact in every case.

    Args:
        loss: the loss of one example, a scalar function of the parameters and an example without a batch axis.
        params: the parameters θ, a pytree of floating arrays.
        examples: a pytree of arrays `[batch, ...]`.
        weights: r, shape `[batch]`: 1/B for means, ones for sums, zero for padding.

    Returns:
        The value, and gradient and squares like `params`.

    Raises:
        ValueError: for a loss with side effects, or one that is no scalar.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.objective.curvature.reader import squares_and_gradient
        >>> loss = lambda w, x: jnp.sum(w * x)
        >>> value, gradient, squares = squares_and_gradient(loss, jnp.ones(2), jnp.eye(2) * 3, jnp.ones(2))
        >>> gradient.tolist(), squares.tolist()
        ([3.0, 3.0], [9.0, 9.0])
    """
    found = _read(loss, params, examples, weights, normed=False)
    return found.value, found.gradient, found.squares


def squares_with_norms(loss: Callable[[Params, Any], Array], params: Params, examples: Any, weights: Array) -> Squares:
    """Returns the same and the squared norms of the single gradients.

    Args:
        loss: the loss of one example.
        params: the parameters.
        examples: a pytree of arrays `[batch, ...]`.
        weights: what every example counts, `[batch]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.objective.curvature.reader import squares_with_norms
        >>> loss = lambda w, x: jnp.sum(w * x)
        >>> squares_with_norms(loss, jnp.ones(2), jnp.array([[3.0, 4.0]]), jnp.ones(1)).norms.tolist()
        [25.0]
    """
    return _read(loss, params, examples, weights, normed=True)


def _read(loss: Callable[[Params, Any], Array], params: Params, examples: Any, weights: Array, normed: bool) -> Squares:
    leaves, structure = jax.tree.flatten(params)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    rows, of_one = jax.tree.flatten(examples)
    rows = [jnp.asarray(row) for row in rows]

    def one(leaves: list[Array], row: list[Array]) -> Array:
        value = loss(structure.unflatten(leaves), of_one.unflatten(row))
        if jnp.shape(value) != ():
            raise ValueError(f"the loss of one example has shape {jnp.shape(value)}; it must be a scalar")
        return value

    shape = lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype)
    program = Program(one, [shape(x) for x in leaves], [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows])
    found, reasons = sites(program)
    _announce(params, reasons, len(weights))
    batch = weights.shape[0]
    extra = [jnp.zeros((batch, *_out(program, site).shape), _out(program, site).dtype) for site in found]

    def total(leaves: list[Array], extra: list[Array]) -> tuple[Array, tuple[list[Any], dict[int, Any]]]:
        held = program.before(leaves)
        values, given = jax.vmap(lambda row, extra: _forward(program, found, held, row, extra))(rows, extra)
        return jnp.sum(values * weights.astype(values.dtype)), (given, held)

    (value, (given, held)), (gradient, cotangents) = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(
        leaves, extra
    )
    inverse = jnp.where(weights == 0, jnp.zeros_like(weights), 1 / jnp.where(weights == 0, 1, weights))
    squares = [jnp.zeros_like(leaf) for leaf in leaves]
    norms = jnp.zeros_like(weights)
    for site, inputs, cotangent in zip(found, given, cotangents, strict=True):
        leaf = leaves[site.leaf]
        rule = contribution(program, site, held[site.base], held, inputs, cotangent)
        square, of_rows = rule(inverse)
        slope = site.slope(program, leaf, held)
        squares[site.leaf] = squares[site.leaf] + site.back(program, square, slope, leaf, held)
        if normed:
            norms = norms + of_rows(None if slope is None else slope * slope).astype(norms.dtype)
    if reasons:
        others, more = _row_by_row(one, leaves, rows, weights, sorted(reasons), normed)
        for index, square in zip(sorted(reasons), others, strict=True):
            squares[index] = square
        norms = norms + more.astype(norms.dtype)
    return Squares(value, structure.unflatten(gradient), structure.unflatten(squares), norms * inverse)


def _forward(
    program: Program, found: list[Site], held: dict[int, Any], row: list[Array], extra: list[Array]
) -> tuple[Array, list[dict[int, Array]]]:
    """Runs one example; returns its loss, and what each site reads of it."""
    values = {**held, **dict(zip(program.examples, row, strict=True))}
    added = {site.step: term for site, term in zip(found, extra, strict=True)}
    for number, step in enumerate(program.steps):
        if step.dependent:
            step.advance(values)
            if number in added:
                (out,) = step.writes
                values[out] = values[out] + added[number]
    reads = [{place: values[place] for place in site.given if program.depends(place)} for site in found]
    return program.result(values), reads


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


def _announce(params: Params, reasons: dict[int, str], batch: int) -> None:
    paths = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]]
    if reasons:
        which = "; ".join(f"{paths[i][0] or 'the parameter'} {jnp.shape(paths[i][1])} {reasons[i]}" for i in reasons)
        LOG.warning(
            "squared gradients by %d backward passes, one for each example, for parameters that cannot be read: %s",
            batch,
            which,
        )


def _out(program: Program, site: Site) -> Any:
    (place,) = program.steps[site.step].writes
    assert place is not None
    return program.avals[place]
