"""Networks that learned hardly anything from their training rows, or the noise in them too, are told so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.stats

import lamu
from lamu.data.arrays import Arrays
from lamu.running.training_fit import _left_of_noise

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 5)).astype(np.float32)
NOISE = RNG.normal(size=120).astype(np.float32)
WIDE, NARROW = lamu.networks.MLP((64, 64)), lamu.networks.MLP((4,))
CATEGORIES = (lamu.Overfit, lamu.Underfit)


def told(network: Any, y: np.ndarray, algorithm: Any, **options: Any) -> list[str]:
    """Returns the warnings of the fit to training rows, each after the name of its class."""
    classes = y.dtype.kind == "i"
    likelihood = lamu.likelihoods.Bernoulli() if classes else lamu.likelihoods.Gaussian()
    data = {"x": X, "y": y, **options.pop("more", {})}
    model = lamu.Model(network, likelihood).standardised(X, y)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lamu.fit(model, data, algorithm, **options)
    return [f"{each.category.__name__}: {each.message}" for each in said if issubclass(each.category, CATEGORIES)]


@pytest.mark.parametrize("y", [X[:, 0] + NOISE, (X[:, 0] > 0).astype(int)], ids=["numbers", "classes"])
def test_a_belief_that_has_learned_nothing_is_told_with_the_figures_of_a_constant(y: np.ndarray) -> None:
    weight = np.where(np.arange(120) < 60, 2.0, 0.0)
    temperature = 100.0 if y.dtype.kind == "i" else 1.0
    [text] = told(WIDE, y, lamu.algorithms.ivon(), temperature=temperature, steps=200, more={"weight": weight})
    some = y[:60]
    share = some.mean()
    constant = (
        -share * np.log(share) - (1 - share) * np.log(1 - share)
        if y.dtype.kind == "i"
        else 0.5 * np.log(2 * np.pi * np.e * some.var())
    )
    assert text.startswith("Underfit: the belief predicts its training rows")
    assert f"instead of {constant:.3g}; either" in text
    assert ("fit_temperature" in text) == (y.dtype.kind == "i")
    assert ("take laplace()" in text) == (y.dtype.kind == "f")


@pytest.mark.parametrize(
    ("algorithm", "level", "unit"), [(lamu.algorithms.laplace(), 1e5, 100.0), (lamu.algorithms.adam(), 0.0, 1e-5)]
)
def test_targets_that_were_not_scaled_are_named_as_the_reason(algorithm: Any, level: float, unit: float) -> None:
    y = (level + unit * (X[:, 0] + NOISE / 3)).astype(np.float32)
    model = lamu.Model(NARROW, lamu.likelihoods.Gaussian())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lamu.fit(model, (X, y), algorithm, steps=100)
    [text] = [str(each.message) for each in said if issubclass(each.category, lamu.Underfit)]
    assert f"the targets are not scaled (from {y.min():.3g} to {y.max():.3g})" in text
    assert text.endswith("take model.standardised(x, y)")


@pytest.mark.parametrize(
    ("rate", "members"), [(3.0, 1), (3.0, 2), (0.1, 1)], ids=["dead", "an ensemble of the dead", "alive"]
)
def test_a_network_whose_units_died_is_told_also_where_its_prior_is_a_part_of_the_loss(
    rate: float, members: int
) -> None:
    """A density of 4,609 weights above one takes ten nats a row off the loss of SAM, more than a constant has."""
    algorithm = lamu.algorithms.sam(rate, radius=0.3)
    if members > 1:
        algorithm = lamu.algorithms.deep_ensemble(algorithm, members)
    network = lamu.networks.MLP((64, 64), activation="relu")
    model = lamu.Model(network, lamu.likelihoods.Bernoulli(), lamu.priors.Normal(0.3))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = lamu.fit(model, (X, (X[:, 0] > 0).astype(int)), algorithm, steps=100)
    texts = [str(each.message) for each in said if issubclass(each.category, lamu.Underfit)]
    assert len(texts) == (rate > 1), fit.history["loss"][-5:]
    assert all("the steps were too few, or so long that units died" in text for text in texts)


@pytest.mark.parametrize("algorithm", [lamu.algorithms.adam(0.01), lamu.algorithms.deep_ensemble(members=2)])
def test_a_noise_that_is_learned_from_the_rows_of_a_wide_network_is_told(algorithm: Any) -> None:
    """The network passes through its rows: the noise of others is forty times the one that it learned."""
    [text] = told(WIDE, X[:, 0] + NOISE, algorithm, epochs=400, batch_size=120)
    assert text.startswith("Overfit: ")
    assert "the training rows, 120," in text
    assert "validation=0.1" in text


def test_a_noise_that_a_belief_about_a_mode_leaves_is_told() -> None:
    [text] = told(WIDE, X[:, 0] + NOISE, lamu.algorithms.kfac(), epochs=400, batch_size=120)
    assert text.startswith("Overfit: ")


@pytest.mark.parametrize(
    "algorithm", [lamu.algorithms.adam(0.01), lamu.algorithms.deep_ensemble(members=2), lamu.algorithms.last_layer()]
)
def test_classes_that_are_noise_and_are_learned_one_by_one_are_told(algorithm: Any) -> None:
    """Other rows have 1.2 to 2 nats, and .69 by the shares of the classes."""
    y = (NOISE > 0).astype(int)
    [text] = told(WIDE, y, algorithm, epochs=400, batch_size=120, more={"weight": np.ones(120)})
    assert text.startswith("Overfit: ")
    assert "the training rows, 120, are learned one by one" in text
    assert "and 0.69 by the shares" in text
    assert "validation=0.1" in text
    assert told(WIDE, y, algorithm, epochs=400, batch_size=120, validation=0.2) == []


@pytest.mark.parametrize("name", ["iris", "hyperplane"])
def test_classes_that_a_network_separates_and_tells_of_other_rows_are_not_told(name: str) -> None:
    """The nearest of 200 rows in 50 columns have other classes, and influence judges; other rows have .23 nats."""
    x, y = lamu.data.load("iris") if name == "iris" else (RNG.normal(size=(200, 50)), None)
    y = (x.sum(axis=1) > 0).astype(int) if y is None else y
    likelihood = lamu.likelihoods.Categorical(3) if name == "iris" else lamu.likelihoods.Bernoulli()
    model = lamu.Model(WIDE, likelihood).standardised(x, y)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = lamu.fit(model, (x, y), lamu.algorithms.adam(0.01), epochs=300, batch_size=len(y))
    assert float(lamu.scores.accuracy(fit.posterior.predict(x), y)) > 0.98
    assert not [each for each in said if issubclass(each.category, CATEGORIES)]


@pytest.mark.parametrize(
    ("network", "y", "algorithm", "options"),
    [
        (WIDE, X[:, 0] + NOISE, lamu.algorithms.adam(0.01), {"validation": 0.2, "epochs": 400}),  # rows judge
        (NARROW, X[:, 0] + NOISE, lamu.algorithms.adam(0.01), {"epochs": 400}),  # more rows than weights
        (WIDE, (X[:, 0] > 0).astype(int), lamu.algorithms.adam(0.01), {"epochs": 100}),  # without noise
        (NARROW, X[:, 0] + 0.1 * NOISE, lamu.algorithms.ivon(), {"epochs": 400}),  # most is explained, by a belief
        (
            lamu.networks.Linear(),
            NOISE,
            lamu.algorithms.laplace(),
            {"epochs": 100},
        ),  # nothing to learn
    ],
    ids=["validated", "narrow", "classes", "belief", "linear"],
)
def test_of_no_other_fit_it_is_told(network: Any, y: np.ndarray, algorithm: Any, options: dict[str, Any]) -> None:
    assert told(network, y, algorithm, batch_size=120, **options) == []


def test_a_stream_is_judged_by_its_first_batch() -> None:
    y = (X[:, 0] > 0).astype(int)
    model = lamu.Model(WIDE, lamu.likelihoods.Bernoulli())
    stream = [(X[:60], y[:60]), (X[60:], y[60:])]
    for temperature, told_so in ((100.0, True), (0.01, False)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            lamu.fit(model, stream, lamu.algorithms.ivon(), steps=200, data_size=120, temperature=temperature)
        assert any("120 rows do not outweigh" in str(each.message) for each in said) == told_so


def test_rows_without_weight_do_not_judge() -> None:
    """Of 3,000 rows every third is looked at, and all of these may count for nothing."""
    x = np.tile(X, (25, 1))
    weight = np.zeros(3000)
    weight[1] = 1.0
    model = lamu.Model(WIDE, lamu.likelihoods.Gaussian())
    data = {"x": x, "y": x[:, 0], "weight": weight}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lamu.fit(model, data, lamu.algorithms.ivon(), steps=60)
    assert not [each for each in said if issubclass(each.category, CATEGORIES)]


MEAN = np.exp(1 + np.sin(2 * X[:, 0]))
COUNTS = RNG.poisson(MEAN)


def told_of(likelihood: Any, y: np.ndarray, algorithm: Any, offset: np.ndarray | None = None, **options: Any) -> str:
    """Returns what is said of the fit of a wide network to targets that are neither numbers nor classes."""
    model = lamu.Model(WIDE, likelihood).standardised(X, y)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lamu.fit(model, {"x": X, "y": y, "offset": offset} if offset is not None else (X, y), algorithm, **options)
    return " ".join(str(each.message) for each in said if issubclass(each.category, CATEGORIES))


@pytest.mark.parametrize(
    "likelihood", [lamu.likelihoods.Poisson(), lamu.likelihoods.NegativeBinomial()], ids=lambda each: each.name
)
def test_counts_that_a_point_learns_one_by_one_are_told(likelihood: Any) -> None:
    text = told_of(likelihood, COUNTS, lamu.algorithms.adam(0.01), epochs=400, batch_size=120)
    assert "the counts of the training rows, 120, are learned one by one" in text
    assert f"of the variance of {likelihood.name}" in text
    assert "one by one" not in told_of(likelihood, COUNTS, lamu.algorithms.ivon(), steps=2000)


@pytest.mark.parametrize(
    ("prior", "expected"),
    [(lamu.priors.Normal(3.0), True), (lamu.priors.LearnedNormal(), False)],
    ids=["wide", "learned"],
)
def test_counts_that_the_mode_of_a_belief_learns_one_by_one_are_told(prior: Any, expected: bool) -> None:
    """The belief around it hides it: its own residuals are those of an average of rates."""
    model = lamu.Model(lamu.networks.MLP((64,), "tanh"), lamu.likelihoods.Poisson(), prior).standardised(X, COUNTS)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lamu.fit(model, (X, COUNTS), lamu.algorithms.laplace(), steps=200)
    texts = [str(each.message) for each in said if issubclass(each.category, lamu.Overfit)]
    assert len(texts) == expected, texts
    assert all("or laplace() with the prior lamu.priors.LearnedNormal()" in text for text in texts)


def test_a_belief_of_classes_that_has_lost_what_its_mean_has_learned_is_told() -> None:
    """Of digits the rows have 1.2 nats under `ogn`, whose mean has .004, and others .12 under the mean."""
    x, y = lamu.data.load("digits")
    said_of = []
    for algorithm in (lamu.algorithms.ogn(), lamu.algorithms.laplace(structure=lamu.operators.Diagonal)):
        model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Categorical(10)).standardised(x, y)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            lamu.fit(model, (x, y), algorithm, steps=1000)
        said_of.append([str(each.message) for each in said if issubclass(each.category, CATEGORIES)])
    [text] = said_of[0]
    assert "and the network at its mean had 0.0" in text
    assert "(a constant 2.3)" in text
    assert said_of[1] == []


def test_positive_numbers_that_a_point_learns_are_told() -> None:
    y = (MEAN * RNG.gamma(3.0, size=120)).astype(np.float32)
    text = told_of(lamu.likelihoods.Gamma(), y, lamu.algorithms.adam(0.01), epochs=800, batch_size=120)
    assert "(Cox and Snell R²) of the training rows, 120," in text
    assert "or take ivon()" in text


def test_counts_of_which_nothing_is_learned_are_told_with_the_loss_of_a_constant_rate() -> None:
    """Exposures differ tenfold, and are what the counts come from: the constant is one of rates."""
    exposure = np.where(np.arange(120) < 60, 1.0, 10.0).astype(np.float32)
    y = RNG.poisson(exposure)
    rate = exposure * y.sum() / exposure.sum()
    constant = -scipy.stats.poisson.logpmf(y, rate).mean()
    text = told_of(lamu.likelihoods.Poisson(), y, lamu.algorithms.ivon(), np.log(exposure), steps=500)
    assert f"instead of {constant:.3g}; either" in text


def test_an_ascent_that_diverges_says_to_lower_its_radius() -> None:
    """Gradients of counts grow with the counts predicted, and a lower learning rate shortens no ascent."""
    with pytest.raises(lamu.Diverged, match=r"of radius 1000, .* lower the radius, for instance to 10, or take ivon"):
        told_of(lamu.likelihoods.Poisson(), COUNTS, lamu.algorithms.bsam(0.5, radius=1e3, max_step=None), steps=2000)


def test_counts_whose_rates_round_to_zero_or_overflow_are_no_warning_of_numpy() -> None:
    posterior = lamu.fit(
        lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Poisson()), (X, COUNTS), lamu.algorithms.laplace()
    ).posterior
    rows = Arrays(np.repeat(X[:1] * 1e6, 2, axis=0) * [[1], [-1]], np.zeros(2, int), np.ones(2, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not _left_of_noise(posterior, rows) < 0.4
