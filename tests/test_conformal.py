"""Conformal regions: their coverage is exact under exchangeability, however wrong the model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lamu.calibration import Conformal, conformal
from lamu.supports import Classes, Counts, Real, TwoClasses


def regression(mean: Any, std: Any) -> Any:
    return SimpleNamespace(support=Real(), mean=mean, std=std)


def classes(p: Any) -> Any:
    return SimpleNamespace(support=Classes(p.shape[-1]), mean=p)


def test_the_reach_is_an_order_statistic() -> None:
    found = conformal(regression(np.zeros(9), np.full(9, 2.0)), 2.0 * np.arange(9, 0, -1) * np.resize([1, -1], 9))
    assert isinstance(found, Conformal)
    # Of ten exchangeable rows the last has each rank with the probability one tenth.
    assert [float(found.reach(tenths / 10)) for tenths in range(1, 10)] == list(range(1, 10))
    assert found.reach(0.81) == 9.0
    lower, upper = found.interval(regression(np.array([1.0]), np.array([3.0])), 0.5)
    assert (lower.tolist(), upper.tolist()) == ([-14.0], [16.0])


def test_intervals_are_of_possible_targets() -> None:
    pred = SimpleNamespace(support=Counts(), mean=np.array([0.5, 1.0, 9.0]), std=np.ones(3))
    lower, upper = conformal(pred, np.array([2, 0, 11])).interval(pred, 0.7)
    assert (lower.tolist(), upper.tolist()) == ([0.0, 0.0, 7.0], [2.5, 3.0, 11.0])


def test_coverage_is_what_was_asked_for_under_a_wrong_model() -> None:
    """Mean, spread and shape are wrong. The chance of holding is 18/20 exactly: 4,000 trials, five standard errors."""
    generator, n, trials = np.random.default_rng(0), 19, 4000
    held = []
    for _ in range(trials):
        x = generator.normal(size=n + 1)
        y = np.exp(x) + generator.gamma(1.0, 2.0, n + 1)
        pred = regression(0.3 * x, 0.1 + np.abs(x))
        old, new = (regression(pred.mean[part], pred.std[part]) for part in (slice(n), slice(n, None)))
        lower, upper = conformal(old, y[:n]).interval(new, 0.9)
        held.append(bool(lower[0] <= y[n] <= upper[0]))
    assert abs(np.mean(held) - 0.9) < 5 * np.sqrt(0.9 * 0.1 / trials)


def test_sets_hold_the_class_as_often_as_they_say() -> None:
    """Over-confident probabilities: their own sets hold too rarely, the conformal ones as often as they say."""
    generator, n = np.random.default_rng(1), 4000
    logits = generator.normal(size=(2 * n, 4))
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = np.array([generator.choice(4, p=row) for row in p])
    sharp = p**4 / (p**4).sum(1, keepdims=True)
    found = conformal(classes(sharp[:n]), y[:n]).prediction_set(classes(sharp[n:]), 0.8)
    assert found.shape == (n, 4)
    covered = found[np.arange(n), y[n:]].mean()
    assert abs(covered - 0.8) < 5 * np.sqrt(2 * 0.8 * 0.2 / n)
    assert sharp[n:][np.arange(n), sharp[n:].argmax(1)].mean() - (sharp[n:].argmax(1) == y[n:]).mean() > 0.2


def test_a_binary_target_has_two_columns() -> None:
    pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2, 0.6, 0.5]))
    found = conformal(pred, np.array([1, 0, 0, 1]))
    np.testing.assert_allclose(found.distances, [0.1, 0.2, 0.5, 0.6])
    assert found.prediction_set(pred, 0.6).tolist() == [[False, True], [True, False], [False, True], [True, True]]


def test_outputs_are_calibrated_one_by_one() -> None:
    y = np.stack([np.arange(1.0, 10.0), 10 * np.arange(1.0, 10.0)], axis=1)
    found = conformal(regression(np.zeros((9, 2)), np.ones((9, 2))), y)
    np.testing.assert_allclose(found.reach(0.9), [9.0, 90.0])
    lower, _ = found.interval(regression(np.zeros((1, 2)), np.ones((1, 2))), 0.9)
    np.testing.assert_allclose(lower, [[-9.0, -90.0]])


def test_what_cannot_be_promised_is_one_sentence() -> None:
    few = conformal(regression(np.zeros(5), np.ones(5)), np.arange(5.0))
    with pytest.raises(ValueError, match=r"5 rows cannot promise 0\.9; calibrate on at least 9"):
        few.interval(regression(np.zeros(1), np.ones(1)), 0.9)
    with pytest.raises(ValueError, match=r"1\.2 is not a probability"):
        few.reach(1.2)
    with pytest.raises(TypeError, match=r"^pred=0\.9 is not a prediction; give .*predict\(x\), and the level"):
        few.interval(0.9)  # type: ignore[arg-type]  # the mistake that is told
    with pytest.raises(TypeError, match="prediction_set"):
        few.interval(classes(np.ones((1, 2)) / 2))
    with pytest.raises(TypeError, match="interval"):
        few.prediction_set(regression(np.zeros(1), np.ones(1)))
    with pytest.raises(ValueError, match="of finite numbers, and this one is of whole numbers from 0 to 1"):
        few.prediction_set(classes(np.ones((1, 2)) / 2))
    for missed in (0.0, 1.0):  # without a spread: nothing over nothing, and something over nothing
        with pytest.raises(ValueError, match="1 of 2 distances are not finite"):
            conformal(regression(np.zeros(2), np.array([0.0, 1.0])), np.array([missed, 0.0]))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        conformal(regression(np.zeros(2), np.ones(2)), np.zeros(3))


def test_it_takes_what_posteriors_predict() -> None:
    import lamu

    x, y = lamu.data.load("breast_cancer")
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x[:300], y[:300])
    posterior = lamu.fit(model, (x[:300], y[:300]), lamu.algorithms.adam(), epochs=5).posterior
    found = conformal(posterior.predict(x[300:450]), y[300:450]).prediction_set(posterior.predict(x[450:]), 0.9)
    assert found.shape == (len(x) - 450, 2)
    assert 0.8 < found[np.arange(len(found)), y[450:]].mean() <= 1.0
