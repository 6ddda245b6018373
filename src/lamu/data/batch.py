"""Batches: the rows of one step, with a mask for padding, weights and offsets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.compile_once import of_rows
from lamu.record import record
from lamu.typing import Array, Inputs, Targets

__all__ = ["Batch", "with_offset"]


@record
class Batch:
    r"""Some rows of a data set.

    Every sum over a batch is \(\sum_i m_i w_i (\cdot)_i\), where the mask \(m_i\) is one for a real row and zero for a
    padded one, and \(w_i\) is the row's weight. The number of rows that a batch represents is \(\sum_i m_i\): weights
    change each row's contribution, not the number of rows.

    Attributes:
        x: inputs, leading axis `batch`.
        y: targets, leading axis `batch`: an array, or arrays by name, such as `{"value", "trials"}`. An array that may
            have missing entries is a `lamu.data.Incomplete`.
        mask: one or zero for each row, floating. A row of mask zero may hold NaN.
        weight: the weight of each row, floating.
        offset: a known part of the linear predictor (the log of an exposure), added to f and in its units, `[batch]` or
            `[batch, outputs]`; None if there is none. One number per row is added to every output of a batch.
        groups: the group of each row, `[batch]`, or None, as of `lamu.data.Arrays`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.data import Batch
        >>> float(Batch.of(jnp.ones((3, 2)), jnp.zeros(3)).count)
        3.0
    """

    x: Any
    y: Any
    mask: Any
    weight: Any
    offset: Any = None
    groups: Any = None

    @classmethod
    def of(cls, x: Inputs, y: Targets, offset: object = None) -> Batch:
        """Returns a batch of real rows of weight one."""
        x, y = jnp.asarray(x), jax.tree.map(jnp.asarray, y)
        dtype = of_rows(x.dtype)
        x = x.astype(dtype)  # as `Arrays.of` does: integers would round the constants of a standardised network
        ones = jnp.ones(x.shape[0], dtype)
        return cls(x=x, y=y, mask=ones, weight=ones, offset=None if offset is None else jnp.asarray(offset, dtype))

    def padded(self, rows: int) -> Batch:
        """Returns the same batch padded to `rows` rows; padded rows repeat the first one, masked out."""
        extra = rows - self.x.shape[0]
        if extra < 0:
            raise ValueError(f"a batch of {self.x.shape[0]} rows cannot be padded to {rows}; ask for at least as many")
        if extra == 0:
            return self

        def pad(leaf: Array, fill: Array) -> Array:
            return jnp.concatenate([leaf, jnp.broadcast_to(fill, (extra, *leaf.shape[1:]))])

        return Batch(
            x=pad(self.x, self.x[:1]),
            y=jax.tree.map(lambda leaf: pad(leaf, leaf[:1]), self.y),
            mask=pad(self.mask, jnp.zeros_like(self.mask[:1])),
            weight=pad(self.weight, self.weight[:1]),
            offset=None if self.offset is None else pad(self.offset, self.offset[:1]),
            groups=jax.tree.map(lambda leaf: pad(leaf, leaf[:1]), self.groups),
        )

    def filled(self) -> Batch:
        """Returns the same batch with safe values in rows that do not count, since zero times NaN is NaN.

        Rows whose mask or weight is zero keep their numbers, except those that are not finite, whose square overflows,
        or that are negative and whole: these become zeros, in targets one half or one.
        """
        counts = self.mask * self.weight != 0
        x, offset = _filled((self.x, self.offset), counts, 0, 0.0)
        return replace(self, x=x, y=_filled(self.y, counts, 1, 0.5), offset=offset)  # in the support of most targets

    @property
    def count(self) -> Array:
        """The number of real rows, a scalar."""
        return jnp.sum(self.mask)

    def total(self, values: Array) -> Array:
        """Returns the masked and weighted sum over the rows; padded rows contribute zero, even if infinite.

        Args:
            values: one value, or one array, for each row: shape `[batch, ...]`.
        """
        factor = (self.mask * self.weight).reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
        return jnp.sum(jnp.where(factor > 0, values, jnp.zeros_like(values)) * factor, axis=0)


def with_offset(f: Array, offset: Any) -> Array:
    """Returns the outputs plus the offset."""
    if offset is None:
        return f
    if offset.shape not in (f.shape[:1], f.shape):
        # Rows are checked on input; the number of outputs may only be known here.
        raise ValueError(
            f"the offset has {math.prod(offset.shape[1:])} numbers a row and f has {f.shape[1]} outputs; give one "
            "number a row, without an axis of outputs, or one an output"
        )
    columns = offset[:, None] if offset.ndim == 1 else offset
    return f + jnp.broadcast_to(columns, f.shape).astype(f.dtype)


def _filled(rows: Any, counts: Array, whole: int, floating: float) -> Any:
    """Returns rows with invalid entries replaced by a number where the row does not count."""

    # Each entry is replaced separately: finding a row that counts would need a search over all devices. Valid entries
    # are kept, since networks that cannot see the mask (custom batch statistics) should see actual rows.
    def fill(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            usable, number = jnp.abs(leaf) < math.sqrt(jnp.finfo(leaf.dtype).max), floating
        elif jnp.issubdtype(leaf.dtype, jnp.signedinteger):
            usable, number = leaf >= 0, whole
        else:
            return leaf
        counted = counts.reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.where(counted | usable, leaf, jnp.asarray(number, leaf.dtype))

    return jax.tree.map(fill, rows)
