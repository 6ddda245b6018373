"""What is given in the place of a likelihood or a program: one sentence that quotes it, with what to write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamu
from lamu.likelihoods import Gaussian
from lamu.tabular.stacked_fit import fit_table


@pytest.mark.parametrize("program", [None, 3, "model", (1, 2), [lambda m: None]])
def test_what_is_no_program_of_a_graph_is_refused(program: Any) -> None:
    with pytest.raises(TypeError, match=r"the program is .*, which is no function; give one that takes a model m"):
        lamu.Graph(program)


@pytest.mark.parametrize(
    ("likelihood", "way"),
    [
        ("gaussian", r"the likelihood is 'gaussian'; write lamu\.likelihoods\.Gaussian\("),
        ("poisson", r"the likelihood is 'poisson'; write lamu\.likelihoods\.Poisson\("),
        ("gausian", r"the likelihood is 'gausian'; give one of lamu\.likelihoods"),
        (Gaussian, r"the likelihood is <class .*Gaussian'>; give one of lamu\.likelihoods"),
    ],
)
def test_a_name_in_the_place_of_a_likelihood_is_refused(likelihood: Any, way: str) -> None:
    with pytest.raises(TypeError, match=way):
        getattr(fit_table, "__wrapped__", fit_table)(np.zeros((9, 2)), np.zeros(9), likelihood)
