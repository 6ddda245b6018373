"""Networks that arrive trained: no step is made, the weights stay, and the posterior is about them."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=80)
BEST = np.linalg.solve(X.T @ X + 0.09 * np.eye(3), X.T @ Y)[:, None]
GAUSSIAN = lamu.likelihoods.Gaussian(scale=0.3)


def _line(theta: Any, x: Any) -> Any:
    return x @ theta["slope"]


def test_the_posterior_of_a_trained_function_is_the_exact_one() -> None:
    model = lamu.Model(lamu.networks.Trained(_line, {"slope": BEST}), GAUSSIAN)
    fit = lamu.fit(model, (X, Y), lamu.algorithms.laplace(), epochs=0)
    assert fit.history["loss"].shape == (0,)
    np.testing.assert_array_equal(fit.posterior.mean["network"]["slope"], BEST)
    precision = X.T @ X / 0.09 + np.eye(3)
    np.testing.assert_allclose(fit.posterior.belief.factors["network"].precision.dense({"slope": BEST}), precision)


def test_weights_of_an_earlier_run_count_as_trained() -> None:
    model = lamu.Model(lamu.networks.Linear(), GAUSSIAN)
    first = lamu.fit(model, (X, Y), lamu.algorithms.adam(0.1), epochs=40).posterior
    fit = lamu.fit(model.starting_at(first.mean), (X, Y), lamu.algorithms.last_layer(), epochs=0, validation=0.2)
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, fit.posterior.mean, first.mean)))


def test_more_epochs_go_on_from_the_trained_weights() -> None:
    model = lamu.Model(lamu.networks.Trained(_line, {"slope": BEST}), GAUSSIAN)
    fit = lamu.fit(model, (X, Y), lamu.algorithms.sgd(1e-6), epochs=1, batch_size=80)
    np.testing.assert_allclose(fit.posterior.mean["network"]["slope"], BEST, atol=1e-5)


def test_random_weights_are_refused() -> None:
    model = lamu.Model(lamu.networks.MLP((4,)), GAUSSIAN).standardised(X, Y)
    with pytest.raises(ValueError, match="epochs=0 would make a posterior of the random weights of MLP"):
        lamu.fit(model, (X, Y), lamu.algorithms.laplace(), epochs=0)
    with pytest.raises(ValueError, match="a length of its own"):
        lamu.fit(model.starting_at({}), (X, Y), lamu.mcmc.nuts(), epochs=0)


def test_a_slope_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for slope, warned in ((BEST, False), (BEST + 1.0, True)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lamu"):
            model = lamu.Model(lamu.networks.Trained(_line, {"slope": slope}), GAUSSIAN)
            lamu.fit(model, (X, Y), lamu.algorithms.laplace(), epochs=0)
        assert ("far from a minimum" in caplog.text) is warned


def test_a_distance_from_the_mode_is_told_only_where_the_rows_see_it(caplog: pytest.LogCaptureFixture) -> None:
    """δ = S⁻¹g moves the outputs by Xδ, of posterior variance XS⁻¹Xᵀ: a weight that no row reads has no part in it."""
    x = np.concatenate([X[:, :2], np.zeros((len(X), 1))], axis=1)
    H = x.T @ x / 0.09
    S = H + np.eye(3)
    mode = np.linalg.solve(S, x.T @ Y[:, None] / 0.09)
    unseen = mode + np.array([[0.0], [0.0], [9.0]])
    seen = mode + np.linalg.cholesky(np.linalg.inv(S)) @ np.array([[2.0], [1.0], [0.0]])
    for start, told in ((unseen, False), (seen, True)):
        model = lamu.Model(lamu.networks.Trained(_line, {"slope": start}), GAUSSIAN)
        caplog.clear()
        with warnings.catch_warnings(record=True) as said, caplog.at_level(logging.WARNING, "lamu"):
            warnings.simplefilter("always")
            fit = lamu.fit(model, (x, Y), lamu.algorithms.laplace(structure=lamu.operators.Dense), epochs=0)
        found = fit.convergence
        assert fit.posterior.evidence is None
        assert ("no evidence: the residual at the mode is 9 nats" in caplog.text) is not told
        away = start - mode
        gamma = 3 - np.trace(np.linalg.inv(S))
        np.testing.assert_allclose(found.residual, np.sqrt(away.T @ S @ away).item(), rtol=1e-6)
        np.testing.assert_allclose(found.shift, np.sqrt(away.T @ H @ away / gamma).item(), atol=1e-6)
        assert found.converged is not told
        texts = [str(each.message) for each in said if issubclass(each.category, lamu.Unconverged)]
        assert bool(texts) is told
        assert all("the outputs at the rows are" in text and "train them longer" in text for text in texts)


def test_the_pull_of_a_prior_whose_scale_is_open_is_no_distance() -> None:
    """`LearnedNormal` chooses a scale for the weights as they are: only the likelihood's slope is left to go."""
    best = np.linalg.lstsq(X, Y, rcond=None)[0][:, None]
    model = lamu.Model(lamu.networks.Trained(_line, {"slope": best}), GAUSSIAN, lamu.priors.LearnedNormal(0.01))
    algorithm = lamu.algorithms.laplace(structure=lamu.operators.Dense)
    found = lamu.fit(model, (X, Y), algorithm, epochs=0).convergence
    assert found.shift < 1e-4
    assert found.converged


def test_a_function_is_given_again_when_its_posterior_is_loaded(tmp_path: Path) -> None:
    network = lamu.networks.Trained(_line, {"slope": BEST})
    posterior = lamu.fit(lamu.Model(network, GAUSSIAN), (X, Y), lamu.algorithms.laplace(), epochs=0).posterior
    folder = posterior.save(tmp_path / "posterior")
    with pytest.raises(ValueError, match=r"_line' was not saved, and is needed; .* lamu\.load\(path, network=\.\.\.\)"):
        lamu.load(folder)
    again = lamu.load(folder, network=network)
    np.testing.assert_array_equal(again.predict(X).std, posterior.predict(X).std)


def test_what_cannot_be_a_trained_network() -> None:
    with pytest.raises(TypeError, match="function=3 cannot be called"):
        lamu.networks.Trained(3, {})  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="the parameters are a list; give nested dictionaries"):
        lamu.networks.Trained(_line, [1.0])
    with pytest.raises(ValueError, match="the pattern 'last/"):
        lamu.networks.Trained(_line, {"slope": BEST}, head="last/*")


ROWS = rng.normal(size=(60, 6)).astype(np.float32)
CLASSES = np.argmax(ROWS[:, :3] + 0.3 * rng.normal(size=(60, 3)), axis=1)


def _head(width: int, classes: int = 3, outputs_last: bool = True) -> lamu.networks.Trained:
    """A layer of `width` fixed features and a head, whose kernel has the outputs last or first."""
    kernel = rng.normal(size=(width, classes)) / np.sqrt(width)
    params = {"below": {"w": rng.normal(size=(6, width))}, "head": {"w": kernel if outputs_last else kernel.T}}

    def function(theta: Any, x: Any) -> Any:
        hidden = jnp.tanh(x @ theta["below"]["w"])
        return hidden @ (theta["head"]["w"] if outputs_last else theta["head"]["w"].T)

    return lamu.networks.Trained(function, jax.tree.map(jnp.float32, params), head="head/*")


@pytest.mark.parametrize(("classes", "name"), [(3, "Dense"), (30, "BlockDiagonal"), (600, "BlockDiagonal")])
def test_a_large_head_is_factored_whatever_its_layout(classes: int, name: str) -> None:
    """Weights that arrive trained are to be believed in a tenth of their training; PyTorch has the outputs first."""
    network = _head(40, classes, outputs_last=False)
    model = lamu.Model(network, lamu.likelihoods.Categorical(classes), lamu.priors.Normal(0.1))
    posterior: Any = lamu.fit(model, (ROWS, CLASSES), lamu.algorithms.last_layer(), epochs=0).posterior
    assert type(posterior.belief.factors["network"].precision).__name__ == name
    assert bool(jnp.isfinite(posterior.predict(ROWS).mean).all())


@pytest.mark.stress
def test_classes_of_trained_weights_are_predicted_by_the_probit() -> None:
    from lamu.predictives import Linearised, Probit

    model = lamu.Model(_head(20), lamu.likelihoods.Categorical(3), lamu.priors.Normal(0.1))
    for rule, expected in ((None, Probit()), (Linearised(), Linearised())):
        algorithm = lamu.algorithms.last_layer(rule=rule)
        assert lamu.fit(model, (ROWS, CLASSES), algorithm, epochs=0).posterior.rule == expected
    trained = lamu.fit(model, (ROWS, CLASSES), lamu.algorithms.last_layer(), epochs=1).posterior
    assert trained.rule == Linearised()


def test_rows_that_the_network_has_seen_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    model = lamu.Model(lamu.networks.Trained(_line, {"slope": BEST}), GAUSSIAN)
    for validation, said in ((0.2, True), ((X[:9] + 0.01, Y[:9]), False), (None, False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lamu"):
            lamu.fit(model, (X, Y), lamu.algorithms.laplace(), epochs=0, validation=validation)
        assert ("validation=0.2 sets aside rows of the data" in caplog.text) == said


def test_a_scale_that_rows_of_training_choose_is_told_for_classes(caplog: pytest.LogCaptureFixture) -> None:
    """Of digits such last layers gave other rows .36 nats where the network had .23; rows to validate gave .17."""
    classes, chosen = lamu.likelihoods.Categorical(3), lamu.priors.LearnedNormal()
    for prior, validation, said in (
        (chosen, None, True),
        (chosen, (ROWS[:30] + 0.01, CLASSES[:30]), False),
        (None, None, False),
    ):
        model = lamu.Model(_head(20), classes, prior or lamu.priors.Normal(0.1))
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lamu"):
            lamu.fit(model, (ROWS, CLASSES), lamu.algorithms.last_layer(), epochs=0, validation=validation)
        assert ("is chosen by the rows that the network has learned from" in caplog.text) == said


@pytest.mark.parametrize("prior", [lamu.priors.Normal(10.0), lamu.priors.LearnedNormal()])
def test_the_noise_around_weights_that_arrived_is_that_of_their_residuals(prior) -> None:
    """Each output's own, R/(M - γ) for the weights that the rows determine, and not how far its targets are spread."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3))
    y = np.stack([3 * x[:, 0], 10 * x[:, 1]], axis=1) + np.array([0.05, 2.0]) * rng.normal(size=(150, 2))
    columns = np.c_[x, np.ones(150)]
    weights = np.linalg.lstsq(columns, y, rcond=None)[0]
    function = lambda theta, x: x @ theta["kernel"] + theta["bias"][None]
    network = lamu.networks.Trained(function, {"kernel": weights[:3], "bias": weights[3]}, head="*")
    model = lamu.Model(network, lamu.likelihoods.Gaussian(), prior)
    expected = np.sqrt(((y - columns @ weights) ** 2).sum(axis=0) / (150 - 4))
    for algorithm in (lamu.algorithms.last_layer(), lamu.algorithms.laplace()):
        posterior = lamu.fit(model, (x, y), algorithm, epochs=0).posterior
        np.testing.assert_allclose(np.exp(posterior.mean["likelihood"]["log_scale"]), expected, rtol=5e-3)
        np.testing.assert_allclose(posterior.predict(x).std.mean(axis=0), expected * np.sqrt(1 + 4 / 150), rtol=1e-2)


@pytest.mark.parametrize("likelihood", [lamu.likelihoods.StudentT(5.0), lamu.likelihoods.NegativeBinomial()])
def test_other_dispersions_around_weights_that_arrived_are_the_most_probable_there(likelihood) -> None:
    from scipy.optimize import minimize_scalar

    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    f = x @ np.array([[1.5], [-1.0]])
    t = f[:, 0] + 0.1 * rng.standard_t(5, size=200)
    y = t if likelihood.support.ordered and not likelihood.support.discrete else rng.poisson(np.exp(f[:, 0]))
    network = lamu.networks.Trained(
        lambda theta, x: x @ theta["kernel"], {"kernel": np.array([[1.5], [-1.0]])}, head="*"
    )
    model = lamu.Model(network, likelihood, lamu.priors.Normal(10.0))
    posterior = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=0).posterior
    [(name, found)] = posterior.mean["likelihood"].items()

    def loss(value: float) -> float:
        params = {name: jnp.full_like(found, value)}
        rows = likelihood.log_prob(params, jnp.asarray(f), jnp.asarray(y))
        return -float(jnp.sum(rows)) - float(model.dispersion_log_prior(params))

    expected = minimize_scalar(loss, bounds=(-8.0, 8.0), method="bounded", options={"xatol": 1e-6}).x
    np.testing.assert_allclose(found, expected, atol=1e-3 * max(1.0, abs(expected)))


@pytest.mark.parametrize("algorithm", [lamu.algorithms.neural_linear(), lamu.algorithms.variational_head()])
def test_a_head_with_its_outputs_first_is_refused(algorithm) -> None:
    """Also a square one, whose shape does not tell."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x + 0.1 * rng.normal(size=(40, 3))
    network = lamu.networks.Torch(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)), head="1/*")
    with pytest.raises(TypeError, match=r"outputs first.*last_layer"):
        lamu.fit(lamu.Model(network, lamu.likelihoods.Gaussian()), (x, y), algorithm, epochs=1)


def test_a_head_of_ones_own_with_its_outputs_first_is_refused() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    weights = {"kernel": rng.normal(size=(3, 3))}
    network = lamu.networks.Trained(lambda theta, x: jnp.tanh(x) @ theta["kernel"].T, weights, head="kernel")
    model = lamu.Model(network, lamu.likelihoods.Gaussian())
    with pytest.raises(TypeError, match=r"'kernel' than its first column .*last_layer"):
        lamu.fit(model, (x, np.sin(x)), lamu.algorithms.neural_linear(), epochs=0)


def test_the_unit_of_a_neural_linear_prior_is_the_noise_at_weights_that_arrived() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = 5 * x[:, 0] + 0.1 * rng.normal(size=60)
    network = lamu.networks.Trained(
        lambda theta, x: x @ theta["kernel"], {"kernel": np.array([[5.0], [0.0]])}, head="*"
    )
    model = lamu.Model(network, lamu.likelihoods.Gaussian(), lamu.priors.Normal(10.0))
    posterior = lamu.fit(model, (x, y), lamu.algorithms.neural_linear(), epochs=0).posterior
    residuals = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(posterior.predict(x).std.mean(), residuals.std(), rtol=0.1)


def test_the_noise_around_weights_that_arrived_hears_weights_and_offsets() -> None:
    """A row of weight two is the row twice, and an offset is a part of what is predicted."""
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(60, 3)), np.array([[1.0], [2.0], [-1.0]])
    times, offset = np.where(np.arange(60) < 30, 3, 1), rng.normal(size=60)
    y = (x @ kernel)[:, 0] + offset + np.where(times == 3, 0.1, 0.5) * rng.normal(size=60)
    network = lamu.networks.Trained(
        lambda theta, x: x @ theta["kernel"], {"kernel": jnp.asarray(kernel)}, head="kernel"
    )
    model = lamu.Model(network, lamu.likelihoods.Gaussian(), lamu.priors.Normal(1.0))

    def log_scale(**data: np.ndarray) -> np.ndarray:
        belief = lamu.fit(model, data, lamu.algorithms.laplace(), epochs=0).posterior.belief
        return np.asarray(belief.mean["likelihood"]["log_scale"])

    rows = np.repeat(np.arange(60), times)
    written = log_scale(x=x[rows], y=y[rows], offset=offset[rows])
    np.testing.assert_allclose(log_scale(x=x, y=y, offset=offset, weight=times.astype(float)), written, atol=1e-3)
    assert np.all(log_scale(x=x, y=y, offset=offset) - written > 0.1)
    assert np.all(log_scale(x=x, y=y, weight=times.astype(float)) - written > 0.5)


SIGNS = (Y > 0).astype(int)


@pytest.mark.parametrize(
    ("network", "likelihood", "y", "words"),
    [
        (_line, lamu.likelihoods.Gaussian(), Y, None),
        (_line, lamu.likelihoods.Gaussian(5.0), Y, None),  # a noise that is too large is no fault of the network
        (_line, lamu.likelihoods.Gaussian(), 100 + 20 * Y, r"is about 99\.43 \+ 20\.02 times"),
        (_line, lamu.likelihoods.Scaled(lamu.likelihoods.Gaussian(), 100.0, 20.0), 100 + 20 * Y, None),
        (lambda theta, x: 3 + _line(theta, x[:, ::-1]), lamu.likelihoods.Gaussian(), Y, "and order of columns$"),
        (lambda theta, x: 5 * _line(theta, x), lamu.likelihoods.Bernoulli(), SIGNS, None),
        (lambda theta, x: 5 * _line(theta, x), lamu.likelihoods.Bernoulli(), 1 - SIGNS, "and of the classes$"),
        (
            lambda theta, x: jnp.concatenate([_line(theta, x), 0 * x[:, :1] - 8], 1),
            lamu.likelihoods.HeteroscedasticGaussian(),
            Y,
            "no log variance",
        ),
    ],
)
def test_a_network_that_knows_less_than_a_constant_is_told(network: Any, likelihood: Any, y: Any, words: Any) -> None:
    model = lamu.Model(lamu.networks.Trained(network, {"slope": BEST}), likelihood)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", lamu.Underfit)
        lamu.fit(model, (X, y), lamu.algorithms.laplace(structure=lamu.operators.Diagonal), epochs=0)
    told = [str(each.message) for each in caught if each.category is lamu.Underfit]
    assert len(told) == (words is not None)
    if words is not None:
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(told[0])
