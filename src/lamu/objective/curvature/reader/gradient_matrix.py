"""The matrix of all examples' gradients, used and never held: inner products, products, leading directions."""

# With \(G\) the matrix whose rows are \(\sqrt{r_i}\, g_i^\top\), the Gram matrix \(G G^\top\) has one entry for two
# examples, and its leading eigenvectors \(Q\) give the leading directions of \(G^\top G = \sum_i r_i g_i g_i^\top\) as
# \(W = G^\top Q\), whose columns are orthogonal with the eigenvalues as squared lengths.

from __future__ import annotations

import functools
import logging
import math
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.flat_jaxpr import warn_of_rows
from lamu.objective.curvature.reader.parameter_uses import Site, is_lookup, rows_of, windows
from lamu.objective.curvature.reader.per_example import Meeting, backward
from lamu.objective.curvature.reader.per_example_squares import (
    SMALL,
    Folded,
    Looked,
    Outer,
    RowForm,
    Slabs,
    Stacked,
    in_chunks,
)
from lamu.typing import Array, Params

__all__ = ["GradientMatrix", "gradient_matrix", "leading_eigenvectors"]

LOG = logging.getLogger("lamu")


@dataclass(frozen=True)
class GradientMatrix:
    r"""What a backward pass of \(\sum_i r_i \ell_i(\theta)\) says about the matrix G with rows \(\sqrt{r_i}\, g_i\)."""

    value: Array  # \(\sum_i r_i \ell_i\)
    gradient: Params  # \(\sum_i r_i g_i\), like the parameters
    # What each leaf that is followed has of G: its index, the form, the leaf's linear view of itself with its
    # transpose, and the slopes of that view.
    parts: list[tuple[int, RowForm, Callable[[Array], Array], Callable[[Array], Array], Array | None]]
    leaves: list[Array]  # the parameters' leaves
    structure: Any  # the parameters' tree

    def squares(self) -> Params:
        r"""Returns \(\sum_i r_i g_i^2\), the diagonal of \(G^\top G\)."""
        found = [jnp.zeros_like(leaf) for leaf in self.leaves]
        for index, form, _, back, slope in self.parts:
            square = form.squares()
            found[index] = found[index] + back(square if slope is None else square * slope)
        return self.structure.unflatten(found)

    def gram(self) -> Array:
        r"""Returns \(G G^\top\), `[batch, batch]`."""
        return functools.reduce(jnp.add, [form.gram(slope) for _, form, _, _, slope in self.parts])

    def products(self, vectors: Params) -> Array:
        """Returns G V, `[batch, k]`, for vectors of the space with an axis in front, leaves `[k, ...]`."""
        leaves = self.structure.flatten_up_to(vectors)
        terms = [form.products(jax.vmap(push)(leaves[index])) for index, form, push, _, _ in self.parts]
        return functools.reduce(jnp.add, terms)

    def combine(self, coefficients: Array) -> Params:
        r"""Returns \(G^\top C\), leaves `[k, ...]`, for C of shape `[batch, k]`."""
        count = coefficients.shape[1]
        found = [jnp.zeros((count, *leaf.shape), leaf.dtype) for leaf in self.leaves]
        for index, form, _, back, _ in self.parts:
            found[index] = found[index] + jax.vmap(back)(form.combine(coefficients))
        return self.structure.unflatten(found)

    def leading(self, rank: int) -> Params:
        r"""Returns W, leaves `[k, ...]`, with \(W W^\top\) the best approximation of \(G^\top G\) of rank k."""
        return self.combine(leading_eigenvectors(self.gram(), rank))


def gradient_matrix(
    loss: Callable[[Params, Any], Array], params: Params, examples: Any, weights: Array, read: Any = True
) -> GradientMatrix:
    """Takes one backward pass of a batch, after which the matrix of single gradients can be used without being held."""
    # At a dense layer the Gram matrix is \((A A^\top) \circ (D D^\top)\), for inputs A and cotangents D, a product with
    # k vectors costs k forward passes and \(G^\top C\) k products of the backward pass. Where weights are shared over
    # positions single gradients are made a slab of coordinates at a time. A leaf that is used more than once, or inside
    # a loop, is not read: its single gradients are taken one example after another and held, and the log `lamu` says
    # so. Examples of weight zero contribute nothing, whatever stands in them.
    # A row that counts stands in for those that do not: zero times what is in them might be no zero.
    counts = weights != 0
    stand_in = jnp.where(counts, jnp.arange(weights.shape[0]), jnp.argmax(counts))
    examples = jax.tree.map(lambda leaf: jnp.asarray(leaf)[stand_in], examples)
    met = backward(loss, params, examples, weights, read=read)
    inverse_root = jnp.where(counts, jax.lax.rsqrt(jnp.where(counts, weights, jnp.ones_like(weights))), 0.0)
    parts = [_part(met, number, inverse_root) for number in range(len(met.sites))]
    if met.unread:
        numbers = weights.shape[0] * sum(met.leaves[index].size for index in met.unread)
        quantity = f"directions of gradients ({numbers:,} numbers held)"
        warn_of_rows(quantity, weights.shape[0], params, met.unread)
        root = weights * inverse_root
        same = lambda leaf: leaf
        for index, rows in zip(sorted(met.unread), _one_by_one(met, root, sorted(met.unread)), strict=True):
            parts.append((index, Stacked(rows), same, same, None))
    structure = jax.tree.structure(params)
    return GradientMatrix(met.value, structure.unflatten(met.gradient), parts, met.leaves, structure)


def leading_eigenvectors(matrix: Array, count: int) -> Array:
    """Returns orthonormal columns that span the leading eigenvectors of a positive matrix, in descending order."""
    # A small matrix is decomposed; of a large one the space is iterated, with as many columns to spare, which is many
    # times faster than the decomposition on a processor whose cores are shared. What is left out of the space then may
    # be a little more than the best that could be.
    n = matrix.shape[0]
    count, width = min(count, n), 2 * count + 4
    exact = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    if n <= 32 or 2 * width > n:
        return jnp.linalg.eigh(matrix)[1][:, ::-1][:, :count]
    # A cosine transform's first columns are as good a start as random ones, and need no key.
    angles = (jnp.arange(n, dtype=matrix.dtype)[:, None] + 0.5) * jnp.arange(width, dtype=matrix.dtype)[None]
    space = jnp.linalg.qr(exact(matrix, jnp.cos(angles * (math.pi / n))))[0]
    space = jax.lax.fori_loop(0, 8, lambda _, space: jnp.linalg.qr(exact(matrix, space))[0], space)
    rotation = jnp.linalg.eigh(exact(space.T, exact(matrix, space)))[1]
    return exact(space, rotation[:, ::-1][:, :count])


def _part(met: Meeting, number: int, inverse_root: Array) -> Any:
    """Returns what one site has of G: leaf, form, view, its transpose, slopes."""
    site, leaf = met.sites[number], met.leaves[met.sites[number].leaf]
    cotangent = met.cotangents[number]
    # Cotangents carry r, rows its root.
    cotangent = cotangent * inverse_root.astype(cotangent.dtype).reshape(-1, *[1] * (cotangent.ndim - 1))
    form = _form(met, site, met.inputs[number], cotangent)
    through = lambda leaf: site.through(met.program, leaf, met.held)
    push = lambda vector: jax.jvp(through, (leaf,), (vector,))[1]
    value, pull = jax.vjp(through, leaf)
    back = lambda base: pull(base.astype(value.dtype))[0]
    return site.leaf, form, push, back, site.slope(met.program, leaf, met.held)


def _form(met: Meeting, site: Site, inputs: dict[int, Array], cotangent: Array) -> RowForm:
    """Chooses the form of a site's rows; the cotangents are the rows' own."""
    step, base = met.program.steps[site.step], met.held[site.base]
    if step.name == "dot_general" and not site.spread:
        return _dense(met, site, base, inputs, cotangent.astype(base.dtype))
    kernel = step.name == "conv_general_dilated" and not site.spread and site.position == 1
    if kernel and step.equation.params["batch_group_count"] == 1:
        return _convolution(met, site, base, inputs, cotangent.astype(base.dtype))
    table = step.name == "gather" and not site.spread and site.position == 0 and step.reads[1] in inputs
    if table and is_lookup(step.equation.params, base.shape, cotangent.shape[1:]):
        which = inputs[step.reads[1]].reshape(cotangent.shape[0], -1)
        which = rows_of(which, base.shape[0], step.equation.params["mode"])
        received = cotangent.reshape(*which.shape, *base.shape[1:]).astype(base.dtype)
        return Looked.of(which, received, base.shape[0])
    given = {place: met.held[place] for place in site.given if place not in inputs}

    def row(one: tuple[dict[int, Array], Array]) -> Array:
        reads, cotangent = one
        out, pull = jax.vjp(lambda base: site.use(met.program, base, {**given, **reads}), base)
        return pull(cotangent.astype(out.dtype))[0]

    if step.name not in SMALL and base.size > cotangent[0].size:
        LOG.warning("a `%s` has no rule: its %d gradients of shape %s are held", step.name, len(cotangent), base.shape)
    return Stacked(jax.vmap(row)((inputs, cotangent)))


def _dense(met: Meeting, site: Site, base: Array, inputs: dict[int, Array], cotangent: Array) -> RowForm:
    step, other = met.program.steps[site.step], 1 - site.position
    contracted, batched = step.equation.params["dimension_numbers"]
    a = _of_rows(met, inputs, step.reads[other], cotangent.shape[0]).astype(base.dtype)
    letters = iter(string.ascii_lowercase)
    names: list[list[str]] = [[""] * len(atom.aval.shape) for atom in step.equation.invars]
    shared = ["".join(next(letters) for _ in axes[0]) for axes in (batched, contracted)]
    for axes, word in zip((batched, contracted), shared, strict=True):
        for side in (0, 1):
            for axis, letter in zip(axes[side], word, strict=True):
                names[side][axis] = letter
    for side in (0, 1):
        names[side] = [letter or next(letters) for letter in names[side]]
    free = ["".join(letter for letter in side if letter not in "".join(shared)) for side in names]
    sizes = dict(zip(names[other], a.shape[1:], strict=True)) | dict(zip(names[site.position], base.shape, strict=True))
    # Groups, batch, inputs or outputs, positions; in the base: groups, inputs, outputs.
    a = _arranged(a, ["Z", *names[other]], (shared[0], "Z", shared[1], free[other]))
    d = ["Z", *shared[0], *free[0], *free[1]]
    d = _arranged(cotangent, d, (shared[0], "Z", free[site.position], free[other]))
    form = Outer(a[..., 0], d[..., 0]) if a.shape[-1] == 1 else Slabs.of(a, d)
    words = (shared[0], shared[1], free[site.position])
    order = [names[site.position].index(letter) for letter in "".join(words)]
    inside = lambda v: _arranged(v, ["Z", *names[site.position]], ("Z", *words))
    unfolded = [sizes[letter] for letter in "".join(words)]
    back = [0, *(1 + order.index(axis) for axis in range(len(order)))]
    outside = lambda v: v.reshape(v.shape[0], *unfolded).transpose(back)
    return Folded(form, inside, outside)


def _convolution(met: Meeting, site: Site, base: Array, inputs: dict[int, Array], cotangent: Array) -> RowForm:
    step = met.program.steps[site.step]
    settings = step.equation.params
    lhs, rhs, out = settings["dimension_numbers"]
    batch, groups = cotangent.shape[0], settings["feature_group_count"]
    images = _of_rows(met, inputs, step.reads[0], batch).astype(base.dtype)
    images = images.transpose(0, *(axis + 1 for axis in lhs))  # [batch, n, groups · inner, *space]
    d = cotangent.transpose(0, *(axis + 1 for axis in out))  # [batch, n, groups · outer, *space]
    outer, inner, *kernel = (base.shape[axis] for axis in rhs)
    n, space, outer = d.shape[1], d.shape[3:], outer // groups
    # A position is a pair of an image of the example (one as a rule) and a place in it.
    d = jnp.moveaxis(d.reshape(batch, n, groups, outer, -1), (2, 3), (0, 2)).reshape(groups, batch, outer, -1)
    channels = images.reshape(batch, n, groups, inner, *images.shape[3:])
    elements = math.prod(kernel)

    def seen(channel: Array) -> Array:  # [batch, n, groups, *space], one input channel of each group
        found = windows(channel.reshape(batch * n, groups, *channel.shape[3:]), tuple(kernel), space, settings)
        found = found.reshape(batch, n, groups, elements, -1)
        return jnp.moveaxis(found, (2, 3), (0, 2)).reshape(groups, batch, elements, -1)

    form = Slabs(seen, jnp.moveaxis(channels, 3, 0), d, elements)
    back = [0, *(1 + sorted(range(len(rhs)), key=lambda axis: rhs[axis])[i] for i in range(len(rhs)))]

    def inside(v: Array) -> Array:
        v = v.transpose(0, *(axis + 1 for axis in rhs)).reshape(v.shape[0], groups, outer, inner * elements)
        return v.transpose(0, 1, 3, 2)

    def outside(v: Array) -> Array:
        v = v.transpose(0, 1, 3, 2).reshape(v.shape[0], groups * outer, inner, *kernel)
        return v.transpose(back)

    return Folded(form, inside, outside)


def _of_rows(met: Meeting, inputs: dict[int, Array], place: Any, batch: int) -> Array:
    """What stands at a place for every example, also where it is the same for all."""
    if place in inputs:
        return inputs[place]
    return jnp.broadcast_to(met.held[place], (batch, *met.held[place].shape))


def _arranged(a: Array, names: list[str], words: tuple[str, ...]) -> Array:
    """Transposes axes that have letters, and joins those of a word."""
    order = [names.index(letter) for letter in "".join(words)]
    shape = dict(zip(names, a.shape, strict=True))
    return a.transpose(order).reshape([math.prod(shape[letter] for letter in word) for word in words])


def _one_by_one(met: Meeting, root: Array, which: list[int]) -> list[Array]:
    """Returns the rows of some leaves, `[batch, ...]`, one example after another."""

    def at(chosen: list[Array], row: list[Array]) -> Array:
        whole = list(met.leaves)
        for index, leaf in zip(which, chosen, strict=True):
            whole[index] = leaf
        return met.one(whole, row)

    def single(row: tuple[list[Array], Array]) -> list[Array]:
        inputs, root = row
        found = jax.vmap(jax.grad(at), (None, 0))([met.leaves[index] for index in which], inputs)
        return [leaf * root.astype(leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1)) for leaf in found]

    # A CPU gains nothing from several at once, an accelerator does.
    chunk = 1 if jax.default_backend() == "cpu" else 16
    return in_chunks(single, (met.rows, root), chunk, stacked=True)
