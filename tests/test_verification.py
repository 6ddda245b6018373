"""`lamu verify`: every algorithm has a check, every check passes, and a check that is off says so."""

from __future__ import annotations

import pytest

import lamu
from lamu.verification import Check, checks


def test_every_algorithm_and_sampler_has_a_check() -> None:
    algorithms = {*lamu.algorithms.registry(), *lamu.mcmc.registry()}
    assert set(checks()) == algorithms | {"conjugate families", "merge", "remove"}


@pytest.mark.parametrize("name", checks())
def test_check_passes(name: str) -> None:
    found = checks()[name]()
    assert found.algorithm == name
    assert found.passed, f"{found.deviation} against {found.tolerance}: {found.reference}"


def test_a_deviation_above_the_tolerance_or_nan_fails() -> None:
    assert not Check("sgd", "optax", 2e-12, 1e-12).passed
    assert not Check("sgd", "optax", float("nan"), 1e-12).passed
