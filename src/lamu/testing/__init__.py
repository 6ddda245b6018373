"""Tests for custom likelihoods, priors, families, factors, algorithms and samplers.

`check_likelihood(Poisson())` runs every law of likelihoods and raises one AssertionError that names the broken
ones. `LIKELIHOOD_LAWS` and the other tuples contain the single laws, for `pytest.mark.parametrize`.

The laws check that methods are consistent, for instance that moments, draws, distribution function and information
are those of the density. They need no reference, and cannot detect a mistake that all methods share.
"""

from lamu.testing.algorithms import ALGORITHM_LAWS, KERNEL_LAWS, check_algorithm, check_calibration, check_kernel
from lamu.testing.factors import FACTOR_LAWS, check_factor
from lamu.testing.laws import FAMILY_LAWS, check_family
from lamu.testing.likelihoods import LIKELIHOOD_LAWS, LikelihoodCase, check_likelihood
from lamu.testing.priors import PRIOR_LAWS, check_prior

__all__ = [
    "ALGORITHM_LAWS",
    "FACTOR_LAWS",
    "FAMILY_LAWS",
    "KERNEL_LAWS",
    "LIKELIHOOD_LAWS",
    "PRIOR_LAWS",
    "LikelihoodCase",
    "check_algorithm",
    "check_calibration",
    "check_factor",
    "check_family",
    "check_kernel",
    "check_likelihood",
    "check_prior",
]
