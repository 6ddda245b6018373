r"""Probabilities by breaking a stick, \(\pi_k = v_k \prod_{j<k} (1 - v_j)\)."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp

from lamu.graphs.expressions.interface import Environment, Expression
from lamu.graphs.statistics import Chance, Simplex, Statistics
from lamu.record import record
from lamu.typing import Array

__all__ = ["StickBreaking"]

S = TypeVar("S", bound=Statistics)


@record
class StickBreaking(Expression):
    r"""K probabilities of K − 1 breaks of a stick: each takes its part of what is left, the last takes the rest.

    \[ \log\pi_k = \log v_k + \sum_{j<k} \log(1 - v_j), \qquad v_K = 1 \]

    With \(v_k \sim \mathrm{Beta}(1, \alpha)\) it is a Dirichlet process, truncated at K.

    Attributes:
        breaks: v `[K − 1]`, variables with a `Beta` belief.

    Raises:
        TypeError: for anything that is not a plate of probabilities.

    Source: Sethuraman (1994); Blei & Jordan (2006), section 3.1.

    Examples:
        >>> from lamu import graphs
        >>> from lamu.families import Beta
        >>> graphs.StickBreaking(graphs.Program().sample("v", Beta(1.0, 2.0), plate=4)).shape
        (5,)
    """

    breaks: Any

    def __post_init__(self) -> None:
        given = self.breaks
        if isinstance(given, Expression) and (Chance not in given.kinds() or not given.shape):
            raise TypeError(
                f"the breaks of StickBreaking are {', '.join(sorted(given.names))}, {given.kinds()[0].words} of shape "
                f"{given.shape}; give a plate of variables with a Beta belief"
            )

    @property
    def names(self) -> frozenset[str]:
        """Those of the breaks."""
        return self.breaks.names

    @property
    def shape(self) -> tuple[int, ...]:
        """One more than the breaks."""
        return (*self.breaks.shape[:-1], self.breaks.shape[-1] + 1)

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns that of probabilities that sum to one."""
        return (Simplex,)

    def of_kind(self, kind: type[S], at: Environment) -> Any:
        """Returns (E) log π."""
        v = self.breaks.of_kind(Chance, at)
        none = jnp.zeros_like(v.log[..., :1])
        left = jnp.concatenate([none, jnp.cumsum(v.log_complement, axis=-1)], axis=-1)
        return Simplex(left + jnp.concatenate([v.log, none], axis=-1))

    def first(self, at: Environment) -> Array:
        """Raises a TypeError: probabilities are no mean."""
        raise TypeError("probabilities by StickBreaking are no mean of numbers; give them to Categorical")
