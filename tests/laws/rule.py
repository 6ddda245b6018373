"""The rule on a linear-Gaussian model, where every answer is known, for each structure of the precision.

The twins break whole algorithms, one likely fault each: the sign, the scale of N, the prior, the temperature, the rate,
a standard deviation in the place of a variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms import von
from lamu.data import Batch
from lamu.expectations import Exact
from lamu.families import Gaussian
from lamu.geometry import Retraction
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense, Diagonal, Scalar
from lamu.priors import Normal
from lamu.rate import Constant
from lamu.rule import Rule
from lamu_verification import problems, references
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("rule", "algorithm dense")

KEY = jax.random.key(0)
# Rows and temperature: a fault in either shows in one of the two.
SETTINGS = ((30, 1.0), (14, 0.4))


@dataclass(frozen=True)
class Subject:
    """A way to make the rule with a rate, and what a twin does to its objective, its step, and its belief."""

    make: Callable[[float], Rule]
    objective: Callable[[Objective], Objective] = lambda objective: objective
    step: Callable[[Rule, Any, Any, Objective], Any] = lambda rule, old, new, objective: new
    belief: Callable[[Gaussian], Gaussian] = lambda belief: belief

    def run(self, problem: problems.Problem, steps: int, rate: float, start: Any = None) -> tuple[Any, Gaussian]:
        """Returns state and belief after some steps on all the data, half of the batch being padding."""
        rule, objective = self.make(rate), self.objective(problem.objective)
        batch = Batch.of(problem.x, problem.y).padded(2 * len(problem.y))
        state = rule.init(KEY, objective, batch) if start is None else start
        step = jax.jit(rule.step)
        for _ in range(steps):
            new, _ = step(KEY, state, batch, objective)
            state = self.step(rule, state, new, objective)
        return state, self.belief(rule.belief(state, objective))


def known(problem: problems.Problem) -> tuple[np.ndarray, np.ndarray]:
    return references.linear_regression(
        problem.design, problem.y, problem.scale, problem.precision, float(problem.objective.temperature)
    )[:2]


def projected(structure: Any, precision: np.ndarray) -> np.ndarray:
    """What a structure can hold of the exact precision: its fixed point, because the Hessian is constant."""
    if structure is Dense:
        return precision
    diagonal = np.diagonal(precision)
    return np.diag(diagonal if structure is Diagonal else np.full_like(diagonal, diagonal.mean()))


def flat(params: Any) -> np.ndarray:
    return np.asarray(tree.ravel(params)[0])


@law("rule", when="algorithm dense")
def one_step_of_rate_one_is_bayes(row: Row) -> None:
    for size, temperature in SETTINGS:
        problem = problems.regression(size, temperature)
        mean, precision = known(problem)
        _, belief = row.subject.run(problem, steps=1, rate=1.0)
        np.testing.assert_allclose(flat(belief.mean), mean, atol=1e-10)
        np.testing.assert_allclose(belief.precision.dense(belief.mean), precision, atol=1e-10)


@law("rule", when="algorithm")
def rate_zero_changes_nothing(row: Row) -> None:
    problem = problems.regression()
    start, before = row.subject.run(problem, steps=0, rate=0.0)
    _, after = row.subject.run(problem, steps=3, rate=0.0, start=start)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), before, after))


@law("rule", when="algorithm")
def the_limit_is_the_posterior(row: Row) -> None:
    for size, temperature in SETTINGS:
        problem = problems.regression(size, temperature)
        mean, precision = known(problem)
        _, belief = row.subject.run(problem, steps=600, rate=0.15)
        expected = projected(row.extras["structure"], precision)
        np.testing.assert_allclose(flat(belief.mean), mean, atol=1e-6)
        np.testing.assert_allclose(belief.precision.dense(belief.mean), expected, rtol=1e-6)


@law("rule", when="algorithm")
def a_small_step_lowers_the_free_energy(row: Row) -> None:
    """E_q[ℓ]/T − H(q) falls, by hand: nothing of the rule's own is used to compute it."""
    problem = problems.regression(temperature=0.4)
    mean, precision = known(problem)

    def free_energy(belief: Gaussian) -> float:
        away = flat(belief.mean) - mean
        covariance = np.linalg.inv(belief.precision.dense(belief.mean))
        return (
            np.trace(precision @ covariance) + away @ precision @ away + np.linalg.slogdet(np.linalg.inv(covariance))[1]
        ) / 2

    start, belief = row.subject.run(problem, steps=0, rate=0.02)
    energies = [free_energy(belief)]
    for _ in range(5):
        start, belief = row.subject.run(problem, steps=1, rate=0.02, start=start)
        energies.append(free_energy(belief))
    assert np.all(np.diff(energies) < 0)


@law("rule", when="algorithm")
def the_covariance_scales_with_the_temperature(row: Row) -> None:
    beliefs = [row.subject.run(problems.regression(temperature=t), steps=600, rate=0.15)[1] for t in (1.0, 0.25)]
    warm, cold = (belief.precision.dense(belief.mean) for belief in beliefs)
    np.testing.assert_allclose(cold, 4.0 * warm, rtol=1e-6)
    np.testing.assert_allclose(flat(beliefs[0].mean), flat(beliefs[1].mean), atol=1e-6)


@law("rule", when="algorithm")
def the_free_energy_reported_is_the_loss(row: Row) -> None:
    """The value of the expectation is E_q[ℓ̄] less the prior's exact part: by the trace formula."""
    problem = problems.regression()
    rule = row.subject.make(0.1)
    objective = row.subject.objective(problem.objective)
    state, belief = row.subject.run(problem, steps=3, rate=0.1)
    loss = BatchLoss(objective, Batch.of(problem.x, problem.y), {}, NetworkParameters(), {}, conjugate=True)
    value = rule.expectation.evaluate(KEY, belief, loss, GaussNewton(), rule.structure).value
    residual = problem.y - problem.design @ flat(state.mean)
    covariance = np.linalg.inv(Gaussian(state.mean, state.precision).precision.dense(state.mean)) / len(problem.y)
    spread = residual @ residual + np.trace(problem.design @ covariance @ problem.design.T)
    if rule.structure is not Dense:
        gram = projected(rule.structure, problem.design.T @ problem.design)
        spread = residual @ residual + np.trace(gram @ covariance)
    expected = spread / (2 * problem.scale**2 * len(problem.y)) + 0.5 * np.log(2 * np.pi * problem.scale**2)
    np.testing.assert_allclose(value, expected, rtol=1e-10)


dense = row("rule", "von, dense", Subject(lambda r: von_at(r, Dense)), "algorithm dense", structure=Dense)
diagonal = row("rule", "von, diagonal", Subject(lambda r: von_at(r, Diagonal)), "algorithm", structure=Diagonal)
scalar = row("rule", "von, scalar", Subject(lambda r: von_at(r, Scalar)), "algorithm", structure=Scalar)
retracted = row(
    "rule",
    "von, diagonal, retraction",
    Subject(lambda r: replace(von_at(r, Diagonal), geometry=Retraction())),
    "algorithm",
    structure=Diagonal,
)


def von_at(rate: float, structure: Any) -> Rule:
    # A rate of zero is refused by the recipe, and is a law here.
    return replace(von(1.0, structure, Exact(), hess_init=2.0), learning_rate=Constant(rate))


def uphill(rule: Rule, old: Any, new: Any, objective: Objective) -> Any:
    return replace(new, mean=tree.add(tree.scale(old.mean, 2.0), new.mean, -1.0))


def with_prior(objective: Objective, scale: float) -> Objective:
    return replace(objective, model=replace(objective.model, prior=Normal(scale)))


def prior_scale(objective: Objective) -> float:
    return float(objective.model.prior.scale)


def late(rule: Rule, old: Any, new: Any, objective: Objective) -> Any:
    """The mean moves with the old precision: equal in the limit, wrong by one step."""
    step = tree.add(new.mean, old.mean, -1.0)
    return replace(new, mean=tree.add(old.mean, old.precision.solve(new.precision.matvec(step))))


def shrinking(rule: Rule, old: Any, new: Any, objective: Objective) -> Any:
    return replace(new, mean=tree.scale(new.mean, 0.999))


def rooted(belief: Gaussian) -> Gaussian:
    if isinstance(belief.precision, Dense):
        values, vectors = jnp.linalg.eigh(belief.precision.matrix)
        return Gaussian(belief.mean, Dense((vectors * jnp.sqrt(values)[None, :]) @ vectors.T))
    return Gaussian(belief.mean, jax.tree.map(jnp.sqrt, belief.precision))


LIMITS = "the_limit_is_the_posterior the_covariance_scales_with_the_temperature"
for base in (dense, diagonal, scalar):
    subject = base.subject
    twin(
        base, "uphill", "the_limit_is_the_posterior a_small_step_lowers_the_free_energy", replace(subject, step=uphill)
    )
    twin(
        base,
        "prior dropped",
        "the_limit_is_the_posterior",
        replace(subject, objective=lambda o: with_prior(o, 1e4)),
    )
    twin(
        base,
        "prior counted once a row",
        "the_limit_is_the_posterior",
        replace(subject, objective=lambda o: with_prior(o, prior_scale(o) / float(o.data_size) ** 0.5)),
    )
    twin(
        base,
        "temperature inverted",
        LIMITS,
        replace(subject, objective=lambda o: replace(o, temperature=1 / float(o.temperature))),
    )
    twin(
        base,
        "temperature on the data alone",
        "the_limit_is_the_posterior",
        replace(subject, objective=lambda o: replace(o, temperature=1.0, likelihood_power=1 / float(o.temperature))),
    )
    twin(
        base,
        "N forgotten",
        "the_limit_is_the_posterior",
        replace(subject, belief=lambda b: Gaussian(b.mean, b.precision.scale(1 / 30))),
    )
    twin(base, "standard deviation for variance", LIMITS, replace(subject, belief=rooted))
    twin(base, "weight decay beside the prior", "rate_zero_changes_nothing", replace(subject, step=shrinking))
    twin(
        base,
        "likelihood counted twice",
        "the_free_energy_reported_is_the_loss",
        replace(subject, objective=lambda o: replace(o, likelihood_power=2.0)),
    )
twin(dense, "old precision in the step of the mean", "one_step_of_rate_one_is_bayes", replace(dense.subject, step=late))
twin(
    dense,
    "rate of a half",
    "one_step_of_rate_one_is_bayes",
    replace(dense.subject, make=lambda r: von_at(r / 2, Dense)),
)
