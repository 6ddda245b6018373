"""`lamu verify`: every algorithm has a check, every check passes, and a check that is off says so."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import lamu
from lamu.latent import DoublyReparameterised, Enumerated, bounds, flows
from lamu.likelihoods import Gamma, Gaussian, Poisson
from lamu_verification import Check, checks, latent_checks, likelihood_checks


def test_every_algorithm_and_sampler_has_a_check() -> None:
    algorithms = {*lamu.algorithms.registry(), *lamu.mcmc.registry()}
    assert set(checks()) == algorithms | {"conjugate families", "merge", "remove"}


# Each is in the laws too, in the protocol's or in tests of its own.
LONG = (
    "cvi",
    "deep_ensemble",
    "merge",
    "minibatch_mh",
    "mixture_vi",
    "neural_linear",
    "parallel_tempering",
    "remove",
    "svi",
    "swag",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.stress) if name in LONG else name for name in checks()]
)
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
        (Poisson, "target_mean", lambda self, p, f: f),
        (Gamma, "target_information", lambda self, p, f: jnp.ones_like(f)),
    ],
)
def test_a_fault_of_a_likelihood_is_seen(monkeypatch, of, method: str, fault) -> None:
    monkeypatch.setattr(of, method, fault)
    assert not likelihood_checks()[of.__name__]().passed


QUICK_LATENT = (
    "DoublyReparameterised",
    "Enumerated",
    "Coupling",
)  # the others are rows of tests/laws or tests of their own


@pytest.mark.parametrize(
    "name", [name if name in QUICK_LATENT else pytest.param(name, marks=pytest.mark.stress) for name in latent_checks()]
)
def test_check_of_a_latent_variable_passes(name: str) -> None:
    found = latent_checks()[name]()
    assert found.algorithm == name
    assert found.passed, f"{found.deviation} against {found.tolerance}: {found.reference}"


def test_every_bound_and_flow_has_a_check() -> None:
    interfaces = {"Bound", "Joint", "RowJoint", "Flow", "Flowed"}
    assert {*bounds.__all__, *flows.__all__} - interfaces <= set(latent_checks())


def test_a_fault_of_a_latent_variable_is_seen(monkeypatch) -> None:
    """A bound that is the sum of the weights and not their mean, and labels that teach with the wrong sign."""
    of_row = DoublyReparameterised.of_row
    monkeypatch.setattr(DoublyReparameterised, "of_row", lambda *given, **named: of_row(*given, **named) + jnp.log(2.0))
    assert not latent_checks()["DoublyReparameterised"]().passed
    monkeypatch.setattr(Enumerated, "marginalise", lambda *given: (-given[0].weight * jnp.ones(()), {}))
    assert not latent_checks()["Enumerated"]().passed
