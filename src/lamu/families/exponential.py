"""Exponential families: the mathematics common to all of them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree

from lamu import tree
from lamu.base.bisection import bisect_closely
from lamu.families.interface import IndependentDraws
from lamu.operators import Dense, Diagonal
from lamu.operators.interface import retracted
from lamu.record import record, static
from lamu.typing import Array, Belief, DTypeLike, Number, Params, PyTree, RandomKey, Statistics

__all__ = [
    "Domain",
    "ExpectationParameters",
    "ExponentialFamily",
    "Finite",
    "NaturalParameters",
    "Positive",
    "PositiveDefinite",
    "increasing_root",
    "natural_from_expectation",
]


@dataclass(frozen=True)
class Domain(abc.ABC):
    """The domain of one textbook parameter."""

    # The number of trailing axes of the parameter that belong to one member of the family; the others are batch axes.
    event: int = 0

    def fault(self, value: Params, belief: Belief) -> str | None:
        """Returns the fault of a concrete value, as the end of a sentence; None for a valid or a traced one."""
        return None if isinstance(value, Tracer) else self._fault(np.asarray(value), belief)

    @abc.abstractmethod
    def retract(self, value: Array, direction: Array, rate: Number, belief: Belief) -> Array:
        """Returns a point of the domain that agrees with `value + rate · direction` to the first order in the rate."""

    def real(self, value: Array, belief: Belief) -> Array:
        """Returns the value in coordinates for extrapolation; itself by default."""
        del belief
        return value

    def value(self, real: Array, belief: Belief) -> Array:
        """Returns the value of coordinates, the inverse of `real`."""
        del belief
        return real

    @abc.abstractmethod
    def _fault(self, value: np.ndarray, belief: Belief) -> str | None: ...


@dataclass(frozen=True)
class Finite(Domain):
    """All finite numbers."""

    def retract(self, value: Array, direction: Array, rate: Number, belief: Belief) -> Array:
        # Returns the straight step.
        return value + tree.cast(rate, value) * direction

    def _fault(self, value: np.ndarray, belief: Belief) -> str | None:
        return _first(value, np.isfinite(value), "is not finite")


@dataclass(frozen=True)
class Positive(Domain):
    """Numbers above a floor, by default zero."""

    # With s the distance from the floor, the step is \(s + \rho d + \rho^2 d^2 / (2 s)\) and so never below \(s/2\).

    above: Callable[[Belief], float] | None = None

    def floor(self, belief: Belief) -> float:
        """Returns the lower bound of the parameter."""
        return 0.0 if self.above is None else self.above(belief)

    def retract(self, value: Array, direction: Array, rate: Number, belief: Belief) -> Array:
        # Returns the second-order retraction.
        floor = self.floor(belief)
        return floor + retracted(Diagonal(value - floor), Diagonal(direction), rate).values

    def real(self, value: Array, belief: Belief) -> Array:
        return jnp.log(value - self.floor(belief))

    def value(self, real: Array, belief: Belief) -> Array:
        return self.floor(belief) + jnp.exp(real)

    def _fault(self, value: np.ndarray, belief: Belief) -> str | None:
        floor = self.floor(belief)
        valid = np.isfinite(value) & (value > floor)
        return _first(value, valid, "is not positive and finite" if floor == 0.0 else f"is not above {floor:g}")


@dataclass(frozen=True)
class PositiveDefinite(Domain):
    r"""Symmetric positive definite matrices; the step is \(S + \rho D + \tfrac12 \rho^2 D S^{-1} D\)."""

    event: int = 2

    def retract(self, value: Array, direction: Array, rate: Number, belief: Belief) -> Array:
        # Returns the second-order retraction.
        symmetric = (direction + jnp.swapaxes(direction, -1, -2)) / 2.0
        member = lambda s, d: retracted(Dense(s), Dense(d), rate).matrix
        return jnp.vectorize(member, signature="(n,n),(n,n)->(n,n)")(value, symmetric)

    def _fault(self, value: np.ndarray, belief: Belief) -> str | None:
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return f"is of shape {value.shape}, and no square matrix"
        if not np.all(np.isfinite(value)):
            return _first(value, np.isfinite(value), "is not finite")
        size = np.max(np.abs(value))
        asymmetry = np.abs(value - np.swapaxes(value, -1, -2))
        if np.max(asymmetry) > 1e3 * np.finfo(value.dtype).eps * size:
            index = np.unravel_index(np.argmax(asymmetry), asymmetry.shape)
            other = (*index[:-2], index[-1], index[-2])
            return f"is not symmetric: {value[index]:.6g} at {_place(index)}, {value[other]:.6g} at {_place(other)}"
        try:
            np.linalg.cholesky(value.astype(np.float64))
        except np.linalg.LinAlgError:
            least = np.min(np.linalg.eigvalsh(value.astype(np.float64)))
            return f"is not positive definite: its least eigenvalue is {least:.6g}"
        return None


def _first(value: np.ndarray, valid: np.ndarray | np.bool_, fault: str) -> str | None:
    """Returns the sentence about the first invalid entry."""
    if np.all(valid):
        return None
    index = tuple(np.argwhere(np.logical_not(valid))[0])
    where = f"has {value[index]:.6g} at {_place(index)}, which" if index else f"{value[()]:.6g}"
    return f"{where} {fault}"


def _place(index: Sequence[int | np.intp]) -> str:
    return f"[{', '.join(str(i) for i in index)}]"


# The step is \(\lambda + F^{-1}(\mu - \nabla A(\lambda))\), by the family's retraction, which cannot leave the
# domain, and halved until the objective falls. The result is differentiated by the implicit function theorem.


STEPS = 200  # steps, before the search gives up


class _Search(NamedTuple):
    """State of the search: λ, the objective's value there, Newton's direction and its slope, and the rate."""

    taken: Array
    natural: Array
    value: Array
    direction: Array
    slope: Array
    rate: Array


def natural_from_expectation(family: type[ExponentialFamily], values: Statistics) -> Statistics:
    r"""Returns the λ at which \(\nabla A(\lambda) = \mu\), member by member; NaN if there is none."""
    solved = map_unzipped(lambda *leaves: _leaf(family, leaves), len(family.events), *components(family, values))
    return solved if len(family.events) > 1 else solved[0]


def _leaf(family: type[ExponentialFamily], components: tuple[Array, ...]) -> tuple[Array, ...]:
    shapes = [(a.shape[: a.ndim - e], a.shape[a.ndim - e :]) for a, e in zip(components, family.events, strict=True)]
    batch = shapes[0][0]
    members = tuple(a.reshape(-1, *event) for a, (_, event) in zip(components, shapes, strict=True))
    solved = jax.vmap(lambda *mu: _member(family, mu))(*members)
    return tuple(a.reshape(batch + event) for a, (_, event) in zip(solved, shapes, strict=True))


def _member(family: type[ExponentialFamily], components: tuple[Array, ...]) -> tuple[Array, ...]:
    """Solves for one member, by its vector of λ."""
    packed = components if len(family.events) > 1 else components[0]
    mu, unravel = ravel_pytree(packed)
    A = lambda natural: family.partition(unravel(natural), ())
    gradient = jax.grad(A)
    tolerance = 100.0 * jnp.finfo(mu.dtype).eps

    def search(residual: Callable[[Array], Array], start: Array) -> Array:
        target = gradient(start) - residual(start)

        def step(state: _Search) -> _Search:
            belief = family.from_natural(unravel(state.natural), ())
            tried = ravel_pytree(belief.retract(unravel(state.direction), state.rate).to_natural())[0]
            value = A(tried) - tried @ target
            slack = tolerance * (1.0 + jnp.abs(state.value))
            falls = value <= state.value - 1e-4 * state.rate * state.slope + jnp.where(jnp.isfinite(slack), slack, 0.0)
            downhill = target - gradient(tried)
            direction = jnp.linalg.solve(jax.hessian(A)(tried), downhill)
            moved = _Search(state.taken, tried, value, direction, downhill @ direction, jnp.ones_like(state.rate))
            shortened = state._replace(rate=state.rate / 2.0)
            chosen = jax.tree.map(lambda new, old: jnp.where(falls, new, old), moved, shortened)
            return chosen._replace(taken=state.taken + 1)

        def searching(state: _Search) -> Array:
            far = jnp.any(jnp.abs(state.direction) > tolerance * (1.0 + jnp.abs(state.natural)))
            return (state.taken < STEPS) & (far | (state.taken == 0)) & (state.rate > 1e-9)

        nowhere = jnp.zeros_like(start)
        infinity, unit = jnp.full((), jnp.inf, start.dtype), jnp.ones((), start.dtype)
        first = _Search(jnp.zeros((), jnp.int32), start, infinity, nowhere, 0.0 * unit, unit)
        end = jax.lax.while_loop(searching, step, first)
        solved = jnp.all(
            jnp.abs(end.direction) <= jnp.maximum(jnp.sqrt(tolerance), 1e-4) * (1.0 + jnp.abs(end.natural))
        )
        return jnp.where(solved, end.natural, jnp.nan)

    start = jax.lax.stop_gradient(ravel_pytree(family.guess(packed).to_natural())[0])
    natural = jax.lax.custom_root(lambda natural: gradient(natural) - mu, start, search, _solve)
    solution = unravel(natural)
    return solution if len(family.events) > 1 else (solution,)


def _solve(linear: Callable[[Array], Array], target: Array) -> Array:
    return jnp.linalg.solve(jax.jacobian(linear)(jnp.zeros_like(target)), target)


def increasing_root(function: Callable[[Array], Array], target: Array, low: float, high: float) -> Array:
    """Returns the t in [low, high] at which an elementwise increasing function equals `target`, by bisection."""
    # A NaN target is skipped: it marks a shape that is known without a search.

    def search(excess: Callable[[Array], Array], start: Array) -> Array:
        end = lambda end_value: jnp.where(jnp.isnan(start), jnp.zeros_like(start), jnp.full_like(start, end_value))
        return bisect_closely(lambda t: excess(t) < 0, (end(low), end(high)), 64)

    def divide(linear: Callable[[Array], Array], right: Array) -> Array:
        return right / linear(jnp.ones_like(right))

    start = jnp.where(jnp.isnan(target), target, jnp.zeros_like(target))
    return jax.lax.custom_root(lambda t: function(t) - target, start, search, divide)


# \[ q(\theta) = h(\theta) \exp\big( \langle \lambda, T(\theta) \rangle - A(\lambda) \big), \qquad
#    \mu = E_q[T(\theta)] = \nabla A(\lambda) \]
#
# | on paper | in code |
# |---|---|
# | \(\lambda\) | `q.natural()`, a `NaturalParameters` |
# | \(\mu\) | `q.expectation()`, an `ExpectationParameters` |
# | \(T(\theta)\) | `q.statistics(theta)`, a tree like the values of λ and μ |
# | \(A(\lambda)\) | `q.log_partition()` |
# | \(h(\theta)\) | one everywhere, its constant in A, except for the Poisson family |
# | \(\nabla_\mu E_q[\ell]\) | `jax.grad(lambda mu: expected_loss(mu.family()))(q.expectation())` |
#
# **Batches.** A parameter is an array, or a tree of arrays, of independent members; trailing axes belong to one member
# if the family is about vectors or matrices. Densities, entropies and divergences are sums over the members, in
# nats.
#
# **Matrices.** The statistic of a symmetric matrix is the full matrix, paired by the trace, with off-diagonal
# entries counted twice. **The simplex.** A Categorical belief is minimal: λ and μ leave the last category out.


class ExponentialFamily(IndependentDraws, abc.ABC):
    r"""Base class of exponential families; a new one is a record with the abstract formulas below.

    Attributes:
        domains: the domain of each textbook parameter, by field.
        events: number of trailing axes of each component of λ that belong to one member of the family.
        unbounded: whether every λ is a belief, so that no step can leave the domain.
        mean: E_q[θ], a property or a field.
    """

    kind = "minimal exponential"
    domains: ClassVar[Mapping[str, Domain]]
    events: ClassVar[tuple[int, ...]] = (0,)
    unbounded: ClassVar[bool] = False
    # Known arguments of the family, besides λ; none by default.
    given: Params = ()

    def __post_init__(self) -> None:
        trees = _same_structure(
            [jax.tree.map(_floating, getattr(self, name), is_leaf=_numbers) for name in self.domains]
        )
        events = [domain.event for domain in self.domains.values()]
        structure = jax.tree.structure(trees[0])
        spread = [_spread(leaves, events) for leaves in zip(*map(structure.flatten_up_to, trees), strict=True)]
        for name, leaves in zip(self.domains, zip(*spread, strict=True), strict=True):
            object.__setattr__(self, name, jax.tree.unflatten(structure, leaves))
        self._validate()

    # The formulas of a family.

    @abc.abstractmethod
    def to_natural(self) -> Statistics:
        """Returns the values of λ: a tree, or a tuple of trees, one for each statistic."""

    @classmethod
    @abc.abstractmethod
    def from_natural(cls, values: Statistics, given: Params) -> Belief:
        """Returns the belief with natural parameters of these values, and the family's known arguments."""

    @classmethod
    @abc.abstractmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        """Returns A(λ), a sum over the members, which is differentiated automatically."""

    @abc.abstractmethod
    def statistics(self, theta: Params) -> Statistics:
        """Returns T(θ) for one θ of the support, a tree like the values of λ and μ."""

    @abc.abstractmethod
    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ."""

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> Belief:
        """Returns the belief with expectation parameters of these values; by default by Newton's method."""
        return cls.from_natural(natural_from_expectation(cls, values), given)

    @classmethod
    def guess(cls, values: Statistics) -> Belief:
        """Returns an initial belief for Newton's method, for one member and its μ."""
        raise NotImplementedError(f"{cls.__name__} has neither an inverse of μ nor a guess at which to search for it")

    def log_base_measure(self, theta: Params) -> Array:
        """Returns log h(θ)."""
        return jnp.zeros((), self._dtype)

    def expected_log_base_measure(self) -> Array:
        """Returns E_q[log h(θ)], which entropies and evidences need.

        Raises:
            NotImplementedError: for a family that defines `log_base_measure` but not this method.
        """
        if type(self).log_base_measure is not ExponentialFamily.log_base_measure:
            raise NotImplementedError(
                f"{type(self).__name__} defines log_base_measure and no expected_log_base_measure, without which its "
                "entropy is not known; add that method, which returns E_q[log h(θ)], summed over the members"
            )
        return jnp.zeros((), self._dtype)

    # The mathematics that follows from the formulas.

    def with_natural(self, values: Statistics) -> Belief:
        """Returns the belief of this family with natural parameters of other values.

        Args:
            values: λ, a tree like `to_natural()`.
        """
        return type(self).from_natural(values, self.given)

    def natural(self) -> NaturalParameters:
        """Returns λ."""
        return NaturalParameters(self.to_natural(), self.given, type(self))

    def expectation(self) -> ExpectationParameters:
        r"""Returns \(\mu = \nabla A(\lambda)\), by automatic differentiation."""
        return self.natural().expectation()

    def log_partition(self) -> Array:
        r"""Returns \(A(\lambda)\)."""
        return self.natural().log_partition()

    def log_prob(self, theta: Params) -> Array:
        r"""Returns \(\log q(\theta) = \langle\lambda, T(\theta)\rangle - A(\lambda) + \log h(\theta)\) in nats.

        Args:
            theta: a point of the support, which is not checked.
        """
        natural = self.natural()
        inner = tree.dot(natural.values, self.statistics(theta))
        return inner - natural.log_partition() + self.log_base_measure(theta)

    def entropy(self) -> Array:
        r"""Returns \(H(q) = A(\lambda) - \langle\lambda, \mu\rangle - E_q[\log h]\) in nats."""
        natural = self.natural()
        inner = tree.dot(natural.values, natural.expectation().values)
        return natural.log_partition() - inner - self.expected_log_base_measure()

    def kl(self, other: Belief) -> Array:
        r"""Returns KL(q ‖ p) in nats, \(A(\lambda_p) - A(\lambda_q) - \langle\mu_q, \lambda_p - \lambda_q\rangle\).

        Args:
            other: p, of the same family.

        Raises:
            TypeError: if it is of another family.
        """
        if type(other) is not type(self):
            raise TypeError(
                f"the divergence of a {type(self).__name__} from a {type(other).__name__} is not defined here;"
                " give a belief of the same family"
            )
        ours, theirs = self.natural(), other.natural()
        difference = tree.add(theirs.values, ours.values, -1.0)
        inner = tree.dot(ours.expectation().values, difference)
        return theirs.log_partition() - ours.log_partition() - inner

    def fisher_product(self, direction: Statistics) -> Statistics:
        r"""Returns \(F v = \nabla^2 A(\lambda)\, v\): the derivative of μ along the direction v of λ.

        Args:
            direction: v, a tree like the values of λ, or natural parameters.
        """
        natural = self.natural()
        gradient = jax.grad(lambda values: type(self).partition(values, natural.given))
        return jax.jvp(gradient, (natural.values,), (values_of(direction),))[1]

    def retract(self, direction: Statistics, rate: Number) -> Belief:
        r"""Returns the belief after the step \(\lambda + \rho d\), retracted so that it cannot leave the domain.

        The step is straight if every λ is a belief. Otherwise it is taken in the textbook parameters, along the
        tangent that d has there; a positive number s moves to \(s + \rho d_s + \rho^2 d_s^2/(2s)\), and a positive
        definite matrix likewise. It agrees with the straight step to O(ρ²).

        Args:
            direction: d, for the rule \(-(\nabla_\mu E_q[\ell] + \lambda)\): a tree like the values of λ, or
                natural or expectation parameters.
            rate: ρ.

        Source: Lin, Schmidt & Khan (2020), "Handling the positive-definite constraint in the Bayesian learning rule".
        """
        natural, d = self.natural(), values_of(direction)
        if self.unbounded:
            return self.with_natural(tree.add(natural.values, d, rate))
        fields_of = lambda values: _fields(type(self).from_natural(values, natural.given))
        fields, tangent = jax.jvp(fields_of, (natural.values,), (d,))
        moved = {
            name: jax.tree.map(
                lambda s, v, domain=domain: domain.retract(s, v, rate, self), fields[name], tangent[name]
            )
            for name, domain in self.domains.items()
        }
        return dataclasses.replace(cast(Any, self), **moved)

    def real(self) -> Params:
        """Returns the textbook parameters in coordinates for extrapolation: logarithms of positive numbers."""
        return {
            name: jax.tree.map(lambda leaf, domain=domain: domain.real(leaf, self), getattr(self, name))
            for name, domain in self.domains.items()
        }

    def with_real(self, real: Params) -> Belief:
        """Returns the belief of the same family with other such coordinates.

        Args:
            real: a tree like `real()`.
        """
        moved = {
            name: jax.tree.map(lambda leaf, domain=domain: domain.value(leaf, self), real[name])
            for name, domain in self.domains.items()
        }
        return dataclasses.replace(cast(Any, self), **moved)

    @property
    def _dtype(self) -> DTypeLike:
        return jnp.result_type(jax.tree.leaves(self)[0])

    def _validate(self) -> None:
        for name, domain in self.domains.items():
            for path, leaf in jax.tree_util.tree_flatten_with_path(getattr(self, name))[0]:
                fault = domain.fault(leaf, self)
                if fault is not None:
                    inside = jax.tree_util.keystr(path, simple=True, separator="/")
                    where = f"{name} of {inside}" if inside else name
                    raise ValueError(f"{type(self).__name__}: {where} {fault}")


@dataclass(frozen=True)
class Formulas:
    """Formulas of a distribution for one array of members; several components or parameters are tuples."""

    natural: Callable[..., PyTree]  # the textbook parameters → λ
    textbook: Callable[..., PyTree]  # λ → the textbook parameters
    partition: Callable[..., Array]  # λ → A(λ), one number a member
    statistics: Callable[..., PyTree]  # θ → T(θ)
    mean: Callable[..., Array]  # the textbook parameters → E[θ]
    draw: Callable[..., Array]  # a key and the textbook parameters → θ
    of_moments: Callable[..., PyTree] | None = None  # μ → the textbook parameters; None for Newton's method
    variance: Callable[..., Array] | None = None  # the textbook parameters → Var[θ]; None for that of samples


class TextbookFamily(ExponentialFamily):
    """A family given by its formulas, leaf by leaf, whose parameters are all in its domains."""

    formulas: ClassVar[Formulas]

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "domains" in vars(cls) and "events" not in vars(cls):
            # By default λ has a component for each parameter, with the same axes.
            cls.events = tuple(domain.event for domain in cls.domains.values())

    def to_natural(self) -> Statistics:
        return leafwise(self.formulas.natural, len(self.events), *_fields(self).values())

    @classmethod
    def from_natural(cls, values: Statistics, given: Params) -> Belief:
        return cls._of(cls.formulas.textbook, values)

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> Belief:
        inverse = cls.formulas.of_moments
        return super().from_expectation(values, given) if inverse is None else cls._of(inverse, values)

    @classmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        return total(cls.formulas.partition, *components(cls, values))

    def statistics(self, theta: Params) -> Statistics:
        return leafwise(self.formulas.statistics, len(self.events), theta)

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return jax.tree.map(self.formulas.mean, *_fields(self).values())

    def marginal_variance(self) -> Params:
        formula = self.formulas.variance
        return super().marginal_variance() if formula is None else jax.tree.map(formula, *_fields(self).values())

    def sample(self, key: RandomKey) -> Params:
        return sample_leaves(key, self.formulas.draw, *_fields(self).values())

    @classmethod
    def _of(cls, parameters: Callable[..., PyTree], values: Statistics) -> Belief:
        belief = leafwise(parameters, len(cls.domains), *components(cls, values))
        family = cast(Any, cls)
        return family(*belief) if len(cls.domains) > 1 else family(belief)


@record
class NaturalParameters:
    r"""Natural parameters λ of a belief, in which the rule's step is straight.

    Attributes:
        values: λ, a tree like T(θ).
        given: known arguments of the family besides λ.
        of: the family.

    Examples:
        >>> from lamu.families import Beta
        >>> natural = Beta(2.0, 3.0).natural()
        >>> [float(value) for value in natural.values], float(natural.family().beta)
        ([1.0, 2.0], 3.0)
    """

    values: Statistics
    given: Params
    of: type[ExponentialFamily] = static()

    def log_partition(self) -> Array:
        r"""Returns \(A(\lambda)\), with gradient μ."""
        return self.of.partition(self.values, self.given)

    def expectation(self) -> ExpectationParameters:
        r"""Returns \(\mu = \nabla A(\lambda)\), by automatic differentiation."""
        gradient = jax.grad(lambda values: self.of.partition(values, self.given))
        return ExpectationParameters(gradient(self.values), self.given, self.of)

    def family(self) -> Belief:
        """Returns the same belief by its textbook parameters.

        Raises:
            ValueError: if λ is outside the domain, for instance after too long a step of the plain rule.
        """
        try:
            return self.of.from_natural(self.values, self.given)
        except ValueError as error:
            raise ValueError(
                f"these natural parameters lie outside the domain ({error}); take a smaller rate, or the step"
                " q.retract(direction, rate), which cannot leave it"
            ) from None


@record
class ExpectationParameters:
    r"""Expectation parameters \(\mu = E_q[T(\theta)]\) of a belief, in which the rule takes its gradient.

    Attributes:
        values: μ, a tree like T(θ).
        given: known arguments of the family besides μ.
        of: the family.

    Examples:
        >>> from lamu.families import Exponential
        >>> mu = Exponential(rate=4.0).expectation()
        >>> float(mu.values), float(mu.family().rate)
        (0.25, 4.0)
    """

    values: Statistics
    given: Params
    of: type[ExponentialFamily] = static()

    def natural(self) -> NaturalParameters:
        """Returns the natural parameters of the same belief."""
        return self.family().natural()

    def family(self) -> Belief:
        """Returns the same belief by its textbook parameters.

        Raises:
            ValueError: if no belief of the family has these expectations.
        """
        try:
            return self.of.from_expectation(self.values, self.given)
        except ValueError as error:
            raise ValueError(
                f"no {self.of.__name__} has these expectation parameters, {_quote(self.values)} ({error})"
            ) from None


def values_of(parameters: Statistics) -> Statistics:
    """Returns the values of natural or expectation parameters, or of a tree of them; other trees unchanged."""
    return jax.tree.map(lambda node: node.values if _known(node) else node, parameters, is_leaf=_known)


def with_values(parameters: Statistics, values: Statistics) -> Statistics:
    """Returns the parameters, or the tree of them, with other values."""
    put = lambda node, part: dataclasses.replace(node, values=part) if _known(node) else part
    return jax.tree.map(put, parameters, values, is_leaf=_known)


def _known(node: object) -> bool:
    return isinstance(node, NaturalParameters | ExpectationParameters)


def total(function: Callable[..., Array], *trees: Params) -> Array:
    """Returns the sum of a function over all members of all leaves, for log-partitions."""
    leaves = jax.tree.leaves(jax.tree.map(lambda *xs: jnp.sum(function(*xs)), *trees))
    return jnp.sum(jnp.stack(leaves)) if len(leaves) > 1 else leaves[0]


def symmetric(matrix: Array) -> Array:
    """Returns the symmetric part, so that gradients in a symmetric matrix are symmetric."""
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2.0


def sample_leaves(key: RandomKey, draw: Callable[..., PyTree], *trees: Params) -> Params:
    """Returns the tree of `draw(key, *leaves)`, with a separate key for every leaf."""
    return jax.tree.map(draw, tree.keys_like(key, trees[0]), *trees)


def components(family: type[ExponentialFamily], values: Statistics) -> tuple[Params, ...]:
    """Returns the components of λ, T or μ of a family, one tree each."""
    return values if len(family.events) > 1 else (values,)


def leafwise(function: Callable[..., PyTree], count: int, *trees: Params) -> Params:
    """Maps a function over leaves; one that returns a tuple of `count` numbers gives a tuple of trees."""
    return map_unzipped(function, count, *trees) if count > 1 else jax.tree.map(function, *trees)


def map_unzipped(leaf: Callable[..., PyTree], count: int, *trees: Params) -> tuple[Params, ...]:
    """Maps a function that returns a tuple over leaves, and returns the tuple of trees."""
    structure = jax.tree.structure(trees[0])
    results = [leaf(*leaves) for leaves in zip(*map(structure.flatten_up_to, trees), strict=True)]
    return tuple(jax.tree.unflatten(structure, [parts[i] for parts in results]) for i in range(count))


def _fields(belief: Belief) -> dict[str, Params]:
    return {name: getattr(belief, name) for name in belief.domains}


def _numbers(node: object) -> bool:
    """Returns whether a list is an explicit vector or matrix rather than a tree of arrays."""
    return isinstance(node, list) and all(isinstance(leaf, float | int) for leaf in jax.tree.leaves(node))


def _floating(leaf: Params) -> Array:
    array = jnp.asarray(float(leaf) if isinstance(leaf, int) else leaf)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.result_type(float))


def _same_structure(trees: list[Params]) -> list[Params]:
    """Returns the trees, with a single number repeated in the structure of the others."""
    single = jax.tree.structure(0)
    structure = next((s for s in map(jax.tree.structure, trees) if s != single), single)
    return [
        jax.tree.unflatten(structure, [value] * structure.num_leaves) if jax.tree.structure(value) == single else value
        for value in trees
    ]


def _spread(leaves: tuple[Array, ...], events: list[int]) -> tuple[Array, ...]:
    """Returns the leaves with the same batch axes and dtype."""
    dtype = jnp.result_type(*leaves)
    batches = [leaf.shape[: leaf.ndim - event] for leaf, event in zip(leaves, events, strict=True)]
    batch = np.broadcast_shapes(*batches)
    return tuple(
        jnp.broadcast_to(leaf, batch + leaf.shape[leaf.ndim - event :]).astype(dtype)
        for leaf, event in zip(leaves, events, strict=True)
    )


def _quote(values: Statistics) -> str:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(values)]
    return ", ".join(np.array2string(leaf, precision=4, threshold=6) for leaf in leaves)
