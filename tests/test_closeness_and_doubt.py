"""Scores of one prediction beside another, and of doubt: beside scikit-learn and counts by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from lamu import scores
from lamu.scores import RiskCoverage, agreement, aurc, auroc, risk_coverage, total_variation
from lamu.supports import Classes, Real, TwoClasses

RANDOM = np.random.default_rng(3)
P, Q = RANDOM.dirichlet(np.ones(4), 50), RANDOM.dirichlet(np.ones(4), 50)


def classes(p: Any) -> Any:
    return SimpleNamespace(support=Classes(p.shape[-1]), mean=p, total=-np.sum(p * np.log(p), axis=1))


def binary(p: Any) -> Any:
    return SimpleNamespace(support=TwoClasses(), mean=p, total=p * (1 - p))


def regression(mean: Any, total: Any) -> Any:
    return SimpleNamespace(support=Real(), mean=mean, total=total)


def test_closeness_is_counted_by_hand() -> None:
    same = sum(int(np.argmax(p) == np.argmax(q)) for p, q in zip(P, Q, strict=True))
    assert agreement(classes(P), classes(Q)) == same / 50
    # The largest difference of the probabilities of any event.
    events = np.array([[(k >> j) & 1 for j in range(4)] for k in range(16)])
    largest = np.max(np.abs((P - Q) @ events.T), axis=1)
    np.testing.assert_allclose(total_variation(classes(P), classes(Q)), largest.mean(), rtol=1e-12)
    assert agreement(classes(P), classes(P)) == 1.0
    assert total_variation(classes(P), classes(P)) == 0.0


def test_a_binary_prediction_is_two_classes() -> None:
    p, q = P[:, 0], Q[:, 0]
    pair = lambda p: classes(np.stack([1 - p, p], axis=1))
    assert agreement(binary(p), binary(q)) == agreement(pair(p), pair(q))
    np.testing.assert_allclose(total_variation(binary(p), binary(q)), np.mean(np.abs(p - q)), rtol=1e-12)


@pytest.mark.parametrize("score", [agreement, total_variation])
def test_only_predictions_of_the_same_rows_are_close(score: Any) -> None:
    with pytest.raises(ValueError, match="is for classes, and a prediction of numbers was given"):
        score(classes(P), regression(P[:, 0], P[:, 0]))
    with pytest.raises(ValueError, match=r"\(\(50, 4\), \(49, 4\)\)"):
        score(classes(P), classes(Q[1:]))
    with pytest.raises(ValueError, match="none"):
        score(binary(np.zeros(0)), binary(np.zeros(0)))


def test_auroc_is_scikit_learns_with_ties() -> None:
    known, unknown = RANDOM.integers(0, 6, 40) / 6, RANDOM.integers(2, 8, 25) / 6
    expected = roc_auc_score(np.repeat([0, 1], [40, 25]), np.concatenate([known, unknown]))
    np.testing.assert_allclose(auroc(known, unknown), expected, rtol=1e-12)
    np.testing.assert_allclose(auroc(unknown, known), 1 - expected, rtol=1e-12)
    assert auroc([0.0, 1.0], [2.0]) == 1.0
    with pytest.raises(ValueError, match=r"unknown has the shape \(50, 4\)"):
        auroc(known, P)
    with pytest.raises(ValueError, match="NaN in 1 rows"):
        auroc([np.nan, 1.0], unknown)


def test_the_least_doubtful_are_kept_first() -> None:
    pred = regression(np.zeros(4), np.array([0.1, 0.4, 0.2, 0.3]))
    found = risk_coverage(pred, np.array([1.0, 4.0, 2.0, 3.0]))
    assert isinstance(found, RiskCoverage)
    np.testing.assert_allclose(found.share, [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(found.risk, np.cumsum([1.0, 4.0, 9.0, 16.0]) / [1, 2, 3, 4])
    np.testing.assert_allclose(aurc(pred, np.array([1.0, 4.0, 2.0, 3.0])), np.mean(found.risk))
    turned = risk_coverage(pred, np.array([1.0, 4.0, 2.0, 3.0]), doubt=-pred.total)
    assert turned.risk[0] == 16.0
    assert turned.risk[-1] == found.risk[-1]


def test_the_last_risk_is_the_score_of_all_rows() -> None:
    y = RANDOM.integers(0, 4, 50)
    np.testing.assert_allclose(risk_coverage(classes(P), y).risk[-1], 1 - scores.accuracy(classes(P), y))
    bits = (y > 1).astype(int)
    np.testing.assert_allclose(
        risk_coverage(binary(P[:, 1]), bits).risk[-1], 1 - scores.accuracy(binary(P[:, 1]), bits)
    )


def test_rows_of_equal_doubt_have_no_order() -> None:
    y, order = np.array([0, 1, 0, 1]), np.array([2, 3, 1, 0])
    pred = binary(np.full(4, 0.7))
    turned = risk_coverage(pred, y[order])
    np.testing.assert_allclose(risk_coverage(pred, y).risk, turned.risk)
    np.testing.assert_allclose(turned.risk, 0.5)


def test_doubt_is_one_number_a_row() -> None:
    with pytest.raises(ValueError, match=r"\(3,\)"):
        risk_coverage(binary(P[:, 1]), np.zeros(50, int), doubt=np.zeros(3))
    with pytest.raises(ValueError, match="1 rows is NaN"):
        risk_coverage(binary(P[:, 1]), np.zeros(50, int), doubt=np.r_[np.zeros(49), np.nan])
    with pytest.raises(ValueError, match=r"\(50, 2\)"):
        risk_coverage(regression(np.zeros((50, 2)), np.zeros((50, 2))), np.zeros((50, 2)))
