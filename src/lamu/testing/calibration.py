"""Simulation-based calibration of an algorithm: the width of its posteriors for data drawn from the prior."""

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

_ROWS, _LEAST = 16, 1e-4  # the number of rows, and the p value below which a correct algorithm falls once in 10,000


def check_calibration(algorithm: Any, runs: int = 100, seed: int = 0, **options: Any) -> None:
    """Tests the calibration of an algorithm by ranks of true parameters among posterior draws.

    The ranks are uniform for the exact posterior (`lamu.simulation_based_calibration`), here of a linear model with
    three weights and correlated inputs. A posterior that is too narrow, too wide or biased by a half or more is
    rejected, and so is a point. Smaller errors need more runs, or `lamu.testing.check_algorithm`, which compares with
    the exact posterior.

    Args:
        algorithm: the algorithm, with options that suit 16 rows.
        runs: the number of fits; more fits detect smaller errors.
        seed: the random seed.
        **options: further options of `lamu.fit`, for instance `steps` if the algorithm does not determine it.

    Raises:
        AssertionError: if the ranks are not uniform; the message has the ranks.

    Source: Talts et al. (2018).

    Examples:
        >>> import lamu
        >>> from lamu.testing import check_calibration
        >>> check_calibration(lamu.algorithms.conjugate(), runs=40)
    """
    numbers = np.random.default_rng(1)
    x = numbers.normal(size=(_ROWS, 2)) + numbers.normal(size=(_ROWS, 1)) / 2
    model = Model(Linear(), Gaussian(2.0), Normal(0.7))  # rows and prior have about equal weight
    with warnings.catch_warnings():
        for warning in (Unconverged, UnreliableChains):  # the ranks measure the effect
            warnings.simplefilter("ignore", warning)
        ranks = simulation_based_calibration(model, algorithm, x, runs=runs, seed=seed, **options)
    assert ranks.p_value > _LEAST, f"ranks of parameters among draws of their posterior are not uniform:\n{ranks}"
