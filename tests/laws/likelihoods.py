"""Laws of likelihoods: normalised, a density by SciPy's account, and every other method a consequence of that density.

A row's extras: `params`, `f` and `y` (a few rows, f = 0 among them), and `reference`, SciPy's account of p(y | f).
Expectations over y are exact sums for classes. For regression they are trapezoidal sums over 24 standard deviations,
whose error is below rounding for densities as smooth as these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from lamu.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood, Scaled
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("likelihoods", "dispersion marginal regression")

METHODS = ["support", *(name for name in dir(Likelihood) if not name.startswith("_"))]


@dataclass(frozen=True)
class Noise:
    """y_k ~ N(shift + stretch f_k, scale_k²)."""

    scale: np.ndarray
    shift: np.ndarray | float = 0.0
    stretch: np.ndarray | float = 1.0

    def mean(self, f: np.ndarray) -> np.ndarray:
        return self.shift + self.stretch * f

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.norm.logpdf(np.reshape(y, f.shape), self.mean(f), self.scale).sum(axis=-1)

    def support(self, f: np.ndarray) -> tuple[np.ndarray, Any]:
        """A grid over the targets, `[points, batch]` or `[points, batch, outputs]`, and the volume of its cells."""
        outputs = f.shape[-1]
        line = np.linspace(-12.0, 12.0, 601 if outputs == 1 else 97)
        z = np.stack(np.meshgrid(*[line] * outputs, indexing="ij"), axis=-1).reshape(-1, 1, outputs)
        y = self.mean(f) + self.scale * z
        return y[..., 0] if outputs == 1 else y, float(np.prod((line[1] - line[0]) * self.scale))


@dataclass(frozen=True)
class OwnNoise:
    """y ~ N(shift + stretch f₁, stretch² σ²), σ the softplus of f₂, one at zero."""

    shift: float = 0.0
    stretch: float = 1.0

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.norm.logpdf(y, self.shift + self.stretch * f[:, 0], self.width(f))

    def width(self, f: np.ndarray) -> np.ndarray:
        return self.stretch * (1e-6 + np.log1p((np.e - 1) * np.exp(f[:, 1])))

    def support(self, f: np.ndarray) -> tuple[np.ndarray, Any]:
        line = np.linspace(-12.0, 12.0, 601)
        width = self.width(f)
        return self.shift + self.stretch * f[:, 0] + width * line[:, None], (line[1] - line[0]) * width[None]


class Coin:
    """y ∈ {0, 1} with log-odds f."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.bernoulli.logpmf(y, 1.0 / (1.0 + np.exp(-np.asarray(f[:, 0]))))

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        return np.broadcast_to(np.arange(2)[:, None], (2, len(f))), 1.0


class Die:
    """y ∈ {0, …, K − 1} with log-odds f_y."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = np.exp(f) / np.exp(f).sum(axis=-1, keepdims=True)
        return np.array([stats.rv_discrete(values=(np.arange(len(q)), q)).logpmf(k) for q, k in zip(p, y, strict=True)])

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        return np.broadcast_to(np.arange(f.shape[1])[:, None], (f.shape[1], len(f))), 1.0


def example(reference: Any, outputs: int, y: Any, params: Any = None) -> dict[str, Any]:
    f = np.random.default_rng(outputs).normal(0.0, 1.5, (4, outputs))
    f[0] = 0.0
    return {"reference": reference, "f": jnp.asarray(f), "y": jnp.asarray(y), "params": params or {}}


ONE, TWO = [0.2, -1.0, 0.4, 3.0], [[0.2, 1.0], [-1.0, 0.0], [0.4, -0.3], [3.0, 2.5]]
LEARNED, LEARNED_TWO = {"log_scale": jnp.log(jnp.array([0.4]))}, {"log_scale": jnp.log(jnp.array([0.4, 1.7]))}
SHIFT, STRETCH = np.array([3.0, -20.0]), np.array([0.2, 5.0])

fixed = row(
    "likelihoods", "Gaussian fixed", Gaussian(0.7), "regression marginal", **example(Noise(np.array([0.7])), 1, ONE)
)
learned = row(
    "likelihoods",
    "Gaussian",
    Gaussian(),
    "regression dispersion marginal",
    **example(Noise(np.array([0.4])), 1, ONE, LEARNED),
)
several = row(
    "likelihoods",
    "Gaussian several outputs",
    Gaussian(),
    "regression dispersion marginal",
    **example(Noise(np.array([0.4, 1.7])), 2, TWO, LEARNED_TWO),
)
bernoulli = row("likelihoods", "Bernoulli", Bernoulli(), **example(Coin(), 1, [1, 0, 1, 0]))
categorical = row("likelihoods", "Categorical", Categorical(3), **example(Die(), 3, [2, 0, 1, 1]))
scaled = row(
    "likelihoods",
    "Scaled",
    Scaled(Gaussian(0.7), shift=3.0, scale=0.2),
    "regression marginal",
    **example(Noise(np.array([0.14]), 3.0, 0.2), 1, [3.1, 2.8, 3.0, 2.5]),
)
scaled_several = row(
    "likelihoods",
    "Scaled several outputs",
    Scaled(Gaussian(), shift=SHIFT, scale=STRETCH),
    "regression dispersion marginal",
    **example(Noise(STRETCH * [0.4, 1.7], SHIFT, STRETCH), 2, SHIFT + STRETCH * np.array(TWO), LEARNED_TWO),
)
heteroscedastic = row(
    "likelihoods", "HeteroscedasticGaussian", HeteroscedasticGaussian(), "regression", **example(OwnNoise(), 2, ONE)
)
heteroscedastic_scaled = row(
    "likelihoods",
    "Scaled heteroscedastic",
    Scaled(HeteroscedasticGaussian(), shift=3.0, scale=0.2),
    "regression",
    **example(OwnNoise(3.0, 0.2), 2, [3.1, 2.8, 3.0, 2.5]),
)


def parts(row: Row) -> tuple[Any, Any, Any, Any]:
    return row.subject, row.extras["params"], row.extras["f"], row.extras["y"]


def masses(row: Row, params: Any = None) -> tuple[jax.Array, jax.Array]:
    """Targets y_g `[points, batch, ...]`, and how much of p(y | f) each stands for, `[points, batch]`."""
    likelihood, learned, f, _ = parts(row)
    ys, volume = row.extras["reference"].support(np.asarray(f))
    ys = jnp.asarray(ys)
    log_prob = jax.vmap(lambda y: likelihood.log_prob(params or learned, f, y))(ys)
    return ys, jnp.exp(log_prob) * volume


def average(mass: jax.Array, values: jax.Array) -> jax.Array:
    """Σ_g mass_g values_g over the leading axis; values have further axes after the batch's."""
    return jnp.sum(mass.reshape(*mass.shape, *[1] * (values.ndim - mass.ndim)) * values, axis=0)


def outcome(row: Row, ys: jax.Array) -> jax.Array:
    """The target as the vector whose mean `mean` returns: one-hot for classes."""
    if row.subject.task == "classes":
        return jax.nn.one_hot(ys, row.extras["f"].shape[1], dtype=row.extras["f"].dtype)
    return ys.astype(row.extras["f"].dtype)


def by_row(function: Callable[..., jax.Array], f: jax.Array, y: jax.Array) -> jax.Array:
    """Calls a function of one row's f `[outputs]` and y on every row."""
    return jax.vmap(function)(f, y)


def one_row(likelihood: Any, params: Any) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return lambda f, y: likelihood.log_prob(params, f[None], y[None])[0]


@law("likelihoods")
def log_prob_is_scipys(row: Row) -> None:
    likelihood, params, f, y = parts(row)
    found = likelihood.log_prob(params, f, y)
    assert found.shape == (len(f),)
    np.testing.assert_allclose(found, row.extras["reference"].log_prob(np.asarray(f), np.asarray(y)), rtol=1e-10)


@law("likelihoods")
def density_integrates_to_one(row: Row) -> None:
    _, mass = masses(row)
    np.testing.assert_allclose(jnp.sum(mass, axis=0), 1.0, rtol=1e-9)


@law("likelihoods")
def information_is_the_expected_curvature(row: Row) -> None:
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    curvature = jax.hessian(one_row(likelihood, params))
    expected = average(mass, -jax.vmap(lambda y: by_row(curvature, f, y))(ys))
    found = likelihood.information(params, f)
    assert found.shape == (*f.shape, f.shape[1])
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


@law("likelihoods")
def information_is_the_variance_of_the_score(row: Row) -> None:
    """The score has mean zero and the information for covariance: first derivatives alone, so those are tested too."""
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    score = jax.vmap(lambda y: by_row(jax.grad(one_row(likelihood, params)), f, y))(ys)
    np.testing.assert_allclose(average(mass, score), 0.0, atol=1e-9)
    outer = score[..., :, None] * score[..., None, :]
    np.testing.assert_allclose(likelihood.information(params, f), average(mass, outer), rtol=1e-8, atol=1e-9)


@law("likelihoods")
def mean_and_variance_are_moments(row: Row) -> None:
    likelihood, params, f, y = parts(row)
    ys, mass = masses(row)
    values = outcome(row, ys)
    mean = average(mass, values)
    variance = average(mass, (values - mean[None]) ** 2)
    found_mean, found_variance = likelihood.mean(params, f), likelihood.variance(params, f)
    assert found_mean.shape == found_variance.shape == (f.shape if likelihood.task == "classes" else y.shape)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found_variance, variance, rtol=1e-8)


@law("likelihoods")
def sample_has_the_moments(row: Row) -> None:
    """Mean and variance of n draws within five standard errors: at most 24 numbers, a false alarm at 2e-5."""
    likelihood, params, f, y = parts(row)
    n = 20_000
    draws = jax.vmap(lambda key: likelihood.sample(key, params, f))(jax.random.split(jax.random.key(3), n))
    assert draws.shape == (n, *y.shape)
    ys, mass = masses(row)
    values, drawn = outcome(row, ys), outcome(row, draws)
    mean = average(mass, values)
    variance = average(mass, (values - mean[None]) ** 2)
    fourth = average(mass, (values - mean[None]) ** 4)
    assert np.all(np.abs(jnp.mean(drawn, axis=0) - mean) < 5.0 * np.sqrt(variance / n))
    # The sample variance of a fair coin varies at the next order only, hence the second term.
    error = np.sqrt((fourth - variance**2) / n) + 25.0 * variance / n
    assert np.all(np.abs(jnp.var(drawn, axis=0) - variance) < 5.0 * error)


@law("likelihoods")
def sample_rows_are_independent(row: Row) -> None:
    """Correlations between rows and outputs within five standard errors: at most 66, a false alarm at 4e-5."""
    likelihood, params, f, _ = parts(row)
    n = 20_000
    draws = jax.vmap(lambda key: likelihood.sample(key, params, f))(jax.random.split(jax.random.key(4), n))
    flat = np.reshape(draws, (n, -1))
    assert np.all(np.abs(np.corrcoef(flat.T.astype(float)) - np.eye(flat.shape[1])) < 5.0 / np.sqrt(n))


@law("likelihoods")
def extremes_stay_finite(row: Row) -> None:
    """Outputs of ±10⁴ in both precisions: values and derivatives are finite, and what must not be negative is not."""
    likelihood, params, f, y = parts(row)
    pattern = (
        np.where(np.arange(f.size).reshape(f.shape) % 2 == 0, 1.0, -1.0) * np.array([1.0, -1.0, 1.0, -1.0])[:, None]
    )
    for dtype in (jnp.float32, jnp.float64):
        for sign in (1e4, -1e4):
            extreme = jnp.asarray(sign * pattern, dtype)
            gradient = jax.grad(lambda g: jnp.sum(likelihood.log_prob(params, g, y)))(extreme)
            values = [method(params, extreme) for method in (likelihood.mean, likelihood.variance, likelihood.entropy)]
            values += [likelihood.information(params, extreme), likelihood.log_prob(params, extreme, y), gradient]
            assert all(np.all(np.isfinite(value)) for value in values)
            assert np.all(np.linalg.eigvalsh(likelihood.information(params, extreme)) >= -1e-6)
            assert np.all(likelihood.variance(params, extreme) >= 0.0)
            surprise = jax.grad(lambda g: jnp.sum(likelihood.entropy(params, g)))(extreme)
            assert np.all(np.isfinite(surprise))


@law("likelihoods")
def entropy_is_the_expected_surprise(row: Row) -> None:
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    surprise = -jax.vmap(lambda y: likelihood.log_prob(params, f, y))(ys)
    found = likelihood.entropy(params, f)
    assert found.shape == (len(f),)
    np.testing.assert_allclose(found, average(mass, surprise), rtol=1e-8)


@law("likelihoods", when="regression")
def cdf_differentiates_to_the_density(row: Row) -> None:
    """Independent outputs: the product of the derivatives is the joint density; and F starts at 0 and ends at 1."""
    likelihood, params, f, y = parts(row)
    cdf = lambda z: likelihood.cdf(params, f, z)
    value, slope = jax.jvp(cdf, (y,), (jnp.ones_like(y),))
    assert value.shape == likelihood.mean(params, f).shape
    np.testing.assert_allclose(jnp.prod(slope.reshape(len(f), -1), axis=1), jnp.exp(likelihood.log_prob(params, f, y)))
    reach = 10.0 * jnp.sqrt(likelihood.variance(params, f))
    np.testing.assert_allclose(cdf(likelihood.mean(params, f) - reach), 0.0, atol=1e-12)
    np.testing.assert_allclose(cdf(likelihood.mean(params, f) + reach), 1.0, atol=1e-12)


@law("likelihoods", when="marginal")
def marginal_is_the_mixture(row: Row) -> None:
    """∫ p(y | f) N(f | m, C) df by Gauss–Hermite quadrature, beside the density of the claimed Gaussian."""
    likelihood, params, f, y = parts(row)
    outputs = f.shape[1]
    root = np.random.default_rng(0).normal(size=(len(f), outputs, outputs)) * 0.2 + 0.3 * np.eye(outputs)
    covariance = root @ root.swapaxes(1, 2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(*[nodes] * outputs, indexing="ij"), axis=-1).reshape(-1, outputs)
    weight = np.prod(np.meshgrid(*[weights] * outputs, indexing="ij"), axis=0).ravel() / np.sum(weights) ** outputs
    fs = np.asarray(f)[None] + np.einsum("nij,gj->gni", np.linalg.cholesky(covariance), z)
    density = jax.vmap(lambda g: jnp.exp(likelihood.log_prob(params, g, y)))(jnp.asarray(fs))
    mean, spread = likelihood.marginal(params, f, jnp.asarray(covariance))
    assert mean.shape == f.shape
    assert spread.shape == (*f.shape, outputs)
    claimed = [
        stats.multivariate_normal.pdf(target, m, C)
        for target, m, C in zip(np.reshape(y, f.shape), np.asarray(mean), np.asarray(spread), strict=True)
    ]
    np.testing.assert_allclose(weight @ np.asarray(density), claimed, rtol=1e-6)


@law("likelihoods", when="dispersion")
def dispersion_information_is_the_expected_curvature(row: Row) -> None:
    """Of one row: E[−∂² log p / ∂(log σ_k)²] for each entry of each leaf, the same in every row."""
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    log_prob = lambda log_scale, y: likelihood.log_prob({"log_scale": log_scale}, f, y)
    second = jax.hessian(log_prob)  # [batch, outputs, outputs]
    curvature = average(mass, -jax.vmap(lambda y: second(params["log_scale"], y))(ys))
    found = likelihood.dispersion_information(params)["log_scale"]
    assert found.shape == params["log_scale"].shape
    for each in curvature:
        np.testing.assert_allclose(found, jnp.diag(each), rtol=1e-8)


@law("likelihoods", when="dispersion")
def dispersion_prior_is_normal(row: Row) -> None:
    likelihood, params, _, _ = parts(row)
    found = likelihood.log_prior(params)
    assert found.shape == ()
    np.testing.assert_allclose(found, stats.norm.logpdf(params["log_scale"], 0.0, 3.0).sum(), rtol=1e-12)


@law("likelihoods")
def declarations_hold(row: Row) -> None:
    """Quadratic exactly where the Hessian does not depend on f; log-concave only where it is never positive."""
    likelihood, params, f, y = parts(row)
    assert likelihood.task == (
        "regression" if "regression" in row.traits else "binary" if f.shape[1] == 1 else "classes"
    )
    curvature = lambda g: by_row(jax.hessian(one_row(likelihood, params)), g, y)
    here, there = curvature(f), curvature(1.7 * f + 0.9)
    assert likelihood.quadratic == np.allclose(here, there, rtol=1e-10)
    concave = max(np.linalg.eigvalsh(here).max(), np.linalg.eigvalsh(there).max()) < 1e-10
    assert concave or not likelihood.log_concave


@law("likelihoods")
def float32_beside_float64(row: Row) -> None:
    likelihood, params, f, y = parts(row)
    single = f.astype(jnp.float32)
    for name in ("log_prob", "mean", "variance", "entropy", "information", "cdf"):
        if name == "cdf" and "regression" not in row.traits:
            continue
        method, targets = getattr(likelihood, name), (y,) if name in ("log_prob", "cdf") else ()
        found = method(params, single, *targets)
        assert found.dtype == jnp.float32, f"{name} is {found.dtype}"
        np.testing.assert_allclose(found, method(params, f, *targets), rtol=2e-5, atol=2e-6, err_msg=name)


@law("likelihoods")
def jit_and_vmap_change_nothing(row: Row) -> None:
    """A row's value does not depend on the other rows, nor on being traced."""
    likelihood, params, f, y = parts(row)
    for name in ("log_prob", "mean", "variance", "entropy", "information"):
        method = getattr(likelihood, name)
        call = (lambda g, t, m=method: m(params, g, t)) if name == "log_prob" else (lambda g, t, m=method: m(params, g))
        whole = call(f, y)
        np.testing.assert_allclose(jax.jit(call)(f, y), whole, rtol=1e-10, err_msg=name)
        alone = jax.vmap(lambda g, t, call=call: call(g[None], t[None])[0])(f, y)
        np.testing.assert_allclose(alone, whole, rtol=1e-10, err_msg=name)


def twin_of(of: Row, fault: str, laws: str, **methods: Any) -> None:
    whole = {name: getattr(of.subject, name) for name in METHODS}
    twin(of, fault, laws, SimpleNamespace(**{**whole, **methods}))


density = "log_prob_is_scipys density_integrates_to_one"
g, b, c, s = fixed.subject, bernoulli.subject, categorical.subject, scaled.subject

twin_of(fixed, "sign of log_prob", density, log_prob=lambda p, f, y: -g.log_prob(p, f, y))
twin_of(fixed, "unnormalised", density, log_prob=lambda p, f, y: -0.5 * ((y - f[:, 0]) / 0.7) ** 2)
twin_of(fixed, "variance for scale in log_prob", "log_prob_is_scipys", log_prob=Gaussian(0.7**2).log_prob)
twin_of(
    fixed,
    "standard deviation for variance",
    "mean_and_variance_are_moments",
    variance=lambda p, f: jnp.sqrt(g.variance(p, f)),
)
twin_of(fixed, "mean without f", "mean_and_variance_are_moments", mean=lambda p, f: jnp.zeros_like(f[:, 0]))
twin_of(
    fixed,
    "information without the square",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: jnp.sqrt(g.information(p, f)),
)
twin_of(fixed, "sample with variance for scale", "sample_has_the_moments", sample=Gaussian(0.7**2).sample)
twin_of(
    several,
    "one draw for all outputs",
    "sample_rows_are_independent",
    sample=lambda key, p, f: f + jnp.exp(p["log_scale"])[None] * jax.random.normal(key, (len(f), 1)),
)
twin_of(fixed, "entropy without e", "entropy_is_the_expected_surprise", entropy=lambda p, f: g.entropy(p, f) - 0.5)
twin_of(
    several,
    "entropy of one output",
    "entropy_is_the_expected_surprise",
    entropy=lambda p, f: learned.subject.entropy({"log_scale": p["log_scale"][:1]}, f[:, :1]),
)
twin_of(
    fixed,
    "survival for cdf",
    "cdf_differentiates_to_the_density",
    cdf=lambda p, f, y: 1.0 - g.cdf(p, f, y),
)
twin_of(fixed, "cdf with variance for scale", "cdf_differentiates_to_the_density", cdf=Gaussian(0.7**2).cdf)
twin_of(fixed, "marginal without noise", "marginal_is_the_mixture", marginal=lambda p, m, C: (m, C))
twin_of(
    several,
    "marginal with standard deviation for variance",
    "marginal_is_the_mixture",
    marginal=lambda p, m, C: (m, C + jnp.diag(jnp.exp(p["log_scale"]))[None]),
)
twin_of(
    several,
    "noise of one output for all",
    "log_prob_is_scipys",
    log_prob=lambda p, f, y: several.subject.log_prob({"log_scale": p["log_scale"][:1].repeat(2)}, f, y),
)
twin_of(
    learned,
    "dispersion information of log σ²",
    "dispersion_information_is_the_expected_curvature",
    dispersion_information=lambda p: jax.tree.map(lambda x: jnp.full_like(x, 0.5), p),
)
twin_of(
    several,
    "dispersion information of the batch",
    "dispersion_information_is_the_expected_curvature",
    dispersion_information=lambda p: jax.tree.map(lambda x: jnp.full_like(x, 2.0 * x.size), p),
)
twin_of(learned, "dispersion prior dropped", "dispersion_prior_is_normal", log_prior=lambda p: jnp.zeros(()))
twin_of(
    several,
    "dispersion prior averaged",
    "dispersion_prior_is_normal",
    log_prior=lambda p: several.subject.log_prior(p) / 2,
)

twin_of(
    bernoulli,
    "naive logarithm",
    "extremes_stay_finite",
    log_prob=lambda p, f, y: jnp.where(y == 1, jnp.log(jax.nn.sigmoid(f[:, 0])), jnp.log1p(-jax.nn.sigmoid(f[:, 0]))),
)
twin_of(
    bernoulli,
    "naive entropy",
    "extremes_stay_finite",
    entropy=lambda p, f: -b.mean(p, f) * jnp.log(b.mean(p, f)) - b.mean(p, -f) * jnp.log(b.mean(p, -f)),
)


def one_sided(p: Any, f: jax.Array, y: jax.Array) -> jax.Array:
    """Right in value, one-sided in its derivative at f = 0: the formula of NumPyro 0.22."""
    return f[:, 0] * y.astype(f.dtype) - jnp.clip(f[:, 0], 0) - jnp.log1p(jnp.exp(-jnp.abs(f[:, 0])))


twin_of(bernoulli, "one-sided derivative at zero", "information_is_the_variance_of_the_score", log_prob=one_sided)
twin_of(bernoulli, "labels exchanged", "log_prob_is_scipys", log_prob=lambda p, f, y: b.log_prob(p, -f, y))
twin_of(
    bernoulli,
    "information without one factor",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: b.mean(p, f)[:, None, None],
)
twin_of(bernoulli, "logit for mean", "mean_and_variance_are_moments", mean=lambda p, f: f[:, 0])
twin_of(
    bernoulli,
    "rounds for draws",
    "sample_has_the_moments",
    sample=lambda key, p, f: (b.mean(p, f) > 0.5).astype(jnp.int32),
)
twin_of(
    bernoulli,
    "entropy in bits",
    "entropy_is_the_expected_surprise",
    entropy=lambda p, f: b.entropy(p, f) / jnp.log(2.0),
)
twin_of(bernoulli, "declared quadratic", "declarations_hold", quadratic=True)
twin_of(
    bernoulli,
    "float64 always",
    "float32_beside_float64",
    log_prob=lambda p, f, y: b.log_prob(p, f.astype(jnp.float64), y),
)

twin_of(categorical, "unnormalised logits", density, log_prob=lambda p, f, y: f[jnp.arange(len(y)), y])
twin_of(
    categorical,
    "information without pp'",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: c.mean(p, f)[:, :, None] * jnp.eye(3)[None],
)
twin_of(
    categorical,
    "logits for probabilities in draws",
    "sample_has_the_moments",
    sample=lambda k, p, f: c.sample(k, p, 2.0 * f),
)
twin_of(
    categorical,
    "naive normaliser",
    "extremes_stay_finite",
    log_prob=lambda p, f, y: f[jnp.arange(len(y)), y] - jnp.log(jnp.sum(jnp.exp(f), axis=1)),
)
twin_of(
    categorical,
    "softmax over the batch",
    "jit_and_vmap_change_nothing",
    mean=lambda p, f: jax.nn.softmax(f, axis=0),
)
twin_of(
    categorical,
    "declared log-concave and is not",
    "declarations_hold",
    log_prob=lambda p, f, y: -c.log_prob(p, f, y),
)

twin_of(scaled, "Jacobian dropped", density, log_prob=lambda p, f, y: g.log_prob(p, f, (y - 3.0) / 0.2))
twin_of(
    scaled, "Jacobian with the other sign", density, log_prob=lambda p, f, y: s.log_prob(p, f, y) + 2.0 * jnp.log(0.2)
)
twin_of(
    scaled_several,
    "Jacobian of one output",
    density,
    log_prob=lambda p, f, y: scaled_several.subject.log_prob(p, f, y) + np.log(STRETCH[1]),
)
twin_of(
    scaled, "variance stretched once", "mean_and_variance_are_moments", variance=lambda p, f: 0.2 * g.variance(p, f)
)
twin_of(scaled, "mean in standard units", "mean_and_variance_are_moments", mean=g.mean)
twin_of(scaled, "draws in standard units", "sample_has_the_moments", sample=g.sample)
twin_of(scaled, "entropy in standard units", "entropy_is_the_expected_surprise", entropy=g.entropy)
twin_of(scaled, "cdf in standard units", "cdf_differentiates_to_the_density", cdf=g.cdf)
twin_of(scaled, "marginal in standard units", "marginal_is_the_mixture", marginal=g.marginal)
twin_of(
    scaled,
    "information in original units",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: g.information(p, f) / 0.2**2,
)
