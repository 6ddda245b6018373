"""Laws of exponential families: what follows from A, T and the conversions, against SciPy and quadrature.

A new family is a row: its class, its textbook parameters, those of another member, and a `reference`, NumPy's account
of the same belief: `logpdf(theta)` of stacked points, and either points with weights that integrate over the support
(the trait "grid"), or closed forms of its moments. A family that another one stands for here is for the long run, since
special functions take long to compile. Everything that a law needs of a row is compiled at once (`ask`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import special, stats

from lamu import tree
from lamu.families import (
    Bernoulli,
    Beta,
    Binary,
    Categorical,
    Dirichlet,
    ExpectationParameters,
    Exponential,
    ExponentialFamily,
    Family,
    Gamma,
    Gaussian,
    GaussianChain,
    InverseGamma,
    MarkovChain,
    MatrixNormal,
    MultivariateNormal,
    NaturalParameters,
    NormalGamma,
    NormalWishart,
    ParallelGaussianChain,
    ParallelMarkovChain,
    Poisson,
    VonMises,
    Wishart,
)
from lamu.operators import Dense, Diagonal
from lamu.record import record
from lamu.rule import natural_step
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("exponential", "batches circular curved grid")

RATE, COUNT = 0.3, 4000
keys = lambda: jax.random.split(jax.random.key(2), 2)
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


# References: NumPy and SciPy, points θ and weights for integrals.


class Line:
    """A SciPy distribution on a transformed line: trapezoidal sums, exact to rounding for analytic densities."""

    def __init__(self, distribution: Any, theta: np.ndarray, weights: np.ndarray, name: str = "logpdf") -> None:
        self.logpdf, self.points, self.weights = getattr(distribution, name), theta, weights


LOG = np.linspace(-30.0, 12.0, 1401)
over_positive = lambda distribution: Line(distribution, np.exp(LOG), np.exp(LOG) * (LOG[1] - LOG[0]))
LOGIT = np.linspace(-30.0, 30.0, 601)
SIGMOID = special.expit(LOGIT)
over_unit = lambda distribution: Line(distribution, SIGMOID, SIGMOID * special.expit(-LOGIT) * (LOGIT[1] - LOGIT[0]))
over_circle = lambda distribution: Line(
    distribution, (turn := np.linspace(-np.pi, np.pi, 201)[1:]), 0 * turn + np.pi / 100
)
over_counts = lambda distribution, top: Line(distribution, np.arange(top + 1.0), np.ones(top + 1), "logpmf")


class Signs(Line):
    def __init__(self, half_logit: float) -> None:
        coin = stats.bernoulli(special.expit(2 * half_logit))
        self.logpdf = lambda theta: coin.logpmf((theta + 1) / 2)
        self.points, self.weights = np.array([-1.0, 1.0]), np.ones(2)


class OneHot(Line):
    def __init__(self, logits: Any) -> None:
        self.logpdf = lambda theta: theta @ special.log_softmax(np.asarray(logits))
        self.points, self.weights = np.eye(len(logits)), np.ones(len(logits))


class Simplex(Line):
    """Three probabilities by breaking a stick twice."""

    def __init__(self, concentration: Any) -> None:
        line = np.linspace(-24.0, 24.0, 121)
        u, v = (side.ravel() for side in np.meshgrid(line, line))
        first, second = special.expit(u), special.expit(v)
        left = special.expit(-u)
        self.points = np.stack([first, left * second, left * special.expit(-v)], axis=1)
        self.weights = first * left**2 * second * special.expit(-v) * (line[1] - line[0]) ** 2
        constant = special.gammaln(np.sum(concentration)) - np.sum(special.gammaln(concentration))
        # SciPy refuses points whose sum is one but for rounding.
        self.logpdf = lambda theta: constant + np.log(theta) @ (np.asarray(concentration) - 1.0)


class Space(Line):
    """A normal vector: trapezoidal sums over a box."""

    def __init__(self, mean: np.ndarray, precision: np.ndarray) -> None:
        self.logpdf = stats.multivariate_normal(mean, np.linalg.inv(precision)).logpdf
        line = np.linspace(-12.0, 12.0, 121)
        self.points = np.stack(np.meshgrid(*[line] * len(mean)), axis=-1).reshape(-1, len(mean))
        self.weights = np.full(len(self.points), (line[1] - line[0]) ** len(mean))


class PlaneOfMeanAndPrecision(Line):
    def __init__(self, location: float, count: float, shape: float, rate: float) -> None:
        log, z = np.meshgrid(np.linspace(-18.0, 6.0, 161), np.linspace(-9.0, 9.0, 61))
        tau = np.exp(log.ravel())
        width = 1 / np.sqrt(count * tau)
        self.points = {"mean": location + width * z.ravel(), "precision": tau}
        self.weights = tau * 0.15 * width * 0.3
        self.logpdf = lambda theta: (
            stats.gamma(shape, scale=1 / rate).logpdf(theta["precision"])
            + stats.norm(location, 1 / np.sqrt(count * theta["precision"])).logpdf(theta["mean"])
        )


class OfWishart:
    def __init__(self, degrees: float, scale_inverse: Any) -> None:
        degrees, S = float(degrees), np.asarray(scale_inverse)
        p = len(S)
        distribution = stats.wishart(degrees, np.linalg.inv(S))
        self.logpdf = lambda theta: np.array([distribution.logpdf(one) for one in np.asarray(theta)])
        self.logdet = np.sum(special.digamma((degrees - np.arange(p)) / 2)) + np.linalg.slogdet(2 * np.linalg.inv(S))[1]
        self.mu = (self.logdet, degrees * np.linalg.inv(S))
        self.entropy = float(distribution.entropy())


class OfNormalWishart:
    def __init__(self, location: Any, count: float, degrees: float, scale_inverse: Any) -> None:
        m, p = np.asarray(location), len(location)
        alone = OfWishart(degrees, scale_inverse)
        given = lambda x, L: stats.multivariate_normal(m, np.linalg.inv(count * L)).logpdf(x)
        self.logpdf = lambda theta: (
            alone.logpdf(theta["precision"])
            + np.array([given(x, L) for x, L in zip(theta["mean"], theta["precision"], strict=True)])
        )
        mean = alone.mu[1]
        self.mu = (*alone.mu, mean @ m, p / count + m @ mean @ m)
        self.entropy = alone.entropy + (p * (1 + np.log(2 * np.pi / count)) - alone.logdet) / 2


class OfMatrixNormal:
    def __init__(self, mean: Any, row_precision: Any, column_precision: Any) -> None:
        M, U, V = (np.asarray(part) for part in (mean, row_precision, column_precision))
        normal = stats.multivariate_normal(M.ravel(), np.linalg.inv(np.kron(U, V)))
        self.logpdf = lambda theta: normal.logpdf(np.asarray(theta).reshape(-1, M.size))
        self.mu = (M, M @ V @ M.T + M.shape[1] * np.linalg.inv(U))
        self.entropy = float(normal.entropy())


class OfGaussianChain:
    """The joint normal vector of all times, by substitution."""

    def __init__(self, offset: Any, transition: Any, precision: Any) -> None:
        b, A, Q = (np.asarray(part) for part in (offset, transition, precision))
        T, d = b.shape
        forward = np.eye(T * d)
        for t in range(T - 1):
            forward[(t + 1) * d : (t + 2) * d] += A[t] @ forward[t * d : (t + 1) * d]
        noise = np.zeros((T * d, T * d))
        for t in range(T):
            noise[t * d : (t + 1) * d, t * d : (t + 1) * d] = np.linalg.inv(Q[t])
        covariance, m = forward @ noise @ forward.T, forward @ b.ravel()
        normal = stats.multivariate_normal(m, covariance)
        self.logpdf = lambda theta: normal.logpdf(np.asarray(theta).reshape(-1, T * d))
        second = (covariance + np.outer(m, m)).reshape(T, d, T, d)
        pairs = np.array([second[t, :, t + 1] for t in range(T - 1)])
        self.mu = (m, np.array([second[t, :, t] for t in range(T)]), pairs)
        self.entropy = float(normal.entropy())


class Sequences(Line):
    """All sequences of three categories at three times."""

    def __init__(self, initial: Any, transition: Any) -> None:
        first = special.log_softmax(np.asarray(initial))
        steps = special.log_softmax(np.asarray(transition), axis=-1)
        self.points = np.eye(3)[np.array(list(itertools.product(range(3), repeat=3)))]
        self.weights = np.ones(27)
        along = lambda z: np.einsum("stj,tjk,stk->s", z[:, :-1], steps, z[:, 1:])
        self.logpdf = lambda theta: np.asarray(theta)[:, 0] @ first + along(np.asarray(theta))


# Rows: a family, one member, another, and the reference.


def family(
    cls: Any,
    fields: dict,
    other: dict,
    reference: Callable[..., Any],
    traits: str = "batches grid",
    name: str = "",
    **extras: Any,
) -> Row:
    as_arrays = lambda values: jax.tree.map(jnp.asarray, values, is_leaf=lambda node: isinstance(node, list))
    made, another = as_arrays(fields), as_arrays(other)
    return row(
        "exponential", name or cls.__name__, cls, traits, fields=made, other=another, reference=reference, **extras
    )


ROUND, TILTED = np.array([[1.5, 0.4], [0.4, 0.8]]), np.array([[0.9, -0.3], [-0.3, 2.0]])
WIDE = np.array([[1.2, 0.3, -0.2], [0.3, 0.9, 0.1], [-0.2, 0.1, 2.0]])

bernoulli = family(
    Bernoulli,
    {"logit": 0.7},
    {"logit": -0.4},
    lambda logit: over_counts(stats.bernoulli(special.expit(logit)), 1),
)
binary = family(Binary, {"half_logit": 0.4}, {"half_logit": -0.6}, Signs)
categorical = family(Categorical, {"logits": [0.3, -0.8, 0.0]}, {"logits": [-1.0, 0.4, 0.0]}, OneHot)
poisson = family(
    Poisson, {"log_rate": 1.1}, {"log_rate": 0.4}, lambda log_rate: over_counts(stats.poisson(np.exp(log_rate)), 120)
)
exponential = family(Exponential, {"rate": 1.6}, {"rate": 0.7}, lambda rate: over_positive(stats.expon(scale=1 / rate)))
gamma = family(
    Gamma,
    {"shape": 2.5, "rate": 1.3},
    {"shape": 1.4, "rate": 2.0},
    lambda shape, rate: over_positive(stats.gamma(shape, scale=1 / rate)),
)
inverse_gamma = family(
    InverseGamma,
    {"shape": 6.5, "scale": 1.3},
    {"shape": 5.4, "scale": 2.0},
    lambda shape, scale: over_positive(stats.invgamma(shape, scale=scale)),
    "batches grid long",
)
beta = family(
    Beta,
    {"alpha": 2.5, "beta": 1.7},
    {"alpha": 1.6, "beta": 3.1},
    lambda alpha, beta: over_unit(stats.beta(alpha, beta)),
)
dirichlet = family(
    Dirichlet, {"concentration": [2.5, 1.7, 3.2]}, {"concentration": [1.8, 4.0, 2.2]}, Simplex, "batches grid long"
)
von_mises = family(
    VonMises,
    {"location": 0.8, "concentration": 2.3},
    {"location": -0.5, "concentration": 1.1},
    lambda location, concentration: over_circle(stats.vonmises(concentration, loc=location)),
    "batches grid circular",
)
normal_gamma = family(
    NormalGamma,
    {"location": 0.6, "count": 2.0, "shape": 3.5, "rate": 1.3},
    {"location": -0.2, "count": 1.1, "shape": 2.6, "rate": 2.0},
    PlaneOfMeanAndPrecision,
)
wishart = family(
    Wishart, {"degrees": 6.5, "scale_inverse": ROUND}, {"degrees": 4.2, "scale_inverse": TILTED}, OfWishart, "batches"
)
normal_wishart = family(
    NormalWishart,
    {"location": [0.6, -0.3], "count": 2.0, "degrees": 6.5, "scale_inverse": ROUND},
    {"location": [0.1, 0.4], "count": 1.4, "degrees": 5.2, "scale_inverse": TILTED},
    OfNormalWishart,
    "batches long",
)
matrix_normal = family(
    MatrixNormal,
    {"mean": [[0.6, -0.3, 1.0], [0.2, 0.8, -0.5]], "row_precision": ROUND, "column_precision": WIDE},
    {"mean": [[0.1, 0.4, 0.7], [-0.4, 0.3, 0.0]], "row_precision": TILTED, "column_precision": WIDE},
    OfMatrixNormal,
    "batches curved",
)
gaussian = family(
    Gaussian,
    {"mean": np.array([0.6]), "precision": Diagonal(np.array([1.6]))},
    {"mean": np.array([-0.3]), "precision": Diagonal(np.array([0.7]))},
    lambda mean, precision: Space(mean, np.diag(precision.values)),
    name="Gaussian Diagonal",
)
gaussian_dense = family(
    Gaussian,
    {"mean": np.array([0.6, -0.3]), "precision": Dense(jnp.asarray(ROUND))},
    {"mean": np.array([0.1, 0.4]), "precision": Dense(jnp.asarray(TILTED))},
    lambda mean, precision: Space(mean, precision.matrix),
    "grid",
    name="Gaussian Dense",
)
multivariate_normal = family(
    MultivariateNormal,
    {"mean": [0.6, -0.3], "precision": ROUND},
    {"mean": [0.1, 0.4], "precision": TILTED},
    lambda mean, precision: Space(mean, precision),
)
RAMP = np.linspace(-1.0, 1.0, 6).reshape(3, 2)
STEEP = np.array([[[0.7, 0.3], [-0.2, 0.5]], [[0.4, -0.1], [0.6, 0.2]]])
chain_fields = {"offset": RAMP, "transition": STEEP, "precision": np.stack([ROUND, TILTED, ROUND + TILTED])}
other_chain = {"offset": 0.5 - RAMP, "transition": -0.5 * STEEP, "precision": np.stack([TILTED, ROUND, TILTED])}
gaussian_chain = family(GaussianChain, chain_fields, other_chain, OfGaussianChain, "batches", symmetric=(1,))
parallel_chain = family(
    ParallelGaussianChain, chain_fields, other_chain, lambda **fields: OfGaussianChain(**fields), "batches long",
    symmetric=(1,),
)  # fmt: skip
LEFT, RIGHT = np.array([[0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.7, 0.1, 0.2]]), np.full((3, 3), 0.2) + 0.4 * np.eye(3)
markov_chain = family(
    MarkovChain,
    {"initial": np.log([0.5, 0.3, 0.2]), "transition": np.log([LEFT, RIGHT])},
    {"initial": np.log([0.1, 0.3, 0.6]), "transition": np.log([RIGHT, LEFT])},
    Sequences,
)
parallel_markov = family(
    ParallelMarkovChain,
    {"initial": np.log([0.5, 0.3, 0.2]), "transition": np.log([LEFT, RIGHT])},
    {"initial": np.log([0.1, 0.3, 0.6]), "transition": np.log([RIGHT, LEFT])},
    lambda **fields: Sequences(**fields),
    "batches grid long",
)


# What the laws ask: each question is answered by one compiled function of the two members.


def member(row: Row, which: str = "fields") -> Any:
    return row.subject(**row.extras[which])


def reference(row: Row, which: str = "fields") -> Any:
    return row.extras["reference"](**jax.tree.map(np.asarray, row.extras[which]))


def points(row: Row) -> Any:
    """Points of the support: of the grid, or a few draws of the sound family."""
    if "grid" in row.traits:
        return jax.tree.map(jnp.asarray, reference(row).points)
    return SOUND[row.extras["reference"]](**row.extras["fields"]).draws(jax.random.key(7), 20)


def slope(q: Any, p: Any) -> Any:
    """Some gradient in μ: away from the other member."""
    return jax.tree.map(jnp.negative, p.natural().values)


def stepped(q: Any, p: Any) -> NaturalParameters:
    return NaturalParameters(natural_step(q.natural().values, slope(q, p), RATE), q.given, type(q))


def along_mu(q: Any, p: Any, theta: Any) -> dict[str, Any]:
    """At the expectations of q, of the stepped belief and on the way back: the belief, and gradients in μ."""
    here, there = q.expectation().values, stepped(q, p).expectation().values
    nearby = [jax.tree.map(lambda a, b, w=w: a + w * (b - a), there, here) for w in (0.1, 0.2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), here, there, *nearby)

    def at(values: Any) -> dict[str, Any]:
        def both(values: Any) -> Any:
            belief = ExpectationParameters(values, q.given, type(q)).family()
            return (belief.entropy() + belief.expected_log_base_measure(), belief.kl(q)), belief

        (entropy, kl), pull, belief = jax.vjp(both, values, has_aux=True)
        one, zero = jnp.ones_like(entropy), jnp.zeros_like(entropy)
        return {"family": belief, "kl": kl, "of entropy": pull((one, zero))[0], "of kl": pull((zero, one))[0]}

    return {"values": stacked, **jax.vmap(at)(stacked)}


def fisher(q: Any, p: Any, theta: Any) -> Any:
    vector, unravel = ravel_pytree(q.natural().values)
    return jax.vmap(lambda v: ravel_pytree(q.fisher_product(unravel(v)))[0])(jnp.eye(vector.size, dtype=vector.dtype))


def retracted(q: Any, p: Any, theta: Any) -> Any:
    """The bent and the straight step, of two rates."""
    d = tree.add(p.natural().values, q.natural().values, -1.0)
    bent = [q.retract(d, rate).natural().values for rate in (1e-2, 5e-3)]
    return bent, [tree.add(q.natural().values, d, rate) for rate in (1e-2, 5e-3)]


QUESTIONS: dict[str, Callable[..., Any]] = {
    "natural": lambda q, p, theta: q.natural(),
    "back": lambda q, p, theta: q.natural().family(),
    "expectation": lambda q, p, theta: q.expectation().values,
    "log_partition": lambda q, p, theta: (q.log_partition(), q.natural().log_partition()),
    "entropy": lambda q, p, theta: q.entropy(),
    "base_measure": lambda q, p, theta: (
        q.expected_log_base_measure(),
        q.log_partition() - tree.dot(q.natural().values, q.expectation().values) - q.entropy(),
    ),
    "kl": lambda q, p, theta: (q.kl(p), p.kl(q), q.kl(q)),
    "log_prob": lambda q, p, theta: jax.vmap(q.log_prob)(theta),
    "statistics": lambda q, p, theta: jax.vmap(q.statistics)(theta),
    "fisher": fisher,
    "along mu": along_mu,
    "retracted": retracted,
    "mean": lambda q, p, theta: q.mean,
    "draws": lambda q, p, theta: q.draws(keys()[0], COUNT),
    "few draws": lambda q, p, theta: jax.vmap(lambda key: q.draws(key, 7))(keys()),
}
SOUND = {row.extras["reference"]: row.subject for row in (
    bernoulli, binary, categorical, poisson, exponential, gamma, inverse_gamma, beta, dirichlet, von_mises,
    normal_gamma, wishart, normal_wishart, matrix_normal, gaussian, gaussian_dense,
    multivariate_normal, gaussian_chain, parallel_chain, markov_chain, parallel_markov,
)}  # fmt: skip


@functools.cache
def answers(row_name: str, subject: Any, names: tuple[str, ...], of: Any) -> dict[str, Any]:
    questions = {name: QUESTIONS[name] for name in names}
    everything = jax.jit(lambda q, p, theta: {name: ask(q, p, theta) for name, ask in questions.items()})
    return everything(member(of.row), member(of.row, "other"), points(of.row))


class ByName:
    """A row as a key of the cache."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def __hash__(self) -> int:
        return hash(self.row.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByName) and other.row.name == self.row.name


def ask(row: Row, *names: str) -> Any:
    """The answers; of a sound family all at once, of a broken one those alone that its law is about."""
    sound = SOUND.get(row.extras["reference"]) is row.subject
    found = answers(row.name, row.subject, tuple(QUESTIONS) if sound else names, ByName(row))
    return found[names[0]] if len(names) == 1 else [found[name] for name in names]


def compare(found: Any, expected: Any, **tolerance: float) -> None:
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, **(tolerance or CLOSE))


def rows_of(values: Any) -> np.ndarray:
    return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(values)], axis=1)


def flat(values: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(values)])


def mass(row: Row, which: str = "fields") -> np.ndarray:
    """The probability at the points of the grid, by SciPy."""
    at = reference(row)
    return at.weights * np.exp(reference(row, which).logpdf(at.points))


# The laws.


@law("exponential")
def is_a_family(row: Row) -> None:
    q = member(row)
    assert isinstance(q, Family)
    assert isinstance(q, ExponentialFamily)
    assert q.kind == ("curved" if "curved" in row.traits else "minimal exponential")
    assert jax.tree.structure(q.statistics(ask(row, "mean"))) == jax.tree.structure(q.natural().values)


@law("exponential")
def natural_and_back(row: Row) -> None:
    """λ and back is the same belief."""
    compare(ask(row, "back"), member(row))


@law("exponential")
def expectation_and_back(row: Row) -> None:
    """μ and back is the same belief, by formula or by Newton's method."""
    again = jax.tree.map(lambda leaf: leaf[0], ask(row, "along mu")["family"])
    again, mine = again.natural(), ask(row, "natural")
    compare(again.values, mine.values, rtol=1e-7, atol=1e-8)


@law("exponential")
def log_prob_is_scipys(row: Row) -> None:
    theta = points(row)
    with np.errstate(divide="ignore"):
        expected = reference(row).logpdf(jax.tree.map(np.asarray, theta))
    inside = expected > -300.0  # where θ is not rounded to the border
    np.testing.assert_allclose(np.asarray(ask(row, "log_prob"))[inside], expected[inside], rtol=1e-9, atol=1e-9)


@law("exponential", when="grid")
def density_integrates_to_one(row: Row) -> None:
    total = np.sum(reference(row).weights * np.exp(ask(row, "log_prob")))
    np.testing.assert_allclose(total, 1.0, rtol=1e-8)


@law("exponential")
def gradient_of_the_log_partition_is_the_expectation(row: Row) -> None:
    """∇A(λ) by automatic differentiation beside E T(θ), by quadrature with SciPy's density or in closed form."""
    if "grid" in row.traits:
        expected = mass(row) @ rows_of(ask(row, "statistics"))
    else:
        expected = flat(reference(row).mu)
    np.testing.assert_allclose(flat(ask(row, "expectation")), expected, rtol=1e-7, atol=1e-8)


@law("exponential")
def log_partition_is_one_number(row: Row) -> None:
    """The belief's own, and that of its natural parameters."""
    mine, natural = ask(row, "log_partition")
    assert mine.shape == ()
    np.testing.assert_allclose(mine, natural, rtol=1e-14)


@law("exponential")
def entropy_is_the_integral(row: Row) -> None:
    if "grid" in row.traits:
        p = mass(row)
        expected = -np.sum(p * np.where(p > 0, reference(row).logpdf(reference(row).points), 0.0))
    else:
        expected = reference(row).entropy
    np.testing.assert_allclose(ask(row, "entropy"), expected, rtol=1e-8, atol=1e-9)


@law("exponential")
def expected_base_measure_is_left_by_the_entropy(row: Row) -> None:
    r"""\(E_q[\log h] = A(\lambda) - \langle\lambda, \mu\rangle - H(q)\), whatever of these has a formula of its own."""
    found, expected = ask(row, "base_measure")
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@law("exponential")
def kl_is_the_integral(row: Row) -> None:
    """By quadrature; over draws of q within five standard errors (a false alarm with probability 6e-7) without one."""
    found = ask(row, "kl")[0]
    if "grid" in row.traits:
        p, at = mass(row), reference(row).points
        with np.errstate(invalid="ignore"):
            ratio = np.where(p > 0, reference(row).logpdf(at) - reference(row, "other").logpdf(at), 0.0)
        np.testing.assert_allclose(found, np.sum(p * ratio), rtol=1e-7, atol=1e-9)
        return
    at = jax.tree.map(lambda leaf: np.asarray(leaf)[:500], sound_draws(row))
    ratio = reference(row).logpdf(at) - reference(row, "other").logpdf(at)
    assert abs(np.mean(ratio) - found) < 5 * np.std(ratio) / np.sqrt(len(ratio))


@functools.cache
def draws_of(cls: Any, reference: Any) -> Any:
    of = next(row for row in ROWS_BY_CLASS if row.subject is cls)
    return ask(of, "draws")


def sound_draws(row: Row) -> Any:
    return draws_of(SOUND[row.extras["reference"]], row.extras["reference"])


ROWS_BY_CLASS = (wishart, normal_wishart, matrix_normal, gaussian_chain, parallel_chain)


@law("exponential")
def kl_is_zero_only_at_equality(row: Row) -> None:
    """Positive both ways between two members, and along every coordinate of μ on the way from one to another."""
    forth, back, none = ask(row, "kl")
    np.testing.assert_allclose(none, 0.0, atol=1e-12)
    assert forth > 1e-3
    assert back > 1e-3
    assert abs(forth - back) > 1e-6
    assert np.all(np.diff(ask(row, "along mu")["kl"][jnp.array([0, 3, 2, 1])]) > 0)


@law("exponential")
def gradient_of_the_entropy_is_minus_natural(row: Row) -> None:
    """∇_μ (H + E log h) = −λ: at constant base measure, the whole entropy."""
    gradient = jax.tree.map(lambda leaf: leaf[0], ask(row, "along mu")["of entropy"])
    compare(gradient, jax.tree.map(jnp.negative, ask(row, "natural").values), rtol=1e-7, atol=1e-8)


def symmetric_parts(row: Row) -> Any:
    """λ, with whether each part is of symmetric matrices: as the row says, else where one square matrix is."""
    leaves = jax.tree.leaves(member(row).natural().values)
    square = [i for i, leaf in enumerate(leaves) if leaf.ndim == 2 and leaf.shape[0] == leaf.shape[1]]
    return [(np.asarray(leaf), i in row.extras.get("symmetric", square)) for i, leaf in enumerate(leaves)]


def free_coordinates(row: Row) -> np.ndarray:
    """A basis of the λ that may be: symmetric matrices where they are."""
    blocks = []
    for leaf, is_symmetric in symmetric_parts(row):
        basis = np.eye(leaf.size)
        if is_symmetric:
            unit = basis.reshape(-1, *leaf.shape)
            symmetric = ((unit + unit.swapaxes(-1, -2)) / 2).reshape(leaf.size, -1)
            basis = np.unique(symmetric, axis=0)
        blocks.append(basis)
    width, made, start = sum(block.shape[1] for block in blocks), [], 0
    for block in blocks:
        wide = np.zeros((len(block), width))
        wide[:, start : start + block.shape[1]] = block
        made.append(wide)
        start += block.shape[1]
    return np.concatenate(made)


@law("exponential")
def fisher_matrix_is_the_covariance_of_the_statistics(row: Row) -> None:
    """∇²A, positive definite; over 4,000 draws within six standard errors where there is no quadrature.

    There 36 or fewer different numbers are compared: a false alarm with probability 1e-7.
    """
    found = np.asarray(ask(row, "fisher"))
    if "grid" in row.traits:
        p, T = mass(row), rows_of(ask(row, "statistics"))
        away = T - p @ T
        np.testing.assert_allclose(found, (away.T * p) @ away, rtol=1e-6, atol=1e-8)
    else:
        T = rows_of(jax.vmap(member(row).statistics)(sound_draws(row)))
        away = T - flat(reference(row).mu)
        products = away[:, :, None] * away[:, None, :]
        assert np.all(np.abs(products.mean(0) - found) < 6 * products.std(0) / np.sqrt(len(T)) + 1e-12)
    basis = free_coordinates(row)
    assert np.linalg.eigvalsh(basis @ found @ basis.T).min() > 1e-4


@law("exponential")
def natural_step_is_the_mirror_step(row: Row) -> None:
    """The step minimises ⟨g + λ, μ⟩ + KL(q_μ ‖ q)/ρ: its gradient vanishes there, and it is greater nearby."""
    found, q, p = ask(row, "along mu"), member(row), member(row, "other")
    pull = flat(tree.add(slope(q, p), ask(row, "natural").values))
    gradient = pull + flat(jax.tree.map(lambda leaf: leaf[1], found["of kl"])) / RATE
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    mirror = rows_of(found["values"]) @ pull + np.asarray(found["kl"]) / RATE
    assert mirror[1] < mirror[2] < mirror[3] < mirror[0]


@law("exponential")
def retraction_is_the_straight_step_to_first_order(row: Row) -> None:
    """Halving the rate quarters what it is away by; where every λ is a belief it is the straight step."""
    bent, straight = ask(row, "retracted")
    long, short = (np.linalg.norm(flat(a) - flat(b)) for a, b in zip(bent, straight, strict=True))
    if row.subject.unbounded:
        assert long < 1e-12
    else:
        assert 3.5 * short < long < 4.5 * short
        assert long < 0.1 * np.linalg.norm(flat(straight[0]) - flat(ask(row, "natural").values))


@law("exponential")
def retraction_stays_in_the_domain(row: Row) -> None:
    """Ten steps as long as one likes, in any direction, each of them checked by the family itself."""
    direction = np.random.default_rng(1).normal(size=(10, flat(member(row).natural().values).size))
    turned = lambda leaf: (leaf + leaf.T) / 2 if leaf.ndim == 2 and leaf.shape[0] == leaf.shape[1] else leaf
    unravel = lambda d: jax.tree.map(turned, ravel_pytree(member(row).natural().values)[1](d))
    run = jax.jit(lambda q, d: q.retract(unravel(d), 3.0))
    q = member(row)
    for d in direction:
        try:
            q = row.subject(**{f: getattr(run(q, jnp.asarray(d)), f) for f in row.extras["fields"]})
        except ValueError as error:
            raise AssertionError(str(error)) from None


@law("exponential")
def samples_have_the_moments(row: Row) -> None:
    """Averages of T over 4,000 draws within five standard errors: nine numbers, a false alarm at 5e-6 a family."""
    T = rows_of(jax.vmap(SOUND[row.extras["reference"]](**row.extras["fields"]).statistics)(ask(row, "draws")))
    if "grid" in row.traits:
        p, at = mass(row), rows_of(jax.vmap(member(row).statistics)(points(row)))
        mu, variance = p @ at, p @ at**2 - (p @ at) ** 2
    else:
        mu, variance = flat(reference(row).mu), T.var(axis=0)
    assert np.all(np.abs(T.mean(axis=0) - mu) < 5 * np.sqrt(variance / COUNT) + 1e-12)
    assert np.all(np.abs(T.std(axis=0) / np.sqrt(variance) - 1) < 0.25)


@law("exponential")
def mean_is_the_mean_of_draws(row: Row) -> None:
    """Within five standard errors; an angle's as a direction."""
    draws, mean = rows_of(ask(row, "draws")), flat(ask(row, "mean"))
    if "circular" in row.traits:
        draws = draws - mean
        draws, mean = np.sin(draws), np.zeros(1)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * draws.std(axis=0) / np.sqrt(COUNT))


@law("exponential")
def draw_depends_on_key_and_index_alone(row: Row) -> None:
    both, draws = ask(row, "few draws", "draws")
    many, other = (jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in (0, 1))
    compare(many, jax.tree.map(lambda leaf: leaf[:7], draws), rtol=1e-12)
    assert not np.allclose(rows_of(many), rows_of(other)), "draws differ from key to key"
    assert len(np.unique(rows_of(many), axis=0)) > 1, "draws differ from one another"


@law("exponential", when="batches")
def batches_are_sums_of_members(row: Row) -> None:
    """A tree of two leaves with two members each: values are sums, λ and μ stacked, and draws of the same shapes."""
    q, p = member(row), member(row, "other")
    pair = jax.tree.map(lambda a, b: jnp.stack([a, b]), q, p)
    fields = {name: jax.tree.map(lambda x: {"a": x, "b": x}, getattr(pair, name)) for name in row.extras["fields"]}
    both = row.subject(**fields)
    found = jax.jit(lambda q: (q.entropy(), q.log_partition(), q.expectation().values, q.sample(jax.random.key(0))))
    entropy, log_partition, mu, theta = found(both)
    each = [answer(one) for answer in (found,) for one in (q, p)]
    np.testing.assert_allclose(entropy, 2 * (each[0][0] + each[1][0]), **CLOSE)
    np.testing.assert_allclose(log_partition, 2 * (each[0][1] + each[1][1]), **CLOSE)
    stacked = jax.tree.map(lambda a, b: jnp.stack([a, b]), each[0][2], each[1][2])
    structure = jax.tree.structure(stacked)
    for leaf in ("a", "b"):
        part = jax.tree.map(lambda node, leaf=leaf: node[leaf], mu, is_leaf=lambda n: isinstance(n, dict) and "a" in n)
        assert jax.tree.structure(part) == structure
        compare(part, stacked)
    one = jax.tree.leaves(each[0][3])
    assert [leaf.shape for leaf in jax.tree.leaves(theta)] == [(2, *leaf.shape) for leaf in one for _ in "ab"]


@law("exponential")
def float32_beside_float64(row: Row) -> None:
    low = row.subject(**jax.tree.map(lambda value: value.astype(jnp.float32), row.extras["fields"]))
    questions = ("natural", "expectation", "log_partition", "entropy")
    found = jax.jit(lambda q: {name: QUESTIONS[name](q, q, None) for name in questions})(low)
    theta = jax.jit(lambda q: q.sample(keys()[0]))(low)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(theta)), "sample leaves float32"
    for name, value in found.items():
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(value)), f"{name} leaves float32"
        compare(value, ask(row, name), rtol=2e-4, atol=2e-4)


# Twins: one likely fault each, planted in families that compile quickly.


def broken(of: Row, fault: str, laws: str, **methods: Any) -> None:
    name = of.name + "".join(letter for letter in fault.title() if letter.isalnum())
    methods = {key: classmethod(f) if key in CLASSMETHODS else f for key, f in methods.items()}
    cls = record(type(name, (of.subject,), {"__module__": __name__, **methods}))
    twin(of, fault, laws, cls)


CLASSMETHODS = ("from_natural", "from_expectation", "partition")

broken(bernoulli, "kind not said", "is_a_family", kind="joint")
broken(
    gamma, "shape for shape less one",
    "natural_and_back log_prob_is_scipys",
    to_natural=lambda q: (q.shape, -q.rate),
)  # fmt: skip
broken(gamma, "one off on the way back", "natural_and_back", from_natural=lambda cls, v, given: cls(v[0] + 2.0, -v[1]))
broken(
    exponential, "rate for mean", "expectation_and_back natural_step_is_the_mirror_step",
    from_expectation=lambda cls, v, given: cls(v),
)  # fmt: skip
broken(
    binary, "logit for half of it", "expectation_and_back gradient_of_the_entropy_is_minus_natural",
    from_expectation=lambda cls, v, given: cls(2.0 * jnp.arctanh(v)),
)  # fmt: skip
broken(
    binary, "partition without two",
    "log_prob_is_scipys density_integrates_to_one entropy_is_the_integral",
    partition=lambda cls, v, given: Binary.partition(v, given) - jnp.log(2.0),
)  # fmt: skip
broken(
    exponential, "sign of the log-partition",
    "gradient_of_the_log_partition_is_the_expectation entropy_is_the_integral kl_is_the_integral"
    " kl_is_zero_only_at_equality fisher_matrix_is_the_covariance_of_the_statistics",
    partition=lambda cls, v, given: -Exponential.partition(v, given),
)  # fmt: skip
broken(
    gamma, "rate for scale in the partition",
    "gradient_of_the_log_partition_is_the_expectation density_integrates_to_one",
    partition=lambda cls, v, given: Gamma.partition((v[0], 1.0 / v[1]), given),
)  # fmt: skip
broken(bernoulli, "partition of the belief alone", "log_partition_is_one_number", log_partition=lambda q: 0.0 * q.logit)
broken(
    poisson, "without the factorial", "log_prob_is_scipys density_integrates_to_one",
    log_base_measure=lambda q, theta: jnp.zeros(()),
)  # fmt: skip
broken(
    poisson, "entropy of a constant measure", "entropy_is_the_integral",
    entropy=lambda q: sum(jnp.sum(jnp.exp(leaf) * (1.0 - leaf)) for leaf in jax.tree.leaves(q.log_rate)),
)  # fmt: skip
broken(
    poisson, "constant base measure", "expected_base_measure_is_left_by_the_entropy",
    expected_log_base_measure=lambda q: jnp.zeros(()),
)  # fmt: skip
broken(bernoulli, "kl the other way", "kl_is_the_integral", kl=lambda q, p: Bernoulli.kl(p, q))
broken(
    exponential, "symmetrised kl", "kl_is_zero_only_at_equality natural_step_is_the_mirror_step",
    kl=lambda q, p: (Exponential.kl(p, q) + Exponential.kl(q, p)) / 2.0,
)  # fmt: skip
broken(
    bernoulli, "entropy in bits", "entropy_is_the_integral gradient_of_the_entropy_is_minus_natural",
    entropy=lambda q: Bernoulli.entropy(q) / jnp.log(2.0),
)  # fmt: skip
broken(
    gamma, "log of one plus", "gradient_of_the_log_partition_is_the_expectation",
    statistics=lambda q, theta: (jnp.log1p(theta), theta),
)  # fmt: skip
broken(
    exponential, "standard deviation for variance", "fisher_matrix_is_the_covariance_of_the_statistics",
    fisher_product=lambda q, v: v / q.rate,
)  # fmt: skip
broken(
    bernoulli, "negative Fisher", "fisher_matrix_is_the_covariance_of_the_statistics",
    fisher_product=lambda q, v: -Bernoulli.fisher_product(q, v),
)  # fmt: skip
broken(
    exponential, "straight for retracted",
    "retraction_is_the_straight_step_to_first_order retraction_stays_in_the_domain",
    retract=lambda q, d, rate: type(q).from_natural(q.to_natural() + rate * d, ()),
)  # fmt: skip
broken(
    gamma, "half of the rate", "retraction_is_the_straight_step_to_first_order",
    retract=lambda q, d, rate: Gamma.retract(q, d, rate / 2.0),
)  # fmt: skip
broken(
    bernoulli, "bent where straight would do", "retraction_is_the_straight_step_to_first_order",
    retract=lambda q, d, rate: Bernoulli.from_natural(q.logit + rate * d + rate**2 * d**2, ()),
)  # fmt: skip
broken(
    exponential, "draws with the mean for the rate", "samples_have_the_moments mean_is_the_mean_of_draws",
    sample=lambda q, key: Exponential(1.0 / q.rate).sample(key),
)  # fmt: skip
broken(
    gamma, "rounded draws", "samples_have_the_moments",
    sample=lambda q, key: Gamma(4.0 * q.shape, 4.0 * q.rate).sample(key),
)  # fmt: skip
broken(
    binary, "mean of zeros and ones", "mean_is_the_mean_of_draws", mean=property(lambda q: jax.nn.sigmoid(q.half_logit))
)
broken(
    exponential, "keys split by the count", "draw_depends_on_key_and_index_alone",
    draws=lambda q, key, count: jax.vmap(q.sample)(jax.random.split(jax.random.fold_in(key, count), count)),
)  # fmt: skip
broken(
    exponential, "one key for all draws", "draw_depends_on_key_and_index_alone samples_have_the_moments",
    draws=lambda q, key, count: jnp.broadcast_to(q.sample(key), (count,)),
)  # fmt: skip
broken(
    bernoulli, "mean over the batch", "batches_are_sums_of_members",
    partition=lambda cls, v, given: Bernoulli.partition(v, given) / len(jax.tree.leaves(v)),
)  # fmt: skip
broken(
    exponential, "a draw for all members", "batches_are_sums_of_members",
    sample=lambda q, key: jax.tree.map(lambda r: jnp.sum(r), Exponential.sample(q, key)),
)  # fmt: skip
broken(
    bernoulli, "float64 constant", "float32_beside_float64",
    entropy=lambda q: Bernoulli.entropy(q).astype(jnp.float64),
)  # fmt: skip
broken(
    multivariate_normal, "partition without two pi", "log_prob_is_scipys entropy_is_the_integral",
    partition=lambda cls, v, given: MultivariateNormal.partition(v, given) - jnp.log(2.0 * jnp.pi),
    log_prob=ExponentialFamily.log_prob, entropy=ExponentialFamily.entropy,
)  # fmt: skip
broken(
    multivariate_normal, "second moment about zero", "expectation_and_back",
    from_expectation=lambda cls, v, given: cls(v[0], jnp.linalg.inv(v[1])),
)  # fmt: skip
broken(
    multivariate_normal, "covariance for precision", "samples_have_the_moments",
    sample=lambda q, key: MultivariateNormal(q.mean, jnp.linalg.inv(q.precision)).sample(key),
)  # fmt: skip
broken(
    multivariate_normal, "straight precision", "retraction_stays_in_the_domain",
    retract=lambda q, d, rate: MultivariateNormal(q.mean, q.precision - 2.0 * rate * d[1]),
)  # fmt: skip
broken(
    gaussian_chain, "pairs transposed", "gradient_of_the_log_partition_is_the_expectation log_prob_is_scipys",
    partition=lambda cls, v, given: GaussianChain.partition((v[0], v[1], jnp.swapaxes(v[2], -1, -2)), given),
    log_prob=ExponentialFamily.log_prob,
)  # fmt: skip
broken(
    gaussian_chain, "coupling halved", "natural_and_back",
    to_natural=lambda q: (lambda h, P, C: (h, P, C / 2.0))(*GaussianChain.to_natural(q)),
)  # fmt: skip
broken(
    gaussian_chain, "marginal for conditional entropy", "entropy_is_the_integral",
    entropy=lambda q: MultivariateNormal(q.mean, jnp.linalg.inv(q.covariance)).entropy(),
)  # fmt: skip
broken(
    markov_chain, "a step too few", "density_integrates_to_one gradient_of_the_log_partition_is_the_expectation",
    partition=lambda cls, v, given: MarkovChain.partition((v[0], v[1].at[-1].set(0.0)), given),
)  # fmt: skip
broken(
    markov_chain, "columns for rows", "samples_have_the_moments mean_is_the_mean_of_draws",
    sample=lambda q, key: MarkovChain(q.initial, jnp.swapaxes(q.transition, -1, -2)).sample(key),
)  # fmt: skip
