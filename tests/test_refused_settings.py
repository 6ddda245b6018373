"""Settings that once gave an answer in silence: numbers that no run can have, and a result that nobody can read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lamu
from lamu.algorithms import adagrad, adam, rmsprop

X = np.random.default_rng(0).normal(size=(30, 3))
Y = X[:, 0] + 0.1
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))


@pytest.mark.parametrize("value", [math.inf, math.nan, 0.0, -1.0])
def test_a_rate_is_positive_and_finite(value: float) -> None:
    with pytest.raises(ValueError, match="learning_rate="):
        adam(value)
    with pytest.raises(ValueError, match="start="):
        lamu.rate.Annealed(value)


@pytest.mark.parametrize("make", [adam, rmsprop, adagrad])
@pytest.mark.parametrize("eps", [-1.0, math.nan, math.inf])
def test_what_shields_a_division_is_not_negative(make: Any, eps: float) -> None:
    with pytest.raises(ValueError, match="eps="):
        make(0.1, eps=eps)


@pytest.mark.parametrize("length", [{"epochs": -2}, {"steps": 0}, {"steps": -1}])
def test_a_length_is_a_number_of_steps(length: Any) -> None:
    with pytest.raises(ValueError, match="is no length of a run"):
        lamu.fit(MODEL, (X, Y), adam(0.1), **length)


def test_a_fit_is_one_line() -> None:
    fit = lamu.fit(MODEL, (X, Y), adam(0.1), epochs=3)
    assert repr(fit).startswith("Fit(Point about Linear, 3 steps, loss ")
    assert len(repr(fit)) < 200
    cold = lamu.fit(MODEL, (X, Y), lamu.algorithms.ivon(), epochs=3, temperature=0.5)
    assert "temperature 0.5" in repr(cold)
