"""The one search behind every choice: what it asks for, in which order, where it ends, and what it takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lamu.algorithms.post_hoc.mode import last_within
from lamu.base.choose import (
    Choice,
    all_of,
    bounded,
    choose,
    doublings,
    refine_grid,
    simplex,
    until_worse,
    walk_downhill,
)

SINGULAR = lambda point: math.nan if point > -2.0 else abs(point + 3.0)


@pytest.mark.parametrize(
    ("loss", "search", "asked", "best"),
    [
        (lambda name: len(name), (all_of, ["three", "a", "bb"]), ["three", "a", "bb"], "a"),
        (lambda each: {1.0: 4, 0.3: 2, 0.1: 2, 0.03: 3}[each], (until_worse, [1.0, 0.3, 0.1, 0.03, 0.01]), 4, 0.3),
        (lambda scale: -scale, (doublings, 0.5, 3), [0.5, 1.0, 0.25, 2.0, 4.0], 4.0),
        (lambda scale: scale, (doublings, 0.5, 3), [0.5, 1.0, 0.25, 0.125, 0.0625], 0.0625),
        (lambda scale: abs(scale - 0.5), (doublings, 0.5, 3), [0.5, 1.0, 0.25], 0.5),
        (
            lambda point: (point - 1.2) ** 2,
            (walk_downhill, 0.0, 1.0, (-4.0, 4.0)),
            [0.0, -1.0, 1.0, 2.0, 0.5, 1.5],
            1.0,
        ),
        (
            lambda point: (point + 1.6) ** 2,
            (walk_downhill, 0.0, 1.0, (-4.0, 4.0)),
            [0.0, -1.0, -2.0, -3.0, -2.5, -1.5],
            -1.5,
        ),
        (lambda point: point, (walk_downhill, 0.0, 3.0, (-4.0, 4.0)), [0.0, -3.0, -4.0, -2.5], -4.0),
        (SINGULAR, (walk_downhill, 0.0, 1.0, (-4.0, 4.0)), [0.0, -1.0, -2.0, -3.0, -4.0, -3.5, -2.5], -3.0),
        (lambda point: (point - 1.2) ** 2, (refine_grid, 0.0, 4.0, 3, 0.5), [0.0, 2.0, 4.0, 1.0, 3.0, 0.5, 1.5], 1.0),
        (lambda point: point, (refine_grid, 0.0, 4.0, 3, 0.5), [0.0, 2.0, 4.0, 1.0, 0.5], 0.0),
    ],
)
def test_a_search_asks_for_candidates_in_its_order(loss: Any, search: Any, asked: Any, best: Any) -> None:
    calls: list[Any] = []
    found = choose(lambda candidate: (calls.append(candidate), loss(candidate))[1], *search)
    assert found.best == best
    assert (len(calls) if isinstance(asked, int) else calls) == asked
    assert list(found.losses) == calls  # each is judged once
    assert all(value == loss(each) or math.isnan(loss(each)) for each, value in found.losses.items())


def test_minimisers_of_one_and_of_two_numbers_find_the_minimum() -> None:
    one = choose(lambda point: (point - 0.3) ** 2, bounded, -7.0, 7.0, tolerance=1e-6)
    np.testing.assert_allclose(one.best, 0.3, atol=1e-5)
    valley = lambda point: (point[0] - 0.3) ** 2 + 3 * (point[1] + point[0]) ** 2 if point[0] > -1.0 else math.nan
    two = choose(valley, simplex, (-0.9, 0.0), (-1.0, 0.5), [(-2.0, 2.0), (-3.0, 3.0)], xatol=1e-4, fatol=1e-8)
    np.testing.assert_allclose(two.best, (0.3, -0.3), atol=1e-2)
    assert len(two.losses) < 120


def test_what_fails_is_no_candidate_unless_all_do() -> None:
    def loss(candidate: int) -> float:
        if candidate < bad:
            raise OSError(f"failure {candidate}")
        return -candidate

    bad = 2
    assert choose(loss, all_of, [0, 1, 2], failure=OSError) == Choice(2, {0: math.inf, 1: math.inf, 2: -2.0})
    bad = 3
    with pytest.raises(OSError, match="failure 0"):
        choose(loss, all_of, [0, 1, 2], failure=OSError)
    with pytest.raises(OSError, match="failure 1"):
        choose(loss, all_of, [1, 2])


def test_the_last_point_within_is_found_to_a_tolerance() -> None:
    asked: list[float] = []
    found = last_within(lambda point: (asked.append(point), point < 0.7)[1], 0.0, 4.0, until=1e-3)
    assert 0.699 < found < 0.7
    assert len(asked) == 12


def test_no_candidate_is_best_where_no_loss_is_a_number() -> None:
    assert choose({1.0: math.nan, 2.0: 3.0}.__getitem__, all_of, (1.0, 2.0)).finite("scale").best == 2.0
    with pytest.raises(ValueError, match=r"no scale of \[1.0, 2.0\] has a finite loss"):
        choose(lambda _: math.nan, all_of, (1.0, 2.0)).finite("scale")
