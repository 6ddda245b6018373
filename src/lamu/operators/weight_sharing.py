"""How Kronecker factors count a layer that is used at several positions of one row: convolutions, sequences."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import jax.numpy as jnp

from lamu.record import record
from lamu.typing import Array

__all__ = ["Expand", "Reduce", "Sharing"]


@runtime_checkable
class Sharing(Protocol):
    """What becomes of the positions at which one kernel is used for one row."""

    def view(self, inputs: Array, cotangents: Array) -> tuple[Array, Array]:
        """Returns inputs `[rows, positions, in]` and cotangents `[rows, positions, out]`, as they enter the factors."""
        ...


@record
class Expand:
    """Every position counts as a row of its own: K-FAC-expand, which convolutions have had from the beginning."""

    # \[ \overline{a a^\top} = \tfrac1P \sum_p a_p a_p^\top, \qquad \overline{d d^\top} = \sum_p d_p d_p^\top \]
    #
    # Exact for deep linear networks whose positions are rows of the loss.
    #
    # Source: Grosse & Martens (2016); Eschenhagen et al. (2023), section 3.

    def view(self, inputs: Array, cotangents: Array) -> tuple[Array, Array]:
        """Returns both as they are."""
        return inputs, cotangents


@record
class Reduce:
    """Positions are summed before the products: K-FAC-reduce, at a fraction of the price."""

    # \[ \overline{a a^\top} = \bar a \bar a^\top, \quad \bar a = \tfrac1P \sum_p a_p, \qquad
    #    \overline{d d^\top} = \bar d \bar d^\top, \quad \bar d = \sum_p d_p \]
    #
    # Exact for deep linear networks that average over positions in the end.
    #
    # Source: Eschenhagen et al. (2023), section 3.

    def view(self, inputs: Array, cotangents: Array) -> tuple[Array, Array]:
        """Returns mean and sum over the positions."""
        return jnp.mean(inputs, axis=1, keepdims=True), jnp.sum(cotangents, axis=1, keepdims=True)
