"""Beliefs about means and precisions: normal-gamma, Wishart, normal-Wishart, and plates of normal vectors."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln

from lamu import tree
from lamu.families.exponential import (
    Domain,
    ExpectationParameters,
    ExponentialFamily,
    Finite,
    Formulas,
    Positive,
    PositiveDefinite,
    TextbookFamily,
    map_unzipped,
    sample_leaves,
    symmetric,
    total,
    values_of,
)
from lamu.families.probabilities import Gamma, by_halves, gamma_draw, gamma_shape
from lamu.record import record
from lamu.typing import Array, Belief, Number, Params, RandomKey, Statistics

__all__ = ["MultivariateNormal", "NormalGamma", "NormalWishart", "Wishart"]


@record
class MultivariateNormal(ExponentialFamily):
    r"""A vector x of d numbers, \(x \sim N(m, \Lambda^{-1})\), or a plate of independent ones.

    \[ T = (x,\; x x^\top), \qquad \lambda = (\Lambda m,\; -\tfrac12 \Lambda), \qquad
       \mu = (m,\; \Lambda^{-1} + m m^\top) \]
    \[ A = \tfrac12 m^\top \Lambda m - \tfrac12 \log\det\Lambda + \tfrac d2 \log 2\pi \]

    `Gaussian` is one vector over a tree with any structure of precision; this family is a batch of many small vectors
    along the leading axes, each with its own matrix.

    Attributes:
        mean: m `[..., d]`, or a tree of such arrays.
        precision: Λ `[..., d, d]`, symmetric positive definite.

    Raises:
        ValueError: for a precision that is not symmetric positive definite, or of another size than the mean.

    Source: Wainwright & Jordan (2008), example 3.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import MultivariateNormal
        >>> plate = MultivariateNormal(jnp.zeros((5, 3)), jnp.eye(3))  # five vectors
        >>> plate.expectation().values[1].shape
        (5, 3, 3)
        >>> round(float(plate.entropy()), 4)  # nats, of fifteen standard normal numbers
        21.2841
    """

    mean: Params
    precision: Params

    domains: ClassVar[Mapping[str, Domain]] = {"mean": Finite(event=1), "precision": PositiveDefinite()}
    events: ClassVar[tuple[int, ...]] = (1, 2)
    is_normal = True

    def marginal_variance(self) -> Params:
        return jax.tree.map(lambda S: jnp.diagonal(jnp.linalg.inv(S), axis1=-2, axis2=-1), self.precision)

    def _validate(self) -> None:
        for m, precision in zip(jax.tree.leaves(self.mean), jax.tree.leaves(self.precision), strict=True):
            if m.ndim < 1 or precision.ndim < 2 or m.shape[-1] != precision.shape[-1]:
                raise ValueError(
                    f"MultivariateNormal: the last axis of the mean is {m.shape[-1:]} and the last two of the "
                    f"precision are {precision.shape[-2:]}; give a mean [..., d] and a precision [..., d, d]"
                )
        super()._validate()

    def to_natural(self) -> Statistics:
        """Returns (Λ m, −Λ/2)."""
        return jax.tree.map(product, self.precision, self.mean), jax.tree.map(lambda S: -S / 2.0, self.precision)

    @classmethod
    def from_natural(cls, values: Statistics, given: Params) -> MultivariateNormal:
        """Returns the belief with precision −2 λ₂, and mean Λ⁻¹ λ₁."""
        precision = jax.tree.map(lambda half: -2.0 * symmetric(half), values[1])
        return cls(jax.tree.map(_solution, precision, values[0]), precision)

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> MultivariateNormal:
        """Returns the belief with the mean μ₁, and the covariance μ₂ − μ₁ μ₁ᵀ."""
        precision = jax.tree.map(lambda m, second: jnp.linalg.inv(symmetric(second - outer(m))), *values)
        return cls(values[0], jax.tree.map(symmetric, precision))

    @classmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        r"""Returns \(\tfrac12\lambda_1^\top\Lambda^{-1}\lambda_1 - \tfrac12\log\det\Lambda + \tfrac d2\log 2\pi\)."""

        def leaf(first: Array, second: Array) -> Array:
            precision = -2.0 * symmetric(second)
            quadratic = jnp.sum(first * _solution(precision, first), axis=-1)
            return (quadratic - _logdet(precision) + first.shape[-1] * math.log(2.0 * math.pi)) / 2.0

        return total(leaf, *values)

    def statistics(self, theta: Params) -> Statistics:
        """Returns (x, x xᵀ)."""
        return theta, jax.tree.map(outer, theta)

    def retract(self, direction: Statistics, rate: Number) -> MultivariateNormal:
        r"""Returns the belief after the step \(\lambda + \rho d\), retracted so that every precision stays positive.

        \[ \Lambda' = \Lambda + \rho\Delta + \tfrac12\rho^2 \Delta \Lambda^{-1} \Delta, \qquad
           m' = m + \rho\, \Lambda'^{-1} (d_1 + 2 d_2 m), \qquad \Delta = -2 d_2 \]

        Source: Lin, Schmidt & Khan (2020), equation 12.
        """
        first, second = values_of(direction)
        domain = self.domains["precision"]
        precision = jax.tree.map(lambda S, d: domain.retract(S, -2.0 * d, rate, self), self.precision, second)

        def moved(m: Array, S: Array, d1: Array, d2: Array) -> Array:
            return m + tree.cast(rate, m) * _solution(S, d1 + 2.0 * product(symmetric(d2), m))

        return MultivariateNormal(jax.tree.map(moved, self.mean, precision, first, second), precision)

    def sample(self, key: RandomKey) -> Params:
        """Returns a vector for each member; differentiable in the parameters."""

        def draw(k: RandomKey, m: Array, S: Array) -> Array:
            noise = jax.random.normal(k, (*m.shape, 1), m.dtype)
            return m + solve_triangular(jnp.linalg.cholesky(S), noise, lower=True, trans=1)[..., 0]

        return sample_leaves(key, draw, self.mean, self.precision)

    def expectation(self) -> ExpectationParameters:
        r"""Returns \((m,\; \Lambda^{-1} + m m^\top)\)."""
        second = jax.tree.map(lambda m, S: _inverse(S) + outer(m), self.mean, self.precision)
        return ExpectationParameters((self.mean, second), (), type(self))

    def log_partition(self) -> Array:

        def leaf(m: Array, S: Array) -> Array:
            quadratic = jnp.sum(m * product(S, m), axis=-1)
            return (quadratic - _logdet(S) + m.shape[-1] * math.log(2.0 * math.pi)) / 2.0

        return total(leaf, self.mean, self.precision)

    # Closed forms, since A minus an inner product would cancel digits of means far from zero.

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(x) in nats, a sum over the members."""

        def leaf(x: Array, m: Array, S: Array) -> Array:
            away = x - m
            quadratic = jnp.sum(away * product(S, away), axis=-1)
            return (_logdet(S) - m.shape[-1] * math.log(2.0 * math.pi) - quadratic) / 2.0

        return total(leaf, theta, self.mean, self.precision)

    def entropy(self) -> Array:
        r"""Returns \(H(q) = \tfrac d2 \log 2\pi e - \tfrac12\log\det\Lambda\) in nats, a sum over the members."""
        return total(lambda S: (S.shape[-1] * (1.0 + math.log(2.0 * math.pi)) - _logdet(S)) / 2.0, self.precision)

    def kl(self, other: Belief) -> Array:
        """Returns KL(q ‖ p) in nats, a sum over the members."""
        if not isinstance(other, MultivariateNormal):
            return super().kl(other)

        def leaf(m: Array, S: Array, mean: Array, P: Array) -> Array:
            away = m - mean
            trace = jnp.sum(_inverse(S) * P, axis=(-2, -1))
            quadratic = jnp.sum(away * product(P, away), axis=-1)
            return (trace + quadratic - m.shape[-1] + _logdet(S) - _logdet(P)) / 2.0

        return total(leaf, self.mean, self.precision, other.mean, other.precision)


def outer(x: Array) -> Array:
    return x[..., :, None] * x[..., None, :]


def product(matrix: Array, vector: Array) -> Array:
    return (matrix @ vector[..., None])[..., 0]


def transpose(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, -1, -2)


def _solution(matrix: Array, vector: Array) -> Array:
    return product(_inverse(matrix), vector)


# Batches of small matrices use the sweep operator in one loop without calls of LAPACK. On a CPU each such call
# distributes its batch over the threads on which it runs, and two independent ones, such as those of the rows' latents
# and of a plate of loadings, may occupy all of these and deadlock (jaxlib 0.10.2).

_SWEPT = 32  # entries, above which a matrix is factored by LAPACK
_WRITTEN_OUT = 4  # entries, up to which the loop is unrolled: twice as fast, and longer to compile


def _inverse(matrix: Array) -> Array:
    return -swept(symmetric(matrix))[0]


def _logdet(matrix: Array) -> Array:
    return swept(symmetric(matrix))[1]


@jax.custom_jvp
def swept(P: Array, which: Array | None = None) -> tuple[Array, Array]:
    """Returns −P_mm⁻¹, P_mm⁻¹ P_mo and P_oo − P_om P_mm⁻¹ P_mo, each in its block, and log det P_mm."""
    # For symmetric positive definite matrices; otherwise NaN. `which` marks m, `[..., d]`: all where
    # None.
    size = P.shape[-1]
    if which is not None:
        P = jnp.broadcast_to(P, (*jnp.broadcast_shapes(P.shape[:-1], which.shape), size))
    if size > _SWEPT:
        return _factored(P, jnp.ones(P.shape[:-1], bool) if which is None else which)
    places = jnp.arange(size)

    def sweep(k: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        before, log_pivots = state
        column, here = jnp.take(before, k, axis=-1), places == k
        pivot = jnp.take(column, k, axis=-1)[..., None]
        scaled = column / pivot
        pivoted = before - column[..., :, None] * scaled[..., None, :]
        pivoted = jnp.where(here[:, None], scaled[..., None, :], pivoted)
        pivoted = jnp.where(here[None, :], jnp.where(here, -1.0 / pivot, scaled)[..., :, None], pivoted)
        log_pivot = jnp.log(pivot[..., 0])
        if which is None:
            return pivoted, log_pivots + log_pivot
        chosen = jnp.take(which, k, axis=-1)
        return jnp.where(chosen[..., None, None], pivoted, before), log_pivots + jnp.where(chosen, log_pivot, 0.0)

    start = P, jnp.zeros_like(P[..., 0, 0])
    if size <= _WRITTEN_OUT and which is None:
        after, logdets = functools.reduce(lambda state, k: sweep(k, state), range(size), start)
    else:
        after, logdets = jax.lax.fori_loop(0, size, sweep, start)
    return jnp.where(jnp.isnan(logdets)[..., None, None], jnp.nan, after), logdets


@swept.defjvp
def _swept_jvp(primals: tuple[Array, Any], tangents: tuple[Array, Any]) -> tuple[Any, Any]:
    (P, which), dP = primals, tangents[0]
    A, logdets = swept(P, which)
    G = -A if which is None else jnp.where(which[..., None, :], -A, jnp.eye(P.shape[-1], dtype=P.dtype))
    own = G if which is None else jnp.where(which[..., :, None] & which[..., None, :], G, jnp.zeros_like(G))
    return (A, logdets), (G @ dP @ transpose(G), jnp.sum(own * dP, axis=(-2, -1)))


def _factored(P: Array, which: Array) -> tuple[Array, Array]:
    """Returns `swept` by LAPACK."""
    eye, rows, columns = jnp.eye(P.shape[-1], dtype=P.dtype), which[..., :, None], which[..., None, :]
    root = jnp.linalg.cholesky(jnp.where(rows & columns, P, eye))
    inverse_root = solve_triangular(root, jnp.broadcast_to(eye, root.shape), lower=True)
    inverse = transpose(inverse_root) @ inverse_root
    across = jnp.where(rows & ~columns, P, jnp.zeros_like(P))
    onto = inverse @ across
    of_others = jnp.where(rows | columns, onto + transpose(onto), P - transpose(across) @ onto)
    logdets = 2.0 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
    return jnp.where(rows & columns, -inverse, of_others), logdets


@record
class NormalGamma(ExponentialFamily):
    r"""A mean x and a precision τ: \(\tau \sim \mathrm{Gamma}(a, b)\), \(x \mid \tau \sim N(m, 1/(\kappa\tau))\).

    With \(T = (\log\tau,\; \tau,\; \tau x,\; \tau x^2)\), \(\lambda = (a - \tfrac12,\; -b - \tfrac12\kappa m^2,\;
    \kappa m,\; -\tfrac12\kappa)\) and

    \[ A = \log\Gamma(a) - a \log b + \tfrac12 \log (2\pi/\kappa), \qquad
       \mu = \Big(\psi(a) - \log b,\; \frac ab,\; \frac{ma}{b},\; \frac1\kappa + \frac{m^2 a}{b}\Big) \]

    θ is the dictionary of the "mean" x and the "precision" τ.

    Attributes:
        location: m.
        count: κ, positive: the number of rows that the mean is worth.
        shape: a, positive.
        rate: b, positive.

    Examples:
        >>> from lamu.families import NormalGamma
        >>> belief = NormalGamma(location=1.0, count=2.0, shape=3.0, rate=4.0)
        >>> {name: float(value) for name, value in belief.mean.items()}
        {'mean': 1.0, 'precision': 0.75}
    """

    location: Params
    count: Params
    shape: Params
    rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {
        "location": Finite(),
        "count": Positive(),
        "shape": Positive(),
        "rate": Positive(),
    }
    events: ClassVar[tuple[int, ...]] = (0, 0, 0, 0)

    def to_natural(self) -> Statistics:
        """Returns (a − ½, −b − κ m²/2, κ m, −κ/2)."""
        leaf = lambda m, kappa, a, b: (a - 0.5, -b - kappa * m**2 / 2.0, kappa * m, -kappa / 2.0)
        return map_unzipped(leaf, 4, self.location, self.count, self.shape, self.rate)

    @classmethod
    def from_natural(cls, values: Statistics, given: Params) -> NormalGamma:
        """Returns the belief with these parameters."""

        def leaf(log: Array, linear: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            kappa = -2.0 * second
            m = first / kappa
            return m, kappa, log + 0.5, -linear - kappa * m**2 / 2.0

        return cls(*map_unzipped(leaf, 4, *values))

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> NormalGamma:
        """Returns the belief with these expectations."""

        def leaf(log: Array, tau: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            m, a = first / tau, gamma_shape(log - jnp.log(tau))
            return m, 1.0 / (second - m * first), a, a / tau

        return cls(*map_unzipped(leaf, 4, *values))

    @classmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        """Returns log Γ(a) − a log b + ½ log 2π/κ."""

        def leaf(log: Array, linear: Array, first: Array, second: Array) -> Array:
            a, b, kappa = log + 0.5, -linear + first**2 / (4.0 * second), -2.0 * second
            return gammaln(a) - a * jnp.log(b) + 0.5 * jnp.log(2.0 * jnp.pi / kappa)

        return total(leaf, *values)

    def statistics(self, theta: Params) -> Statistics:
        """Returns (log τ, τ, τ x, τ x²)."""
        leaf = lambda x, tau: (jnp.log(tau), tau, tau * x, tau * x**2)
        return map_unzipped(leaf, 4, theta["mean"], theta["precision"])

    @property
    def mean(self) -> Params:
        """The means, m and a / b."""
        return {"mean": self.location, "precision": jax.tree.map(jnp.divide, self.shape, self.rate)}

    def sample(self, key: RandomKey) -> Params:
        """Returns a precision, and a mean given it; differentiable in the parameters."""
        precision_key, mean_key = jax.random.split(key)
        precision = Gamma(self.shape, self.rate).sample(precision_key)

        def draw(k: RandomKey, m: Array, kappa: Array, tau: Array) -> Array:
            return m + jax.random.normal(k, m.shape, m.dtype) / jnp.sqrt(kappa * tau)

        return {"mean": sample_leaves(mean_key, draw, self.location, self.count, precision), "precision": precision}


def _rank_less_one(belief: Belief) -> float:
    """Returns p − 1, the lower bound of the degrees of freedom."""
    return float(jax.tree.leaves(belief.scale_inverse)[0].shape[-1] - 1)


@record
class Wishart(TextbookFamily):
    r"""A precision matrix Λ, p by p: \(T = (\log\det\Lambda, \Lambda)\), \(\lambda = ((\nu-p-1)/2,\; -V^{-1}/2)\).

    \[ A = \tfrac{\nu}{2}\log\det 2V + \log\Gamma_p(\nu/2), \qquad
       \mu = \big(\textstyle\sum_{j<p} \psi((\nu - j)/2) + \log\det 2V,\; \nu V\big) \]

    Attributes:
        degrees: ν, above p − 1.
        scale_inverse: \(V^{-1}\) `[..., p, p]`, symmetric positive definite: for conjugate data, the sum of scatters.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Wishart
        >>> Wishart(4.0, 2.0 * jnp.eye(2)).mean.tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """

    degrees: Params
    scale_inverse: Params

    domains: ClassVar[Mapping[str, Domain]] = {
        "degrees": Positive(above=_rank_less_one),
        "scale_inverse": PositiveDefinite(),
    }
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda nu, S: ((nu - S.shape[-1] - 1.0) / 2.0, -S / 2.0),
        textbook=lambda count, half: (2.0 * count + half.shape[-1] + 1.0, -2.0 * symmetric(half)),
        partition=lambda count, half: _wishart_partition(count + (half.shape[-1] + 1.0) / 2.0, -half),
        statistics=lambda precision: (logdet(precision), precision),
        mean=lambda nu, S: nu[..., None, None] * jnp.linalg.inv(S),
        draw=lambda key, nu, S: _wishart_draw(key, nu, S),
        of_moments=lambda log, mean: _wishart_of(log, symmetric(mean)),
    )


@record
class NormalWishart(ExponentialFamily):
    r"""A mean vector and a precision: \(\Lambda \sim W(\nu, V)\), \(x \mid \Lambda \sim N(m, (\kappa\Lambda)^{-1})\).

    \[ T = (\log\det\Lambda,\; \Lambda,\; \Lambda x,\; x^\top\Lambda x), \qquad \lambda =
       \big((\nu - p)/2,\; -\tfrac12 (V^{-1} + \kappa m m^\top),\; \kappa m,\; -\tfrac12\kappa\big) \]

    θ is the dictionary of the "mean" x and the "precision" Λ.

    Attributes:
        location: m `[..., p]`.
        count: κ, positive: the number of rows that the mean is worth.
        degrees: ν, above p − 1.
        scale_inverse: \(V^{-1}\) `[..., p, p]`, symmetric positive definite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import NormalWishart
        >>> NormalWishart(jnp.ones(2), 1.0, 4.0, 2.0 * jnp.eye(2)).mean["precision"].tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """

    location: Params
    count: Params
    degrees: Params
    scale_inverse: Params

    domains: ClassVar[Mapping[str, Domain]] = {
        "location": Finite(event=1),
        "count": Positive(),
        "degrees": Positive(above=_rank_less_one),
        "scale_inverse": PositiveDefinite(),
    }
    events: ClassVar[tuple[int, ...]] = (0, 2, 1, 0)

    def to_natural(self) -> Statistics:
        """Returns ((ν − p)/2, −(V⁻¹ + κ m mᵀ)/2, κ m, −κ/2)."""

        def leaf(m: Array, kappa: Array, nu: Array, S: Array) -> tuple[Array, Array, Array, Array]:
            half = -(S + kappa[..., None, None] * outer(m)) / 2.0
            return (nu - m.shape[-1]) / 2.0, half, kappa[..., None] * m, -kappa / 2.0

        return map_unzipped(leaf, 4, self.location, self.count, self.degrees, self.scale_inverse)

    @classmethod
    def from_natural(cls, values: Statistics, given: Params) -> NormalWishart:
        """Returns the belief with these parameters."""

        def leaf(log: Array, half: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            kappa = -2.0 * second
            m = first / kappa[..., None]
            S = -2.0 * symmetric(half) - kappa[..., None, None] * outer(m)
            return m, kappa, 2.0 * log + m.shape[-1], S

        return cls(*map_unzipped(leaf, 4, *values))

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> NormalWishart:
        """Returns the belief with these expectations."""

        def leaf(log: Array, mean: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            mean = symmetric(mean)
            m = jnp.linalg.solve(mean, first[..., None])[..., 0]
            kappa = m.shape[-1] / (second - jnp.sum(m * first, axis=-1))
            return m, kappa, *_wishart_of(log, mean)

        return cls(*map_unzipped(leaf, 4, *values))

    @classmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        """Returns the Wishart's A plus p/2 log 2π/κ."""

        def leaf(log: Array, half: Array, first: Array, second: Array) -> Array:
            kappa, p = -2.0 * second, first.shape[-1]
            remaining = -half - outer(first) / (2.0 * kappa[..., None, None])
            return _wishart_partition(log + p / 2.0, remaining) + p / 2.0 * jnp.log(2.0 * jnp.pi / kappa)

        return total(leaf, *values)

    def statistics(self, theta: Params) -> Statistics:
        """Returns (log det Λ, Λ, Λ x, xᵀ Λ x)."""

        def leaf(x: Array, precision: Array) -> tuple[Array, Array, Array, Array]:
            first = (precision @ x[..., None])[..., 0]
            return logdet(precision), precision, first, jnp.sum(x * first, axis=-1)

        return map_unzipped(leaf, 4, theta["mean"], theta["precision"])

    @property
    def mean(self) -> Params:
        """The means, m and ν V."""
        return {"mean": self.location, "precision": Wishart(self.degrees, self.scale_inverse).mean}

    def sample(self, key: RandomKey) -> Params:
        """Returns a precision matrix, and a mean given it."""
        precision_key, mean_key = jax.random.split(key)
        precision = Wishart(self.degrees, self.scale_inverse).sample(precision_key)

        def draw(k: RandomKey, m: Array, kappa: Array, matrix: Array) -> Array:
            root = jnp.linalg.cholesky(kappa[..., None, None] * matrix)
            noise = jax.random.normal(k, (*m.shape, 1), m.dtype)
            return m + jnp.linalg.solve(jnp.swapaxes(root, -1, -2), noise)[..., 0]

        return {"mean": sample_leaves(mean_key, draw, self.location, self.count, precision), "precision": precision}


def logdet(matrix: Array) -> Array:
    """Returns log det of symmetric positive definite matrices; otherwise NaN."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1)), axis=-1)


def _wishart_partition(half_degrees: Array, half_scale: Array) -> Array:
    r"""Returns A at \(\nu/2\) and \(V^{-1}/2\)."""
    p = half_scale.shape[-1]
    gammas = jnp.sum(gammaln(by_halves(half_degrees, p)), axis=-1) + p * (p - 1) / 4.0 * math.log(math.pi)
    return gammas - half_degrees * logdet(half_scale)


def _wishart_of(log: Array, mean: Array) -> tuple[Array, Array]:
    """Returns ν and V⁻¹ at the given expectations of log det Λ and Λ."""
    nu = 2.0 * gamma_shape(log - logdet(mean), mean.shape[-1])
    return nu, nu[..., None, None] * jnp.linalg.inv(mean)


def _wishart_draw(key: RandomKey, nu: Array, S: Array) -> Array:
    r"""Returns \(L B B^\top L^\top\), \(L L^\top = V\), B lower triangular with chi variables on its diagonal."""
    p = S.shape[-1]
    normal_key, gamma_key = jax.random.split(key)
    chi = jnp.sqrt(2.0 * gamma_draw(gamma_key, by_halves(nu / 2.0, p)))
    below = jnp.tril(jax.random.normal(normal_key, S.shape, S.dtype), -1)
    eye = jnp.eye(p, dtype=S.dtype).reshape((1,) * nu.ndim + (p, p))
    B = below + chi[..., None] * eye
    # For V⁻¹ = R Rᵀ any L with L Lᵀ = V is valid, here R⁻ᵀ.
    L = jnp.linalg.inv(jnp.swapaxes(jnp.linalg.cholesky(S), -1, -2))
    root = L @ B
    matrix = root @ jnp.swapaxes(root, -1, -2)
    # With few degrees of freedom the least chi may be so small that rounding makes the product singular: one of 3,000
    # samples of size four in single precision. Some units of rounding are added to its diagonal.
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    unit = p * jnp.finfo(matrix.dtype).eps * jnp.sum(diagonal, axis=-1)
    pivots = jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1)
    raised = matrix + 8.0 * unit[..., None, None] * eye
    return jnp.where((jnp.min(pivots, axis=-1) ** 2 > 4.0 * unit)[..., None, None], matrix, raised)
