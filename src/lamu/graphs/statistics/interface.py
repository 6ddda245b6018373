"""What the statistics of every kind of variable can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from lamu.typing import Array

__all__ = ["KINDS", "Statistics", "kept", "symmetric"]

S = TypeVar("S", bound="Statistics")
KINDS: dict[str, type[Statistics]] = {}


class Statistics(ABC):
    """T of one kind of variable."""

    words: ClassVar[str]  # what such a variable is called in messages
    neutral: ClassVar[float] = 0.0  # a value of the support, which stands in the place of a missing one
    events: ClassVar[int] = 0  # how many trailing axes of a value belong to one variable
    # The support by the path below the variable, as `lamu.constraints` names it.
    constraint: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    @classmethod
    @abstractmethod
    def of(cls: type[S], value: Any) -> S:
        """Returns T of a value."""

    @classmethod
    @abstractmethod
    def zeros(cls: type[S], shape: tuple[int, ...], dtype: Any) -> S:
        """Returns the zero of the space of T, for values of a shape."""

    @abstractmethod
    def belief(self) -> Any:
        r"""Returns the belief whose natural parameters λ these are."""

    @abstractmethod
    def mode(self) -> Any:
        r"""Returns the x at which \(\langle\lambda, T(x)\rangle\) is largest, of natural parameters λ."""

    @classmethod
    def under(cls: type[S], belief: Any) -> S:
        r"""Returns \(E_q[T]\) of a belief."""
        return cls(*jax.tree.leaves(belief.expectation().values))

    def log_partition(self) -> Array:
        r"""Returns \(\log \int e^{\langle\lambda, T(x)\rangle}\, dx\) of natural parameters λ, a sum over members."""
        return self.belief().log_partition()


def symmetric(matrix: Array) -> Array:
    """Returns the symmetric part: what a gradient wrote in one half of a symmetric matrix belongs to both."""
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2.0


def kept(natural: Array) -> Array:
    """Returns the counts of a peak, at least so large that its logarithm is finite: a peak at the edge stays inside."""
    return jnp.maximum(natural, jnp.asarray(jnp.finfo(natural.dtype).tiny ** 0.25, natural.dtype))
