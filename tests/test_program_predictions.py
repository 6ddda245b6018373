"""NumPyro programs at new arguments: predictions beside `numpyro.infer.Predictive`, closed forms, and bad questions."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer import Predictive
from scipy import special, stats

import lamu
from lamu import supports
from lamu.base.compile_once import lenient
from lamu.families import Draws
from lamu.objective import Objective
from lamu.predictives import Sampled
from lamu.predictives.program import DrawnSite, ProgramPredictive, ProgramRule
from lamu.programs.simulation import ProgramQuery, query_at
from tests.for_each import for_each

sample, plate = numpyro.sample, numpyro.plate
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(12, 2)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0]) + RANDOM.normal(size=12)).astype(np.float32)
GROUP, COUNTS, WALK = (
    np.arange(12) % 3,
    RANDOM.poisson(2.0, size=12),
    np.cumsum(RANDOM.normal(size=6)).astype(np.float32),
)
DRAWS = 64
key = functools.partial(jax.random.key, 3)
NEW = X[:3] + 0.5


def line(X, y, shift=0.0):
    w, tau = sample("w", dist.Normal(0, 2).expand([2]).to_event(1)), sample("tau", dist.Gamma(2.0, 1.0))
    mean = numpyro.deterministic("line", X @ w + shift)
    with plate("rows", X.shape[0]):
        sample("y", dist.Normal(mean, tau**-0.5), obs=y)


def line_of_default(X, y=None):
    line(X, y)


def heights(y):
    mean = sample("mean", dist.Normal(0.0, 3.0))
    with plate("rows", len(y)):
        sample("y", dist.Normal(mean, 1.0), obs=y)


def two(y):
    share, mean = sample("share", dist.Beta(2.0, 2.0)), sample("mean", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with plate("rows", len(y)):
        z = sample("z", dist.Bernoulli(share))
        sample("y", dist.Normal(mean[z], 1.0), obs=y)


def of_groups(group, size, y):
    mu = sample("mu", dist.Normal(0.0, 5.0))
    with plate("groups", size):
        level = sample("level", dist.Normal(mu, 2.0))
    with plate("rows", len(group)):
        sample("y", dist.Normal(level[group], 0.1), obs=y)


def schools(sigma, y):
    mu = sample("mu", dist.Normal(0.0, 5.0))
    with plate("schools", len(y)):
        theta = sample("theta", dist.Normal(mu, 2.0))
        sample("y", dist.Normal(theta, sigma), obs=y)


def grouped(group, y, counts):
    level, rate = sample("level", dist.Normal(0, 2).expand([3]).to_event(1)), sample("rate", dist.Gamma(2.0, 1.0))
    with plate("rows", len(group)):
        sample("y", dist.Normal(level[group], 0.5), obs=y)
        sample("counts", dist.Poisson(rate), obs=counts)


def binary(X, y):
    w = sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    with plate("rows", len(X)):
        sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def ordinal(X, y):
    w = sample("w", dist.Normal(0, 2).expand([2]).to_event(1))
    with plate("rows", len(X)):
        sample("y", dist.OrderedLogistic(X @ w, jnp.array([-1.0, 1.0])), obs=y)


def autoregression(y):
    rho = sample("rho", dist.Uniform(-1.0, 1.0))

    def step(before, now):
        now = sample("y", dist.Normal(rho * before, 1.0), obs=now)
        return now, None

    scan(step, 0.0, y)


def local_level(steps, y):
    sigma = sample("sigma", dist.HalfNormal(1.0))

    def step(before, now):
        x = sample("x", dist.Normal(before, sigma))
        sample("y", dist.Normal(x, 0.5))
        return x, None

    with numpyro.handlers.condition(data={"y": y}):
        scan(step, 0.0, jnp.arange(steps))


def lagged(y):
    rho = sample("rho", dist.Normal(0.0, 1.0))
    sample("y", dist.Normal(rho * y[:-1], 1.0).to_event(1), obs=y[1:])


def process(X, y):
    length = sample("length", dist.LogNormal(0, 1))
    K = jnp.exp(-((X[:, None, 0] - X[None, :, 0]) ** 2) / length) + 0.1 * jnp.eye(len(X))
    sample("y", dist.MultivariateNormal(jnp.zeros(len(X)), K), obs=y)


def walk(y):
    x = sample("x", dist.GaussianRandomWalk(1.0, num_steps=len(y)))
    sample("y", dist.Normal(x, 0.5).to_event(1), obs=y)


TARGETS: dict[Any, Any] = {}


def target_of(program: Any, data: dict[str, Any], rows: str | None) -> Any:
    """Returns a target, read once."""
    known = program, rows, tuple(str(value) for value in data.values())
    if known not in TARGETS:
        TARGETS[known] = lamu.from_numpyro(program, data, rows=rows)
    return TARGETS[known]


def posterior_of(program: Any, data: dict[str, Any], rows: str | None) -> Any:
    """Returns a posterior of draws near the start, which predictions are as true of as of fitted ones."""
    target = target_of(program, data, rows)
    random, real = np.random.default_rng(0), target.constraints.unconstrain(target.theta)
    near = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=(DRAWS, *leaf.shape)) / 2.0, leaf.dtype), real)
    theta = jax.vmap(lambda leaf: target.constraints.constrain(leaf)[0])(near)
    samples = jax.tree.map(lambda leaf: leaf[None], {"network": theta, "likelihood": {}})
    return lamu.Posterior(target.of_theta(), Draws(samples), {}, Sampled(), key())


CASES: dict[str, Any] = {
    "line": (line, {"X": X, "y": Y, "shift": 1.0}, "rows", {"X": NEW}, {"X": NEW, "y": None, "shift": 1.0}),
    "one density": (line, {"X": X, "y": Y}, None, {"X": NEW}, {"X": NEW, "y": None}),
    "default": (line_of_default, {"X": X, "y": Y}, "rows", {"X": NEW}, {"X": NEW}),
    "another shift": (line, {"X": X, "y": Y}, "rows", {"X": NEW, "shift": 3.0}, {"X": NEW, "y": None, "shift": 3.0}),
    "nothing new": (line, {"X": X, "y": Y}, "rows", {}, {"X": X, "y": None}),
    "NaN": (line, {"X": X, "y": Y}, "rows", {"X": NEW, "y": np.full(3, np.nan)}, {"X": NEW, "y": None}),
    "two sites": (
        grouped,
        {"group": GROUP, "y": Y, "counts": COUNTS},
        "rows",
        {"group": GROUP[:5]},
        {"group": GROUP[:5], "y": None, "counts": None},
    ),
    "one of two": (
        grouped,
        {"group": GROUP, "y": Y, "counts": COUNTS},
        "rows",
        {"group": GROUP[:5], "counts": COUNTS[:5]},
        {"group": GROUP[:5], "y": None, "counts": COUNTS[:5]},
    ),
    "classes": (ordinal, {"X": X, "y": GROUP}, "rows", {"X": NEW}, {"X": NEW, "y": None}),
    "series": (
        local_level,
        {"steps": 6, "y": jnp.asarray(WALK, float)},
        None,
        {"steps": 9, "y": jnp.asarray(WALK, float)},
        {"steps": 9, "y": jnp.asarray(WALK, float)},
    ),
}


QUICK = ("line", "two sites", "one of two", "series")


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(tuple(set(CASES) - set(QUICK)), id="others", marks=pytest.mark.stress),
    ],
)
def test_draws_are_those_of_numpyro_with_the_same_keys(names: tuple[str, ...]) -> None:
    for name in names:
        program, data, rows, asked, arguments = CASES[name]
        posterior = posterior_of(program, data, rows)
        pred = posterior.predict(asked, samples=DRAWS, key=key())
        of_theta, own = jax.random.split(key())
        theta = posterior.belief.draws(of_theta, DRAWS)["network"]
        with lenient():
            expected = Predictive(program, theta)(own, **arguments)
        given = {argument for argument, value in arguments.items() if value is not None}  # not those that are all NaN
        assert set(pred.draws) == set(expected) - given, name
        for site, values in pred.draws.items():
            np.testing.assert_allclose(values, expected[site], rtol=1e-5, atol=1e-6, err_msg=f"{name}: {site}")


def test_moments_intervals_and_densities_are_those_of_the_mixture() -> None:
    posterior = posterior_of(line, {"X": X, "y": Y}, "rows")
    pred = posterior.predict({"X": NEW}, samples=DRAWS, key=key())
    assert isinstance(pred, ProgramPredictive)
    theta = {name: np.asarray(value, float) for name, value in pred.theta.items()}
    means, scales = theta["w"] @ NEW.T, (theta["tau"] ** -0.5)[:, None]
    np.testing.assert_allclose(pred.mean, means.mean(0), rtol=1e-5)
    np.testing.assert_allclose(pred.aleatoric, np.repeat((scales**2).mean(), 3), rtol=1e-5)
    np.testing.assert_allclose(pred.epistemic, means.var(0), rtol=1e-4)
    np.testing.assert_allclose(pred.std, np.sqrt((scales**2).mean() + means.var(0)), rtol=1e-5)
    densities = stats.norm.logpdf(Y[:3], means, scales)
    np.testing.assert_allclose(pred.log_prob(Y[:3]), np.log(np.exp(densities).mean(0)), rtol=1e-4)
    low, high = pred.interval(0.9)
    for end, level in ((low, 0.05), (high, 0.95)):
        np.testing.assert_allclose(stats.norm.cdf(np.asarray(end), means, scales).mean(0), level, atol=1e-3)
    site = pred.sites["line"]
    assert isinstance(site, DrawnSite)
    np.testing.assert_allclose(site.mean, means.mean(0), rtol=1e-5)
    np.testing.assert_allclose(site.interval(0.5)[0], np.quantile(means, 0.25, axis=0), rtol=1e-4)
    with pytest.raises(TypeError, match="'line' is deterministic and has no density"):
        site.log_prob(Y[:3])
    draws = pred.sample(jax.random.key(1), 4000)
    assert draws.shape == (4000, 3)
    # The standard error of a mean of 4,000 draws is 1.6 % of the standard deviation: six of these.
    np.testing.assert_allclose(draws.mean(0), pred.mean, atol=0.1 * float(np.max(pred.std)))
    assert np.isfinite(lamu.scores.nll(pred, Y[:3]))


def test_counts_classes_and_several_sites() -> None:
    pred = posterior_of(grouped, {"group": GROUP, "y": Y, "counts": COUNTS}, "rows").predict({"group": GROUP[:4]})
    assert {name: value.shape for name, value in pred.mean.items()} == {"y": (4,), "counts": (4,)}
    high = pred.interval(0.9)[1]
    assert np.all(np.asarray(high["counts"]) == np.round(high["counts"]))
    assert np.all(pred.cdf({"y": high["y"], "counts": high["counts"]})["counts"] >= 0.9)
    both = {"y": Y[:4], "counts": COUNTS[:4]}
    rate, level = np.asarray(pred.theta["rate"]), np.asarray(pred.theta["level"])[:, GROUP[:4]]
    terms = stats.norm.logpdf(Y[:4], level, 0.5) + stats.poisson.logpmf(COUNTS[:4], rate[:, None])
    np.testing.assert_allclose(pred.log_prob(both), np.log(np.exp(terms).mean(0)), rtol=1e-4)
    with pytest.raises(TypeError, match="have no one support"):
        _ = pred.support
    labels = posterior_of(ordinal, {"X": X, "y": GROUP}, "rows").predict({"X": NEW})
    assert labels.mean.shape == (3, 3)
    np.testing.assert_allclose(labels.mean.sum(-1), 1.0, rtol=1e-5)
    assert isinstance(labels.support, supports.Classes)
    assert labels.prediction_set(0.9).shape == (3, 3)
    assert np.all(labels.epistemic >= 0.0)
    flags = posterior_of(binary, {"X": X, "y": Y > 0}, "rows").predict({"X": NEW})
    assert isinstance(flags.support, supports.TwoClasses)
    assert flags.mean.shape == (3,)
    assert lamu.scores.accuracy(flags, np.zeros(3, int)) <= 1.0


def test_rows_without_inputs_are_asked_by_their_number() -> None:
    target = lamu.from_numpyro(heights, {"y": Y}, rows="rows")
    pred = lamu.fit(target, None, lamu.algorithms.vmp()).posterior.predict(5, samples=2000)
    precision = 1 / 9 + len(Y)
    np.testing.assert_allclose(pred.mean, np.full(5, Y.sum() / precision), atol=0.05)
    np.testing.assert_allclose(pred.std, np.full(5, np.sqrt(1 + 1 / precision)), rtol=0.01)


def test_rows_are_as_many_as_the_program_says_at_an_argument() -> None:
    """`predict({"size": 5})` had as many rows as the fit, where the number of rows is an argument of the program."""

    def counted(size, y=None, X=0.0):
        mean = sample("mean", dist.Normal(0.0, 3.0))
        with plate("rows", size):
            sample("y", dist.Normal(mean + X, 1.0), obs=y)

    posterior = posterior_of(counted, {"size": len(Y), "y": Y}, "rows")
    assert posterior.predict({}).mean.shape == Y.shape
    for query in ({"size": 5}, {"size": 5, "y": None}, {"size": np.int64(5)}, {"y": np.full(5, np.nan)}, 5):
        assert posterior.predict(query).mean.shape == (5,)
    with_inputs = posterior_of(counted, {"size": len(Y), "y": Y, "X": Y}, "rows")
    assert with_inputs.predict({"X": Y[:5]}).mean.shape == (5,)
    with pytest.raises(ValueError, match="X kept what it was in the fit, so give every argument that changes"):
        with_inputs.predict({"size": 5})
    for target, query in ((posterior, {"y": np.full(5, np.nan)}), (with_inputs, {"X": Y[:5]})):
        for size in (7, len(Y), np.int64(7)):
            with pytest.raises(ValueError, match=f"have 5 rows, and the program {size} at size={size}; give"):
                target.predict({"size": size, **query})
        assert target.predict({"size": 5, **query}).mean.shape == (5,)


def test_categories_of_new_rows_are_drawn() -> None:
    pred = posterior_of(two, {"y": Y}, "rows").predict(4, samples=DRAWS)
    assert pred.draws["z"].shape == (DRAWS, 4)
    assert pred.query.redrawn == ("z",)
    assert set(np.unique(pred.draws["z"])) == {0, 1}


def test_densities_of_new_rows_sum_over_their_categories() -> None:
    """Categories were drawn, so that a row which a rare one explains had a density of any size."""
    posterior, rows = posterior_of(two, {"y": Y}, "rows"), {"y": np.array([-3.0, 0.0, 8.0])}
    theta = posterior.predict(3, samples=DRAWS).theta
    share, mean = np.asarray(theta["share"])[:, None], np.asarray(theta["mean"])
    each = [stats.norm.pdf(rows["y"], mean[:, [k]]) for k in range(2)]
    due = np.log(np.mean((1.0 - share) * each[0] + share * each[1], axis=0))
    np.testing.assert_allclose(posterior.predict(3, samples=DRAWS).log_prob(rows["y"]), due, rtol=1e-4)


def test_new_members_of_a_plate_are_drawn_given_what_all_share() -> None:
    posterior = posterior_of(schools, {"sigma": np.full(12, 2.0), "y": Y}, None)
    same = posterior.predict({})
    assert same.query.redrawn == ()
    pred = posterior.predict({"sigma": np.full(3, 2.0)}, samples=2000)
    assert pred.query.redrawn == ("theta",)
    away = np.asarray(pred.draws["theta"] - pred.theta["mu"][:, None])
    # 6,000 independent draws of standard deviation 2: standard errors of 0.026 and 0.018.
    np.testing.assert_allclose([away.mean(), away.std()], [0.0, 2.0], atol=0.15)


def test_members_that_a_number_adds_leave_the_known_ones_what_they_are() -> None:
    """`predict({"size": 5})` drew all five groups anew: those of the fit had a deviation of 2 in the place of 0.05."""
    y = np.array([-1.0, 0.0, 4.0], np.float32)[GROUP] + 0.1 * Y
    target = lamu.from_numpyro(of_groups, {"group": GROUP, "size": 3, "y": y}, rows="rows")
    posterior = lamu.fit(target, None, lamu.algorithms.vmp()).posterior
    pred = posterior.predict({"group": np.arange(5), "size": 5}, samples=2000, key=key())
    known = posterior.predict({"group": np.arange(3)}, samples=2000, key=key())
    assert (pred.query.redrawn, pred.query.extended) == ((), ("level",))
    np.testing.assert_allclose(pred.mean[:3], known.mean, atol=0.02)
    np.testing.assert_allclose(pred.std[:3], known.std, rtol=0.05)
    assert np.all(np.asarray(pred.std[3:]) > 1.9)
    np.testing.assert_array_equal(pred.sites["level"].values[:, :3], pred.theta["level"])
    assert np.isfinite(pred.log_prob(np.array([-1.0, 0.0, 4.0, 1.0, 1.0]))).all()
    with pytest.raises(ValueError, match=r"'level' has the shape \(3,\) in the fit and \(2,\) .* the first are those"):
        posterior.predict({"group": np.arange(2), "size": 2})


def test_an_array_that_begins_with_that_of_the_fit_adds_members() -> None:
    """Classes of schools, and one class more: those of the fit were drawn anew, with 1.26 for a deviation of 1.10."""

    def classes(pupil, school, y):
        with plate("schools", 2):
            level = sample("level", dist.Normal(0.0, 1.0))
        with plate("classes", len(school)):
            own = sample("own", dist.Normal(level[school], 0.5))
        with plate("rows", len(pupil)):
            sample("y", dist.Normal(own[pupil], 1.0), obs=y)

    posterior = posterior_of(classes, {"pupil": GROUP, "school": np.array([0, 1, 1]), "y": Y}, "rows")
    pred = posterior.predict({"pupil": np.arange(4), "school": np.array([0, 1, 1, 0])})
    assert (pred.query.redrawn, pred.query.extended) == ((), ("own",))
    np.testing.assert_array_equal(pred.sites["own"].values[:, :3], pred.theta["own"])
    others = posterior.predict({"pupil": np.arange(4), "school": np.array([1, 1, 1, 0])})
    assert (others.query.redrawn, others.query.extended) == (("own",), ())


def test_a_series_goes_on() -> None:
    posterior = posterior_of(local_level, {"steps": 6, "y": jnp.asarray(WALK, float)}, None)
    assert not posterior.predict({"steps": 6, "y": jnp.asarray(WALK, float)}).query.asked
    posterior = posterior_of(autoregression, {"y": WALK}, None)
    longer = posterior.predict({"y": np.full(9, np.nan)})
    assert longer.mean.shape == (9,)
    with numpyro.handlers.seed(rng_seed=0):
        value = np.asarray(posterior.predict({"y": np.full(6, np.nan)}, samples=DRAWS, key=key()).log_prob(WALK))
    rho = np.asarray(posterior.belief.draws(jax.random.split(key())[0], DRAWS)["network"]["rho"])
    terms = stats.norm.logpdf(WALK, rho[:, None] * np.append(0.0, WALK[:-1]), 1.0)
    np.testing.assert_allclose(value, np.log(np.exp(terms).mean(0)), rtol=1e-4)


@for_each(
    "program, data, rows, asked, said",
    [
        (line, {"X": X, "y": Y}, "rows", {"Z": NEW}, "'Z' is not an argument of the program"),
        (line, {"X": X, "y": Y}, "rows", {"y": Y}, "the program needs the argument 'X' of the 12 rows"),
        (line, {"X": X, "y": Y}, "rows", 3, "give X by name"),
        (line, {"X": X, "y": Y}, "rows", 0, "0 new rows are none"),
        (line, {"X": X, "y": Y}, "rows", {"X": NEW * np.nan}, "'X' is NaN in row 0; give a number"),
        (
            line,
            {"X": X, "y": Y},
            "rows",
            {"X": NEW, "y": np.array([1.0, np.nan, 2.0])},
            "'y' is NaN in row 1",
        ),
        (line, {"X": X, "y": Y}, "rows", {"X": NEW, "y": Y}, "rows of several numbers"),
        (line, {"X": X, "y": Y}, "rows", {"X": NEW[:, :1]}, "the program fails at these arguments"),
        (
            schools,
            {"sigma": np.full(12, 2.0), "y": Y},
            None,
            {"sigma": np.ones(3), "y": Y[:3]},
            "'y' is given",
        ),
        (two, {"y": Y}, "rows", {"y": Y}, "'y' is given, and would say something about 'z'"),
        (lagged, {"y": WALK}, None, {}, "'y' depends on the argument 'y', which is left out"),
        (process, {"X": X, "y": Y}, None, {"X": NEW}, "'y' is a MultivariateNormal of other rows than were fitted"),
        (walk, {"y": WALK}, None, {"y": np.full(9, np.nan)}, r"the latent 'x' has the shape \(6,\) in the fit and"),
    ],
)
def test_what_a_program_cannot_be_asked_is_said(
    program: Any, data: Any, rows: str | None, asked: Any, said: str
) -> None:
    target = target_of(program, data, rows)
    with pytest.raises(ValueError, match=said):
        query_at(target, asked)


def test_a_category_of_all_data_is_drawn_given_them() -> None:
    """A changepoint or a choice of models is what the data say it is, and not a new draw of its prior."""

    def choice(X, y):
        w, z = sample("w", dist.Normal(0, 2)), sample("z", dist.Bernoulli(0.3))
        sample("y", dist.Normal(X * w * z, 1.0).to_event(1), obs=y)

    x, y = 20 * X[:, 0], 20 * X[:, 0]
    posterior = posterior_of(choice, {"X": x, "y": y}, None)
    pred = posterior.predict({"X": np.array([0.0, 1.0])}, samples=DRAWS)
    w, z = np.asarray(pred.theta["w"]), np.asarray(pred.sites["z"].values)
    odds = stats.norm.logpdf(y, w[:, None] * x).sum(1) - stats.norm.logpdf(y).sum() + np.log(0.3 / 0.7)
    decided = np.abs(odds) > 20
    assert len(set(z[decided])) == 2
    np.testing.assert_array_equal(z[decided], (odds > 0)[decided])
    np.testing.assert_allclose(pred.mean, [0.0, np.mean(w * z)], rtol=1e-4, atol=1e-6)
    chance = posterior.local(None, samples=DRAWS)["z"].mean
    np.testing.assert_allclose(chance[1], np.mean(special.expit(odds)), atol=0.02)

    # It is tempered with the other sites, p(w, z, D)^(1/T), and was summed out at T = 1.
    warm = posterior.model.constrained(replace(posterior, temperature=4.0))
    chance = warm.local(None, samples=DRAWS)["z"].mean
    np.testing.assert_allclose(chance[1], np.mean(special.expit(odds / 4)), atol=0.02)
    drawn = np.asarray(warm.predict({"X": np.ones(1)}, samples=DRAWS).sites["z"].values)
    np.testing.assert_allclose(drawn.mean(), chance[1], atol=0.1)
    target, batch = warm.model, warm.model.rows(None).full()
    joint = stats.norm.logpdf(w, 0, 2) + stats.norm.logpdf(y).sum() + np.log(0.7)
    values = [target.log_likelihood({"network": {"w": w[i]}, "likelihood": {}}, {}, batch)[0][0] for i in range(3)]
    np.testing.assert_allclose(values, (joint + 4 * np.logaddexp(0, odds / 4))[:3], rtol=1e-5)

    # So it is under a power of the likelihood, which is one of all that a program without rows has.
    objective = Objective(target, 1.0, temperature=2.0, likelihood_power=0.5)
    assert objective.posterior_temperature == 4.0
    params = {"network": {"w": w[0]}, "likelihood": {}}
    np.testing.assert_allclose(objective.log_target(params, batch, {}), values[0] / 4, rtol=1e-5)


def test_local_tells_the_component_of_rows_that_leave_no_doubt() -> None:
    def mixture(y):
        m = sample("m", dist.Normal(0, 1).expand([2]).to_event(1))
        with plate("rows", len(y)):
            z = sample("z", dist.Categorical(jnp.array([0.5, 0.5])))
            sample("y", dist.Normal(jnp.array([-50.0, 50.0])[z] + m[z], 0.1), obs=y)

    rows = {"y": np.array([-50.0, 50.0], np.float32)}
    np.testing.assert_allclose(posterior_of(mixture, rows, "rows").local(rows)["z"].mean, np.eye(2), atol=1e-6)


def test_vectors_that_checkify_does_not_know_are_predicted() -> None:
    def shares(y):
        p = sample("p", dist.Dirichlet(jnp.ones(3)))
        with plate("rows", len(y)):
            sample("y", dist.Multinomial(6, p), obs=y)

    pred = posterior_of(shares, {"y": np.array([[1, 2, 3], [0, 0, 6]])}, "rows").predict(2)
    np.testing.assert_allclose(pred.mean.sum(1), 6.0, rtol=1e-5)


def test_each_row_has_a_number_of_trials_of_its_own() -> None:
    def shares(trials, y):
        p = sample("p", dist.Dirichlet(jnp.ones(3)))
        with plate("rows", len(trials)):
            sample("y", dist.Multinomial(trials, p, total_count_max=9), obs=y)

    data = {"trials": np.array([6, 4]), "y": np.array([[1, 2, 3], [0, 0, 4]])}
    pred = posterior_of(shares, data, "rows").predict({"trials": np.array([9, 2, 1])})
    np.testing.assert_allclose(pred.mean.sum(1), [9.0, 2.0, 1.0], rtol=1e-5)
    drawn = np.asarray(pred.draws["y"])
    assert (drawn.sum(-1) == np.array([9, 2, 1])).all()
    np.testing.assert_allclose(pred.std, drawn.std(0), atol=0.5)


def test_a_distribution_of_neighbours_that_are_given_is_drawn() -> None:
    def areas(near, y):
        tau = sample("tau", dist.Gamma(2.0, 1.0))
        sample("y", dist.CAR(jnp.zeros(3), 0.5, tau, near, is_sparse=False), obs=y)

    near = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], np.float32)
    pred = posterior_of(areas, {"near": near, "y": Y[:3]}, None).predict({"near": near})
    np.testing.assert_allclose(pred.mean, np.zeros(3), atol=1e-6)
    np.testing.assert_allclose(pred.std, np.std(pred.draws["y"], axis=0), rtol=0.4)  # of 64 draws


def test_a_group_that_was_not_fitted_is_refused_and_a_series_is_an_array() -> None:
    """JAX takes the last member in the place of one that is not there, so that the answer was that of another group."""
    data = {"group": GROUP, "y": Y, "counts": COUNTS}
    posterior, beyond = posterior_of(grouped, data, "rows"), {"group": np.array([0, 3])}
    said = "group is 3 in row 1, and the array that it indexes has 3 members; give whole numbers from 0 to 2"
    for refused in (
        lambda: posterior.predict(beyond),
        lambda: posterior.log_prob({**beyond, "y": Y[:2], "counts": COUNTS[:2]}),
        lambda: target_of(grouped, {**data, "group": np.where(np.arange(12) == 1, 3, GROUP)}, "rows"),
    ):
        with pytest.raises(ValueError, match=said):
            refused()
    series = {name: pd.Series(value, np.arange(12)[::-1]) for name, value in data.items()}
    pred = posterior_of(grouped, series, "rows").predict({"group": series["group"][4:]})
    np.testing.assert_array_equal(pred.mean["y"], posterior.predict({"group": GROUP[4:]}).mean["y"])


def test_an_index_below_zero_is_refused_where_the_program_does_not_ask_for_it() -> None:
    """-1 is pandas' code of a missing category, and JAX's index of the last member."""

    def picked(group, y):
        a = sample("a", dist.Normal(0, 1).expand([3]).to_event(1))
        with plate("rows", len(y)):
            sample("y", dist.Normal(a[group], 1.0), obs=y)

    def asked(group, y):
        a = sample("a", dist.Normal(0, 1).expand([3]).to_event(1))
        with plate("rows", len(y)):
            sample("y", dist.Normal(jnp.where(group < 0, 0.0, a[jnp.maximum(group, 0)]), 1.0), obs=y)

    y = np.arange(4.0)
    for dtype in (np.int8, np.int32):
        missing = {"group": np.array([0, 2, -1, 1], dtype), "y": y}
        with pytest.raises(ValueError, match="group is -1 in row 2, and the array that it indexes has 3 members"):
            target_of(picked, missing, "rows")
        assert target_of(asked, missing, "rows").has_rows
    posterior = posterior_of(picked, {"group": np.array([0, 2, 0, 1]), "y": y}, "rows")
    with pytest.raises(ValueError, match="group is -1 in row 1"):
        posterior.predict({"group": np.array([0, -1])})


def test_other_questions_are_refused() -> None:
    posterior = posterior_of(line, {"X": X, "y": Y}, "rows")
    with pytest.raises(TypeError, match="at its arguments by name, such as"):
        posterior.predict(NEW)
    with pytest.raises(ValueError, match="no linear predictor to add an offset to"):
        posterior.predict({"X": NEW}, offset=np.ones(3))
    with pytest.raises(TypeError, match="local is about rows with latent categories"):
        posterior.local({"X": X, "y": Y})
    with pytest.raises(TypeError, match=r"ask posterior\.predict"):
        ProgramRule().prepare(posterior.model, posterior.belief, {}, 1, key())
    assert posterior.log_prob({"X": X, "y": Y}).shape == (12,)
    assert isinstance(posterior.model.inputs({"X": NEW}), ProgramQuery)
    with pytest.raises(TypeError, match=r"use predict\(arguments\).log_prob\(values\)"):
        posterior_of(line, {"X": X, "y": Y}, None).log_prob(None)


@pytest.mark.stress
def test_rows_set_aside_judge_a_program() -> None:
    held = {"X": X[8:], "y": Y[8:]}
    target = lamu.from_numpyro(line, {"X": X[:8], "y": Y[:8]}, rows="rows")
    fit = lamu.fit(target, None, lamu.algorithms.svi(), epochs=3, batch_size=4, validation=held)
    assert np.isfinite(fit.history["validation_nll"]).all()
