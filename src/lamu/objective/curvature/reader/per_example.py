"""The squares of all examples' gradients from one backward pass."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.dtype_policy import network_products
from lamu.objective.curvature.reader.capture import backward
from lamu.objective.curvature.reader.fallback import warn_of_rows
from lamu.objective.curvature.reader.loops import loop_contribution
from lamu.objective.curvature.reader.per_example_squares import contribution, in_chunks
from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["Squares", "squares_and_gradient", "squares_with_norms"]


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
