"""Few rows: intervals that hold their level, are never of width zero and never NaN, with more columns than rows too."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import polygamma

import lamu
from lamu.algorithms.closed_form.linear_regression import Directions, integrate_noise, linear_posterior
from lamu.algorithms.post_hoc.evidence import evidence
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, fit_laplace
from lamu.algorithms.post_hoc.laplace_posterior import posterior_at_mode
from lamu.algorithms.post_hoc.mode import Polished
from lamu.data import Arrays
from lamu.families import Point
from lamu.objective import Objective
from lamu.one_layer import _laplace, linear_model
from lamu.operators import Diagonal
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.record import record
from lamu.tabular.truncated import few_rows_factor, noise_factor

KEY = jax.random.key(0)


def linear_data(seed: list[int], rows: int, columns: int, noise: float = 1.0) -> Any:
    """Rows of a linear model with slopes from N(0, 1), and ten new ones."""
    random = np.random.default_rng(seed)
    slopes, intercept = random.normal(size=columns), 10 * random.normal()
    x = random.normal(size=(rows + 10, columns))
    y = intercept + x @ slopes + noise * random.normal(size=rows + 10)
    return x[:rows], y[:rows], x[rows:], y[rows:]


def student(posterior: Any, new: np.ndarray) -> Any:
    """Returns the predictive distribution of one target, from the belief alone."""
    belief, network, likelihood = posterior.belief, posterior.model.network, posterior.model.likelihood
    layer = belief.location["layers"][0]
    z = (new - network.shift) / network.scale
    phi = np.column_stack([np.ones(len(z)), z])
    spread = np.sum(np.linalg.solve(np.asarray(belief.root[0], float), phi.T) ** 2, axis=0)
    centre = layer["bias"][0] + z @ np.asarray(layer["kernel"])[:, 0]
    scale = np.sqrt(belief.rate[0] / belief.shape[0] * (1 + spread))
    return stats.t(2 * belief.shape[0], likelihood.shift + likelihood.scale * centre, likelihood.scale * scale)


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (3, 3), (4, 3), (5, 3), (8, 0), (8, 3), (12, 40)])
def test_intervals_of_few_rows_hold_their_level(rows: int, columns: int) -> None:
    """60 data sets of 10 new rows: a standard error of .02, so that one run in 100 leaves the bounds by chance."""
    inside, widths = [], []
    for seed in range(60):
        x, y, new, target = linear_data([7, seed, rows, columns], rows, columns)
        model = linear_model(x, y, "gaussian")
        low, high = student(linear_posterior(model, x, y, KEY, learn_scale=True), new).interval(0.9)
        inside.append((low <= target) & (target <= high))
        widths.append(high - low)
    assert np.min(widths) > 0
    assert 0.84 < np.mean(inside) < 0.96


def test_the_prediction_is_that_of_the_belief() -> None:
    x, y, new, target = linear_data([1], 5, 3)
    posterior = lamu.regression(x, y)
    pred, expected = posterior.predict(new), student(posterior, new)
    np.testing.assert_allclose(pred.interval(0.9), expected.interval(0.9), rtol=1e-6)
    np.testing.assert_allclose(pred.log_prob(target), expected.logpdf(target), rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.array([[1.0], [2.0]]), np.array([0.3, 0.5])),
        (np.random.default_rng(0).normal(size=(3, 3)), np.array([1.0, 4.0, 2.0])),
        (np.column_stack([np.ones(6), np.arange(6.0)]), np.array([0.0, 2.0, 1.0, 3.0, 5.0, 4.0])),
        (np.column_stack([np.arange(6.0)] * 2), np.array([0.0, 2.0, 1.0, 3.0, 5.0, 4.0])),
        (np.arange(6.0)[:, None], np.arange(6.0)),
        (np.zeros((3, 0)), np.array([1.0, 4.0, 2.0])),
        (np.arange(6.0)[:, None], np.column_stack([np.arange(6.0), np.arange(6.0) ** 2])),
    ],
    ids=["two rows", "square", "constant column", "column twice", "no noise", "no column", "two targets"],
)
def test_widths_are_positive_and_finite(x: np.ndarray, y: np.ndarray) -> None:
    posterior = lamu.regression(x, y)
    pred = posterior.predict(x + 0.5)
    low, high = map(np.asarray, pred.interval(0.9))
    assert np.isfinite(low).all()
    assert (high > low).all()
    assert np.isfinite(pred.std).all()
    assert np.isfinite(pred.log_prob(y)).all()
    assert np.isfinite(float(posterior.evidence))


@pytest.mark.parametrize("rows", [1, 5])
def test_a_target_that_does_not_vary_is_said_to_tell_nothing_of_its_noise(rows: int) -> None:
    x = np.arange(2.0 * rows).reshape(rows, 2) ** 2
    with pytest.warns(UserWarning, match="does not determine their noise.*Gaussian\\(scale\\)"):
        posterior = lamu.regression(x, np.full(rows, 7.0))
    low, high = map(np.asarray, posterior.predict(x).interval(0.9))
    assert (high - low > 0.5).all()
    assert np.isfinite(high).all()
    np.testing.assert_allclose(posterior.predict(x).mean, 7.0, atol=1e-3)


def test_a_likelihood_that_needs_columns_says_so() -> None:
    with pytest.raises(ValueError, match=r"no column.*here is Poisson; give one of zeros"):
        lamu.regression(np.zeros((3, 0)), np.array([1, 0, 2]), "poisson")


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_units_of_the_target_and_of_columns_change_nothing_else(factor: float) -> None:
    x, y, new, _ = linear_data([3], 6, 8)
    pred, other = lamu.regression(x, y).predict(new), lamu.regression(x * 1e3, y * factor).predict(new * 1e3)
    np.testing.assert_allclose(np.asarray(other.std) / factor, pred.std, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(other.mean) / factor, pred.mean, rtol=1e-5, atol=1e-5)


def test_under_a_flat_prior_it_is_the_classical_t_interval() -> None:
    """Least squares of 9 rows and 3 columns: t of 5 degrees of freedom, its scale that of the residuals."""
    x, y, new, _ = linear_data([4], 9, 3)
    design = np.column_stack([np.ones(9), x])
    q, r = np.linalg.qr(design)
    along, basis = np.linalg.eigh(design.T @ design)
    rows = Directions(along, basis.T @ design.T @ y, float(y @ y), 9.0, np.zeros(4), np.full(4, 1e8), np.zeros(4, bool))
    found = integrate_noise(rows)
    np.testing.assert_allclose(2 * found.shape, 5.0, rtol=1e-2)
    np.testing.assert_allclose(basis @ found.mean, np.linalg.solve(r, q.T @ y), rtol=1e-4)
    residual = y - q @ (q.T @ y)
    np.testing.assert_allclose(found.rate / found.shape, residual @ residual / 5, rtol=1e-2)
    phi = np.column_stack([np.ones(10), new]) @ basis
    spread = np.einsum("ni,ij,nj->n", phi, found.covariance, phi)
    np.testing.assert_allclose(spread, np.sum((phi / np.sqrt(along)) ** 2, axis=1), rtol=1e-2)


def by_quadrature(x: np.ndarray, y: np.ndarray, prior: Any, log_prior: Any, logs: Any) -> tuple[float, Any]:
    """Returns the evidence and the predictive distribution function at x, by Simpson's rule over log σ (and log s)."""
    noises, scales = logs
    design = np.column_stack([np.ones(len(x)), x])
    densities, means, sds = [], [], []
    for scale in np.exp(scales):
        cov = np.diag(prior(scale) ** 2)
        for noise in np.exp(noises):
            total = design @ cov @ design.T + noise**2 * np.eye(len(y))
            energy = y @ np.linalg.solve(total, y) + np.linalg.slogdet(2 * np.pi * total)[1]
            densities.append(log_prior(np.log(noise)) - energy / 2)
            gain = np.linalg.solve(total, design @ cov).T
            means.append(design @ (gain @ y))
            sds.append(np.sqrt(noise**2 + np.einsum("ni,ij,nj->n", design, cov - gain @ design @ cov, design)))
    densities = np.array(densities).reshape(len(scales), len(noises))
    weights = np.exp(densities - densities.max())
    simpson = lambda values: integrate.simpson(values, x=noises, axis=-1)
    inner = simpson(weights)
    total = inner[0] if len(scales) == 1 else integrate.simpson(inner, x=scales)
    p = (weights / weights.sum()).ravel()[:, None]
    cdf = lambda value: (p * stats.norm.cdf((value - np.array(means)) / np.array(sds))).sum(axis=0)
    return float(densities.max() + np.log(total)), cdf


@pytest.mark.parametrize("learned", [True, False], ids=["default prior", "Normal(0.7)"])
def test_evidence_and_intervals_are_those_of_quadrature_over_noise_and_scale(learned: bool) -> None:
    x, y, _, _ = linear_data([5], 12, 2, noise=0.7)
    posterior = lamu.regression(x, y, prior=None if learned else lamu.priors.Normal(0.7))
    z, t = (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean()) / y.std()
    if learned:
        ends = np.log(0.03 / np.sqrt(2)), np.log(10.0)
        log_prior = lambda _: -np.log(np.log(1e7)) - np.log(ends[1] - ends[0])
        logs = np.log(x.std(axis=0))
        share = polygamma(1, 5.5) / (4 * logs.var(ddof=1))  # .82 of what the two differ by is sampling
        assert 0.8 < share < 0.85
        shares = np.exp(share * (logs - logs.mean()))
        prior, scales = lambda scale: np.array([1e3, *scale * shares]), np.linspace(*ends, 61)
    else:
        log_prior = lambda log: stats.norm.logpdf(log, 0, 3)
        prior, scales = lambda scale: np.full(3, 0.7 * scale), np.zeros(1)
    exact, cdf = by_quadrature(z, t, prior, log_prior, (np.linspace(-4, 3, 161), scales))
    np.testing.assert_allclose(float(posterior.evidence), exact - 12 * np.log(y.std()), atol=1e-3)
    low, high = (np.asarray(end) for end in posterior.predict(x).interval(0.9))
    np.testing.assert_allclose(cdf((low - y.mean()) / y.std()), 0.05, atol=0.012)
    np.testing.assert_allclose(cdf((high - y.mean()) / y.std()), 0.95, atol=0.012)


def test_a_prior_that_is_not_normal_is_refused() -> None:
    x, y, _, _ = linear_data([5], 12, 2)
    with pytest.raises(TypeError, match=r"needs independent normal weights, not SpikeAndSlab; give Normal\(scale\)"):
        lamu.regression(x, y, prior=lamu.priors.ScaleMixture())


def test_columns_of_few_rows_share_their_deviation_where_sampling_explains_the_rest() -> None:
    """A hundred columns of one unit keep it; columns of many units keep theirs, and so does a column of 0 and 1."""
    x, y, new, _ = linear_data([6], 4, 100)
    spread = lambda x, new: student(
        linear_posterior(linear_model(x, y, "gaussian"), x, y, KEY, learn_scale=True), new
    ).std()
    plain = spread(x, new)
    units = 10.0 ** np.resize([-4, 0, 4], 100)
    assert np.max(spread(x * units, new * units) / plain) < 4.0
    model = linear_model(x, y, "gaussian")
    posterior = linear_posterior(model, x, y, KEY, learn_scale=True)
    variances = 1 / np.asarray(posterior.belief.precision[0]).diagonal()[1:]
    relative = variances / np.asarray(model.network.scale) ** 2
    assert np.log(relative).std() < 0.5 * np.log(variances).std()


class Compilations(logging.Handler):
    """Counts the programs that JAX compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.getMessage().startswith("Compiling")

    def __enter__(self) -> Compilations:
        self.loggers = [logging.getLogger(f"jax._src.{name}") for name in ("interpreters.pxla", "dispatch")]
        self.before = [logger.propagate for logger in self.loggers]
        for logger in self.loggers:
            logger.addHandler(self)
            logger.propagate = False
        self.logged = jax.log_compiles()
        self.logged.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.logged.__exit__(*error)
        for logger, propagate in zip(self.loggers, self.before, strict=True):
            logger.removeHandler(self)
            logger.propagate = propagate


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_another_call_of_the_same_shapes_compiles_nothing(likelihood: str) -> None:
    def call(seed: int) -> None:
        random = np.random.default_rng(seed)
        x, counts = random.normal(size=(7, 2)), random.poisson(2.0, size=7)
        y = counts + 0.5 * random.normal(size=7) if likelihood == "gaussian" else counts
        lamu.regression(x, y, likelihood).predict(x).interval(0.9)

    with Compilations() as first:
        call(0)
    with Compilations() as again:
        call(1)
    assert first.count > 0
    assert again.count == 0


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        ("poisson", [3]),
        *(
            pytest.param(*each, marks=pytest.mark.stress)
            for each in (("poisson", [0, 0, 0]), ("bernoulli_logit", [1, 1]))
        ),
    ],
)
def test_other_likelihoods_of_few_rows_are_finite(likelihood: str, y: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=(len(y), 3))
    name = "binary" if likelihood == "bernoulli_logit" else likelihood
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.Unconverged)
        pred = lamu.regression(x, np.array(y), lamu.likelihoods.Bernoulli() if name == "binary" else name).predict(x)
    assert np.isfinite(pred.mean).all()
    assert np.isfinite(pred.log_prob(np.array(y))).all()
    assert (np.asarray(pred.total) > 0).all()


def marginal_over_noise(design: np.ndarray, y: np.ndarray) -> float:
    """Returns log p(y) of a linear model under N(0, 1) weights and log σ from N(0, 3²), by Simpson's rule."""
    logs = np.linspace(-6.0, 5.0, 2001)
    values, basis = np.linalg.eigh(design @ design.T)
    variances = np.maximum(values, 0.0) + np.exp(2 * logs)[:, None]
    each = -np.sum((basis.T @ y) ** 2 / variances + np.log(2 * np.pi * variances), axis=1) / 2
    each = each + stats.norm.logpdf(logs, 0, 3)
    return float(each.max() + np.log(integrate.simpson(np.exp(each - each.max()), x=logs)))


@pytest.mark.parametrize("rows", [12, pytest.param(60, marks=pytest.mark.stress)])
def test_the_evidence_of_a_learned_noise_is_integrated_over_it(rows: int) -> None:
    """At the noise of the mode alone it would be .46 and 1.44 nats too high."""
    random = np.random.default_rng(rows)
    x = random.normal(size=(rows, 3))
    y = x @ [0.7, -0.4, 0.2] + 0.3 + 0.5 * random.normal(size=rows)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
    posterior = lamu.fit(model, (x, y), _laplace(), steps=100, batch_size=rows).posterior
    expected = marginal_over_noise(np.column_stack([np.ones(rows), x]), y)
    np.testing.assert_allclose(float(posterior.evidence), expected, atol=0.04)
    again = evidence(posterior, (x, y))
    np.testing.assert_allclose(float(again()), float(posterior.evidence), atol=1e-3)
    # At a noise that is given it is the joint density, of which quadrature makes the same.
    logs = np.linspace(-1.5, 1.5, 61)
    joint = np.array([float(again(noise=float(np.exp(each)))) for each in logs])
    total = joint.max() + np.log(integrate.simpson(np.exp(joint - joint.max()), x=logs))
    np.testing.assert_allclose(total, expected, atol=0.08)


def test_a_mode_at_a_kink_is_told_what_to_do_and_one_that_was_not_reached_to_train(monkeypatch: Any) -> None:
    x, y, _, _ = linear_data([8], 12, 1)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    found = evidence(lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior, (x, y))
    told = (
        (True, False, "activation without kinks, such as MLP"),
        (True, True, "kinks of a Quantile likelihood"),
        (False, False, "train for more epochs"),
        (False, True, "train for more epochs"),
    )
    for stalled, linear, words in told:
        monkeypatch.setattr(lamu.Model, "identified", property(lambda self, linear=linear: linear))
        posterior = posterior_at_mode(Polished(found.fit, 20.0, 2, stalled), found.objective, KEY)
        assert posterior.evidence is None
        assert words in posterior.convergence.remedy


def test_the_volume_of_other_dispersions_is_that_of_their_information() -> None:
    """Of 40 rows of a Gamma with information 2 a row and a prior N(0, 3²), at T = 1 and T = 1/2."""

    class Told(lamu.likelihoods.Gamma):
        def dispersion_information(self, params: Any) -> Any:
            return jax.tree.map(lambda leaf: 2.0 + 0 * leaf, params)

    model = lamu.Model(lamu.networks.Linear(), Told())
    fit = LaplaceFit({"network": {}, "likelihood": Told().init(np.ones(3))}, {}, None, 1.0, np.zeros(1), 40.0)
    values = jax.tree.leaves(fit.params["likelihood"])
    assert sum(leaf.size for leaf in values) == 1
    for temperature in (1.0, 0.5):
        found = float(fit.dispersion_volume(Objective(model, 40.0, temperature)))
        np.testing.assert_allclose(found, np.log(2 * np.pi * temperature / (80 + 1 / 9)) / 2, rtol=1e-6)
    given = LaplaceFit({"network": {}, "likelihood": {}}, {}, None, 1.0, np.zeros(1), 40.0)
    assert float(given.dispersion_volume(Objective(model, 40.0))) == 0.0


@record
class OwnNoise(lamu.likelihoods.Likelihood):
    """A normal whose deviation is exp(a/5), so that a row's information about a is 2/25."""

    support = lamu.supports.Real()

    def init(self, y: Any) -> Any:
        return {"a": jnp.zeros(())}

    def log_prior(self, params: Any) -> Any:
        return -(params["a"] ** 2) / 8 - jnp.log(8 * jnp.pi) / 2

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        z = (y - f[:, 0]) * jnp.exp(-params["a"] / 5)
        return -(z**2) / 2 - params["a"] / 5 - math.log(2 * math.pi) / 2

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return f[:, 0] + jnp.exp(params["a"] / 5) * jax.random.normal(key, f.shape[:1], f.dtype)


@pytest.mark.parametrize("likelihood", [lamu.likelihoods.NegativeBinomial(), OwnNoise()], ids=lambda each: each.name)
def test_the_volume_of_dispersions_is_that_of_the_observed_curvature(likelihood: Any, caplog: Any) -> None:
    """Of 30 rows at one mean, against second differences of the log joint density; if negative, a sentence."""
    y = np.random.default_rng(0).negative_binomial(2, 0.4, size=30) * 1.0
    model, rows = lamu.Model(lamu.networks.Linear(), likelihood), Arrays.of((np.zeros((30, 1)), y))
    params, state = model.init(KEY, rows.example(1))
    at = lambda value: jax.tree.map(lambda leaf: jnp.full_like(leaf, value), params["likelihood"])
    objective, f = Objective(model, 30.0), jnp.full((30, 1), params["network"]["layers"][0]["bias"])

    def joint(value: float) -> float:
        return float(jnp.sum(likelihood.log_prob(at(value), f, jnp.asarray(y))) + likelihood.log_prior(at(value)))

    for value in (0.5,) if isinstance(likelihood, OwnNoise) else (0.5, 2.0):
        curvature = -(joint(value + 1e-3) - 2 * joint(value) + joint(value - 1e-3)) / 1e-6
        known = 30.0 + 1.0 / 9.0 if curvature < 0 else curvature  # that of one a row, and of the prior
        point = Posterior(model, Point({**params, "likelihood": at(value)}), state, Sampled(), KEY)
        caplog.clear()
        fit = fit_laplace(Diagonal, point, objective, rows)
        posteriors = fit.integrated(objective, KEY), fit.posterior(objective, KEY)
        assert ("`dispersion_information` instead" in caplog.text) == (curvature < 0)
        volume = float(posteriors[0].evidence - posteriors[1].evidence)
        np.testing.assert_allclose(volume, np.log(2 * np.pi / known) / 2, atol=2e-3)


def test_the_noise_of_a_table_is_wider_where_few_rows_chose_it() -> None:
    """Student's t over the normal, of degrees of freedom that grow with the rows that weights leave."""
    for rows, freedom in ((2, 0.808), (5, 1.435), (20, 4.84), (50, 13.0)):
        expected = stats.t(freedom).ppf(0.95) / stats.norm.ppf(0.95)
        np.testing.assert_allclose(few_rows_factor(float(rows)), expected, rtol=1e-8)
    assert 1.0 < few_rows_factor(500.0) < 1.003
    random = np.random.default_rng(0)
    y = random.normal(size=(12, 1))
    means, deviations, fold = np.zeros((1, 2, 12, 1)), np.ones((1, 2, 12, 1)), np.arange(12) % 2
    own = np.sqrt(np.mean(y**2))
    plain = noise_factor(means, deviations, y, fold, np.ones(1))
    np.testing.assert_allclose(plain, few_rows_factor(12.0) * own, rtol=1e-3)
    # Rows whose weight is next to nothing are no rows.
    light = np.concatenate([np.full(6, 1e-9), np.ones(6)])
    few = noise_factor(means, deviations, y, fold, np.ones(1), light)
    np.testing.assert_allclose(few, few_rows_factor(6.0) * np.sqrt(np.mean(y[6:] ** 2)), rtol=1e-3)
    # Members that disagree narrow nothing where rows are few.
    apart = np.stack([np.full((12, 1), 0.4), np.full((12, 1), -0.4)])[None]
    held = apart[0, fold, np.arange(12)]
    found = noise_factor(apart, deviations, y, fold, np.ones(1))
    np.testing.assert_allclose(found, few_rows_factor(12.0) * np.sqrt(np.mean((y - held) ** 2)), rtol=1e-3)


def test_a_table_of_too_few_rows_says_so() -> None:
    with pytest.raises(ValueError, match=r"a table of 1 row has none left to judge by.*lamu.regression"):
        lamu.fit_table(np.ones((1, 2)), np.ones(1), lamu.likelihoods.Gaussian())
    with (
        pytest.warns(UserWarning, match="3 rows hardly determine their noise"),
        pytest.raises(ValueError, match="folds=4"),
    ):
        lamu.fit_table(np.eye(3), np.arange(3.0), lamu.likelihoods.Gaussian(), folds=4)


@pytest.mark.parametrize(("rows", "columns"), [(3, 8), (5, 3)])
def test_neural_linear_does_not_take_a_noise_that_collapsed_at_the_mode(rows: int, columns: int) -> None:
    """A linear network of more weights than rows: no width of zero, and the noise of the rows within a factor of 4."""
    x, y, new, _ = linear_data([9], rows, columns, noise=0.5)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(), lamu.priors.Normal(1.0))
    base = lamu.algorithms.adam(0.1)
    algorithm = lamu.algorithms.neural_linear(base)
    posterior = lamu.fit(model, (x, y - 5.0), algorithm, steps=300, batch_size=rows).posterior
    pred = posterior.predict(new)
    assert np.isfinite(pred.mean).all()
    assert np.isfinite(float(posterior.evidence))
    assert np.min(np.asarray(pred.interval(0.9)[1] - pred.interval(0.9)[0])) > 0.5


def test_constant_targets_of_a_table_are_warned_of() -> None:
    """Its intervals have no width, where those of a linear model have one of about a unit."""
    with pytest.warns(UserWarning, match="all 12 targets are 7, which does not determine their noise: .*no width"):
        lamu.fit_table(np.arange(12.0)[:, None], np.full(12, 7.0), lamu.likelihoods.Gaussian(), folds=2, steps=15)


def test_separable_classes_under_a_prior_that_holds_nothing_are_told() -> None:
    x = np.random.default_rng(1).normal(size=(60, 3))
    y = (x[:, 0] > 0).astype(int)
    for scale, told in ((1.0, 0), (1e4, 1)):
        model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(scale))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", lamu.Underfit)
            lamu.fit(model, (x, y), lamu.algorithms.laplace(), steps=300)
        assert sum("a line separates the classes" in str(each.message) for each in caught) == told
