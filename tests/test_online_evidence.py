"""Training by the evidence: the evidence beside closed forms by hand, and what the training finds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize

import lamu
from lamu import tree
from lamu.algorithms import OneScale, ScalePerLayer, ScalePerWeight, adam, laplace, map_estimate, online_laplace
from lamu.algorithms.post_hoc.ggn_blocks import evaluated
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace, row_sums
from lamu.data import Arrays, Batch
from lamu.likelihoods import Bernoulli, Gaussian, Scaled
from lamu.likelihoods.bases import FixedDispersion
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP, BatchNorm, Linear
from lamu.objective import Objective
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense, Diagonal, KroneckerFactored
from lamu.priors import LayerwiseNormal, LearnedNormal, Normal, ScaleMixture
from lamu.rate import Annealed
from lamu_verification import problems, references

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=60)
DESIGN = np.column_stack([np.ones(60), X])
CURVATURES = [(Dense, GaussNewton()), (Diagonal, GaussNewton()), (KroneckerFactored(), GaussNewton())]


def sums_at(structure: Any, curvature: Any, objective: Objective, params: Any, x: Any, y: Any) -> Any:
    return row_sums(structure, curvature, evaluated(objective, {}), params, Batch.of(x, y), jax.random.key(1))


def linear(weights: np.ndarray) -> Any:
    return {"layers": {0: {"bias": jnp.asarray(weights[:1]), "kernel": jnp.asarray(weights[1:, None])}}}


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_evidence_of_linear_regression_is_the_closed_form(temperature: float) -> None:
    """A full matrix, and Kronecker factors of one layer with one output, which are exact."""
    problem: Any = problems.regression(temperature=temperature)
    mode, _, expected = references.linear_regression(
        problem.design, problem.y, problem.scale, problem.precision, temperature
    )
    params = {"network": linear(mode), "likelihood": {}}
    for structure, curvature in (CURVATURES[0], CURVATURES[2]):
        sums = sums_at(structure, curvature, problem.objective, params, problem.x, problem.y)
        found = sums.finish(problem.objective, params, {}).log_evidence(problem.objective)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def small(likelihood: Any = Gaussian(), x: Any = X, y: Any = Y) -> tuple[Objective, Any]:  # noqa: B008  (a constant)
    model = Model(MLP((3,), "tanh"), likelihood, Normal(0.7))
    return Objective(model, float(len(x))), model.init(jax.random.key(0), Batch.of(x, y))[0]


@pytest.mark.parametrize(("structure", "curvature"), CURVATURES, ids=["dense", "diagonal", "kronecker"])
def test_the_gradient_in_the_precisions_counts_the_weights_that_the_data_hold(structure: Any, curvature: Any) -> None:
    r"""MacKay's \(\tfrac12 D_l - \tfrac12 \delta_l (\lVert m_l \rVert^2 + \operatorname{tr} \Sigma_l)\), a layer."""
    objective, params = small()
    weights = params["network"]
    mode = sums_at(structure, curvature, objective, params, X, Y).finish(objective, params, {})

    def evidence(log_precision: Any) -> Any:
        return mode.log_evidence(objective, jax.tree.map(jnp.exp, log_precision))

    start = {"layers": {0: jnp.asarray(0.3), 1: jnp.asarray(-0.8)}}
    found = jax.grad(evidence)(start)
    h = objective.data_size * np.asarray(mode.curvature.dense(weights))
    delta = np.concatenate([np.full(tree.dimension(weights["layers"][k]), np.exp(start["layers"][k])) for k in (0, 1)])
    variance, vector = np.diagonal(np.linalg.inv(h + np.diag(delta))), np.asarray(tree.ravel(weights)[0])
    terms = 0.5 - delta * (vector**2 + variance) / 2
    size = tree.dimension(weights["layers"][0])
    np.testing.assert_allclose(found["layers"][0], terms[:size].sum(), rtol=1e-8)
    np.testing.assert_allclose(found["layers"][1], terms[size:].sum(), rtol=1e-8)


@pytest.mark.parametrize("likelihood", [Gaussian(), Scaled(Gaussian(), 1.0, 3.0)], ids=["plain", "scaled"])
def test_a_factor_of_the_noise_is_another_noise(likelihood: Any) -> None:
    objective, params = small(likelihood)
    wide = {**params, "likelihood": jax.tree.map(lambda leaf: leaf + 0.4, params["likelihood"])}
    mode, other = (
        sums_at(Dense, GaussNewton(), objective, at, X, Y).finish(objective, at, {}) for at in (params, wide)
    )
    found = mode.log_evidence(objective, noise=jnp.exp(jnp.full(1, 0.4)))
    np.testing.assert_allclose(found, other.log_evidence(objective), rtol=1e-10)


@pytest.mark.stress
def test_rows_that_are_padding_or_weigh_nothing_add_nothing() -> None:
    objective, params = small()
    batch = Batch.of(X, Y)
    doubled = replace(batch.padded(70), weight=batch.padded(70).weight * 2.0)
    for structure, curvature in CURVATURES:
        one, two = (
            row_sums(structure, curvature, evaluated(objective, {}), params, b, jax.random.key(1))
            for b in (batch.padded(70), doubled)
        )
        plain = sums_at(structure, curvature, objective, params, X, Y)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), plain, one)
        np.testing.assert_allclose(two.likelihood, 2 * plain.likelihood, rtol=1e-9)
        np.testing.assert_allclose(two.misfit, 2 * plain.misfit, rtol=1e-9)
        np.testing.assert_allclose(two.observed, 2 * plain.observed)
        np.testing.assert_allclose(two.rows, plain.rows)


def best_of_the_closed_form() -> tuple[float, float]:
    """Returns the logarithms of precision and noise with the greatest evidence of linear regression."""

    def loss(at: Any) -> float:
        return -references.linear_regression(DESIGN, Y, float(np.exp(at[1])), float(np.exp(at[0])))[2]

    found: Any = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    return tuple(found.x)


def test_training_finds_the_precision_and_the_noise_of_the_greatest_evidence() -> None:
    algorithm = online_laplace(adam(Annealed(0.05)), OneScale(), burn_in=10, evidence_update_period=1)
    model = Model(Linear(), Gaussian(), Normal(0.2))
    found = fit(model, (X, Y), algorithm, steps=400, batch_size=60)
    expected = best_of_the_closed_form()
    posterior: Any = found.posterior
    assert int(found.state.updates) == 390
    assert abs(-2 * float(jnp.log(posterior.model.prior.scale)) - expected[0]) < 0.02
    assert abs(float(posterior.mean["likelihood"]["log_scale"][0]) - expected[1]) < 0.005
    delta, sigma = (float(np.exp(value)) for value in expected)
    greatest = references.linear_regression(DESIGN, Y, sigma, delta)[2]
    own = posterior.model.likelihood.log_prior(posterior.mean["likelihood"])
    residual = np.asarray(posterior.predict(X).mean) - Y
    volume = np.log(2 * np.pi / (2 * (residual @ residual) / sigma**2 + 1 / 9)) / 2  # the noise integrated over
    np.testing.assert_allclose(posterior.evidence - own, greatest + volume, atol=1e-3)


@pytest.mark.stress
def test_minibatches_find_much_the_same() -> None:
    """Curvature and misfit are sums over the epoch's batches; the weights jitter while they are taken."""
    algorithm = online_laplace(adam(Annealed(0.02)), OneScale(), Diagonal, burn_in=5, evidence_update_period=2)
    found = fit(Model(Linear(), Gaussian(), Normal(0.2)), (X, Y), algorithm, epochs=150, batch_size=25)
    expected = best_of_the_closed_form()
    prior: Any = found.posterior.model.prior
    assert abs(-2 * float(jnp.log(prior.scale)) - expected[0]) < 0.3
    assert abs(float(found.posterior.mean["likelihood"]["log_scale"][0]) - expected[1]) < 0.05


@pytest.mark.stress
def test_a_width_a_weight_switches_off_what_the_target_does_not_need() -> None:
    x = np.column_stack([X, rng.normal(size=(60, 2))])
    algorithm = online_laplace(adam(Annealed(0.05)), ScalePerWeight(), burn_in=10, evidence_update_period=1, rate=0.3)
    posterior: Any = fit(Model(Linear(), Gaussian()), (x, Y), algorithm, steps=200, batch_size=60).posterior
    widths = np.asarray(posterior.model.prior.scale["layers"][0]["kernel"])[:, 0]
    assert np.all(widths[:3] > 0.2)
    assert np.all(widths[3:] < 0.1)


def test_prior_and_noise_move_at_the_end_of_a_period_alone() -> None:
    objective, _ = small()
    batch = Batch.of(X[:30], Y[:30])  # half an epoch
    algorithm = online_laplace(map_estimate(optax.sgd(0.01)), burn_in=1, evidence_update_period=2, updates=3)
    state, step, seen = algorithm.init(jax.random.key(0), objective, batch), jax.jit(algorithm.step), []
    for t in range(8):
        new, _ = step(jax.random.key(t), state, batch, objective)
        seen.append(
            (
                float(new.dispersion["log_scale"][0] - state.dispersion["log_scale"][0]) != 0.0,
                float(new.log_precision["layers"][0] - state.log_precision["layers"][0]) != 0.0,
                float(new.sums.rows),
            )
        )
        state = new
    # A burn-in epoch, an epoch that is looked at, an update; then a period of two, whose last is looked at.
    assert [moved for moved, _, _ in seen] == [False, False, False, True, False, False, False, True]
    assert [moved for _, moved, _ in seen] == [moved for moved, _, _ in seen]
    assert [rows for _, _, rows in seen] == [0, 0, 30, 60, 60, 60, 30, 60]


@pytest.mark.stress
def test_classes_and_batch_statistics() -> None:
    """Without a noise there is none to move."""
    labels = (Y > 0).astype(np.int32)
    for network, structure, kind in (
        (MLP((3,), "tanh"), KroneckerFactored(), "BlockDiagonal"),
        (MLP((3,), normalise=BatchNorm()), None, "Dense"),
    ):
        algorithm = online_laplace(adam(0.05), structure=structure, burn_in=1, evidence_update_period=1, updates=5)
        posterior: Any = fit(Model(network, Bernoulli()), (X, labels), algorithm, epochs=4, batch_size=60).posterior
        assert type(posterior.belief.factors["network"].precision).__name__ == kind
        assert np.isfinite(posterior.convergence.residual)
        assert posterior.mean["likelihood"] == {}
        assert lamu.scores.nll(posterior.predict(X), labels) < np.log(2)


def test_the_structure_is_the_richest_that_many_weights_can_have() -> None:
    wide, batch = (256,), Batch.of(X, Y)
    for network, widths, kind in (
        (MLP((3,)), ScalePerWeight(), "Dense"),
        (MLP(wide), ScalePerLayer(), "KroneckerSums"),
        (MLP(wide), ScalePerWeight(), "Diagonal"),
        (MLP(wide, normalise=BatchNorm()), ScalePerLayer(), "Diagonal"),
    ):
        objective, algorithm = Objective(Model(network, Gaussian()), 60.0), online_laplace(scales=widths)
        state = jax.eval_shape(algorithm.init, jax.random.key(0), objective, batch)
        assert type(state.sums.curvature).__name__ == kind


def test_the_end_of_a_run_without_data_has_the_period_s_curvature() -> None:
    objective, _ = small()
    batch = Batch.of(X, Y)
    algorithm = online_laplace(adam(0.01), burn_in=0, evidence_update_period=2, updates=2)
    state = algorithm.init(jax.random.key(0), objective, batch)
    with pytest.raises(ValueError, match="give the data"):
        algorithm.posterior(jax.random.key(1), state, objective, None, None)
    step = jax.jit(algorithm.step)
    state, _ = step(jax.random.key(0), state, batch, objective)
    state, _ = step(jax.random.key(1), state, batch, objective)
    state, _ = step(jax.random.key(2), state, batch, objective)
    one = algorithm.posterior(jax.random.key(1), state, objective, None, None).evidence
    point = algorithm.preview(jax.random.key(1), state, objective)
    under = replace(objective, model=point.model)
    two = fit_laplace(Dense, point, under, Arrays.of((X, Y))).integrated(under, jax.random.key(1)).evidence
    # The sums are of the weights a step before.
    np.testing.assert_allclose(one, two, rtol=0.02)
    assert one != two


def test_a_run_that_is_too_short_says_so(caplog: Any) -> None:
    fit(Model(Linear(), Gaussian()), (X, Y), online_laplace(adam(0.01)), epochs=1, batch_size=60)
    assert "before its first update" in caplog.text


def test_held_dispersions_are_those_of_the_base() -> None:
    base, dispersion = Scaled(Gaussian(), 1.0, 2.0), {"log_scale": jnp.array([0.3])}
    held, f, y = FixedDispersion(base, dispersion), jnp.asarray(X[:, :1]), jnp.asarray(Y)
    assert held.quadratic
    assert held.log_concave
    assert (held.task, held.outputs(Y), held.init(Y)) == ("regression", 1, {})
    held.check(Y)
    for method, arguments in (
        ("log_prob", (f, y)),
        ("information", (f,)),
        ("mean", (f,)),
        ("variance", (f,)),
        ("entropy", (f,)),
        ("cdf", (f, y)),
        ("marginal", (f, f[:, :, None] ** 2)),
    ):
        one, other = getattr(held, method)({}, *arguments), getattr(base, method)(dispersion, *arguments)
        jax.tree.map(np.testing.assert_array_equal, one, other)
    draws = (held.sample(jax.random.key(0), {}, f), base.sample(jax.random.key(0), dispersion, f))
    np.testing.assert_array_equal(*draws)
    assert float(held.log_prior({})) == 0.0
    assert held.dispersion_information({}) == {}


def test_what_makes_no_sense_is_refused() -> None:
    wrong: list[tuple[Any, Any, str]] = [
        (TypeError, {"scales": ScalePerLayer}, "which weights share"),
        (TypeError, {"optimizer": 3}, "optimizer"),
        (ValueError, {"scales": ScalePerWeight(), "structure": KroneckerFactored()}, "structure=Diagonal"),
        (ValueError, {"evidence_update_period": 0}, "evidence_update_period=0"),
        (ValueError, {"burn_in": -1}, "burn_in=-1"),
        (ValueError, {"updates": 0}, "updates=0"),
        (ValueError, {"rate": 0.0}, "rate=0.0"),
    ]
    for error, arguments, words in wrong:
        with pytest.raises(error, match=words):
            online_laplace(**arguments)
    with pytest.raises(TypeError, match="SpikeAndSlab is none"):
        fit(Model(Linear(), Gaussian(), ScaleMixture()), (X, Y), online_laplace(), steps=1)
    with pytest.raises(ValueError, match="not a prefix of the parameters"):
        fit(Model(Linear(), Gaussian(), LayerwiseNormal({"w": 1.0})), (X, Y), adam(), steps=1)
    with pytest.raises(ValueError, match="is not positive and finite; give a positive number for 'a'"):
        LayerwiseNormal({"a": -1.0})
    with pytest.raises(ValueError, match="have the shape"):
        LayerwiseNormal({"a": jnp.ones(3)}).check({"a": jnp.ones(2)})
    assert fit(Model(Linear(), Gaussian(), LearnedNormal(0.5)), (X, Y), online_laplace(), steps=1).posterior.evidence


@pytest.mark.parametrize("curvature", [None, GaussNewton()], ids=["averaged", "at the mode"])
def test_the_end_is_laplace_at_the_mode_under_the_prior_that_was_learned(curvature: Any) -> None:
    """Classes have the averaged curvature where none is given."""
    rows = (X, (Y > 0).astype(np.int32))
    model = Model(MLP((3,), "tanh"), Bernoulli(), Normal(3.0))
    algorithm = online_laplace(adam(0.1), curvature=curvature, burn_in=1)
    found = fit(model, rows, algorithm, epochs=40, batch_size=60)
    objective, key = Objective(found.posterior.model, 60.0), jax.random.key(1)
    near = algorithm.preview(key, found.state, replace(objective, model=model))
    end = lambda curvature: laplace(structure=Dense, curvature=curvature).around(near, key, objective, Arrays.of(rows))
    precision = lambda posterior: np.asarray(posterior.belief.factors["network"].precision.matrix)
    np.testing.assert_allclose(precision(found.posterior), precision(end(curvature)), rtol=1e-6)
    assert found.posterior.convergence.residual < 0.05
    narrower = np.trace(precision(found.posterior)) / np.trace(precision(end(GaussNewton())))
    assert (abs(narrower - 1.0) > 0.01) == (curvature is None)
