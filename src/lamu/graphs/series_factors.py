"""Factors of series: vectors given the previous one, and categories given the previous one."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import whole_number
from lamu.graphs.expressions import Environment, Expression, lifted
from lamu.graphs.factor import Factor, argument, one_hot
from lamu.graphs.reading import associative
from lamu.graphs.statistics import (
    ParallelSeries,
    ParallelStates,
    PositiveNumbers,
    Precisions,
    Probabilities,
    Series,
    States,
)
from lamu.record import record, static
from lamu.supports import Classes
from lamu.typing import Array, Inputs

__all__ = ["GaussianChain", "GaussianChainFactor", "Markov", "MarkovFactor"]


def GaussianChain(
    steps: int,
    transition: Any,
    precision: Any,
    first_mean: Any = 0.0,
    first_precision: Any = 1e-6,
    scan: str = "sequential",
) -> GaussianChainFactor:
    r"""Returns the factor of a series of T vectors, as one variable.

    \[ x_1 \sim N(m_1, P_1^{-1}), \qquad x_{t+1} \mid x_t \sim N(A x_t, Q^{-1}) \]

    Its belief is joint over all times: it is eliminated by the recursion of a Kalman filter, whose gradient is the
    smoother. NaN in an observation of it, such as y of `graphs.Normal(x, precision=noise)`, is a missing time; a series
    that is itself in the data must be complete.

    Args:
        steps: T.
        transition: A `[d, d]`, known.
        precision: Q: positive numbers, one or `[d]`, or a variable with a `Gamma` belief; a matrix `[d, d]`, or a
            variable with a `Wishart` belief.
        first_mean: m₁, a number or `[d]`, known or from an input.
        first_precision: P₁, a number: small for a diffuse start, as by default.
        scan: "sequential", T steps one after the other, or "associative", log₂ T rounds of several times the work, for
            accelerators (Särkkä & García-Fernández, 2021).

    Raises:
        TypeError: for an argument without a closed form.
        ValueError: for fewer than two steps, a transition that is not a square matrix, another scan, or a known
            precision whose ratios the floating type cannot represent.

    Source: Kalman (1960); Rauch, Tung & Striebel (1965); Durbin & Koopman (2012), section 4.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.GaussianChain(100, jnp.eye(2), precision=1.0).shape
        (100, 2)
    """
    A = np.asarray(transition, float)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"the transition has the shape {A.shape}; give a square matrix [d, d]")
    is_associative = associative(scan)
    steps = whole_number("steps", steps, 2)
    if np.ndim(first_precision) > 1 or not np.all(np.asarray(first_precision) > 0):
        raise ValueError(
            f"first_precision={first_precision!r} is not a positive number; give one, small for a diffuse start"
        )
    if not isinstance(precision, Expression):
        _require_held(np.asarray(precision, float))
    is_matrix = Precisions in precision.kinds() if isinstance(precision, Expression) else np.ndim(precision) == 2
    kind = Precisions if is_matrix else PositiveNumbers
    floating = jnp.result_type(float)
    return GaussianChainFactor(
        jnp.asarray(A, floating),
        argument(precision, kind, "the precision of GaussianChain"),
        _known_mean(first_mean),
        jnp.asarray(first_precision, floating),
        steps,
        is_matrix,
        is_associative,
    )


def _require_held(precision: np.ndarray) -> None:
    """Raises a ValueError for precisions so different that the recursion would lose the smaller ones to rounding."""
    scales = np.linalg.eigvalsh(precision) if precision.ndim == 2 else np.atleast_1d(precision)
    most = 0.01 / float(jnp.finfo(jnp.result_type(float)).eps)
    if np.min(scales) > 0 and np.max(scales) > most * np.min(scales):
        limit = f"{most * np.min(scales):.2g}"
        raise ValueError(
            f"the precision of GaussianChain goes from {np.min(scales):g} to {np.max(scales):g}, and the recursion in "
            f"{jnp.result_type(float).name} holds a ratio of {most:.0e} at most; give at most {limit} "
            'for the steps that hardly move, or call jax.config.update("jax_enable_x64", True) first'
        )


def _known_mean(first_mean: Any) -> Expression:
    mean = lifted(first_mean)
    if mean.names:
        raise TypeError(
            f"the first mean of GaussianChain is {', '.join(sorted(mean.names))}, and a closed form needs a known one; "
            "give numbers, or an input of the row"
        )
    return mean


@record
class GaussianChainFactor(Factor):
    """A series of vectors. Use `GaussianChain`."""

    transition: Array
    precision: Expression  # Q
    first_mean: Any  # m₁, an expression of inputs and numbers; an array in files of earlier versions
    first_precision: Array  # P₁
    steps: int = static()  # T
    is_matrix: bool = static()  # whether Q is a matrix rather than a diagonal
    is_associative: bool = static(default=False)  # whether the recursions are associative scans

    misses = False

    @property
    def kind(self) -> type[Series]:
        """The statistics of a chain."""
        return ParallelSeries if self.is_associative else Series

    @property
    def shape(self) -> tuple[int, ...]:
        # Number of times, and of entries at each.
        return self.steps, self.transition.shape[0]

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log density of the whole series.
        A, d, log2pi = self.transition, self.transition.shape[0], math.log(2.0 * math.pi)
        logdet, Q = self._precision(environment)
        before, after = jnp.sum(x.outer[:-1], axis=0), jnp.sum(x.outer[1:], axis=0)
        moved = A @ jnp.sum(x.cross, axis=0)
        scatter = after - moved - moved.T + A @ before @ A.T
        # If steps are far smaller than the uncertainty of the level, rounding may leave negative squares.
        below = jnp.diag(jnp.minimum(jnp.diagonal(scatter), 0.0))
        scatter = scatter - jax.lax.stop_gradient(below)
        steps = (self.steps - 1) * (logdet - d * log2pi) - jnp.sum(Q * scatter)
        m = jnp.broadcast_to(lifted(self.first_mean).first(environment), (d,))
        square = jnp.trace(x.outer[0]) - 2.0 * jnp.sum(m * x.first[0]) + jnp.sum(m**2)
        first = d * (jnp.log(self.first_precision) - log2pi) - self.first_precision * square
        return (steps + first) / 2.0

    def _precision(self, environment: Environment) -> tuple[Array, Array]:
        """Returns E log det Q and E Q."""
        if self.is_matrix:
            matrix = self.precision.of_kind(Precisions, environment)
            return matrix.logdet, matrix.matrix
        d = self.transition.shape[0]
        diagonal = self.precision.of_kind(PositiveNumbers, environment)
        spread = lambda part: jnp.broadcast_to(part, (d,))
        return jnp.sum(spread(diagonal.log)), jnp.diag(spread(diagonal.value))


def Markov(steps: int, initial: Any, transition: Any, scan: str = "sequential", weights: Any = None) -> MarkovFactor:
    r"""Returns the factor of a series of T categories, as one variable.

    \[ \log p(z) = E\log\pi_{z_1} + \sum_{t<T} E\log P_{z_t z_{t+1}} \]

    Its belief is joint over all times: it is eliminated by the forward recursion, whose gradient is forward–backward.
    As an index, `part[z]`, it selects a member at every time. NaN in an observation of it, such as y of
    `graphs.Normal(part[z], precision=noise)`, is a missing time; a series that is itself in the data must be complete.

    With `weights` a state emits a mixture of M components, and the series has a category \(c = kM + j\) for every
    state k and component j, of which `mean[z]` has K M members; those of a pair of states that share their components
    are `mean[np.tile(np.arange(M), K)][z]`.

    \[ p(c_{t+1} = (l, j) \mid c_t = (k, i)) = P_{kl}\, w_{lj} \]

    Args:
        steps: T.
        initial: π `[K]`, probabilities, or a variable with a `Dirichlet` belief.
        transition: P `[K, K]`, probabilities of the next category given the one before, or a plate of variables with a
            `Dirichlet` belief.
        scan: "sequential", T steps one after the other, or "associative", log₂ T rounds of K times the work, for
            accelerators (Hassan, Särkkä & García-Fernández, 2021).
        weights: w `[K, M]`, probabilities of a state's components, or a plate of variables with a `Dirichlet` belief;
            None for states of one component.

    Raises:
        TypeError: for an argument without a closed form.
        ValueError: for fewer than two steps, shapes that do not fit, or another scan.

    Source: Rabiner (1989), section III; Beal (2003), section 3.4.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Markov(50, jnp.full(3, 1 / 3), jnp.full((3, 3), 1 / 3)).shape
        (50, 3)
        >>> graphs.Markov(50, [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], weights=jnp.full((2, 3), 1 / 3)).shape
        (50, 6)
    """
    steps = whole_number("steps", steps, 2)
    first = argument(initial, Probabilities, "the initial of Markov")
    then = argument(transition, Probabilities, "the transition of Markov")
    if first.shape is not None and then.shape is not None and then.shape != (*first.shape, *first.shape):
        raise ValueError(f"initial has the shape {first.shape} and transition {then.shape}; give [K] and [K, K]")
    shares = None if weights is None else argument(weights, Probabilities, "the weights of Markov")
    if shares is not None and shares.shape and first.shape and shares.shape[:-1] != first.shape:
        raise ValueError(f"weights has the shape {shares.shape} for {first.shape[0]} states; give [K, M]")
    return MarkovFactor(first, then, steps, associative(scan), shares)


@record
class MarkovFactor(Factor):
    """A series of categories. Use `Markov`."""

    initial: Expression
    transition: Expression  # P
    steps: int = static()  # T
    is_associative: bool = static(default=False)  # whether the recursions are associative scans
    weights: Any = None  # w, an expression; None for states of one component

    misses = False

    @property
    def support(self) -> Classes:
        """K classes."""
        return Classes((self.shape or (1,))[-1])

    @property
    def kind(self) -> type[States]:
        """The statistics of a series."""
        return ParallelStates if self.is_associative else States

    @property
    def shape(self) -> tuple[int, ...] | None:
        # Numbers of times and categories.
        if self.initial.shape is None or (self.weights is not None and self.weights.shape is None):
            return None
        components = 1 if self.weights is None else self.weights.shape[-1]
        return self.steps, self.initial.shape[-1] * components

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log probability of the whole series.
        initial, transition = (part.of_kind(Probabilities, environment).log for part in (self.initial, self.transition))
        if self.weights is not None:
            w = self.weights.of_kind(Probabilities, environment).log
            into = lambda states: (states[..., None] + w).reshape(*states.shape[:-1], -1)
            initial, transition = into(initial), jnp.repeat(into(transition), w.shape[-1], axis=0)
        return jnp.sum(initial * x.probabilities[0]) + jnp.sum(transition * jnp.sum(x.pairs, axis=0))

    def statistics(self, value: Any) -> States:
        # Returns one-hot vectors of integers, and their pairs.
        return self.kind.of(one_hot(value, self.support.number))
