"""Vectors around a mean, with a precision matrix."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor, argument
from lamu.graphs.statistics import LocatedVectors, Precisions, Vectors
from lamu.record import record
from lamu.typing import Array

__all__ = ["LocatedMultivariateNormal", "MultivariateNormal", "MultivariateNormalFactor"]


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

    mean: Any  # m
    precision: Any

    kind = Vectors
    misses = False

    @property
    def arguments(self) -> dict[str, Expression]:
        # Mean and precision.
        return {"mean": self.mean, "precision": self.precision}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.mean.shape

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
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

    of: Any  # the variable

    kind = Vectors
    misses = False

    @property
    def arguments(self) -> dict[str, Expression]:
        return {"mean and precision": self.of}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.of.shape

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        of = self.of.of_kind(LocatedVectors, at)
        square = jnp.sum(of.precision * x.outer) - 2.0 * jnp.sum(of.first * x.first) + jnp.sum(of.second)
        size = math.prod(jnp.shape(x.first))
        return (jnp.sum(of.logdet) - size * math.log(2.0 * math.pi) - square) / 2.0
