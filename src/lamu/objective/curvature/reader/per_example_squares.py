"""Sums over examples of the squares of one leaf's gradients, from its inputs and its output's cotangents."""

# \[ S = \sum_i r_i\, g_i^2, \qquad G = \sum_i r_i\, g_i, \qquad n_i = \lVert g_i \rVert^2, \qquad
#    g_i = \big(\partial u(w, a_i)/\partial w\big)^\top d_i \]
#
# Every rule is exact; they differ in what they hold at once. Cotangents come as \(r_i d_i\) (they are those of the
# weighted sum), hence the factor \(1/r_i\) beside their squares. Where single gradients are formed, a few at a time, G
# is their sum, and whoever takes it from here spares the backward pass a product; elsewhere it is None.

from __future__ import annotations

import math
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.embeddings import is_lookup, merged, rows_of
from lamu.objective.curvature.reader.flat_jaxpr import Program
from lamu.objective.curvature.reader.im2col import windows
from lamu.objective.curvature.reader.parameter_uses import Site
from lamu.typing import Array

__all__ = ["ByRows", "Contribution", "Rule", "chunk_of", "contribution", "in_chunks", "meets_once"]

# S and G, in the shape of p's value, and the function from p′² to r n.
Contribution: TypeAlias = tuple[Array, Array | None, Callable[[Array | None], Array]]
Rule: TypeAlias = Callable[[Array], Contribution]

SMALL = ("add", "sub", "mul", "div", "add_any")
# Numbers of single gradients held at once where they cannot be avoided: they should stay in a core's cache.
HELD = 2**16


def contribution(
    program: Program, site: Site, base: Array, held: dict[int, Any], rows: dict[int, Array], cotangent: Array
) -> Rule:
    """Chooses the rule for a site."""
    step = program.steps[site.step]
    if step.name == "dot_general" and not site.spread:
        return _dense(program, site, base, held, rows, cotangent)
    kernel = step.name == "conv_general_dilated" and not site.spread and site.position == 1
    if kernel and step.equation.params["batch_group_count"] == 1:
        return _convolution(program, site, base, held, rows, cotangent)
    output = cotangent.shape[1:]
    table = step.name == "gather" and not site.spread and site.position == 0 and step.reads[1] in rows
    if table and is_lookup(step.equation.params, base.shape, output):
        return _lookup(base, rows[step.reads[1]], step.equation.params["mode"], cotangent)
    given = {place: held[place] for place in site.given if place not in rows}

    def gradients(row: tuple[dict[int, Array], Array]) -> Array:
        inputs, cotangent = row
        out, pull = jax.vjp(lambda base: site.use(program, base, {**given, **inputs}), base)
        return pull(cotangent.astype(out.dtype))[0]

    if _is_summand(step.name, site, base, output):
        return _summand(base, cotangent)
    # The gradient of a summand or factor is no larger than the cotangent, which is there anyway.
    chunk = None if step.name in SMALL else chunk_of(base.size)
    return ByRows(jax.vmap(gradients), (rows, cotangent), chunk)


def meets_once(program: Program, site: Site, base: Array, output: tuple[int, ...]) -> bool:
    """Returns whether an example's squared gradients are linear in its squared cotangents: it meets the leaf once."""
    step = program.steps[site.step]
    if step.name != "dot_general" or site.spread:
        return _is_summand(step.name, site, base, output)
    (contracted, batched), side = step.equation.params["dimension_numbers"], site.position
    free = math.prod(size for axis, size in enumerate(base.shape) if axis not in (*contracted[side], *batched[side]))
    shared = math.prod(base.shape[axis] for axis in batched[side])
    return math.prod(output) == free * shared


def _is_summand(name: str, site: Site, base: Array, output: tuple[int, ...]) -> bool:
    return name in ("add", "add_any") and not site.spread and math.prod(output) == base.size


def _dense(
    program: Program, site: Site, base: Array, held: dict[int, Any], rows: dict[int, Array], cotangent: Array
) -> Rule:
    equation, reads = program.steps[site.step].equation, program.steps[site.step].reads
    (contracted, batched), other = equation.params["dimension_numbers"], 1 - site.position
    place = reads[other]
    a = rows[place] if place in rows else jnp.broadcast_to(held[place], (cotangent.shape[0], *held[place].shape))
    dtype = jnp.result_type(base.dtype)
    letters = iter(string.ascii_lowercase)
    names: list[list[str]] = [[""] * len(atom.aval.shape) for atom in equation.invars]
    shared = ["".join(next(letters) for _ in axes[0]) for axes in (batched, contracted)]
    for axes, word in zip((batched, contracted), shared, strict=True):
        for side in (0, 1):
            for axis, letter in zip(axes[side], word, strict=True):
                names[side][axis] = letter
    for side in (0, 1):
        names[side] = [letter or next(letters) for letter in names[side]]
    free = ["".join(x for x in side if x not in "".join(shared)) for side in names]
    out = shared[0] + free[0] + free[1]
    left, right, view = "Z" + "".join(names[other]), "Z" + out, "".join(names[site.position])
    a, d = a.astype(dtype), cotangent.astype(dtype)
    positions = math.prod(size for name, size in zip(left[1:], a.shape[1:], strict=True) if name in free[other])
    if positions > 1:
        return ByRows(lambda r: jnp.einsum(f"{left},{right}->Z{view}", *r), (a, d), chunk_of(base.size))

    # Axes of one position, such as that of a batch of one row, would cost a copy in another layout.
    once = [axis for axis, name in enumerate(left) if axis and name in free[other]]
    a, d = jnp.squeeze(a, once), jnp.squeeze(d, [axis for axis, name in enumerate(right) if name in free[other]])
    left, right = (side.translate({ord(name): None for name in free[other]}) for side in (left, right))

    def alone(inverse: Array) -> Contribution:
        squared, received = a * a * _rows(_late(inverse.astype(dtype), d), a), d * d
        square = jnp.einsum(f"{left},{right}->{view}", squared, received)
        gradient = jnp.einsum(f"{left},{right}->{view}", a, d)

        def norms(slope: Array | None) -> Array:
            if slope is None:
                return jnp.einsum(f"{left},{right}->Z", squared, received)
            return jnp.einsum(f"{left},{right},{view}->Z", squared, received, slope.astype(dtype))

        return square, gradient, norms

    return alone


def _late(inverse: Array, d: Array) -> Array:
    """Returns 1/r, in a way that the compiler cannot know before it has the cotangents."""
    # It would square the inputs of all layers as soon as it has them, and hold the squares through the backward pass:
    # half of all temporary memory. A row whose cotangent is NaN has squares that are NaN in any case.
    first = jnp.sum(d.reshape(d.shape[0], -1)[:, :1], axis=1)
    return jnp.where(jnp.isnan(first), first, inverse)


def _summand(base: Array, cotangent: Array) -> Rule:
    # In one axis, as beside a product, whose squared cotangents are the same and so are taken once.
    d = cotangent.reshape(cotangent.shape[0], -1).astype(base.dtype)

    def alone(inverse: Array) -> Contribution:
        inverse, received = inverse.astype(d.dtype), d * d
        norms = lambda slope: inverse * (received @ (jnp.ones_like(d[0]) if slope is None else slope.reshape(-1)))
        return (inverse @ received).reshape(base.shape), jnp.sum(d, axis=0).reshape(base.shape), norms

    return alone


def _convolution(
    program: Program, site: Site, base: Array, held: dict[int, Any], rows: dict[int, Array], cotangent: Array
) -> Rule:
    step = program.steps[site.step]
    settings, place = step.equation.params, step.reads[0]
    lhs, rhs, out = settings["dimension_numbers"]
    a = rows[place] if place in rows else jnp.broadcast_to(held[place], (cotangent.shape[0], *held[place].shape))
    batch, groups = cotangent.shape[0], settings["feature_group_count"]
    shape = [base.shape[axis] for axis in rhs]  # [out, in a group, *space]

    def gradients(row: tuple[Array, Array]) -> Array:
        images, d = row
        images = images.transpose(0, *(axis + 1 for axis in lhs))
        d = d.transpose(0, *(axis + 1 for axis in out))
        n, inner, space = images.shape[0], images.shape[1], d.shape[3:]
        seen = windows(images.reshape(n * inner, *images.shape[2:]), tuple(shape[2:]), space, settings)
        seen = seen.reshape(n, inner, groups, shape[1], -1, math.prod(space))
        d = d.reshape(n, inner, groups, shape[0] // groups, -1)
        # A position is a pair of an image (one as a rule) and a place in it.
        kernels = jnp.einsum("nigckp,nigop->ngock", seen.astype(base.dtype), d.astype(base.dtype))
        back = sorted(range(len(rhs)), key=lambda axis: rhs[axis])
        return kernels.reshape(n, *shape).transpose(0, *(axis + 1 for axis in back))

    # Windows, too, are held for each example of a chunk.
    size = max(base.size, math.prod(a.shape[1:]) * math.prod(shape[2:]))
    return ByRows(gradients, (a, cotangent), min(batch, max(chunk_of(size), 1)))


def _lookup(base: Array, indices: Array, mode: Any, cotangent: Array) -> Rule:
    batch, width = cotangent.shape[0], base.shape[1:]
    which = rows_of(indices.reshape(batch, -1), base.shape[0], mode)
    received = cotangent.reshape(batch, -1, *width).astype(base.dtype)
    size = which.shape[1] * (which.shape[1] + math.prod(width))
    found = in_chunks(lambda row: jax.vmap(merged)(*row), (which, received), chunk_of(size), stacked=True)

    def alone(inverse: Array) -> Contribution:
        square = found * found * _rows(inverse.astype(found.dtype), found)

        def norms(slope: Array | None) -> Array:
            there = slope if slope is None else jnp.take(slope, which, axis=0, mode="fill", fill_value=0)
            return jnp.sum((square if there is None else square * there).reshape(batch, -1), axis=1)

        flat = square.reshape(-1, *width)
        return jnp.zeros_like(base).at[which.reshape(-1)].add(flat, mode="drop"), None, norms

    return alone


@dataclass(frozen=True)
class ByRows:
    """The rule that forms some examples' gradients at a time."""

    # From a pair of inputs and cotangents of some rows to their gradients, `[rows, ...]`.
    gradients: Callable[[Any], Array]
    rows: tuple[Any, Array]  # the pair, for all rows
    chunk: int | None  # how many at a time; None for all at once

    def __call__(self, inverse: Array) -> Contribution:
        """Returns S and G, and the function from p′² to r n."""
        size = inverse.shape[0]
        chunk = size if self.chunk is None else self.chunk

        def squared(found: Array, inverse: Array) -> Array:
            return found * found * _rows(inverse.astype(found.dtype), found)

        def sums(row: Any) -> tuple[Array, Array]:
            found = self.gradients(row[0])
            return squared(found, row[1]).sum(0), found.sum(0)

        part = lambda row: squared(self.gradients(row[0]), row[1])
        square, gradient = in_chunks(sums, (self.rows, inverse), chunk)

        def norms(slope: Array | None) -> Array:
            weighted = lambda r: part(r) if slope is None else part(r) * slope[None]
            of_rows = lambda r: weighted(r).reshape(r[1].shape[0], -1).sum(1)
            return in_chunks(of_rows, (self.rows, inverse), chunk, stacked=True)

        return square, gradient, norms

    def over(self, cotangents: Array) -> Array:
        """Returns the sum of squares over the rows and over several cotangents of each."""
        # What a row's inputs are made into is made once, and met by all cotangents in one product.
        several, cotangents = cotangents.shape[0], cotangents.astype(self.rows[1].dtype)

        def sums(row: tuple[Any, Array]) -> Array:
            found = jax.vmap(lambda d: self.gradients((row[0], d)), in_axes=1)(row[1])
            return jnp.sum(found * found, axis=(0, 1))

        chunk = cotangents.shape[1] if self.chunk is None else max(self.chunk // several, 1)
        return in_chunks(sums, (self.rows[0], jnp.moveaxis(cotangents, 0, 1)), chunk)


def in_chunks(function: Callable[[Any], Any], rows: Any, chunk: int, stacked: bool = False) -> Any:
    """Returns the sum of a function of some rows at a time over all rows, or its values one after another."""
    # Rows of zeros complete the last chunk; they must contribute nothing.
    batch = jax.tree.leaves(rows)[0].shape[0]
    if chunk >= batch:
        return function(rows)
    count = -(-batch // chunk)

    def split(leaf: Array) -> Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            extra = leaf[:1].repeat(count * chunk - batch, 0)
        else:
            extra = jnp.zeros((count * chunk - batch, *leaf.shape[1:]), leaf.dtype)
        return jnp.concatenate([leaf, extra]).reshape(count, chunk, *leaf.shape[1:])

    pieces = jax.tree.map(split, rows)
    if stacked:
        whole = jax.lax.map(function, pieces)
        return jax.tree.map(lambda leaf: leaf.reshape(count * chunk, *leaf.shape[2:])[:batch], whole)
    shapes = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], pieces))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    step = lambda total, piece: (jax.tree.map(jnp.add, total, function(piece)), None)
    return jax.lax.scan(step, zero, pieces)[0]


def chunk_of(size: int) -> int:
    """Returns how many single gradients of that size are held at once."""
    return max(1, HELD // max(size, 1))


def _rows(values: Array, like: Array) -> Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))
