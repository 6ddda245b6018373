"""What is given in the place of a prior, a likelihood or a program: one sentence that quotes it, with what to write."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest

import lamu
from lamu.likelihoods import Bernoulli, Gaussian
from lamu.networks import Linear
from lamu.priors import FanIn, Normal
from lamu.tabular.stacked_fit import fit_table
from tests.for_each import for_each


def built(of: type, **arguments: Any) -> Any:
    """Builds a record as a user does, without the types that these tests check at the door of every class."""
    value = object.__new__(of)
    for field in dataclasses.fields(of):
        object.__setattr__(value, field.name, arguments.get(field.name, field.default))
    value.__post_init__()
    return value


@for_each(
    "prior, way",
    [
        (FanIn(1.0), r"the prior is FanIn\(.*\); a scale alone has no shape; write Normal\(FanIn\("),
        (Normal, r"the prior is <class .*Normal'>; give an object of the class, for instance Normal\(\)"),
        (2.0, r"the prior is 2\.0; write Normal\(2\.0\) for a normal of that standard deviation"),
        (
            dist.Normal(0.0, 1.0),
            r"the prior is .*Normal.*; a distribution of NumPyro is of a site of lamu\.from_numpyro",
        ),
        ("normal", r"the prior is 'normal'; give one of lamu\.priors, for instance Normal\(1\.0\)"),
        (None, r"the prior is None; give one of lamu\.priors"),
        (Gaussian(), r"the prior is Gaussian\(.*\); give one of lamu\.priors"),
        (True, r"the prior is True; give one of lamu\.priors"),
    ],
)
def test_what_is_no_prior_is_refused(prior: Any, way: str) -> None:
    with pytest.raises(TypeError, match=way) as caught:
        built(lamu.Model, network=Linear(), likelihood=Bernoulli(), prior=prior)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_priors_are_taken() -> None:
    for prior in (Normal(FanIn(1.0)), lamu.priors.Discrete(0.5), lamu.priors.LearnedNormal()):
        assert built(lamu.Model, network=Linear(), likelihood=Bernoulli(), prior=prior).prior is prior


@for_each("program", [None, 3, "model", (1, 2), [lambda m: None]])
def test_what_is_no_program_of_a_graph_is_refused(program: Any) -> None:
    with pytest.raises(TypeError, match=r"the program is .*, which is not a function; give one that takes a model m"):
        lamu.Graph(program)


@pytest.mark.parametrize(
    ("likelihood", "way"),
    [
        ("gaussian", r"the likelihood is 'gaussian'; write lamu\.likelihoods\.Gaussian\(\)"),
        ("poisson", r"the likelihood is 'poisson'; write lamu\.likelihoods\.Poisson\("),
        ("gausian", r"the likelihood is 'gausian'; give one of lamu\.likelihoods"),
        (Gaussian, r"the likelihood is <class .*Gaussian'>; give one of lamu\.likelihoods"),
    ],
)
def test_a_name_in_the_place_of_a_likelihood_is_refused(likelihood: Any, way: str) -> None:
    with pytest.raises(TypeError, match=way):
        getattr(fit_table, "__wrapped__", fit_table)(np.zeros((9, 2)), np.zeros(9), likelihood)
