"""A predictive of classes in closed form: their probabilities, and the epistemic part of their entropy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.predictives.chunking import draw_in_chunks, row_keys
from lamu.predictives.interface import Predictive
from lamu.record import record, static
from lamu.supports import Classes, OrderedClasses, Support, TwoClasses
from lamu.typing import Array, RandomKey

__all__ = ["ClassProbabilities"]


@record
class ClassProbabilities(Predictive):
    r"""\(p(y^* = k)\) for every row, and the entropy that is expected once the parameters are known.

    Attributes:
        log_probabilities: logarithms of the averaged probabilities `[N, K]`, two columns where the target is binary.
        expected_entropy: \(E_q\, H[y \mid \theta]\) in nats, `[N]`.
        binary: whether the target is 0 or 1, and the mean the probability of one.
        ordered: whether the classes have an order.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import ClassProbabilities
        >>> pred = ClassProbabilities(jnp.log(jnp.array([[0.25, 0.75]])), jnp.array([0.5]), binary=True)
        >>> pred.mean.tolist()
        [0.75]
    """

    log_probabilities: Array
    expected_entropy: Array
    binary: bool = static(default=False)
    ordered: bool = static(default=False)

    @property
    def support(self) -> Support:
        """That of as many classes as there are columns."""
        if self.binary:
            return TwoClasses()
        number = self.log_probabilities.shape[1]
        return OrderedClasses(number) if self.ordered else Classes(number)

    @property
    def mean(self) -> Array:
        probabilities = jnp.exp(self.log_probabilities)
        return probabilities[:, 1] if self.binary else probabilities

    @property
    def variance(self) -> Array:
        """The variance p (1 − p) of every class."""
        return self.mean * (1 - self.mean)

    @property
    def aleatoric(self) -> Array:
        """The expected entropy in nats, no more than the whole."""
        return jnp.minimum(self.expected_entropy, self._entropy)

    @property
    def epistemic(self) -> Array:
        return self._entropy - self.aleatoric

    def log_prob(self, y: Any) -> Array:
        index = jnp.asarray(y).astype(jnp.int32).reshape(-1, 1)
        return jnp.take_along_axis(self.log_probabilities, index, axis=1)[:, 0]

    def cdf(self, y: Any) -> Array:
        """Raises a TypeError: a class has a probability, not a distribution function."""
        raise TypeError("classes have no cdf, which is for regression; use mean, the probabilities of the classes")

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws of all targets, independent between rows."""
        rows = self.log_probabilities.shape[0]

        def draw(key: RandomKey) -> Array:
            return jax.vmap(jax.random.categorical)(row_keys(key, rows, first), self.log_probabilities)

        return draw_in_chunks(draw, jax.random.split(key, n))

    @property
    def _entropy(self) -> Array:
        probabilities = jnp.exp(self.log_probabilities)
        return -jnp.sum(jnp.where(probabilities > 0, probabilities * self.log_probabilities, 0.0), axis=1)
