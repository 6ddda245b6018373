"""Laws of observations: conjugate Bayes is the textbook's, whatever the family.

A row's extras: `prior`; `y`; `thetas`, some θ of the family's support; `textbook`, the posterior's parameters for
weighted targets, written out in NumPy; and `predictive`, SciPy's distribution of one new target given such parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import lamu
from lamu import tree
from lamu.algorithms import conjugate
from lamu.data import Arrays, Batch
from lamu.families import Beta, Dirichlet, Gamma, Gaussian, NormalGamma, NormalWishart
from lamu.objective import Objective
from lamu.observations import (
    Bernoulli,
    Categorical,
    Exponential,
    MultivariateNormal,
    Normal,
    NormalMean,
    Observation,
    Poisson,
)
from lamu.operators import Scalar
from lamu.predictives.gaussian import ConjugatePredictive
from lamu.record import record
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("observations", "cdf scalar tempered")

rng = np.random.default_rng(3)
N, SCALE = 11, 0.7
WEIGHTS = rng.uniform(0.5, 2.0, N)
NUMBERS = 1.0 + 0.8 * rng.normal(size=N)
VECTORS = rng.normal(size=(N, 2)) @ np.array([[1.0, 0.4], [0.0, 0.6]]) + np.array([1.0, -2.0])


def beta(prior: Any, y: Any, w: Any) -> Any:
    a, b = np.asarray(prior.alpha), np.asarray(prior.beta)
    return Beta(jnp.asarray(a + w @ y), jnp.asarray(b + w @ (1 - y)))


def dirichlet(prior: Any, y: Any, w: Any) -> Any:
    return Dirichlet(jnp.asarray(prior.concentration + np.array([w[y == k].sum() for k in range(3)])))


def gamma_of_counts(prior: Any, y: Any, w: Any) -> Any:
    return Gamma(jnp.asarray(prior.shape + w @ y), jnp.asarray(prior.rate + w.sum()))


def gamma_of_waits(prior: Any, y: Any, w: Any) -> Any:
    return Gamma(jnp.asarray(prior.shape + w.sum()), jnp.asarray(prior.rate + w @ y))


def normal(prior: Any, y: Any, w: Any) -> Any:
    precision = float(prior.precision.value) + w.sum() / SCALE**2
    mean = (float(prior.precision.value) * float(prior.mean) + w @ y / SCALE**2) / precision
    return Gaussian(jnp.asarray(mean), Scalar(jnp.asarray(precision)))


def normal_gamma(prior: Any, y: Any, w: Any) -> Any:
    """Murphy (2007), "Conjugate Bayesian analysis of the Gaussian distribution", equations 85 to 89."""
    m0, k0, a0, b0 = (float(value) for value in (prior.location, prior.count, prior.shape, prior.rate))
    n = w.sum()
    centre = w @ y / n
    rate = b0 + w @ (y - centre) ** 2 / 2 + k0 * n * (centre - m0) ** 2 / (2 * (k0 + n))
    return NormalGamma(*(jnp.asarray(v) for v in ((k0 * m0 + n * centre) / (k0 + n), k0 + n, a0 + n / 2, rate)))


def normal_wishart(prior: Any, y: Any, w: Any) -> Any:
    """Murphy (2007), equations 216 to 221, with V⁻¹ for its T."""
    m0, k0 = np.asarray(prior.location), float(prior.count)
    n = w.sum()
    centre = w @ y / n
    scatter = ((y - centre) * w[:, None]).T @ (y - centre)
    scale = np.asarray(prior.scale_inverse) + scatter + k0 * n / (k0 + n) * np.outer(centre - m0, centre - m0)
    fields = ((k0 * m0 + n * centre) / (k0 + n), k0 + n, float(prior.degrees) + n, scale)
    return NormalWishart(*(jnp.asarray(v) for v in fields))


def student(q: Any) -> Any:
    return stats.t(2 * q.shape, q.location, np.sqrt(q.rate * (q.count + 1) / (q.shape * q.count)))


def student_vectors(q: Any) -> Any:
    degrees = float(q.degrees) - 1
    shape = np.asarray(q.scale_inverse) * (float(q.count) + 1) / (float(q.count) * degrees)
    return stats.multivariate_t(np.asarray(q.location), shape, degrees)


vectors = {"mean": jnp.array([0.5, -1.0]), "precision": jnp.array([[2.0, 0.3], [0.3, 0.7]])}
ROWS = {
    "Bernoulli": row(
        "observations",
        "Bernoulli",
        Bernoulli(),
        "scalar tempered",
        prior=Beta(0.5, 2.0),
        y=rng.integers(0, 2, N),
        thetas=[jnp.array(0.3), jnp.array(0.9)],
        textbook=beta,
        predictive=lambda q: stats.bernoulli(q.alpha / (q.alpha + q.beta)),
    ),
    "Categorical": row(
        "observations",
        "Categorical",
        Categorical(3),
        prior=Dirichlet(jnp.array([0.5, 1.0, 2.0])),
        y=rng.integers(0, 3, N),
        thetas=[jnp.array([0.2, 0.5, 0.3])],
        textbook=dirichlet,
        predictive=lambda q: stats.rv_discrete(
            values=(np.arange(3), np.asarray(q.concentration / q.concentration.sum()))
        ),
    ),
    "Poisson": row(
        "observations",
        "Poisson",
        Poisson(),
        "scalar cdf tempered",
        prior=Gamma(2.0, 1.5),
        y=rng.poisson(3.0, N),
        thetas=[jnp.array(0.3), jnp.array(4.0)],
        textbook=gamma_of_counts,
        predictive=lambda q: stats.nbinom(q.shape, q.rate / (q.rate + 1)),
    ),
    "Exponential": row(
        "observations",
        "Exponential",
        Exponential(),
        "scalar cdf",
        prior=Gamma(2.5, 1.5),
        y=rng.exponential(0.5, N),
        thetas=[jnp.array(0.3), jnp.array(4.0)],
        textbook=gamma_of_waits,
        predictive=lambda q: stats.lomax(q.shape, scale=q.rate),
    ),
    "NormalMean": row(
        "observations",
        "NormalMean",
        NormalMean(SCALE),
        "scalar cdf tempered",
        prior=Gaussian(0.3, Scalar(2.0)),
        y=NUMBERS,
        thetas=[jnp.array(-0.4), jnp.array(2.0)],
        textbook=normal,
        predictive=lambda q: stats.norm(q.mean, np.sqrt(SCALE**2 + 1 / q.precision.value)),
    ),
    "Normal": row(
        "observations",
        "Normal",
        Normal(),
        "scalar cdf",
        prior=NormalGamma(0.3, 0.8, 1.7, 1.2),
        y=NUMBERS,
        thetas=[{"mean": jnp.array(-0.4), "precision": jnp.array(2.0)}],
        textbook=normal_gamma,
        predictive=student,
    ),
    "MultivariateNormal": row(
        "observations",
        "MultivariateNormal",
        MultivariateNormal(),
        "tempered",
        prior=NormalWishart(jnp.array([0.5, 0.0]), 0.8, 4.5, jnp.array([[1.0, 0.2], [0.2, 0.6]])),
        y=VECTORS,
        thetas=[vectors],
        textbook=normal_wishart,
        predictive=student_vectors,
    ),
}


def fitted(row: Row, **options: Any) -> Any:
    """The posterior by steps on batches of four rows, the last of which is padded."""
    model = lamu.ConjugateModel(row.subject, row.extras["prior"])
    data = Arrays.of({"y": row.extras["y"], "weight": options.pop("weight", np.ones(N))})
    objective, algorithm, key = Objective(model, N, **options), conjugate(), jax.random.key(0)
    state = algorithm.init(key, objective, data.example(4))
    step = jax.jit(algorithm.step)
    for number, batch in enumerate(data.batches(4)):
        state, _ = step(jax.random.fold_in(key, number), state, batch, objective)
    return algorithm.posterior(key, state, objective, data, None)


def log_density(distribution: Any, y: Any) -> Any:
    return distribution.logpmf(y) if hasattr(distribution, "logpmf") else distribution.logpdf(y)


@law("observations")
def the_affine_form_is_the_density(row: Row) -> None:
    """Of NumPyro, at some θ; and it is affine in the statistics."""
    y = jnp.asarray(row.extras["y"], float)
    for theta in row.extras["thetas"]:
        statistics = row.extras["prior"].statistics(theta)
        f = jnp.broadcast_to(tree.ravel(theta)[0][None], (N, tree.dimension(theta)))
        expected = row.subject.log_prob({}, f, jnp.asarray(row.extras["y"]))
        np.testing.assert_allclose(row.subject.log_likelihood(statistics, y), expected, rtol=1e-10)
        zero, double = tree.scale(statistics, 0.0), tree.scale(statistics, 2.0)
        at = [row.subject.log_likelihood(point, y) for point in (zero, statistics, double)]
        np.testing.assert_allclose(at[2] - at[1], at[1] - at[0], rtol=1e-9, atol=1e-12)


@law("observations")
def a_belief_is_its_natural_parameters(row: Row) -> None:
    """There and back; and the network of the model is θ itself, from the prior's mean on."""
    prior = row.extras["prior"]
    for one, other in zip(jax.tree.leaves(prior.with_natural(prior.to_natural())), jax.tree.leaves(prior), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    y = jnp.asarray(row.extras["y"], float)[:2]
    log_h, t = jax.value_and_grad(lambda T: row.subject.log_likelihood(T, y)[0])(tree.scale(prior.to_natural(), 0.0))
    natural = prior.natural()
    after = replace(natural, values=tree.add(natural.values, t))
    expected = after.log_partition() - natural.log_partition() + log_h
    np.testing.assert_allclose(row.subject.log_prob_under(prior, y)[0], expected, rtol=1e-12)
    model = lamu.ConjugateModel(row.subject, prior)
    targets = jnp.asarray(row.extras["y"])
    params, state = model.init(jax.random.key(0), Batch.of(jnp.zeros((len(targets), 0)), targets))
    f = jnp.stack([tree.ravel(params["network"])[0]] * len(targets))
    values, _ = model.log_likelihood(params, state, Batch.of(jnp.zeros((len(targets), 0)), targets))
    np.testing.assert_allclose(values, row.subject.log_prob({}, f, targets), rtol=1e-12)
    assert f.shape[1] == row.subject.outputs(row.extras["y"])


@law("observations")
def one_pass_is_the_textbooks_posterior(row: Row) -> None:
    """With weights, to 1e-10."""
    found = fitted(row, weight=WEIGHTS).belief.factors["network"]
    expected = row.extras["textbook"](row.extras["prior"], row.extras["y"], WEIGHTS)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@law("observations", when="tempered")
def temperature_divides_likelihood_and_prior_alike(row: Row) -> None:
    """λ/T for the posterior's λ; the power of the likelihood, where given, scales the data alone."""
    prior, y, T = row.extras["prior"], row.extras["y"], 0.8
    found = fitted(row, temperature=T, likelihood_power=0.5).belief.factors["network"].to_natural()
    expected = tree.scale(row.extras["textbook"](prior, y, np.full(N, 0.5)).to_natural(), 1 / T)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@law("observations")
def evidence_is_the_chain_of_predictives(row: Row) -> None:
    """Σ log p(y_i | y_1 … y_{i−1}), each by SciPy after the textbook's update."""
    prior, y, ones = row.extras["prior"], row.extras["y"], np.ones(N)
    expected = 0.0
    for i in range(N):
        q = row.extras["textbook"](prior, y[:i], ones[:i]) if i else prior
        expected += float(log_density(row.extras["predictive"](q), y[i]))
    np.testing.assert_allclose(fitted(row).evidence, expected, rtol=1e-10)


def prediction(row: Row) -> tuple[ConjugatePredictive, Any]:
    q = row.extras["textbook"](row.extras["prior"], row.extras["y"], np.ones(N))
    return ConjugatePredictive(row.subject, q, rows=N), row.extras["predictive"](q)


@law("observations")
def prediction_is_scipys(row: Row) -> None:
    found, expected = prediction(row)
    y = row.extras["y"]
    np.testing.assert_allclose(found.log_prob(y), log_density(expected, y), rtol=1e-10)
    if row.subject.task == "classes":
        np.testing.assert_allclose(found.mean[0], expected.pmf(np.arange(3)), rtol=1e-12)
        np.testing.assert_allclose(found.total[0], expected.entropy(), rtol=1e-10)
        return
    if "scalar" in row.traits:
        np.testing.assert_allclose(found.mean[0], expected.mean(), rtol=1e-10)
        np.testing.assert_allclose(found.variance[0], expected.var(), rtol=1e-10)
    else:
        degrees = expected.df
        np.testing.assert_allclose(found.mean[0], expected.loc, rtol=1e-10)
        np.testing.assert_allclose(found.variance[0], np.diagonal(expected.shape) * degrees / (degrees - 2), rtol=1e-10)
    if "cdf" in row.traits:
        np.testing.assert_allclose(found.cdf(y), expected.cdf(y), rtol=1e-8)


@law("observations")
def uncertainty_is_of_two_parts(row: Row) -> None:
    """The moments are those of the conditional moments over draws of θ, within five standard errors of 1,000 draws.

    At most six numbers a row: a false alarm with probability 1e-5.
    """
    found, _ = prediction(row)
    thetas = found.belief.draws(jax.random.key(1), 1000)
    f = jax.vmap(lambda theta: tree.ravel(theta)[0])(thetas)
    means, variances = row.subject.mean({}, f), row.subject.variance({}, f)
    pairs = [(means, found.mean[0])]
    if row.subject.task == "regression":
        pairs += [(variances, found.aleatoric[0]), ((means - found.mean[:1]) ** 2, found.epistemic[0])]
    else:
        pairs += [(row.subject.entropy({}, f), found.aleatoric[0])]
    for draws, expected in pairs:
        error = jnp.std(draws, axis=0) / np.sqrt(len(draws))
        assert np.all(np.abs(jnp.mean(draws, axis=0) - expected) <= 5 * error + 1e-12)


def broken(of: str, fault: str, laws: str, **methods: Any) -> None:
    """A twin whose class overrides some methods."""
    base = type(ROWS[of].subject)
    made = record(type(f"{of} {fault}", (base,), {**methods, "__module__": __name__}))
    twin(ROWS[of], fault, laws, made(**vars(ROWS[of].subject)))


half = "one_pass_is_the_textbooks_posterior"
broken(
    "Poisson",
    "exposure forgotten",
    f"the_affine_form_is_the_density {half} temperature_divides_likelihood_and_prior_alike",
    log_density=lambda self, T, y: y * T[0] - jax.scipy.special.gammaln(y + 1),
)
broken(
    "Poisson",
    "factorial forgotten",
    "the_affine_form_is_the_density evidence_is_the_chain_of_predictives prediction_is_scipys",
    log_density=lambda self, T, y: y * T[0] - T[1],
)
broken(
    "Normal",
    "half forgotten",
    f"the_affine_form_is_the_density {half} evidence_is_the_chain_of_predictives prediction_is_scipys",
    log_density=lambda self, T, y: Normal.log_density(self, T, y) + T[0] / 2,
)
broken(
    "Bernoulli",
    "classes exchanged",
    f"{half} temperature_divides_likelihood_and_prior_alike evidence_is_the_chain_of_predictives",
    log_density=lambda self, T, y: y * T[1] + (1 - y) * T[0],
)
broken(
    "Exponential",
    "mean for rate",
    "prediction_is_scipys uncertainty_is_of_two_parts",
    moments=lambda self, q: (q.rate / q.shape, *Exponential.moments(self, q)[1:]),
)
broken(
    "MultivariateNormal",
    "only the mean",
    "a_belief_is_its_natural_parameters",
    outputs=lambda self, y: jnp.shape(y)[-1],
)
broken(
    "NormalMean",
    "variance of the belief forgotten",
    "prediction_is_scipys uncertainty_is_of_two_parts",
    moments=lambda self, q: (*NormalMean.moments(self, q)[:2], jnp.zeros(())),
)
assert issubclass(Normal, Observation)
