"""Laws of estimators: ∇_μ E_q[ℓ] of a function of θ, beside sums over a grid or over every θ.

The reference knows no Fisher matrix and no theorem: over points θ_k of weight w_k that integrate q, the gradient in μ
is the slope of a least-squares regression of ℓ(θ_k) on T(θ_k). A row's subject is the estimator. Its extras:
`problems`, the names of the beliefs and losses that it is for; `make(S)`, the same with another number of draws;
`definition`, what a biased one should come to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu.expectations import (
    Analytic,
    ConstantBaseline,
    Control,
    Delta,
    Enumeration,
    GaussHermite,
    GradientEstimator,
    LeaveOneOut,
    MonteCarlo,
    MovingAverageBaseline,
    Regression,
    Relaxed,
    Reparameterised,
    ScoreFunction,
    ValueAndGradient,
)
from lamu.families import (
    Bernoulli,
    Beta,
    Binary,
    Categorical,
    Dirichlet,
    Exponential,
    Gamma,
    Gaussian,
    InverseGamma,
)
from lamu.operators import Dense, Diagonal, Scalar
from tests.laws.curvature import STRUCTURES
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("gradients", "controlled defined deterministic fitted gaussian integral relaxed root sampled traced")

REPETITIONS, SEED, TAU = 2_000, 3, 0.6
COVARIANCE = np.array([[0.5, -0.25], [-0.25, 0.4]])


@dataclass(frozen=True, eq=False)
class Problem:
    """A belief, a loss, and points that integrate over it."""

    belief: Any
    loss: Callable[[Any], Any]
    points: np.ndarray  # raveled, [K, D]
    weights: np.ndarray

    def at(self, function: Callable[[Any], Any]) -> np.ndarray:
        """A function of θ at every point."""
        unravel = ravel_pytree(self.belief.mean)[1]
        return np.asarray(jax.jit(jax.vmap(lambda point: function(unravel(point))))(jnp.asarray(self.points)))

    @property
    def low(self) -> Any:
        """The belief in float32."""
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), self.belief)


def flat(a: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(a)[0])


def statistics(belief: Any) -> Callable[[Any], Any]:
    """T(θ) as a vector of independent coordinates."""
    if not isinstance(belief, Gaussian):
        return lambda theta: ravel_pytree(belief.statistics(theta))[0]

    def of_gaussian(theta: Any) -> Any:
        x = ravel_pytree(theta)[0]
        second = {
            Scalar: lambda: jnp.sum(x**2)[None],
            Diagonal: lambda: x**2,
            Dense: lambda: jnp.outer(x, x)[np.triu_indices(x.size)],
        }
        return jnp.concatenate([x, second[type(belief.precision)]()])

    return of_gaussian


def coordinates(gradient: Any) -> jax.Array:
    """The gradient in the coordinates of `statistics`: an off-diagonal entry counts twice in the trace."""
    if gradient.of is Gaussian and isinstance(gradient.values[1], Dense):
        first, matrix = gradient.values[0], gradient.values[1].matrix
        twice = matrix + matrix.T - jnp.diag(jnp.diagonal(matrix))
        return jnp.concatenate([ravel_pytree(first)[0], twice[np.triu_indices(len(matrix))]])
    return ravel_pytree(gradient)[0]


@cache
def integral(problem: Problem) -> tuple[Any, np.ndarray]:
    """E_q[ℓ] and ∇_μ E_q[ℓ], the latter as the regression of ℓ on T."""
    T, losses, w = problem.at(statistics(problem.belief)), problem.at(problem.loss), problem.weights
    away = T - w @ T
    root = np.sqrt(w)[:, None]
    return w @ losses, np.linalg.lstsq(root * away, root[:, 0] * (losses - w @ losses), rcond=None)[0]


def hermite(belief: Gaussian, loss: Callable[[Any], Any]) -> Problem:
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    m, covariance = flat(belief.mean), np.linalg.inv(np.asarray(belief.precision.dense(belief.mean)))
    z = np.stack(np.meshgrid(*[nodes] * m.size, indexing="ij"), axis=-1).reshape(-1, m.size)
    weight = np.prod(np.meshgrid(*[weights / weights.sum()] * m.size, indexing="ij"), axis=0).ravel()
    return Problem(belief, loss, m + z @ np.linalg.cholesky(covariance).T, weight)


def trapezoid(belief: Any, loss: Callable[[Any], Any], curve: Any, log_weight: Any, size: int, width: float) -> Problem:
    """Over t in R^size, with θ a function of t along which the density with its Jacobian falls at both ends."""
    t = np.stack(np.meshgrid(*[np.linspace(-width, width, 401)] * size, indexing="ij"), axis=-1).reshape(-1, size)
    theta = curve(t)
    weight = np.exp(log_weight(theta))
    return Problem(belief, loss, theta, weight / weight.sum())


def corners(belief: Any, loss: Callable[[Any], Any], values: Any) -> Problem:
    """Every θ of two coins with these two values, or of two categories of three."""
    one = np.asarray(values, float)
    pairs = np.stack([np.concatenate([a, b]) for a in one for b in one])
    mean = flat(belief.mean)
    if one.shape[1] == 1:  # P(θ = high) of each coin
        up = (mean - one[0]) / (one[1] - one[0])
        weight = np.prod(np.where(pairs == one[1], up, 1.0 - up), axis=1)
    else:
        weight = np.prod((pairs * mean).reshape(-1, 2, one.shape[1]).sum(axis=2), axis=1)
    return Problem(belief, loss, pairs, weight)


def array(*values: float) -> Any:
    return jnp.asarray(values)


def tree_of(theta: Any) -> Any:
    return theta["b"], theta["w"][0]


def bent(theta: Any) -> Any:
    b, w = tree_of(theta)
    return jax.nn.softplus(1.5 * w - b) + 0.3 * b * w**2 + jnp.sin(b) + 2.0


def polynomial(theta: Any) -> Any:
    b, w = tree_of(theta)
    return 0.2 * w**4 - 0.4 * b**3 + b**2 * w + 1.5


def coupled(theta: Any) -> Any:
    b, w = tree_of(theta)
    return 0.8 * b * w + jnp.exp(0.7 * b) - 0.5 * w**3 + 2.0


PLACE = {"b": jnp.asarray(0.3), "w": array(-0.6)}
DENSE = Gaussian(PLACE, Dense(jnp.linalg.inv(jnp.asarray(COVARIANCE))))
GAMMA, BETA, DIRICHLET = (
    Gamma({"x": array(2.5, 4.0)}, {"x": array(1.5, 3.0)}),
    Beta(2.0, 3.5),
    Dirichlet(array(2.0, 1.5, 3.0)),
)
INVERSE, WAIT = InverseGamma(5.0, 3.0), Exponential(1.5)
COIN = {"b": jnp.asarray(0.4), "w": array(-0.7)}
softmax = lambda t: np.exp(t) / (1 + np.exp(t).sum(axis=1, keepdims=True))
PROBLEMS = {
    "line": hermite(
        Gaussian(jnp.asarray(0.4), Diagonal(jnp.asarray(2.0))), lambda x: jax.nn.softplus(2.0 * x) + jnp.cos(x)
    ),
    "dense": hermite(DENSE, bent),
    "diagonal": hermite(Gaussian(PLACE, Diagonal({"b": jnp.asarray(2.0), "w": array(3.5)})), bent),
    "scalar": hermite(Gaussian(PLACE, Scalar(jnp.asarray(2.5))), bent),
    "polynomial": hermite(DENSE, polynomial),
    "gamma": trapezoid(
        GAMMA,
        lambda theta: jnp.log1p(theta["x"][0] * theta["x"][1]) + jnp.cos(theta["x"][0]),
        np.exp,
        lambda x: np.log(x) @ np.array([2.5, 4.0]) - x @ np.array([1.5, 3.0]),
        2,
        14.0,
    ),
    "beta": trapezoid(
        BETA,
        lambda x: jnp.sin(3.0 * x) + x**2,
        lambda t: 1 / (1 + np.exp(-t[:, :1])),
        lambda x: (2.0 * np.log(x) + 3.5 * np.log1p(-x))[:, 0],
        1,
        30.0,
    ),
    "dirichlet": trapezoid(
        DIRICHLET,
        lambda x: jnp.log1p(5.0 * x[0] * x[1]) + x[2] ** 2,
        lambda t: np.concatenate([softmax(t), 1 - softmax(t).sum(axis=1, keepdims=True)], axis=1).clip(1e-300),
        lambda x: np.log(x) @ np.array([2.0, 1.5, 3.0]),
        2,
        24.0,
    ),
    "inverse gamma": trapezoid(
        INVERSE, lambda x: jnp.sin(2.0 * x), np.exp, lambda x: (-5.0 * np.log(x) - 3.0 / x)[:, 0], 1, 12.0
    ),
    "wait": trapezoid(WAIT, lambda x: jnp.sin(2.0 * x), np.exp, lambda x: (np.log(x) - 1.5 * x)[:, 0], 1, 30.0),
    "bernoulli": corners(Bernoulli(COIN), coupled, [[0.0], [1.0]]),
    "binary": corners(Binary(COIN), coupled, [[-1.0], [1.0]]),
    "category": Problem(
        Categorical(array(0.2, -0.4, 0.5)),
        lambda x: jnp.exp(x[0] - x[1]) + 2.0 * x[2] ** 2,
        np.eye(3),
        np.exp([0.2, -0.4, 0.5]) / np.exp([0.2, -0.4, 0.5]).sum(),
    ),
    "categories": corners(
        Categorical(jnp.asarray([[0.2, -0.4, 0.5], [0.0, 1.0, -0.3]])),
        lambda x: jnp.exp(x[0, 0] - x[1, 2]) + 2.0 * x[0, 1] * x[1, 1],
        np.eye(3),
    ),
}
PROBLEMS["linear"] = replace(
    PROBLEMS["scalar"], loss=lambda x: 2.0 * x["b"] - 3.0 * x["w"][0] + x["b"] ** 2 + x["w"][0] ** 2 + 7.0
)
GAUSSIANS = ("line", "dense", "diagonal", "scalar", "polynomial")


def expected(problem: Problem) -> Callable[[Any], Any]:
    """E_q[ℓ] as a function of μ: the points' weights change with the density."""
    points, w, losses = jnp.asarray(problem.points), jnp.asarray(problem.weights), jnp.asarray(problem.at(problem.loss))
    unravel = ravel_pytree(problem.belief.mean)[1]
    at = lambda q: jax.vmap(lambda point: q.log_prob(unravel(point)))(points)

    def of(mu: Any) -> Any:
        q = mu.family()
        return jnp.sum(w * jnp.exp(at(q) - at(problem.belief)) * losses)

    return of


def loss_of(row: Row, name: str) -> Callable[[Any], Any]:
    return expected(PROBLEMS[name]) if "in_mu" in row.extras else PROBLEMS[name].loss


def taken(row: Row, name: str, seed: int = SEED) -> ValueAndGradient:
    loss = loss_of(row, name)
    return jax.jit(lambda key, q: row.subject.gradient(key, q, loss))(jax.random.key(seed), PROBLEMS[name].belief)


def samples(row: Row, name: str, draws: int) -> np.ndarray:
    """Independent estimates `[repetitions, numbers]`, of the value and the gradient."""
    made, problem = row.extras["make"](draws), PROBLEMS[name]

    def one(key: Any) -> Any:
        return made.gradient(key, problem.belief, problem.loss)

    known = (id(row.extras["make"]), name, draws)
    if known not in SEEN:
        keys = jax.random.split(jax.random.key(100 + draws), REPETITIONS)
        with jax.debug_key_reuse(False):  # the checker takes any vmapped scan over keys for a second use of them
            found = jax.jit(jax.vmap(one))(keys)
        SEEN[known] = (np.column_stack([found.value, jax.vmap(coordinates)(found.gradient)]), row)
    return SEEN[known][0]


SEEN: dict[Any, Any] = {}


def reference(row: Row, name: str) -> np.ndarray:
    value, gradient = row.extras.get("definition", integral)(PROBLEMS[name])
    return np.append(value, gradient)


def delta_definition(problem: Problem) -> tuple[Any, np.ndarray]:
    """The loss at the mean; the pair of Bonnet and Price there, or the gradient of ℓ(mean) through μ."""
    q, mean = problem.belief, problem.belief.mean
    if isinstance(q, Beta):  # whose mean is no part of μ
        mu = q.expectation()
        at = lambda values: problem.loss(replace(mu, values=values).family().mean)
        return problem.loss(mean), flat(jax.grad(at)(mu.values))
    if not isinstance(q, Gaussian):  # whose mean is the last part of μ
        slope = flat(jax.grad(problem.loss)(mean))
        return problem.loss(mean), np.append(np.zeros(flat(q.natural().values).size - slope.size), slope)
    m, unravel = ravel_pytree(mean)
    g, H = (np.asarray(d(lambda x: problem.loss(unravel(x)))(m)) for d in (jax.grad, jax.hessian))
    H = STRUCTURES[type(q.precision)](H)
    second = {
        Scalar: lambda: H[:1, 0] / 2,
        Diagonal: lambda: np.diag(H) / 2,
        Dense: lambda: (H - np.diag(np.diag(H)) / 2)[np.triu_indices(m.size)],
    }
    return problem.loss(mean), np.concatenate([g - H @ np.asarray(m), second[type(q.precision)]()])


def relaxed_definition(problem: Problem) -> tuple[Any, np.ndarray]:
    """E of the relaxed loss, over a grid of the noise, differentiated in λ and divided by the Fisher matrix."""
    return over_noise(problem, TAU)


@cache
def over_noise(problem: Problem, tau: float) -> tuple[Any, np.ndarray]:
    q = problem.belief
    e = np.stack(np.meshgrid(*[np.linspace(-40.0, 40.0, 601)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    if isinstance(q, Categorical):  # differences of three Gumbels to the last
        w = 2 * np.exp(-e.sum(axis=1)) / (1 + np.exp(-e).sum(axis=1)) ** 3
    else:
        w = np.prod(np.exp(-np.abs(e)) / (1 + np.exp(-np.abs(e))) ** 2, axis=1)
    w, e, unravel = jnp.asarray(w / w.sum()), jnp.asarray(e), ravel_pytree(q.mean)[1]

    def at(natural: Any, noise: Any) -> Any:
        if isinstance(q, Categorical):
            return problem.loss(jax.nn.softmax(jnp.append(natural + noise, 0.0) / tau))
        if isinstance(q, Binary):
            return problem.loss(unravel(2.0 * jax.nn.sigmoid((2.0 * natural + noise) / tau) - 1.0))
        return problem.loss(unravel(jax.nn.sigmoid((natural + noise) / tau)))

    natural = ravel_pytree(q.natural().values)[0]
    value, slope = jax.jit(jax.value_and_grad(lambda natural: w @ jax.vmap(lambda n: at(natural, n))(e)))(natural)
    T = problem.at(statistics(q))
    away = T - problem.weights @ T
    return value, np.linalg.solve((problem.weights[:, None] * away).T @ away, np.asarray(slope))


analytic = row(
    "gradients", "Analytic", Analytic(), "deterministic integral", problems=("dense", "gamma", "binary"), in_mu=True
)
nodes = row("gradients", "GaussHermite", GaussHermite(60), "deterministic integral gaussian traced", problems=GAUSSIANS)
corner = row(
    "gradients", "Enumeration", Enumeration(), "deterministic integral", problems=("bernoulli", "binary", "categories")
)
delta = row(
    "gradients",
    "Delta",
    Delta(),
    "deterministic defined",
    problems=("dense", "scalar", "gamma", "bernoulli"),
    definition=delta_definition,
)
row(
    "gradients",
    "Delta, more",
    Delta(),
    "deterministic defined long",
    problems=("beta", "diagonal"),
    definition=delta_definition,
)
hessians = row(
    "gradients",
    "MonteCarlo",
    MonteCarlo(4),
    "sampled root gaussian",
    problems=("dense", "scalar"),
    make=MonteCarlo,
)
implicit = row(
    "gradients",
    "Reparameterised",
    Reparameterised(4),
    "sampled root gaussian",
    problems=("dense", "gamma"),
    make=Reparameterised,
)
row(
    "gradients",
    "Reparameterised, more",
    Reparameterised(4),
    "sampled long",
    problems=("line", "diagonal", "scalar", "beta", "dirichlet", "inverse gamma", "wait"),
    make=Reparameterised,
)
plain = row(
    "gradients",
    "ScoreFunction",
    ScoreFunction(4, ConstantBaseline()),
    "sampled root",
    problems=("scalar", "gamma", "binary"),
    make=ScoreFunction,
)
row(
    "gradients",
    "ScoreFunction, more",
    ScoreFunction(4),
    "sampled long",
    problems=("dense", "diagonal", "beta", "dirichlet", "inverse gamma", "wait", "bernoulli", "categories"),
    make=ScoreFunction,
)
AVERAGE = MovingAverageBaseline(0.9).updated(2.0).updated(3.0)
left_out = row(
    "gradients",
    "ScoreFunction with LeaveOneOut",
    ScoreFunction(4, LeaveOneOut()),
    "sampled controlled",
    problems=("binary",),
    make=lambda draws: ScoreFunction(draws, LeaveOneOut()),
)
averaged = row(
    "gradients",
    "ScoreFunction with MovingAverageBaseline",
    ScoreFunction(4, AVERAGE),
    "sampled controlled",
    problems=("binary",),
    make=lambda draws: ScoreFunction(draws, AVERAGE),
)
regressed = row(
    "gradients",
    "ScoreFunction with Regression",
    ScoreFunction(4, Regression()),
    "sampled controlled fitted traced",
    problems=("scalar", "binary"),
    make=lambda draws: ScoreFunction(draws, Regression()),
)
row(
    "gradients",
    "ScoreFunction with Regression, more",
    ScoreFunction(4, Regression()),
    "sampled controlled long",
    problems=("dense", "gamma"),
    make=lambda draws: ScoreFunction(draws, Regression()),
)
relaxed = row(
    "gradients",
    "Relaxed",
    Relaxed(TAU, 4),
    "sampled relaxed traced",
    problems=("binary", "category"),
    make=lambda draws: Relaxed(TAU, draws),
    at=lambda tau: Relaxed(tau, 4),
    definition=relaxed_definition,
)
row(
    "gradients",
    "Relaxed, more",
    Relaxed(TAU, 4),
    "sampled long",
    problems=("bernoulli",),
    make=lambda draws: Relaxed(TAU, draws),
    definition=relaxed_definition,
)


@law("gradients")
def gradient_is_of_the_type_of_the_natural_parameters(row: Row) -> None:
    """So that the rule's step takes it, leaf by leaf; in the dtype of the belief."""
    assert isinstance(row.subject, GradientEstimator)
    name = row.extras["problems"][0]
    problem, key, loss = PROBLEMS[name], jax.random.key(SEED), loss_of(row, name)
    for belief in (problem.belief,) if "in_mu" in row.extras else (problem.belief, problem.low):
        found = jax.eval_shape(lambda belief: row.subject.gradient(key, belief, loss), belief)
        natural = jax.eval_shape(lambda belief: belief.natural(), belief)
        assert found.value.shape == ()
        assert found.value.dtype == jax.tree.leaves(natural)[0].dtype
        assert jax.tree.structure(found.gradient) == jax.tree.structure(natural)
        described = lambda a: [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(a)]
        assert described(found.gradient) == described(natural)


@law("gradients", when="integral")
def agrees_with_the_integral(row: Row) -> None:
    for name in row.extras["problems"]:
        assert_close(taken(row, name), reference(row, name), name, rtol=1e-7, atol=1e-8)


@law("gradients", when="defined")
def agrees_with_its_definition(row: Row) -> None:
    for name in row.extras["problems"]:
        assert_close(taken(row, name), reference(row, name), name, rtol=1e-9, atol=1e-10)


def assert_close(found: ValueAndGradient, expected: np.ndarray, name: str, **tolerance: float) -> None:
    np.testing.assert_allclose(np.append(found.value, coordinates(found.gradient)), expected, err_msg=name, **tolerance)


@law("gradients", when="deterministic")
def key_is_not_used(row: Row) -> None:
    name = row.extras["problems"][0]
    np.testing.assert_array_equal(flat(taken(row, name, seed=1)), flat(taken(row, name)))


@law("gradients", when="sampled")
def unbiased(row: Row) -> None:
    """At most seven numbers a problem within five standard errors: a false alarm with probability 4e-6 a problem."""
    for name in row.extras["problems"]:
        found = samples(row, name, 4)
        away = found.mean(axis=0) - reference(row, name)
        allowed = 5.0 * found.std(axis=0) / np.sqrt(len(found)) + 1e-9
        assert np.all(np.abs(away) < allowed), (name, away, allowed)


@law("gradients", when="root")
def error_falls_with_the_root_of_the_draws(row: Row) -> None:
    """Mean squares of 4 and 64 draws stand as 16 to 1.

    Over 2,000 repetitions of errors with a kurtosis of at most 20 the ratio has a relative standard error of at most
    0.1, so that 16 ± 9 is more than five of them: a false alarm below 4e-6 a row.
    """
    name = row.extras["problems"][0]
    few, many = (samples(row, name, draws) - reference(row, name) for draws in (4, 64))
    ratio = np.mean(few**2, axis=0) / np.mean(many**2, axis=0)
    assert np.all((ratio > 7.0) & (ratio < 25.0)), ratio


@law("gradients", when="controlled")
def control_lowers_the_variance(row: Row) -> None:
    """Below the plain score function's, for every number of the gradient, on losses that are far from zero.

    The variances have relative standard errors of at most 0.1, and the ratio is asked to be several of them below one.
    """
    for name in row.extras["problems"]:
        ours, theirs = samples(row, name, 4), samples(plain, name, 4)
        ratio = ours[:, 1:].var(axis=0) / theirs[:, 1:].var(axis=0)
        assert np.all(ratio < 0.6), (name, ratio)


@law("gradients", when="fitted")
def regression_leaves_little_of_a_linear_loss(row: Row) -> None:
    """ℓ = ⟨a, T(θ)⟩: the slope is known after some draws, and the variance falls far faster than by the sixth."""
    few, many = (samples(row, "linear", draws)[:, 1:] for draws in (4, 24))
    assert np.all(np.abs(many.mean(axis=0) - [2.0, -3.0, 1.0]) < 5.0 * many.std(axis=0) / np.sqrt(len(many)))
    assert np.all(few.var(axis=0) / many.var(axis=0) > 40.0)


@law("gradients", when="relaxed")
def bias_vanishes_with_the_temperature(row: Row) -> None:
    """There at τ = 2, gone to within five standard errors and 0.05 at τ = 0.1, for each of the two numbers."""
    exact = integral(PROBLEMS["binary"])[1]
    assert np.max(np.abs(over_noise(PROBLEMS["binary"], 2.0)[1] - exact)) > 0.1
    cold = samples(replace(row, extras={**row.extras, "make": lambda _: row.extras["at"](0.1)}), "binary", 4)[:, 1:]
    assert np.all(np.abs(cold.mean(axis=0) - exact) < 0.05 + 5.0 * cold.std(axis=0) / np.sqrt(len(cold)))


@law("gradients", when="gaussian")
def price_is_the_hessian_on_polynomials(row: Row) -> None:
    """E[S(θ − m) ∇ℓᵀ] = E[∇²ℓ] for a quartic, whichever of the two the row averages."""
    problem = PROBLEMS["polynomial"]
    q, unravel = problem.belief, ravel_pytree(problem.belief.mean)[1]
    raveled = lambda v: problem.loss(unravel(v))
    bends = problem.at(lambda x: jax.hessian(raveled)(ravel_pytree(x)[0]))
    slopes = problem.at(lambda x: jax.grad(raveled)(ravel_pytree(x)[0]))
    hessian = np.einsum("k,kij->ij", problem.weights, bends)
    away = (problem.points - flat(q.mean)) @ np.asarray(q.precision.matrix)
    np.testing.assert_allclose(np.einsum("k,ki,kj->ij", problem.weights, away, slopes), hessian, rtol=1e-9, atol=1e-10)
    if "sampled" in row.traits:
        found = samples(row, "polynomial", 4)[:, 3:]
        average, allowed = found.mean(axis=0), 5.0 * found.std(axis=0) / np.sqrt(len(found))
    else:
        average, allowed = coordinates(taken(row, "polynomial").gradient)[2:], 1e-8
    twice = hessian / 2 + np.triu(hessian, 1) / 2
    assert np.all(np.abs(average - twice[np.triu_indices(2)]) < allowed)


@law("gradients", when="traced")
def jit_and_vmap_change_nothing(row: Row) -> None:
    name = row.extras["problems"][0]
    problem = PROBLEMS[name]
    keys = lambda: jax.random.split(jax.random.key(SEED), 2)
    with jax.debug_key_reuse(False):  # as above
        together = jax.jit(jax.vmap(lambda key: row.subject.gradient(key, problem.belief, problem.loss)))(keys())
    alone = row.subject.gradient(keys()[1], problem.belief, problem.loss)
    np.testing.assert_allclose(flat(jax.tree.map(lambda leaf: leaf[1], together)), flat(alone), rtol=1e-9, atol=1e-11)


def twin_of(
    of: Row, fault: str, laws: str, change: Callable[..., ValueAndGradient], problems: tuple[str, ...] = ()
) -> None:
    """`change(sound, key, belief, loss)`, with `sound` the row's own."""

    def wrapped(subject: Any) -> Any:
        return SimpleNamespace(gradient=lambda *arguments: change(subject.gradient, *arguments))

    made = {name: of.extras[name] for name in ("make", "at") if name in of.extras}
    extras = {name: lambda x, f=f: wrapped(f(x)) for name, f in made.items()}
    twin(of, fault, laws, wrapped(of.subject), problems=problems or of.extras["problems"][:1], **extras)


def another(**parts: Callable[..., Any]) -> Callable[..., ValueAndGradient]:
    """Parts of the estimate changed, each by a function of it."""

    def change(sound: Any, *arguments: Any) -> ValueAndGradient:
        at = sound(*arguments)
        return replace(at, **{name: part(at) for name, part in parts.items()})

    return change


def in_natural(sound: Any, key: Any, q: Any, loss: Any) -> ValueAndGradient:
    at = sound(key, q, loss)
    return replace(at, gradient=replace(at.gradient, values=q.fisher_product(at.gradient.values)))


def narrow(sound: Any, key: Any, q: Gaussian, loss: Any) -> ValueAndGradient:
    return sound(key, Gaussian(q.mean, q.precision.scale(4.0)), loss)


@dataclass(frozen=True)
class Included(Control):
    """The mistake of every control: the draw that it serves has a part in it."""

    inner: Any

    def weights(self, losses: Any, kernel: Any) -> Any:
        """The average of all, or the regression on all (as in Salimans & Knowles 2013)."""
        centred = losses - jnp.mean(losses)
        if isinstance(self.inner, LeaveOneOut):
            return centred / losses.size
        return jnp.linalg.solve(kernel() + jnp.eye(losses.size), centred)


scaled = lambda factor: another(gradient=lambda at: jax.tree.map(lambda leaf: factor * leaf, at.gradient))
exact, root = "agrees_with_the_integral", "error_falls_with_the_root_of_the_draws"
kept = "gradient_is_of_the_type_of_the_natural_parameters"
halved = lambda first, second: (first, second.scale(0.5))
bend = another(gradient=lambda at: replace(at.gradient, values=halved(*at.gradient.values)))
twin_of(analytic, "gradient in λ", exact, in_natural, ("binary",))
twin_of(nodes, "at the mean", exact, lambda sound, *rest: Delta().gradient(*rest), ("line",))
twin_of(nodes, "half of the Hessian's half", f"{exact} price_is_the_hessian_on_polynomials", bend)
twin_of(nodes, "float64 always", kept, another(value=lambda at: at.value.astype(jnp.float64)))
twin_of(
    nodes,
    "another value where traced",
    "jit_and_vmap_change_nothing",
    another(value=lambda at: at.value + 1e-3 * isinstance(at.value, jax.core.Tracer)),
)
twin_of(corner, "gradient in λ", exact, in_natural)
twin_of(delta, "a little away", "agrees_with_its_definition", lambda sound, *rest: GaussHermite(2).gradient(*rest))
twin_of(delta, "at a draw", "key_is_not_used", lambda sound, *rest: MonteCarlo(1).gradient(*rest))
twin_of(delta, "values alone", kept, another(gradient=lambda at: at.gradient.values))
twin_of(hessians, "draws of half the width", "unbiased", narrow)
twin_of(hessians, "one draw for all", root, lambda sound, *rest: MonteCarlo(1).gradient(*rest))
twin_of(implicit, "gradient in λ", "unbiased", in_natural, ("gamma",))
twin_of(plain, "sum for average", "unbiased", scaled(4.0), ("binary",))
twin_of(
    left_out, "nothing taken off", "control_lowers_the_variance", lambda sound, *rest: ScoreFunction(4).gradient(*rest)
)
twin_of(relaxed, "gradient in λ", "unbiased", in_natural)
twin_of(
    relaxed, "one temperature", "bias_vanishes_with_the_temperature", lambda sound, *rest: Relaxed(2.0).gradient(*rest)
)
twin_of(
    regressed,
    "a constant alone",
    "regression_leaves_little_of_a_linear_loss",
    lambda sound, *rest: ScoreFunction(24, LeaveOneOut()).gradient(*rest),
)
for served in (left_out, regressed):
    control = Included(served.subject.control)
    twin_of(
        served,
        "the draw itself included",
        "unbiased",
        lambda sound, *rest, control=control: ScoreFunction(4, control).gradient(*rest),
        ("binary",),
    )
