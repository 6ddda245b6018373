"""The matrix of per-example gradients as an operator: inner products, products and leading directions."""

# With \(G\) the matrix whose rows are \(\sqrt{r_i}\, g_i^\top\), the Gram matrix \(G G^\top\) has one entry for two
# examples, and its leading eigenvectors \(Q\) give the leading directions of \(G^\top G = \sum_i r_i g_i g_i^\top\) as
# \(W = G^\top Q\), whose columns are orthogonal with the eigenvalues as squared lengths.

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp

from lamu.base.compile_once import widened
from lamu.objective.curvature.reader.flat_jaxpr import warn_of_rows
from lamu.objective.curvature.reader.linearised import LinearisedNetwork, backward
from lamu.objective.curvature.reader.parameter_uses import lookups, product_axes, windows
from lamu.objective.curvature.reader.per_example_squares import SMALL, Looked, Outer, RowForm, Slabs, Stacked
from lamu.operators.low_rank import iterated
from lamu.typing import Array, Inputs, Params, PyTree

__all__ = ["GradientMatrix", "gradient_matrix", "leading_eigenvectors"]

LOG = logging.getLogger("lamu")

Turn: TypeAlias = Callable[[Array], Array]  # of some vectors, along a leading axis


@dataclass(frozen=True)
class Part:
    """The part of the matrix of one use of a leaf."""

    leaf: int  # its index
    form: RowForm
    back: Callable[[Array], Array]  # the way from the form's coordinates to the leaf, for several at a time
    slope: Array | None = None  # of the view that the form is of, element by element


@dataclass(frozen=True)
class GradientMatrix:
    r"""The matrix G with rows \(\sqrt{r_i}\, g_i\), from a backward pass of \(\sum_i r_i \ell_i(\theta)\)."""

    value: Array  # \(\sum_i r_i \ell_i\)
    gradient: Params  # \(\sum_i r_i g_i\), like the parameters
    parts: list[Part]  # the part of G of each parameter that is read
    leaves: list[Array]  # the parameters' leaves
    structure: PyTree  # the parameters' tree

    def squares(self) -> Params:
        r"""Returns \(\sum_i r_i g_i^2\), the diagonal of \(G^\top G\)."""
        totals = [jnp.zeros_like(leaf) for leaf in self.leaves]
        for part in self.parts:
            square = part.form.squares()
            totals[part.leaf] += part.back((square if part.slope is None else square * part.slope)[None])[0]
        return self.structure.unflatten(totals)

    def gram(self) -> Array:
        r"""Returns \(G G^\top\), `[batch, batch]`."""
        return functools.reduce(jnp.add, [part.form.gram(part.slope) for part in self.parts])

    def combine(self, coefficients: Array) -> Params:
        r"""Returns \(G^\top C\), leaves `[k, ...]`, for C of shape `[batch, k]`."""
        count = coefficients.shape[1]
        combined = [jnp.zeros((count, *leaf.shape), leaf.dtype) for leaf in self.leaves]
        for part in self.parts:
            combined[part.leaf] += part.back(part.form.combine(coefficients))
        return self.structure.unflatten(combined)

    def leading(self, rank: int) -> Params:
        r"""Returns W, leaves `[k, ...]`, with \(W W^\top\) the best approximation of \(G^\top G\) of rank k."""
        return self.combine(leading_eigenvectors(self.gram(), rank))


def gradient_matrix(
    loss: Callable[..., Array], params: Params, examples: Inputs, weights: Array, read: PyTree = True
) -> GradientMatrix:
    """Runs one backward pass of a batch and returns the matrix of per-example gradients, without storing it."""
    # At a dense layer the Gram matrix is \((A A^\top) \circ (D D^\top)\), for inputs A and cotangents D. A product with
    # k vectors costs k forward passes, and \(G^\top C\) k products of the backward pass. Where weights are shared over
    # positions, per-example gradients are computed a slab of coordinates at a time. For a leaf that is used more than
    # once, or inside a loop, per-example gradients are computed one by one and stored; the logger `lamu` warns of it.
    met, value, gradient, cotangents = backward(loss, params, examples, weights, read=read)
    counts = weights != 0
    inverse_root = jnp.where(counts, jax.lax.rsqrt(jnp.where(counts, weights, jnp.ones_like(weights))), 0.0)
    parts = [_part(met, number, cotangent, inverse_root) for number, cotangent in enumerate(cotangents)]
    if met.unread:
        numbers = weights.shape[0] * sum(met.leaves[index].size for index in met.unread)
        quantity = f"directions of gradients ({numbers:,} numbers held)"
        warn_of_rows(quantity, weights.shape[0], params, met.unread)
        unread = sorted(met.unread)
        for index, rows in zip(unread, met.by_row(unread, _rooted, weights * inverse_root, stacked=True), strict=True):
            parts.append(Part(index, Stacked(rows), _same))
    structure = jax.tree.structure(params)
    return GradientMatrix(value, structure.unflatten(gradient), parts, met.leaves, structure)


def _same(leaf: Array) -> Array:
    return leaf


def _rooted(function: Callable[..., Array], chosen: list[Array], root: Array) -> list[Array]:
    return [leaf * root.astype(leaf.dtype) for leaf in jax.grad(function)(chosen)]


def leading_eigenvectors(matrix: Array, count: int) -> Array:
    """Returns orthonormal columns that span the leading eigenvectors of a positive matrix, in descending order."""
    # A small matrix is decomposed. For a large one subspace iteration with as many additional columns is many times
    # faster on a processor whose cores are shared; its approximation is then slightly worse than the best.
    n = matrix.shape[0]
    count, width = min(count, n), 2 * count + 4
    if n <= 32 or 2 * width > n:
        return jnp.linalg.eigh(matrix)[1][:, ::-1][:, :count]
    # A cosine transform's first columns are as good a start as random ones, and need no key.
    angles = (jnp.arange(n, dtype=matrix.dtype)[:, None] + 0.5) * jnp.arange(width, dtype=matrix.dtype)[None]
    return iterated(matrix, jnp.cos(angles * (math.pi / n)), 9)[1][:, ::-1][:, :count]


def _part(met: LinearisedNetwork, number: int, cotangent: Array, inverse_root: Array) -> Part:
    """Returns the part of G of one use of a parameter."""
    site, leaf = met.sites[number], met.leaves[met.sites[number].leaf]
    # Cotangents carry r, rows its root.
    cotangent = widened(cotangent, leaf.dtype)
    cotangent = cotangent * inverse_root.astype(cotangent.dtype).reshape(-1, *[1] * (cotangent.ndim - 1))
    form, inside, outside = _form(met, number, cotangent)
    value, pull = jax.vjp(lambda leaf: site.through(met.program, leaf, met.held), leaf)
    back = lambda gradients: jax.vmap(lambda base: pull(base.astype(value.dtype))[0])(outside(gradients))
    slope = site.slope(met.program, leaf, met.held)
    return Part(site.leaf, form, back, None if slope is None else inside(slope[None])[0])


def _form(met: LinearisedNetwork, number: int, cotangent: Array) -> tuple[RowForm, Turn, Turn]:
    """Returns the form of a site's rows, from the rows' own cotangents, and the ways into its coordinates and back."""
    site, inputs = met.sites[number], met.inputs[number]
    step, base = met.program.steps[site.step], met.base(number)
    kind = site.kind(met.program, inputs, cotangent.shape[1:])
    if kind == "product":
        return _dense(met, number, cotangent.astype(base.dtype))
    if kind == "convolution":
        return _convolution(met, number, cotangent.astype(base.dtype))
    if kind == "lookup":
        return Looked.of(*lookups(step, inputs, base, cotangent), base.shape[0]), _same, _same
    if step.name not in SMALL and base.size > cotangent[0].size:
        LOG.warning("a `%s` has no rule: its %d gradients of shape %s are held", step.name, len(cotangent), base.shape)
    rows = jax.vmap(site.gradient(met.program, met.held[site.base], met.held, inputs))((inputs, cotangent))
    return Stacked(widened(rows, met.leaves[site.leaf].dtype)), _same, _same


def _dense(met: LinearisedNetwork, number: int, cotangent: Array) -> tuple[RowForm, Turn, Turn]:
    site, base = met.sites[number], met.base(number)
    step, mine, other = met.program.steps[site.step], site.position, 1 - site.position
    a = met.given(number, step.reads[other]).astype(base.dtype)
    names, batched, contracted, free = product_axes(step)
    sizes = dict(zip(names[other], a.shape[1:], strict=True)) | dict(zip(names[mine], base.shape, strict=True))
    # Groups, batch, inputs or outputs, positions; in the base: groups, inputs, outputs.
    a = _arranged(a, "Z" + names[other], (batched, "Z", contracted, free[other]))
    d = _arranged(cotangent, "Z" + batched + free[0] + free[1], (batched, "Z", free[mine], free[other]))
    form = Outer(a[..., 0], d[..., 0]) if a.shape[-1] == 1 else Slabs.of(a, d)
    words = (batched, contracted, free[mine])
    order = [names[mine].index(letter) for letter in "".join(words)]
    inside = lambda v: _arranged(v, "Z" + names[mine], ("Z", *words))
    unfolded = [sizes[letter] for letter in "".join(words)]
    back = [0, *(1 + order.index(axis) for axis in range(len(order)))]
    outside = lambda v: v.reshape(v.shape[0], *unfolded).transpose(back)
    return form, inside, outside


def _convolution(met: LinearisedNetwork, number: int, cotangent: Array) -> tuple[RowForm, Turn, Turn]:
    step, base = met.program.steps[met.sites[number].step], met.base(number)
    settings = step.equation.params
    lhs, rhs, out = settings["dimension_numbers"]
    batch, groups = cotangent.shape[0], settings["feature_group_count"]
    images = met.given(number, step.reads[0]).astype(base.dtype)
    images = images.transpose(0, *(axis + 1 for axis in lhs))  # [batch, n, groups · inner, *space]
    d = cotangent.transpose(0, *(axis + 1 for axis in out))  # [batch, n, groups · outer, *space]
    outer, inner, *kernel = (base.shape[axis] for axis in rhs)
    n, space, outer = d.shape[1], d.shape[3:], outer // groups
    # A position is a pair of an image of the example (one as a rule) and a place in it.
    d = jnp.moveaxis(d.reshape(batch, n, groups, outer, -1), (2, 3), (0, 2)).reshape(groups, batch, outer, -1)
    channels = images.reshape(batch, n, groups, inner, *images.shape[3:])
    elements = math.prod(kernel)

    def seen(channel: Array) -> Array:  # [batch, n, groups, *space], one input channel of each group
        patches = windows(channel.reshape(batch * n, groups, *channel.shape[3:]), tuple(kernel), space, settings)
        patches = patches.reshape(batch, n, groups, elements, -1)
        return jnp.moveaxis(patches, (2, 3), (0, 2)).reshape(groups, batch, elements, -1)

    form = Slabs(seen, jnp.moveaxis(channels, 3, 0), d, elements)
    back = [0, *(1 + sorted(range(len(rhs)), key=lambda axis: rhs[axis])[i] for i in range(len(rhs)))]

    def inside(v: Array) -> Array:
        v = v.transpose(0, *(axis + 1 for axis in rhs)).reshape(v.shape[0], groups, outer, inner * elements)
        return v.transpose(0, 1, 3, 2)

    def outside(v: Array) -> Array:
        v = v.transpose(0, 1, 3, 2).reshape(v.shape[0], groups * outer, inner, *kernel)
        return v.transpose(back)

    return form, inside, outside


def _arranged(a: Array, names: str, words: tuple[str, ...]) -> Array:
    """Transposes axes that have letters, and joins those of a word."""
    order = [names.index(letter) for letter in "".join(words)]
    shape = dict(zip(names, a.shape, strict=True))
    return a.transpose(order).reshape([math.prod(shape[letter] for letter in word) for word in words])
