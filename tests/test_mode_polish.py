"""Laplace's Gaussian and its evidence are about the mode: found to its end, or there is none, and that is said."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit
from scipy.stats import multivariate_normal

import lamu
from lamu import tree
from lamu.algorithms import adam, conjugate, evidence, laplace, last_layer, newton, von
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.algorithms.post_hoc.mode import effective_parameters, noise_factor
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.networks import MLP, Linear
from lamu.objective import Objective
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense, Diagonal, KroneckerFactored
from lamu.priors import LearnedNormal, Normal
from lamu.rate import Annealed

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=60)
BINARY = (rng.uniform(size=60) < expit(2 * X[:, 0])).astype(np.int32)
SHORT: Any = {"epochs": 2, "batch_size": 20}


def logistic_mode(prior: float) -> np.ndarray:
    def loss(w: np.ndarray) -> float:
        f = X @ w
        return float(np.sum(np.logaddexp(0, f) - BINARY * f) + w @ w / (2 * prior**2))

    return minimize(loss, np.zeros(3), tol=1e-12).x


@pytest.mark.parametrize("structure", [Dense, Diagonal, KroneckerFactored()], ids=str)
def test_the_mean_is_the_mode_whatever_the_optimiser_left(structure: Any) -> None:
    model = lamu.Model(Linear(bias=False), Bernoulli(), Normal(0.7))
    posterior: Any = lamu.fit(model, (X, BINARY), laplace(structure=structure), **SHORT).posterior
    found = np.ravel(posterior.mean["network"]["layers"][0]["kernel"])
    assert posterior.convergence.residual < 0.05
    assert posterior.convergence.precision_error == 0.0
    np.testing.assert_allclose(found, logistic_mode(0.7), atol=0.01)
    assert posterior.evidence is not None


@pytest.mark.stress
def test_the_evidence_of_a_line_is_exact_and_preferred_to_a_network() -> None:
    """Two epochs leave Adam some hundred nats away."""
    x = np.linspace(-1, 1, 60)[:, None]
    y = 2 * x[:, 0] - 0.3 + 0.15 * rng.normal(size=60)
    design = np.column_stack([np.ones(60), x])
    cov: Any = 0.15**2 * np.eye(60) + design @ design.T
    exact = multivariate_normal(np.zeros(60), cov).logpdf(y)
    found = [
        lamu.fit(lamu.Model(network, Gaussian(0.15)), (x, y), laplace(), **SHORT).posterior.evidence
        for network in (Linear(), MLP((4,), "tanh"))
    ]
    np.testing.assert_allclose(found[0], exact, atol=0.01)
    assert found[1] is None or found[1] < exact - 1


def test_where_no_mode_is_reached_there_is_no_evidence_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamu.algorithms.post_hoc.mode._ITERATIONS", 1)
    monkeypatch.setattr("lamu.algorithms.post_hoc.mode._EVALUATIONS", 1)
    model = lamu.Model(MLP((4,), "tanh"), Gaussian(0.2))
    with pytest.warns(
        lamu.Unconverged, match=r"no evidence: the residual at the mode is \S+ nats.*train for more"
    ) as told:
        posterior = lamu.fit(model, (X, Y), laplace(), **SHORT).posterior
    assert [issubclass(each.category, lamu.Unconverged) for each in told].count(True) == 1
    assert posterior.evidence is None
    assert posterior.convergence is not None
    assert posterior.convergence.residual is not None
    assert posterior.convergence.residual > 0.05


def test_weights_that_arrive_trained_stay_and_have_an_evidence_at_a_mode_alone() -> None:
    model = lamu.Model(Linear(), Gaussian(0.5))
    exact = lamu.fit(model, (X, Y), conjugate()).posterior
    at_mode = {"network": exact.mean["network"], "likelihood": {}}
    beside = jax.tree.map(lambda leaf: leaf + 0.3, at_mode)
    for start, known in ((at_mode, True), (beside, False)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            posterior = lamu.fit(model.starting_at(start), (X, Y), laplace(), epochs=0).posterior
        for kept, given in zip(jax.tree.leaves(posterior.mean), jax.tree.leaves(start), strict=True):
            np.testing.assert_array_equal(kept, given)
        assert (posterior.evidence is not None) is known
        assert any("arrived trained" in str(each.message) for each in told) is not known


def test_a_learned_noise_leaves_room_for_the_weights_that_follow_it() -> None:
    """MacKay's fixed point in the place of the joint mode: ten rows, four weights."""
    x, y = X[:16], Y[:16]
    posterior: Any = lamu.fit(lamu.Model(Linear(), Gaussian()), (x, y), laplace(), epochs=5, batch_size=16).posterior
    layer, noise = posterior.mean["network"]["layers"][0], float(jnp.exp(posterior.mean["likelihood"]["log_scale"][0]))
    mean, design = np.r_[layer["bias"], np.ravel(layer["kernel"])], np.column_stack([np.ones(16), x])
    gram = design.T @ design / noise**2
    determined = np.trace(np.linalg.solve(gram + np.eye(4), gram))
    squares = np.sum((y - design @ mean) ** 2)
    # The noise has the prior log σ ~ N(0, 9).
    np.testing.assert_allclose(squares / noise**2, 16 - determined + np.log(noise) / 9, rtol=0.02)


@pytest.mark.stress
def test_a_noise_beside_features_that_were_fitted_leaves_room_for_them() -> None:
    """Of 40 rows and 41 weights: γ is that of all weights, not of the head's nine."""
    x, y, run = X[:40], Y[:40], {"epochs": 800, "batch_size": 40}
    model = lamu.Model(MLP((8,), "tanh"), Gaussian())
    point: Any = lamu.fit(model, (x, y), adam(Annealed(1e-2)), **run).posterior
    flat, unravel = jax.flatten_util.ravel_pytree(point.mean["network"])
    outputs = lambda flat: model.outputs({"network": unravel(flat)}, point.network_state, jnp.asarray(x))[0][:, 0]
    J, left, known = np.asarray(jax.jacobian(outputs)(flat)), y - np.asarray(outputs(flat)), len(flat)

    def determined(noise: float) -> float:
        gram = J.T @ J / noise**2
        return float(np.trace(np.linalg.solve(gram + np.eye(known), gram)))

    slope = lambda noise: left @ left / noise**2 - 40 + determined(noise) - np.log(noise) / 9
    joint = float(jnp.exp(point.mean["likelihood"]["log_scale"][0]))
    all_weights = determined(brentq(slope, joint, 100 * joint))
    posterior: Any = lamu.fit(model, (x, y), last_layer(adam(Annealed(1e-2))), **run).posterior
    noise = float(jnp.exp(posterior.mean["likelihood"]["log_scale"][0]))
    squares = float(np.sum((y - np.asarray(posterior.predict(x).mean)) ** 2))
    assert 12 < all_weights < 35
    np.testing.assert_allclose(squares / noise**2, 40 - all_weights + np.log(noise) / 9, rtol=0.04)
    assert noise > 1.2 * joint


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_noise_that_is_too_small_is_raised_to_where_the_evidence_is_stationary(temperature: float) -> None:
    """Ten rows, four weights: the maximum of the evidence over the noise, by the marginal density of the rows at T."""
    x, y, start = X[:10], Y[:10], 0.01
    design, model = np.column_stack([np.ones(10), x]), lamu.Model(Linear(), Gaussian())
    mean = np.linalg.lstsq(design, y, rcond=None)[0]
    network = {"layers": {0: {"bias": jnp.asarray(mean[:1]), "kernel": jnp.asarray(mean[1:, None])}}}
    params = {"network": network, "likelihood": {"log_scale": jnp.log(jnp.array([start]))}}
    point = replace(lamu.fit(model, (x, y), adam(), steps=1).posterior, belief=lamu.families.Point(params))
    objective = lamu.objective.Objective(model, 10.0, temperature)
    mode = fit_laplace(Dense, point, objective, lamu.data.Arrays.of((x, y)))
    squares = np.sum((y - design @ mean) ** 2)

    def log_evidence(log_noise: float) -> float:
        noise = np.exp(log_noise)
        loss = squares / (2 * noise**2) + 10 * log_noise + log_noise**2 / 18
        gram = design.T @ design / noise**2 + np.eye(4)
        return -loss / temperature - np.linalg.slogdet(gram)[1] / 2

    exact = minimize(lambda log_noise: -log_evidence(log_noise[0]), [np.log(0.3)], tol=1e-10).x[0]
    np.testing.assert_allclose(np.log(noise_factor(mode, objective) * start), exact, atol=0.002)
    assert noise_factor(mode.scale_noise(objective, 1000.0), objective) == 1.0
    singular = replace(mode, curvature=Dense(jnp.full_like(mode.curvature.matrix, jnp.nan)))
    assert (noise_factor(singular, objective), effective_parameters(singular, objective)) == (1.0, None)


def test_a_last_layer_is_polished_given_its_features() -> None:
    model = lamu.Model(MLP((4,), "tanh"), Bernoulli())
    posterior = lamu.fit(model, (X, BINARY), last_layer(), **SHORT).posterior
    assert posterior.convergence is not None
    assert posterior.convergence.residual is not None
    assert posterior.convergence.residual < 0.05
    assert posterior.convergence.dimension == 5


def test_the_evidence_elsewhere_than_at_a_mode_is_warned_of() -> None:
    model = lamu.Model(Linear(), Bernoulli())
    point = lamu.fit(model, (X, BINARY), adam(), steps=2).posterior
    with pytest.warns(lamu.Unconverged, match="under its own prior, where an evidence needs"):
        evidence(point, (X, BINARY))


@pytest.mark.stress
def test_many_weights_have_kronecker_factors_and_few_layers_a_low_rank(caplog: pytest.LogCaptureFixture) -> None:
    x, y = rng.normal(size=(20, 60)), rng.integers(0, 3, 20)
    with caplog.at_level("INFO", "lamu"):
        posterior: Any = lamu.fit(lamu.Model(MLP((70,), "tanh"), Categorical(3)), (x, y), laplace(), steps=1).posterior
    precision = posterior.belief.factors["network"].precision
    assert type(precision).__name__ == "BlockDiagonal"
    assert "4,483 weights is Kronecker" in caplog.text

    def scaled(theta: Any, x: Any) -> Any:
        return (x * theta["scale"][None]) @ np.ones((len(x[0]), 1)) / 50

    wide = rng.normal(size=(20, 5000))
    network = lamu.networks.Trained(scaled, {"scale": np.zeros(5000)})
    posterior = lamu.fit(lamu.Model(network, Gaussian(1.0)), (wide, wide[:, 0]), laplace(), epochs=0).posterior
    assert type(posterior.belief.factors["network"].precision).__name__ == "LowRank"


def test_a_scale_without_a_finite_evidence_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the scales above 0.3 the evidence is made a NaN; their rows are predicted as well as any."""
    from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit

    plain = LaplaceFit.posterior

    def broken(self: LaplaceFit, objective: Any, key: Any) -> Any:
        from dataclasses import replace

        posterior = plain(self, objective, key)
        scale = getattr(objective.model.prior, "scale", 1.0)
        return replace(posterior, evidence=posterior.evidence * (jnp.nan if float(scale) > 0.3 else 1.0))

    monkeypatch.setattr(LaplaceFit, "posterior", broken)
    model = lamu.Model(Linear(), Bernoulli(), LearnedNormal(1.0))
    options: Any = {**SHORT, "validation": (X[40:], BINARY[40:])}
    posterior: Any = lamu.fit(model, (X[:40], BINARY[:40]), laplace(), **options).posterior
    assert posterior.model.prior.scale < 0.33
    assert np.isfinite(posterior.evidence)


def test_a_choice_at_the_end_of_its_range_is_said() -> None:
    """Targets that no column explains ask for a prior that is narrower without end."""
    model = lamu.Model(Linear(bias=False), Gaussian(1.0), LearnedNormal(1.0))
    with pytest.warns(UserWarning, match=r"the prior's scale 0\.001 is the end of its range"):
        lamu.fit(model, (X, np.zeros(60)), laplace(), **SHORT)


def test_the_scale_by_evidence_is_that_of_greatest_evidence_with_its_own_mode() -> None:
    """Of a linear model the evidence is known: a scan over it, each with its own posterior."""
    model = lamu.Model(Linear(), Gaussian(0.5), LearnedNormal(5.0))
    posterior: Any = lamu.fit(model, (X, Y), laplace(), **SHORT).posterior
    design = np.column_stack([np.ones(60), X])
    scan = np.exp(np.linspace(-2, 2, 401))
    covariances: Any = [0.25 * np.eye(60) + s**2 * design @ design.T for s in scan]
    exact = [multivariate_normal(np.zeros(60), each).logpdf(Y) for each in covariances]
    assert abs(np.log(posterior.model.prior.scale / scan[np.argmax(exact)])) < 0.05
    np.testing.assert_allclose(posterior.evidence, max(exact), atol=0.01)


def test_newton_converges_from_far_on_a_generalised_linear_model() -> None:
    """Whole Newton steps diverge from here: the curvature all but vanishes where the model is sure."""
    start = {"network": {"layers": {0: {"kernel": np.array([[9.0], [-14.0], [11.0]])}}}, "likelihood": {}}
    model = lamu.Model(Linear(bias=False), Bernoulli(), Normal(3.0)).starting_at(start)
    fit = lamu.fit(model, (X, BINARY), newton(), steps=30)
    found = np.ravel(fit.posterior.mean["network"]["layers"][0]["kernel"])
    np.testing.assert_allclose(found, logistic_mode(3.0), atol=1e-4)
    assert np.all(np.diff(fit.history["loss"]) < 1e-6)
    assert "line search" in newton().choices.departures


def test_newton_goes_downhill_on_a_network() -> None:
    model = lamu.Model(MLP((8,), "tanh"), Gaussian(0.3))
    fit = lamu.fit(model, (X, np.sin(2 * X[:, 0])), newton(), steps=60)
    assert fit.history["loss"].argmax() == 0
    assert fit.history["residual"][-1] < 1e-3


def iris_network(activation: str) -> tuple[lamu.Model, Any, Any, Any]:
    """A network of 67 weights on iris with its data, and ℓ/N and its outputs as functions of a vector."""
    x, y = lamu.data.load("iris")
    model = lamu.Model(MLP((8,), activation), Categorical(3)).standardised(x, y)
    batch = model.read((x, y)).full()
    unravel = tree.ravel(model.init(jax.random.key(0), batch)[0]["network"])[1]
    at = lambda z: {"network": unravel(z), "likelihood": {}}
    loss = jax.jit(lambda z: Objective(model, 150).mean_loss(at(z), batch, {})[0])
    return model, (x, y), loss, jax.jit(lambda z: model.outputs(at(z), {}, batch.x)[0])


@pytest.mark.parametrize("algorithm", [newton(), newton(damping=0.01)], ids=["newton", "damped"])
def test_newton_on_a_network_ends_where_bfgs_does_with_laplaces_posterior(algorithm: Any) -> None:
    """From three starts: SciPy's BFGS from beside goes no lower, and the precision is the Hessian of ℓ at the end."""
    model, data, loss, _ = iris_network("tanh")
    plain = algorithm.metric.damping == 0
    for seed in range(3):
        steps = 40 if plain else 120
        fit: Any = lamu.fit(model, data, algorithm, steps=steps, seed=seed)
        mode = tree.ravel(fit.posterior.mean["network"])[0]
        beside, both = np.asarray(mode) + 0.01 * rng.normal(size=mode.shape), jax.jit(jax.value_and_grad(loss))
        at = lambda z, both=both: tuple(np.asarray(part, float) for part in both(jnp.asarray(z, jnp.float32)))
        theirs: Any = minimize(at, beside, jac=True, method="BFGS", tol=1e-7)
        assert abs(float(loss(mode)) - theirs.fun) < (1e-6 if plain else 1e-3)
        if plain:
            assert fit.history["residual"][-1] < 1e-4
            precision = np.asarray(fit.posterior.belief.factors["network"].precision.matrix)
            ends = [jnp.asarray(np.asarray(mode) + side * 5e-3 * np.eye(67), mode.dtype) for side in (1, -1)]
            right, left = (np.asarray(jax.vmap(both)(each)[1], float) for each in ends)
            expected = 150 * (right - left) / 1e-2
            assert np.linalg.norm(precision - expected) < 0.01 * np.linalg.norm(expected)


@pytest.mark.stress
def test_newton_on_relu_names_the_gauss_newton_matrix_whose_posterior_is_laplaces() -> None:
    model, data, loss, outputs = iris_network("relu")
    with pytest.raises(ValueError, match=r"at a kink.*newton\(curvature=GaussNewton\(\)\)"):
        lamu.fit(model, data, newton(), steps=60, seed=0)
    fit: Any = lamu.fit(model, data, newton(curvature=GaussNewton()), steps=60, seed=0)
    mode = tree.ravel(fit.posterior.mean["network"])[0]
    assert float(loss(mode)) < 0.562  # SciPy's BFGS ends at 0.5606 from three starts
    jacobian, p = np.asarray(jax.jacobian(outputs)(mode)), np.asarray(jax.nn.softmax(outputs(mode)))
    middle = np.einsum("nk,kl->nkl", p, np.eye(3)) - p[:, :, None] * p[:, None]
    expected = np.einsum("nki,nkl,nlj->ij", jacobian, middle, jacobian) + np.eye(mode.size)
    found = np.asarray(fit.posterior.belief.factors["network"].precision.matrix)
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)  # it is that of the step before


def test_von_by_quadrature_does_not_cycle_over_correlated_columns() -> None:
    """Twenty columns that say the same: whole steps under a diagonal precision overshoot for ever."""
    z = rng.normal(size=(100, 1))
    x = z + 0.2 * rng.normal(size=(100, 20))
    y = (rng.uniform(size=100) < expit(2 * z[:, 0])).astype(np.int32)
    model = lamu.Model(Linear(), Bernoulli(), Normal(3.0))
    fit = lamu.fit(model, (x, y), von(0.3, Diagonal, lamu.expectations.Quadrature()), steps=300, batch_size=100)
    assert fit.history["residual"][-1] < 0.5


def test_newton_steps_on_all_rows_whatever_the_batch_size() -> None:
    model = lamu.Model(Linear(), Bernoulli(), Normal(1.0))
    whole, small = (lamu.fit(model, (X, BINARY), newton(), steps=8, batch_size=size) for size in (60, 7))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), whole.state, small.state))


def test_an_error_after_the_steps_carries_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("the curvature is not to be had")

    monkeypatch.setattr("lamu.algorithms.post_hoc.laplace.fit_laplace", broken)
    model = lamu.Model(Linear(), Bernoulli())
    with pytest.raises(ValueError, match="not to be had") as caught:
        lamu.fit(model, (X, BINARY), laplace(), **SHORT)
    fit: Any = getattr(caught.value, "fit", None)
    assert fit.posterior.predict(X).mean.shape == (60,)
    assert len(fit.history["loss"]) == 6


@pytest.mark.stress
def test_cut_points_move_with_the_weights_to_the_mode() -> None:
    """Wide gaps hold much information, so that a step of their own of the size of one row's would overshoot."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    y = np.digitize(6.0 * x[:, 0] + random.logistic(size=300), [-8.0, -2.5, 3.0, 9.0])
    model = lamu.Model(lamu.networks.MLP((4,), "tanh"), lamu.likelihoods.Ordinal(5))
    posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=30).posterior
    assert posterior.convergence.residual < 0.05
    assert posterior.evidence is not None
    point = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=30).posterior
    assert lamu.scores.nll(posterior.predict(x), y) < lamu.scores.nll(point.predict(x), y) + 0.02


def test_a_median_at_its_mode_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """At the kinks of a pinball loss no gradient vanishes; it warned `Unconverged` and advised another activation."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(41, 2))
    y = x @ [1.0, -0.5] + 0.3 * generator.laplace(size=41)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Quantile(0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error", lamu.Unconverged)
        posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), steps=3000, batch_size=41).posterior
    assert posterior.convergence.converged
    assert posterior.evidence is None
    assert "kinks of a Quantile likelihood" in caplog.text
