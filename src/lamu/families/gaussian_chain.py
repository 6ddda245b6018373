r"""A joint Gaussian over a series \(x_1, \ldots, x_T\), whose log-partition is the recursion of a Kalman smoother."""

# | on paper | in code |
# |---|---|
# | \(x_1 \sim N(b_1, Q_1^{-1}),\; x_{t+1} \mid x_t \sim N(A_t x_t + b_{t+1}, Q_{t+1}^{-1})\) | `GaussianChain(b, A, Q)`
# |
# | \(T(x) = (x_t,\; x_t x_t^\top,\; x_t x_{t+1}^\top)\) | `q.statistics(x)` |
# | \(\lambda = (h_t,\; -\tfrac12 P_{t,t},\; -P_{t,t+1})\), P the precision of the whole series | `q.natural().values` |
# | \(A(\lambda)\): eliminates one time after the other | `q.log_partition()` |
# | \(\mu = \nabla A(\lambda)\): the smoother | `q.expectation().values` |
#
# What is known about \(x_t\) adds to λ at t: an observation \(y_t \sim N(C x_t, R)\) adds \(C^\top R^{-1} y_t\) to
# \(h_t\) and \(-\tfrac12 C^\top R^{-1} C\) to the block beside it, and a missing one adds nothing.
#
# **The recursion.** It integrates \(x_T\) out, then \(x_{T-1}\), and so on to the first, which leaves the precision and
# the linear term of \(x_t\) given the time before,
#
# \[ Q_t = P_{t,t} - P_{t,t+1} Q_{t+1}^{-1} P_{t+1,t}, \qquad g_t = h_t - P_{t,t+1} Q_{t+1}^{-1} g_{t+1}, \qquad
#    A = \sum_t \tfrac12 g_t^\top Q_t^{-1} g_t - \tfrac12 \log\det Q_t + \tfrac d2 \log 2\pi \]
#
# and so the textbook parameters too. A is differentiated automatically: the pass back is the smoother's other half.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from lamu.families.domains import Domain, PositiveDefinite, Real
from lamu.families.exponential import ExponentialFamily, apart, sample_leaves, symmetric, total
from lamu.families.multivariate_normal import MultivariateNormal
from lamu.families.series import checked_lengths, full_lengths, times
from lamu.families.wishart import logdet
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["GaussianChain"]


@record
class GaussianChain(ExponentialFamily):
    r"""A Gaussian Markov chain of T vectors of d numbers, or a batch of such series.

    \[ x_1 \sim N(b_1, Q_1^{-1}), \qquad x_{t+1} \mid x_t \sim N(A_t x_t + b_{t+1},\; Q_{t+1}^{-1}) \]

    The precision of the whole series is block tridiagonal, and every such Gaussian is one. T steps of d × d matrices,
    one after the other; `ParallelGaussianChain` takes log₂ T rounds.

    Attributes:
        offset: b `[..., T, d]`, or a tree of such arrays.
        transition: A `[..., T − 1, d, d]`.
        precision: Q `[..., T, d, d]`, symmetric positive definite.
        length: how many of the T times each series has, `[...]`, or None for all. The times after it are padding: they
            count for nothing in densities, entropies and divergences, and their statistics are zero.

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
    length: Any = None

    domains: ClassVar[Mapping[str, Domain]] = {
        "offset": Real(event=2),
        "transition": Real(event=3),
        "precision": PositiveDefinite(event=3),
    }
    events: ClassVar[tuple[int, ...]] = (2, 3, 3)

    @classmethod
    def homogeneous(cls, steps: int, mean: Any, precision: Any, transition: Any, step_precision: Any) -> GaussianChain:
        """Returns a chain with the same transition at every time.

        Args:
            steps: T.
            mean: that of the first vector `[..., d]`.
            precision: that of the first vector `[..., d, d]`.
            transition: the matrix A `[..., d, d]` of every step.
            step_precision: the precision `[..., d, d]` of a vector given the one before.
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
        object.__setattr__(self, "length", checked_lengths(self.length, _series(self.offset), type(self).__name__))
        # Padding is independent standard normal numbers.
        fields = apart(_padded, 3, self.offset, self.transition, self.precision, self.length)
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

    @property
    def given(self) -> Any:
        return self.length

    def to_natural(self) -> Any:
        """Returns the linear terms, and the blocks of −P/2 on the diagonal and of −P beside it."""

        def leaf(b: Array, A: Array, Q: Array, length: Array) -> tuple[Array, Array, Array]:
            coupling = transpose(A) @ Q[..., 1:, :, :]
            linear = product(Q, b).at[..., :-1, :].add(-product(coupling, b[..., 1:, :]))
            diagonal = Q.at[..., :-1, :, :].add(coupling @ A)
            return _live(linear, -diagonal / 2.0, coupling, length)

        return apart(leaf, 3, self.offset, self.transition, self.precision, self._lengths)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Any:
        """Returns the belief with these parameters, by one elimination."""

        def leaf(linear: Array, diagonal: Array, coupling: Array, length: Array) -> tuple[Array, Array, Array]:
            linear, diagonal, coupling = _filled(linear, diagonal, coupling, length)
            g, Q = cls.eliminate(linear, -2.0 * symmetric(diagonal), coupling)
            return _solution(Q, g), jnp.linalg.solve(Q[..., 1:, :, :], transpose(coupling)), Q

        lengths = full_lengths(_series(values[0])) if given is None else given
        b, A, Q = apart(leaf, 3, *values, lengths)
        return cls(b, A, Q, given)

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Any:
        """Returns the belief with these moments, by the regression of each vector on the one before."""

        def leaf(m: Array, second: Array, cross: Array, length: Array) -> tuple[Array, Array, Array]:
            padding = ~times(length, m.shape[-2])
            about_mean = symmetric(second - m[..., :, None] * m[..., None, :])
            covariance = jnp.where(padding[..., None, None], _identities(about_mean), about_mean)
            cross = cross - m[..., :-1, :, None] * m[..., 1:, None, :]
            A = transpose(jnp.linalg.solve(covariance[..., :-1, :, :], cross))
            remaining = covariance.at[..., 1:, :, :].add(-A @ cross)
            b = m.at[..., 1:, :].add(-product(A, m[..., :-1, :]))
            return b, A, symmetric(jnp.linalg.inv(symmetric(remaining)))

        lengths = full_lengths(_series(values[0])) if given is None else given
        b, A, Q = apart(leaf, 3, *values, lengths)
        return cls(b, A, Q, given)

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        r"""Returns A, the sum of the log-partitions of every \(x_t\) given the time before."""

        def leaf(linear: Array, diagonal: Array, coupling: Array, length: Array) -> Array:
            padding = jnp.sum(~times(length, linear.shape[-2])) * linear.shape[-1]
            linear, diagonal, coupling = _filled(linear, diagonal, coupling, length)
            g, Q = cls.eliminate(linear, -2.0 * symmetric(diagonal), coupling)
            constant = padding.astype(g.dtype) * (math.log(2.0 * math.pi) / 2.0)
            return MultivariateNormal.partition((g, -Q / 2.0), ()) - constant

        return total(leaf, *values, full_lengths(_series(values[0])) if given is None else given)

    @staticmethod
    def eliminate(linear: Array, diagonal: Array, coupling: Array) -> tuple[Array, Array]:
        r"""Returns the linear terms g and precisions Q of every vector given the one before.

        Args:
            linear: h `[..., T, d]`.
            diagonal: the blocks \(P_{t,t}\) `[..., T, d, d]`.
            coupling: the blocks \(-P_{t,t+1}\) `[..., T − 1, d, d]`.
        """

        def series(h: Array, P: Array, C: Array) -> tuple[Array, Array]:
            def step(later: tuple[Array, Array], now: tuple[Array, Array, Array]) -> Any:
                (g, Q), (h, P, C) = later, now
                root = jnp.linalg.cholesky(Q)
                whitened = solve_triangular(root, jnp.concatenate([C.T, g[:, None]], axis=1), lower=True)
                W, w = whitened[:, :-1], whitened[:, -1]
                found = h + W.T @ w, P - W.T @ W
                return found, found

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

    def statistics(self, theta: Params) -> Any:
        """Returns (x_t, x_t x_tᵀ, x_t x_{t+1}ᵀ)."""

        def leaf(x: Array, length: Array) -> tuple[Array, Array, Array]:
            cross = x[..., :-1, :, None] * x[..., 1:, None, :]
            return _live(x, x[..., :, None] * x[..., None, :], cross, length)

        return apart(leaf, 3, theta, self._lengths)

    @property
    def mean(self) -> Params:
        """The means of all times `[..., T, d]`."""
        return jax.tree.map(self.unroll, self.offset, self.transition)

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
    def _lengths(self) -> Any:
        return full_lengths(_series(self.offset)) if self.length is None else self.length


def _live(vector: Array, matrix: Array, between: Array, length: Array) -> tuple[Array, Array, Array]:
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
    linear, diagonal, coupling = _live(linear, diagonal, coupling, length)
    padding = ~times(length, linear.shape[-2])[..., None, None]
    return linear, jnp.where(padding, -_identities(diagonal) / 2.0, diagonal), coupling


def _padded(b: Array, A: Array, Q: Array, length: Array) -> tuple[Array, Array, Array]:
    b, _, A = _live(b, Q, A, length)
    padding = ~times(length, b.shape[-2])[..., None, None]
    return b, A, jnp.where(padding, _identities(Q), Q)


def _series(vectors: Any) -> Any:
    """Returns an array `[..., T]` for vectors `[..., T, d]`."""
    return jax.tree.map(lambda leaf: leaf[..., 0], vectors)


def _identities(like: Array) -> Array:
    return jnp.broadcast_to(jnp.eye(like.shape[-1], dtype=like.dtype), like.shape)


def transpose(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, -1, -2)


def product(matrix: Array, vector: Array) -> Array:
    return (matrix @ vector[..., None])[..., 0]


def _solution(matrix: Array, vector: Array) -> Array:
    return jnp.linalg.solve(matrix, vector[..., None])[..., 0]
