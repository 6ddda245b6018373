r"""A chain of categories \(z_1, \ldots, z_T\); its log-partition is the forward algorithm of a hidden Markov model."""

# | on paper | in code |
# |---|---|
# | \(p(z_1 = k) = \pi_k,\; p(z_{t+1} = k \mid z_t = j) = P_t(j, k)\) | `MarkovChain(log π, log P)` |
# | \(T(z) = (z_{tj},\; z_{tj} z_{t+1,k}),\; j, k < K\) | `q.statistics(z)` |
# | \(A(\lambda)\): sums one time after the other out | `q.log_partition()` |
# | \(\mu = \nabla A(\lambda)\): forward–backward | `q.expectation().values` |
#
# A category is a one-hot vector. As `Categorical`, the family is minimal: λ and μ leave the last category out, of every
# \(z_t\) and of both sides of every pair. The evidence of an observation, \(\log p(y_t \mid z_t = k)\), adds to λ at t
# its difference from the last category's, and the last category's is a constant of the bound.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.families.categorical import Categorical
from lamu.families.domains import Domain, Real
from lamu.families.exponential import ExponentialFamily, apart, sample_leaves, total
from lamu.families.series import checked_lengths, full_lengths, times
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["MarkovChain"]


@record
class MarkovChain(ExponentialFamily):
    r"""A Markov chain of T categories of K, θ one-hot vectors `[..., T, K]`, or a batch of such series.

    \[ \log q(z) = \sum_t \sum_{j<K} \lambda_{tj} z_{tj} + \sum_{t<T} \sum_{j,k<K} \lambda_{tjk} z_{tj} z_{t+1,k}
       - A(\lambda) \]
    \[ \beta_T = 0, \qquad \beta_t(j) = \log \sum_k \exp\big( \lambda_{t+1,k} + \lambda_{tjk} + \beta_{t+1}(k) \big),
       \qquad A = \log \sum_j \exp\big( \lambda_{1j} + \beta_1(j) \big) \]

    with \(\lambda = 0\) wherever j or k is the last category. Every λ is a belief. T steps of K × K
    numbers, one after the other; `ParallelMarkovChain` takes log₂ T rounds.

    Attributes:
        initial: log probabilities of the first category `[..., K]` up to a constant, or a tree of such arrays.
        transition: log probabilities of the next category given the one before `[..., T − 1, K, K]`, rows up to a
            constant.
        length: how many of the T times each series has, `[...]`, or None for all. The times after it are padding: they
            count for nothing in densities, entropies and divergences, and their statistics are zero.

    Raises:
        ValueError: for logits that are not finite, shapes of different K, or a length beyond T.

    Source: Rabiner (1989), "A tutorial on hidden Markov models", sections III A and B.

    Examples:
        >>> from lamu.families import MarkovChain
        >>> chain = MarkovChain.homogeneous(3, [1.0, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        Traceback (most recent call last):
        ...
        ValueError: the probabilities sum to 1.5 and not to one; divide them by their sum
        >>> chain = MarkovChain.homogeneous(3, [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> [round(float(p), 4) for p in chain.mean[:, 0]]
        [0.5, 0.55, 0.585]
    """

    initial: Params
    transition: Params
    length: Any = None

    domains: ClassVar[Mapping[str, Domain]] = {"initial": Real(event=1), "transition": Real(event=3)}
    events: ClassVar[tuple[int, ...]] = (2, 3)
    unbounded: ClassVar[bool] = True

    @classmethod
    def homogeneous(cls, steps: int, initial: Any, transition: Any) -> MarkovChain:
        """Returns a chain with the same probabilities at every step.

        Args:
            steps: T.
            initial: the probabilities of the first category `[..., K]`.
            transition: those of the next category given the one before `[..., K, K]`.

        Raises:
            ValueError: if a probability is not positive, or if they do not sum to one.
        """
        first = Categorical.from_probabilities(jnp.asarray(initial)).logits
        matrix = Categorical.from_probabilities(jnp.asarray(transition)).logits
        return cls(first, jnp.repeat(matrix[..., None, :, :], steps - 1, axis=-3))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is not None:
            object.__setattr__(self, "length", checked_lengths(self.length, self._series, type(self).__name__))

    def _validate(self) -> None:
        for first, matrix in zip(jax.tree.leaves(self.initial), jax.tree.leaves(self.transition), strict=True):
            K = first.shape[-1]
            if matrix.shape[-2:] != (K, K):
                raise ValueError(
                    f"MarkovChain: initial has {K} categories and transition ends in the shape {matrix.shape[-2:]}; "
                    f"give log probabilities [..., T − 1, {K}, {K}]"
                )
        super()._validate()

    @property
    def given(self) -> Any:
        return self.length

    def to_natural(self) -> Any:
        """Returns the log probabilities less those of the last category, of every time and of every pair."""

        def leaf(first: Array, matrix: Array, length: Array) -> tuple[Array, Array]:
            matrix = jnp.where(_pairs(length, matrix), jax.nn.log_softmax(matrix, axis=-1), 0.0)
            # The difference that the category before makes, and the one after, each beside the last.
            before, after = matrix[..., -1], matrix[..., -1, :]
            single = jnp.zeros((*matrix.shape[:-3], matrix.shape[-3] + 1, matrix.shape[-1]), matrix.dtype)
            single = single.at[..., 0, :].add(first).at[..., :-1, :].add(before).at[..., 1:, :].add(after)
            pair = matrix - before[..., :, None] - after[..., None, :] + matrix[..., -1:, -1:]
            return (single - single[..., -1:])[..., :-1], pair[..., :-1, :-1]

        return apart(leaf, 2, self.initial, self.transition, self._lengths)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> MarkovChain:
        """Returns the belief with these parameters, by one elimination."""

        def leaf(single: Array, pair: Array, length: Array) -> tuple[Array, Array]:
            first, matrix = cls.eliminate(*_complete(single, pair, length))
            return jax.nn.log_softmax(first, axis=-1), matrix

        initial, transition = apart(leaf, 2, *values, _given(values, given))
        return cls(initial, transition, given)

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> MarkovChain:
        """Returns the belief with these probabilities of all categories and pairs but the last."""

        def leaf(single: Array, pair: Array, length: Array) -> tuple[Array, Array]:
            first = jnp.concatenate([single, 1.0 - jnp.sum(single, axis=-1, keepdims=True)], axis=-1)
            before, after = first[..., :-1, :], first[..., 1:, :]
            with_last = jnp.concatenate([pair, before[..., :-1, None] - jnp.sum(pair, axis=-1, keepdims=True)], axis=-1)
            last = after[..., None, :] - jnp.sum(with_last, axis=-2, keepdims=True)
            joint = jnp.where(_pairs(length, last), jnp.concatenate([with_last, last], axis=-2), 1.0)
            return jnp.log(first[..., 0, :]), jnp.log(joint)

        initial, transition = apart(leaf, 2, *values, _given(values, given))
        return cls(initial, transition, given)

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns the log of the sum over all sequences, by the recursion."""

        def leaf(single: Array, pair: Array, length: Array) -> Array:
            first, _ = cls.eliminate(*_complete(single, pair, length))
            padding = jnp.sum(~times(length, single.shape[-2]), axis=-1).astype(single.dtype)
            return jax.nn.logsumexp(first, axis=-1) - padding * jnp.log(first.shape[-1])

        return total(leaf, *values, _given(values, given))

    @staticmethod
    def eliminate(single: Array, pair: Array) -> tuple[Array, Array]:
        """Returns the log weights of the first category, and the log probabilities of the transitions.

        Args:
            single: λ of every time `[..., T, K]`, with zeros for the last category.
            pair: λ of every pair `[..., T − 1, K, K]`, likewise.
        """

        def series(single: Array, pair: Array) -> tuple[Array, Array]:
            def step(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
                joint = now[1] + after[None, :]
                beta = jax.nn.logsumexp(joint, axis=-1)
                return now[0] + beta, joint - beta[:, None]

            return jax.lax.scan(step, single[-1], (single[:-1], pair), reverse=True)

        return jnp.vectorize(series, signature="(t,k),(s,k,k)->(k),(s,k,k)")(single, pair)

    @staticmethod
    def unroll(first: Array, transition: Array) -> Array:
        """Returns the probabilities of all times `[..., T, K]`.

        Args:
            first: the probabilities of the first category `[..., K]`.
            transition: those of the next given the one before `[..., T − 1, K, K]`.
        """

        def series(first: Array, transition: Array) -> Array:
            def step(p: Array, P: Array) -> tuple[Array, Array]:
                p = p @ P
                return p, p

            return jnp.concatenate([first[None], jax.lax.scan(step, first, transition)[1]])

        return jnp.vectorize(series, signature="(k),(s,k,k)->(t,k)")(first, transition)

    @staticmethod
    def follow(start: Array, maps: Array) -> Array:
        """Returns the numbers of the categories `[..., T]` that maps lead to, one after the other.

        Args:
            start: the number of the first category `[...]`.
            maps: the next category for each one before `[..., T − 1, K]`.
        """

        def series(start: Array, maps: Array) -> Array:
            def step(z: Array, after: Array) -> tuple[Array, Array]:
                return after[z], after[z]

            return jnp.concatenate([start[None], jax.lax.scan(step, start, maps)[1]])

        return jnp.vectorize(series, signature="(),(s,k)->(t)")(start, maps)

    def statistics(self, theta: Params) -> Any:
        """Returns the one-hot vectors, and the products of neighbours, without their last entries."""

        def leaf(z: Array, length: Array) -> tuple[Array, Array]:
            live = times(length, z.shape[-2])[..., None]
            z = jnp.where(live, z, 0.0)[..., :-1]
            return z, z[..., :-1, :, None] * z[..., 1:, None, :]

        return apart(leaf, 2, theta, self._lengths)

    @property
    def mean(self) -> Params:
        """The probabilities of all times `[..., T, K]`, which is the mean of one-hot vectors; zeros in the padding."""

        def leaf(first: Array, matrix: Array, length: Array) -> Array:
            p = self.unroll(jax.nn.softmax(first, axis=-1), jax.nn.softmax(matrix, axis=-1))
            return jnp.where(times(length, p.shape[-2])[..., None], p, 0.0)

        return jax.tree.map(leaf, self.initial, self.transition, self._lengths)

    def sample(self, key: RandomKey) -> Params:
        """Returns one-hot vectors `[..., T, K]`, as floating numbers, with zeros in the padding."""

        def draw(k: RandomKey, first: Array, matrix: Array, length: Array) -> Array:
            steps, K = matrix.shape[-3] + 1, first.shape[-1]
            # The largest logit with Gumbel noise is a draw of the category.
            noise = jax.random.gumbel(k, (*first.shape[:-1], steps, K), first.dtype)
            start = jnp.argmax(noise[..., 0, :] + first, axis=-1)
            path = self.follow(start, jnp.argmax(noise[..., 1:, None, :] + matrix, axis=-1))
            z = jax.nn.one_hot(path, K, dtype=first.dtype)
            return jnp.where(times(length, steps)[..., None], z, 0.0)

        return sample_leaves(key, draw, self.initial, self.transition, self._lengths)

    @property
    def _series(self) -> Any:
        return jax.tree.map(lambda P: jnp.zeros((*P.shape[:-3], P.shape[-3] + 1), P.dtype), self.transition)

    @property
    def _lengths(self) -> Any:
        return full_lengths(self._series) if self.length is None else self.length


def _given(values: Any, given: Any) -> Any:
    return full_lengths(jax.tree.map(lambda leaf: leaf[..., 0], values[0])) if given is None else given


def _pairs(length: Array, pairs: Array) -> Array:
    """Returns which of the pairs of neighbours are not padding, `[..., T − 1, 1, 1]`."""
    return times(length - 1, pairs.shape[-3])[..., None, None]


def _complete(single: Array, pair: Array, length: Array) -> tuple[Array, Array]:
    """Returns λ with the zeros of the last category, and zeros in the padding."""
    live = times(length, single.shape[-2])[..., None]
    single = jnp.where(live, single, 0.0)
    pair = jnp.where(_pairs(length, pair), pair, 0.0)
    none = [(0, 0)] * (single.ndim - 1)
    return jnp.pad(single, [*none, (0, 1)]), jnp.pad(pair, [*none, (0, 1), (0, 1)])
