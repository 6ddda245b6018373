"""A law of an algorithm on data drawn from the prior: its posteriors are as wide as they should be."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from lamu.convergence import Unconverged
from lamu.likelihoods import Gaussian
from lamu.mcmc import UnreliableChains
from lamu.model import Model
from lamu.networks import Linear
from lamu.priors import Normal
from lamu.simulation import simulation_based_calibration

__all__ = ["check_calibration"]

_ROWS, _LEAST = 16, 1e-4  # how many rows, and the p value of which a sound algorithm falls short in one of 10,000


def check_calibration(algorithm: Any, runs: int = 100, seed: int = 0, **options: Any) -> None:
    """Draws parameters from the prior and rows from the model, and ranks the parameters among draws of the posterior.

    The ranks are uniform for the exact posterior (`lamu.simulation_based_calibration`), here of a linear model with
    three weights and correlated inputs. A posterior that is too narrow, too wide or off to one side by a half or more
    is rejected, and a point; what is nearer needs more runs, or `lamu.testing.check_algorithm`, which knows the answer.

    Args:
        algorithm: the algorithm, with options that suit 16 rows.
        runs: how many fits; with more, smaller faults are seen.
        seed: of all that is drawn.
        **options: further options of `lamu.fit`: `steps`, where the length is not the algorithm's own.

    Raises:
        AssertionError: with the ranks, where they are not uniform.

    Source: Talts et al. (2018).

    Examples:
        >>> import lamu
        >>> from lamu.testing import check_calibration
        >>> check_calibration(lamu.algorithms.conjugate(), runs=40)
    """
    numbers = np.random.default_rng(1)
    x = numbers.normal(size=(_ROWS, 2)) + numbers.normal(size=(_ROWS, 1)) / 2
    model = Model(Linear(), Gaussian(2.0), Normal(0.7))  # rows and prior count about alike
    with warnings.catch_warnings():
        for warning in (Unconverged, UnreliableChains):  # the ranks say what it matters
            warnings.simplefilter("ignore", warning)
        ranks = simulation_based_calibration(model, algorithm, x, runs=runs, seed=seed, **options)
    assert ranks.p_value > _LEAST, f"ranks of parameters among draws of their posterior are not uniform:\n{ranks}"
