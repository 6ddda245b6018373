"""Products and sums of independent variables: the mean of a Normal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from lamu.families.exponential import symmetric
from lamu.graphs.expressions.interface import Environment, Expression, Input, KnownValue, common_shape, lifted
from lamu.graphs.statistics import (
    Chance,
    Numbers,
    PositiveNumbers,
    Precisions,
    Probabilities,
    Series,
    Statistics,
    Variances,
    Vectors,
)
from lamu.record import record
from lamu.typing import Array

__all__ = [
    "Multiple",
    "RateProduct",
    "ScaleProduct",
    "ScaledMatrix",
    "StickBreaking",
    "Sum",
    "Times",
    "is_matrix",
    "multiplied",
    "product",
    "scaled",
    "total",
]


S = TypeVar("S", bound=Statistics)


@record
class Times(Expression):
    r"""The product of a vector, or of a plate of vectors, with an independent vector, \(W z\), or with one for each."""

    # \[ E[(Wz)_d] = E[w_d]^\top E[z], \qquad E[(Wz)_d^2] = \mathrm{tr}\, E[w_d w_d^\top] E[z z^\top] \]

    left: Expression  # W `[..., K]`
    right: Expression  # z `[K]`, or `[..., K]` for a vector of each w_d, as of the inputs and the state of every time

    def __post_init__(self) -> None:
        both = _on_both(self.left, self.right)
        if both:
            raise ValueError(
                f"both sides of @ depend on {', '.join(sorted(both))}, whose product with itself has no closed form; "
                "multiply variables that are independent of each other"
            )
        for side in (self.left, self.right):
            if Numbers in side.kinds() and Vectors not in side.kinds():
                raise TypeError(
                    f"@ multiplies vectors along their last axis, and an index has taken that axis from "
                    f"{', '.join(sorted(side.names))}; keep it, as in W[0] @ z or w[1:3] @ z"
                )
            if side.kinds() != (Statistics,) and Vectors not in side.kinds():
                raise TypeError(
                    f"@ multiplies vectors of numbers, and {', '.join(sorted(side.names))} is "
                    f"{side.kinds()[0].words if side.kinds() else 'a product itself'}; moments of products of three "
                    "variables have no closed form here"
                )
        self._require_equal(self.left.shape, self.right.shape)

    def _require_equal(self, left: tuple[int, ...] | None, right: tuple[int, ...] | None) -> None:
        """Raises a ValueError for last axes that differ, and for vectors that make no pairs."""
        names = ", ".join(sorted(self.names))
        if left and right and left[-1] != right[-1]:
            raise ValueError(
                f"@ meets {left[-1]} and {right[-1]} numbers, of {names}; give both sides the same last axis"
            )
        if left and right and len(right) > 1 and left[:-1] != right[:-1]:
            raise ValueError(
                f"@ meets vectors of shape {left} and {right}, of {names}, which make no pairs; put a single vector on "
                "the right, as in x @ w, or give both sides the same leading axes"
            )

    @property
    def shape(self) -> tuple[int, ...] | None:
        # The leading axes of z, if it has some, or of W; an input may be a vector or a matrix.
        if self.right.shape and len(self.right.shape) > 1:
            return self.right.shape[:-1]
        return None if self.left.shape is None else self.left.shape[:-1]

    @property
    def entries(self) -> int | float:
        """The number K of entries of the vectors; infinite if only the data determine it."""
        shape = self.left.shape or self.right.shape
        return shape[-1] if shape else float("inf")

    def first(self, environment: Environment) -> Array:
        # Returns E[W] E[z].
        left, right = self.left.first(environment), self.right.first(environment)
        self._require_equal(left.shape, right.shape)
        return left @ right if right.ndim == 1 else jnp.sum(left * right, axis=-1)

    def quadratic(self, weight: Array, environment: Environment) -> Array:
        # Returns \(\mathrm{tr}\,(\sum_d c_d E[w_d w_d^\top])\, E[z z^\top]\), or its known form.
        weight = _reduced(weight, jnp.shape(self.first(environment)))
        known = next((side for side in (self.right, self.left) if isinstance(side, KnownValue | Input)), None)
        pairs = jnp.ndim(self.right.first(environment)) > 1
        if known is not None and (pairs or known is self.right):
            x, of = known.first(environment), self.left if known is self.right else self.right
            outer = of.of_kind(Vectors, environment).outer
            return jnp.sum(weight * jnp.sum((outer @ x[..., None])[..., 0] * x, axis=-1))
        if pairs:
            outer = self.left.of_kind(Vectors, environment).outer * self.right.of_kind(Vectors, environment).outer
            return jnp.sum(weight * jnp.sum(outer, axis=(-2, -1)))
        if isinstance(self.left, KnownValue | Input):
            W = self.left.first(environment)
            weighted = jnp.tensordot(weight, W[..., :, None] * W[..., None, :], jnp.ndim(weight))
        else:
            outer = self.left.of_kind(Vectors, environment).outer
            weighted = jnp.tensordot(weight, outer, jnp.ndim(weight))
        return jnp.sum(weighted * self.right.of_kind(Vectors, environment).outer)

    @property
    def is_vector(self) -> bool:
        # Of a known matrix and a vector of variables.
        return isinstance(self.left, KnownValue | Input) and self.right.is_vector

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns \(X E[b]\) and \(X E[b b^\top] X^\top\).
        if kind is not Vectors or not self.is_vector:
            return super().of_kind(kind, environment)
        X, b = self.left.first(environment), self.right.of_kind(Vectors, environment)
        return Vectors(self.first(environment), X @ b.outer @ jnp.swapaxes(X, -1, -2))


@record
class Sum(Expression):
    r"""The sum of two independent numbers or vectors, \(E[(a+b)^2] = E[a^2] + 2 E[a] E[b] + E[b^2]\)."""

    left: Expression
    right: Expression  # b

    def __post_init__(self) -> None:
        both = _on_both(self.left, self.right)
        if both:
            raise ValueError(
                f"both sides of + depend on {', '.join(sorted(both))}, so that they are not independent; write the "
                "variable once, for instance in one product, m.data(name) @ variable, where a difference of two of its "
                "entries has 1 and -1 in the row's input and 0 elsewhere"
            )
        for side in (self.left, self.right):
            _require_numbers(side, "+")
        try:
            _ = self.shape
        except ValueError:
            names = [", ".join(sorted(side.names)) or "a constant" for side in (self.left, self.right)]
            raise ValueError(
                f"+ meets {names[0]} of shape {self.left.shape} and {names[1]} of shape {self.right.shape}; give both "
                "the same plate"
            ) from None

    def first(self, environment: Environment) -> Array:
        # Returns E a + E b.
        return self.left.first(environment) + self.right.first(environment)

    def quadratic(self, weight: Array, environment: Environment) -> Array:
        # Returns the weighted sum of the squares.
        a, b = self.left.first(environment), self.right.first(environment)
        weight = jnp.broadcast_to(weight, jnp.broadcast_shapes(jnp.shape(weight), jnp.shape(a), jnp.shape(b)))
        both = jnp.sum(weight * 2.0 * a * b)
        return self.left.quadratic(weight, environment) + self.right.quadratic(weight, environment) + both

    @property
    def is_vector(self) -> bool:
        return self.left.is_vector and self.right.is_vector

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns \(E[a + b]\) and \(E[a a^\top] + E[b b^\top] + E[a] E[b]^\top + E[b] E[a]^\top\).
        if kind is not Vectors or not self.is_vector:
            return super().of_kind(kind, environment)
        a, b = self.left.of_kind(Vectors, environment), self.right.of_kind(Vectors, environment)
        cross = a.first[..., :, None] * b.first[..., None, :]
        return Vectors(a.first + b.first, a.outer + b.outer + cross + jnp.swapaxes(cross, -1, -2))


@record
class Multiple(Expression):
    """Numbers, vectors or positive numbers times known numbers, entry by entry."""

    # \[ E[(c f)_j] = c_j E f_j, \qquad E[(c f)_j^2] = c_j^2 E f_j^2, \qquad E\log (c f)_j = \log c_j + E\log f_j \]

    by: Expression  # c, without variables
    of: Expression  # f

    def __post_init__(self) -> None:
        negative = isinstance(self.by, KnownValue) and np.any(np.asarray(self.by.value) < 0)
        if negative or PositiveNumbers not in self.of.kinds():
            _require_numbers(self.of, "*")
        try:
            _ = self.shape
        except ValueError:
            raise ValueError(
                f"* meets {', '.join(sorted(self.of.names))} of shape {self.of.shape} and numbers of shape "
                f"{self.by.shape}; give shapes that broadcast"
            ) from None

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns those of f.
        return self.of.kinds()

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns the statistics of the products.
        if self.of.kinds() == (Statistics,):
            return kind.of(self.first(environment))
        c, of = self.by.first(environment), self.of.of_kind(kind, environment)
        if isinstance(of, PositiveNumbers):
            return _multiplied(c, of)
        assert isinstance(of, Numbers | Vectors | Series)
        if kind is Vectors and isinstance(of, Vectors | Series):
            first = c * of.first
            c = jnp.broadcast_to(c, first.shape)
            return Vectors(first, c[..., :, None] * c[..., None, :] * of.outer)
        return Numbers(c * of.first, c**2 * of.second)

    def first(self, environment: Environment) -> Array:
        # Returns c E f.
        return self.by.first(environment) * self.of.first(environment)

    def quadratic(self, weight: Array, environment: Environment) -> Array:
        # Returns the weighted sum of the squares.
        return self.of.quadratic(weight * self.by.first(environment) ** 2, environment)


@record
class ScaledMatrix(Expression):
    r"""A positive number times a known precision matrix, \(E\log\det(\tau Q) = d E\log\tau + \log\det Q\)."""

    of: Expression  # τ
    matrix: Any  # Q

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", symmetric(jnp.asarray(self.matrix)))
        least = np.min(np.linalg.eigvalsh(self.matrix))
        if not least > self.matrix.size * jnp.finfo(self.matrix.dtype).eps * np.max(np.abs(self.matrix)):
            raise ValueError(
                f"{', '.join(sorted(self.of.names))} multiplies a matrix with the eigenvalue {least:.2g}, and those of "
                "a precision matrix are positive; add a small number to its diagonal, as in Q + 1e-3 * np.eye(len(Q))"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.matrix)

    def kinds(self) -> tuple[type[Statistics], ...]:
        return (Precisions,)

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns the expectations of log det and of the matrix.
        number = self.of.of_kind(PositiveNumbers, environment)
        logdet = jnp.shape(self.matrix)[0] * number.log + jnp.linalg.slogdet(self.matrix)[1]
        return Precisions(logdet, number.value[..., None, None] * self.matrix)


def _multiplied(c: Array, of: PositiveNumbers) -> PositiveNumbers:
    """Returns the statistics of positive numbers times numbers from zero."""
    least = jnp.finfo(jnp.result_type(c)).tiny ** 0.5
    c = jnp.where(c == 0, least, c)  # the logarithm of no exposure is finite
    return PositiveNumbers(jnp.log(c) + of.log, c * of.value)


def _on_both(left: Expression, right: Expression) -> frozenset[str]:
    """Returns the variables on both sides of an operator, except categories, given which the sides are independent."""
    return (left.names & right.names) - (set(left.picks) & set(right.picks))


def _require_numbers(side: Expression, sign: str) -> None:
    """Raises a TypeError for variables whose sums and multiples have no closed form."""
    if side.kinds() and not {Numbers, Statistics} & set(side.kinds()):
        raise TypeError(
            f"{sign} takes numbers and vectors, and {', '.join(sorted(side.names))} is {side.kinds()[0].words}; "
            "change that variable's prior, for several observations of it give the factor a plate=, or write the "
            "program in NumPyro for cvi() or nuts() (lamu.from_numpyro)"
        )


def _reduced(weight: Array, shape: tuple[int, ...]) -> Array:
    """Returns the weights of broadcast squares, summed to the axes of the value itself."""
    weight = jnp.asarray(weight)
    full = jnp.broadcast_to(weight, jnp.broadcast_shapes(weight.shape, shape))
    full = jnp.sum(full, axis=tuple(range(full.ndim - len(shape))))
    ones = tuple(axis for axis, size in enumerate(shape) if size == 1 and full.shape[axis] != 1)
    return jnp.sum(full, axis=ones, keepdims=True) if ones else full


def scaled(left: Any, right: Any) -> Expression:
    """Returns the elementwise product of an expression with known numbers."""
    left, right = lifted(left), lifted(right)
    if left.names and right.names:
        raise TypeError(
            f"* takes known numbers on one side, and meets {', '.join(sorted(left.names))} and "
            f"{', '.join(sorted(right.names))}; write the product of two vectors as a @ b, also of one entry"
        )
    by, of = (left, right) if not left.names else (right, left)
    if isinstance(of, RateProduct):
        return replace(of, by=by if isinstance(of.by, float) else Multiple(by, of.by))
    if (
        isinstance(by, KnownValue)
        and PositiveNumbers in of.kinds()
        and np.any(np.asarray(by.value) < 0)
        and is_matrix(by)
    ):
        return ScaledMatrix(of, by.value)
    return Multiple(by, of)


def is_matrix(known: KnownValue) -> bool:
    """Whether known numbers are a symmetric matrix, up to the rounding errors of an inverse."""
    Q = np.asarray(known.value)
    return Q.ndim == 2 and Q.shape[0] == Q.shape[1] and np.allclose(Q, Q.T, rtol=0.0, atol=1e-6 * np.max(np.abs(Q)))


def multiplied(node: Any, beside: frozenset[str] = frozenset(), entries: int = 1) -> frozenset[str]:
    """Returns the variables of products of so many entries below a node that have some on both sides, beside others."""
    found = jax.tree.leaves(node, is_leaf=lambda part: isinstance(part, Times))
    products = (part for part in found if isinstance(part, Times) and part.entries >= entries)
    return frozenset().union(*(p.names for p in products if p.left.names - beside and p.right.names - beside))


@record
class RateProduct(Expression):
    r"""The sum of products of independent positive numbers, \(r_d = \sum_k \theta_k \beta_{kd}\), a rate of counts."""

    # \[ E[r_d] = \sum_k E[\theta_k] E[\beta_{kd}], \qquad
    #    E[\log r_d] \ge \log \sum_k \exp(E\log\theta_k + E\log\beta_{kd}) \]
    #
    # which is the best bound over the shares of a count that each k has. The shares are no variables of the model, so
    # that they are not tempered: at points it is log r at every temperature.

    left: Expression  # θ `[..., K]`
    right: Expression  # β `[K]` or `[K, D]`
    by: Any = 1.0  # known numbers from zero that multiply r, such as exposures

    def __post_init__(self) -> None:
        for side in (self.left, self.right, self.by):
            if isinstance(side, KnownValue) and not np.all(np.asarray(side.value) >= 0):
                raise ValueError(f"@ and * of rates meet {np.min(side.value):g}; give numbers from zero")
        both = _on_both(self.left, self.right)
        shapes = [side.shape for side in (self.left, self.right)]
        known = [shape for shape in shapes if shape is not None]
        if both or () in known or (len(known) == 2 and (len(known[1]) > 2 or known[0][-1:] != known[1][:1])):
            raise ValueError(
                f"@ of rates meets {shapes[0]} and {shapes[1]}, of {', '.join(sorted(self.names))}; give independent "
                "variables [..., K] and [K] or [K, D]"
            )

    @property
    def shape(self) -> tuple[int, ...] | None:
        # The axes of θ but the last, and D.
        left, right = self.left.shape, self.right.shape
        if left is None or right is None:
            return None
        return common_shape((jnp.zeros((*left[:-1], *right[1:])), lifted(self.by)))

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns the bound of the logarithm, and the expectation.
        if kind is not PositiveNumbers:
            raise TypeError(
                f"{' @ '.join(sorted(self.names))} multiplies positive numbers, which is a rate of graphs.Poisson "
                "alone; take numbers there, of Normal or MultivariateNormal"
            )
        left, right = (side.of_kind(PositiveNumbers, environment) for side in (self.left, self.right))
        logs = left.log[..., None] + (right.log[:, None] if right.log.ndim == 1 else right.log)
        log = logsumexp(logs, axis=-2)
        rate = PositiveNumbers(log[..., 0] if right.log.ndim == 1 else log, left.value @ right.value)
        return _multiplied(lifted(self.by).first(environment), rate)

    def variance(self, environment: Environment) -> Array:
        """Returns the variance of r."""
        sides = [side.of_kind(PositiveNumbers, environment) for side in (self.left, self.right)]
        squares, seconds = [s.value**2 for s in sides], [s.value**2 * (1.0 + 1.0 / s.shape) for s in sides]
        return lifted(self.by).first(environment) ** 2 * (seconds[0] @ seconds[1] - squares[0] @ squares[1])


def product(left: Any, right: Any) -> Times | RateProduct:
    """Returns the product of two expressions, one of which may be an array."""
    sides = lifted(left), lifted(right)
    kinds = {kind for side in sides for kind in side.kinds() or (Numbers,)}
    rates = PositiveNumbers in kinds and kinds <= {PositiveNumbers, Statistics}
    return RateProduct(*sides) if rates else Times(*sides)


def total(left: Any, right: Any) -> Sum:
    """Returns the sum of two expressions, one of which may be an array."""
    return Sum(lifted(left), lifted(right))


@record
class ScaleProduct(Expression):
    r"""A scale s, by its square, or a product of independent scales: \(E[s^{-2}]\) and \(E \log s^{-2}\)."""

    squares: tuple[Expression, ...]  # variables of variances
    by: Any = 1.0  # a known factor

    @property
    def shape(self) -> tuple[int, ...] | None:
        # The broadcast shape of all factors.
        return common_shape((jnp.asarray(self.by), *self.squares))

    def kinds(self) -> tuple[type[Statistics], ...]:
        return (PositiveNumbers,)

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        # Returns the statistics of the precision.
        log, value = -2.0 * jnp.log(self.by), 1.0 / jnp.asarray(self.by) ** 2
        for square in self.squares:
            statistics = square.of_kind(Variances, environment)
            log, value = log - statistics.log, value * statistics.inverse
        return PositiveNumbers(log, value)

    def __mul__(self, other: Any) -> ScaleProduct:
        if isinstance(other, ScaleProduct):
            both = _on_both(self, other)
            if both:
                raise ValueError(
                    f"both scales depend on {', '.join(sorted(both))}; multiply independent ones, each of them once"
                )
            return ScaleProduct((*self.squares, *other.squares), self.by * other.by)
        return ScaleProduct(self.squares, self.by * jnp.asarray(other, jnp.result_type(float)))

    __rmul__ = __mul__

    def __neg__(self) -> ScaleProduct:
        raise TypeError(f"the scale {', '.join(sorted(self.names))} is positive, and has no minus; leave it out")

    def __getitem__(self, index: Any) -> ScaleProduct:
        mixed = any(square.shape not in ((), self.shape) for square in self.squares)
        if mixed or (isinstance(index, Expression) and jnp.ndim(self.by)):
            raise TypeError(
                f"the product of the scales {', '.join(sorted(self.names))} has factors of several shapes; index the "
                "HalfCauchy variables before they are multiplied"
            )
        by = jnp.broadcast_to(self.by, self.shape)[index] if jnp.ndim(self.by) else self.by
        return ScaleProduct(tuple(square[index] if square.shape else square for square in self.squares), by)


@record
class StickBreaking(Expression):
    r"""K probabilities from K − 1 stick breaks: each takes its share of the rest, and the last takes what remains.

    \[ \log\pi_k = \log v_k + \sum_{j<k} \log(1 - v_j), \qquad v_K = 1 \]

    With \(v_k \sim \mathrm{Beta}(1, \alpha)\) it is a Dirichlet process, truncated at K.

    Attributes:
        breaks: v `[K − 1]`, variables with a `Beta` belief.

    Raises:
        TypeError: for anything that is not a plate of probabilities.

    Source: Sethuraman (1994); Blei & Jordan (2006), section 3.1.

    Examples:
        >>> from lamu import graphs
        >>> from lamu.families import Beta
        >>> graphs.StickBreaking(graphs.Program().sample("v", Beta(1.0, 2.0), plate=4)).shape
        (5,)
    """

    breaks: Any

    def __post_init__(self) -> None:
        v = self.breaks
        if isinstance(v, Expression) and (Chance not in v.kinds() or not v.shape):
            raise TypeError(
                f"the breaks of StickBreaking are {', '.join(sorted(v.names))}, {v.kinds()[0].words} of shape "
                f"{v.shape}; give a plate of variables with a Beta belief"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """One more than the number of breaks."""
        return (*self.breaks.shape[:-1], self.breaks.shape[-1] + 1)

    def kinds(self) -> tuple[type[Statistics], ...]:
        """Returns the kind of probabilities that sum to one."""
        return (Probabilities,)

    def of_kind(self, kind: type[S], environment: Environment) -> Any:
        """Returns (E) log π."""
        v = self.breaks.of_kind(Chance, environment)
        none = jnp.zeros_like(v.log[..., :1])
        left = jnp.concatenate([none, jnp.cumsum(v.log_complement, axis=-1)], axis=-1)
        return Probabilities(left + jnp.concatenate([v.log, none], axis=-1))

    def first(self, environment: Environment) -> Array:
        """Raises a TypeError: probabilities are not a mean."""
        raise TypeError("probabilities by StickBreaking are not a mean of numbers; give them to Categorical")
