"""One of K categories."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.expressions import Constant, Environment, Expression
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Categories, Simplex
from lamu.record import record
from lamu.typing import Array

__all__ = ["Categorical", "CategoricalFactor"]


def Categorical(probabilities: Any) -> CategoricalFactor:
    r"""Returns the factor of one of K categories, \(\log p(z = k) = E \log\pi_k\).

    Data are whole numbers from 0 to K − 1.

    Args:
        probabilities: π `[..., K]`: probabilities that sum to one, or variables with a `Dirichlet` belief, also those
            that a category picks, `table[z]`.

    Raises:
        ValueError: for known probabilities that do not sum to one.
        TypeError: for an argument without a closed form.

    Source: Winn & Bishop (2005), section 2.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Categorical(jnp.full(4, 0.25)).shape
        (4,)
    """
    made = argument(probabilities, Simplex, "the probabilities of Categorical")
    if isinstance(made, Constant) and not np.allclose(np.sum(np.asarray(made.value), axis=-1), 1.0, atol=1e-5):
        sums = np.ravel(np.sum(np.asarray(made.value), axis=-1))
        raise ValueError(f"the probabilities sum to {sums[np.argmax(np.abs(sums - 1))]:g}; divide them by their sum")
    return CategoricalFactor(made)


@record
class CategoricalFactor(Factor):
    """One of K categories. Use `Categorical`."""

    probabilities: Any

    kind = Categories

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"probabilities": self.probabilities}

    @property
    def shape(self) -> tuple[int, ...] | None:
        # That of π.
        return self.probabilities.shape

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        # Returns the inner product of one-hot vectors and log π.
        log = self.probabilities.of_kind(Simplex, at).log
        products = x.probabilities * log
        return jnp.sum(products) if observed is None else summed(products, observed[..., None])

    def predicted(self, at: Environment) -> tuple[Array, Array]:
        # Returns the probabilities, and those of each category against the others.
        p = jax.nn.softmax(self.probabilities.of_kind(Simplex, at).log, axis=-1)
        return p, p * (1.0 - p)

    def statistics(self, value: Any) -> Categories:
        # Returns one-hot vectors of whole numbers.
        shape = self.shape
        assert shape is not None
        return Categories(jax.nn.one_hot(jnp.asarray(value).astype(jnp.int32), shape[-1], dtype=jnp.result_type(float)))

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for numbers that are no category.
        shape = self.shape
        assert shape is not None
        refuse_other_than_categories(name, value, observed, shape[-1])


def refuse_other_than_categories(name: str, value: np.ndarray, observed: np.ndarray, count: int) -> None:
    """Raises a ValueError for numbers that are no category."""
    bad = observed & ((value < 0) | (value != np.floor(value)) | (value >= count))
    if bad.any():
        first = value[bad][0]
        raise ValueError(
            f"{name} is {first:g} in a row; it has {count} categories, numbered from 0 to {count - 1}, and NaN "
            "where it is unknown"
        )
