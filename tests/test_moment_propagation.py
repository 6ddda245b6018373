"""Probabilistic backpropagation beside quadrature and conjugate Bayes, and what it refuses.

Row after row by hand in NumPy, with the prior's factors, is `lamu verify pbp`.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import lamu
from lamu.algorithms import pbp
from lamu.algorithms.moments import MomentState, PriorFactors, moment_matched, require_variance
from lamu.data import Arrays, Batch
from lamu.families import Gamma
from lamu.families.matrix_normal import NoiseScale
from lamu.networks import MLP, BatchNorm, Linear
from lamu.objective import Objective
from lamu.predictives.moment_propagation import Propagated, moments, rectified
from lamu.priors import Normal

rng = np.random.default_rng(2)
X = rng.normal(size=(6, 2))
Y = np.maximum(X @ np.array([1.0, -0.5]), 0.0) + 0.1 * rng.normal(size=6)


def start(widths=(3,), likelihood=None, dtype=np.float64, **objective):
    model = lamu.Model(MLP(widths), likelihood or lamu.likelihoods.Gaussian())
    batch = Batch.of(X.astype(dtype), Y.astype(dtype))
    whole = Objective(model, 100.0, **objective)
    return pbp().init(jax.random.key(0), whole, batch), batch, whole


def step(state, batch, objective) -> MomentState:
    return jax.jit(pbp().step)(jax.random.key(1), state, batch, objective)[0]


def flat(params) -> np.ndarray:
    return np.asarray(lamu.tree.ravel(params)[0])


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (1.3, 0.4), (-2.0, 0.7), (30.0, 0.01), (-8.0, 1.0)])
def test_a_rectified_normal_has_the_moments_of_quadrature(mean, variance) -> None:
    deviation = variance**0.5
    ends = sorted((max(mean - 12 * deviation, 0.0), max(mean + 12 * deviation, 0.0)))
    density = stats.norm(mean, deviation).pdf
    powers = (lambda z: z * density(z), lambda z: z**2 * density(z))
    first, second = (integrate.quad(power, *ends, epsabs=1e-30, epsrel=1e-12)[0] for power in powers)
    found = rectified(jnp.asarray(mean), jnp.asarray(variance))
    np.testing.assert_allclose(found[0], first, rtol=1e-8)
    np.testing.assert_allclose(found[1], second - first**2, rtol=1e-6)


def test_a_rectified_normal_is_finite_far_out_in_float32() -> None:
    """The way a gradient takes, too: a unit that is never on, and one that is never off."""
    mean = jnp.array([-1e4, -40.0, 0.0, 40.0, 1e4], jnp.float32)
    variance = jnp.full(5, 0.01, jnp.float32)
    values = rectified(mean, variance)
    np.testing.assert_allclose(values[0], np.maximum(mean, 0), atol=0.05)
    np.testing.assert_allclose(values[1][3:], 0.01, rtol=1e-5)
    assert np.all(np.asarray(values[1]) >= 0)
    slopes = jax.jacobian(lambda m, v: sum(map(jnp.sum, rectified(m, v))), argnums=(0, 1))(mean, variance)
    assert all(np.all(np.isfinite(slope)) for slope in slopes)


def test_propagated_moments_are_those_of_draws_where_hidden_units_are_normal() -> None:
    """One hidden layer: exact. 100,000 draws of the weights, three inputs, within five standard errors."""
    state = start()[0]
    state = replace(state, variance=jax.tree.map(lambda v: 0.3 * v, state.variance))
    x = jnp.asarray(X[:3])
    mean, variance = jax.vmap(lambda row: moments(state.mean, state.variance, row))(x)
    draws = 100_000
    noise = jax.tree.map(
        lambda m, v, k: m[None] + jnp.sqrt(v)[None] * jax.random.normal(k, (draws, *m.shape), m.dtype),
        state.mean,
        state.variance,
        lamu.tree.keys_like(jax.random.key(3), state.mean),
    )
    layers = noise["layers"]
    hidden = jnp.einsum("ni,siu->snu", x, layers[0]["kernel"]) + layers[0]["bias"][:, None]
    f = np.asarray(
        jnp.einsum("snu,suo->sno", jnp.maximum(hidden, 0.0), layers[1]["kernel"]) + layers[1]["bias"][:, None]
    )
    kurtosis = np.mean((f - f.mean(0)) ** 4, axis=0) / f.var(axis=0) ** 2
    assert np.max(np.abs(f.mean(axis=0) - mean) / f.std(axis=0)) < 5 / draws**0.5
    assert np.all(np.abs(f.var(axis=0) / variance - 1) < 5 * np.sqrt((kurtosis - 1) / draws))


def test_a_row_moves_a_tiny_network_to_the_moments_of_quadrature() -> None:
    """One unit, four weights, a grid of 24⁴ points: what is left is that the output is not quite normal.

    The means move by a tenth of their deviations and more; they and the variances end within 3 % of that move, and of
    the variance, of where the quadrature has them.
    """
    mean = {"layers": {0: {"bias": jnp.array([0.4]), "kernel": jnp.array([[0.9]])}}}
    mean["layers"][1] = {"bias": jnp.array([-0.1]), "kernel": jnp.array([[0.7]])}
    variance = jax.tree.map(lambda m: jnp.full_like(m, 0.02), mean)
    model = lamu.Model(MLP((1,)), lamu.likelihoods.Gaussian(0.4))
    batch = Batch.of(np.array([[1.2]]), np.array([1.6]))
    objective = Objective(model, 100.0)
    state = replace(pbp().init(jax.random.key(0), objective, batch), mean=mean, variance=variance)
    found = step(state, batch, objective)
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack(np.meshgrid(*[nodes] * 4, indexing="ij")).reshape(4, -1)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * 4, indexing="ij")).reshape(4, -1), axis=0)
    # In the order of the ravelled weights: bias, kernel, bias, kernel.
    theta = flat(mean)[:, None] + 0.02**0.5 * grid
    f = np.maximum(theta[1] * 1.2 + theta[0], 0.0) * theta[3] + theta[2]
    mass = mass * stats.norm.pdf(1.6, f, 0.4)
    mass = mass / mass.sum()
    centre = theta @ mass
    spread = (theta - centre[:, None]) ** 2 @ mass
    moved = centre - flat(mean)
    assert np.max(np.abs(moved)) > 0.1 * 0.02**0.5
    assert np.max(np.abs(flat(found.mean) - centre)) < 0.03 * np.max(np.abs(moved))
    assert np.max(np.abs(flat(found.variance) - spread)) < 0.03 * 0.02


def test_where_the_output_is_normal_a_row_is_conjugate_bayes() -> None:
    """Hidden weights that are known: the last layer's marginals are those of linear regression with known noise."""
    state, batch, objective = start(likelihood=lamu.likelihoods.Gaussian(0.5))
    tiny = jax.tree.map(lambda v: 1e-14 * v, state.variance["layers"][0])
    state = replace(state, variance={"layers": {0: tiny, 1: state.variance["layers"][1]}})
    one = jax.tree.map(lambda leaf: leaf[:1], batch)
    found = step(state, one, objective)
    first = state.mean["layers"][0]
    hidden = np.maximum(X[0] @ np.asarray(first["kernel"]) + np.asarray(first["bias"]), 0.0)
    design = np.concatenate([[1.0], hidden])
    prior = flat(state.variance["layers"][1])
    covariance = np.linalg.inv(np.diag(1 / prior) + np.outer(design, design) / 0.25)
    expected = covariance @ (flat(state.mean["layers"][1]) / prior + design * Y[0] / 0.25)
    np.testing.assert_allclose(flat(found.mean["layers"][1]), expected, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(flat(found.variance["layers"][1]), np.diag(covariance), rtol=1e-9)


def test_the_noises_belief_has_the_moments_of_the_published_ratios() -> None:
    """Equations 9 and 10 as they stand, in float64; and in float32 after many rows, where they have no digits left."""

    def published(a, b, variance, square):
        v = [variance + b / (a + away) for away in (-1.0, 0.0, 1.0)]
        z = [np.exp(-square / (2 * each)) / np.sqrt(each) for each in v]
        shape = 1 / (z[2] * z[0] / z[1] ** 2 * (a + 1) / a - 1)
        return shape, 1 / (z[2] / z[1] * (a + 1) / b - z[1] / z[0] * a / b)

    for case in ((6.0, 6.0, 0.3, 2.0), (40.0, 3.0, 0.01, 0.05), (9000.0, 700.0, 0.02, 0.2)):
        expected = published(*case)
        np.testing.assert_allclose(moment_matched(*case), expected, rtol=1e-8)
        single = moment_matched(*(jnp.float32(number) for number in case))
        np.testing.assert_allclose(np.asarray(single), expected, rtol=1e-5)


def test_a_prior_factor_gives_the_moments_of_quadrature() -> None:
    """One weight: the tilted belief of weight and precision, on a grid; the weight's given the precision's mean."""
    a, b, centre, unit = 6.0, 5.0, 0.2, 0.5
    factors = PriorFactors.first(jnp.array([centre]), jnp.array([unit]), Gamma(jnp.array(a), jnp.array(b)))
    cavity_mean, cavity_variance = 1.1, 0.3
    precision = 1 / cavity_variance + float(factors.precision[0])
    mean = centre + (cavity_mean - centre) / cavity_variance / precision
    found_mean, found_variance, after = factors.refined(jnp.array([mean]), jnp.array([1 / precision]))
    total = cavity_variance + unit * b / (a - 1)
    expected = 1 / (1 / cavity_variance + (a - 1) / (unit * b))
    np.testing.assert_allclose(found_variance[0], expected, rtol=1e-9)
    np.testing.assert_allclose(
        found_mean[0], centre + (cavity_mean - centre) * (1 - cavity_variance / total), rtol=1e-9
    )
    # The precision by Student's integral, whose two moments the normal densities of its variance stand for.
    grid = np.linspace(1e-3, 8.0, 200_001)
    weight = stats.gamma.pdf(grid, a, scale=1 / b) * stats.norm.pdf(
        cavity_mean, centre, np.sqrt(cavity_variance + unit / grid)
    )
    student = np.sum(grid * weight) / np.sum(weight)
    assert abs(float(after.belief.shape / after.belief.rate) - student) < 0.05 * abs(student - a / b) + 0.02
    again = factors.refined(jnp.array([mean]), jnp.array([1 / precision]))[2]
    removed = float(after.belief.shape - again.shape[0]), float(after.belief.rate - again.rate[0])
    np.testing.assert_allclose(removed, (a, b), rtol=1e-9)


@pytest.mark.stress
def test_rows_count_as_often_as_they_weigh() -> None:
    """Padding and a weight of zero are nothing; a temperature of two is a weight of a half; a batch is its rows."""
    state, batch, objective = start()
    whole = step(state, batch, objective)
    halves = [jax.tree.map(lambda leaf, part=part: leaf[part], batch) for part in (slice(0, 3), slice(3, 6))]
    in_two = step(step(state, halves[0], objective), halves[1], objective)
    np.testing.assert_allclose(flat(whole.mean), flat(in_two.mean), rtol=1e-12)
    nothing = replace(batch, weight=jnp.zeros(6))
    np.testing.assert_array_equal(flat(step(state, nothing, objective).mean), flat(state.mean))
    warm = step(state, batch, replace(objective, temperature=2.0))
    light = step(state, replace(batch, weight=jnp.full(6, 0.5)), objective)
    np.testing.assert_array_equal(flat(warm.mean), flat(light.mean))
    assert np.sum(np.log(flat(whole.variance))) < np.sum(np.log(flat(warm.variance)))
    shifted = replace(batch, y=batch.y + 1.0, offset=jnp.ones(6))
    np.testing.assert_allclose(flat(step(state, shifted, objective).mean), flat(whole.mean), rtol=1e-9)


@pytest.mark.stress
def test_a_row_counts_once_however_many_passes_are_made() -> None:
    """Known hidden units and noise: the last layer ends at the regression's means, no narrower than a mean field.

    What the belief about the noise learns is half a row of shape for each row, not for each row of each pass.
    """
    algorithm = pbp(prior=Gamma(1e8, 1e8))
    model = lamu.Model(MLP((2,)), lamu.likelihoods.Gaussian(0.5))
    batch, objective = Batch.of(X, Y), Objective(model, 6.0)
    state = algorithm.init(jax.random.key(0), objective, batch)
    hidden = {"bias": jnp.array([0.5, 0.8]), "kernel": jnp.array([[1.0, -0.6], [0.3, 0.8]])}
    tight = jax.tree.map(lambda m: jnp.full_like(m, 1e-10), hidden)
    head = {name: state.factors.unit["layers"][1][name] for name in ("bias", "kernel")}
    centre = {"layers": {0: hidden, 1: lamu.tree.zeros_like(head)}}
    factors = PriorFactors.first(centre, {"layers": {0: tight, 1: head}}, state.factors.belief)
    state = replace(state, mean=centre, variance=factors.variance, factors=factors)
    run = jax.jit(lambda state: algorithm.step(jax.random.key(1), state, batch, objective)[0])
    design = np.maximum(X @ np.asarray(hidden["kernel"]) + np.asarray(hidden["bias"]), 0.0)
    design = np.concatenate([np.ones((6, 1)), design], axis=1)
    prior = 1 / flat(state.variance["layers"][1])
    exact = np.linalg.inv(np.diag(prior) + design.T @ design / 0.25)
    for _ in range(60):
        state = run(state)
    found_precision = 1 / flat(state.variance["layers"][1])
    assert np.all(found_precision < 1.001 * (prior + np.sum(design**2, axis=0) / 0.25))
    error = (flat(state.mean["layers"][1]) - exact @ design.T @ Y / 0.25) / np.sqrt(np.diag(exact))
    assert np.max(np.abs(error)) < 0.1

    state, batch, objective = start()
    objective = replace(objective, data_size=6.0)
    for _ in range(10):
        state = step(state, batch, objective)
    assert float(state.noise.shape[0]) < 1.15 + 3.0


def test_a_row_of_weight_zero_takes_no_share_out_of_the_belief() -> None:
    """Three passes over seven rows of which one does not count, beside three over the other six."""
    state, batch, objective = start()
    seven = Batch.of(np.concatenate([X[:2], X[:1], X[2:]]), np.concatenate([Y[:2], [9.0], Y[2:]]))
    seven = replace(seven, weight=jnp.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]))
    one = other = state
    for _ in range(3):
        one = step(one, batch, replace(objective, data_size=6.0))
        other = step(other, seven, replace(objective, data_size=7.0))
    np.testing.assert_allclose(flat(one.mean), flat(other.mean), rtol=1e-10)
    np.testing.assert_allclose(flat(one.variance), flat(other.variance), rtol=1e-10)


def test_scaled_targets_and_inputs_are_the_same_run() -> None:
    """A run on 10 y + 3 and 2 x − 1, standardised: predictions in their units, the loss with its Jacobian."""
    fits = []
    for x, y in ((X, Y), (2 * X - 1, 10 * Y + 3)):
        model = lamu.Model(MLP((3,)), lamu.likelihoods.Gaussian()).standardised(x, y)
        fits.append((lamu.fit(model, (x, y), pbp(), epochs=3), x))
    one, ten = (fit.posterior.predict(x) for fit, x in fits)
    np.testing.assert_allclose(ten.mean, 10 * one.mean + 3, rtol=1e-8)
    np.testing.assert_allclose(ten.variance, 100 * one.variance, rtol=1e-8)
    first, second = (fit.history["loss"] for fit, _ in fits)
    np.testing.assert_allclose(second, first + np.log(10), rtol=1e-8)


@pytest.mark.stress
def test_the_loss_is_of_rows_that_were_not_seen_before_and_falls() -> None:
    x, y = lamu.data.load("diabetes")
    model = lamu.Model(MLP((10,)), lamu.likelihoods.Gaussian()).standardised(x, y)
    fit = lamu.fit(model, (x, y), pbp(), epochs=4)
    loss = fit.history["loss"].reshape(4, -1).mean(axis=1)
    assert loss[0] - loss[-1] > 0.05  # most is learned within the first pass
    assert float(fit.state.factors.belief.shape) > 20  # six before any data
    noise = fit.posterior.belief.factors["likelihood"]
    assert isinstance(noise, NoiseScale)
    deviation = np.exp(noise.mean["log_scale"][0]) * float(np.std(y))
    assert 45 < deviation < 65
    assert isinstance(fit.posterior.rule, Propagated)


def test_the_noise_scale_is_a_gamma_seen_through_a_logarithm() -> None:
    """Density against the change of variables on a grid, entropy and draws against the density."""
    belief = NoiseScale(Gamma(jnp.array([5.0]), jnp.array([2.0])))
    grid = np.linspace(-3.0, 3.0, 20_001)
    logs = np.asarray(jax.vmap(lambda s: belief.log_prob({"log_scale": s[None]}))(jnp.asarray(grid)))
    cell = grid[1] - grid[0]
    assert abs(np.sum(np.exp(logs)) * cell - 1) < 1e-8
    assert abs(float(belief.entropy()) + np.sum(np.exp(logs) * logs) * cell) < 1e-8
    draws = np.asarray(belief.draws(jax.random.key(0), 20_000)["log_scale"])[:, 0]
    mean = np.sum(np.exp(logs) * grid) * cell
    assert abs(draws.mean() - mean) < 5 * draws.std() / 20_000**0.5
    np.testing.assert_allclose(np.exp(2 * belief.mean["log_scale"]), 0.5, rtol=1e-12)


def test_mistakes_say_what_to_do() -> None:
    rows = (X, Y)
    gaussian = lamu.likelihoods.Gaussian()
    refused = (
        (lamu.Model(Linear(), gaussian), TypeError, "rectifiers and nothing else"),
        (lamu.Model(MLP((3,), "tanh"), gaussian), TypeError, "rectifiers and nothing else"),
        (lamu.Model(MLP((3,), normalise=BatchNorm()), gaussian), TypeError, "rectifiers and nothing else"),
        (lamu.Model(MLP((3,)), lamu.likelihoods.HeteroscedasticGaussian()), TypeError, "not of Heteroscedastic"),
        (lamu.Model(MLP((3,)), gaussian, lamu.priors.ScaleMixture()), TypeError, "independent normal weights"),
    )
    for model, kind, words in refused:
        with pytest.raises(kind, match=words):
            lamu.fit(model, rows, pbp(), steps=1)
    model = lamu.Model(MLP((3,)), gaussian, Normal(1.0))
    params, _ = model.init(jax.random.key(0), Batch.of(X, Y))
    with pytest.raises(ValueError, match="without frozen weights"):
        lamu.fit(model.freeze(params, "layers/0/*"), rows, pbp(), steps=1)
    with pytest.raises(ValueError, match=r"shape 1\.0"):
        pbp(noise=Gamma(1.0, 1.0))
    with pytest.raises(TypeError, match="not a belief about a precision"):
        require_variance(6.0, "prior")
    state, _, objective = start()
    posterior = pbp().posterior(jax.random.key(0), state, objective, Arrays.of(rows), None)
    with pytest.raises(TypeError, match="use Sampled"):
        posterior.rule.predict(posterior.model, lamu.families.Point(posterior.mean), {}, X, 1, jax.random.key(0))
