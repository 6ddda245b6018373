"""Chains: Gaussian and categorical series, whose log-partition is a forward recursion, in steps or as a scan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import solve_triangular

from lamu.families.exponential import (
    Domain,
    ExponentialFamily,
    Finite,
    PositiveDefinite,
    map_unzipped,
    sample_leaves,
    symmetric,
    total,
)
from lamu.families.normal_wishart import MultivariateNormal, logdet, outer, product, swept, transpose
from lamu.families.probabilities import Categorical
from lamu.record import record
from lamu.typing import Array, Belief, Numeric, Params, PyTree, RandomKey, Statistics

__all__ = [
    "GaussianChain",
    "MarkovChain",
    "ParallelGaussianChain",
    "ParallelMarkovChain",
    "checked_lengths",
    "full_lengths",
    "times",
]


def times(length: Array, steps: int) -> Array:
    """Returns which of the times belong to each series, `[..., steps]`."""
    shape = (*length.shape, steps)
    return jax.lax.broadcasted_iota(length.dtype, shape, length.ndim) < length[..., None]


def full_lengths(series: Params) -> Params:
    """Returns the lengths of series without padding, leaf by leaf."""
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape[:-1], leaf.shape[-1], jnp.int32), series)


def _lengths_of(values: Statistics, given: Params) -> Params:
    """Returns the given lengths, or those of λ or μ without padding."""
    return full_lengths(jax.tree.map(lambda leaf: leaf[..., 0], values[0])) if given is None else given


def checked_lengths(length: Params, series: Params, name: str) -> Params:
    """Returns given lengths as a tree of integers."""
    single = jax.tree.structure(0) == jax.tree.structure(length)
    trees = jax.tree.map(lambda _: length, series) if single else length

    def leaf(count: Numeric, array: Array) -> Array:
        T = array.shape[-1]
        if not isinstance(count, Tracer):
            counts = np.asarray(count)
            valid = (counts >= 1) & (counts <= T) & (counts == np.floor(counts))
            if not np.all(valid):
                raise ValueError(
                    f"{name}: the length {counts[~valid].flat[0]:g} is not a whole number from 1 to {T}, the number of "
                    "times with padding; give the number of times that each series has"
                )
        return jnp.broadcast_to(jnp.asarray(count, jnp.int32), array.shape[:-1])

    return jax.tree.map(leaf, trees, series)


# | on paper | in code |
# |---|---|
# | \(x_1 \sim N(b_1, Q_1^{-1}),\; x_{t+1} \mid x_t \sim N(A_t x_t + b_{t+1}, Q_{t+1}^{-1})\) | `GaussianChain(b, A, Q)`
# | | \(T(x) = (x_t,\; x_t x_t^\top,\; x_t x_{t+1}^\top)\) | `q.statistics(x)` |
# | \(\lambda = (h_t,\; -\tfrac12 P_{t,t},\; -P_{t,t+1})\), P the precision of the whole series | `q.natural().values` |
# | \(A(\lambda)\): eliminates one time after the other | `q.log_partition()` |
# | \(\mu = \nabla A(\lambda)\): the smoother | `q.expectation().values` |
#
# Information about \(x_t\) adds to λ at t: an observation \(y_t \sim N(C x_t, R)\) adds \(C^\top R^{-1} y_t\) to
# \(h_t\) and \(-\tfrac12 C^\top R^{-1} C\) to the block next to it, and a missing one adds nothing.
#
# **The recursion.** It integrates \(x_T\) out, then \(x_{T-1}\), and so on to the first, which leaves the precision and
# the linear term of \(x_t\) given the previous time,
#
# \[ Q_t = P_{t,t} - P_{t,t+1} Q_{t+1}^{-1} P_{t+1,t}, \qquad g_t = h_t - P_{t,t+1} Q_{t+1}^{-1} g_{t+1}, \qquad
#    A = \sum_t \tfrac12 g_t^\top Q_t^{-1} g_t - \tfrac12 \log\det Q_t + \tfrac d2 \log 2\pi \]
#
# and so the textbook parameters too. A is differentiated automatically: the backward pass is the smoother's other half.


class SeriesFamily(ExponentialFamily):
    """Base of families of padded series, with lengths as known arguments of λ and μ."""

    length: Params

    @property
    def series(self) -> Params:
        """An array `[..., T]` for each leaf, for shapes."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is not None:
            object.__setattr__(self, "length", checked_lengths(self.length, self.series, type(self).__name__))

    @property
    def given(self) -> Params:
        return self.length

    @property
    def _lengths(self) -> Params:
        return full_lengths(self.series) if self.length is None else self.length


@record
class GaussianChain(SeriesFamily):
    r"""A Gaussian Markov chain of T vectors of d numbers, or a batch of such series.

    \[ x_1 \sim N(b_1, Q_1^{-1}), \qquad x_{t+1} \mid x_t \sim N(A_t x_t + b_{t+1},\; Q_{t+1}^{-1}) \]

    The precision of the whole series is block tridiagonal, and every such Gaussian is one. It takes T sequential steps
    of d × d matrices; `ParallelGaussianChain` takes log₂ T rounds.

    Attributes:
        offset: b `[..., T, d]`, or a tree of such arrays.
        transition: A `[..., T − 1, d, d]`.
        precision: Q `[..., T, d, d]`, symmetric positive definite.
        length: number of the T times of each series, `[...]`, or None for all. The times after it are padding: they
            do not count in densities, entropies and divergences, and their statistics are zero.

    Raises:
        ValueError: for a precision that is not positive definite, shapes of different T or d, or a length beyond T.

    Source: Wainwright & Jordan (2008), section 2.4, for the family; Rauch, Tung & Striebel (1965) for the smoother.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import GaussianChain
        >>> walk = GaussianChain.homogeneous(3, jnp.zeros(1), jnp.eye(1), jnp.eye(1), jnp.eye(1))
        >>> walk.covariance[:, 0, 0].tolist()  # of a random walk
        [1.0, 2.0, 3.0]
        >>> linear, diagonal, coupling = walk.natural().values
        >>> posterior = walk.with_natural((linear.at[2].add(2.0), diagonal.at[2].add(-0.5), coupling))  # x₃ + ε = 2
        >>> [round(float(m), 4) for m in posterior.mean[:, 0]]
        [0.5, 1.0, 1.5]
    """

    offset: Params
    transition: Params
    precision: Params
    length: Params = None

    domains: ClassVar[Mapping[str, Domain]] = {
        "offset": Finite(event=2),
        "transition": Finite(event=3),
        "precision": PositiveDefinite(event=3),
    }
    events: ClassVar[tuple[int, ...]] = (2, 3, 3)
    is_normal = True

    @classmethod
    def homogeneous(
        cls, steps: int, mean: Params, precision: Params, transition: Params, step_precision: Params
    ) -> GaussianChain:
        """Returns a chain with the same transition at every time.

        Args:
            steps: T.
            mean: mean of the first vector `[..., d]`.
            precision: precision of the first vector `[..., d, d]`.
            transition: the matrix A `[..., d, d]` of every step.
            step_precision: the precision `[..., d, d]` of a vector given the previous one.
        """
        mean, precision = jnp.asarray(mean), jnp.asarray(precision)
        later = jnp.zeros((*mean.shape[:-1], steps - 1, mean.shape[-1]), mean.dtype)
        over_steps = lambda matrix: jnp.repeat(jnp.asarray(matrix)[..., None, :, :], steps - 1, axis=-3)
        return cls(
            jnp.concatenate([mean[..., None, :], later], axis=-2),
            over_steps(transition),
            jnp.concatenate([precision[..., None, :, :], over_steps(step_precision)], axis=-3),
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is None:
            return
        # Padding consists of independent standard normal numbers.
        fields = map_unzipped(_padded, 3, self.offset, self.transition, self.precision, self.length)
        for name, value in zip(("offset", "transition", "precision"), fields, strict=True):
            object.__setattr__(self, name, value)

    def _validate(self) -> None:
        for b, A, Q in zip(*map(jax.tree.leaves, (self.offset, self.transition, self.precision)), strict=True):
            T, d = b.shape[-2:] if b.ndim > 1 else (0, 0)
            if T == 0 or A.shape[-3:] != (T - 1, d, d) or Q.shape[-3:] != (T, d, d):
                raise ValueError(
                    f"{type(self).__name__}: offset, transition and precision end in the shapes {b.shape[-2:]}, "
                    f"{A.shape[-3:]} and {Q.shape[-3:]}; give (T, d), (T − 1, d, d) and (T, d, d) with T at least one"
                )
        super()._validate()

    def to_natural(self) -> Statistics:
        """Returns the linear terms, the diagonal blocks of −P/2 and the off-diagonal blocks of −P."""

        def leaf(b: Array, A: Array, Q: Array, length: Array) -> tuple[Array, Array, Array]:
            coupling = transpose(A) @ Q[..., 1:, :, :]
            linear = product(Q, b).at[..., :-1, :].add(-product(coupling, b[..., 1:, :]))
            diagonal = Q.at[..., :-1, :, :].add(coupling @ A)
            return _without_padding(linear, -diagonal / 2.0, coupling, length)

        return map_unzipped(leaf, 3, self.offset, self.transition, self.precision, self._lengths)

    @classmethod
    def from_natural(cls, values: Statistics, given: Params) -> Belief:
        """Returns the belief with these parameters, by one elimination."""

        def leaf(linear: Array, diagonal: Array, coupling: Array, length: Array) -> tuple[Array, Array, Array]:
            g, Q = cls._eliminated(linear, diagonal, coupling, length)
            # Two calls of LAPACK for all times, neither of which waits for the other, may wait for ever on two cores.
            inverse = -swept(symmetric(Q))[0]
            return product(inverse, g), inverse[..., 1:, :, :] @ transpose(coupling), Q

        b, A, Q = map_unzipped(leaf, 3, *values, _lengths_of(values, given))
        return cls(b, A, Q, given)

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> Belief:
        """Returns the belief with these moments, by the regression of each vector on the previous one."""

        def leaf(m: Array, second: Array, cross: Array, length: Array) -> tuple[Array, Array, Array]:
            padding = ~times(length, m.shape[-2])
            about_mean = symmetric(second - outer(m))
            covariance = jnp.where(padding[..., None, None], _identities(about_mean), about_mean)
            cross = cross - m[..., :-1, :, None] * m[..., 1:, None, :]
            A = transpose(jnp.linalg.solve(covariance[..., :-1, :, :], cross))
            remaining = covariance.at[..., 1:, :, :].add(-A @ cross)
            b = m.at[..., 1:, :].add(-product(A, m[..., :-1, :]))
            return b, A, symmetric(jnp.linalg.inv(symmetric(remaining)))

        b, A, Q = map_unzipped(leaf, 3, *values, _lengths_of(values, given))
        return cls(b, A, Q, given)

    @classmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        r"""Returns A, the sum of the log-partitions of every \(x_t\) given the previous time."""

        def leaf(linear: Array, diagonal: Array, coupling: Array, length: Array) -> Array:
            padding = jnp.sum(~times(length, linear.shape[-2])) * linear.shape[-1]
            g, Q = cls._eliminated(linear, diagonal, coupling, length)
            constant = padding.astype(g.dtype) * (math.log(2.0 * math.pi) / 2.0)
            return MultivariateNormal.partition((g, -Q / 2.0), ()) - constant

        return total(leaf, *values, _lengths_of(values, given))

    @classmethod
    def _eliminated(cls, linear: Array, diagonal: Array, coupling: Array, length: Array) -> tuple[Array, Array]:
        linear, diagonal, coupling = _filled(linear, diagonal, coupling, length)
        return cls.eliminate(linear, -2.0 * symmetric(diagonal), coupling)

    @staticmethod
    def eliminate(linear: Array, diagonal: Array, coupling: Array) -> tuple[Array, Array]:
        r"""Returns the linear terms g and precisions Q of every vector given the previous one.

        Args:
            linear: h `[..., T, d]`.
            diagonal: the blocks \(P_{t,t}\) `[..., T, d, d]`.
            coupling: the blocks \(-P_{t,t+1}\) `[..., T − 1, d, d]`.
        """

        def series(h: Array, P: Array, C: Array) -> tuple[Array, Array]:
            def step(later: tuple[Array, Array], now: tuple[Array, Array, Array]) -> PyTree:
                (g, Q), (h, P, C) = later, now
                root = jnp.linalg.cholesky(Q)
                whitened = solve_triangular(root, jnp.concatenate([C.T, g[:, None]], axis=1), lower=True)
                W, w = whitened[:, :-1], whitened[:, -1]
                message = h + W.T @ w, _above_rounding(P - W.T @ W, P)
                return message, message

            last = h[-1], P[-1]
            _, (g, Q) = jax.lax.scan(step, last, (h[:-1], P[:-1], C), reverse=True)
            return jnp.concatenate([g, last[0][None]]), jnp.concatenate([Q, last[1][None]])

        return jnp.vectorize(series, signature="(t,d),(t,d,d),(s,d,d)->(t,d),(t,d,d)")(linear, diagonal, coupling)

    @staticmethod
    def unroll(start: Array, transition: Array) -> Array:
        r"""Returns the path \(x_1 = u_1\), \(x_{t+1} = A_t x_t + u_{t+1}\).

        Args:
            start: u `[..., T, d]`.
            transition: A `[..., T − 1, d, d]`.
        """

        def series(u: Array, A: Array) -> Array:
            def step(x: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
                x = now[1] @ x + now[0]
                return x, x

            return jnp.concatenate([u[:1], jax.lax.scan(step, u[0], (u[1:], A))[1]])

        return jnp.vectorize(series, signature="(t,d),(s,d,d)->(t,d)")(start, transition)

    def statistics(self, theta: Params) -> Statistics:
        """Returns (x_t, x_t x_tᵀ, x_t x_{t+1}ᵀ)."""

        def leaf(x: Array, length: Array) -> tuple[Array, Array, Array]:
            cross = x[..., :-1, :, None] * x[..., 1:, None, :]
            return _without_padding(x, outer(x), cross, length)

        return map_unzipped(leaf, 3, theta, self._lengths)

    @property
    def mean(self) -> Params:
        """The means of all times `[..., T, d]`."""
        return jax.tree.map(self.unroll, self.offset, self.transition)

    def marginal_variance(self) -> Params:
        return jax.tree.map(lambda S: jnp.diagonal(S, axis1=-2, axis2=-1), self.covariance)

    @property
    def covariance(self) -> Params:
        """The covariances of the vectors of all times `[..., T, d, d]`; identities in the padding."""

        def series(A: Array, noise: Array) -> Array:
            def step(covariance: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
                covariance = now[0] @ covariance @ now[0].T + now[1]
                return covariance, covariance

            return jnp.concatenate([noise[:1], jax.lax.scan(step, noise[0], (A, noise[1:]))[1]])

        over_batch = jnp.vectorize(series, signature="(s,d,d),(t,d,d)->(t,d,d)")
        return jax.tree.map(lambda A, Q: over_batch(A, jnp.linalg.inv(Q)), self.transition, self.precision)

    def sample(self, key: RandomKey) -> Params:
        """Returns a series `[..., T, d]`, with zeros in the padding; differentiable in the parameters."""

        def draw(k: RandomKey, b: Array, A: Array, Q: Array, length: Array) -> Array:
            noise = jax.random.normal(k, (*b.shape, 1), b.dtype)
            away = solve_triangular(jnp.linalg.cholesky(Q), noise, lower=True, trans=1)[..., 0]
            return jnp.where(times(length, b.shape[-2])[..., None], self.unroll(b + away, A), 0.0)

        return sample_leaves(key, draw, self.offset, self.transition, self.precision, self._lengths)

    # By the chain rule, where A less an inner product would cancel digits of long series far from zero.

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(x) in nats, a sum over the times and the series."""

        def leaf(x: Array, b: Array, A: Array, Q: Array, length: Array) -> Array:
            away = (x - b).at[..., 1:, :].add(-product(A, x[..., :-1, :]))
            quadratic = jnp.sum(away * product(Q, away), axis=-1)
            density = (logdet(Q) - x.shape[-1] * math.log(2.0 * math.pi) - quadratic) / 2.0
            return jnp.where(times(length, x.shape[-2]), density, 0.0)

        return total(leaf, theta, self.offset, self.transition, self.precision, self._lengths)

    def entropy(self) -> Array:
        r"""Returns \(H(q) = \sum_t \tfrac d2 \log 2\pi e - \tfrac12\log\det Q_t\) in nats, a sum over the series."""

        def leaf(Q: Array, length: Array) -> Array:
            entropy = (Q.shape[-1] * (1.0 + math.log(2.0 * math.pi)) - logdet(Q)) / 2.0
            return jnp.where(times(length, Q.shape[-3]), entropy, 0.0)

        return total(leaf, self.precision, self._lengths)

    @property
    def series(self) -> Params:
        return jax.tree.map(lambda vectors: vectors[..., 0], self.offset)


def _without_padding(vector: Array, matrix: Array, between: Array, length: Array) -> tuple[Array, Array, Array]:
    """Returns the parts of λ, μ or T(x) with zeros in the padding."""
    live = times(length, vector.shape[-2])
    zero = lambda keep, part: jnp.where(keep, part, jnp.zeros_like(part))
    return (
        zero(live[..., None], vector),
        zero(live[..., None, None], matrix),
        zero(live[..., 1:, None, None], between),
    )


def _filled(linear: Array, diagonal: Array, coupling: Array, length: Array) -> tuple[Array, Array, Array]:
    """Returns λ with standard normal numbers in the padding."""
    linear, diagonal, coupling = _without_padding(linear, diagonal, coupling, length)
    padding = ~times(length, linear.shape[-2])[..., None, None]
    return linear, jnp.where(padding, -_identities(diagonal) / 2.0, diagonal), coupling


def _padded(b: Array, A: Array, Q: Array, length: Array) -> tuple[Array, Array, Array]:
    b, _, A = _without_padding(b, Q, A, length)
    padding = ~times(length, b.shape[-2])[..., None, None]
    return b, A, jnp.where(padding, _identities(Q), Q)


def _identities(like: Array) -> Array:
    return jnp.broadcast_to(jnp.eye(like.shape[-1], dtype=like.dtype), like.shape)


def _above_rounding(remaining: Array, precision: Array) -> Array:
    """Returns a precision whose diagonal is at least the rounding error of the difference."""
    # A diffuse start under a series without observations is the difference of two precisions that agree in all digits.
    least = 4 * jnp.finfo(precision.dtype).eps * jnp.diagonal(precision)
    return remaining + jnp.diag(jax.lax.stop_gradient(jnp.maximum(least - jnp.diagonal(remaining), 0.0)))


# | on paper | in code |
# |---|---|
# | \(p(z_1 = k) = \pi_k,\; p(z_{t+1} = k \mid z_t = j) = P_t(j, k)\) | `MarkovChain(log π, log P)` |
# | \(T(z) = (z_{tj},\; z_{tj} z_{t+1,k}),\; j, k < K\) | `q.statistics(z)` |
# | \(A(\lambda)\): sums out one time after the other | `q.log_partition()` |
# | \(\mu = \nabla A(\lambda)\): forward–backward | `q.expectation().values` |
#
# A category is a one-hot vector. Like `Categorical`, the family is minimal: λ and μ leave the last category out, of
# every \(z_t\) and of both sides of every pair. The evidence of an observation, \(\log p(y_t \mid z_t = k)\), adds to
# λ at t its difference from the last category's, which is a constant of the bound.


@record
class MarkovChain(SeriesFamily):
    r"""A Markov chain of T categories of K, θ one-hot vectors `[..., T, K]`, or a batch of such series.

    \[ \log q(z) = \sum_t \sum_{j<K} \lambda_{tj} z_{tj} + \sum_{t<T} \sum_{j,k<K} \lambda_{tjk} z_{tj} z_{t+1,k}
       - A(\lambda) \]
    \[ \beta_T = 0, \qquad \beta_t(j) = \log \sum_k \exp\big( \lambda_{t+1,k} + \lambda_{tjk} + \beta_{t+1}(k) \big),
       \qquad A = \log \sum_j \exp\big( \lambda_{1j} + \beta_1(j) \big) \]

    with \(\lambda = 0\) wherever j or k is the last category. Every λ is a belief. It takes T sequential steps of K × K
    numbers; `ParallelMarkovChain` takes log₂ T rounds.

    Attributes:
        initial: log probabilities of the first category `[..., K]` up to a constant, or a tree of such arrays.
        transition: log probabilities of the next category given the previous one `[..., T − 1, K, K]`, rows up to a
            constant.
        length: number of the T times of each series, `[...]`, or None for all. The times after it are padding: they
            do not count in densities, entropies and divergences, and their statistics are zero.

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
    length: Params = None

    domains: ClassVar[Mapping[str, Domain]] = {"initial": Finite(event=1), "transition": Finite(event=3)}
    events: ClassVar[tuple[int, ...]] = (2, 3)
    unbounded: ClassVar[bool] = True

    @classmethod
    def homogeneous(cls, steps: int, initial: Params, transition: Params) -> MarkovChain:
        """Returns a chain with the same probabilities at every step.

        Args:
            steps: T.
            initial: the probabilities of the first category `[..., K]`.
            transition: those of the next category given the previous one `[..., K, K]`.

        Raises:
            ValueError: if a probability is not positive, or if they do not sum to one.
        """
        first = Categorical.from_probabilities(jnp.asarray(initial)).logits
        matrix = Categorical.from_probabilities(jnp.asarray(transition)).logits
        return cls(first, jnp.repeat(matrix[..., None, :, :], steps - 1, axis=-3))

    def _validate(self) -> None:
        for first, matrix in zip(jax.tree.leaves(self.initial), jax.tree.leaves(self.transition), strict=True):
            K = first.shape[-1]
            if matrix.shape[-2:] != (K, K):
                raise ValueError(
                    f"MarkovChain: initial has {K} categories and transition ends in the shape {matrix.shape[-2:]}; "
                    f"give log probabilities [..., T − 1, {K}, {K}]"
                )
        super()._validate()

    def to_natural(self) -> Statistics:
        """Returns the log probabilities minus those of the last category, of every time and of every pair."""

        def leaf(first: Array, matrix: Array, length: Array) -> tuple[Array, Array]:
            matrix = jnp.where(_pairs(length, matrix), jax.nn.log_softmax(matrix, axis=-1), 0.0)
            # The differences due to the category before and the one after, each relative to the last.
            before, after = matrix[..., -1], matrix[..., -1, :]
            single = jnp.zeros((*matrix.shape[:-3], matrix.shape[-3] + 1, matrix.shape[-1]), matrix.dtype)
            single = single.at[..., 0, :].add(first).at[..., :-1, :].add(before).at[..., 1:, :].add(after)
            pair = matrix - before[..., :, None] - after[..., None, :] + matrix[..., -1:, -1:]
            return (single - single[..., -1:])[..., :-1], pair[..., :-1, :-1]

        return map_unzipped(leaf, 2, self.initial, self.transition, self._lengths)

    @classmethod
    def from_natural(cls, values: Statistics, given: Params) -> MarkovChain:
        """Returns the belief with these parameters, by one elimination."""

        def leaf(single: Array, pair: Array, length: Array) -> tuple[Array, Array]:
            first, matrix = cls.eliminate(*_complete(single, pair, length))
            return jax.nn.log_softmax(first, axis=-1), matrix

        initial, transition = map_unzipped(leaf, 2, *values, _lengths_of(values, given))
        return cls(initial, transition, given)

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> MarkovChain:
        """Returns the belief with these probabilities of all categories and pairs but the last."""

        def leaf(single: Array, pair: Array, length: Array) -> tuple[Array, Array]:
            first = jnp.concatenate([single, 1.0 - jnp.sum(single, axis=-1, keepdims=True)], axis=-1)
            before, after = first[..., :-1, :], first[..., 1:, :]
            with_last = jnp.concatenate([pair, before[..., :-1, None] - jnp.sum(pair, axis=-1, keepdims=True)], axis=-1)
            last = after[..., None, :] - jnp.sum(with_last, axis=-2, keepdims=True)
            joint = jnp.where(_pairs(length, last), jnp.concatenate([with_last, last], axis=-2), 1.0)
            return jnp.log(first[..., 0, :]), jnp.log(joint)

        initial, transition = map_unzipped(leaf, 2, *values, _lengths_of(values, given))
        return cls(initial, transition, given)

    @classmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        """Returns the log of the sum over all sequences, by the recursion."""

        def leaf(single: Array, pair: Array, length: Array) -> Array:
            first, _ = cls.eliminate(*_complete(single, pair, length))
            padding = jnp.sum(~times(length, single.shape[-2]), axis=-1).astype(single.dtype)
            return jax.nn.logsumexp(first, axis=-1) - padding * jnp.log(first.shape[-1])

        return total(leaf, *values, _lengths_of(values, given))

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
            transition: those of the next given the previous one `[..., T − 1, K, K]`.
        """

        def series(first: Array, transition: Array) -> Array:
            def step(p: Array, P: Array) -> tuple[Array, Array]:
                p = p @ P
                return p, p

            return jnp.concatenate([first[None], jax.lax.scan(step, first, transition)[1]])

        return jnp.vectorize(series, signature="(k),(s,k,k)->(t,k)")(first, transition)

    @staticmethod
    def compose(start: Array, maps: Array) -> Array:
        """Returns the indices of the categories `[..., T]` that result from maps, one after the other.

        Args:
            start: the index of the first category `[...]`.
            maps: the next category for each previous one `[..., T − 1, K]`.
        """

        def series(start: Array, maps: Array) -> Array:
            def step(z: Array, after: Array) -> tuple[Array, Array]:
                return after[z], after[z]

            return jnp.concatenate([start[None], jax.lax.scan(step, start, maps)[1]])

        return jnp.vectorize(series, signature="(),(s,k)->(t)")(start, maps)

    def statistics(self, theta: Params) -> Statistics:
        """Returns the one-hot vectors, and the products of neighbours, without their last entries."""

        def leaf(z: Array, length: Array) -> tuple[Array, Array]:
            live = times(length, z.shape[-2])[..., None]
            z = jnp.where(live, z, 0.0)[..., :-1]
            return z, z[..., :-1, :, None] * z[..., 1:, None, :]

        return map_unzipped(leaf, 2, theta, self._lengths)

    def marginal_variance(self) -> Params:
        return jax.tree.map(lambda p: p * (1.0 - p), self.mean)

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
            # The largest logit with Gumbel noise is a sample of the category.
            noise = jax.random.gumbel(k, (*first.shape[:-1], steps, K), first.dtype)
            start = jnp.argmax(noise[..., 0, :] + first, axis=-1)
            path = self.compose(start, jnp.argmax(noise[..., 1:, None, :] + matrix, axis=-1))
            z = jax.nn.one_hot(path, K, dtype=first.dtype)
            return jnp.where(times(length, steps)[..., None], z, 0.0)

        return sample_leaves(key, draw, self.initial, self.transition, self._lengths)

    @property
    def series(self) -> Params:
        return jax.tree.map(lambda P: jnp.zeros((*P.shape[:-3], P.shape[-3] + 1), P.dtype), self.transition)


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


@record
class ParallelGaussianChain(GaussianChain):
    r"""A `GaussianChain` whose recursions are associative scans: log₂ T rounds instead of T steps.

    The element of times \(i, \ldots, k\) contains its terms with the times between integrated
    out, a quadratic in \((x_i, x_k)\); two neighbours combine by integrating over the vector that they share. It does
    several times the work of the sequential recursion, and is for accelerators.

    Source: Särkkä & García-Fernández (2021), "Temporal parallelization of Bayesian smoothers".

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import GaussianChain, ParallelGaussianChain
        >>> arguments = (jnp.zeros((9, 1)), 0.5 * jnp.ones((8, 1, 1)), jnp.ones((9, 1, 1)))
        >>> ours, theirs = (cls(*arguments).log_partition() for cls in (ParallelGaussianChain, GaussianChain))
        >>> abs(float(ours - theirs)) < 1e-4
        True
    """

    @staticmethod
    def eliminate(linear: Array, diagonal: Array, coupling: Array) -> tuple[Array, Array]:
        """Returns the linear terms and precisions of every vector given the previous one, by an associative scan."""
        none = jnp.zeros_like(diagonal)
        C = none.at[..., :-1, :, :].set(coupling)
        stretches = (linear, jnp.zeros_like(linear), diagonal, C, none)
        g, _, Q, _, _ = jax.lax.associative_scan(_joined, stretches, reverse=True, axis=linear.ndim - 2)
        return g, symmetric(Q)

    @staticmethod
    def unroll(start: Array, transition: Array) -> Array:
        """Returns the path, by an associative scan over affine maps."""
        first = jnp.zeros_like(transition, shape=(*start.shape, start.shape[-1]))
        maps = first.at[..., 1:, :, :].set(transition)
        after = lambda early, late: (late[0] @ early[0], product(late[0], early[1]) + late[1])
        return jax.lax.associative_scan(after, (maps, start), axis=start.ndim - 2)[1]


@record
class ParallelMarkovChain(MarkovChain):
    r"""A `MarkovChain` whose recursions are associative scans: log₂ T rounds instead of T steps.

    Products of K × K matrices instead of products with vectors, K times the work, for accelerators.

    Source: Hassan, Särkkä & García-Fernández (2021), "Temporal parallelization of inference in hidden Markov models".

    Examples:
        >>> from lamu.families import MarkovChain, ParallelMarkovChain
        >>> arguments = (9, [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> ours, theirs = (cls.homogeneous(*arguments).log_partition() for cls in (ParallelMarkovChain, MarkovChain))
        >>> abs(float(ours - theirs)) < 1e-4
        True
    """

    @staticmethod
    def eliminate(single: Array, pair: Array) -> tuple[Array, Array]:
        """Returns the log weights of the first category, and the log probabilities of the transitions."""
        if pair.shape[-3] == 0:
            return single[..., 0, :], pair
        join = lambda late, early: jax.nn.logsumexp(early[..., :, :, None] + late[..., None, :, :], axis=-2)
        steps = pair + single[..., 1:, None, :]
        beta = jax.nn.logsumexp(jax.lax.associative_scan(join, steps, reverse=True, axis=pair.ndim - 3), axis=-1)
        after = single[..., 1:, :].at[..., :-1, :].add(beta[..., 1:, :])
        return single[..., 0, :] + beta[..., 0, :], pair + after[..., None, :] - beta[..., :, None]

    @staticmethod
    def unroll(first: Array, transition: Array) -> Array:
        """Returns the probabilities of all times `[..., T, K]`."""
        if transition.shape[-3] == 0:
            return first[..., None, :]
        products = jax.lax.associative_scan(jnp.matmul, transition, axis=transition.ndim - 3)
        later = (first[..., None, None, :] @ products)[..., 0, :]
        return jnp.concatenate([first[..., None, :], later], axis=-2)

    @staticmethod
    def compose(start: Array, maps: Array) -> Array:
        """Returns the indices of the categories `[..., T]` that result from maps, one after the other."""
        if maps.shape[-2] == 0:
            return start[..., None]
        composed = jax.lax.associative_scan(
            lambda early, late: jnp.take_along_axis(late, early, axis=-1), maps, axis=maps.ndim - 2
        )
        index = jnp.broadcast_to(start[..., None, None], (*maps.shape[:-1], 1))
        later = jnp.take_along_axis(composed, index, axis=-1)[..., 0]
        return jnp.concatenate([start[..., None], later], axis=-1)


def _joined(late: tuple[Array, ...], early: tuple[Array, ...]) -> tuple[Array, ...]:
    """Returns the element of two neighbours, with their shared vector integrated out."""
    (h_first, h_middle, P_first, C_first, P_middle), (g_middle, g_last, Q_middle, C_last, P_last) = early, late
    middle = jnp.concatenate([transpose(C_first), C_last, (h_middle + g_middle)[..., None]], axis=-1)
    solved, d = jnp.linalg.solve(P_middle + Q_middle, middle), h_first.shape[-1]
    to_first, to_last, offset = solved[..., :d], solved[..., d : 2 * d], solved[..., -1]
    return (
        h_first + product(C_first, offset),
        g_last + product(transpose(C_last), offset),
        P_first - C_first @ to_first,
        C_first @ to_last,
        P_last - transpose(C_last) @ to_last,
    )
