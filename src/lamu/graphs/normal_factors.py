"""Normal factors: of numbers around a mean with a precision, and of vectors with a precision matrix."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.expressions import Environment, Expression, KnownValue, ScaleProduct, lifted
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Located, LocatedVectors, Numbers, PositiveNumbers, Precisions, Statistics, Vectors
from lamu.record import record
from lamu.typing import Array, Inputs

__all__ = [
    "LocatedMultivariateNormal",
    "LocatedNormal",
    "MultivariateNormal",
    "MultivariateNormalFactor",
    "Normal",
    "NormalFactor",
]


def Normal(mean: Any, precision: Any = None, scale: Any = None) -> Factor:
    r"""Returns the factor of numbers around a mean.

    \[ \log p(x) = \tfrac12 E \log\tau - \tfrac12 \log 2\pi
       - \tfrac12 E\tau \,\big(E x^2 - 2\, E x\, E m + E m^2\big) \]

    Args:
        mean: m: numbers, `W @ z`, sums of them, a member picked by a category; or a variable with a `NormalGamma`
            belief, which is mean and precision at once.
        precision: τ: positive numbers, or a variable with a `Gamma` belief.
        scale: in the place of the precision, \(\tau = 1/s^2\): positive numbers, or `HalfCauchy` variables and their
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
    if scale is not None:
        known = argument(scale, PositiveNumbers, "the scale of Normal")
        precision = KnownValue(1.0 / known.value**2) if isinstance(known, KnownValue) else known
        if not isinstance(precision, KnownValue | ScaleProduct):
            raise TypeError(
                f"the scale is {', '.join(sorted(known.names))}, and a closed form needs a HalfCauchy variable or a "
                "number there; give precision= for a Gamma variable"
            )
    return NormalFactor(_mean(mean), argument(precision, PositiveNumbers, "the precision of Normal"))


def _mean(mean: Any) -> Expression:
    made = lifted(mean)
    if made.kinds() and not {Numbers, Statistics} & set(made.kinds()):
        return argument(mean, Numbers, "the mean of Normal")
    return made


@record
class NormalFactor(Factor):
    """Numbers with a mean and a precision. Use `Normal`."""

    mean: Expression  # m
    precision: Expression

    kind = Numbers

    def log_density(self, x: Inputs, at: Environment, observed: Any = None) -> Array:
        # Returns the log density; x may be `Numbers` or `Vectors`.
        precision = self.precision.of_kind(PositiveNumbers, at)
        first, shape = x.first, jnp.shape(x.first)
        log = summed(jnp.broadcast_to(precision.log - math.log(2.0 * math.pi), shape), observed)
        # No mask, no broadcast: a weight that is the same in every row stays one under vmap.
        weight = jnp.broadcast_to(precision.value, shape)
        weight = weight if observed is None else jnp.where(observed, weight, jnp.zeros_like(weight))
        square = jnp.sum(weight * x.second) - 2.0 * jnp.sum(weight * first * self.mean.first(at))
        return (log - square - self.mean.quadratic(weight, at)) / 2.0

    def predicted(self, at: Environment) -> tuple[Array, Array]:
        # Returns E m, and the variance of m with that of the noise.
        mean = self.mean.first(at)
        square = jax.grad(lambda weight: self.mean.quadratic(weight, at))(jnp.zeros_like(mean))
        return mean, square - mean**2 + 1.0 / self.precision.of_kind(PositiveNumbers, at).value


@record
class LocatedNormal(Factor):
    r"""Numbers whose mean and precision are one variable, \(\tfrac12(E\log\tau - \log 2\pi - E\tau(x - m)^2)\)."""

    of: Expression  # the variable

    kind = Numbers

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"mean and precision": self.of}

    def log_density(self, x: Inputs, at: Environment, observed: Any = None) -> Array:
        of = self.of.of_kind(Located, at)
        square = of.precision * x.second - 2.0 * of.first * x.first + of.second
        return summed(of.log - math.log(2.0 * math.pi) - square, observed) / 2.0

    def predicted(self, at: Environment) -> tuple[Array, Array]:
        of = self.of.of_kind(Located, at)
        mean = of.first / of.precision
        return mean, (of.second - mean * of.first + 1.0) / of.precision


def MultivariateNormal(mean: Any, precision: Any = None) -> Factor:
    r"""Returns the factor of a vector around a mean.

    \[ \log p(x) = \tfrac12 E\log\det\Lambda - \tfrac d2 \log 2\pi
       - \tfrac12 \mathrm{tr}\, E\Lambda\, \big(E x x^\top - E x\, E m^\top - E m\, E x^\top + E m m^\top\big) \]

    Args:
        mean: m `[d]`: numbers or a vector; or a variable with a `NormalWishart` belief, mean and precision at once.
        precision: Λ `[d, d]`: a matrix, or a variable with a `Wishart` belief.

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
    mean, precision = (
        argument(mean, Vectors, "the mean of MultivariateNormal"),
        argument(precision, Precisions, "the precision of MultivariateNormal"),
    )
    if precision.shape is not None and (len(precision.shape) < 2 or precision.shape[-1] != precision.shape[-2]):
        raise ValueError(f"the precision has the shape {precision.shape}; give a square matrix [d, d]")
    return MultivariateNormalFactor(mean, precision)


@record
class MultivariateNormalFactor(Factor):
    """A vector with a mean and a precision matrix. Use `MultivariateNormal`."""

    mean: Expression  # m
    precision: Expression

    kind = Vectors
    misses = False

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.mean.shape

    def log_density(self, x: Inputs, at: Environment, observed: Any = None) -> Array:
        precision, mean = self.precision.of_kind(Precisions, at), self.mean.of_kind(Vectors, at)
        cross = x.first[..., :, None] * mean.first[..., None, :]
        both = cross + jnp.swapaxes(cross, -1, -2)  # symmetric, so that the message to Λ is
        square = jnp.sum(precision.matrix * (x.outer - both + mean.outer))
        members = math.prod(jnp.shape(x.first)[:-1])
        logdet = jnp.sum(jnp.broadcast_to(precision.logdet, jnp.shape(x.first)[:-1]))
        return (logdet - members * x.first.shape[-1] * math.log(2.0 * math.pi) - square) / 2.0


@record
class LocatedMultivariateNormal(Factor):
    """A vector whose mean and precision matrix are one variable. Use `MultivariateNormal`."""

    of: Expression  # the variable

    kind = Vectors
    misses = False

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"mean and precision": self.of}

    def log_density(self, x: Inputs, at: Environment, observed: Any = None) -> Array:
        of = self.of.of_kind(LocatedVectors, at)
        square = jnp.sum(of.precision * x.outer) - 2.0 * jnp.sum(of.first * x.first) + jnp.sum(of.second)
        size = math.prod(jnp.shape(x.first))
        return (jnp.sum(of.logdet) - size * math.log(2.0 * math.pi) - square) / 2.0
