"""Sums over examples of the squares of one leaf's gradients, from its inputs and its output's cotangents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp

from lamu.base.compile_once import widened
from lamu.objective.curvature.reader.flat_jaxpr import FlatJaxpr, Values
from lamu.objective.curvature.reader.parameter_uses import ParameterUse, lookups, merged, of_rows, product_axes, windows
from lamu.record import record, static
from lamu.typing import Array, PyTree

__all__ = [
    "ByRows",
    "Looked",
    "Outer",
    "RowForm",
    "Rule",
    "Slabs",
    "Stacked",
    "chunk_of",
    "contribution",
    "in_chunks",
    "meets_once",
]


# A form represents the per-example gradients \(g_i\) of one site, the rows of a matrix, without storing the matrix. Its
# coordinates are those of the site's base (in a product or a convolution `[groups, inputs, outputs]`). All results are
# exact; forms differ in their memory.
#
# | method | returns |
# |---|---|
# | `squares()` | \(\sum_i g_i^2\), `[*base]` |
# | `gram(slope)` | inner products `[batch, batch]`, every coordinate of a row times its slope `[*base]` |
# | `combine(coefficients)` | \(\sum_i c_{ik} g_i\), `[k, *base]`, for coefficients `[batch, k]` |


# By default accelerators round the operands of float32 products; small differences of these sums matter.
_EXACT = jax.lax.Precision.HIGHEST
# Numbers of all rows' gradients in memory at once, where they are computed a slab of coordinates at a time.
_SLAB = 2**18


@record
class Stacked:
    """Stored rows: those of biases and scales are not larger than the cotangents."""

    rows: Array  # `[batch, *base]`

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        # As a product: CPUs are much slower at a sum over the outermost axis.
        return jnp.tensordot(jnp.ones(self.rows.shape[0], self.rows.dtype), self.rows * self.rows, 1)

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        rows = _flat(self.rows if slope is None else self.rows * slope[None])
        return jnp.matmul(rows, rows.T, precision=_EXACT)

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        combined = jnp.matmul(coefficients.T.astype(self.rows.dtype), _flat(self.rows), precision=_EXACT)
        return combined.reshape(-1, *self.rows.shape[1:])


@record
class Outer:
    r"""Rows \(g_i = a_i d_i^\top\), those of a dense layer that is applied to an example at one position."""

    # Inner products are \((A A^\top) \circ (D D^\top)\), and a product with a direction costs a forward pass. Rows are
    # not stored.

    a: Array  # inputs `[groups, batch, inputs]`
    d: Array  # cotangents `[groups, batch, outputs]`

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        return jnp.einsum("gbi,gbo->gio", self.a * self.a, self.d * self.d)

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        if slope is not None:
            return Slabs.of(self.a[..., None], self.d[..., None]).gram(slope)
        inputs, other = (jnp.einsum("gbi,gci->gbc", x, x, precision=_EXACT) for x in (self.a, self.d))
        return jnp.sum(inputs * other, axis=0)

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        c = coefficients.astype(self.d.dtype)
        column = lambda k: jnp.einsum("gbi,gbo->gio", self.a, self.d * c[None, :, k, None])
        return jnp.stack([column(k) for k in range(c.shape[1])])


@dataclass(frozen=True)
class Slabs:
    r"""Rows \(g_i = \sum_p a_{ip} d_{ip}^\top\) of a layer with positions, computed a slab of coordinates at a time."""

    inputs: Callable[..., Array]  # of one piece, `[groups, batch, held, positions]`
    pieces: PyTree  # arrays with the pieces along a leading axis
    d: Array  # cotangents `[groups, batch, outputs, positions]`
    held: int  # the number of inputs in a slab; the pieces together are the base's inputs, in order

    @classmethod
    def of(cls, a: Array, d: Array) -> Slabs:
        """Returns the form for an array of all inputs, `[groups, batch, inputs, positions]`."""
        groups, batch, inputs, positions = a.shape
        most = max(1, _SLAB // max(1, groups * batch * d.shape[2]))
        slab = max(size for size in range(1, inputs + 1) if inputs % size == 0 and size <= most)
        pieces = a.reshape(groups, batch, inputs // slab, slab, positions).transpose(2, 0, 1, 3, 4)
        return cls(lambda piece: piece, pieces, d, slab)

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        return self._joined(jax.lax.map(lambda piece: jnp.sum(self._rows(piece) ** 2, axis=1)[None], self.pieces))[0]

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        factors = jnp.ones((1, 1, self.held, 1), self.d.dtype) if slope is None else self._cut(slope[None])

        def part(piece: PyTree, factor: Array) -> Array:
            rows = self._rows(piece) * factor[0][:, None]
            return jnp.einsum("gbio,gcio->bc", rows, rows, precision=_EXACT)

        if slope is None:
            return self._total(lambda piece: part(piece, factors), self.pieces)
        return self._total(lambda both: part(*both), (self.pieces, factors))

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        c = coefficients.astype(self.d.dtype)
        part = lambda piece: jnp.einsum("gbio,bk->kgio", self._rows(piece), c, precision=_EXACT)
        return self._joined(jax.lax.map(part, self.pieces))

    def _rows(self, piece: PyTree) -> Array:
        return jnp.einsum("gbip,gbop->gbio", self.inputs(piece).astype(self.d.dtype), self.d)

    def _cut(self, directions: Array) -> Array:
        k, groups, inputs, outputs = directions.shape
        return directions.reshape(k, groups, inputs // self.held, self.held, outputs).transpose(2, 0, 1, 3, 4)

    def _joined(self, combined: Array) -> Array:
        n, k, groups, _, outputs = combined.shape
        return combined.transpose(1, 2, 0, 3, 4).reshape(k, groups, n * self.held, outputs)

    def _total(self, part: Callable[..., Array], pieces: PyTree) -> Array:
        shape = jax.eval_shape(part, jax.tree.map(lambda leaf: leaf[0], pieces))
        step = lambda total, piece: (total + part(piece), None)
        return jax.lax.scan(step, jnp.zeros(shape.shape, shape.dtype), pieces)[0]


@record
class Looked:
    """Embedding rows that were looked up; each row's total gradient is stored at its first reading."""

    which: Array  # the rows read by each example, `[batch, positions]`; the table's length where nothing is read
    received: Array  # their gradients, `[batch, positions, *row]`; zeros where a row is read again
    count: int = static()  # the number of rows of the table

    @classmethod
    def of(cls, which: Array, cotangents: Array, count: int) -> Looked:
        """Returns the form, from the indices of the rows and the cotangents of every reading."""
        received = jax.lax.map(lambda pair: merged(*pair), (which, cotangents))
        return cls(which, received.astype(cotangents.dtype), count)

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        return self._scattered(self.received * self.received)

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        rows = self.received if slope is None else self.received * self._at(slope)
        rows = rows.reshape(*rows.shape[:2], -1)

        def against_all(own: tuple[Array, Array]) -> Array:
            which, row = own
            same = (which[:, None, None] == self.which[None]).astype(row.dtype)
            return jnp.sum(same * jnp.einsum("tw,bsw->tbs", row, rows, precision=_EXACT), axis=(0, 2))

        return jax.lax.map(against_all, (self.which, rows))

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        ones = [1] * (self.received.ndim - 1)
        combination = lambda c: self._scattered(self.received * c.astype(self.received.dtype).reshape(-1, *ones))
        return jax.lax.map(combination, coefficients.T)

    def _at(self, table: Array) -> Array:
        return jnp.take(table, self.which, axis=0, mode="fill", fill_value=0)

    def _scattered(self, a: Array) -> Array:
        width = a.shape[2:]
        table = jnp.zeros((self.count, *width), a.dtype)
        return table.at[self.which.reshape(-1)].add(a.reshape(-1, *width), mode="drop")


RowForm: TypeAlias = Stacked | Outer | Slabs | Looked


def _flat(a: Array) -> Array:
    return a.reshape(a.shape[0], -1)


# \[ S = \sum_i r_i\, g_i^2, \qquad G = \sum_i r_i\, g_i, \qquad
#    g_i = \big(\partial u(w, a_i)/\partial w\big)^\top d_i \]
#
# Every rule is exact; rules differ in their memory. The cotangents are those of the weighted sum, \(r_i d_i\), hence
# the factor \(1/r_i\) of their squares. Where per-example gradients are formed, a few at a time, G is their sum, and
# the backward pass need not compute it; elsewhere G is None.


# From 1 / r to S and G, in the shape of p's value.
Rule: TypeAlias = Callable[[Array], tuple[Array, Array | None]]

SMALL = ("add", "sub", "mul", "div", "add_any")
# Numbers of per-example gradients in memory at once, where they cannot be avoided: they should fit in a core's cache.
HELD = 2**16


def contribution(
    program: FlatJaxpr, site: ParameterUse, base: Array, fixed: Values, rows: dict[int, Array], cotangent: Array
) -> Rule:
    """Chooses the rule for a site."""
    step = program.steps[site.step]
    rule = _RULES.get(site.kind(program, rows, cotangent.shape[1:]))
    if rule is not None:
        return rule(program, site, base, fixed, rows, cotangent)
    if _is_summand(step.name, site, base, cotangent.shape[1:]):
        # In one axis as for a product, whose squared cotangents are the same, so that XLA computes them once.
        d = cotangent.reshape(cotangent.shape[0], -1).astype(base.dtype)
        return lambda inverse: (
            (inverse.astype(d.dtype) @ (d * d)).reshape(base.shape),
            jnp.sum(d, axis=0).reshape(base.shape),
        )
    # The gradient of a summand or factor is not larger than the cotangent, which is in memory already.
    chunk = None if step.name in SMALL else chunk_of(base.size)
    as_read = base.astype(program.avals[site.base].dtype)
    return ByRows(jax.vmap(site.gradient(program, as_read, fixed, rows)), (rows, cotangent), chunk)


def meets_once(program: FlatJaxpr, site: ParameterUse, base: Array, output: tuple[int, ...]) -> bool:
    """Whether an example uses the leaf once, so that its squared gradients are linear in its squared cotangents."""
    step = program.steps[site.step]
    if step.name != "dot_general" or site.spread:
        return _is_summand(step.name, site, base, output)
    (contracted, batched), side = step.equation.params["dimension_numbers"], site.position
    free = math.prod(size for axis, size in enumerate(base.shape) if axis not in (*contracted[side], *batched[side]))
    shared = math.prod(base.shape[axis] for axis in batched[side])
    return math.prod(output) == free * shared


def _is_summand(name: str, site: ParameterUse, base: Array, output: tuple[int, ...]) -> bool:
    return name in ("add", "add_any") and not site.spread and math.prod(output) == base.size


def _dense(
    program: FlatJaxpr, site: ParameterUse, base: Array, fixed: Values, rows: dict[int, Array], cotangent: Array
) -> Rule:
    step, other = program.steps[site.step], 1 - site.position
    a = of_rows(rows, fixed, step.reads[other], cotangent.shape[0])
    dtype = jnp.result_type(base.dtype)
    names, batched, _, free = product_axes(step)
    left, right, view = "Z" + names[other], "Z" + batched + free[0] + free[1], names[site.position]
    a, d = a.astype(dtype), cotangent.astype(dtype)
    positions = math.prod(size for name, size in zip(left[1:], a.shape[1:], strict=True) if name in free[other])
    if positions > 1:
        return ByRows(lambda r: jnp.einsum(f"{left},{right}->Z{view}", *r), (a, d), chunk_of(base.size))

    # Axes of length one, such as that of a batch of one row, would cost a copy into another layout.
    once = [axis for axis, name in enumerate(left) if axis and name in free[other]]
    a, d = jnp.squeeze(a, once), jnp.squeeze(d, [axis for axis, name in enumerate(right) if name in free[other]])
    left, right = (side.translate({ord(name): None for name in free[other]}) for side in (left, right))

    def alone(inverse: Array) -> tuple[Array, Array]:
        squared, received = a * a * _rows(_late(inverse.astype(dtype), d), a), d * d
        square = jnp.einsum(f"{left},{right}->{view}", squared, received)
        return square, jnp.einsum(f"{left},{right}->{view}", a, d)

    return alone


def _late(inverse: Array, d: Array) -> Array:
    """Returns 1/r with a data dependency on the cotangents."""
    # Otherwise XLA squares the inputs of all layers in the forward pass and stores the squares through the backward
    # pass: half of all temporary memory. A row whose cotangent is NaN has NaN squares in any case.
    first = jnp.sum(d.reshape(d.shape[0], -1)[:, :1], axis=1)
    return jnp.where(jnp.isnan(first), first, inverse)


def _convolution(
    program: FlatJaxpr, site: ParameterUse, base: Array, fixed: Values, rows: dict[int, Array], cotangent: Array
) -> Rule:
    step = program.steps[site.step]
    settings = step.equation.params
    lhs, rhs, out = settings["dimension_numbers"]
    a = of_rows(rows, fixed, step.reads[0], cotangent.shape[0])
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

    # The windows of each example of a chunk are in memory too.
    size = max(base.size, math.prod(a.shape[1:]) * math.prod(shape[2:]))
    return ByRows(gradients, (a, cotangent), min(batch, max(chunk_of(size), 1)))


def _lookup(
    program: FlatJaxpr, site: ParameterUse, base: Array, fixed: Values, rows: dict[int, Array], cotangent: Array
) -> Rule:
    step, width = program.steps[site.step], base.shape[1:]
    which, received = lookups(step, rows, base, cotangent)
    size = which.shape[1] * (which.shape[1] + math.prod(width))
    gradients = in_chunks(lambda row: jax.vmap(merged)(*row), (which, received), chunk_of(size), stacked=True)

    def alone(inverse: Array) -> tuple[Array, None]:
        square = gradients * gradients * _rows(inverse.astype(gradients.dtype), gradients)
        return jnp.zeros_like(base).at[which.reshape(-1)].add(square.reshape(-1, *width), mode="drop"), None

    return alone


_RULES = {"product": _dense, "convolution": _convolution, "lookup": _lookup}


@dataclass(frozen=True)
class ByRows:
    """The rule that forms the gradients of some examples at a time."""

    # From a pair of inputs and cotangents of some rows to their gradients, `[rows, ...]`.
    gradients: Callable[..., Array]
    rows: tuple[PyTree, Array]  # the pair, for all rows
    chunk: int | None  # the number of rows at a time; None for all at once

    def __call__(self, inverse: Array) -> tuple[Array, Array]:
        """Returns S and G."""

        def sums(row: PyTree) -> tuple[Array, Array]:
            gradients = widened(self.gradients(row[0]))
            return (gradients * gradients * _rows(row[1].astype(gradients.dtype), gradients)).sum(0), gradients.sum(0)

        return in_chunks(sums, (self.rows, inverse), inverse.shape[0] if self.chunk is None else self.chunk)

    def over(self, cotangents: Array) -> Array:
        """Returns the sum of squares over the rows and over several cotangents of each."""
        # A row's inputs are prepared once, and multiplied by all cotangents in one product.
        several, cotangents = cotangents.shape[0], cotangents.astype(self.rows[1].dtype)

        def sums(row: tuple[PyTree, Array]) -> Array:
            gradients = widened(jax.vmap(lambda d: self.gradients((row[0], d)), in_axes=1)(row[1]))
            return jnp.sum(gradients * gradients, axis=(0, 1))

        chunk = cotangents.shape[1] if self.chunk is None else max(self.chunk // several, 1)
        return in_chunks(sums, (self.rows[0], jnp.moveaxis(cotangents, 0, 1)), chunk)


def in_chunks(function: Callable[..., PyTree], rows: PyTree, chunk: int, stacked: bool = False) -> PyTree:
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
        results = jax.lax.map(function, pieces)
        return jax.tree.map(lambda leaf: leaf.reshape(count * chunk, *leaf.shape[2:])[:batch], results)
    shapes = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], pieces))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    step = lambda total, piece: (jax.tree.map(jnp.add, total, function(piece)), None)
    return jax.lax.scan(step, zero, pieces)[0]


def chunk_of(size: int) -> int:
    """Returns the number of per-example gradients of that size in memory at once."""
    return max(1, HELD // max(size, 1))


def _rows(values: Array, like: Array) -> Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))
