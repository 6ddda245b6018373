"""Events that are so or not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Bits, Chance
from lamu.record import record
from lamu.typing import Array

__all__ = ["Bernoulli", "BernoulliFactor"]


def Bernoulli(probability: Any) -> BernoulliFactor:
    r"""Returns the factor of zeros and ones, \(x\, E\log p + (1 - x)\, E\log(1 - p)\).

    They are observed, or latent variables of a row: those that no network reads leave in closed form or take turns, and
    others by `lamu.latent.AmortisedBernoulli`.

    Args:
        probability: p: numbers, or variables with a `Beta` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Bishop (2006), section 9.3.3.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Bernoulli(0.5).shape
        ()
    """
    return BernoulliFactor(argument(probability, Chance, "the probability of Bernoulli"))


@record
class BernoulliFactor(Factor):
    """Zeros and ones. Use `Bernoulli`."""

    probability: Any  # p

    kind = Bits

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"probability": self.probability}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.probability.shape

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        p = self.probability.of_kind(Chance, at)
        value = jnp.asarray(x.value, jnp.result_type(p.log))
        return summed(value * p.log + (1.0 - value) * p.log_complement, observed)

    def predicted(self, at: Environment) -> tuple[Array, Array]:
        # Returns the probability, and p(1 − p).
        p = self.probability.of_kind(Chance, at)
        chance = jax.nn.sigmoid(p.log - p.log_complement)
        return chance, chance * (1.0 - chance)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for anything but zeros and ones.
        refuse_other_than_events(name, value, observed)


def refuse_other_than_events(name: str, value: np.ndarray, observed: np.ndarray) -> None:
    """Raises a ValueError for anything but zeros and ones."""
    bad = observed & (value != 0) & (value != 1)
    if bad.any():
        raise ValueError(f"{name} is {value[bad][0]:g} in a row; give zeros and ones")
