r"""The Gaussian \(N(m, S^{-1})\) over any operator, in its three coordinates.

| on paper | in code |
|---|---|
| \(m, S\) | `Gaussian(mean, precision)` |
| \(\lambda = (S m, -\tfrac12 S)\) | `NaturalGaussian(first, second)` |
| \(\mu = (m, \Sigma + m m^\top)\) | `ExpectationGaussian(first, second)` |
| \(T(\theta)\) | `Gaussian.statistics`, an `ExpectationGaussian` |
| \(A(\lambda) = \tfrac12 m^\top S m - \tfrac12 \log\det S\) | `log_partition` of `Gaussian` and `NaturalGaussian` |

**One convention for matrices.** The statistic of a dense Gaussian is the full symmetric matrix \(\theta\theta^\top\),
paired with \(-S/2\) by the trace, off-diagonal entries counted twice as they stand, and so leaf by leaf for a matrix a
leaf; the diagonal Gaussian's is \(\theta^2\) coordinate by coordinate; the scalar Gaussian's is
\(\lVert\theta\rVert^2\), one number. The base measure is \((2\pi)^{-D/2}\), a constant, so that
\(\nabla_\mu H(q) = -\lambda\) exactly.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families.domains import Positive, PositiveDefinite
from lamu.operators import Dense, DenseBlocks, Diagonal, Operator, Scalar
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["ExpectationGaussian", "Gaussian", "NaturalGaussian"]

_DOMAINS: dict[type, Any] = {
    Scalar: Positive(),
    Diagonal: Positive(),
    Dense: PositiveDefinite(),
    DenseBlocks: PositiveDefinite(),
}


@record
class Gaussian:
    r"""A Gaussian belief with mean m and precision S.

    \[ \log q(\theta) = \tfrac12 \log\det S - \tfrac{D}{2}\log 2\pi - \tfrac12 (\theta - m)^\top S (\theta - m) \]

    Attributes:
        mean: m, a point of parameter space.
        precision: S, an operator on it. The structure of the operator is the structure of the family.

    Raises:
        ValueError: if the precision is not positive, or a matrix that is not symmetric.

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

    def __post_init__(self) -> None:
        domain = _DOMAINS.get(type(self.precision))
        if domain is None:
            return
        for path, leaf in jax.tree_util.tree_flatten_with_path(self.precision)[0]:
            fault = domain.fault(leaf, self)
            if fault is not None:
                inside = jax.tree_util.keystr(path[1:], simple=True, separator="/")
                raise ValueError(f"Gaussian: the precision{f' of {inside}' if inside else ''} {fault}")

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

    def statistics(self, theta: Params) -> ExpectationGaussian:
        r"""Returns \(T(\theta)\): θ, and θθᵀ, its diagonal or ‖θ‖², whichever pairs with the structure."""
        if isinstance(self.precision, Scalar):
            return ExpectationGaussian(theta, Scalar(tree.dot(theta, theta)))
        if isinstance(self.precision, Diagonal):
            return ExpectationGaussian(theta, Diagonal(jax.tree.map(jnp.square, theta)))
        if isinstance(self.precision, Dense):
            vector, _ = tree.ravel(theta)
            return ExpectationGaussian(theta, Dense(jnp.outer(vector, vector)))
        if isinstance(self.precision, DenseBlocks):
            return ExpectationGaussian(theta, DenseBlocks.from_outer(theta, theta))
        raise TypeError(f"no statistic is defined for the structure {type(self.precision).__name__}")

    def log_partition(self) -> Array:
        r"""Returns \(A(\lambda)\), without the constant \(\tfrac D2 \log 2\pi\) of the base measure."""
        return self.natural().log_partition()

    def retract(self, direction: Any, rate: Number) -> Gaussian:
        r"""Returns the belief after the step \(\lambda + \rho d\), bent so that the precision stays positive.

        \[ S' = S + \rho\Delta + \tfrac12\rho^2 \Delta S^{-1} \Delta, \qquad
           m' = m + \rho\, S'^{-1} (d_1 + 2 d_2 m), \qquad \Delta = -2 d_2 \]

        For \(d = -(\nabla_\mu E_q[\ell] + \lambda)\) it is `lamu.rule.gaussian_step` with the improved rule's
        retraction, in which \(-(d_1 + 2 d_2 m) = E_q[\nabla\ell]\); it agrees with the straight step to O(ρ²).

        Args:
            direction: d, natural or expectation parameters of the same structure.
            rate: ρ.

        Source: Lin, Schmidt & Khan (2020).
        """
        delta = direction.second.scale(-2.0)
        bend = self.precision.sandwich(delta)

        def moved(s: Any, d: Any, b: Any) -> Any:
            rho = tree.cast(rate, s)
            return s + rho * d + rho**2 / 2 * b

        precision = jax.tree.map(moved, self.precision, delta, bend)
        pull = tree.add(direction.first, delta.matvec(self.mean), -1.0)
        return Gaussian(tree.add(self.mean, precision.solve(pull), rate), precision)

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
        """Returns the same belief by mean and precision.

        Raises:
            ValueError: if λ is outside the domain, as after too long a step of the plain rule.
        """
        precision = self.second.scale(-2.0)
        try:
            return Gaussian(precision.solve(self.first), precision)
        except ValueError as error:
            raise ValueError(
                f"these natural parameters lie outside the domain ({error}); take a smaller rate, or the step"
                " q.retract(direction, rate), which cannot leave it"
            ) from None

    def family(self) -> Gaussian:
        """Returns `gaussian()`, under the name that it has in every exponential family."""
        return self.gaussian()

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
            return Gaussian(self.first, _precision(self.first, self.second))
        if isinstance(self.second, DenseBlocks):
            return Gaussian(self.first, DenseBlocks(jax.tree.map(_precision, self.first, self.second.blocks)))
        raise TypeError(f"no second moment is defined for the structure {type(self.second).__name__}")

    def natural(self) -> NaturalGaussian:
        """Returns the natural parameters of the same belief."""
        return self.gaussian().natural()

    def family(self) -> Gaussian:
        """Returns `gaussian()`, under the name that it has in every exponential family."""
        return self.gaussian()


def _second_moment(mean: Params, precision: Operator) -> Operator:
    if isinstance(precision, Scalar):
        return Scalar(tree.dot(mean, mean) + tree.dimension(mean) / precision.value)
    if isinstance(precision, Diagonal):
        return Diagonal(jax.tree.map(lambda m, s: m * m + 1 / s, mean, precision.values))
    if isinstance(precision, Dense):
        vector, _ = tree.ravel(mean)
        return Dense(jnp.outer(vector, vector) + jnp.linalg.inv(precision.matrix))
    if isinstance(precision, DenseBlocks):
        return DenseBlocks(jax.tree.map(_second_moment, mean, precision.blocks))
    raise TypeError(f"no second moment is defined for the structure {type(precision).__name__}")


def _precision(mean: Params, second: Dense) -> Dense:
    vector, _ = tree.ravel(mean)
    covariance = second.matrix - jnp.outer(vector, vector)
    # The symmetric part, so that a gradient in the symmetric second moment is symmetric.
    return Dense(jnp.linalg.inv((covariance + covariance.T) / 2))
