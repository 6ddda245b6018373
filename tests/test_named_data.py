"""Data by name: rows that bring more than a value, targets of one's own with missing entries."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import lamu
from lamu.data import Arrays, Batch, Incomplete, Stream
from lamu.data.sources import columns
from lamu.objective.curvature import Hessian
from lamu.priors import Normal
from lamu.record import record, static
from lamu.supports import Real, value_of
from lamu.target import Target

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 2))
LATENT = X @ [1.0, -2.0] + 0.5 + RANDOM.normal(size=60)
CENSORED = LATENT > 0.8
VALUE = np.where(CENSORED, 0.8, LATENT)


@record
class RightCensored(lamu.likelihoods.Likelihood):
    """Normal noise of deviation one; where censored, the value is what the target exceeds."""

    support = Real()
    log_concave = True

    def log_prob(self, params: Any, f: Any, y: Any) -> Any:
        away = value_of(y).astype(f.dtype) - f[:, 0]
        if not isinstance(y, dict):
            return norm.logpdf(away)
        return jnp.where(y["censored"].astype(bool), norm.logsf(away), norm.logpdf(away))

    def sample(self, key: Any, params: Any, f: Any) -> Any:
        return f[:, 0] + jax.random.normal(key, f.shape[:1], f.dtype)


DATA = (X, {"value": VALUE, "censored": CENSORED})


def test_what_a_row_brings_beside_its_value_reaches_the_likelihood() -> None:
    """The mode of a censored regression by SciPy, and by Laplace's method; ignoring the censoring is far away."""
    from scipy import optimize, stats

    design = np.c_[X, np.ones(60)]

    def loss(w: np.ndarray) -> float:
        away = VALUE - design @ w
        return -np.where(CENSORED, stats.norm.logsf(away), stats.norm.logpdf(away)).sum() + w @ w / 2

    expected = optimize.minimize(loss, np.zeros(3), tol=1e-12).x
    model = lamu.Model(lamu.networks.Linear(), RightCensored())
    mean = lamu.fit(model, DATA, lamu.algorithms.laplace(), epochs=100).posterior.mean["network"]["layers"][0]
    found = np.r_[np.ravel(mean["kernel"]), np.ravel(mean["bias"])]
    np.testing.assert_allclose(found, expected, atol=2e-3)
    naive = np.linalg.solve(design.T @ design + np.eye(3), design.T @ VALUE)
    assert np.abs(found - naive).max() > 0.1


@pytest.mark.sampled
@pytest.mark.parametrize(
    "algorithm",
    [
        lamu.algorithms.adam(),
        lamu.algorithms.ivon(),
        lamu.algorithms.vogn(),
        lamu.algorithms.deep_ensemble(lamu.algorithms.adam(), members=2),
        lamu.mcmc.sgld(1e-3, warmup=4, draws=4, thinning=1),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_minibatches_validation_and_scores_take_rows_by_name(algorithm: Any) -> None:
    model = lamu.Model(lamu.networks.Linear(), RightCensored())
    sampler = algorithm.traits.length is not None
    options = {} if sampler else {"epochs": 2, "validation": 0.2}
    posterior = lamu.fit(model, DATA, algorithm, batch_size=16, **options).posterior
    pred = posterior.predict(X[:5])
    few = {"value": jnp.asarray(VALUE[:5]), "censored": jnp.asarray(CENSORED[:5])}
    assert pred.log_prob(few).shape == (5,)
    assert np.isclose(lamu.scores.nll(pred, few), -np.mean(pred.log_prob(few)), rtol=1e-5)
    with pytest.raises(ValueError, match="rmse needs known targets, and 3 of 5 are censored"):
        lamu.scores.rmse(pred, few)


def test_batches_stream_and_pad_by_name() -> None:
    batch = Batch.of(X[:3], {"value": VALUE[:3], "censored": CENSORED[:3]}).padded(5)
    assert batch.y["censored"].shape == (5,)
    assert float(batch.count) == 3
    rows = Arrays.of(DATA)
    assert rows.take([1, 2]).y["value"].shape == (2,)
    assert [b.y["value"].shape for b in rows.batches(40)] == [(40,), (40,)]
    stream = Stream(
        [
            (X[:4], {"value": VALUE[:4], "censored": CENSORED[:4]}),
            (X[4:6], {"value": VALUE[4:6], "censored": CENSORED[4:6]}),
        ]
    )
    assert [b.y["value"].shape for b in stream] == [(4,), (4,)]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ({"value": VALUE[:-1], "censored": CENSORED}, r"x has 60 rows and y\['value'\] has 59"),
        ({"value": np.where(CENSORED, np.nan, VALUE), "censored": CENSORED}, r"y\['value'\] is NaN or infinite"),
        ({}, "y is a mapping without arrays"),
    ],
)
def test_a_part_that_cannot_be_is_named(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arrays.of((X, y))


@record
class Means(Target):
    """The means of the columns of two arrays with holes, y ~ N(mean, 1), known by name."""

    columns: tuple[int, int] = static(default=(3, 1))
    prior: Any = Normal(2.0)
    frozen: Any = None
    start: Any = None

    def init(self, key: Any, batch: Any) -> Any:
        return self.started({"network": {"a": jnp.zeros(3), "b": jnp.zeros(1)}, "likelihood": {}}, {})

    def log_likelihood(self, params: Any, state: Any, batch: Any, key: Any = None, train: bool = False) -> Any:
        theta = self.complete(params["network"])
        total = 0.0
        for name in ("a", "b"):
            part = batch.y[name]
            logs = norm.logpdf(part.value, theta[name][None])
            total = total + jnp.sum(jnp.where(part.observed, logs, 0.0), axis=1)
        return total, state

    def read(self, data: Any) -> Any:
        return Arrays.named(data, ("a", "b"), missing=True)

    rows = read

    def inputs(self, x: Any) -> Any:
        raise TypeError("Means() predicts nothing")


def holes() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    a, b = random.normal([1.0, -2.0, 0.5], 1.0, (40, 3)), random.normal(3.0, 1.0, (40, 1))
    return {"a": np.where(random.uniform(size=a.shape) < 0.3, np.nan, a), "b": b}


@pytest.mark.parametrize("batch_size", [40, 16])
def test_missing_entries_are_left_out_of_a_target_of_ones_own(batch_size: int) -> None:
    """Exact: precision 1/4 + the entries that are there, mean their sum over that."""
    data = holes()
    algorithm = lamu.algorithms.laplace(curvature=Hessian())
    posterior = lamu.fit(Means(), data, algorithm, epochs=300, batch_size=batch_size).posterior
    for name, array in data.items():
        precision = 0.25 + np.sum(~np.isnan(array), axis=0)
        np.testing.assert_allclose(posterior.mean["network"][name], np.nansum(array, axis=0) / precision, atol=2e-3)
    draws = posterior.sample(jax.random.key(0), 4000)["network"]["a"]
    expected = 1 / np.sqrt(0.25 + np.sum(~np.isnan(data["a"]), axis=0))
    # A deviation of 4,000 draws has a standard error of 1.1 %; five of them fail once in a million seeds.
    np.testing.assert_allclose(np.std(draws, axis=0), expected, rtol=0.06)


@record
class Estimated(Means):
    """Means whose row densities are estimates: they carry a term ε − ½ with ε of log mean zero, in evaluation too."""

    def log_likelihood(self, params: Any, state: Any, batch: Any, key: Any = None, train: bool = False) -> Any:
        values, state = super().log_likelihood(params, state, batch, key, train)
        return values + jax.random.normal(key, values.shape, values.dtype) - 0.5, state


@pytest.mark.stress
def test_a_target_that_estimates_its_density_gets_keys_in_evaluation() -> None:
    """The bound falls by ½ a row, and its draws are independent: of 40 rows √40, of 200 draws .45."""
    data = holes()
    posterior = lamu.fit(Means(), data, lamu.algorithms.ivon(learning_rate=0.1), epochs=200).posterior
    exact = lamu.scores.elbo(posterior, data, samples=200)
    estimated = lamu.fit(Estimated(), data, lamu.algorithms.ivon(learning_rate=0.1), epochs=2).posterior
    estimated = replace(estimated, belief=posterior.belief)
    found = lamu.scores.elbo(estimated, data, samples=200)
    # An error of 200 draws has a standard error of 5 %.
    assert np.isclose(found.error, np.hypot(exact.error, np.sqrt(40 / 200)), rtol=0.25)
    # Five standard errors.
    assert abs(found.value - (exact.value - 20)) < 5 * np.hypot(found.error, exact.error)


def test_names_are_checked() -> None:
    data = holes()
    with pytest.raises(ValueError, match="data lacks 'b', which the target observes"):
        lamu.fit(Means(), {"a": data["a"]}, lamu.algorithms.adam(), epochs=1)
    with pytest.raises(ValueError, match="unknown key 'c'"):
        lamu.fit(Means(), {**data, "c": data["b"]}, lamu.algorithms.adam(), epochs=1)
    with pytest.raises(TypeError, match="pass a mapping with the keys"):
        lamu.fit(Means(), data["a"], lamu.algorithms.adam(), epochs=1)
    with pytest.raises(ValueError, match="infinite"):
        Arrays.named({"a": np.array([np.inf, 0.0])}, ["a"], missing=True)
    alone = Arrays.named(np.array([1.0, np.nan]), ["a"], missing=True)
    assert isinstance(alone.y["a"], Incomplete)
    assert alone.y["a"].observed.tolist() == [True, False]


def test_the_bundled_sets_and_a_split_are_scikit_learns():
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    for name in set(lamu.data.names()) - {"fashion_mnist"}:
        theirs = getattr(datasets, f"load_{name}")()
        x, y = lamu.data.load(name)
        factor = 1 / 16 if name == "digits" else 1.0
        np.testing.assert_array_equal(x, (theirs["data"] * factor).astype(np.float32))
        np.testing.assert_array_equal(y, theirs["target"])
        assert columns(name) == tuple(map(str, theirs["feature_names"]))
    for rows, size, seed in ((5, 0.2, 0), (97, 0.5, 7), (442, 0.1, 3)):
        train, test = train_test_split(np.arange(rows), test_size=math.ceil(size * rows), random_state=seed)
        ours = lamu.data.split(rows, size, seed)
        for part, other in zip(ours, (train, test), strict=True):
            np.testing.assert_array_equal(part, np.sort(other))
    random = np.random.default_rng(0)
    for seed, size in enumerate((0.1, 0.25, 0.3, 0.5, 0.62) * 4):
        rows, classes = int(random.integers(40, 300)), int(random.integers(2, 7))
        y = np.arange(rows) % classes if seed % 3 else random.integers(0, classes, rows)  # with ties, and without
        y = np.stack([y % 2, y // 2], axis=1) if seed % 4 == 0 else y
        theirs = train_test_split(np.arange(rows), test_size=math.ceil(size * rows), random_state=seed, stratify=y)
        for part, other in zip(lamu.data.split(y, size, seed, stratify=True), theirs, strict=True):
            np.testing.assert_array_equal(part, np.sort(other))
