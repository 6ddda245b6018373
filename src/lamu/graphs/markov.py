"""A series of categories, each drawn given the one before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.categorical import refuse_other_than_categories
from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor, argument
from lamu.graphs.scans import associative
from lamu.graphs.statistics import ParallelStates, Simplex, States
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Markov", "MarkovFactor"]


def Markov(steps: int, initial: Any, transition: Any, scan: str = "sequential") -> MarkovFactor:
    r"""Returns the factor of a series of T categories, as one variable.

    \[ \log p(z) = E\log\pi_{z_1} + \sum_{t<T} E\log P_{z_t z_{t+1}} \]

    Its belief keeps all times together: it leaves a row by the forward recursion, whose gradient is forward–backward.
    As an index, `part[z]`, it picks a member at every time. NaN in an observation of it, such as y of
    `graphs.Normal(part[z], precision=noise)`, is a missing time; a series that is in the data itself has no holes.

    Args:
        steps: T.
        initial: π `[K]`, probabilities, or a variable with a `Dirichlet` belief.
        transition: P `[K, K]`, probabilities of the next category given the one before, or a plate of variables with a
            `Dirichlet` belief.
        scan: "sequential", T steps one after the other, or "associative", log₂ T rounds of K times the work, for
            accelerators (Hassan, Särkkä & García-Fernández, 2021).

    Raises:
        TypeError: for an argument without a closed form.
        ValueError: for fewer than two steps, shapes that do not fit, or another scan.

    Source: Rabiner (1989), section III; Beal (2003), section 3.4.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Markov(50, jnp.full(3, 1 / 3), jnp.full((3, 3), 1 / 3)).shape
        (50, 3)
    """
    if steps < 2:
        raise ValueError(f"steps={steps!r} make no series; give at least two")
    first = argument(initial, Simplex, "the initial of Markov")
    then = argument(transition, Simplex, "the transition of Markov")
    if first.shape is not None and then.shape is not None and then.shape != (*first.shape, *first.shape):
        raise ValueError(f"initial has the shape {first.shape} and transition {then.shape}; give [K] and [K, K]")
    return MarkovFactor(first, then, steps, associative(scan))


@record
class MarkovFactor(Factor):
    """A series of categories. Use `Markov`."""

    initial: Any
    transition: Any  # P
    steps: int = static()  # T
    is_associative: bool = static(default=False)  # whether the recursions are associative scans

    misses = False

    @property
    def kind(self) -> type[States]:
        """The statistics of a series."""
        return ParallelStates if self.is_associative else States

    @property
    def arguments(self) -> dict[str, Expression]:
        # Initial probabilities and those of a step.
        return {"initial": self.initial, "transition": self.transition}

    @property
    def shape(self) -> tuple[int, ...] | None:
        # Times and categories.
        return None if self.initial.shape is None else (self.steps, self.initial.shape[-1])

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        # Returns the log probability of the whole series.
        initial, transition = (part.of_kind(Simplex, at).log for part in (self.initial, self.transition))
        return jnp.sum(initial * x.probabilities[0]) + jnp.sum(transition * jnp.sum(x.pairs, axis=0))

    def statistics(self, value: Any) -> States:
        # Returns one-hot vectors of whole numbers, and their pairs.
        assert self.shape is not None
        return self.kind.of(jax.nn.one_hot(value, self.shape[-1], dtype=jnp.result_type(float)))

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for numbers that are no category.
        assert self.shape is not None
        refuse_other_than_categories(name, value, observed, self.shape[-1])
