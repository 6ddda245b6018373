"""More of NumPyro's example programs, written anew and small: networks, series, tests, tables, and what is refused."""

from __future__ import annotations

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
from jax.experimental.ode import odeint
from jax.scipy.special import logsumexp
from numpyro.contrib.control_flow import scan

import lamu
from tests.test_numpyro_examples import EXAMPLES as OTHERS
from tests.test_numpyro_examples import require_density_of_numpyro

sample, plate = numpyro.sample, numpyro.plate
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(12, 2)), RANDOM.normal(1.0, 1.0, size=12)
BITS, GROUP = np.arange(12) % 3 > 0, np.arange(12) % 3
WALK = np.cumsum(RANDOM.normal(size=8))
CAUGHT = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])


def network(X, y):
    hidden = sample("hidden", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    out, precision = sample("out", dist.Normal(0, 1).expand([3]).to_event(1)), sample("precision", dist.Gamma(3.0, 1.0))
    with plate("rows", len(y)):
        sample("y", dist.Normal(jnp.tanh(X @ hidden) @ out, precision**-0.5), obs=y)


def capture(caught):
    """Cormack-Jolly-Seber: whether an animal lives is summed out by the probability of not being seen again."""
    survival, seen = sample("survival", dist.Beta(2.0, 2.0)), sample("seen", dist.Beta(2.0, 2.0))
    last = caught.shape[1] - 1 - jnp.argmax(caught[:, ::-1], axis=1)
    times = jnp.arange(1, caught.shape[1])
    alive = times[None] <= last[:, None]
    terms = jnp.log(survival) + jnp.where(caught[:, 1:] == 1, jnp.log(seen), jnp.log1p(-seen))
    never = jnp.ones(())
    unseen = [never]
    for _ in range(caught.shape[1] - 1):
        never = 1.0 - survival + survival * (1.0 - seen) * never
        unseen.append(never)
    left = jnp.stack(unseen)[caught.shape[1] - 1 - last]
    numpyro.factor("histories", jnp.sum(jnp.where(alive, terms, 0.0)) + jnp.sum(jnp.log(left)))


def hidden_markov(words):
    """The forward recursion as a factor, as in NumPyro's semi-supervised example."""
    moves = sample("moves", dist.Dirichlet(jnp.ones(2)).expand([2]).to_event(1))
    emits = sample("emits", dist.Dirichlet(jnp.ones(3)).expand([2]).to_event(1))

    def step(log_p, word):
        return logsumexp(log_p[:, None] + jnp.log(moves), axis=0) + jnp.log(emits[:, word]), None

    log_p = jax.lax.scan(step, jnp.log(jnp.full(2, 0.5)) + jnp.log(emits[:, words[0]]), words[1:])[0]
    numpyro.factor("words", logsumexp(log_p))


def holt_winters(y):
    level, trend = sample("level", dist.Uniform(0, 1)), sample("trend", dist.Uniform(0, 1))
    noise = sample("noise", dist.HalfNormal(1.0))

    def step(state, now):
        height, slope = state
        now = sample("y", dist.Normal(height + slope, noise), obs=now)
        higher = level * now + (1 - level) * (height + slope)
        return (higher, trend * (higher - height) + (1 - trend) * slope), None

    scan(step, (0.0, 0.0), y)


def predators(y):
    start = sample("start", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    rates = sample("rates", dist.LogNormal(-1.0, 0.3).expand([4]).to_event(1))
    noise = sample("noise", dist.LogNormal(-1.0, 1.0))

    def change(z, _, rates):
        return jnp.stack([(rates[0] - rates[1] * z[1]) * z[0], (rates[2] * z[0] - rates[3]) * z[1]])

    z = odeint(change, start, jnp.arange(float(len(y))), rates, rtol=1e-6, atol=1e-5, mxstep=1000)
    sample("y", dist.LogNormal(jnp.log(z), noise).to_event(2), obs=y)


def item_response(person, item, right):
    with plate("people", 4):
        ability = sample("ability", dist.Normal(0, 1))
    with plate("items", 3):
        difficulty = sample("difficulty", dist.Normal(0, 1))
    with plate("rows", len(right)):
        sample("right", dist.Bernoulli(logits=ability[person] - difficulty[item]), obs=right)


def annotation(first, second):
    share = sample("share", dist.Dirichlet(jnp.ones(3)))
    confusion = sample("confusion", dist.Dirichlet(jnp.ones(3)).expand([2, 3]).to_event(2))
    with plate("rows", len(first)):
        label = sample("label", dist.Categorical(share))
        sample("first", dist.Categorical(confusion[0][label]), obs=first)
        sample("second", dist.Categorical(confusion[1][label]), obs=second)


def principal_components(v):
    loading = sample("loading", dist.Normal(0, 1).expand([3, 1]).to_event(2))
    precision = sample("precision", dist.Gamma(2.0, 1.0))
    with plate("members", len(v)):
        z = sample("z", dist.Normal(0, 1).expand([1]).to_event(1))
        sample("v", dist.Normal(z @ loading.T, precision**-0.5).to_event(1), obs=v)


def proportions(y, treated):
    base, effect = sample("base", dist.Normal(0, 10)), sample("effect", dist.Normal(0, 1))
    with plate("rows", len(y)):
        sample("y", dist.Bernoulli(logits=base + effect * treated), obs=y)


def sparse_regression(X, y):
    whole, each = sample("whole", dist.HalfCauchy(0.5)), sample("each", dist.HalfCauchy(1.0).expand([2]).to_event(1))
    noise = sample("noise", dist.InverseGamma(3.0, 1.0))
    scale = whole * each / jnp.sqrt(1.0 + (whole * each) ** 2)  # the slab of a regularised horseshoe
    kX = X * scale
    pairs = kX @ kX.T
    sample("y", dist.MultivariateNormal(jnp.zeros(len(y)), 0.5 * (1 + pairs) ** 2 + noise * jnp.eye(len(y))), obs=y)


def vector_autoregression(y):
    first = sample("first", dist.Normal(0, 1).expand([2, 2]).to_event(2))
    second = sample("second", dist.Normal(0, 1).expand([2, 2]).to_event(2))

    def step(before, now):
        mean = first @ before[1] + second @ before[0]
        now = sample("y", dist.MultivariateNormal(mean, jnp.eye(2)), obs=now)
        return jnp.stack([before[1], now]), None

    scan(step, y[:2], y[2:])


def correlated_slopes(group, x, y):
    L, scale = sample("L", dist.LKJCholesky(2, 2.0)), sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    with plate("groups", 3):
        own = sample("own", dist.MultivariateNormal(jnp.zeros(2), scale_tril=scale[:, None] * L))
    with plate("rows", len(y)):
        sample("y", dist.Normal(own[group, 0] + own[group, 1] * x, 0.5), obs=y)


def truncated(y):
    mean, scale = sample("mean", dist.Normal(0, 2)), sample("scale", dist.HalfNormal(1.0))
    with plate("rows", len(y)):
        sample("y", dist.TruncatedNormal(mean, scale, low=0.0), obs=y)


def circular(x, angle):
    w, concentration = sample("w", dist.Normal(0, 1)), sample("concentration", dist.Gamma(2.0, 1.0))
    with plate("rows", len(x)):
        sample("angle", dist.VonMises(2.0 * jnp.arctan(w * x), concentration), obs=angle)


def imputation(age, seen, survived):
    mean, w = sample("mean", dist.Normal(0, 1)), sample("w", dist.Normal(0, 1))
    missing = sample("missing", dist.Normal(mean, 1.0).expand([4]).to_event(1))
    whole = jnp.asarray(age).at[jnp.nonzero(~jnp.asarray(seen), size=4)[0]].set(missing)
    with plate("rows", len(age)):
        with numpyro.handlers.mask(mask=seen):
            sample("age", dist.Normal(mean, 1.0), obs=age)
        sample("survived", dist.Bernoulli(logits=w * whole), obs=survived)


def choices(x):
    """Categories beside each other, as in the toy mixture of NumPyro's discrete samplers."""
    share = sample("share", dist.Beta(2.0, 2.0))
    first = sample("first", dist.Bernoulli(share))
    second = sample("second", dist.Bernoulli(0.2 + 0.6 * first))
    sample("x", dist.Normal(1.0 * first + 2.0 * second, 1.0), obs=x)


EXAMPLES: dict[str, tuple[Callable[..., None], dict[str, Any], str | None]] = {
    "neural network": (network, {"X": X, "y": Y}, "rows"),
    "capture and recapture": (capture, {"caught": CAUGHT}, None),
    "hidden Markov model": (hidden_markov, {"words": GROUP}, None),
    "Holt-Winters": (holt_winters, {"y": WALK}, None),
    "predators and prey": (predators, {"y": np.exp(X[:4])}, None),
    "item response": (item_response, {"person": np.arange(12) % 4, "item": GROUP, "right": BITS}, "rows"),
    "annotation": (annotation, {"first": GROUP, "second": np.roll(GROUP, 1)}, "rows"),
    "probabilistic PCA": (principal_components, {"v": RANDOM.normal(size=(4, 3))}, None),
    "proportion test": (proportions, {"y": BITS, "treated": 1.0 * (np.arange(12) % 2)}, "rows"),
    "sparse regression": (sparse_regression, {"X": X, "y": Y}, None),
    "vector autoregression": (vector_autoregression, {"y": X[:6]}, None),
    "correlated slopes": (correlated_slopes, {"group": GROUP, "x": X[:, 0], "y": Y}, "rows"),
    "truncated normal": (truncated, {"y": np.abs(Y)}, "rows"),
    "circular regression": (circular, {"x": X[:, 0], "angle": np.sin(Y)}, "rows"),
    "imputation": (imputation, {"age": Y, "seen": BITS, "survived": GROUP == 1}, None),
    "toy mixture": (choices, {"x": np.array(1.3)}, None),
}
IN_BATCHES = ("annotation", "toy mixture")  # categories, which NumPyro's density does not sum out
WITHOUT_HESSIANS = ("predators and prey",)  # `odeint` has no forward derivatives, which the Hessians of cvi take
ROW = r"^\| ([^|]+?) \| yes \| (yes|no)\b[^|]* \| (yes|no)\b[^|]* \|$"
QUICK = ("Holt-Winters", "proportion test")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.stress) for n in EXAMPLES if n not in IN_BATCHES]
)
def test_the_density_is_numpyros(name: str) -> None:
    program, data, rows = EXAMPLES[name]
    require_density_of_numpyro(program, data, lamu.from_numpyro(program, data, rows=rows))


def test_the_page_has_every_example() -> None:
    page = (Path(__file__).parents[1] / "docs" / "coming_from.md").read_text(encoding="utf-8")
    table = [name for name, _, _ in re.findall(ROW, page, re.MULTILINE)]
    assert sorted(table) == sorted([*OTHERS, *EXAMPLES])


@pytest.mark.stress
def test_the_page_tells_what_runs_under_which_algorithm() -> None:
    page = (Path(__file__).parents[1] / "docs" / "coming_from.md").read_text(encoding="utf-8")
    table = {name: found for name, *found in re.findall(ROW, page, re.MULTILINE)}
    for name, (program, data, rows) in EXAMPLES.items():
        target = lamu.from_numpyro(program, data, rows=rows)
        conjugate = "yes" if set(target.kinds) == set(target.theta) else "no"
        assert table[name] == ["no" if name in WITHOUT_HESSIANS else "yes", conjugate], name


@pytest.mark.stress
@pytest.mark.parametrize("name", EXAMPLES)
def test_nuts_and_cvi_run(name: str) -> None:
    program, data, rows = EXAMPLES[name]
    target = lamu.from_numpyro(program, data, rows=rows)
    fits: list[Callable[[], Any]] = [lambda: lamu.fit(target, None, lamu.mcmc.nuts(chains=1, warmup=20, draws=20))]
    by_cvi = lambda: lamu.fit(target, None, lamu.algorithms.cvi(), steps=5)
    if name in WITHOUT_HESSIANS:
        with pytest.raises(TypeError, match="forward-mode"):
            by_cvi()
    else:
        fits.append(by_cvi)
    for fit in fits:
        draws = fit().posterior.sample(jax.random.key(0), 3)["network"]
        assert set(draws) == set(target.theta)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(draws))


def test_categories_of_a_series_are_refused() -> None:
    def program(y):
        mean = sample("mean", dist.Normal(0, 3).expand([2]).to_event(1))

        def step(before, now):
            z = sample("z", dist.Categorical(jnp.array([[0.9, 0.1], [0.2, 0.8]])[before]))
            sample("y", dist.Normal(mean[z], 1.0), obs=now)
            return z, None

        scan(step, 0, y)

    with pytest.raises(ValueError, match=r"the latent site 'z' of shape .* takes discrete values"):
        lamu.from_numpyro(program, {"y": WALK})
