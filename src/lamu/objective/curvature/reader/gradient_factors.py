"""The gradients of single examples at one place where a leaf meets data, in the form that its equation gives them."""

# A form answers questions about the rows \(g_i\) of a matrix that it does not hold: the sum of their squares, their
# inner products, their products with directions, and their combinations. Each is exact; forms differ in what they hold
# at once.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.embeddings import merged
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Folded", "Looked", "Outer", "RowForm", "Slabs", "Stacked"]

# Accelerators shorten the factors of a float32 product unless told not to; small differences of these sums matter.
_EXACT = jax.lax.Precision.HIGHEST
# Numbers of all rows' gradients held at once, where they are made a slab of coordinates at a time.
_SLAB = 2**18


@runtime_checkable
class RowForm(Protocol):
    """The rows of one site, in the coordinates of the site's base."""

    def squares(self) -> Array:
        """Returns Σ_i g_i², `[*base]`."""
        ...

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products, `[batch, batch]`, every coordinate of a row times its slope `[*base]`."""
        ...

    def products(self, directions: Array) -> Array:
        """Returns ⟨g_i, v_k⟩, `[batch, k]`, for directions `[k, *base]`."""
        ...

    def combine(self, coefficients: Array) -> Array:
        """Returns Σ_i c_ik g_i, `[k, *base]`, for coefficients `[batch, k]`."""
        ...


@record
class Stacked:
    """Rows that are held as they are: those of biases and scales are no larger than the cotangents."""

    rows: Array  # `[batch, *base]`

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        # As a product: a processor takes much longer for a sum over the slowest axis.
        return jnp.tensordot(jnp.ones(self.rows.shape[0], self.rows.dtype), self.rows * self.rows, 1)

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        rows = _flat(self.rows if slope is None else self.rows * slope[None])
        return jnp.matmul(rows, rows.T, precision=_EXACT)

    def products(self, directions: Array) -> Array:
        """Returns the products with directions."""
        return jnp.matmul(_flat(self.rows), _flat(directions).T, precision=_EXACT)

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        found = jnp.matmul(coefficients.T.astype(self.rows.dtype), _flat(self.rows), precision=_EXACT)
        return found.reshape(-1, *self.rows.shape[1:])


@record
class Outer:
    r"""Rows \(g_i = a_i d_i^\top\), those of a dense layer that sees an example at one position."""

    # Inner products are \((A A^\top) \circ (D D^\top)\) and products with a direction a forward pass: no row is held.

    a: Array  # inputs `[groups, batch, inputs]`
    d: Array  # cotangents `[groups, batch, outputs]`. The base is `[groups, inputs, outputs]`

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        return jnp.einsum("gbi,gbo->gio", self.a * self.a, self.d * self.d)

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        if slope is not None:
            return Slabs.of(self.a[..., None], self.d[..., None]).gram(slope)
        one, other = (jnp.einsum("gbi,gci->gbc", x, x, precision=_EXACT) for x in (self.a, self.d))
        return jnp.sum(one * other, axis=0)

    def products(self, directions: Array) -> Array:
        """Returns the products with directions."""
        one = lambda v: jnp.sum(jnp.einsum("gbi,gio->gbo", self.a, v) * self.d, axis=(0, 2))
        return jax.lax.map(one, directions).T

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        c = coefficients.astype(self.d.dtype)
        one = lambda k: jnp.einsum("gbi,gbo->gio", self.a, self.d * c[None, :, k, None])
        return jnp.stack([one(k) for k in range(c.shape[1])])


@dataclass(frozen=True)
class Slabs:
    r"""Rows \(g_i = \sum_p a_{ip} d_{ip}^\top\) of a layer with positions, made a slab of coordinates at a time."""

    inputs: Callable[[Any], Array]  # of one piece, `[groups, batch, held, positions]`
    pieces: Any  # arrays with the pieces along a leading axis
    d: Array  # cotangents `[groups, batch, outputs, positions]`. The base is `[groups, inputs, outputs]`
    held: int  # how many inputs a slab has; those of the base are the pieces' one after another

    @classmethod
    def of(cls, a: Array, d: Array) -> Slabs:
        """Returns the form of inputs that are all there, `[groups, batch, inputs, positions]`."""
        groups, batch, inputs, positions = a.shape
        most = max(1, _SLAB // max(1, groups * batch * d.shape[2]))
        held = max(size for size in range(1, inputs + 1) if inputs % size == 0 and size <= most)
        pieces = a.reshape(groups, batch, inputs // held, held, positions).transpose(2, 0, 1, 3, 4)
        return cls(lambda piece: piece, pieces, d, held)

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        return self._joined(jax.lax.map(lambda piece: jnp.sum(self._rows(piece) ** 2, axis=1)[None], self.pieces))[0]

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        factors = jnp.ones((1, 1, self.held, 1), self.d.dtype) if slope is None else self._cut(slope[None])

        def part(piece: Any, factor: Array) -> Array:
            rows = self._rows(piece) * factor[0][:, None]
            return jnp.einsum("gbio,gcio->bc", rows, rows, precision=_EXACT)

        if slope is None:
            return self._total(lambda piece: part(piece, factors), self.pieces)
        return self._total(lambda both: part(*both), (self.pieces, factors))

    def products(self, directions: Array) -> Array:
        """Returns the products with directions."""
        part = lambda both: jnp.einsum("gbio,kgio->bk", self._rows(both[0]), both[1], precision=_EXACT)
        return self._total(part, (self.pieces, self._cut(directions)))

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        c = coefficients.astype(self.d.dtype)
        part = lambda piece: jnp.einsum("gbio,bk->kgio", self._rows(piece), c, precision=_EXACT)
        return self._joined(jax.lax.map(part, self.pieces))

    def _rows(self, piece: Any) -> Array:
        return jnp.einsum("gbip,gbop->gbio", self.inputs(piece).astype(self.d.dtype), self.d)

    def _cut(self, directions: Array) -> Array:
        k, groups, inputs, outputs = directions.shape
        return directions.reshape(k, groups, inputs // self.held, self.held, outputs).transpose(2, 0, 1, 3, 4)

    def _joined(self, found: Array) -> Array:
        n, k, groups, _, outputs = found.shape
        return found.transpose(1, 2, 0, 3, 4).reshape(k, groups, n * self.held, outputs)

    def _total(self, part: Callable[[Any], Array], pieces: Any) -> Array:
        shape = jax.eval_shape(part, jax.tree.map(lambda leaf: leaf[0], pieces))
        step = lambda total, piece: (total + part(piece), None)
        return jax.lax.scan(step, jnp.zeros(shape.shape, shape.dtype), pieces)[0]


@dataclass(frozen=True)
class Folded:
    """A form in `[groups, inputs, outputs]` of a base whose axes stand otherwise."""

    form: RowForm
    inside: Callable[[Array], Array]  # `[k, *base]` as `[k, groups, inputs, outputs]`
    outside: Callable[[Array], Array]  # the way back

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        return self.outside(self.form.squares()[None])[0]

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        return self.form.gram(None if slope is None else self.inside(slope[None])[0])

    def products(self, directions: Array) -> Array:
        """Returns the products with directions."""
        return self.form.products(self.inside(directions))

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        return self.outside(self.form.combine(coefficients))


@record
class Looked:
    """Rows of a table that were looked up, each where it is read first with all that it receives."""

    which: Array  # the rows read by each example, `[batch, positions]`; the table's length stands for none
    received: Array  # what they receive, `[batch, positions, *row]`; zeros where a row is read again
    count: int = static()  # the rows of the table

    @classmethod
    def of(cls, which: Array, cotangents: Array, count: int) -> Looked:
        """Returns the form, from which rows are read and the cotangents of every reading."""
        received = jax.lax.map(lambda one: merged(*one), (which, cotangents))
        return cls(which, received.astype(cotangents.dtype), count)

    def squares(self) -> Array:
        """Returns the sum of the squares."""
        return self._scattered(self.received * self.received)

    def gram(self, slope: Array | None) -> Array:
        """Returns the inner products."""
        rows = self.received if slope is None else self.received * self._at(slope)
        rows = rows.reshape(*rows.shape[:2], -1)

        def against_all(one: tuple[Array, Array]) -> Array:
            which, row = one
            same = (which[:, None, None] == self.which[None]).astype(row.dtype)
            return jnp.sum(same * jnp.einsum("tw,bsw->tbs", row, rows, precision=_EXACT), axis=(0, 2))

        return jax.lax.map(against_all, (self.which, rows))

    def products(self, directions: Array) -> Array:
        """Returns the products with directions."""
        return jax.lax.map(lambda v: jnp.sum(_flat(self.received * self._at(v)), axis=1), directions).T

    def combine(self, coefficients: Array) -> Array:
        """Returns combinations of rows."""
        ones = [1] * (self.received.ndim - 1)
        one = lambda c: self._scattered(self.received * c.astype(self.received.dtype).reshape(-1, *ones))
        return jax.lax.map(one, coefficients.T)

    def _at(self, table: Array) -> Array:
        return jnp.take(table, self.which, axis=0, mode="fill", fill_value=0)

    def _scattered(self, a: Array) -> Array:
        width = a.shape[2:]
        table = jnp.zeros((self.count, *width), a.dtype)
        return table.at[self.which.reshape(-1)].add(a.reshape(-1, *width), mode="drop")


def _flat(a: Array) -> Array:
    return a.reshape(a.shape[0], -1)
