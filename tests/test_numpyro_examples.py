"""NumPyro's example programs, written anew and small: their densities, what is exact in them, and the page's table."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density

import lamu
from lamu.base.compile_once import lenient
from tests.for_each import for_each

sample, plate = numpyro.sample, numpyro.plate
RANDOM = np.random.default_rng(0)
Y, X = RANDOM.normal(1.0, 1.0, size=12), RANDOM.normal(size=(12, 2))
COUNTS, BITS, GROUP = RANDOM.poisson(2.0, size=12), np.arange(12) % 3 > 0, np.arange(12) % 3
WALK = np.cumsum(RANDOM.normal(size=8))


def baseball(at_bats, hits):
    m, kappa = sample("m", dist.Uniform(0, 1)), sample("kappa", dist.Pareto(1.0, 1.5))
    with plate("players", len(hits)):
        phi = sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
        sample("hits", dist.Binomial(at_bats, probs=phi), obs=hits)


def eight_schools(sigma, y):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with plate("schools", len(y)):
        with handlers.reparam(config={"theta": numpyro.infer.reparam.TransformReparam()}):
            shift = dist.transforms.AffineTransform(mu, tau)
            theta = sample("theta", dist.TransformedDistribution(dist.Normal(0.0, 1.0), shift))
        sample("y", dist.Normal(theta, sigma), obs=y)


def linear_regression(X, y):
    w, tau = sample("w", dist.Normal(0, 2).expand([2]).to_event(1)), sample("tau", dist.Gamma(2.0, 1.0))
    with plate("rows", len(y)):
        sample("y", dist.Normal(X @ w, tau**-0.5), obs=y)


def logistic_regression(X, y):
    w = sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    with plate("rows", len(y)):
        sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def horseshoe(X, y):
    whole, each = sample("whole", dist.HalfCauchy(1.0)), sample("each", dist.HalfCauchy(1.0).expand([2]).to_event(1))
    unscaled = sample("unscaled", dist.Normal(0, 1).expand([2]).to_event(1))
    w = numpyro.deterministic("w", unscaled * whole * each)
    with plate("rows", len(y)):
        sample("y", dist.Normal(X @ w, 1.0), obs=y)


def gaussian_process(X, y):
    scale, length = sample("scale", dist.LogNormal(0, 1)), sample("length", dist.LogNormal(0, 1))
    away = (X[:, None, 0] - X[None, :, 0]) ** 2
    K = scale * jnp.exp(-away / (2 * length**2)) + 0.1 * jnp.eye(len(y))
    sample("y", dist.MultivariateNormal(jnp.zeros(len(y)), K), obs=y)


def volatility(y):
    step = sample("step", dist.Exponential(50.0))
    log_scale = sample("log_scale", dist.GaussianRandomWalk(step, num_steps=len(y)))
    sample("y", dist.StudentT(5.0, 0.0, jnp.exp(log_scale)).to_event(1), obs=y)


def autoregression(y):
    rho, sigma = sample("rho", dist.Uniform(-1, 1)), sample("sigma", dist.HalfNormal(1.0))

    def step(before, now):
        now = sample("y", dist.Normal(rho * before, sigma), obs=now)
        return now, None

    scan(step, 0.0, y)


def local_level(y):
    def step(before, now):
        x = sample("x", dist.Normal(before, 1.0))
        sample("y", dist.Normal(x, 0.5), obs=now)
        return x, None

    scan(step, 0.0, y)


def mixture(y):
    share = sample("share", dist.Dirichlet(jnp.array([1.0, 2.0])))
    mean = sample("mean", dist.Normal(0, 3).expand([2]))
    with plate("rows", len(y)):
        z = sample("z", dist.Categorical(share))
        sample("y", dist.Normal(mean[z], 1.0), obs=y)


def ordinal(X, y):
    w = sample("w", dist.Normal(0, 5))
    support = dist.constraints.ordered_vector
    cuts = sample("cuts", dist.ImproperUniform(support, (), event_shape=(2,)))
    with plate("rows", len(y)):
        sample("y", dist.OrderedLogistic(w * X[:, 0], cuts), obs=y)


def zero_inflated(X, y):
    w, gate = sample("w", dist.Normal(0, 1).expand([2]).to_event(1)), sample("gate", dist.Beta(1.0, 1.0))
    with plate("rows", len(y)):
        sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(X @ w)), obs=y)


def funnel():
    log_scale = sample("log_scale", dist.Normal(0, 3))
    sample("x", dist.Normal(jnp.zeros(3), jnp.exp(log_scale / 2)).to_event(1))


def admissions(group, applied, admitted):
    mean = sample("mean", dist.Normal(0, 5))
    with plate("departments", 3):
        own = sample("own", dist.Normal(mean, 1.0))
    with plate("rows", len(applied)):
        sample("admitted", dist.Binomial(applied, logits=own[group]), obs=admitted)


def population(group, y):
    effect = sample("effect", dist.ZeroSumNormal(2.0, event_shape=(3,)))
    with plate("rows", len(y)):
        sample("y", dist.Normal(effect[group], 1.0), obs=y)


def neighbours(A, y):
    x = sample("x", dist.CAR(jnp.zeros(4), correlation=0.9, conditional_precision=2.0, adj_matrix=A, is_sparse=False))
    sample("y", dist.Normal(x, 0.5).to_event(1), obs=y)


def censored(y, seen):
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with plate("rows", len(y)):
        numpyro.factor("survived", jnp.where(seen, 0.0, -rate * y))
        with handlers.mask(mask=seen):
            sample("y", dist.Exponential(rate), obs=y)


def subsampled(y):
    mean = sample("mean", dist.Normal(0, 10))
    with plate("rows", len(y), subsample_size=4) as i:
        sample("y", dist.Normal(mean, 1.0), obs=y[i])


LINE = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
EXAMPLES: dict[str, tuple[Callable[..., None], dict[str, Any], str | None]] = {
    "baseball": (baseball, {"at_bats": COUNTS + 20, "hits": COUNTS}, None),
    "eight schools": (eight_schools, {"sigma": np.full(12, 2.0), "y": Y}, None),
    "linear regression": (linear_regression, {"X": X, "y": Y}, "rows"),
    "logistic regression": (logistic_regression, {"X": X, "y": BITS}, "rows"),
    "horseshoe regression": (horseshoe, {"X": X, "y": Y}, "rows"),
    "Gaussian process": (gaussian_process, {"X": X, "y": Y}, None),
    "stochastic volatility": (volatility, {"y": WALK}, None),
    "autoregression": (autoregression, {"y": WALK}, None),
    "local level": (local_level, {"y": WALK}, None),
    "mixture": (mixture, {"y": Y}, "rows"),
    "ordinal regression": (ordinal, {"X": X, "y": GROUP}, "rows"),
    "zero-inflated Poisson": (zero_inflated, {"X": X, "y": COUNTS}, "rows"),
    "Neal's funnel": (funnel, {}, None),
    "UC Berkeley admissions": (admissions, {"group": GROUP, "applied": COUNTS + 5, "admitted": COUNTS}, "rows"),
    "zero-sum effects": (population, {"group": GROUP, "y": Y}, "rows"),
    "conditional autoregression": (neighbours, {"A": LINE, "y": Y[:4]}, None),
    "censored lifetimes": (censored, {"y": np.abs(Y), "seen": BITS}, "rows"),
    "minibatch": (subsampled, {"y": Y}, "rows"),
}


@functools.cache
def target_of(name: str) -> Any:
    program, data, rows = EXAMPLES[name]
    return lamu.from_numpyro(program, data, rows=rows)


@pytest.mark.stress
@for_each("name", [name for name in EXAMPLES if name not in ("mixture", "minibatch")])
def test_the_density_is_numpyros(name: str) -> None:
    program, data, _ = EXAMPLES[name]
    require_density_of_numpyro(program, data, target_of(name))


def require_density_of_numpyro(program: Callable[..., None], data: dict[str, Any], target: Any) -> None:
    """Asserts that the log joint is NumPyro's, with finite slopes."""
    real = jax.tree.map(
        lambda leaf: 0.3 * jnp.cos(1.0 + jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape),
        target.constraints.unconstrain(target.theta),
    )
    theta, volume = target.constraints.constrain(real)
    with lenient(), handlers.seed(rng_seed=0):
        expected = log_density(program, (), data, theta)[0] + volume
    batch = target.read(None).full()

    def log_joint(real: Any) -> Any:
        params = {"network": real, "likelihood": {}}
        return jnp.sum(target.log_likelihood(params, {}, batch)[0]) + target.log_prior(params)

    found, slopes = jax.value_and_grad(log_joint)(real)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))  # all that nuts and cvi need


@pytest.mark.stress
def test_the_page_tells_what_runs_under_which_algorithm() -> None:
    """A program is taken by nuts and cvi if it is read at all, and by vmp if every site is conjugate."""
    page = (Path(__file__).parents[1] / "docs" / "coming_from.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| ([^|]+?) \| yes \| yes \| (yes|no)\b[^|]* \|$", page, re.MULTILINE))
    targets = {name: target_of(name) for name in EXAMPLES}
    assert {name: table[name] for name in targets} == {
        name: "yes" if set(t.kinds) == set(t.theta) else "no" for name, t in targets.items()
    }


def test_an_improper_prior_and_a_mask_run() -> None:
    """The mean of normal rows under a flat prior, some of them masked, by coordinate ascent in closed form."""

    def program(y, seen):
        mean = sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
        with plate("rows", len(y)), handlers.mask(mask=seen):
            sample("y", dist.Normal(mean, 2.0), obs=y)

    target = lamu.from_numpyro(program, {"y": Y, "seen": BITS}, rows="rows")
    belief = lamu.fit(target, None, lamu.algorithms.vmp()).posterior
    np.testing.assert_allclose(belief.mean["network"]["mean"], Y[BITS].mean(), rtol=1e-5)
    np.testing.assert_allclose(belief.std["network"]["mean"], 2.0 / np.sqrt(BITS.sum()), rtol=1e-5)


def test_series_that_are_scanned_are_exact() -> None:
    L = np.tril(np.ones((8, 8)))
    gain = L @ L.T @ np.linalg.inv(L @ L.T + 0.25 * np.eye(8))
    posterior = lamu.fit(target_of("local level"), None, lamu.algorithms.vmp()).posterior
    np.testing.assert_allclose(posterior.mean["network"]["x"], gain @ WALK, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(posterior.std["network"]["x"], np.sqrt(np.diag(L @ L.T - gain @ L @ L.T)), rtol=1e-4)


def test_a_term_outside_the_plate_sees_no_rows() -> None:
    """It would be evaluated on one row, and be wrong without a word."""

    def program(y):
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        numpyro.factor("total", -rate * jnp.sum(y))
        with plate("rows", len(y)):
            sample("y", dist.Exponential(rate), obs=y)

    with pytest.raises(ValueError, match="'total' stands outside the plate 'rows' and depends on its rows"):
        lamu.from_numpyro(program, {"y": np.abs(Y)}, rows="rows")
    assert set(lamu.from_numpyro(program, {"y": np.abs(Y)}).kinds) == {"rate"}


def test_missing_entries_are_masked() -> None:
    """NaN is nothing that NumPyro's densities miss: a program says itself what is there."""
    y = np.where(BITS, Y, np.nan)
    for rows in ("rows", None):
        with pytest.raises(ValueError, match=r"the argument 'y' is NaN in row 0.*numpyro.handlers.mask"):
            lamu.from_numpyro(linear_regression, {"X": X, "y": y}, rows=rows)
