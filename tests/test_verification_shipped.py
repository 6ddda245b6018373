"""The second table of `lamu verify`: every belief has a row, and a row that is off says by which figure."""

from __future__ import annotations

import math

import pytest

import lamu
from lamu_verification import Limits, Shipped, shipped_rows
from lamu_verification.recipe_rows import POINTS


def test_every_algorithm_with_a_belief_and_every_sampler_has_a_row() -> None:
    algorithms = {*lamu.algorithms.registry(), *lamu.mcmc.registry()}
    assert set(shipped_rows()) == algorithms - POINTS


@pytest.mark.parametrize("name", ["conjugate", "extended_kalman", pytest.param("svi", marks=pytest.mark.stress), "vmp"])
def test_closed_forms_reach_what_is_expected_of_them(name: str) -> None:
    found = shipped_rows()[name]()
    assert found.algorithm == name
    assert found.reached, found


@pytest.mark.stress
@pytest.mark.parametrize("name", shipped_rows())
def test_a_row_ends_without_an_error(name: str) -> None:
    found = shipped_rows()[name]()
    assert found.algorithm == name
    assert math.isfinite(found.mean_error)


@pytest.mark.parametrize(
    ("figures", "misses"),
    [
        ((0.1, 1.05, math.nan), ()),
        ((0.4, 1.05, math.nan), ("mean",)),
        ((0.1, 0.21, math.nan), ("sd",)),
        ((0.1, 1.2, math.nan), ("sd",)),
        ((math.nan, math.nan, math.nan), ("mean", "sd")),
    ],
)
def test_a_figure_beyond_its_limit_is_a_miss(figures: tuple[float, float, float], misses: tuple[str, ...]) -> None:
    mean, sd, nats = figures
    assert Shipped("ivon", "iris", "mean field", mean, sd, 0.9, nats, 1.0, Limits(0.3, 0.1)).misses == misses


def test_an_evidence_is_judged_where_its_kind_promises_one() -> None:
    row = Shipped("laplace", "diabetes", "closed form", 0.0, 1.0, 1.0, -6.1, 1.0, Limits(0.05, 0.02, nats=0.1))
    assert row.misses == ("nats",)
    without = Shipped("laplace", "diabetes", "closed form", 0.0, 1.0, 1.0, math.nan, 1.0, Limits(0.05, 0.02, nats=0.1))
    assert without.misses == ("nats",)
