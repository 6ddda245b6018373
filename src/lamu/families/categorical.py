"""Beliefs about which of K things is so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.families.domains import Domain, Real
from lamu.families.exponential import ExponentialFamily, sample_leaves, total
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Categorical"]


@record
class Categorical(ExponentialFamily):
    r"""One of K categories, θ a one-hot vector: \(T = (\theta_1, \ldots, \theta_{K-1})\), minimal.

    \[ \lambda_k = \log \pi_k / \pi_K, \qquad A = \log\Big(1 + \sum_{k<K} e^{\lambda_k}\Big), \qquad \mu_k = \pi_k \]

    Attributes:
        logits: log probabilities `[..., K]` up to a constant a vector, or a tree of them.

    Examples:
        >>> from lamu.families import Categorical
        >>> belief = Categorical.from_probabilities([0.5, 0.25, 0.25])
        >>> belief.expectation().values.tolist(), belief.mean.tolist()  # μ leaves the last one out
        ([0.5, 0.25], [0.5, 0.25, 0.25])
    """

    logits: Params

    domains: ClassVar[Mapping[str, Domain]] = {"logits": Real(event=1)}
    events: ClassVar[tuple[int, ...]] = (1,)
    unbounded: ClassVar[bool] = True

    @classmethod
    def from_probabilities(cls, probabilities: Any) -> Categorical:
        """Returns the belief with the given probabilities.

        Args:
            probabilities: `[..., K]`, or a tree of them.

        Raises:
            ValueError: if one is not positive, or a vector does not sum to one.
        """

        def logarithm(leaf: Any) -> Array:
            if not isinstance(leaf, Tracer):
                sums, least = np.sum(np.asarray(leaf), axis=-1), np.min(np.asarray(leaf))
                if not least > 0:
                    raise ValueError(f"the probability {least:.6g} is not positive; a category that cannot be is none")
                if not np.allclose(sums, 1.0, rtol=0.0, atol=1e-5):
                    worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1.0))]
                    raise ValueError(f"the probabilities sum to {worst:.6g} and not to one; divide them by their sum")
            return jnp.log(jnp.asarray(leaf))

        return cls(jax.tree.map(logarithm, probabilities, is_leaf=lambda leaf: isinstance(leaf, list)))

    def to_natural(self) -> Any:
        """Returns the logits relative to the last category's."""
        return jax.tree.map(lambda logits: logits[..., :-1] - logits[..., -1:], self.logits)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Categorical:
        """Returns the belief whose last logit is zero."""
        return cls(jax.tree.map(_with_zero, values))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Categorical:
        """Returns the belief with these probabilities of all categories but the last."""
        whole = lambda mu: jnp.concatenate([mu, 1.0 - jnp.sum(mu, axis=-1, keepdims=True)], axis=-1)
        return cls(jax.tree.map(lambda mu: jnp.log(whole(mu)), values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns the log of the sum of exponentials, the last one of zero."""
        return total(lambda natural: jax.nn.logsumexp(_with_zero(natural), axis=-1), values)

    def statistics(self, theta: Params) -> Any:
        """Returns the one-hot vector without its last entry."""
        return jax.tree.map(lambda one_hot: one_hot[..., :-1], theta)

    @property
    def mean(self) -> Params:
        """The probabilities `[..., K]`, which is the mean of one-hot vectors."""
        return jax.tree.map(lambda logits: jax.nn.softmax(logits, axis=-1), self.logits)

    def sample(self, key: RandomKey) -> Params:
        """Returns one-hot vectors `[..., K]`, as floating numbers."""

        def draw(k: RandomKey, logits: Array) -> Array:
            return jax.nn.one_hot(jax.random.categorical(k, logits), logits.shape[-1], dtype=logits.dtype)

        return sample_leaves(key, draw, self.logits)


def _with_zero(natural: Array) -> Array:
    return jnp.concatenate([natural, jnp.zeros((*natural.shape[:-1], 1), natural.dtype)], axis=-1)
