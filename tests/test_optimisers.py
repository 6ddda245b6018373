"""Optimisers come out of the rule: equal to optax on the mean loss, at two values of N, and without its help."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lamu import tree
from lamu.algorithms import adam, gradient_descent, sgd, vogn
from lamu.algorithms.optimisers import adagrad, newton, rmsprop, sam
from lamu.algorithms.variational.lie_group import LieGroupState, lie_group
from lamu.algorithms.variational.online_newton import bsam, ogn, von
from lamu.base.compile_once import lenient
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.geometry import (
    Additive,
    Affine,
    ClippedAffine,
    ExcitatoryInhibitory,
    FullAffine,
    Multiplicative,
    Placement,
    Retraction,
)
from lamu.likelihoods import Categorical
from lamu.model import Model
from lamu.networks import MLP
from lamu.objective import Objective
from lamu.objective.curvature import Price
from lamu.operators import Dense
from lamu.priors import Normal
from lamu.rate import Annealed
from lamu.rule import Rule
from lamu.update_rules import ByFanIn
from lamu_verification import problems, references

PAIRS = {
    "gradient_descent": (gradient_descent(0.1), optax.sgd(0.1)),
    "sgd": (sgd(0.05), optax.sgd(0.05)),
    "sgd with momentum": (sgd(0.05, momentum=0.9), optax.sgd(0.05, momentum=0.9)),
    "sgd on a schedule": (
        sgd(optax.cosine_decay_schedule(0.1, 100)),
        optax.sgd(optax.cosine_decay_schedule(0.1, 100)),
    ),
    "rmsprop": (rmsprop(1e-2), optax.rmsprop(1e-2)),
    "rmsprop from elsewhere": (
        rmsprop(1e-2, b2=0.7, eps=1e-3, hess_init=0.2),
        optax.rmsprop(1e-2, decay=0.7, eps=1e-3, initial_scale=0.2),
    ),
    "adagrad": (adagrad(0.1), optax.adagrad(0.1)),
    "adagrad from elsewhere": (adagrad(0.1, 0.5, 1e-3), optax.adagrad(0.1, 0.5, 1e-3)),
    "adam": (adam(1e-2), optax.adam(1e-2)),
    "adam, other decays": (adam(1e-2, b1=0.8, b2=0.95, eps=1e-4), optax.adam(1e-2, b1=0.8, b2=0.95, eps=1e-4)),
}


@cache
def mean_loss_of(rows: int) -> tuple[Objective, list[Any], Any]:
    """The mean loss by hand: the average of the batch's real rows, and the prior over N, which differs with N."""
    generator = np.random.default_rng(rows)
    x, y = generator.normal(size=(rows, 3)), generator.integers(0, 3, rows).astype(np.int32)
    model = Model(MLP((4,), "tanh"), Categorical(3), Normal(0.7))

    def mean_loss(params, x, y):
        f = model.network.apply(params["network"], {}, x, None, True)[0]
        nll = optax.softmax_cross_entropy_with_integer_labels(f, y).mean()
        weights = tree.ravel(params["network"])[0]
        prior = 0.5 * (weights**2).sum() / 0.7**2
        return nll + prior / rows

    # Sixteen rows at a time: the last batch is short, and padded for us.
    parts = [(x[i : i + 16], y[i : i + 16]) for i in range(0, rows, 16)]
    return Objective(model, rows), parts, jax.jit(jax.grad(mean_loss))


@pytest.mark.parametrize("rows", [24, 60])
@pytest.mark.parametrize("name", PAIRS)
def test_hundred_steps_are_optaxs(name: str, rows: int) -> None:
    ours, theirs = PAIRS[name]
    objective, parts, gradient = mean_loss_of(rows)
    batches = [Batch.of(*part).padded(16) for part in parts]
    state = ours.init(jax.random.key(0), objective, batches[0])
    params = state.mean
    memory = theirs.init(params)
    step, update = jax.jit(ours.step), jax.jit(theirs.update)
    for t in range(100):
        state, _ = step(jax.random.key(t), state, batches[t % len(batches)], objective)
        plain_x, plain_y = map(jax.numpy.asarray, parts[t % len(parts)])
        with lenient():  # optax is not written for strict promotion
            updates, memory = update(gradient(params, plain_x, plain_y), memory, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(tree.ravel(state.mean)[0], tree.ravel(params)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("recipe", [gradient_descent, sgd, adam, rmsprop, adagrad, newton, sam])
def test_the_recipes_do_not_import_optax(recipe) -> None:
    assert "import optax" not in Path(inspect.getfile(recipe)).read_text()


def test_newton_is_exact_on_a_quadratic_and_its_belief_is_bayes() -> None:
    problem = problems.regression()
    step = jax.jit(newton().step)
    batch = Batch.of(problem.x, problem.y)
    state = newton().init(jax.random.key(0), problem.objective, batch)
    state, _ = step(jax.random.key(1), state, batch, problem.objective)
    mean, precision, _ = references.linear_regression(problem.design, problem.y, problem.scale, problem.precision)
    belief = newton().belief(state, problem.objective)
    np.testing.assert_allclose(tree.ravel(belief.mean)[0], mean, atol=1e-10)
    np.testing.assert_allclose(belief.precision.matrix, precision, atol=1e-8)


def test_damping_shortens_steps_and_moves_no_fixed_point() -> None:
    problem = problems.regression()
    batch = Batch.of(problem.x, problem.y)
    mean, precision, _ = references.linear_regression(problem.design, problem.y, problem.scale, problem.precision)
    algorithm = newton(damping=2.0)
    state = start = algorithm.init(jax.random.key(0), problem.objective, batch)
    step, firsts = jax.jit(algorithm.step), []
    for t in range(60):
        state, _ = step(jax.random.key(t), state, batch, problem.objective)
        firsts.append(tree.ravel(tree.add(state.mean, start.mean, -1.0))[0])
    # One damped step by hand, from where it started.
    begun = np.asarray(tree.ravel(start.mean)[0])
    rows = len(problem.y)
    expected = begun - np.linalg.solve(precision / rows + 2.0 * np.eye(4), precision / rows @ (begun - mean))
    np.testing.assert_allclose(begun + firsts[0], expected, rtol=1e-10)
    assert np.linalg.norm(tree.ravel(state.mean)[0] - mean) < 0.02 * np.linalg.norm(begun - mean)
    np.testing.assert_allclose(algorithm.belief(state, problem.objective).precision.matrix, precision, atol=1e-8)
    assert algorithm.choices.departures == ("absolute eigenvalues where indefinite, damping", "line search")
    with pytest.raises(ValueError, match=r"damping=-1.0"):
        newton(damping=-1.0)


def differing(a: Rule, b: Rule) -> set[str]:
    """The fields in which two recipes differ."""
    return {field.name for field in fields(Rule) if getattr(a, field.name) != getattr(b, field.name)}


def test_adam_ogn_vogn_are_one_edit_apart() -> None:
    """Adam → OGN: the curvature, and the root goes (with the start at zero that its correction is for). → VOGN: E_q."""
    first, second, third = adam(0.1), ogn(0.1, b2=0.999, max_step=None), vogn(0.1, b2=0.999, max_step=None)
    assert differing(first, second) == {"curvature", "metric", "hess_init"}
    assert differing(second, third) == {"expectation"}
    assert differing(ogn(), vogn()) == {"expectation"}
    choices = [algorithm.choices for algorithm in (first, second, third)]
    assert [c.expectation for c in choices] == ["Delta", "Delta", "MonteCarlo"]
    assert [c.curvature for c in choices] == ["SquaredGradient", "SquaredGradients", "SquaredGradients"]
    assert choices[0].family == choices[1].family == choices[2].family
    assert choices[0].geometry == choices[1].geometry == choices[2].geometry == "straight"
    assert set(choices[0].departures) - set(choices[1].departures) == {"square root, bias correction"}
    assert choices[1].departures == choices[2].departures == ("momentum with bias correction", "two rates")


def test_gradient_descent_sam_and_rmsprop_adagrad_are_one_edit_apart() -> None:
    assert differing(gradient_descent(0.1), sam(0.1)) == {"expectation"}
    assert differing(rmsprop(0.1, eps=1e-7, hess_init=0.1), adagrad(0.1)) == {"geometry", "precision_rate"}
    assert differing(gradient_descent(0.1), sgd(0.1)) == set()
    assert differing(newton(0.5), von(0.5, Dense)) == {"expectation", "metric"}  # which is von's where S is positive


def logistic() -> tuple[problems.Problem, list[Batch]]:
    problem = problems.logistic()
    return problem, problem.batches(16)


def test_additive_group_is_sgd_at_draws() -> None:
    """With the same draws, by the gradients of the mean loss."""
    problem, batches = logistic()
    algorithm = lie_group(Additive(0.2), 0.3, momentum=0.0, samples=2)
    state = algorithm.init(jax.random.key(0), problem.objective, batches[0])
    assert isinstance(state, LieGroupState)
    step, mean = jax.jit(algorithm.step), state.element
    gradient = jax.jit(
        jax.grad(lambda w, batch: problem.objective.mean_loss({"network": w, "likelihood": {}}, batch, {})[0])
    )
    for t in range(6):
        key, batch = jax.random.key(t), batches[t % 3]
        state, _ = step(jax.random.clone(key), state, batch, problem.objective)
        draws = [jax.random.split(jax.random.fold_in(key, i))[0] for i in range(2)]
        slopes = [gradient(tree.add(mean, tree.normal(draw, mean), 0.2), batch) for draw in draws]
        mean = jax.tree.map(lambda m, a, b: m - 0.3 * (a + b) / 2, mean, *slopes)
    np.testing.assert_allclose(tree.ravel(state.element)[0], tree.ravel(mean)[0], atol=1e-12)


def test_multiplicative_groups_keep_signs_and_learn() -> None:
    problem, batches = logistic()
    for group, rate in ((Multiplicative(), 3.0), (ExcitatoryInhibitory(), 3.0)):
        algorithm = lie_group(group, rate)
        state = start = algorithm.init(jax.random.key(0), problem.objective, batches[0])
        step, losses = jax.jit(algorithm.step), []
        for t in range(120):
            state, info = step(jax.random.key(t), state, batches[t % 3], problem.objective)
            losses.append(float(info.loss))
        assert np.mean(losses[-30:]) < np.mean(losses[:6])
        for before, after in zip(jax.tree.leaves(start.element), jax.tree.leaves(state.element), strict=True):
            np.testing.assert_array_equal(np.sign(before), np.sign(after))


def test_full_affine_group_ends_at_the_posterior() -> None:
    """Monte Carlo, falling rates: within a tenth of a nat of the exact Gaussian (measured: about a fiftieth)."""
    problem = problems.regression()
    algorithm = lie_group(FullAffine(), Annealed(0.05, steps=1500), momentum=0.0, samples=4)
    batch = Batch.of(problem.x, problem.y)

    @jax.jit
    def run(state: Any) -> Any:
        body = lambda s, t: (
            algorithm.step(jax.random.fold_in(jax.random.key(1), t), s, batch, problem.objective)[0],
            0,
        )
        return jax.lax.scan(body, state, np.arange(1500))[0]

    state = run(algorithm.init(jax.random.key(0), problem.objective, batch))
    belief = algorithm.group.belief(state.element)
    mean, precision, _ = references.linear_regression(problem.design, problem.y, problem.scale, problem.precision)
    exact = Gaussian(tree.ravel(belief.mean)[1](jax.numpy.asarray(mean)), Dense(jax.numpy.asarray(precision)))
    assert float(belief.kl(exact)) < 0.1


def test_a_clipped_group_goes_no_further_than_its_radius_and_its_bound() -> None:
    group = ClippedAffine(share=0.5, radius=ByFanIn(0.1), bound=4.0)
    at = Placement(jnp.zeros(3), jnp.ones(3))
    pull = group.pull(at, jnp.asarray([1.0, -1.0, 0.01]), jnp.asarray([9.0, 9.0, 1.0]), 10.0)
    np.testing.assert_allclose(pull.scale, [4.0, -4.0, -0.9])
    moved = group.move(at, pull, 0.2)
    np.testing.assert_allclose(moved.shift, [-0.02] * 3, rtol=1e-6)
    np.testing.assert_allclose(moved.scale, np.exp(-0.2 * 0.5 * np.array([4.0, -4.0, -0.9]) / 2), rtol=1e-6)
    small = Placement(jnp.full(3, 0.05), jnp.full(3, 0.3))
    for name in ("shift", "scale"):
        np.testing.assert_array_equal(
            getattr(group.move(at, small, 0.2), name), getattr(Affine(0.5).move(at, small, 0.2), name)
        )


def test_bad_groups_are_refused() -> None:
    with pytest.raises(TypeError, match="is not a group"):
        lie_group(3)
    with pytest.raises(ValueError, match="samples=0"):
        lie_group(samples=0)
    with pytest.raises(ValueError, match=r"scale=-1.0"):
        Additive(-1.0)
    with pytest.raises(ValueError, match=r"radius=-0.1"):
        sam(radius=-0.1)
    with pytest.raises(ValueError, match=r"radius=-0.1"):
        bsam(radius=-0.1)


def test_a_step_out_of_the_cone_is_noticed_and_names_the_retraction() -> None:
    """Price's estimates are often negative: the straight step leaves, the retraction does not, same rate and draws."""
    problem, batches = logistic()
    words = {}
    for geometry in (None, Retraction()):
        algorithm = replace(von(0.5, geometry=geometry, hess_init=0.1), curvature=Price())
        state = algorithm.init(jax.random.key(0), problem.objective, batches[0])
        assert algorithm.explain_divergence(state) is None
        step = jax.jit(algorithm.step)
        for t in range(12):
            state, _ = step(jax.random.key(t), state, batches[0], problem.objective)
        words[geometry is None] = algorithm.explain_divergence(state)
        if geometry is None:
            with pytest.raises(ValueError, match=r"left the cone .* use the geometry Retraction"):
                algorithm.posterior(jax.random.key(0), state, problem.objective, None, None)
        if geometry is not None:
            assert state.first_invalid_step is None
            assert float(tree.ravel(state.precision.values)[0].min()) > 0
            assert algorithm.choices.departures == ("retraction",)
    assert words[False] is None
    assert words[True].startswith("the precision left the cone of positive matrices at step ")
    assert "Retraction()" in words[True]
