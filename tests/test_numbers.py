"""Numbers that a wrong sign, a factor or a lost weight would move: each beside its closed form, without training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lamu
from lamu.calibration import LeftOut
from lamu.convergence import Convergence
from lamu.divergences import Renyi, renyi_divergence
from lamu.families import Gaussian as Normal
from lamu.likelihoods import Beta, Binomial, Gamma, Gaussian, NegativeBinomial, Poisson, StudentT, Weibull, ZeroInflated
from lamu.mcmc.chains import Adaptation
from lamu.operators import Diagonal
from lamu.priors import ScaleMixture, SpikeAndSlab
from lamu.running.fixed_point import _squared_norm
from lamu.supports import Real

rng = np.random.default_rng(11)
X = rng.normal(size=(30, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.4 * rng.normal(size=30)
LINEAR = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4), lamu.priors.Normal(1.3))


@pytest.mark.parametrize("alpha", [0.3, 0.7, 2.0])
def test_renyis_divergence_is_the_integral_in_this_order(alpha: float) -> None:
    """Of N(0.4, 0.6²) from N(−0.5, 1.1²): by a trapezoidal sum, not symmetric in the two nor in α and 1 − α."""
    q, p = (Normal(jnp.array([m]), Diagonal(jnp.array([s**-2]))) for m, s in ((0.4, 0.6), (-0.5, 1.1)))
    z = np.linspace(-20, 20, 40_001)
    density = np.exp(alpha * stats.norm.logpdf(z, 0.4, 0.6) + (1 - alpha) * stats.norm.logpdf(z, -0.5, 1.1))
    expected = np.log(np.trapezoid(density, z)) / (alpha - 1)
    np.testing.assert_allclose(renyi_divergence(q, p, alpha), expected, rtol=1e-6)


def test_renyis_bound_is_the_power_mean_of_weights() -> None:
    """At order zero the importance-weighted bound, at one the mean, at two a harmonic mean; and their weights."""
    log_weights = jnp.array([0.3, -1.2, 0.9, -0.4])
    w = np.exp(np.asarray(log_weights))
    for alpha, expected in (
        (0.0, np.log(w.mean())),
        (0.5, 2 * np.log(np.sqrt(w).mean())),
        (2.0, -np.log((1 / w).mean())),
    ):
        np.testing.assert_allclose(-Renyi(alpha).value(log_weights), expected, rtol=1e-6)
        power = w ** (1 - alpha)
        np.testing.assert_allclose(Renyi(alpha).shares(log_weights), power / power.sum(), rtol=1e-6)
    np.testing.assert_allclose(-Renyi(1.0).value(log_weights), np.log(w).mean(), rtol=1e-6)
    np.testing.assert_allclose(Renyi(0.5).surrogate(jnp.array(-3.0), jnp.array(-1.0)), 2.0)


@pytest.mark.parametrize("prior", [SpikeAndSlab(2.0, share=0.3, spike=0.05), ScaleMixture(0.25, wide=1.5, narrow=0.2)])
def test_a_spike_and_slab_is_a_density_and_its_draws_are_of_it(prior: Any) -> None:
    z = np.linspace(-30, 30, 240_001)
    density = np.exp(np.asarray(jax.vmap(lambda t: prior.log_prob({"w": t[None]}))(jnp.asarray(z))))
    np.testing.assert_allclose(np.trapezoid(density, z), 1.0, rtol=1e-6)
    share, wide, narrow = prior.share, prior.scale, prior.spike * prior.scale
    expected = share * stats.norm.pdf(z, 0, wide) + (1 - share) * stats.norm.pdf(z, 0, narrow)
    np.testing.assert_allclose(density, expected, rtol=1e-6, atol=1e-12)
    draws = np.asarray(prior.sample(jax.random.key(0), {"w": jnp.zeros(20_000)})["w"])
    variance = share * wide**2 + (1 - share) * narrow**2
    assert draws.var() == pytest.approx(variance, rel=0.06)
    near = np.abs(z) < narrow
    assert np.mean(np.abs(draws) < narrow) == pytest.approx(np.trapezoid(density[near], z[near]), abs=0.02)


@pytest.mark.parametrize("base", [NegativeBinomial(2.0), Binomial(12)])
def test_zero_inflation_has_the_moments_of_its_masses(base: Any) -> None:
    """By a sum over counts of the base's masses, of one share of zeros below a half and one above."""
    likelihood, f = ZeroInflated(base), jnp.array([[0.8, -1.1], [0.3, 0.7]])
    y = np.arange(13.0 if isinstance(base, Binomial) else 400.0)
    share = 1 / (1 + np.exp(-np.asarray(f[:, 1])))
    each = jax.lax.map(lambda k: base.log_prob({}, f[:, :1], jnp.full(2, k)), jnp.asarray(y))
    masses = np.exp(np.asarray(each)) * (1 - share)
    masses[0] += share
    np.testing.assert_allclose(masses.sum(axis=0), 1.0, rtol=1e-6)
    mean = (masses * y[:, None]).sum(axis=0)
    np.testing.assert_allclose(likelihood.mean({}, f), mean, rtol=1e-6)
    np.testing.assert_allclose(likelihood.variance({}, f), (masses * (y[:, None] - mean) ** 2).sum(axis=0), rtol=1e-5)
    entropy = -(masses * np.log(np.maximum(masses, 1e-300))).sum(axis=0)
    np.testing.assert_allclose(likelihood.entropy({}, f), entropy, rtol=1e-5)
    np.testing.assert_allclose(likelihood.cdf({}, f, jnp.array([2.0, 2.0])), masses[:3].sum(axis=0), rtol=1e-5)


LAWS: dict[str, tuple[Any, Any]] = {
    "gaussian": (Gaussian(0.7), lambda f: stats.norm(f, 0.7)),
    "student": (StudentT(4.0, 0.7), lambda f: stats.t(4, f, 0.7)),
    "gamma": (Gamma(3.0), lambda f: stats.gamma(3, scale=np.exp(f) / 3)),
    "weibull": (Weibull(1.7), lambda f: stats.weibull_min(1.7, scale=np.exp(f))),
    "beta": (Beta(6.0), lambda f: stats.beta(6 / (1 + np.exp(-f)), 6 / (1 + np.exp(f)))),
    "poisson": (Poisson(), lambda f: stats.poisson(np.exp(f))),
    "negative binomial": (NegativeBinomial(2.5), lambda f: stats.nbinom(2.5, 2.5 / (2.5 + np.exp(f)))),
    "binomial": (Binomial(12), lambda f: stats.binom(12, 1 / (1 + np.exp(-f)))),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", LAWS)
def test_moments_entropy_and_distribution_function_are_scipys(name: str) -> None:
    likelihood, law_of = LAWS[name]
    law = law_of(0.4)
    f, y = jnp.array([[0.4]]), np.array([0.6 if name == "beta" else 2.0])
    np.testing.assert_allclose(likelihood.mean({}, f), law.mean(), rtol=1e-6)
    np.testing.assert_allclose(likelihood.variance({}, f), law.var(), rtol=1e-6)
    np.testing.assert_allclose(likelihood.entropy({}, f), law.entropy(), rtol=1e-5)
    np.testing.assert_allclose(likelihood.cdf({}, f, jnp.asarray(y)), law.cdf(y), rtol=1e-6)


def test_intervals_of_members_leave_out_as_much_on_either_side() -> None:
    """Of nine rows at .8 the second smallest lower end and the second largest upper one, of its own member each."""
    member, distances = np.array([0, 1] * 4 + [0]), np.array([0.1, 2.0, 0.7, 0.3, 1.1, 0.9, 0.2, 1.7, 0.5])
    posteriors = tuple(
        SimpleNamespace(predict=lambda x, samples, c=c, s=s: SimpleNamespace(mean=np.full(2, c), std=np.full(2, s)))
        for c, s in ((0.0, 1.0), (0.5, 2.0))
    )
    found = LeftOut(posteriors, member, distances, Real(), 4).interval(np.zeros((2, 1)), 0.8)
    centre, scale = np.array([0.0, 0.5])[member], np.array([1.0, 2.0])[member]
    np.testing.assert_allclose(found[0], np.sort(centre - distances * scale)[1])
    np.testing.assert_allclose(found[1], np.sort(centre + distances * scale)[-2])


@pytest.mark.parametrize("temperature", [0.5])
def test_sensitivity_at_a_temperature_is_that_of_the_refit(temperature: float) -> None:
    """Of a linear model with Gaussian noise it is exact: at T = 1/2 a row counts twice, and its influence with it."""
    fit = lambda rows: (
        lamu.fit(
            LINEAR, (X[rows], Y[rows]), lamu.algorithms.conjugate(), batch_size=len(rows), temperature=temperature
        ).posterior
    )
    whole = fit(np.arange(30))
    found = lamu.sensitivity(whole, (X, Y))
    without, q = fit(np.arange(29)).belief.factors["network"], whole.belief.factors["network"]
    np.testing.assert_allclose(found.belief[29], without.kl(q), rtol=1e-5)
    outputs = [
        LINEAR.outputs({"network": belief.mean, "likelihood": {}}, {}, jnp.asarray(X[29:]))[0][0]
        for belief in (without, q)
    ]
    np.testing.assert_allclose(found.prediction[29], outputs[0] - outputs[1], rtol=1e-5)
    named = lamu.sensitivity(whole, (X, Y), temperature=temperature)
    np.testing.assert_allclose(named.belief, found.belief, rtol=1e-6)


def test_the_step_size_after_the_warm_up_is_the_average_of_dual_averaging() -> None:
    """Beside Nesterov's dual averaging by hand, as BlackJAX averages: the step that a transition was made with."""
    target, gamma, t0, kappa = 0.8, 0.05, 10.0, 0.75
    found = Adaptation.begin(1, target)
    acceptances = rng.uniform(0.2, 1.0, size=30)
    mu, log_average, total, log_step = np.log(10.0), 0.0, 0.0, 0.0
    for m, acceptance in enumerate(acceptances, start=1):
        found = found.after(jnp.array(0), jnp.array(0), target, jnp.array(acceptance), jnp.zeros(1))
        total = (1 - 1 / (m + t0)) * total + (target - acceptance) / (m + t0)
        log_average = m**-kappa * log_step + (1 - m**-kappa) * log_average
        log_step = mu - np.sqrt(m) / gamma * total
    np.testing.assert_allclose(found.size(warming=True), np.exp(log_step), rtol=1e-4)
    np.testing.assert_allclose(found.size(warming=False), np.exp(log_average), rtol=1e-4)
    assert abs(log_step - log_average) > 0.05


@pytest.mark.parametrize(
    ("squared_error", "converged"), [(0.0, False), (4.0, False), (4.4, True), (4.6, True), (float("nan"), False)]
)
def test_two_standard_errors_of_the_squared_residual_are_allowed(squared_error: float, converged: bool) -> None:
    """9 − 2 · 4.4 = 0.2, of four coordinates .224 of a deviation each; .25 is the limit. What is shown is 1.50."""
    found = Convergence(residual=3.0, squared_error=squared_error, dimension=4)
    assert found.converged is converged
    assert found.offset == 1.5
    if not converged:
        assert "the mean is 1.50 posterior standard deviations" in found.complaint


def test_the_squared_residual_leaves_out_the_noise_of_its_draws() -> None:
    """The mean of products of different draws, in the metric; its jackknife error beside one by hand."""
    gradients = rng.normal([1.0, -2.0], 3.0, size=(6, 2))
    precision = np.array([4.0, 0.5])
    metric = SimpleNamespace(solve=lambda g: {"w": g["w"] / precision})
    whitened = gradients / precision
    products = gradients @ whitened.T

    def off_diagonal(rows: np.ndarray) -> float:
        part = products[np.ix_(rows, rows)]
        return (part.sum() - np.trace(part)) / (len(rows) * (len(rows) - 1))

    left_out = [off_diagonal(np.delete(np.arange(6), k)) for k in range(6)]
    import lamu.running.fixed_point as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_solved", lambda metric, gradient: metric.solve(gradient))
        found = _squared_norm(metric, [{"w": jnp.asarray(g)} for g in gradients])
    error = np.sqrt(5 / 6 * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    np.testing.assert_allclose(found, (off_diagonal(np.arange(6)), error), rtol=1e-5)


def test_evidence_at_draws_counts_the_weights_of_rows() -> None:
    """Under the exact posterior each draw has the log evidence itself, of rows repeated as of rows weighted."""
    weights = rng.integers(1, 4, size=30).astype(float)
    repeated = np.repeat(np.arange(30), weights.astype(int))
    data = {"x": X, "y": Y, "weight": weights}
    posterior = lamu.fit(LINEAR, data, lamu.algorithms.conjugate(), batch_size=30).posterior
    found = lamu.scores.elbo(posterior, data, samples=4)
    design = np.column_stack([np.ones(len(repeated)), X[repeated]])
    covariance = 0.16 * np.eye(len(repeated)) + 1.69 * design @ design.T
    expected = stats.multivariate_normal.logpdf(Y[repeated], np.zeros(len(repeated)), covariance)
    np.testing.assert_allclose(found.value, expected, rtol=1e-4)
    assert found.error < 1e-2
    np.testing.assert_allclose(posterior.evidence, expected, rtol=1e-4)


# NumPyro programs.

sample, plate = numpyro.sample, numpyro.plate
N = 15
NUMBERS = rng.normal(1.0, 1.7, size=N)
PAIRS = rng.normal(size=(N, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
BITS = (rng.uniform(size=N) < 0.8).astype(float)
RATE = np.array([[1.0, 0.3], [0.3, 2.0]])


def sites(numbers: Any, pairs: Any, bits: Any) -> None:
    variance = sample("variance", dist.InverseGamma(3.0, 2.0))
    precision = sample("precision", dist.Wishart(4.0, rate_matrix=jnp.asarray(RATE)))
    chance = sample("chance", dist.Beta(2.0, 0.5))
    with plate("rows", len(bits)):
        sample("numbers", dist.Normal(1.0, jnp.sqrt(variance)), obs=numbers)
        sample("pairs", dist.MultivariateNormal(jnp.zeros(2), precision_matrix=precision), obs=pairs)
        sample("bits", dist.Bernoulli(probs=chance), obs=bits)


@pytest.mark.stress
def test_sites_of_a_program_have_their_conjugate_posteriors() -> None:
    """The slope of the log joint by the statistics is the natural parameter; those not in the pairs written by hand."""
    with jax.enable_x64(True):
        target = lamu.from_numpyro(sites, {"numbers": NUMBERS, "pairs": PAIRS, "bits": BITS}, rows="rows")
        batch = target.read(None).full()
        mu = target.values({"variance": jnp.array(2.0), "precision": jnp.eye(2), "chance": jnp.array(0.4)})
        log_joint = lambda mu: jnp.sum(target.row_bounds(mu, batch)) + target.shared_log_joint(mu)
        found = {name: slope.belief().mean for name, slope in jax.jit(jax.grad(log_joint))(mu).items()}
    expected = {
        "variance": (2.0 + np.sum((NUMBERS - 1.0) ** 2) / 2) / (3.0 + N / 2 - 1),
        "precision": (4.0 + N) * np.linalg.inv(RATE + PAIRS.T @ PAIRS),
        "chance": (2.0 + BITS.sum()) / (2.5 + N),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def two_parts(y: Any) -> None:
    mean = sample("mean", dist.Normal(jnp.array([-1.0, 2.0]), 1e-3).to_event(0))
    with plate("rows", len(y)):
        z = sample("z", dist.Categorical(probs=jnp.array([0.2, 0.8])))
        sample("y", dist.Normal(mean[z], 1.0), obs=y)


@pytest.mark.stress
def test_probabilities_of_a_latent_category_are_read_as_probabilities() -> None:
    y = np.array([0.2, 0.9, -0.5])
    target = lamu.from_numpyro(two_parts, {"y": y}, rows="rows")
    posterior = lamu.fit(target, None, lamu.algorithms.vmp(), steps=2).posterior
    shares = np.asarray(posterior.local({"y": y})["z"].mean)
    log = np.log([0.2, 0.8])[None] + stats.norm.logpdf(y[:, None], [[-1.0, 2.0]], 1.0)
    expected = np.exp(log - np.logaddexp.reduce(log, axis=1, keepdims=True))
    np.testing.assert_allclose(shares, expected, atol=2e-3)
