r"""The Gaussian \(N(m, S^{-1})\) over any operator, in its three coordinates.

| on paper | in code |
|---|---|
| \(m, S\) | `Gaussian(mean, precision)` |
| \(\lambda = (S m, -\tfrac12 S)\) | `NaturalGaussian(first, second)` |
| \(\mu = (m, \Sigma + m m^\top)\) | `ExpectationGaussian(first, second)` |
| \(A(\lambda) = \tfrac12 m^\top S m - \tfrac12 \log\det S\) | `NaturalGaussian.log_partition` |

**One convention for matrices.** The statistic of a dense Gaussian is the full symmetric matrix \(\theta\theta^\top\),
paired with \(-S/2\) by the trace, off-diagonal entries counted twice as they stand; the diagonal Gaussian's is
\(\theta^2\) coordinate by coordinate; the scalar Gaussian's is \(\lVert\theta\rVert^2\), one number. The base measure
is \((2\pi)^{-D/2}\), a constant, so that \(\nabla_\mu H(q) = -\lambda\) exactly.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.operators import Dense, Diagonal, Operator, Scalar
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["ExpectationGaussian", "Gaussian", "NaturalGaussian"]


@record
class Gaussian:
    r"""A Gaussian belief with mean m and precision S.

    \[ \log q(\theta) = \tfrac12 \log\det S - \tfrac{D}{2}\log 2\pi - \tfrac12 (\theta - m)^\top S (\theta - m) \]

    Attributes:
        mean: m, a point of parameter space.
        precision: S, an operator on it. The structure of the operator is the structure of the family.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Scalar
        >>> belief = Gaussian(mean={"w": jnp.zeros(2)}, precision=Scalar(4.0))
        >>> round(float(belief.entropy()), 4)  # nats
        1.4516
    """

    mean: Params
    precision: Operator

    kind = "minimal exponential"

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ."""
        return tree.add(self.mean, self.precision.sample(key, self.mean))

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent draws along a leading axis; draw i depends on the key and i alone."""
        belief = Gaussian(self.mean, self.precision.factored())
        return jax.lax.map(lambda i: belief.sample(jax.random.fold_in(key, i)), jnp.arange(count))

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats."""
        away = tree.add(theta, self.mean, -1.0)
        quadratic = tree.dot(away, self.precision.matvec(away))
        constant = tree.dimension(self.mean) * math.log(2 * math.pi)
        return (self.precision.logdet(self.mean) - constant - quadratic) / 2

    def entropy(self) -> Array:
        r"""Returns \(H(q) = \tfrac{D}{2}\log 2\pi e - \tfrac12\log\det S\) in nats."""
        constant = tree.dimension(self.mean) * (1 + math.log(2 * math.pi))
        return (constant - self.precision.logdet(self.mean)) / 2

    def kl(self, other: Gaussian) -> Array:
        r"""Returns \(KL(q \,\|\, \mathrm{other})\) in nats; the two may have different structures."""
        away = tree.add(self.mean, other.mean, -1.0)
        mine = self.precision.factored()
        determinants = mine.logdet(self.mean) - other.precision.logdet(other.mean)
        trace = mine.trace_solve(other.precision, self.mean)
        quadratic = tree.dot(away, other.precision.matvec(away))
        return (trace + quadratic - tree.dimension(self.mean) + determinants) / 2

    def natural(self) -> NaturalGaussian:
        r"""Returns the natural parameters \((S m, -S/2)\)."""
        return NaturalGaussian(self.precision.matvec(self.mean), self.precision.scale(-0.5))

    def expectation(self) -> ExpectationGaussian:
        r"""Returns the expectation parameters \((m, \Sigma + m m^\top)\), the second as the structure's statistic."""
        return ExpectationGaussian(self.mean, _second_moment(self.mean, self.precision))


@record
class NaturalGaussian:
    r"""Natural parameters \(\lambda = (S m, -S/2)\) of a Gaussian.

    Attributes:
        first: S m, a vector of the space.
        second: −S/2, an operator of the family's structure.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Scalar
        >>> Gaussian(jnp.ones(2), Scalar(4.0)).natural().gaussian().mean.tolist()
        [1.0, 1.0]
    """

    first: Params
    second: Operator

    def gaussian(self) -> Gaussian:
        """Returns the same belief by mean and precision."""
        precision = self.second.scale(-2.0)
        return Gaussian(precision.solve(self.first), precision)

    def log_partition(self) -> Array:
        r"""Returns \(A(\lambda) = \tfrac12 \lambda_1^\top S^{-1} \lambda_1 - \tfrac12\log\det S\), with gradient μ."""
        precision = self.second.scale(-2.0).factored()
        return (tree.dot(self.first, precision.solve(self.first)) - precision.logdet(self.first)) / 2

    def expectation(self) -> ExpectationGaussian:
        r"""Returns \(\mu = \nabla A(\lambda)\), by automatic differentiation."""
        gradient = jax.grad(lambda natural: natural.log_partition())(self)
        return ExpectationGaussian(gradient.first, gradient.second)


@record
class ExpectationGaussian:
    r"""Expectation parameters \(\mu = (E\theta, E\,T_2(\theta))\) of a Gaussian.

    Attributes:
        first: E θ.
        second: the expected second statistic in an operator of the family's structure: E θθᵀ, its diagonal, or E‖θ‖².

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Scalar
        >>> float(Gaussian(jnp.ones(2), Scalar(4.0)).expectation().second.value)  # ‖m‖² + D/s
        2.5
    """

    first: Params
    second: Operator

    def gaussian(self) -> Gaussian:
        """Returns the same belief by mean and precision."""
        square = self.first
        if isinstance(self.second, Scalar):
            excess = self.second.value - tree.dot(square, square)
            return Gaussian(self.first, Scalar(tree.dimension(self.first) / excess))
        if isinstance(self.second, Diagonal):
            variance = jax.tree.map(lambda second, m: second - m * m, self.second.values, self.first)
            return Gaussian(self.first, Diagonal(jax.tree.map(jnp.reciprocal, variance)))
        if isinstance(self.second, Dense):
            vector, _ = tree.ravel(self.first)
            covariance = self.second.matrix - jnp.outer(vector, vector)
            return Gaussian(self.first, Dense(jnp.linalg.inv(covariance)))
        raise TypeError(f"no second moment is defined for the structure {type(self.second).__name__}")


def _second_moment(mean: Params, precision: Operator) -> Operator:
    if isinstance(precision, Scalar):
        return Scalar(tree.dot(mean, mean) + tree.dimension(mean) / precision.value)
    if isinstance(precision, Diagonal):
        return Diagonal(jax.tree.map(lambda m, s: m * m + 1 / s, mean, precision.values))
    if isinstance(precision, Dense):
        vector, _ = tree.ravel(mean)
        return Dense(jnp.outer(vector, vector) + jnp.linalg.inv(precision.matrix))
    raise TypeError(f"no second moment is defined for the structure {type(precision).__name__}")
