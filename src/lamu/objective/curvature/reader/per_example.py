"""The squares of all examples' gradients from one backward pass."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu.dtype_policy import network_products
from lamu.objective.curvature.reader.flat_jaxpr import warn_of_rows
from lamu.objective.curvature.reader.linearised import LinearisedNetwork, linearise
from lamu.typing import Array, Inputs, Params, PyTree

__all__ = ["backward", "squares_and_gradient"]


def backward(
    loss: Callable[..., Array],
    params: Params,
    examples: Inputs,
    weights: Array,
    read: PyTree = True,
    loops: bool = False,
) -> tuple[LinearisedNetwork, Array, list[Array], list[Array]]:
    r"""Returns the loss read, \(\sum_i r_i \ell_i\), its gradient, and the cotangents of what came out of each site."""
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


@network_products()  # squares of rows are sums of what is positive: nothing cancels, and no digit is missed
def squares_and_gradient(
    loss: Callable[..., Array], params: Params, examples: Inputs, weights: Array, read: PyTree = True
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
    # Where single gradients were formed, their sum is the gradient, and the compiler drops that of the backward pass.
    for index, parts in summed.items():
        formed = [part for part in parts if part is not None]
        if len(formed) == len(parts):
            gradient[index] = functools.reduce(jnp.add, formed)
    return value, structure.unflatten(gradient), structure.unflatten(squares)


def _weighted_squares(function: Callable[..., Array], chosen: list[Array], weight: Array) -> list[Array]:
    """A row's squared gradients, times its weight; one of weight zero is padding, whatever stands in it."""
    squared = lambda leaf: leaf * leaf * weight.astype(leaf.dtype)
    found = jax.grad(function)(chosen)
    return [jnp.where(weight == 0, jnp.zeros_like(leaf), squared(leaf)) for leaf in found]
