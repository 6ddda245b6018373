"""`lamu verify`: every algorithm has a check, every check passes, and a check that is off says so."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import lamu
from lamu.likelihoods import Gamma, Gaussian, Poisson
from lamu.verification import Check, checks, likelihood_checks


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


QUICK = ("Poisson", "Gamma", "RightCensored", "Tobit on tobin")  # the others are rows of tests/laws already


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.stress) for name in likelihood_checks()]
)
def test_check_of_a_likelihood_passes(name: str) -> None:
    found = likelihood_checks()[name]()
    assert found.algorithm == name
    assert found.passed, f"{found.deviation} against {found.tolerance}: {found.reference}"


def test_every_likelihood_has_a_check() -> None:
    without = {
        "GammaDispersion",
        "LogNormalDispersion",
        "Likelihood",
        "Scaled",
        "PerPosition",
        "IntervalCensored",
        "links",
    }
    named = {name.split()[0] for name in likelihood_checks()}
    assert set(lamu.likelihoods.__all__) - without == named


@pytest.mark.parametrize(
    ("of", "method", "fault"),
    [
        (Gaussian, "variance", lambda self, p, f: 0.7 * jnp.ones(len(f))),
        (Poisson, "location", lambda self, p, f: f),
        (Gamma, "weight", lambda self, p, f: jnp.ones_like(f)),
    ],
)
def test_a_fault_of_a_likelihood_is_seen(monkeypatch, of, method: str, fault) -> None:
    monkeypatch.setattr(of, method, fault)
    assert not likelihood_checks()[of.__name__]().passed
