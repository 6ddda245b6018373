"""An identity test for the factors of a program that are conjugate in a site."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from lamu.base.compile_once import lenient
from lamu.families import Dirichlet, Wishart
from lamu.graphs.statistics import Chance, Numbers, PositiveNumbers, Precisions, Probabilities, Variances, Vectors
from lamu.record import record, static
from lamu.typing import Array, Rows, Statistics

__all__ = [
    "AFFINE",
    "CANDIDATES",
    "AffineDecomposition",
    "Statistic",
    "Verdict",
    "candidates",
    "jacobian",
    "message",
    "plain",
    "verdicts",
]


# A factor is conjugate in θ if \(\log p = \langle\lambda, T(\theta)\rangle + c\), where λ and c do not depend on θ.


_Independent = type(constraints.independent(constraints.positive, 1))


@record
class Statistic:
    """T(θ) of one member of a family."""

    family: type = static()  # of `lamu.families`
    statistic: Callable[[Array], Array] = static()  # from θ of one member to the vector T(θ)
    event: int = static()  # the number of trailing axes of one member
    build: Callable[[Array], Any] = static()  # from λ `[..., d]` to the values of λ of the family


def _pair(natural: Array) -> tuple[Array, Array]:
    return natural[..., 0], natural[..., 1]


def _of_matrix(theta: Array) -> Array:
    """Returns log det Λ and the entries of Λ on and above the diagonal."""
    rows, columns = jnp.triu_indices(theta.shape[-1])
    return jnp.concatenate([jnp.linalg.slogdet(theta)[1][None], theta[rows, columns]])


def _matrix(natural: Array) -> tuple[Array, Array]:
    """Returns the λ of log det Λ, and the symmetric matrix of the trace term of Λ."""
    size = round((math.sqrt(8 * natural.shape[-1] - 7) - 1) / 2)
    rows, columns = jnp.triu_indices(size)
    half = (
        jnp.zeros((*natural.shape[:-1], size, size), natural.dtype).at[..., rows, columns].set(natural[..., 1:] / 2.0)
    )
    return natural[..., 0], half + jnp.swapaxes(half, -1, -2)


def _of_numbers(kind: Any) -> Statistic:
    """Returns T for one number with two statistics."""
    return Statistic(kind.family, lambda theta: jnp.stack(jax.tree.leaves(kind.of(theta))), 0, _pair)


CANDIDATES = {
    "Gamma": _of_numbers(PositiveNumbers),
    "InverseGamma": _of_numbers(Variances),
    "Beta": _of_numbers(Chance),
    "Dirichlet": Statistic(Dirichlet, jnp.log, 1, lambda natural: natural),
    "Wishart": Statistic(Wishart, _of_matrix, 2, _matrix),
}


def candidates(support: Any) -> tuple[str, ...]:
    """Returns the names of the families on a support, besides the Gaussian of its real coordinates."""
    if support in (constraints.positive, constraints.nonnegative):
        return "Gamma", "InverseGamma"
    if support is constraints.unit_interval:
        return ("Beta",)
    if support is constraints.positive_definite:
        return ("Wishart",)
    return ("Dirichlet",) if support is constraints.simplex else ()


def plain(support: Any) -> Any:
    """Returns the constraint of one number or vector, without the support's `independent` axes."""
    while isinstance(support, _Independent):
        support = support.base_constraint
    return support


def message(kind: Statistic, theta: Array, slopes: Callable[[Array], Array], coordinates: Any) -> Array:
    """Returns λ for every member, `[..., d]`, from a function that is affine in T."""
    # \[ \nabla_u f = J_T(u)^\top \lambda \]
    #
    # at two points u, where \(J_T\) is the Jacobian of T(θ(u)); for the simplex λ is the least-squares solution.
    u = coordinates.inv(theta)
    batch = theta.ndim - kind.event
    points = [u - 0.5, u + 0.75] if kind.event == 0 else [_tilted(u, 0.4), _tilted(u, -0.7)]
    jacobians = [jacobian(kind, coordinates, point, batch) for point in points]
    sides = [slopes(point).reshape(*j.shape[:-1]) for point, j in zip(points, jacobians, strict=True)]
    return _least_squares(jacobians, sides)


@jax.jit
def _least_squares(jacobians: list[Array], sides: list[Rows]) -> Array:
    A, b = jnp.concatenate(jacobians, axis=-2), jnp.concatenate(sides, axis=-1)
    normal = jnp.einsum("...ed,...ef->...df", A, A)
    return jnp.linalg.solve(normal, jnp.einsum("...ed,...e->...d", A, b)[..., None])[..., 0]


@partial(jax.jit, static_argnames="batch")
def jacobian(kind: Statistic, coordinates: Any, u: Rows, batch: int) -> Array:
    r"""Returns \(\partial T/\partial u\) for every member, `[..., coordinates, d]`."""
    of_member: Any = jax.jacfwd(lambda u: kind.statistic(coordinates(u)))
    for _ in range(batch):
        of_member = jax.vmap(of_member)
    derivatives = of_member(u)
    return derivatives[..., None, :] if kind.event == 0 else jnp.swapaxes(derivatives, -1, -2)


def _tilted(u: Array, by: float) -> Array:
    return u + by * (-1.0) ** jnp.arange(u.shape[-1]).astype(u.dtype)


# \[ f(\theta) = \langle\lambda, T(\theta)\rangle + c \quad\Rightarrow\quad E_q[f] = \langle\lambda, \mu\rangle + c \]
#
# The expectation does not need λ and T separately: of two statistics one enters through the slope of f and the other
# through its curvature, so that the value, a slope and a curvature at a suitable point determine it. μ may also be the
# T(θ) of a point.


class AffineDecomposition(ABC):
    """Decomposition of a function that is affine in a site's statistics into its coefficients.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.graphs.statistics import PositiveNumbers
        >>> from lamu.programs.conjugacy import AFFINE
        >>> f = lambda t: 3.0 * jnp.log(t) - 2.0 * t
        >>> mu = PositiveNumbers(jnp.array(-0.5), jnp.array(1.0))  # E log t, E t
        >>> round(float(AFFINE[PositiveNumbers].expected(f, mu)), 6)
        -3.5
        >>> natural = AFFINE[PositiveNumbers].natural(f, mu)
        >>> round(float(natural.log), 6), round(float(natural.value), 6)
        (3.0, -2.0)
    """

    @abstractmethod
    def centre(self, statistics: Statistics) -> Array:
        """Returns a value of the site with the given statistics.

        Args:
            statistics: μ, or T(θ).
        """

    @abstractmethod
    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        """Returns E f, in the shape of f.

        Args:
            f: a function of the site whose entries are affine in T, summed over members.
            statistics: μ, or T(θ).
        """

    @abstractmethod
    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> Any:
        """Returns λ, in the structure of the statistics.

        Args:
            f: a scalar.
            statistics: the point of evaluation, and the shapes.
        """


def _derivatives_along(f: Callable[[Array], Array], point: Array, along: Array) -> tuple[Array, Array, Array]:
    """Returns f, its slope and its curvature along a direction."""
    on_line = lambda step: f(point + step * along)
    slope = lambda step: jax.jvp(on_line, (step,), (jnp.ones_like(step),))
    (value, first), (_, second) = jax.jvp(slope, (jnp.zeros((), point.dtype),), (jnp.ones((), point.dtype),))
    return value, first, second


def _slopes(f: Callable[[Array], Array], point: Array, along: Array) -> tuple[Array, Array]:
    """Returns the gradient of a scalar f, and the Hessian times a direction."""
    return jax.jvp(jax.grad(f), (point,), (along,))


def _root(squares: Array) -> Array:
    """Returns the square root of a number that is nonnegative up to rounding."""
    return jnp.sqrt(jnp.maximum(squares, 0.0))


@record
class _OfNumbers(AffineDecomposition):
    """T = (x, x²): the curvature is 2 λ₂."""

    def centre(self, statistics: Statistics) -> Array:
        return statistics.first

    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        mean = statistics.first
        deviation = _root(statistics.second - mean**2)
        return jnp.mean(jax.vmap(lambda sign: f(mean + sign * deviation))(jnp.array([1.0, -1.0], mean.dtype)), axis=0)

    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> Numbers:
        mean = statistics.first
        slope, curvature = _slopes(f, mean, jnp.ones_like(mean))
        return Numbers(slope - curvature * mean, curvature / 2.0)


@record
class _OfVectors(AffineDecomposition):
    """T = (x, xxᵀ): the Hessian of each member is 2 λ₂."""

    def centre(self, statistics: Statistics) -> Array:
        return statistics.first

    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        mean, size = statistics.first, statistics.first.shape[-1]
        values, vectors = jnp.linalg.eigh(statistics.outer - mean[..., :, None] * mean[..., None, :])
        root = vectors * _root(values * size)[..., None, :]
        steps = jnp.moveaxis(jnp.concatenate([root, -root], axis=-1), -1, 0)
        return jnp.mean(jax.vmap(lambda step: f(mean + step))(steps), axis=0)

    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> Vectors:
        mean, size = statistics.first, statistics.first.shape[-1]
        of_axis = lambda axis: _slopes(f, mean, jnp.broadcast_to(axis, mean.shape))
        slopes, columns = jax.vmap(of_axis)(jnp.eye(size, dtype=mean.dtype))
        hessian = jnp.moveaxis(columns, 0, -1)
        return Vectors(slopes[0] - jnp.einsum("...ij,...j->...i", hessian, mean), hessian / 2.0)


@record
class _OfPositive(AffineDecomposition):
    """T = (log t, t): at E t only the logarithm differs from its mean, and t² times the curvature is −λ₁."""

    def centre(self, statistics: Statistics) -> Array:
        return statistics.value

    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        mean = statistics.value
        value, _, curvature = _derivatives_along(f, mean, mean * _root(jnp.log(mean) - statistics.log))
        return value + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> PositiveNumbers:
        mean = statistics.value
        slope, curvature = _slopes(f, mean, mean)
        return PositiveNumbers(-mean * curvature, slope + curvature)


@record
class _OfReciprocal(AffineDecomposition):
    """T = (log t, 1/t): the same for 1/t, with a sign."""

    def centre(self, statistics: Statistics) -> Array:
        return 1.0 / statistics.inverse

    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        return _OfPositive().expected(lambda r: f(1.0 / r), PositiveNumbers(-statistics.log, statistics.inverse))

    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> Variances:
        reciprocal = _OfPositive().natural(lambda r: f(1.0 / r), PositiveNumbers(-statistics.log, statistics.inverse))
        return Variances(-reciprocal.log, reciprocal.value)


@record
class _OfChance(AffineDecomposition):
    """T = (log p, log(1 − p)), in log odds about zero: the slope is (λ₁ − λ₂)/2 and the curvature −(λ₁ + λ₂)/4."""

    def centre(self, statistics: Statistics) -> Array:
        return jax.nn.sigmoid(statistics.log - statistics.log_complement)

    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        event, other = statistics.log + jnp.log(2.0), statistics.log_complement + jnp.log(2.0)
        zero = jnp.zeros_like(event)
        of_odds = lambda v: f(jax.nn.sigmoid(v))
        _, slope, _ = _derivatives_along(of_odds, zero, event - other)
        value, _, curvature = _derivatives_along(of_odds, zero, _root(-2.0 * (event + other)))
        return value + slope + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> Chance:
        zero = jnp.zeros_like(statistics.log)
        slope, curvature = _slopes(lambda v: f(jax.nn.sigmoid(v)), zero, jnp.ones_like(zero))
        return Chance(slope - 2.0 * curvature, -slope - 2.0 * curvature)


@record
class _OfSimplex(AffineDecomposition):
    """T = log π, in π = softmax(v) about zero: the slope is λ − s/K, the curvature along d −s Var d, with s = Σ λ."""

    def centre(self, statistics: Statistics) -> Array:
        return jax.nn.softmax(statistics.log, axis=-1)

    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        log = statistics.log + jnp.log(float(statistics.log.shape[-1]))
        zero, (direction, spread) = jnp.zeros_like(log), _alternating(log)
        of_logits = lambda v: f(jax.nn.softmax(v, axis=-1))
        _, slope, _ = _derivatives_along(of_logits, zero, log)
        step = direction * _root(-jnp.mean(log, axis=-1, keepdims=True) / spread)
        value, _, curvature = _derivatives_along(of_logits, zero, step)
        return value + slope + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> Probabilities:
        zero, (direction, spread) = jnp.zeros_like(statistics.log), _alternating(statistics.log)
        of_logits = lambda v: f(jax.nn.softmax(v, axis=-1))
        slope, curved = _slopes(of_logits, zero, jnp.broadcast_to(direction, zero.shape))
        total = -jnp.sum(direction * curved, axis=-1, keepdims=True) / spread
        return Probabilities(slope + total / zero.shape[-1])


def _alternating(log: Array) -> tuple[Array, float]:
    """Returns a direction of alternating signs, and its variance over all entries (one for a single entry)."""
    size = log.shape[-1]
    direction = (-1.0) ** jnp.arange(size).astype(log.dtype)
    return direction, 1.0 - (1.0 / size**2 if size % 2 else 0.0) or 1.0


@record
class _OfPrecisions(AffineDecomposition):
    """T = (log det Λ, Λ): at E Λ only log det Λ differs from its mean, and along Λ the Hessian gives −λ₁ Λ⁻¹."""

    def centre(self, statistics: Statistics) -> Array:
        return statistics.matrix

    def expected(self, f: Callable[[Array], Array], statistics: Statistics) -> Array:
        mean, size = statistics.matrix, statistics.matrix.shape[-1]
        short = (jnp.linalg.slogdet(mean)[1] - statistics.logdet) / size
        value, _, curvature = _derivatives_along(f, mean, mean * _root(short)[..., None, None])
        return value + curvature

    def natural(self, f: Callable[[Array], Array], statistics: Statistics) -> Precisions:
        mean, size = statistics.matrix, statistics.matrix.shape[-1]
        slope, curved = (_symmetric(part) for part in _slopes(f, mean, mean))
        count = -jnp.einsum("...ij,...ji->...", mean, curved) / size
        return Precisions(count, slope + curved)


def _symmetric(matrix: Array) -> Array:
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2.0


AFFINE: dict[type, AffineDecomposition] = {
    Numbers: _OfNumbers(),
    Vectors: _OfVectors(),
    PositiveNumbers: _OfPositive(),
    Variances: _OfReciprocal(),
    Chance: _OfChance(),
    Probabilities: _OfSimplex(),
    Precisions: _OfPrecisions(),
}


# For random values of the other sites, the gradients of log p in a site's real coordinates at some points determine λ
# of \(\log p = \langle\lambda, T(\theta)\rangle + c\). At further points the gradients must agree with this λ. The test
# runs in float64, so that a true identity holds to 1e-12 and a false one fails clearly. For the Gaussian the identity
# is that gradients are affine: the gradient half-way between two points is the mean of theirs.


TOLERANCE = 1e-8
_ROUNDS = 3  # random values of the other sites, each with its own points


@record
class Verdict:
    """Result of the conjugacy test of a factor and one of its arguments.

    Attributes:
        factor: the site whose log density it is.
        site: the argument.
        residuals: the largest relative residual of the identity, by family.
        coupling: which entries of the site interact in the factor: 0 for none, 1 for those along the last axis, 2 for
            others.

    Examples:
        >>> from lamu.programs.conjugacy import Verdict
        >>> Verdict("y", "mu", (("Normal", 1e-16),)).families
        ('Normal',)
    """

    factor: str = static()
    site: str = static()
    residuals: tuple[tuple[str, float], ...] = static()
    coupling: int = static(default=0)

    @property
    def families(self) -> tuple[str, ...]:
        """The families for which the identity holds."""
        return tuple(name for name, residual in self.residuals if residual < TOLERANCE)


def verdicts(terms: Callable[[Any], Any], supports: Mapping[str, Any], shapes: Mapping[str, Any]) -> list[Verdict]:
    """Returns the verdict for every factor and each site that it depends on."""
    with jax.enable_x64(True), lenient():
        transforms = {name: biject_to(support) for name, support in supports.items()}
        constrained = lambda u: {name: transforms[name](leaf) for name, leaf in u.items()}

        @jax.jit
        def slopes(u: Any) -> Any:
            return jax.jacrev(lambda u: terms(constrained(u)))(u)

        random = np.random.default_rng(0)
        point = lambda: {name: random.normal(size=shape) for name, shape in shapes.items()}
        worst: dict[tuple[str, str], dict[str, float]] = {}
        meeting: dict[tuple[str, str], int] = {}
        for _ in range(_ROUNDS):
            others = point()
            for site in shapes:
                _tested(site, slopes, others, point, supports[site], transforms[site], worst, meeting)
    return [Verdict(*pair, tuple(residuals.items()), meeting[pair]) for pair, residuals in worst.items() if residuals]


def _tested(
    site: str,
    slopes: Any,
    others: Any,
    point: Any,
    support: Any,
    transform: Any,
    worst: dict[Any, dict[str, float]],
    meeting: dict[Any, int],
) -> None:
    """Adds the residuals and the coupling of all factors in one site at one value of the others."""
    slopes_at: dict[bytes, Any] = {}

    def at(u: Any) -> dict[str, Any]:
        """Returns the gradient of every factor in the site."""
        mark = np.asarray(u).tobytes()
        if mark not in slopes_at:
            slopes_of_sites = slopes({**others, site: u})
            slopes_at[mark] = {factor: np.asarray(leaf[site]) for factor, leaf in slopes_of_sites.items()}
        return slopes_at[mark]

    start = point()[site]
    first, two, three = (np.asarray(2.0 * point()[site]) for _ in range(3))
    for factor in at(start):
        size = max(float(np.max(np.abs(at(u)[factor]))) for u in (start, first, two, three)) if start.size else 0.0
        residuals = worst.setdefault((factor, site), {})
        if size == 0.0:
            continue  # the factor does not depend on the site
        thirds = [((a + b) / 2.0, (at(a)[factor] + at(b)[factor]) / 2.0) for a, b in ((first, two), (two, three))]
        thirds.append((first / 4 + 3 * three / 4, at(first)[factor] / 4 + 3 * at(three)[factor] / 4))
        off = max(float(np.max(np.abs(at(u)[factor] - expected))) for u, expected in thirds)
        _keep_largest(residuals, "Normal", off / size)
        own = lambda u, factor=factor: at(u)[factor]
        coupling = next(
            (axes for axes in range(min(start.ndim, 1) + 1) if _is_separable(own, first, two, axes, size)), 2
        )
        meeting[factor, site] = max(meeting.get((factor, site), 0), coupling)
        for name in candidates(support):
            kind, theta = CANDIDATES[name], transform(start)
            natural = np.asarray(message(kind, theta, lambda u, factor=factor: at(u)[factor], transform))
            off = 0.0
            for u in (first / 2, two / 2):
                derivatives = np.asarray(jacobian(kind, transform, u, theta.ndim - kind.event))
                expected = np.einsum("...ed,...d->...e", derivatives, natural)
                off = max(off, float(np.max(np.abs(at(u)[factor] - expected.reshape(u.shape)))))
            _keep_largest(residuals, name, off / size)


def _is_separable(slope: Callable[[Rows], Rows], first_point: Rows, two: Rows, axes: int, size: float) -> bool:
    """Whether gradients do not depend on other members; a member has the last `axes` axes."""
    # The bits of a member's index choose one of two points for its value; any two members differ in at least one bit.
    shape = first_point.shape[: first_point.ndim - axes]
    number = np.arange(int(np.prod(shape))).reshape(shape + (1,) * axes)
    for bit in range(int(number.max(initial=0)).bit_length()):
        first = (number >> bit) % 2 == 1
        difference = slope(np.where(first, first_point, two)) - np.where(first, slope(first_point), slope(two))
        if not float(np.max(np.abs(difference))) < TOLERANCE * size:
            return False
    return True


def _keep_largest(residuals: dict[str, float], name: str, residual: float) -> None:
    """Records the largest residual; NaN fails the test."""
    residuals[name] = max(residuals.get(name, 0.0), residual if np.isfinite(residual) else float("inf"))
