"""A belief at its fixed point that is not the posterior: by how much in closed form, who is named, and what is said."""

import math
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import polygamma
from scipy.stats import norm

import lamu
from lamu import graphs
from lamu.convergence import Convergence, Unconverged
from lamu.families import Dirichlet, Gamma, Gaussian, MultivariateNormal, Point, Product
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.running.belief_shape import shape_of
from lamu.running.conclusion import warn_unconverged
from lamu.running.schedule import Rounds

pytestmark = pytest.mark.measured

KEY = jax.random.key(0)
ROWS, PRIOR, NOISE = 5000, 2.0, 0.5  # more rows than are taken at once
Y = np.random.default_rng(0).normal(1.0, NOISE, ROWS).astype(np.float32)


def level(y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, PRIOR))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, NOISE), obs=y)


def level_of(likelihood: Any) -> Any:
    def program(m: Any) -> None:
        mu = m.sample("mu", graphs.Normal(0.0, precision=PRIOR**-2))
        with m.rows():
            m.sample("y", likelihood(mu))

    return program


def kl(ratio: float, shift: float) -> float:
    """KL of a Gaussian whose deviation and mean are off by a factor, and by so many deviations."""
    return -math.log(ratio) + (ratio**2 + shift**2 - 1) / 2


def posterior_off(kind: str, rows: int, temperature: float, ratio: float, shift: float) -> tuple[Posterior, Any, Any]:
    y = Y[:rows]
    precision = (PRIOR**-2 + rows / NOISE**2) / temperature
    mean, sd = y.astype(float).sum() / NOISE**2 / temperature / precision, precision**-0.5
    mean, precision = jnp.asarray(mean + shift * sd), jnp.asarray(precision / ratio**2)
    if kind == "program":
        model: Any = lamu.from_numpyro(level, {"y": jnp.asarray(y)}, rows="rows")
        own = Product({"normal": Gaussian({"mu": mean}, Dense.from_diagonal({"mu": precision}))})
        data = model.read(None)
    else:
        model = lamu.Graph(level_of(lamu.likelihoods.Gaussian(NOISE)))
        own = Product({"mu": lamu.families.Gaussian(mean, lamu.operators.Diagonal(precision))})
        data = model.read({"y": y})
    belief = Product({"network": own, "likelihood": Point({})})
    found = Posterior(model, belief, {}, Sampled(), KEY, convergence=Convergence(residual=0.0))
    return found, Objective(model, rows, temperature), data


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["program", "graph"])
@pytest.mark.parametrize(
    ("rows", "temperature", "ratio", "shift"),
    [(30, 1.0, 0.7, 0.0), (5000, 1.0, 1.4, 0.0), (30, 0.3, 1.0, 0.6), (30, 1.0, 1.0, 0.0)],
    ids=["narrow", "wide", "shifted", "exact"],
)
def test_the_divergence_of_a_gaussian_is_that_by_which_it_is_off(kind, rows, temperature, ratio, shift):
    posterior, objective, data = posterior_off(kind, rows, temperature, ratio, shift)
    found = shape_of(posterior, objective, data, KEY)
    exact = kl(ratio, shift)
    # 8,192 draws of log w, whose deviation is at most one: four of its standard errors.
    assert found.divergence == pytest.approx(exact, abs=0.09 if exact else 1e-2)
    assert found.converged == (found.divergence <= 0.25 and ratio > 0.8)
    # Two standard errors are added: of 8,192 draws two times 1 %, and more of weights that vary.
    assert min(1.0, ratio) - 0.02 <= found.share <= min(1.0, ratio + 0.1)


@pytest.mark.parametrize("angle", [0.2, 1.2])
def test_the_share_of_independent_beliefs_is_exact_where_the_posterior_is_gaussian(angle, caplog):
    """Their deviations are those given the other; linear response finds the whole covariance of a Gaussian."""
    rng = np.random.default_rng(0)
    first, other = rng.normal(size=(2, 60))
    x = np.stack([first, np.cos(angle) * first + np.sin(angle) * other], axis=1)
    y = x @ [1.0, -1.0] + rng.normal(size=60)

    def program(m: Any) -> None:
        a, b = (m.sample(name, graphs.Normal(0.0, precision=1.0)) for name in "ab")
        with m.rows():
            m.sample("y", graphs.Normal(m.data("first") * a + m.data("second") * b, precision=1.0))

    S = np.eye(2) + x.T @ x
    exact = float(np.min((np.diag(S) * np.diag(np.linalg.inv(S))) ** -0.5))
    with warnings.catch_warnings(record=True) as said, jax.log_compiles():
        warnings.simplefilter("always")
        fit = lamu.fit(lamu.Graph(program), {"first": x[:, 0], "second": x[:, 1], "y": y}, lamu.algorithms.vmp())
    assert fit.convergence.share == pytest.approx(exact, rel=1e-3)
    # The moments are in the program of the response: one operation after the other they were up to eighty programs.
    # Where it finds nothing the draws, their densities and their losses are three more.
    assert sum("XLA compilation of jit(" in record.getMessage() for record in caplog.records) <= (
        14 if exact < 0.87 else 11
    )
    assert fit.convergence.at_fixed_point
    assert fit.convergence.misshapen == ("'a', 'b'" if exact < 0.87 else "")
    assert [str(each.message).startswith("the belief has converged and is not") for each in said] == [True] * (
        exact < 0.87
    )
    assert fit.convergence.converged == (exact >= 0.87)


@pytest.mark.stress
def test_a_scale_of_few_groups_that_hardly_differ_is_too_narrow():
    """Exactly .72 (mean) and .45 (precision) of their deviations; nothing was said of it."""
    rng = np.random.default_rng(10)
    group = np.repeat(np.arange(8), 10)
    y = (1 + 0.3 * rng.normal(size=8))[group] + rng.normal(size=80)
    data = {"x": np.ones((80, 1)), "group": group, "y": y}
    with pytest.warns(
        Unconverged, match=r"too narrow, most of all in 'coefficients', 'spread', 'w': .* 0\.68 .* lamu.mcmc.nuts"
    ):
        lamu.fit(graphs.models.HierarchicalRegression(8, 1), data, lamu.algorithms.vmp())


@pytest.mark.stress
def test_forty_groups_of_three_coefficients_are_asked():
    """492 statistics, where nothing was asked beyond 256; exact, since the posterior is a Gaussian."""
    rng, groups, spread = np.random.default_rng(0), 40, 4.0
    x, y = rng.normal(size=(groups, 5, 3)), rng.normal(size=(groups, 5))

    def program(m: Any) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        b = m.sample("b", graphs.MultivariateNormal(w, spread * jnp.eye(3)), plate=groups)
        with m.rows():
            m.sample("y", graphs.Normal(m.data("x") @ b[m.data("group")], precision=1.0))

    P = np.zeros((3 * groups + 3, 3 * groups + 3))
    for g in range(groups):
        own = slice(3 * g, 3 * g + 3)
        P[own, own] = spread * np.eye(3) + x[g].T @ x[g]
        P[own, -3:] = P[-3:, own] = -spread * np.eye(3)
    P[-3:, -3:] = (1.0 + spread * groups) * np.eye(3)
    of_beliefs = np.concatenate([*(np.diag(np.linalg.inv(P[i : i + 3, i : i + 3])) for i in range(0, len(P), 3))])
    exact = np.sqrt(np.min(of_beliefs / np.diag(np.linalg.inv(P))))
    with pytest.warns(Unconverged, match="too narrow, most of all in 'w'"):
        fit = lamu.fit(lamu.Graph(program), {"x": x, "group": np.arange(groups), "y": y}, lamu.algorithms.vmp())
    assert fit.convergence.share == pytest.approx(exact, rel=0.01)


@pytest.mark.stress
@pytest.mark.parametrize("replicates", [True, False])
def test_products_are_asked_where_one_side_is_measured_too(replicates):
    """Errors in a regressor: by NUTS the noise has .43 and the slope .61 of its deviation, and nothing was said."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=80)
    data = {"y": 1.0 + 2.0 * x + 0.5 * rng.normal(size=80), "w": x[:, None] + 0.5 * rng.normal(size=(80, 3))}

    def program(m: Any) -> None:
        w, noise = (m.sample(name, Gamma(2.0, 1.0)) for name in ("measured", "noise"))
        a, b = m.sample("a", graphs.Normal(0.0, precision=0.1)), m.sample("b", graphs.Normal([0.0], precision=0.1))
        with m.rows():
            x = m.sample("x", graphs.Normal([0.0], precision=1.0))
            m.sample("y", graphs.Normal(a + b @ x, precision=noise))
            if replicates:
                m.sample("w", graphs.Normal(x[0] * jnp.ones(3), precision=w))

    data = data if replicates else {"y": data["y"]}
    fit = lamu.fit(lamu.Graph(program), data, lamu.algorithms.vmp())
    assert fit.convergence.share < 0.65  # without replicates the sign of b is free: it is that of one sign
    assert "'b'" in fit.convergence.misshapen


def test_slopes_of_one_trait_are_asked() -> None:
    """Of 100 people and ten items of two parameters the slopes have .61 to .78 of their deviations by NUTS."""
    rng = np.random.default_rng(0)
    trait, slope = rng.normal(size=(60, 1)), 2.0 * np.exp(0.3 * rng.normal(size=8))
    y = (rng.random((60, 8)) < 1 / (1 + np.exp(-slope * trait))).astype(int)

    def program(m: Any, traits: int) -> None:
        a = m.sample("slope", MultivariateNormal(jnp.ones(traits), jnp.eye(traits)), plate=8)
        with m.rows():
            x = m.sample("trait", graphs.MultivariateNormal(jnp.zeros(traits), jnp.eye(traits)))
            m.sample("y", graphs.BernoulliLogits(a @ x))

    with pytest.warns(Unconverged, match="too narrow, most of all in 'slope'"):
        lamu.fit(lamu.Graph(lambda m: program(m, 1)), {"y": y}, lamu.algorithms.vmp())
    two = lamu.fit(lamu.Graph(lambda m: program(m, 2)), {"y": y}, lamu.algorithms.vmp())  # whose rotations are free
    assert two.convergence.at_fixed_point
    assert two.convergence.share is None


def test_what_is_beside_a_free_rotation_is_asked() -> None:
    """The mean of a factor model has .25 of its deviation by NUTS, the noise .79, and nothing was said."""
    rng = np.random.default_rng(1)
    y = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(60, 4))

    def program(m: Any) -> None:
        W = m.sample("W", MultivariateNormal(jnp.zeros(2), jnp.eye(2)), plate=4)
        mean, noise = m.sample("mean", graphs.Normal(jnp.zeros(4), 0.1)), m.sample("noise", Gamma(1.0, 1.0))
        with m.rows():
            z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
            m.sample("y", graphs.Normal(W @ z + mean, precision=noise))

    with pytest.warns(Unconverged, match="too narrow, most of all in 'mean', 'noise': a standard deviation is 0.2"):
        lamu.fit(lamu.Graph(program), {"y": y}, lamu.algorithms.vmp())


def exact_ratio(alpha: Any, log_density: Any) -> float:
    """The smallest deviation of log p and log(1 - p) of Beta beliefs, of that by a grid over all chances."""
    p = (np.arange(200) + 0.5) / 200
    grid = np.meshgrid(*[p] * len(alpha), indexing="ij")
    weight = np.exp(log_density(*grid) - np.max(log_density(*grid)))
    sd = lambda x: np.sqrt(np.cov(x.ravel(), aweights=weight.ravel()))
    own = polygamma(1, alpha) - polygamma(1, np.sum(alpha, axis=1, keepdims=True))
    exact = np.array([[sd(np.log(p)), sd(np.log1p(-p))] for p in grid])
    return float(np.min(np.sqrt(own) / exact))


def shared_weight() -> tuple[Any, Any, Any]:
    """Two groups that overlap, of known means: their weight alone is unknown, and a closed form but for the groups."""
    y = 1.5 * (np.random.default_rng(0).random(300) < 0.4) + np.random.default_rng(1).normal(size=300)

    def program(m: Any) -> None:
        weight = m.sample("weight", Dirichlet(jnp.ones(2)))
        mean = m.sample("mean", graphs.Normal(np.array([0.0, 1.5]), precision=1e8), plate=2)
        with m.rows():
            z = m.sample("z", graphs.Categorical(weight))
            m.sample("y", graphs.Normal(mean[z], precision=1.0))

    def log_density(p: Any) -> Any:
        each = np.array([norm.pdf(y), norm.pdf(y, 1.5)])
        return np.sum(np.log(p[..., None] * each[0] + (1 - p[..., None]) * each[1]), axis=-1)

    return lamu.Graph(program), {"y": y}, log_density


def hidden_steps() -> tuple[Any, Any, Any]:
    """Two states of known means: the chances of staying are unknown, and the forward recursion sums out the states."""
    rng, state, states = np.random.default_rng(0), 0, []
    for _ in range(300):
        state = state if rng.random() < 0.85 else 1 - state
        states.append(state)
    y = 1.5 * np.array(states) + rng.normal(size=300)

    def program(m: Any) -> None:
        step = m.sample("step", Dirichlet(jnp.ones(2)), plate=2)
        mean = m.sample("mean", graphs.Normal(np.array([0.0, 1.5]), precision=1e8), plate=2)
        with m.rows():
            z = m.sample("z", graphs.Markov(300, jnp.array([0.5, 0.5]), step))
            m.sample("y", graphs.Normal(mean[z], precision=1.0))

    def log_density(p: Any, r: Any) -> Any:
        a, b, total = 0.5 * np.ones_like(p), 0.5 * np.ones_like(p), 0.0
        for t, value in enumerate(y):
            if t:
                a, b = a * p + b * r, a * (1 - p) + b * (1 - r)
            a, b = a * norm.pdf(value), b * norm.pdf(value, 1.5)
            total, a, b = total + np.log(a + b), a / (a + b), b / (a + b)
        return total

    return lamu.Graph(program), {"y": y[None]}, log_density


def occupancy() -> tuple[Any, Any, Any]:
    """Sites that are occupied or not, of three visits each; an animal that is there is seen in some of them."""
    rng = np.random.default_rng(3)
    there = rng.random(200) < 0.5
    y = (rng.random((200, 3)) < 0.35 * there[:, None]).astype(int)

    def program(y: Any) -> None:
        p, seen = (numpyro.sample(name, dist.Beta(1.0, 1.0)) for name in ("p", "seen"))
        with numpyro.plate("sites", len(y)):
            z = numpyro.sample("z", dist.Bernoulli(p), infer={"enumerate": "parallel"})
            numpyro.sample("y", dist.Bernoulli(jnp.where(z[..., None] == 1, seen, 1e-6)).to_event(1), obs=y)

    def log_density(p: Any, seen: Any) -> Any:
        number, total = y.sum(axis=1), 0.0
        for k in range(4):
            density = p * seen**k * (1 - seen) ** (3 - k) + (1 - p) * (k == 0)
            total = total + np.sum(number == k) * np.log(density)
        return total

    return lamu.from_numpyro(program, {"y": jnp.asarray(y)}, rows="sites"), None, log_density


@pytest.mark.stress
@pytest.mark.parametrize("model", [shared_weight, hidden_steps, occupancy])
def test_beliefs_beside_categories_of_rows_are_asked(model):
    """Nothing was said of .6 of a deviation; what a row's category leaves open widens the posterior."""
    target, data, log_density = model()
    with pytest.warns(Unconverged, match=r"too narrow, .* lamu.mcmc.nuts.* fewer categories"):
        fit = lamu.fit(target, data, lamu.algorithms.vmp(), steps=3000)
    beliefs: Any = fit.posterior.belief.factors["network"]
    beliefs = beliefs.factors if data else beliefs.parts.factors["conjugate"].factors
    alpha = np.concatenate(
        [
            np.stack(jax.tree.leaves(belief), axis=-1).reshape(-1, 2)
            for name, belief in beliefs.items()
            if name != "mean"
        ]
    )
    exact = exact_ratio(alpha, log_density)
    assert fit.convergence.share == pytest.approx(exact, abs=0.1)
    assert exact < 0.8


@pytest.mark.stress
def test_components_that_nobody_confuses_are_not_too_narrow():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(300, 2)) + 12.0 * rng.integers(2, size=(300, 1)) - 6.0
    fit = lamu.fit(graphs.models.GaussianMixture(2, 2), {"y": y / 6.0}, lamu.algorithms.vmp())
    assert fit.convergence.share == pytest.approx(1.0, abs=1e-3)
    assert fit.convergence.converged


@pytest.mark.stress
def test_a_single_component_is_exact():
    """The log of its probability has no deviation, by which something was divided."""
    y = np.random.default_rng(0).normal(size=(50, 2))
    fit = lamu.fit(graphs.models.GaussianMixture(1, 2), {"y": y}, lamu.algorithms.vmp())
    assert fit.convergence.share == pytest.approx(1.0, abs=1e-3)


@pytest.mark.stress
def test_beliefs_of_models_with_rotations_are_not_asked():
    y = np.random.default_rng(0).normal(size=(30, 3))
    fit = lamu.fit(graphs.models.FactorAnalysis(1, 3), {"y": y}, lamu.algorithms.vmp(), steps=5)
    assert fit.convergence.share is None


@pytest.mark.parametrize("kind", ["program", "graph"])
def test_a_fourth_of_the_deviation_has_a_large_k(kind):
    """The weights of N(0, .23²) for N(0, 1) have k = 1 − .23² = .95 far out; the divergence is 1.0 nats."""
    posterior, objective, data = posterior_off(kind, 30, 1.0, 0.23, 0.0)
    found = shape_of(posterior, objective, data, KEY)
    assert 0.6 < found.pareto_k < 1.1  # the largest 271 of 8,192 weights are not yet as far out
    assert 0.4 < found.divergence <= kl(0.23, 0.0) + 0.02
    assert found.misshapen == "'mu'"
    assert not found.converged
    assert found.at_fixed_point


def test_what_has_no_density_at_some_draws_counts_a_few_nats():
    def wall() -> None:
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.factor("w", jnp.where(x > -0.5, 0.0, -jnp.inf))

    model = lamu.from_numpyro(wall, {})
    own = Product({"normal": Gaussian({"x": jnp.array(0.0)}, Dense.from_diagonal({"x": jnp.array(1.0)}))})
    belief = Product({"network": own, "likelihood": Point({})})
    posterior = Posterior(model, belief, {}, Sampled(), KEY, convergence=Convergence())
    found = shape_of(posterior, Objective(model, 1), model.read(None), KEY)
    beyond = 0.3085  # of the draws; the others are off by the log of the mass that is left
    assert found.divergence == pytest.approx(5 * beyond + (1 - beyond) * math.log(1 - beyond), abs=0.2)


Y8, S8 = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools() -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, S8), obs=Y8)


@pytest.mark.stress
def test_a_gaussian_of_a_funnel_says_so_once_and_names_the_scale():
    """The deviation of tau is .6 by the best Gaussian, and 2.8 by NUTS."""
    with pytest.warns(Unconverged) as said:
        fit = lamu.fit(lamu.from_numpyro(schools, {}), None, lamu.algorithms.cvi(pairs=4), steps=200)
    (one,) = said
    assert "most of all in 'tau'" in str(one.message)
    assert f"Pareto k of {fit.convergence.pareto_k:.2f}" in str(one.message)
    assert "lamu.mcmc.nuts()" in str(one.message)
    assert str(one.message).startswith("the belief has converged and is not the posterior")
    assert fit.convergence.misshapen.startswith("'tau'")
    assert fit.convergence.divergence > 0.5
    assert fit.convergence.describe()["pareto_k"] == pytest.approx(fit.convergence.pareto_k)


@pytest.mark.stress
def test_many_rows_of_a_logistic_regression_are_gaussian_and_conjugate_graphs_are_not_asked():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = (rng.random(400) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.0]))).astype(int)

    def logistic(m: Any) -> None:
        w = m.sample("w", MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        with m.rows():
            m.sample("y", lamu.likelihoods.Bernoulli()(m.data("x") @ w))

    def counts(m: Any) -> None:
        rate = m.sample("rate", Gamma(1.0, 1.0))
        with m.rows():
            m.sample("y", graphs.Poisson(rate))

    fit = lamu.fit(lamu.Graph(logistic), {"x": jnp.asarray(x), "y": y}, lamu.algorithms.ncvmp(), steps=60)
    assert fit.convergence.divergence < 0.02
    few = {"x": jnp.asarray(x[:3]), "y": np.array([1, 1, 0])}  # skew, but nearly Gaussian under the prior
    assert lamu.fit(lamu.Graph(logistic), few, lamu.algorithms.svi(), steps=100).convergence.divergence < 0.1
    exact = lamu.fit(lamu.Graph(counts), {"y": np.arange(5)}, lamu.algorithms.svi(), steps=20)
    assert exact.convergence.divergence is None


@pytest.mark.stress
def test_separate_beliefs_about_variables_that_depend_on_each_other_are_not_the_posterior():
    """Two copies of one input: the deviations of both are those given the other, .17 of their own."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=60)
    y = rng.poisson(np.exp(0.5 * z))

    def program(m: Any) -> None:
        a = m.sample("a", graphs.Normal(0.0, precision=1.0))
        b = m.sample("b", graphs.Normal(0.0, precision=1.0))
        with m.rows():
            m.sample("y", lamu.likelihoods.Poisson()(m.data("z") * a + m.data("z") * b))

    data = {"z": jnp.asarray(z), "y": jnp.asarray(y)}
    with pytest.warns(Unconverged, match="most of all in 'a', 'b': .* one belief"):
        lamu.fit(lamu.Graph(program), data, lamu.algorithms.ncvmp(), steps=2000)


def test_a_longer_run_is_not_taken_for_the_shape_and_a_short_one_is_told_both():
    shape = Convergence(residual=0.0, divergence=1.0, pareto_k=0.9, misshapen="'tau'")
    both = replace(shape, residual=3.0)
    assert not shape.converged
    assert shape.at_fixed_point
    assert Rounds.of(lamu.protocol.Traits(), rows=100, batch_size=10).enough(10_000, shape)
    assert not both.at_fixed_point
    assert len(both.complaints) == 2
    assert "wrong shape" in shape.complaint
    assert "wrong shape" not in both.complaint
    assert Convergence(divergence=math.nan).converged is False
    assert Convergence(residual=0.0, divergence=0.24, pareto_k=3.0).converged


def test_a_short_run_is_told_that_longer_may_not_help():
    found = Convergence(residual=3.0, divergence=1.0, pareto_k=0.9, misshapen="'tau'")
    posterior = replace(posterior_off("graph", 30, 1.0, 1.0, 0.0)[0], convergence=found)
    fit = lamu.running.conclusion.Fit(posterior, {"loss": np.ones(3)}, None)
    with pytest.warns(
        Unconverged, match="has not converged: .* train longer .* not help, a Gaussian is the wrong shape"
    ):
        warn_unconverged(fit, None, chosen_earlier=False)


@pytest.mark.measured
def test_a_gaussian_that_is_far_from_a_density_is_told() -> None:
    """Independent beliefs of two variables with a correlation of .9 have .44 of their deviations."""
    precision = jnp.linalg.inv(jnp.array([[1.0, 0.9], [0.9, 1.0]]))
    density = lamu.LogDensity(lambda theta: -0.5 * theta @ precision @ theta, jnp.zeros(2))
    with pytest.warns(Unconverged, match=r"a Gaussian is the wrong shape .*'theta'.*KL.*von\(structure="):
        found = lamu.fit(density, None, lamu.algorithms.ivon()).convergence
    assert found.divergence > 0.25
    with warnings.catch_warnings():
        warnings.simplefilter("error", Unconverged)
        right = lamu.fit(density, None, lamu.algorithms.von(structure=Dense))
    assert right.convergence.divergence < 0.05


@pytest.mark.parametrize(("rows", "exact", "told"), [(5, 0.709, 0.8), (8, 0.846, 0.87)])
def test_an_unknown_noise_of_few_rows_widens_the_mean_beyond_linear_response(rows, exact, told) -> None:
    """By a grid the belief of the mean has `exact` of its deviation; linear response said .89 and .94, of the noise."""
    y = np.random.default_rng(0).normal(size=rows)

    def level(m: Any) -> None:
        mean, noise = m.sample("mean", graphs.Normal(0.0, precision=1e-4)), m.sample("noise", Gamma(0.01, 0.01))
        with m.rows():
            m.sample("y", graphs.Normal(mean, precision=noise))

    with pytest.warns(lamu.Unconverged, match="too narrow, most of all in 'mean': a standard deviation is 0"):
        fit = lamu.fit(lamu.Graph(level), {"y": y}, lamu.algorithms.vmp())
    assert exact < fit.convergence.share < told
