"""Laws of calibration: regions hold as often as they say, temperatures are the best ones, and supports are kept.

A row's subject is what calibrates: `calibrate(pred, y)` for regions and temperatures. Predictions are stubs, and
calibration rows few, so that a rank that is off by one is seen: of nine rows the region of 80 % holds eight in ten.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import optimize, special, stats

from lamu.calibration import Conformal, LeftOut, Selective, conformal, selective, temperature_scaling
from lamu.calibration.selection import _upper
from lamu.likelihoods import Bernoulli, Categorical
from lamu.predictives import GaussianPredictive, MixturePredictive
from lamu.supports import Classes, Real, TwoClasses
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("calibration", "region temperature choice")

FEW, TIMES, LEVEL = 9, 1500, 0.8


def stub(support: Any, mean: Any, std: Any = None) -> Any:
    probabilities = None if std is not None else support.probabilities(mean)
    return SimpleNamespace(support=support, mean=mean, std=std, probabilities=probabilities)


def numbers(rng: np.random.Generator, n: int, outputs: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """Targets that lie about a wrong mean with a wrong spread, different from row to row."""
    mean = rng.normal(size=(n, *outputs))
    std = np.exp(rng.normal(size=(n, *outputs)))
    return stub(Real(), mean, std), mean + std * (0.7 + 2.0 * rng.standard_t(4, size=mean.shape))


def several(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    return numbers(rng, n, (2,))


def classes(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    logits = rng.normal(size=(n, 3))
    y = np.array([rng.choice(3, p=p) for p in special.softmax(2.0 * logits + [1.0, 0.0, 0.0], axis=1)])
    return stub(Classes(3), special.softmax(logits, axis=1)), y


def two_classes(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    logits = rng.normal(size=n)
    return stub(TwoClasses(), special.expit(logits)), (rng.uniform(size=n) < special.expit(0.5 * logits + 1.0)).astype(
        int
    )


class Jackknife:
    """Jackknife+ of one member that has seen no row, whose votes are those of split conformal prediction."""

    def __init__(self, pred: Any, y: Any) -> None:
        learned = conformal(pred, y)
        self.learn = lambda new: LeftOut(
            (SimpleNamespace(predict=lambda x, samples: new),), np.zeros(len(y), int), learned.distances, pred.support
        )

    def interval(self, new: Any, level: float) -> Any:
        return self.learn(new).interval(np.zeros(len(new.mean)), level)

    def prediction_set(self, new: Any, level: float) -> Any:
        return self.learn(new).prediction_set(np.zeros(len(new.mean)), level)


def held(calibrated: Any, new: Any, y: Any) -> Any:
    if new.support.has_classes:
        return calibrated.prediction_set(new, LEVEL)[np.arange(len(y)), y]
    lower, upper = calibrated.interval(new, LEVEL)
    return (lower <= y) & (y <= upper)


REGIONS = {
    name: row("calibration", name, subject, "region", draw=draw)
    for name, subject, draw in (
        ("conformal, numbers", conformal, numbers),
        ("conformal, several outputs", conformal, several),
        ("conformal, classes", conformal, classes),
        ("conformal, two classes", conformal, two_classes),
        ("jackknife+, numbers", Jackknife, numbers),
        ("jackknife+, classes", Jackknife, classes),
    )
}


@law("calibration", when="region")
def a_region_holds_as_often_as_it_says(row: Row) -> None:
    """Within 4.5 standard errors of exactly 80 %: a right one fails in 1 of 100,000 seeds."""
    rng = np.random.default_rng(8)
    found = []
    for _ in range(TIMES):
        calibrated = row.subject(*row.extras["draw"](rng, FEW))
        found.append(held(calibrated, *row.extras["draw"](rng, 1))[0])
    error = 4.5 * np.sqrt(LEVEL * (1 - LEVEL) / TIMES)
    assert (np.abs(np.mean(found, axis=0) - LEVEL) < error).all()


@law("calibration", when="region")
def few_rows_promise_no_more_than_they_can(row: Row) -> None:
    rng = np.random.default_rng(1)
    draw = row.extras["draw"]
    calibrated = row.subject(*draw(rng, FEW))
    new, _ = draw(rng, 2)
    region = calibrated.prediction_set if new.support.has_classes else calibrated.interval
    region(new, 0.9)  # of nine rows the largest distance
    said = ""
    try:
        region(new, 0.91)
    except ValueError as error:
        said = str(error)
    assert "calibrate on at least 11" in said


def off_by_one(calibrate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def broken(pred: Any, y: Any) -> Any:
        found = calibrate(pred, y)
        return Conformal(found.support, np.concatenate([found.distances[1:], found.distances[-1:]]))

    return broken


class Eager(Conformal):
    """It takes the largest distance for any level."""

    def reach(self, level: float) -> Any:
        return self.distances[-1] if level > 0.9 else Conformal.reach(self, level)


twin(REGIONS["conformal, numbers"], "of the next rank", "a_region_holds_as_often_as_it_says", off_by_one(conformal))
twin(
    REGIONS["conformal, classes"],
    "that promises anything",
    "few_rows_promise_no_more_than_they_can",
    lambda pred, y: Eager(pred.support, conformal(pred, y).distances),
)


# Temperatures.

RNG = np.random.default_rng(4)
Z = RNG.normal(size=(40, 2))
CENTRE, SPREAD = RNG.normal(size=(40, 2)), np.exp(0.4 * RNG.normal(size=(40, 2)))
LOGITS = 2.0 * RNG.normal(size=(60, 3))
LABELS = np.array([RNG.choice(3, p=p) for p in special.softmax(LOGITS / 2.5, axis=1)])
BINARY = (RNG.uniform(size=60) < special.expit(LOGITS[:, 0] / 3)).astype(int)


def normals(columns: Any) -> tuple[Any, Any]:
    centre, spread = CENTRE[:, columns], SPREAD[:, columns]
    pred = GaussianPredictive(jnp.asarray(centre), jnp.asarray(spread**2), jnp.asarray(spread**2) / 2)
    return pred, centre + 1.7 * spread * Z[:, columns]


def of_logits(likelihood: Any, logits: Any) -> Any:
    return MixturePredictive.equal(likelihood, {}, jnp.asarray(logits)[None])


def best_of_classes(logits: Any, y: Any) -> float:
    nll = lambda t: -special.log_softmax(logits / t, axis=1)[np.arange(len(y)), y].mean()
    return float(optimize.minimize_scalar(nll, bounds=(0.05, 50.0), method="bounded", options={"xatol": 1e-9}).x)


PAIRS = np.stack([0 * LOGITS[:, 0], LOGITS[:, 0]], axis=1)
SCALED = {
    name: row("calibration", name, temperature_scaling, "temperature", made=made, best=best)
    for name, made, best in (
        ("temperature, numbers", lambda: normals(0), 1.7 * np.sqrt(np.mean(Z[:, 0] ** 2))),
        ("temperature, several outputs", lambda: normals(slice(None)), 1.7 * np.sqrt(np.mean(Z**2))),
        (
            "temperature, classes",
            lambda: (of_logits(Categorical(3), LOGITS), LABELS),
            best_of_classes(LOGITS, LABELS),
        ),
        (
            "temperature, two classes",
            lambda: (of_logits(Bernoulli(), LOGITS[:, :1]), BINARY),
            best_of_classes(PAIRS, BINARY),
        ),
    )
}


@law("calibration", when="temperature")
def the_best_temperature_is_found(row: Row) -> None:
    np.testing.assert_allclose(float(row.subject(*row.extras["made"]()).value), row.extras["best"], rtol=1e-4)


@law("calibration", when="temperature")
def a_temperature_keeps_support_and_order(row: Row) -> None:
    pred, y = row.extras["made"]()
    found = row.subject(pred, y)
    after = found(pred)
    assert after.support == pred.support == found.support
    if pred.support.has_classes:
        order = np.argsort(np.asarray(pred.probabilities), axis=1)
        np.testing.assert_array_equal(np.argsort(np.asarray(after.probabilities), axis=1), order)
        np.testing.assert_allclose(np.asarray(after.probabilities).sum(axis=1), 1.0, rtol=1e-6)
    else:
        np.testing.assert_allclose(after.mean, pred.mean, rtol=1e-9)
        np.testing.assert_allclose(after.std, float(found.value) * pred.std, rtol=1e-6)
    assert float(after.log_prob(jnp.asarray(y)).sum()) > float(pred.log_prob(jnp.asarray(y)).sum())


class Inverse:
    """A temperature that divides where it should multiply."""

    def __init__(self, pred: Any, y: Any) -> None:
        self.right = temperature_scaling(pred, y)
        self.value, self.support = 1 / float(self.right.value), self.right.support

    def __call__(self, pred: Any) -> Any:
        return type(self.right)(self.value, self.support)(pred)


twin(
    SCALED["temperature, several outputs"],
    "inverted",
    "the_best_temperature_is_found a_temperature_keeps_support_and_order",
    Inverse,
)


# Choosing whom to answer.


def doubtful() -> tuple[Any, Any, np.ndarray]:
    p = np.linspace(0.5, 1.0, 400)
    rng = np.random.default_rng(2)
    wrong = rng.uniform(size=400) > p
    return SimpleNamespace(support=TwoClasses(), mean=p, total=1 - p), (~wrong).astype(int), wrong


CHOICE = row("calibration", "selective", selective, "choice")


@law("calibration", when="choice")
def the_bound_is_the_binomials_and_no_more_rows_keep_it(row: Row) -> None:
    pred, y, wrong = doubtful()
    found = row.subject(pred, y, risk=0.2, confidence=0.9)
    bounds = {}
    for twentieths in range(1, 21):
        kept = wrong[np.argsort(pred.total)][: 20 * twentieths - (twentieths < 20)]
        test = stats.binomtest(int(kept.sum()), len(kept), alternative="less")
        bounds[len(kept) / 400] = test.proportion_ci(1 - 0.1 / 20).high
    largest = max(share for share, bound in bounds.items() if bound <= 0.2)
    assert 0 < largest < 1
    np.testing.assert_allclose([found.share, found.bound], [largest, bounds[largest]], rtol=1e-9)
    np.testing.assert_array_equal(found.answers(pred).sum(), round(400 * largest))


def lenient(pred: Any, y: Any, risk: float, confidence: float) -> Selective:
    found = selective(pred, y, risk, confidence)
    count = round(400 * found.share)
    errors = int((y[found.answers(pred)] == 0).sum())
    return Selective(found.threshold, risk, _upper(errors, count, 1 - confidence), found.share, confidence)


twin(CHOICE, "of one test instead of twenty", "the_bound_is_the_binomials_and_no_more_rows_keep_it", lenient)
