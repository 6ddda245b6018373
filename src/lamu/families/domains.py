"""Where a parameter may lie: the check of a value, and a step that stays inside."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.operators import Dense, Diagonal
from lamu.operators.retraction import retracted
from lamu.typing import Array, Number

__all__ = ["Domain", "Positive", "PositiveDefinite", "Real"]


@dataclass(frozen=True)
class Domain(abc.ABC):
    """The set that holds one textbook parameter."""

    # How many trailing axes of the parameter belong to one member of the family; the others are batch axes.
    event: int = 0

    def fault(self, value: Any, belief: Any) -> str | None:
        """Returns what is wrong with a concrete value, as the end of a sentence; None for a sound or a traced one."""
        if isinstance(value, Tracer):
            return None
        return self._fault(np.asarray(value), belief)

    @abc.abstractmethod
    def retract(self, value: Array, direction: Array, rate: Number, belief: Any) -> Array:
        """Returns a point of the domain that agrees with `value + rate · direction` to the first order in the rate."""

    @abc.abstractmethod
    def _fault(self, value: np.ndarray, belief: Any) -> str | None: ...


@dataclass(frozen=True)
class Real(Domain):
    """Every finite number."""

    def retract(self, value: Array, direction: Array, rate: Number, belief: Any) -> Array:
        # Returns the straight step.
        return value + tree.cast(rate, value) * direction

    def _fault(self, value: np.ndarray, belief: Any) -> str | None:
        return _first(value, np.isfinite(value), "is not finite")


@dataclass(frozen=True)
class Positive(Domain):
    """Numbers above a floor, zero unless the belief says otherwise."""

    # With s the distance from the floor, the step is \(s + \rho d + \rho^2 d^2 / (2 s)\) and so never below \(s/2\).

    above: Callable[[Any], float] | None = None

    def floor(self, belief: Any) -> float:
        """Returns the number that the parameter must exceed."""
        return 0.0 if self.above is None else self.above(belief)

    def retract(self, value: Array, direction: Array, rate: Number, belief: Any) -> Array:
        # Returns the second-order retraction.
        floor = self.floor(belief)
        return floor + retracted(Diagonal(value - floor), Diagonal(direction), rate).values

    def _fault(self, value: np.ndarray, belief: Any) -> str | None:
        floor = self.floor(belief)
        sound = np.isfinite(value) & (value > floor)
        return _first(value, sound, "is not positive and finite" if floor == 0.0 else f"is not above {floor:g}")


@dataclass(frozen=True)
class PositiveDefinite(Domain):
    r"""Symmetric positive definite matrices; the step is \(S + \rho D + \tfrac12 \rho^2 D S^{-1} D\)."""

    event: int = 2

    def retract(self, value: Array, direction: Array, rate: Number, belief: Any) -> Array:
        # Returns the second-order retraction.
        symmetric = (direction + jnp.swapaxes(direction, -1, -2)) / 2.0
        member = lambda s, d: retracted(Dense(s), Dense(d), rate).matrix
        return jnp.vectorize(member, signature="(n,n),(n,n)->(n,n)")(value, symmetric)

    def _fault(self, value: np.ndarray, belief: Any) -> str | None:
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return f"is of shape {value.shape}, and no square matrix"
        if not np.all(np.isfinite(value)):
            return _first(value, np.isfinite(value), "is not finite")
        size = np.max(np.abs(value))
        away = np.abs(value - np.swapaxes(value, -1, -2))
        if np.max(away) > 1e3 * np.finfo(value.dtype).eps * size:
            at = np.unravel_index(np.argmax(away), away.shape)
            other = (*at[:-2], at[-1], at[-2])
            return f"is not symmetric: {value[at]:.6g} at {_place(at)}, {value[other]:.6g} at {_place(other)}"
        try:
            np.linalg.cholesky(value.astype(np.float64))
        except np.linalg.LinAlgError:
            least = np.min(np.linalg.eigvalsh(value.astype(np.float64)))
            return f"is not positive definite: its least eigenvalue is {least:.6g}"
        return None


def _first(value: np.ndarray, sound: Any, fault: str) -> str | None:
    """Returns the sentence about the first unsound entry."""
    if np.all(sound):
        return None
    at = tuple(np.argwhere(np.logical_not(sound))[0])
    where = f"has {value[at]:.6g} at {_place(at)}, which" if at else f"{value[()]:.6g}"
    return f"{where} {fault}"


def _place(index: Any) -> str:
    return f"[{', '.join(str(i) for i in index)}]"
