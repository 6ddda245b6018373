"""Laws of curvature: each choice is its own definition, written out here row by row, in every structure.

A row's subject is the choice. Its extras: `definition(case)`, the dense matrix that it should come to. The reference is
a loss written by hand over raveled coordinates, which knows neither objectives nor batches: padding and weights are in
it as an explicit sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu import likelihoods, networks, tree
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.model import Model
from lamu.objective import AllParameters, BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import (
    ClippedGradient,
    Curvature,
    Damped,
    Evaluation,
    GaussNewton,
    Hessian,
    NoCurvature,
    Price,
    RootScaledGradient,
    SquaredGradient,
)
from lamu.objective.curvature.interface import fisher_information
from lamu.operators import Dense, Diagonal, Scalar
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("curvature", "additive canonical drawn fixed matrix positive")

RNG = np.random.default_rng(12)
X = RNG.normal(size=(8, 2))
MASK = np.array([1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
WEIGHT = np.array([1.0, 0.5, 2.0, 1.0, 1.0, 1.5, 1.0, 7.0])
X[3], X[7] = 40.0, -25.0  # padded rows may hold anything
TARGETS = {
    "regression": RNG.normal(size=8),
    "binary": np.array([1, 0, 1, 1, 0, 1, 0, 0]),
    "classes": np.array([0, 2, 1, 1, 2, 0, 2, 0]),
}
POWER, SIZE = 0.7, 50.0
STRUCTURES = {
    Scalar: lambda a: np.mean(np.diag(a)) * np.eye(len(a)),
    Diagonal: lambda a: np.diag(np.diag(a)),
    Dense: lambda a: a,
}
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@dataclass(frozen=True, eq=False)
class Case:
    """One model on eight rows, two of them padding, with the same loss written by hand over a vector."""

    model: Model
    space: Any = field(default_factory=NetworkParameters)
    power: float = POWER
    size: float = SIZE
    mask: np.ndarray = field(default_factory=lambda: MASK)
    weight: np.ndarray = field(default_factory=lambda: WEIGHT)
    dtype: Any = jnp.float64

    @cached_property
    def batch(self) -> Batch:
        as_float = lambda a: jnp.asarray(a, self.dtype)
        y = TARGETS[self.model.likelihood.task]
        y = as_float(y) if self.model.likelihood.task == "regression" else jnp.asarray(y)
        return Batch(x=as_float(X), y=y, mask=as_float(self.mask), weight=as_float(self.weight))

    @property
    def conjugate(self) -> bool:
        return isinstance(self.space, NetworkParameters)

    @cache  # noqa: B019  (cases live as long as the run, and laws ask again and again)
    def params(self) -> Any:
        params, _ = jax.jit(self.model.init)(jax.random.key(3), self.batch)
        vector, unravel = ravel_pytree(params)
        bumps = jnp.asarray(np.random.default_rng(4).normal(size=vector.size), vector.dtype)
        return unravel(vector + 0.3 * bumps)

    @cache  # noqa: B019  (as above)
    def loss(self) -> tuple[BatchLoss, Any]:
        """The library's loss, and the point."""
        coordinates, rest = self.space.split(self.params())
        objective = Objective(self.model, self.size, likelihood_power=self.power)
        return BatchLoss(objective, self.batch, {}, self.space, rest, conjugate=self.conjugate), coordinates

    @cache  # noqa: B019  (as above)
    def belief(self) -> Gaussian:
        """A belief whose mean is elsewhere."""
        _, theta = self.loss()
        vector, unravel = ravel_pytree(theta)
        root = np.random.default_rng(2).normal(size=(vector.size, vector.size))
        return Gaussian(
            unravel(vector * 0.8 - 0.1), Dense(jnp.asarray(root @ root.T + np.eye(vector.size), self.dtype))
        )

    def outputs(self, theta: jax.Array) -> jax.Array:
        _, at = self.loss()
        weights = self.space.join(ravel_pytree(at)[1](theta), {})["network"]
        return self.model.network.apply(self.model.complete(weights), {}, self.batch.x, None, False)[0]

    def by_hand(self, theta: jax.Array, rest: Any = None) -> jax.Array:
        """ℓ / N over raveled coordinates; the conjugate prior is in the belief and not in the loss."""
        loss, at = self.loss()
        coordinates = ravel_pytree(at)[1](theta)
        params = self.space.join(coordinates, loss.rest if rest is None else rest)
        log_prob = self.model.likelihood.log_prob(params["likelihood"], self.outputs(theta), self.batch.y)
        real = np.flatnonzero(self.mask)
        data = jnp.sum(self.weight[real] * log_prob[real]) * self.power / len(real)
        prior = self.model.likelihood.log_prior(params["likelihood"])
        if not self.conjugate:
            prior = prior + self.model.prior.log_prob(params["network"])
        return -data - prior / self.size


def flat(a: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(a)[0])


def evaluated(row: Row, loss: BatchLoss, theta: Any, belief: Any, structure: Any) -> Evaluation:
    """What a choice of curvature computes, compiled: one by one, its operations take far longer."""
    compiled = jax.jit(lambda *given: row.subject.evaluate(*given, structure, jax.random.key(0)))
    return compiled(loss, theta, belief)


MLP = networks.MLP((3,), activation="tanh")
CASES = {
    "classes": Case(Model(MLP, likelihoods.Categorical(3))),
    "regression": Case(Model(MLP, likelihoods.Gaussian())),
    "everything": Case(Model(MLP, likelihoods.Gaussian()), space=AllParameters()),
}
LINEAR = {
    "regression": Case(Model(networks.Linear(), likelihoods.Gaussian(scale=0.6))),
    "binary": Case(Model(networks.Linear(), likelihoods.Bernoulli())),
    "classes": Case(Model(networks.Linear(bias=False), likelihoods.Categorical(3))),
}


def at_point(row: Row, case: Case, structure: Any = Dense) -> Evaluation:
    # Laws ask for the same evaluations. The objects are kept beside the result, so that no identity is used twice.
    known = (id(row.subject), id(case), structure)
    if known not in SEEN:
        loss, theta = case.loss()
        found = evaluated(row, loss, theta, case.belief(), structure)
        SEEN[known] = (found, row.subject, case)
    return SEEN[known][0]


SEEN: dict[Any, Any] = {}


@cache
def hessian(case: Case) -> np.ndarray:
    return np.asarray(jax.jit(jax.hessian(case.by_hand))(jnp.asarray(flat(case.loss()[1]))))


@cache
def gradient(case: Case) -> np.ndarray:
    return np.asarray(jax.jit(jax.grad(case.by_hand))(jnp.asarray(flat(case.loss()[1]))))


@cache
def gauss_newton(case: Case) -> np.ndarray:
    """Σ_i r_i J_iᵀ Λ_i J_i, row by row, with Λ written out for each likelihood; and the prior's share, if any."""
    loss, at = case.loss()
    theta = flat(at)
    both = jax.jit(lambda theta: (jax.jacfwd(case.outputs)(theta), case.outputs(theta)))(jnp.asarray(theta))
    jacobian, f = (np.asarray(part) for part in both)
    params = case.space.join(at, loss.rest)["likelihood"]
    total = np.zeros((theta.size, theta.size))
    real = np.flatnonzero(case.mask)
    for i in real:
        if case.model.likelihood.task == "classes":
            p = np.exp(f[i]) / np.exp(f[i]).sum()
            information = np.diag(p) - np.outer(p, p)
        elif case.model.likelihood.task == "binary":
            p = 1 / (1 + np.exp(-f[i, 0]))
            information = np.array([[p * (1 - p)]])
        else:
            scale = case.model.likelihood.scale or np.exp(params["log_scale"][0])
            information = np.array([[scale**-2.0]])
        total += case.weight[i] * jacobian[i].T @ information @ jacobian[i]
    return total * case.power / len(real) + prior_share(case)


def prior_share(case: Case) -> np.ndarray:
    """−∇² log p(θ) / N where the prior is a part of the loss, the whole matrix by autodiff; zero where it is not."""
    loss, at = case.loss()
    vector, unravel = tree.ravel(at)
    if loss.conjugate:
        return np.zeros((vector.size, vector.size))
    log_prior = lambda theta: case.model.log_prior(case.space.join(unravel(theta), loss.rest))
    return -np.asarray(jax.jit(jax.hessian(log_prior))(vector)) / loss.objective.data_size


@cache
def square(case: Case) -> np.ndarray:
    g = gradient(case)
    return np.outer(g, g)


@cache
def price(case: Case) -> np.ndarray:
    theta, belief = flat(case.loss()[1]), case.belief()
    g = gradient(case)
    product = np.outer(np.asarray(belief.precision.matrix) @ (theta - flat(belief.mean)), g)
    return (product + product.T) / 2


@cache
def damped(case: Case) -> np.ndarray:
    return gauss_newton(case) + 0.3 * np.eye(len(gauss_newton(case)))


@cache
def root_scaled(case: Case) -> np.ndarray:
    """√s |g| on the diagonal, with s the diagonal of the belief's precision a row."""
    g = gradient(case)
    s = np.diag(np.asarray(case.belief().precision.matrix)) / case.size
    return np.diag(np.sqrt(s) * np.abs(g))


hessians = row("curvature", "Hessian", Hessian(), "matrix canonical additive", definition=hessian)
gauss = row("curvature", "GaussNewton", GaussNewton(), "matrix canonical additive positive", definition=gauss_newton)
squares = row("curvature", "SquaredGradient", SquaredGradient(), "matrix positive", definition=square)
prices = row("curvature", "Price", Price(), "matrix additive drawn", definition=price)
floored = row("curvature", "Damped", Damped(GaussNewton(), 0.3), "matrix positive", definition=damped)
rooted = row("curvature", "RootScaledGradient", RootScaledGradient(), "matrix positive", definition=root_scaled)
unclipped = ClippedGradient(GaussNewton(), 1e6)
clips = row("curvature", "ClippedGradient", unclipped, "matrix canonical additive positive", definition=gauss_newton)
nothing = row("curvature", "NoCurvature", NoCurvature(), "fixed")


@law("curvature")
def value_and_gradients_are_the_losss(row: Row) -> None:
    assert isinstance(row.subject, Curvature)
    for case in CASES.values():
        found = at_point(row, case)
        loss, at = case.loss()
        value, (slope, rest) = jax.jit(jax.value_and_grad(case.by_hand, (0, 1)))(jnp.asarray(flat(at)), loss.rest)
        np.testing.assert_allclose(found.value, value, **CLOSE)
        np.testing.assert_allclose(flat(found.gradient), slope, **CLOSE)
        np.testing.assert_allclose(flat(found.rest), flat(rest), **CLOSE)
        assert jax.tree.structure(found.gradient) == jax.tree.structure(at)


@law("curvature", when="matrix")
def matrix_is_its_definition(row: Row) -> None:
    """In every structure, on models with several outputs, dispersions and the prior in the loss."""
    for name, case in CASES.items():
        expected = row.extras["definition"](case)
        like = case.loss()[1]
        # What a narrower structure keeps does not depend on the model, so one model is enough for those.
        for structure, keep in STRUCTURES.items() if name == "classes" else [(Dense, STRUCTURES[Dense])]:
            found = at_point(row, case, structure).curvature
            assert isinstance(found, structure)
            where = f"{name}, {structure.__name__}"
            np.testing.assert_allclose(found.dense(like), keep(expected), **CLOSE, err_msg=where)


@law("curvature", when="canonical")
def hessian_of_a_linear_model(row: Row) -> None:
    """With canonical links the Gauss–Newton matrix of a linear network is the Hessian itself."""
    for name, case in LINEAR.items():
        found = at_point(row, case).curvature.matrix
        np.testing.assert_allclose(found, hessian(case), **CLOSE, err_msg=name)


@law("curvature", when="positive")
def never_negative(row: Row) -> None:
    for case in CASES.values():
        eigenvalues = np.linalg.eigvalsh(at_point(row, case).curvature.matrix)
        assert eigenvalues.min() > -1e-12
        assert eigenvalues.max() > 1e-4


@law("curvature", when="fixed")
def no_curvature_is_none(row: Row) -> None:
    for structure in STRUCTURES:
        assert at_point(row, CASES["classes"], structure).curvature is None


@law("curvature")
def padding_changes_nothing(row: Row) -> None:
    """Rows behind the mask may be taken away, and further ones added, whatever they hold."""
    for name in ("classes", "everything"):
        assert_same_without_padding(row, CASES[name])


def assert_same_without_padding(row: Row, case: Case) -> None:
    loss, theta = case.loss()
    real = np.flatnonzero(MASK)
    bare = jax.tree.map(lambda leaf: leaf[real], case.batch)

    def evaluate(batch: Batch) -> Evaluation:
        return evaluated(row, replace(loss, batch=batch), theta, case.belief(), Dense)

    whole = evaluate(case.batch)
    for batch in (bare, bare.padded(9)):
        for a, b in zip(jax.tree.leaves(evaluate(batch)), jax.tree.leaves(whole), strict=True):
            np.testing.assert_allclose(a, b, **CLOSE)


@law("curvature", when="additive")
def a_weight_is_a_repetition(row: Row) -> None:
    """The matrix is linear in the weights: that of two weights summed is the sum of theirs."""
    one, other = np.where(np.arange(8) % 2 == 0, WEIGHT, 0.0), np.where(np.arange(8) % 2 == 0, 0.0, WEIGHT)
    for case in LINEAR.values():
        parts = [at_point(row, replace(case, weight=weight)).curvature.matrix for weight in (one, other)]
        np.testing.assert_allclose(parts[0] + parts[1], at_point(row, case).curvature.matrix, **CLOSE)


@law("curvature", when="additive")
def power_and_size_enter_once(row: Row) -> None:
    """On the mean scale the data's curvature is proportional to the power and does not know N."""
    for case in LINEAR.values():
        once = at_point(row, case).curvature.matrix
        np.testing.assert_allclose(at_point(row, replace(case, power=3 * POWER)).curvature.matrix, 3 * once, **CLOSE)
        np.testing.assert_allclose(at_point(row, replace(case, size=7 * SIZE)).curvature.matrix, once, **CLOSE)


@law("curvature", when="matrix")
def frozen_leaves_have_no_curvature(row: Row) -> None:
    """Held leaves are constants: what remains is the definition over the free ones."""
    case = CASES["classes"]
    held = replace(case, model=case.model.freeze(case.params(), "layers/0/*", "*bias"))
    found = at_point(row, held)
    like = held.loss()[1]
    assert tree.paths(like) == ["layers/1/kernel"]
    for structure, keep in STRUCTURES.items():
        curvature = at_point(row, held, structure).curvature
        np.testing.assert_allclose(curvature.dense(like), keep(row.extras["definition"](held)), **CLOSE)
    assert flat(found.gradient).shape == (9,)


@law("curvature", when="canonical")
def frozen_leaves_leave_a_block(row: Row) -> None:
    """Of the whole model's matrix at the same point, the block of the free weights."""
    case = CASES["classes"]
    whole = at_point(row, case).curvature.matrix
    params = case.params()
    model = case.model.freeze(params, "layers/0/*")
    loss, _ = replace(case, model=model).loss()
    free = {"layers": {0: dict.fromkeys(params["network"]["layers"][0]), 1: params["network"]["layers"][1]}}
    found = evaluated(row, loss, free, case.belief(), Dense).curvature.matrix
    size = flat(free).size
    np.testing.assert_allclose(found, whole[-size:, -size:], **CLOSE)


@law("curvature", when="drawn")
def unbiased_for_the_expected_hessian(row: Row) -> None:
    """Beside the Hessian averaged over a grid of Gauss–Hermite nodes, for a loss that is not quadratic.

    Nine entries within five standard errors of the mean of n draws, six of them different: a false alarm at 4e-6.
    """
    case, n = LINEAR["binary"], 20_000
    loss, theta = case.loss()
    precision = jnp.asarray([[1.6, 0.4, -0.3], [0.4, 0.9, 0.2], [-0.3, 0.2, 1.2]])
    belief = Gaussian(theta, Dense(precision))
    estimate = lambda key: row.subject.evaluate(loss, belief.sample(key), belief, Dense, None).curvature.matrix
    estimates = np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(jax.random.key(1), n)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    z = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    weight = np.prod(np.meshgrid(weights, weights, weights, indexing="ij"), axis=0).ravel() / weights.sum() ** 3
    points = flat(theta) + z @ np.linalg.cholesky(np.linalg.inv(precision)).T
    hessians = jax.jit(jax.vmap(jax.hessian(case.by_hand)))(jnp.asarray(points))
    expected = np.tensordot(weight, np.asarray(hessians), axes=1)
    error = estimates.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(estimates.mean(axis=0) - expected) < 5.0 * error)


@law("curvature")
def float32_beside_float64(row: Row) -> None:
    high = LINEAR["binary"]
    low = replace(high, dtype=jnp.float32)
    loss, theta = high.loss()
    single = lambda a: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), a)
    low_loss = replace(low.loss()[0], rest=single(loss.rest))
    for structure in (Diagonal, Dense):
        found = evaluated(row, low_loss, single(theta), single(high.belief()), structure)
        expected = evaluated(row, loss, theta, high.belief(), structure)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert a.dtype == jnp.float32
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@law("curvature")
def jit_changes_nothing(row: Row) -> None:
    case = LINEAR["binary"]
    (loss, theta), belief = case.loss(), case.belief()  # outside of the trace: a case keeps what it makes
    evaluate = lambda theta: row.subject.evaluate(loss, theta, belief, Dense, None)
    for a, b in zip(jax.tree.leaves(jax.jit(evaluate)(theta)), jax.tree.leaves(evaluate(theta)), strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)


def changed(of: Row, **parts: Callable[..., Any]) -> Any:
    """A choice that differs in the given parts, each a function of (evaluation, loss, θ, belief, structure)."""

    def evaluate(loss: Any, theta: Any, belief: Any, structure: Any, key: Any) -> Evaluation:
        at = of.subject.evaluate(loss, theta, belief, structure, key)
        return replace(at, **{name: part(at, loss, theta, belief, structure) for name, part in parts.items()})

    return SimpleNamespace(evaluate=evaluate)


def twin_of(of: Row, fault: str, laws: str, **parts: Callable[..., Any]) -> None:
    twin(of, fault, laws, changed(of, **parts))


def scaled(factor: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda at, loss, theta, belief, structure: jax.tree.map(lambda leaf: leaf * factor(loss), at.curvature)


def without_information(at: Any, loss: Any, theta: Any, belief: Any, structure: Any) -> Any:
    outputs = loss.outputs(theta)
    counts = loss.objective.row_factor(loss.batch)
    weight = jnp.broadcast_to(jnp.eye(outputs.shape[1]), (len(counts), *[outputs.shape[1]] * 2))
    return structure.from_jacobian(loss.jacobian(theta), weight * counts[:, None, None])


def outputs_apart(at: Any, loss: Any, theta: Any, belief: Any, structure: Any) -> Any:
    information = fisher_information(loss, theta, loss.outputs(theta)).matrix()
    return structure.from_jacobian(loss.jacobian(theta), information * jnp.eye(information.shape[-1])[None])


def unmasked(at: Any, loss: Any, theta: Any, belief: Any, structure: Any) -> Any:
    batch = replace(loss.batch, mask=jnp.ones_like(loss.batch.mask))
    return GaussNewton().matrix(replace(loss, batch=batch), theta, structure)


def covariance_for_precision(at: Any, loss: Any, theta: Any, belief: Any, structure: Any) -> Any:
    return structure.from_outer(belief.precision.solve(tree.add(theta, belief.mean, -1.0)), at.gradient)


def without_precision(at: Any, loss: Any, theta: Any, belief: Any, structure: Any) -> Any:
    return structure.from_outer(tree.add(theta, belief.mean, -1.0), at.gradient)


def prior_dropped(at: Any, loss: Any, theta: Any, belief: Any, structure: Any) -> Any:
    params = loss.space.join(theta, loss.rest)
    return at.value + loss.objective.model.prior.log_prob(params["network"]) / SIZE


def frozen_counted(at: Any, loss: Any, theta: Any, belief: Any, structure: Any) -> Any:
    return scaled(lambda loss: 1.0 if loss.objective.model.frozen is None else 2.0)(at, loss, theta, belief, structure)


definition = "matrix_is_its_definition"
twin_of(hessians, "sign", f"{definition} hessian_of_a_linear_model", curvature=scaled(lambda loss: -1.0))
twin_of(
    hessians,
    "sum for mean",
    f"{definition} power_and_size_enter_once",
    curvature=scaled(lambda loss: loss.objective.data_size),
)
twin_of(
    hessians,
    "power twice",
    f"{definition} power_and_size_enter_once",
    curvature=scaled(lambda loss: loss.objective.likelihood_power),
)
twin_of(
    hessians,
    "prior dropped",
    f"{definition} value_and_gradients_are_the_losss",
    value=prior_dropped,
    curvature=lambda at, loss, theta, belief, structure: Hessian().evaluate(
        replace(loss, conjugate=True), theta, belief, structure, None
    ).curvature,
)  # fmt: skip
twin_of(
    hessians,
    "diagonal alone",
    definition,
    curvature=lambda at, loss, theta, belief, structure: structure.from_diagonal(at.curvature.diagonal(theta)),
)
twin_of(gauss, "information dropped", f"{definition} hessian_of_a_linear_model", curvature=without_information)
twin_of(gauss, "outputs taken as independent", f"{definition} hessian_of_a_linear_model", curvature=outputs_apart)
twin_of(gauss, "padding counted", f"{definition} padding_changes_nothing", curvature=unmasked)
twin_of(gauss, "negative", f"{definition} never_negative", curvature=scaled(lambda loss: -1.0))
twin_of(
    gauss,
    "squared gradient",
    f"{definition} a_weight_is_a_repetition",
    curvature=lambda at, loss, theta, belief, structure: structure.from_outer(at.gradient, at.gradient),
)
twin_of(
    gauss,
    "frozen leaves counted",
    "frozen_leaves_have_no_curvature frozen_leaves_leave_a_block",
    curvature=frozen_counted,
)
twin_of(
    gauss,
    "gradient of the sum",
    "value_and_gradients_are_the_losss",
    gradient=lambda at, loss, *_: tree.scale(at.gradient, loss.objective.data_size),
)
twin_of(
    squares,
    "absolute gradient",
    definition,
    curvature=lambda at, *_: jax.tree.map(lambda leaf: jnp.sqrt(jnp.abs(leaf)), at.curvature),
)
twin_of(squares, "squared sum of rows", definition, curvature=scaled(lambda loss: loss.batch.count**2))
twin_of(
    prices,
    "covariance for precision",
    f"{definition} unbiased_for_the_expected_hessian",
    curvature=covariance_for_precision,
)
twin_of(prices, "precision dropped", f"{definition} unbiased_for_the_expected_hessian", curvature=without_precision)
twin_of(prices, "half", f"{definition} unbiased_for_the_expected_hessian", curvature=scaled(lambda loss: 0.5))
twin_of(
    rooted,
    "precision of all rows",
    definition,
    curvature=scaled(lambda loss: loss.objective.concentration**0.5),
)
twin_of(
    rooted,
    "signed",
    f"{definition} never_negative",
    curvature=lambda at, loss, theta, belief, structure: structure.from_diagonal(at.gradient),
)
twin_of(
    floored,
    "floor forgotten",
    definition,
    curvature=lambda at, loss, theta, belief, structure: GaussNewton().matrix(loss, theta, structure),
)
twin_of(
    nothing,
    "an identity",
    "no_curvature_is_none",
    curvature=lambda at, loss, theta, belief, structure: structure.from_diagonal(jax.tree.map(jnp.ones_like, theta)),
)
twin_of(
    nothing,
    "dispersions dropped",
    "value_and_gradients_are_the_losss",
    rest=lambda at, *_: tree.zeros_like(at.rest),
)
twin_of(
    nothing, "float64 always", "float32_beside_float64",
    gradient=lambda at, *_: jax.tree.map(lambda leaf: leaf.astype(jnp.float64), at.gradient),
)  # fmt: skip
twin_of(
    hessians,
    "another value where traced",
    "jit_changes_nothing",
    value=lambda at, *_: at.value + 1e-3 * isinstance(at.value, jax.core.Tracer),
)
