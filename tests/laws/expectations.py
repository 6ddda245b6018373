"""Laws of expectations: E_q of the loss, its gradient and its Hessian, beside a dense integral over θ.

The integral is a grid of Gauss–Hermite nodes in one and two dimensions over a loss that is written by hand
(`tests/laws/curvature.py`), with its derivatives by automatic differentiation. A row's subject is the expectation. Its
extras: `curvature`, what it is used with, and `cases`, the models that it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu import likelihoods, networks, tree
from lamu.expectations import Antithetic, Delta, Exact, Expectation, MonteCarlo, Quadrature, QuasiMonteCarlo
from lamu.families import Gaussian
from lamu.model import Model
from lamu.objective.curvature import Evaluation, GaussNewton, Hessian, Price, SquaredGradient
from lamu.operators import Dense, Diagonal, Scalar
from lamu.record import record
from tests.laws.curvature import CLOSE, POWER, SIZE, STRUCTURES, Case, flat
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("expectations", "additive derivative deterministic integral quadratic root sampled squared")


@record
class Line(networks.Linear):
    """f(x) = w x₁ + 0.4 with one weight: a space of one dimension, and an offset, since linear means affine."""

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        return {"w": jnp.zeros((), x.dtype)}, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        return (params["w"] * x[:, 0] + 0.4)[:, None], state


@record
class Plane(networks.Linear):
    """f(x) = w x₁ + b: two leaves of different rank."""

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        return {"w": jnp.zeros(1, x.dtype), "b": jnp.zeros((), x.dtype)}, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        return (params["w"] * x[:, 0] + params["b"])[:, None], state


COIN, NOISE, FIXED = likelihoods.Bernoulli(), likelihoods.Gaussian(), likelihoods.Gaussian(scale=0.6)
BINARY = {"line": Case(Model(Line(), COIN)), "plane": Case(Model(Plane(), COIN))}
QUADRATIC = {
    "fixed": Case(Model(Plane(), FIXED)),
    "line": Case(Model(Line(), NOISE)),
    "learned": Case(Model(Plane(), NOISE)),
}
COVARIANCE = np.array([[0.5, -0.25], [-0.25, 0.4]])
SEED = 17


def belief(case: Case, structure: Any) -> Gaussian:
    """With an asymmetric precision where the structure has one."""
    theta = case.loss()[1]
    precision = np.linalg.inv(COVARIANCE[: flat(theta).size, : flat(theta).size])
    kept = jnp.asarray(STRUCTURES[structure](precision), case.dtype)
    unravel = ravel_pytree(theta)[1]
    made = {
        Scalar: lambda: Scalar(kept[0, 0]),
        Diagonal: lambda: Diagonal(unravel(jnp.diagonal(kept))),
        Dense: lambda: Dense(kept),
    }
    return Gaussian(theta, made[structure]())


def taken(row: Row, case: Case, structure: Any = Dense, seed: int = SEED, **loss_parts: Any) -> Evaluation:
    """What the row says, kept for the laws that ask again, beside the objects whose identity names it."""
    loss = replace(case.loss()[0], **loss_parts)
    known = (id(row.subject), id(case), structure)
    key = jax.random.key(seed)
    if seed != SEED or loss_parts:
        return row.subject.evaluate(key, belief(case, structure), loss, row.extras["curvature"], structure)
    if known not in SEEN:
        found = row.subject.evaluate(key, belief(case, structure), loss, row.extras["curvature"], structure)
        SEEN[known] = (found, row.subject, case)
    return SEEN[known][0]


SEEN: dict[Any, Any] = {}


@cache
def integral(case: Case, structure: Any) -> Evaluation:
    """The four expectations by a product rule of 80 nodes a dimension: the Hessian dense, the gradients raveled."""
    q = belief(case, structure)
    covariance = np.linalg.inv(np.asarray(q.precision.dense(q.mean)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    d = len(covariance)
    z = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weight = jnp.asarray(np.prod(np.meshgrid(*[weights] * d, indexing="ij"), axis=0).ravel() / weights.sum() ** d)
    points = jnp.asarray(flat(q.mean) + z @ np.linalg.cholesky(covariance).T)
    rest = case.loss()[0].rest
    functions = (case.by_hand, jax.grad(case.by_hand), jax.hessian(case.by_hand))
    value, gradient, hessian = (jnp.tensordot(weight, jax.jit(jax.vmap(f))(points), axes=1) for f in functions)
    in_rest = jax.grad(lambda rest: weight @ jax.vmap(lambda theta: case.by_hand(theta, rest))(points))(rest)
    return Evaluation(value, gradient, ravel_pytree(in_rest)[0], hessian, {})


def assert_same(found: Evaluation, expected: Evaluation, structure: Any, like: Any, **tolerance: float) -> None:
    np.testing.assert_allclose(found.value, expected.value, **tolerance)
    np.testing.assert_allclose(flat(found.gradient), expected.gradient, **tolerance)
    np.testing.assert_allclose(flat(found.rest), expected.rest, **tolerance)
    assert isinstance(found.curvature, structure)
    np.testing.assert_allclose(found.curvature.dense(like), STRUCTURES[structure](expected.curvature), **tolerance)


delta = row(
    "expectations",
    "Delta",
    Delta(),
    "deterministic additive quadratic",
    curvature=Hessian(),
    cases={**BINARY, **QUADRATIC},
)
gauss = row("expectations", "Delta with GaussNewton", Delta(), "additive", curvature=GaussNewton(), cases=BINARY)
squares = row(
    "expectations",
    "Delta with SquaredGradient",
    Delta(),
    "squared",
    curvature=SquaredGradient(),
    cases={"plane": BINARY["plane"]},  # on the line the two halves happen to have nearly the same gradient
)
exact = row(
    "expectations", "Exact", Exact(), "deterministic additive quadratic integral", curvature=Hessian(), cases=QUADRATIC
)
quadrature = row(
    "expectations",
    "Quadrature",
    Quadrature(60),
    "deterministic additive quadratic integral derivative",
    curvature=Hessian(),
    cases={**BINARY, **QUADRATIC},
)
coarse = row(
    "expectations",
    "Quadrature coarse",
    Quadrature(3),
    "deterministic additive derivative",
    curvature=Hessian(),
    cases=BINARY,
)
sampled = row(
    "expectations",
    "MonteCarlo",
    MonteCarlo(4),
    "additive sampled root",
    curvature=Hessian(),
    cases=BINARY,
    make=MonteCarlo,
)
priced = row(
    "expectations",
    "MonteCarlo with Price",
    MonteCarlo(4),
    "additive sampled root",
    curvature=Price(),
    cases=BINARY,
    make=MonteCarlo,
)
# What samplers promise stands in `samplers.py`; here, that what is averaged over their draws is right.
paired = row(
    "expectations",
    "MonteCarlo with Antithetic",
    MonteCarlo(4, Antithetic()),
    "additive sampled long",
    curvature=Price(),
    cases={"plane": BINARY["plane"]},
    make=lambda draws: MonteCarlo(draws, Antithetic()),
    counts=(4,),
)
quasi = row(
    "expectations",
    "MonteCarlo with QuasiMonteCarlo",
    MonteCarlo(4, QuasiMonteCarlo()),
    "additive sampled long",
    curvature=Hessian(),
    cases={"plane": BINARY["plane"]},
    make=lambda draws: MonteCarlo(draws, QuasiMonteCarlo()),
    counts=(4,),
)


@law("expectations")
def declares_what_it_is(row: Row) -> None:
    assert isinstance(row.subject, Expectation)
    case = next(iter(row.extras["cases"].values()))
    for structure in STRUCTURES:
        found = taken(row, case, structure)
        assert found.value.shape == ()
        assert isinstance(found.curvature, structure)
        assert jax.tree.structure(found.gradient) == jax.tree.structure(case.loss()[1])


@law("expectations", when="integral")
def agrees_with_the_integral(row: Row) -> None:
    """With padding, weights and a power, in one and two dimensions, every structure, dispersions included."""
    for case in row.extras["cases"].values():
        for structure in STRUCTURES:
            assert_same(
                taken(row, case, structure), integral(case, structure), structure, case.loss()[1], rtol=1e-7, atol=1e-8
            )


@law("expectations", when="quadratic")
def gradient_and_hessian_are_exact_on_quadratics(row: Row) -> None:
    """The delta method too: its value alone is low."""
    for case in (QUADRATIC["fixed"], QUADRATIC["line"]):
        for structure in STRUCTURES:
            found, expected = taken(row, case, structure), integral(case, structure)
            np.testing.assert_allclose(flat(found.gradient), expected.gradient, **CLOSE)
            kept = STRUCTURES[structure](expected.curvature)
            np.testing.assert_allclose(found.curvature.dense(case.loss()[1]), kept, **CLOSE)


@law("expectations", when="quadratic")
def value_differs_by_half_the_trace(row: Row) -> None:
    """E_q[ℓ] − ℓ(m) = ½ tr(H Σ) on quadratics; the delta method reports ℓ(m)."""
    for case in (QUADRATIC["fixed"], QUADRATIC["line"]):
        for structure in STRUCTURES:
            q = belief(case, structure)
            theta = jnp.asarray(flat(q.mean))
            covariance = np.linalg.inv(q.precision.dense(q.mean))
            half = np.trace(np.asarray(jax.hessian(case.by_hand)(theta)) @ covariance) / 2
            low = 0.0 if "integral" in row.traits else half
            assert half > 0.01
            np.testing.assert_allclose(taken(row, case, structure).value, case.by_hand(theta) + half - low, **CLOSE)


@law("expectations", when="derivative")
def derivatives_are_those_of_the_value(row: Row) -> None:
    """Bonnet and Price for the rule itself, however few its nodes: ∂/∂m E = E ∇ℓ and ∂/∂Σ E = ½ E ∇²ℓ."""
    for case in row.extras["cases"].values():
        loss, at = case.loss()
        unravel, m = ravel_pytree(at)[1], jnp.asarray(flat(at))
        covariance = jnp.asarray(COVARIANCE[: m.size, : m.size])

        def value(m: jax.Array, covariance: jax.Array, loss: Any = loss, unravel: Any = unravel) -> jax.Array:
            q = Gaussian(unravel(m), Dense(jnp.linalg.inv(covariance)))
            return row.subject.evaluate(jax.random.key(SEED), q, loss, Hessian(), Dense).value

        in_mean, in_covariance = jax.grad(value, argnums=(0, 1))(m, covariance)
        found = taken(row, case)
        np.testing.assert_allclose(flat(found.gradient), in_mean, **CLOSE)
        symmetric = (in_covariance + in_covariance.T) / 2
        np.testing.assert_allclose(found.curvature.matrix, 2 * symmetric, rtol=1e-8, atol=1e-9)


@law("expectations", when="additive")
def half_batches_average(row: Row) -> None:
    """Two batches of three rows average to the batch of six, with the same key."""
    for whole, halves in divided(row):
        np.testing.assert_allclose(sum(halves) / 2, whole, **CLOSE)


@law("expectations", when="squared")
def half_batches_do_not_average(row: Row) -> None:
    """The squared minibatch gradient is not linear in the examples, which is why it is no curvature."""
    for whole, halves in divided(row, parts=("curvature",)):
        assert np.max(np.abs(sum(halves) / 2 - whole)) > 0.05 * np.max(np.abs(whole))


def divided(row: Row, parts: tuple[str, ...] = ("value", "gradient", "rest", "curvature")) -> Any:
    for case in row.extras["cases"].values():
        real = np.flatnonzero(case.mask)
        batches = [jax.tree.map(lambda leaf, i=i: leaf[i], case.batch) for i in (real, real[:3], real[3:])]
        found = [taken(row, case, batch=batch) for batch in batches]
        whole, *halves = [np.concatenate([flat(getattr(at, part)) for part in parts]) for at in found]
        yield whole, halves


@law("expectations")
def padding_changes_nothing(row: Row) -> None:
    for case in row.extras["cases"].values():
        bare = jax.tree.map(lambda leaf, case=case: leaf[np.flatnonzero(case.mask)], case.batch)
        whole = flat(taken(row, case))
        for batch in (bare, bare.padded(11)):
            np.testing.assert_allclose(flat(taken(row, case, batch=batch)), whole, **CLOSE)


@law("expectations", when="additive")
def size_and_power_enter_once(row: Row) -> None:
    """On the mean scale N divides the dispersions' prior alone, and the power multiplies the data alone."""
    for case in row.extras["cases"].values():
        rest = case.loss()[0].rest
        surprise = lambda rest, case=case: -case.model.likelihood.log_prior(rest)
        prior = np.concatenate([[surprise(rest)], 0.0 * flat(case.loss()[1]), flat(jax.grad(surprise)(rest))])
        numbers = lambda at: flat((at.value, at.gradient, at.rest))
        once = taken(row, case)
        larger, stronger = (
            taken(row, replace(case, **change)) for change in ({"size": 9 * SIZE}, {"power": 2 * POWER})
        )
        data = numbers(once) - prior / SIZE
        np.testing.assert_allclose(numbers(larger), data + prior / (9 * SIZE), **CLOSE)
        np.testing.assert_allclose(numbers(stronger), 2 * data + prior / SIZE, **CLOSE)
        np.testing.assert_allclose(larger.curvature.matrix, once.curvature.matrix, **CLOSE)
        np.testing.assert_allclose(stronger.curvature.matrix, 2 * once.curvature.matrix, **CLOSE)


@law("expectations")
def temperature_is_the_beliefs_business(row: Row) -> None:
    """It is in κ = N/T, hence in q, and must not enter a second time."""
    for case in row.extras["cases"].values():
        loss, _ = case.loss()
        hot = taken(row, case, objective=replace(loss.objective, temperature=5.0))
        np.testing.assert_allclose(flat(hot), flat(taken(row, case)), **CLOSE)


@law("expectations", when="deterministic")
def key_is_not_used(row: Row) -> None:
    for case in row.extras["cases"].values():
        np.testing.assert_array_equal(flat(taken(row, case, seed=1)), flat(taken(row, case)))


def errors(row: Row, draws: int, repetitions: int) -> np.ndarray:
    """Estimate minus integral, `[repetitions, numbers]`, over independent keys."""
    case = row.extras["cases"]["plane"]
    expected = integral(case, Dense)
    expected = flat((expected.value, expected.gradient, expected.curvature))
    loss, q = case.loss()[0], belief(case, Dense)

    def estimate(key: Any) -> jax.Array:
        at = row.extras["make"](draws).evaluate(key, q, loss, row.extras["curvature"], Dense)
        return ravel_pytree((at.value, at.gradient, at.curvature.matrix))[0]

    keys = jax.random.split(jax.random.key(100 + draws), repetitions)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(estimate, keys))(keys)) - expected


@law("expectations", when="sampled")
def unbiased(row: Row) -> None:
    """Seven numbers within five standard errors, for one draw and for four: a false alarm with probability 8e-6."""
    for draws in row.extras.get("counts", (1, 4)):
        found = errors(row, draws, 4_000)
        assert np.all(np.abs(found.mean(axis=0)) < 5.0 * found.std(axis=0) / np.sqrt(len(found)))


@law("expectations", when="root")
def error_falls_with_the_root_of_the_draws(row: Row) -> None:
    """Mean squares of S and 16 S draws stand as 16 to 1.

    Over 4,000 repetitions of errors with a kurtosis of at most 30 the ratio has a relative standard error below 0.13
    (the errors of 32 draws are nearly normal), so that 16 ± 10 is five of them: a false alarm at 4e-6 over seven
    numbers.
    """
    few, many = errors(row, 2, 4_000), errors(row, 32, 4_000)
    ratio = np.mean(few**2, axis=0) / np.mean(many**2, axis=0)
    assert np.all((ratio > 6.0) & (ratio < 26.0))


@law("expectations", when="sampled")
def another_key_is_another_estimate(row: Row) -> None:
    for case in row.extras["cases"].values():
        one, other = (flat(taken(row, case, seed=seed)) for seed in (1, 2))
        assert np.all(one[:2] != other[:2])
        np.testing.assert_array_equal(flat(taken(row, case, seed=1)), one)


@law("expectations")
def float32_beside_float64(row: Row) -> None:
    """In dtype for all; in value for those that do not draw, whose generator depends on the dtype."""
    case = list(row.extras["cases"].values())[-1]
    low = replace(case, dtype=jnp.float32)
    for structure in STRUCTURES:
        found = taken(row, low, structure)
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(found))
        if "deterministic" in row.traits:
            np.testing.assert_allclose(flat(found), flat(taken(row, case, structure)), rtol=2e-4, atol=2e-4)


@law("expectations")
def jit_and_vmap_change_nothing(row: Row) -> None:
    """vmap over keys and over beliefs."""
    case = list(row.extras["cases"].values())[-1]
    loss, _ = case.loss()
    evaluate = lambda key, q: row.subject.evaluate(key, q, loss, row.extras["curvature"], Dense)
    q, keys = belief(case, Dense), lambda: jax.random.split(jax.random.key(SEED), 2)
    beliefs = [q, Gaussian(tree.scale(q.mean, -0.4), q.precision.scale(1.5))]
    alone = [flat(evaluate(key, each)) for key, each in zip(keys(), beliefs, strict=True)]
    np.testing.assert_allclose(flat(jax.jit(evaluate)(keys()[0], q)), alone[0], **CLOSE)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs)
    with jax.debug_key_reuse(False):  # the checker takes any vmapped scan over keys for a second use of them
        together = jax.vmap(lambda key, q: ravel_pytree(evaluate(key, q))[0])(keys(), stacked)
    np.testing.assert_allclose(together, np.stack(alone), **CLOSE)


def twin_of(of: Row, fault: str, laws: str, evaluate: Callable[..., Any]) -> None:
    """`evaluate(sound, key, belief, loss, curvature, structure)`, with `sound` the row's own."""

    def wrapped(subject: Any) -> Any:
        return SimpleNamespace(evaluate=lambda *arguments: evaluate(subject.evaluate, *arguments))

    make = {"make": lambda draws: wrapped(of.extras["make"](draws))} if "make" in of.extras else {}
    twin(of, fault, laws, wrapped(of.subject), **make)


def changed(**parts: Callable[..., Any]) -> Callable[..., Any]:
    """Parts of the evaluation changed, each by a function of (evaluation, belief, loss, structure)."""

    def evaluate(sound: Any, key: Any, q: Any, loss: Any, curvature: Any, structure: Any) -> Evaluation:
        at = sound(key, q, loss, curvature, structure)
        return replace(at, **{name: part(at, q, loss, structure) for name, part in parts.items()})

    return evaluate


def times(part: str, factor: Callable[[Any], Any]) -> Callable[..., Any]:
    return changed(
        **{part: lambda at, q, loss, structure: jax.tree.map(lambda leaf: factor(loss) * leaf, getattr(at, part))}
    )


def at_another(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """The sound expectation under another belief."""
    return lambda sound, key, q, loss, curvature, structure: sound(key, change(q), loss, curvature, structure)


inverted = at_another(lambda q: Gaussian(q.mean, Dense(jnp.linalg.inv(q.precision.dense(q.mean)))))
rooted = at_another(lambda q: Gaussian(q.mean, Dense(jnp.linalg.cholesky(q.precision.dense(q.mean)))))
all_integral = "agrees_with_the_integral"
twin_of(exact, "covariance for precision", f"{all_integral} value_differs_by_half_the_trace", inverted)
twin_of(
    exact,
    "value at the mean",
    f"{all_integral} value_differs_by_half_the_trace",
    lambda sound, *rest: Delta().evaluate(*rest),
)
twin_of(
    exact,
    "whole trace for half",
    f"{all_integral} value_differs_by_half_the_trace",
    changed(value=lambda at, q, *_: at.value + q.precision.trace_solve(at.curvature, q.mean) / 2),
)
twin_of(
    exact,
    "sign of the gradient",
    f"{all_integral} gradient_and_hessian_are_exact_on_quadratics",
    times("gradient", lambda loss: -1.0),
)
twin_of(
    exact,
    "dispersions at the mean",
    all_integral,
    lambda sound, key, q, loss, *rest: replace(sound(key, q, loss, *rest), rest=loss.gradient(q.mean, key).rest),
)
twin_of(
    exact,
    "sum for mean",
    f"{all_integral} size_and_power_enter_once",
    times("curvature", lambda loss: loss.objective.data_size),
)
twin_of(
    exact,
    "prior of dispersions dropped",
    f"{all_integral} size_and_power_enter_once",
    changed(value=lambda at, q, loss, *_: at.value + loss.objective.model.likelihood.log_prior(loss.rest) / SIZE),
)
twin_of(quadrature, "covariance for precision", f"{all_integral} derivatives_are_those_of_the_value", inverted)
twin_of(quadrature, "standard deviation for variance", all_integral, rooted)
twin_of(
    quadrature,
    "Hessian halved",
    f"{all_integral} derivatives_are_those_of_the_value",
    times("curvature", lambda loss: 0.5),
)
twin_of(
    quadrature,
    "Hessian at the mean",
    f"{all_integral} derivatives_are_those_of_the_value",
    lambda sound, key, q, loss, curvature, structure: replace(
        sound(key, q, loss, curvature, structure),
        curvature=Delta().evaluate(key, q, loss, curvature, structure).curvature,
    ),
)
twin_of(
    quadrature,
    "padding counted",
    f"{all_integral} padding_changes_nothing",
    lambda sound, key, q, loss, *rest: sound(
        key, q, replace(loss, batch=replace(loss.batch, mask=jnp.ones_like(loss.batch.mask))), *rest
    ),
)
twin_of(
    quadrature,
    "weights dropped",
    all_integral,
    lambda sound, key, q, loss, *rest: sound(
        key, q, replace(loss, batch=replace(loss.batch, weight=jnp.ones_like(loss.batch.weight))), *rest
    ),
)
twin_of(
    quadrature,
    "power twice",
    f"{all_integral} size_and_power_enter_once",
    times("gradient", lambda loss: loss.objective.likelihood_power),
)
twin_of(
    quadrature,
    "temperature once more",
    "temperature_is_the_beliefs_business",
    times("value", lambda loss: 1.0 / loss.objective.temperature),
)
twin_of(
    delta,
    "temperature inverted",
    "temperature_is_the_beliefs_business",
    times("curvature", lambda loss: loss.objective.temperature),
)
twin_of(
    delta,
    "at another point",
    "gradient_and_hessian_are_exact_on_quadratics value_differs_by_half_the_trace",
    at_another(lambda q: Gaussian(tree.scale(q.mean, 0.9), q.precision)),
)
twin_of(delta, "at a draw", "key_is_not_used", lambda sound, key, *rest: MonteCarlo(1).evaluate(key, *rest))
twin_of(
    gauss,
    "divided by the padded size",
    "half_batches_average padding_changes_nothing",
    times("curvature", lambda loss: loss.batch.count / loss.batch.x.shape[0] + 0.01 * loss.batch.x.shape[0]),
)
twin_of(
    gauss,
    "squared gradient",
    "half_batches_average size_and_power_enter_once",
    lambda sound, key, q, loss, curvature, structure: sound(key, q, loss, SquaredGradient(), structure),
)
twin_of(
    squares,
    "linear in the examples",
    "half_batches_do_not_average",
    lambda sound, key, q, loss, curvature, structure: sound(key, q, loss, GaussNewton(), structure),
)


def one_draw(sound: Any, key: Any, *rest: Any) -> Evaluation:
    """Draws that all have the same key."""
    return MonteCarlo(1).evaluate(key, *rest)


twin_of(sampled, "one key for all draws", "error_falls_with_the_root_of_the_draws", one_draw)
twin_of(
    sampled,
    "the same key always",
    "another_key_is_another_estimate unbiased",
    lambda sound, key, *rest: sound(jax.random.key(0), *rest),
)
twin_of(sampled, "covariance for precision", "unbiased", inverted)
twin_of(sampled, "draws around zero", "unbiased", at_another(lambda q: Gaussian(tree.zeros_like(q.mean), q.precision)))
twin_of(sampled, "sum for average", "unbiased", times("gradient", lambda loss: 1.5))
twin_of(priced, "half", "unbiased", times("curvature", lambda loss: 0.5))
twin_of(
    priced,
    "the mean for the draw",
    "unbiased",
    lambda sound, key, q, loss, curvature, structure: Delta().evaluate(key, q, loss, curvature, structure),
)
for of in (paired, quasi):
    twin_of(of, "covariance for precision", "unbiased", inverted)
twin_of(
    quadrature,
    "float64 always",
    "float32_beside_float64",
    changed(value=lambda at, *_: at.value.astype(jnp.float64)),
)
twin_of(
    delta,
    "another value where traced",
    "jit_and_vmap_change_nothing",
    changed(value=lambda at, *_: at.value + 1e-3 * isinstance(at.value, jax.core.Tracer)),
)
twin_of(
    delta,
    "dense always",
    "declares_what_it_is",
    lambda sound, key, q, loss, curvature, _: sound(key, q, loss, curvature, Dense),
)
