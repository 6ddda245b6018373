"""A batch: the rows that one step sees, with the mask that tells real rows from padding."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.record import record
from lamu.typing import Array

__all__ = ["Batch"]


@record
class Batch:
    r"""Some rows of a data set.

    Every sum over a batch is \(\sum_i m_i w_i (\cdot)_i\), where the mask \(m_i\) is one for a real row and zero for a
    padded one, and \(w_i\) is the row's weight. The number of rows that a batch stands for is \(\sum_i m_i\): a weight
    changes what a row says, not how many rows there are.

    Attributes:
        x: inputs, leading axis `batch`.
        y: targets, leading axis `batch`.
        mask: one or zero for each row, floating.
        weight: the weight of each row, floating.

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

    @classmethod
    def of(cls, x: Any, y: Any) -> Batch:
        """Returns a batch of real rows of weight one."""
        x, y = jnp.asarray(x), jnp.asarray(y)
        dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float)
        ones = jnp.ones(x.shape[0], dtype)
        return cls(x=x, y=y, mask=ones, weight=ones)

    def padded(self, rows: int) -> Batch:
        """Returns the same batch with padding up to `rows` rows; padded rows repeat the first one, masked out."""
        extra = rows - self.x.shape[0]
        if extra < 0:
            raise ValueError(f"a batch of {self.x.shape[0]} rows cannot be padded to {rows}; ask for at least as many")

        def pad(leaf: Array, fill: Array) -> Array:
            return jnp.concatenate([leaf, jnp.broadcast_to(fill, (extra, *leaf.shape[1:]))])

        return Batch(
            x=pad(self.x, self.x[:1]),
            y=pad(self.y, self.y[:1]),
            mask=pad(self.mask, jnp.zeros_like(self.mask[:1])),
            weight=pad(self.weight, self.weight[:1]),
        )

    @property
    def count(self) -> Array:
        """The number of real rows, a scalar."""
        return jnp.sum(self.mask)

    def total(self, values: Array) -> Array:
        """Returns the masked and weighted sum over the rows; a padded row counts nothing, even where it is infinite.

        Args:
            values: one value, or one array, a row: shape `[batch, ...]`.
        """
        factor = (self.mask * self.weight).reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
        return jnp.sum(jnp.where(factor > 0, values, jnp.zeros_like(values)) * factor, axis=0)
