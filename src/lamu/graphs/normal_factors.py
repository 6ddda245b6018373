"""Normal factors: numbers with a mean and a precision, and vectors with a precision matrix."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.compile_once import lenient
from lamu.families.normal_wishart import product, swept, transpose
from lamu.graphs.expressions import Environment, Expression, KnownValue, Multiple, ScaleProduct, lifted
from lamu.graphs.expressions.products import ScaledMatrix, Sum, Times, is_matrix
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import (
    Located,
    LocatedVectors,
    Numbers,
    PositiveNumbers,
    Precisions,
    Statistics,
    Vectors,
    shape_of_gamma,
)
from lamu.record import record
from lamu.typing import Array, Inputs, RandomKey

__all__ = [
    "LocatedMultivariateNormal",
    "LocatedNormal",
    "MultivariateNormal",
    "MultivariateNormalFactor",
    "Normal",
    "NormalFactor",
]


def Normal(mean: Any, precision: Any = None, scale: Any = None) -> Factor:
    r"""Returns the normal factor of numbers.

    \[ \log p(x) = \tfrac12 E \log\tau - \tfrac12 \log 2\pi
       - \tfrac12 E\tau \,\big(E x^2 - 2\, E x\, E m + E m^2\big) \]

    Args:
        mean: m: numbers, `W @ z`, sums of them, a member indexed by a category, which may also index the precision; or
            a variable with a `NormalGamma` belief, which is mean and precision at once.
        precision: τ: positive numbers, or a variable with a `Gamma` belief. `Normal(0.0, 2.0)` has the deviation 0.71,
            and not 2 as in NumPyro.
        scale: instead of the precision, \(\tau = 1/s^2\): positive numbers, or `HalfCauchy` variables and their
            products.

    Raises:
        TypeError: for an argument without a closed form, both precision and scale, or neither.

    Source: Winn & Bishop (2005), section 2.3.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Normal(0.0, scale=2.0).shape
        ()
    """
    located = isinstance(mean, Expression) and Located in mean.kinds()
    if located:
        if precision is not None or scale is not None:
            raise TypeError("a variable that is mean and precision at once leaves no precision to give; leave it out")
        return LocatedNormal(mean)
    if (precision is None) == (scale is None):
        raise TypeError("Normal needs a precision or a scale, and one of them; give for instance precision=1.0")
    if scale is None:
        return NormalFactor(_mean(mean), argument(precision, PositiveNumbers, "the precision of Normal"))
    if isinstance(scale, ScaleProduct):
        return NormalFactor(_mean(mean), scale)
    operand = argument(scale, PositiveNumbers, "the scale of Normal")
    if not isinstance(operand, KnownValue):
        raise TypeError(
            f"the scale is {', '.join(sorted(operand.names))}, and a closed form needs a HalfCauchy variable or a "
            "number there; give precision= for a Gamma variable"
        )
    return NormalFactor(_mean(mean), KnownValue(1.0 / operand.value**2))


def _mean(mean: Any) -> Expression:
    expression = lifted(mean)
    if isinstance(expression, KnownValue) or (expression.kinds() and not {Numbers, Statistics} & {*expression.kinds()}):
        return argument(mean, Numbers, "the mean of Normal")
    return expression


@record
class NormalFactor(Factor):
    """Numbers with a mean and a precision. Use `Normal`."""

    mean: Expression  # m
    precision: Expression

    kind = Numbers
    by_entry = True

    def entry_densities(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        precision = self.precision.of_kind(PositiveNumbers, environment)
        square = jax.grad(lambda weight: self.mean.quadratic(weight, environment))(jnp.zeros_like(x.first))
        away = x.second - 2.0 * x.first * self.mean.first(environment) + square
        values = (precision.log - math.log(2.0 * math.pi) - precision.value * away) / 2.0
        return values if observed is None else jnp.where(observed, values, jnp.zeros_like(values))

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log density; x may be `Numbers` or `Vectors`.
        precision = self.precision.of_kind(PositiveNumbers, environment)
        first, shape = x.first, jnp.shape(x.first)
        log = summed(jnp.broadcast_to(precision.log - math.log(2.0 * math.pi), shape), observed)
        # Without mask and broadcast, a weight that is the same in every row stays unbatched under vmap.
        weight = jnp.broadcast_to(precision.value, shape)
        weight = weight if observed is None else jnp.where(observed, weight, jnp.zeros_like(weight))
        square = jnp.sum(weight * x.second) - 2.0 * jnp.sum(weight * first * self.mean.first(environment))
        return (log - square - self.mean.quadratic(weight, environment)) / 2.0

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        # Returns E m, and the variance of m plus that of the noise.
        mean = self.mean.first(environment)
        square = jax.grad(lambda weight: self.mean.quadratic(weight, environment))(jnp.zeros_like(mean))
        return mean, square - mean**2 + self.precision.of_kind(PositiveNumbers, environment).mean_inverse


@record
class LocatedNormal(Factor):
    r"""Numbers whose mean and precision are one variable, \(\tfrac12(E\log\tau - \log 2\pi - E\tau(x - m)^2)\)."""

    of: Expression  # the variable

    kind = Numbers

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"mean and precision": self.of}

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        of = self.of.of_kind(Located, environment)
        square = of.precision * x.second - 2.0 * of.first * x.first + of.second
        return summed(of.log - math.log(2.0 * math.pi) - square, observed) / 2.0

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        of = self.of.of_kind(Located, environment)
        mean = of.first / of.precision
        return mean, (of.second - mean * of.first + 1.0) * PositiveNumbers(of.log, of.precision).mean_inverse


def MultivariateNormal(mean: Any, precision: Any = None) -> Factor:
    r"""Returns the normal factor of a vector.

    \[ \log p(x) = \tfrac12 E\log\det\Lambda - \tfrac d2 \log 2\pi
       - \tfrac12 \mathrm{tr}\, E\Lambda\, \big(E x x^\top - E x\, E m^\top - E m\, E x^\top + E m m^\top\big) \]

    NaN entries of data are integrated out, at known arguments exactly.

    Args:
        mean: m `[d]`: numbers, a vector, a product of a known matrix and a vector, as `m.data("x") @ w` with x
            `[N, d, p]`, and sums of these; or a variable with a `NormalWishart` belief, mean and precision at once.
        precision: Λ `[d, d]`: a matrix, a variable with a `Wishart` belief, or one with a `Gamma` belief times a
            known matrix, as of neighbours in space or times of a process.

    Raises:
        TypeError: for an argument without a closed form, or no precision.

    Source: Winn & Bishop (2005), section 2.3; Bishop (2006), equation 10.42.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.MultivariateNormal(jnp.zeros(3), jnp.eye(3)).shape
        (3,)
    """
    if isinstance(mean, Expression) and LocatedVectors in mean.kinds():
        if precision is not None:
            raise TypeError("a variable that is mean and precision at once leaves no precision to give; leave it out")
        return LocatedMultivariateNormal(mean)
    if precision is None:
        raise TypeError("MultivariateNormal needs a precision matrix; give for instance precision=jnp.eye(d)")
    if isinstance(precision, Expression) and PositiveNumbers in precision.kinds():
        precision = _of_matrix(precision)
        if not isinstance(precision, ScaledMatrix):
            return Normal(mean, precision)
    is_vector = isinstance(mean, Times | Sum) and mean.is_vector
    mean, precision = (
        mean if is_vector else argument(mean, Vectors, "the mean of MultivariateNormal"),
        argument(precision, Precisions, "the precision of MultivariateNormal"),
    )
    if precision.shape is not None and (len(precision.shape) < 2 or precision.shape[-1] != precision.shape[-2]):
        raise ValueError(f"the precision has the shape {precision.shape}; give a square matrix [d, d]")
    return MultivariateNormalFactor(mean, precision)


def _of_matrix(precision: Expression) -> Expression:
    """Returns a positive number times a known matrix, or the precisions of the entries if that is diagonal."""
    if isinstance(precision, Multiple) and isinstance(precision.by, KnownValue) and is_matrix(precision.by):
        by = precision.by.value
        return (
            jnp.diag(by) * precision.of if np.array_equal(by, np.diag(np.diag(by))) else ScaledMatrix(precision.of, by)
        )
    raise TypeError(
        f"the precision of MultivariateNormal is {', '.join(sorted(precision.names))}, positive numbers, and no "
        "matrix; multiply it by a known one, such as tau * jnp.eye(d), or give a variable with a Wishart belief"
    )


class OfVectors(Factor):
    r"""Vectors \(x \sim N(m, \Lambda^{-1})\) with missing entries integrated out."""

    # \[ \log \int \exp E\log p(x)\, dx_m = \tfrac12 \big(E\log\det\Lambda - \log\det P_{mm} - d_o \log 2\pi
    #    - \mathrm{tr}\, S\, E (x - m)(x - m)^\top \big), \qquad S = P_{oo} - P_{om} P_{mm}^{-1} P_{mo} \]
    #
    # with P = EΛ: at T(θ) the marginal density, in expectation its bound by the best belief about the missing entries.

    kind = Vectors
    fills = True
    by_entry = True

    @abstractmethod
    def _moments(self, environment: Environment) -> tuple[Array, Array, Array, Array, Any]:
        """Returns E log det Λ, EΛ, Em, Cov m, and E (m − Em)ᵀ Λ (m − Em) if mean and precision are one variable."""

    @abstractmethod
    def _complete(self, x: Inputs, environment: Environment) -> Array:
        """Returns the log density of every complete vector."""

    def mixed_over(self, holes: bool = False) -> frozenset[str]:
        # The marginal density is not affine in the statistics that a category indexes.
        picked = (name for part in self.arguments.values() for name in part.picks)
        return frozenset(picked) if holes else super().mixed_over()

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        return jnp.sum(self.entry_densities(x, environment, observed))

    def entry_densities(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        return self._complete(x, environment) if observed is None else self._marginal(x.first, environment, observed)

    def _marginal(self, x: Array, environment: Environment, observed: Array) -> Array:
        """Returns the log density of the observed entries of every vector; zero if there are none."""
        logdet, P, m, covariance, scatter = self._moments(environment)
        A, determinant = swept(P, ~observed)
        S = jnp.where(observed[..., :, None] & observed[..., None, :], A, jnp.zeros_like(A))
        away = x - m
        scatter = jnp.sum(S * covariance, axis=(-2, -1)) if scatter is None else scatter
        square = jnp.einsum("...i,...ij,...j->...", away, S, away) + scatter
        count = jnp.sum(observed, axis=-1)
        value = logdet - determinant - count * math.log(2.0 * math.pi) - square
        return jnp.where(count > 0, value / 2.0, jnp.zeros_like(value))

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        m = self._moments(environment)[2]
        return self.completed(Vectors.of(jnp.zeros_like(m)), environment, jnp.zeros(m.shape, bool))

    def completed(self, x: Inputs, environment: Environment, observed: Any) -> tuple[Array, Array]:
        mean, covariance = self.conditional(x.first, environment, observed)
        return mean, jnp.diagonal(covariance, axis1=-2, axis2=-1)

    def filled(self, key: RandomKey, value: Array, environment: Environment, observed: Array) -> Array:
        with lenient():
            mean, covariance = self.conditional(jnp.asarray(value, jnp.result_type(float)), environment, observed)
        eye = jnp.eye(mean.shape[-1], dtype=mean.dtype)
        root = jnp.linalg.cholesky(jnp.where(observed[..., None] & observed[..., None, :], eye, covariance))
        noise = jnp.einsum("...ij,...j->...i", root, jax.random.normal(key, mean.shape, mean.dtype))
        return jnp.where(observed, mean, mean + noise)

    def conditional(self, x: Array, environment: Environment, observed: Array) -> tuple[Array, Array]:
        """Returns mean and covariance of vectors given their observed entries, `[..., d]` and `[..., d, d]`."""
        logdet, P, m, covariance, _ = self._moments(environment)
        missing = ~observed
        missing_pairs, A = missing[..., :, None] & missing[..., None, :], swept(P, missing)[0]
        onto = jnp.where(missing[..., :, None] & observed[..., None, :], A, jnp.zeros_like(A))
        gain = jnp.eye(P.shape[-1], dtype=P.dtype) + onto
        wider = _of_inverse(logdet, swept(P)[1], P.shape[-1], jnp.sum(missing, axis=-1))
        infinite = ~jnp.isfinite(wider) | ~jnp.all(jnp.isfinite(covariance), axis=(-2, -1), keepdims=True)
        covariance, wider = (jnp.where(infinite, jnp.zeros_like(part), part) for part in (covariance, wider))
        own = gain @ covariance @ transpose(gain) - A * wider
        own = jnp.where(infinite & jnp.eye(P.shape[-1], dtype=bool), jnp.asarray(jnp.inf, own.dtype), own)
        mean = m - jnp.einsum("...ij,...j->...i", onto, x - m)
        return jnp.where(observed, x, mean), jnp.where(missing_pairs, own, jnp.zeros_like(own))


def _of_inverse(logdet: Array, log_mean: Array, dimension: int, size: Any) -> Array:
    """Returns E[Λ⁻¹] over (EΛ)⁻¹ for blocks of the Wishart with these means, `[..., 1, 1]`; infinite without a mean."""
    room = 1.0 - (size + 1.0) / (2.0 * shape_of_gamma(logdet, log_mean, dimension))
    return jnp.where(room > 0, 1.0 / room, jnp.inf)[..., None, None]


@record
class MultivariateNormalFactor(OfVectors):
    """A vector with a mean and a precision matrix. Use `MultivariateNormal`."""

    mean: Expression  # m
    precision: Expression

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.mean.shape

    def _moments(self, environment: Environment) -> tuple[Array, Array, Array, Array, Any]:
        precision, mean = self.precision.of_kind(Precisions, environment), self.mean.of_kind(Vectors, environment)
        return precision.logdet, precision.matrix, mean.first, mean.outer - Vectors.of(mean.first).outer, None

    def _complete(self, x: Inputs, environment: Environment) -> Array:
        precision, mean = self.precision.of_kind(Precisions, environment), self.mean.of_kind(Vectors, environment)
        cross = x.first[..., :, None] * mean.first[..., None, :]
        both = cross + jnp.swapaxes(cross, -1, -2)  # symmetric, so that the message to Λ is symmetric
        square = jnp.sum(precision.matrix * (x.outer - both + mean.outer), axis=(-2, -1))
        return (precision.logdet - x.first.shape[-1] * math.log(2.0 * math.pi) - square) / 2.0


@record
class LocatedMultivariateNormal(OfVectors):
    """A vector whose mean and precision matrix are one variable. Use `MultivariateNormal`."""

    of: Expression  # the variable

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"mean and precision": self.of}

    def _moments(self, environment: Environment) -> tuple[Array, Array, Array, Array, Any]:
        of = self.of.of_kind(LocatedVectors, environment)
        P, d = of.precision, of.precision.shape[-1]
        A, log_mean = swept(P)
        m = -product(A, of.first)
        scatter = of.second - jnp.sum(of.first * m, axis=-1)
        covariance = -A * _of_inverse(of.logdet, log_mean, d, float(d)) * (scatter / d)[..., None, None]
        return of.logdet, P, m, covariance, scatter

    def _complete(self, x: Inputs, environment: Environment) -> Array:
        of = self.of.of_kind(LocatedVectors, environment)
        square = jnp.sum(of.precision * x.outer, axis=(-2, -1)) - 2.0 * jnp.sum(of.first * x.first, axis=-1)
        return (of.logdet - x.first.shape[-1] * math.log(2.0 * math.pi) - square - of.second) / 2.0
