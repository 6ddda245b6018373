"""The expectation of a function that is affine in a site's statistics, and its λ, from derivatives at one point."""

# \[ f(\theta) = \langle\lambda, T(\theta)\rangle + c \quad\Rightarrow\quad E_q[f] = \langle\lambda, \mu\rangle + c \]
#
# Neither λ nor T needs to be told apart in f: of two statistics one is moved by the slope of f and one by its
# curvature, so that at a well-chosen point a value, a slope and a curvature say all. No belief is needed, and a point
# is one too.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.statistics import Chance, Numbers, Positive, Precisions, Reciprocal, Simplex, Vectors
from lamu.record import record
from lamu.typing import Array

__all__ = ["AFFINE", "AffineDecomposition"]


class AffineDecomposition(ABC):
    """Decomposition of a function that is affine in one kind of statistics into its coefficients.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.graphs.statistics import Positive
        >>> from lamu.programs.affine import AFFINE
        >>> f = lambda t: 3.0 * jnp.log(t) - 2.0 * t
        >>> mu = Positive(jnp.array(-0.5), jnp.array(1.0))  # E log t, E t
        >>> round(float(AFFINE[Positive].expected(f, mu)), 6)
        -3.5
        >>> natural = AFFINE[Positive].natural(f, mu)
        >>> round(float(natural.log), 6), round(float(natural.value), 6)
        (3.0, -2.0)
    """

    @abstractmethod
    def centre(self, statistics: Any) -> Array:
        """Returns a value of the site that statistics are about.

        Args:
            statistics: μ, or T(θ).
        """

    @abstractmethod
    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        """Returns E f, of the shape of f.

        Args:
            f: a function of the site, each entry of which is affine in T, a sum over members.
            statistics: μ, or T(θ).
        """

    @abstractmethod
    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Any:
        """Returns λ, statistics of the same kind.

        Args:
            f: a scalar.
            statistics: where to look, and for shapes.
        """


def _moved(f: Callable[[Array], Array], at: Array, along: Array) -> tuple[Array, Array, Array]:
    """Returns f, its slope and its curvature along a direction."""
    on_line = lambda step: f(at + step * along)
    slope = lambda step: jax.jvp(on_line, (step,), (jnp.ones_like(step),))
    (value, first), (_, second) = jax.jvp(slope, (jnp.zeros((), at.dtype),), (jnp.ones((), at.dtype),))
    return value, first, second


def _slopes(f: Callable[[Array], Array], at: Array, along: Array) -> tuple[Array, Array]:
    """Returns the gradient of a scalar f, and the Hessian times a direction."""
    return jax.jvp(jax.grad(f), (at,), (along,))


def _root(squares: Array) -> Array:
    """Returns the root of what is positive up to rounding."""
    return jnp.sqrt(jnp.maximum(squares, 0.0))


@record
class _OfNumbers(AffineDecomposition):
    """T = (x, x²): the curvature is 2 λ₂."""

    def centre(self, statistics: Any) -> Array:
        return statistics.first

    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        mean = statistics.first
        away = _root(statistics.second - mean**2)
        return jnp.mean(jax.vmap(lambda sign: f(mean + sign * away))(jnp.array([1.0, -1.0], mean.dtype)), axis=0)

    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Numbers:
        mean = statistics.first
        slope, curvature = _slopes(f, mean, jnp.ones_like(mean))
        return Numbers(slope - curvature * mean, curvature / 2.0)


@record
class _OfVectors(AffineDecomposition):
    """T = (x, xxᵀ): the Hessian of each member is 2 λ₂."""

    def centre(self, statistics: Any) -> Array:
        return statistics.first

    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        mean, size = statistics.first, statistics.first.shape[-1]
        values, vectors = jnp.linalg.eigh(statistics.outer - mean[..., :, None] * mean[..., None, :])
        root = vectors * _root(values * size)[..., None, :]
        steps = jnp.moveaxis(jnp.concatenate([root, -root], axis=-1), -1, 0)
        return jnp.mean(jax.vmap(lambda step: f(mean + step))(steps), axis=0)

    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Vectors:
        mean, size = statistics.first, statistics.first.shape[-1]
        of_axis = lambda axis: _slopes(f, mean, jnp.broadcast_to(axis, mean.shape))
        slopes, columns = jax.vmap(of_axis)(jnp.eye(size, dtype=mean.dtype))
        hessian = jnp.moveaxis(columns, 0, -1)
        return Vectors(slopes[0] - jnp.einsum("...ij,...j->...i", hessian, mean), hessian / 2.0)


@record
class _OfPositive(AffineDecomposition):
    """T = (log t, t): at E t only the logarithm is off, and t² times the curvature is −λ₁."""

    def centre(self, statistics: Any) -> Array:
        return statistics.value

    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        mean = statistics.value
        value, _, curvature = _moved(f, mean, mean * _root(jnp.log(mean) - statistics.log))
        return value + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Positive:
        mean = statistics.value
        slope, curvature = _slopes(f, mean, mean)
        return Positive(-mean * curvature, slope + curvature)


@record
class _OfReciprocal(AffineDecomposition):
    """T = (log t, 1/t): that of 1/t, with a sign."""

    def centre(self, statistics: Any) -> Array:
        return 1.0 / statistics.inverse

    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        return _OfPositive().expected(lambda r: f(1.0 / r), Positive(-statistics.log, statistics.inverse))

    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Reciprocal:
        found = _OfPositive().natural(lambda r: f(1.0 / r), Positive(-statistics.log, statistics.inverse))
        return Reciprocal(-found.log, found.value)


@record
class _OfChance(AffineDecomposition):
    """T = (log p, log(1 − p)), in log odds about zero: the slope is (λ₁ − λ₂)/2 and the curvature −(λ₁ + λ₂)/4."""

    def centre(self, statistics: Any) -> Array:
        return jax.nn.sigmoid(statistics.log - statistics.log_complement)

    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        event, other = statistics.log + jnp.log(2.0), statistics.log_complement + jnp.log(2.0)
        zero = jnp.zeros_like(event)
        of_odds = lambda v: f(jax.nn.sigmoid(v))
        _, slope, _ = _moved(of_odds, zero, event - other)
        value, _, curvature = _moved(of_odds, zero, _root(-2.0 * (event + other)))
        return value + slope + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Chance:
        zero = jnp.zeros_like(statistics.log)
        slope, curvature = _slopes(lambda v: f(jax.nn.sigmoid(v)), zero, jnp.ones_like(zero))
        return Chance(slope - 2.0 * curvature, -slope - 2.0 * curvature)


@record
class _OfSimplex(AffineDecomposition):
    """T = log π, in π = softmax(v) about zero: the slope is λ − s/K, the curvature along d −s Var d, with s = Σ λ."""

    def centre(self, statistics: Any) -> Array:
        return jax.nn.softmax(statistics.log, axis=-1)

    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        log = statistics.log + jnp.log(float(statistics.log.shape[-1]))
        zero, (direction, spread) = jnp.zeros_like(log), _alternating(log)
        of_logits = lambda v: f(jax.nn.softmax(v, axis=-1))
        _, slope, _ = _moved(of_logits, zero, log)
        away = direction * _root(-jnp.mean(log, axis=-1, keepdims=True) / spread)
        value, _, curvature = _moved(of_logits, zero, away)
        return value + slope + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Simplex:
        zero, (direction, spread) = jnp.zeros_like(statistics.log), _alternating(statistics.log)
        of_logits = lambda v: f(jax.nn.softmax(v, axis=-1))
        slope, curved = _slopes(of_logits, zero, jnp.broadcast_to(direction, zero.shape))
        total = -jnp.sum(direction * curved, axis=-1, keepdims=True) / spread
        return Simplex(slope + total / zero.shape[-1])


def _alternating(log: Array) -> tuple[Array, float]:
    """Returns a direction of ones and minus ones, and its variance over all entries; one where there is one entry."""
    size = log.shape[-1]
    direction = (-1.0) ** jnp.arange(size).astype(log.dtype)
    return direction, 1.0 - (1.0 / size**2 if size % 2 else 0.0) or 1.0


@record
class _OfPrecisions(AffineDecomposition):
    """T = (log det Λ, Λ): at E Λ only the determinant is off, and along Λ the Hessian gives −λ₁ Λ⁻¹."""

    def centre(self, statistics: Any) -> Array:
        return statistics.matrix

    def expected(self, f: Callable[[Array], Array], statistics: Any) -> Array:
        mean, size = statistics.matrix, statistics.matrix.shape[-1]
        short = (jnp.linalg.slogdet(mean)[1] - statistics.logdet) / size
        value, _, curvature = _moved(f, mean, mean * _root(short)[..., None, None])
        return value + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Any) -> Precisions:
        mean, size = statistics.matrix, statistics.matrix.shape[-1]
        slope, curved = (_symmetric(part) for part in _slopes(f, mean, mean))
        count = -jnp.einsum("...ij,...ji->...", mean, curved) / size
        return Precisions(count, slope + curved)


def _symmetric(matrix: Array) -> Array:
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2.0


AFFINE: dict[type, AffineDecomposition] = {
    Numbers: _OfNumbers(),
    Vectors: _OfVectors(),
    Positive: _OfPositive(),
    Reciprocal: _OfReciprocal(),
    Chance: _OfChance(),
    Simplex: _OfSimplex(),
    Precisions: _OfPrecisions(),
}
