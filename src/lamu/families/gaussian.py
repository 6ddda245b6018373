r"""The Gaussian \(N(m, S^{-1})\) over any operator: an exponential family if the operator is a `Structure`."""

# | on paper | in code |
# |---|---|
# | \(m, S\) | `Gaussian(mean, precision)` |
# | \(\lambda = (S m, -\tfrac12 S)\) | `q.natural().values`, a vector and an operator of the structure |
# | \(\mu = (m, \Sigma + m m^\top)\) | `q.expectation().values`, likewise |
# | \(T(\theta) = (\theta, \theta\theta^\top)\) | `q.statistics(theta)`, likewise |
# | \(A(\lambda) = \tfrac12 m^\top S m - \tfrac12 \log\det S\) | `q.log_partition()` |
#
# **One convention for matrices.** The statistic of a dense Gaussian is the full symmetric matrix \(\theta\theta^\top\),
# paired with \(-S/2\) by the trace, with off-diagonal entries counted twice, and so leaf by leaf for a matrix per
# leaf; the diagonal Gaussian's is \(\theta^2\) coordinate by coordinate; the scalar Gaussian's is
# \(\lVert\theta\rVert^2\), one number. The base measure is \((2\pi)^{-D/2}\), a constant, so that
# \(\nabla_\mu H(q) = -\lambda\) exactly.

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families.exponential import ExpectationParameters, ExponentialFamily, Positive, PositiveDefinite, values_of
from lamu.families.interface import independent_draws
from lamu.operators import Dense, DenseBlocks, Diagonal, Operator, Scalar, Structure
from lamu.operators.interface import retracted
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey, Statistics

__all__ = ["Gaussian"]

_DOMAINS: dict[type, Positive | PositiveDefinite] = {
    Scalar: Positive(),
    Diagonal: Positive(),
    Dense: PositiveDefinite(),
    DenseBlocks: PositiveDefinite(),
}


@record
class Gaussian(ExponentialFamily):
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

    is_normal = True

    def marginal_variance(self) -> Params:
        return self.precision.variance(self.mean)

    def __post_init__(self) -> None:
        domain = _DOMAINS.get(type(self.precision))
        if domain is None:
            return
        for path, leaf in jax.tree_util.tree_flatten_with_path(self.precision)[0]:
            fault = domain.fault(leaf, self)
            if fault is not None:
                inside = jax.tree_util.keystr(path[1:], simple=True, separator="/")
                raise ValueError(f"Gaussian: the precision{f' of {inside}' if inside else ''} {fault}")

    # The formulas of the family.

    def to_natural(self) -> tuple[Params, Operator]:
        """Returns S m and −S/2."""
        return self.precision.matvec(self.mean), self.precision.scale(-0.5)

    @classmethod
    def from_natural(cls, values: tuple[Params, Operator], given: Params) -> Gaussian:
        """Returns the belief with precision −2 λ₂, and mean S⁻¹ λ₁."""
        first, second = values
        precision = second.scale(-2.0)
        return cls(precision.solve(first), precision)

    @classmethod
    def from_expectation(cls, values: tuple[Params, Structure], given: Params) -> Gaussian:
        """Returns the belief with the mean μ₁, and the precision of the second moment about it."""
        mean, second = values
        about_mean = jax.tree.map(jnp.subtract, second, second.statistic(mean))
        return cls(mean, about_mean.second_moment(mean))

    @classmethod
    def partition(cls, values: tuple[Params, Operator], given: Params) -> Array:
        r"""Returns \(\tfrac12 \lambda_1^\top S^{-1} \lambda_1 - \tfrac12\log\det S\)."""
        first, second = values
        precision = second.scale(-2.0).factored()
        return (tree.dot(first, precision.solve(first)) - precision.logdet(first)) / 2

    def statistics(self, theta: Params) -> tuple[Params, Structure]:
        r"""Returns θ and θθᵀ, its diagonal or ‖θ‖², depending on the structure."""
        return theta, self._structure.statistic(theta)

    def expectation(self) -> ExpectationParameters:
        r"""Returns \((m, \Sigma + m m^\top)\), the second as the structure's statistic."""
        structure = self._structure
        second = jax.tree.map(jnp.add, structure.statistic(self.mean), structure.second_moment(self.mean))
        return ExpectationParameters((self.mean, second), self.given, type(self))

    def log_base_measure(self, theta: Params) -> Array:
        r"""Returns \(-\tfrac D2 \log 2\pi\)."""
        return self.expected_log_base_measure()

    def expected_log_base_measure(self) -> Array:
        r"""Returns \(-\tfrac D2 \log 2\pi\)."""
        return jnp.asarray(-tree.dimension(self.mean) * math.log(2 * math.pi) / 2, self._dtype)

    @property
    def _structure(self) -> Structure:
        if not isinstance(self.precision, Structure):
            raise TypeError(f"no statistic is defined for the structure {type(self.precision).__name__}")
        return self.precision

    # Closed forms, for any operator.

    def sample(self, key: RandomKey) -> Params:
        return tree.add(self.mean, self.precision.sample(key, self.mean))

    def draws(self, key: RandomKey, count: int) -> Params:
        belief = Gaussian(self.mean, self.precision.factored())
        return independent_draws(belief, key, count)

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

    def moved(self, precision: Operator, gradient: Params, rate: Number) -> Gaussian:
        r"""Returns the belief with a new precision, and the mean \(m - \rho\, S^{-1} g\) with that precision.

        Args:
            precision: S after the step.
            gradient: g.
            rate: ρ.
        """
        return Gaussian(tree.add(self.mean, precision.solve(gradient), -rate), precision)

    def real(self) -> Params:
        return self.mean, self.precision

    def with_real(self, real: Params) -> Gaussian:
        return Gaussian(*real)

    def retract(self, direction: Statistics, rate: Number) -> Gaussian:
        r"""Returns the belief after the step \(\lambda + \rho d\), retracted so that the precision stays positive.

        \[ S' = S + \rho\Delta + \tfrac12\rho^2 \Delta S^{-1} \Delta, \qquad
           m' = m + \rho\, S'^{-1} (d_1 + 2 d_2 m), \qquad \Delta = -2 d_2 \]

        For \(d = -(\nabla_\mu E_q[\ell] + \lambda)\) it is `lamu.rule.gaussian_step` with the improved rule's
        retraction, in which \(-(d_1 + 2 d_2 m) = E_q[\nabla\ell]\); it agrees with the straight step to O(ρ²).

        Source: Lin, Schmidt & Khan (2020).
        """
        first, second = values_of(direction)
        delta = second.scale(-2.0)
        gradient = tree.add(delta.matvec(self.mean), first, -1.0)
        return self.moved(retracted(self.precision, delta, rate), gradient, rate)
