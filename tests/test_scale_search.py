"""The scale of a prior around weights that stay: chosen as by whole posteriors, at a fraction of their cost."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import laplace, last_layer
from lamu.algorithms.post_hoc import marginal_likelihood
from lamu.algorithms.post_hoc.laplace_fit import fit_with_gradient
from lamu.algorithms.post_hoc.mode import residual_at, residual_of
from lamu.algorithms.post_hoc.scale_search import Hoisted
from lamu.algorithms.post_hoc.subnetwork import HeadWeights
from lamu.data import Arrays
from lamu.likelihoods import Categorical, Gaussian, Poisson
from lamu.networks import MLP
from lamu.objective import Objective
from lamu.operators import Dense, DenseBlocks, Diagonal, KroneckerFactored, LowRankStructure, OutputEigen
from lamu.predictives import LaplaceBridge, Linearised, Probit, linearised
from lamu.priors import LearnedNormal

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 4))
CLASSES = (X @ RNG.normal(size=(4, 3)) + RNG.normal(size=(80, 3))).argmax(1)
NUMBERS = X[:, 0] + 0.3 * RNG.normal(size=80)
COUNTS = RNG.poisson(np.exp(1.0 + X[:, 0]))


def trained(likelihood: Any, y: np.ndarray) -> tuple[Any, Any]:
    """A model at weights of a short fit, and the rows."""
    model = lamu.Model(MLP((5,), "tanh"), likelihood, LearnedNormal())
    point = lamu.fit(model, (X[:50], y[:50]), lamu.algorithms.adam(0.05), epochs=300).posterior
    return model.starting_at(point.mean), (X[:50], y[:50])


CASES = {
    "head": (Categorical(3), CLASSES, last_layer()),
    "head by factors": (Categorical(3), CLASSES, last_layer(structure=KroneckerFactored())),
    "head by outputs": (Categorical(3), CLASSES, last_layer(structure=OutputEigen, rule=LaplaceBridge())),
    "all": (Categorical(3), CLASSES, laplace(structure=Dense, rule=Linearised())),
    "all by leaf": (Categorical(3), CLASSES, laplace(structure=DenseBlocks)),
    "all by factors": (Categorical(3), CLASSES, laplace(structure=KroneckerFactored())),
    "diagonal": (Poisson(), COUNTS, laplace(structure=Diagonal)),
    "low rank": (Categorical(3), CLASSES, laplace(structure=LowRankStructure(3))),
    "counts": (Poisson(), COUNTS, last_layer()),
    "noise": (Gaussian(), NUMBERS, laplace(structure=Dense)),
}
QUICK = ("head", "noise")


@pytest.mark.parametrize("validated", [True, pytest.param(False, marks=pytest.mark.stress)], ids=["rows", "bound"])
@pytest.mark.parametrize("case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.stress) for c in CASES])
@pytest.mark.filterwarnings("ignore::lamu.Unconverged", "ignore:the prior's scale")
def test_the_scale_is_that_of_whole_posteriors(case: str, validated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood, y, algorithm = CASES[case]
    model, rows = trained(likelihood, y)
    options = {"epochs": 0, "validation": (X[50:], y[50:]) if validated else None}
    ours: Any = lamu.fit(model, rows, algorithm, **options).posterior
    monkeypatch.setattr(marginal_likelihood, "scale_search", lambda *_, **__: None)
    monkeypatch.setattr(linearised, "_draws_weights", lambda *_: False)  # the search has covariances of the outputs
    theirs: Any = lamu.fit(model, rows, algorithm, **options).posterior
    np.testing.assert_allclose(ours.model.prior.scale, theirs.model.prior.scale, rtol=1e-6)
    if isinstance(ours.rule, Probit):
        np.testing.assert_allclose(ours.rule.temperature, theirs.rule.temperature, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours.mean, theirs.mean)
    assert abs(np.log(theirs.model.prior.scale)) < 6.8  # inside the range, where there is something to choose


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::lamu.Unconverged", "ignore:the prior's scale")
def test_unseen_rows_choose_a_temperature_with_the_scale() -> None:
    """The network has learned 50 rows by heart: its logits are too large, and the scale is the widest that pays."""
    rows = X[:50], CLASSES[:50]
    model: Any = lamu.Model(MLP((30,), "tanh"), Categorical(3), lamu.priors.Normal(10.0))
    point = lamu.fit(model, rows, lamu.algorithms.adam(0.05), epochs=300).posterior
    model = replace(model, prior=LearnedNormal()).starting_at(point.mean)
    options: Any = {"epochs": 0, "validation": (X[50:], CLASSES[50:])}
    posterior: Any = lamu.fit(model, rows, last_layer(), **options).posterior
    scale, temperature = float(posterior.model.prior.scale), float(posterior.rule.temperature)

    @cache
    def under(scale: float) -> Any:
        return lamu.fit(replace(model, prior=lamu.priors.Normal(scale)), rows, last_layer(), epochs=0).posterior

    def log_density(scale: float, temperature: float) -> float:
        pred = under(scale).with_rule(Probit(temperature=temperature)).predict(X[50:])
        return float(pred.log_prob(CLASSES[50:]).sum())

    grid = [(s, t) for s in (0.03, 0.3, 3.0) for t in (1.0, 2.5, 6.0)]
    best, own = max(log_density(*each) for each in grid), log_density(scale, temperature)
    assert temperature > 1.5
    assert own > best - 0.6
    assert log_density(1.3 * scale, temperature) < own, "a wider prior predicts as well"
    given = lamu.fit(model, rows, last_layer(rule=Probit()), **options).posterior
    assert given.rule == Probit(), "the rule that was asked for is kept"


def test_the_widest_scale_within_the_slack_is_taken() -> None:
    """Of a valley around scale 1, flat to 0.05 of its bottom up to exp(0.5), with its least at T = exp(0.3)."""
    log_temperatures = marginal_likelihood.LOG_TEMPERATURES
    losses = lambda log_scale: 0.2 * log_scale**2 + (log_temperatures - 0.3) ** 2
    log_scale, log_temperature = marginal_likelihood._widest(losses, 0.05)
    assert 0.4 < log_scale <= 0.51
    np.testing.assert_allclose(log_temperature, 0.3, atol=1e-6)
    cold = lambda log_scale: 0.01 * (log_temperatures - 0.4 + log_scale) ** 2 + 1e-4 * log_scale**2
    np.testing.assert_allclose(marginal_likelihood._widest(cold, 0.5)[1], 0.0, atol=1e-6)  # no scale for a cold logit
    under_one = lambda log_scale: 0.2 * log_scale**2 + (log_temperatures + 0.3) ** 2  # 0.09 more at T = 1
    np.testing.assert_allclose(marginal_likelihood._widest(under_one, 0.1)[1], 0.0, atol=1e-6)
    np.testing.assert_allclose(marginal_likelihood._widest(under_one, 0.08)[1], -0.3, atol=1e-6)
    flat = lambda _: (log_temperatures - 3.0) ** 2
    np.testing.assert_allclose(marginal_likelihood._widest(flat, 0.05), (np.log(1e3), 2.5))


@pytest.mark.parametrize("whole", [False, True], ids=["search", "posteriors"])
@pytest.mark.filterwarnings("ignore::lamu.Unconverged", "ignore:the prior's scale")
def test_rows_set_aside_are_predicted_with_their_offset(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is moved together with its offset is the same target."""
    if whole:
        monkeypatch.setattr(marginal_likelihood, "scale_search", lambda *_, **__: None)
    model, offset = trained(Gaussian(), NUMBERS)[0], 3.0 * RNG.normal(size=80)
    moved = lambda rows: Arrays.of({"x": X[rows], "y": NUMBERS[rows] + offset[rows], "offset": offset[rows][:, None]})
    plain = lambda rows: (X[rows], NUMBERS[rows])
    first, aside = slice(50), slice(50, None)
    fits: Any = (lamu.fit(model, of(first), last_layer(), epochs=0, validation=of(aside)) for of in (plain, moved))
    one, other = (each.posterior.model.prior.scale for each in fits)
    np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::lamu.Unconverged", "ignore:the prior's scale")
def test_rows_that_do_not_fit_are_asked_in_batches() -> None:
    model, rows = trained(Categorical(3), CLASSES)
    scales: Any = [
        lamu.fit(model, rows, last_layer(), epochs=0, validation=(X[50:], CLASSES[50:]), max_memory=room)
        for room in ("1GB", "20kB")
    ]
    first, second = (each.posterior.model.prior.scale for each in scales)
    np.testing.assert_allclose(first, second, rtol=1e-6)


@pytest.mark.parametrize(
    ("structure", "head"),
    [
        pytest.param(Dense, True, id="dense-head"),
        pytest.param(KroneckerFactored(), False, id="factors-all"),
        pytest.param(Dense, False, id="dense-all", marks=pytest.mark.stress),
        pytest.param(KroneckerFactored(), True, id="factors-head", marks=pytest.mark.stress),
        pytest.param(LowRankStructure(3), False, id="low-rank-all", marks=pytest.mark.stress),
    ],
)
def test_the_residual_of_one_pass_is_that_of_two(structure: Any, head: bool) -> None:
    model, (x, y) = trained(Categorical(3), CLASSES)
    data = Arrays.of({"x": x, "y": y, "weight": np.linspace(0.5, 1.5, 50), "offset": RNG.normal(size=(50, 3))})
    point = lamu.fit(model, (x, y), lamu.algorithms.adam(), steps=1).posterior
    if head:
        model, point = HeadWeights().select(model, point)
    objective = Objective(model, 50.0, 0.5, 0.7)
    fit, gradient = fit_with_gradient(structure, point, objective, data)
    ours, theirs = residual_of(fit, objective, gradient), residual_at(fit, objective, data)
    np.testing.assert_allclose(ours.residual, theirs.residual, rtol=1e-6)
    assert ours.dimension == theirs.dimension


def test_what_stays_is_computed_once() -> None:
    """Held values pass the slow function at the preparation alone; what nobody reads is not computed at all."""
    calls: list[int] = []

    def slow(x: Any) -> Any:
        return jax.pure_callback(lambda x: calls.append(1) or x, jax.ShapeDtypeStruct((3,), x.dtype), x)

    def function(numbers: list[Any], x: Any) -> tuple[Any, ...]:
        inner = jax.jit(lambda number, x: (number * slow(x), number * slow(x + 1)))
        return (jnp.sum(inner(numbers[0], x)[0]),)

    hoisted = Hoisted(function, [1.0], jnp.ones(3))
    prepared = hoisted.prepared(jnp.ones(3))
    assert [float(hoisted(prepared, [number])[0]) for number in (1.0, 2.0, 3.0)] == [3.0, 6.0, 9.0]
    assert len(calls) == 1
