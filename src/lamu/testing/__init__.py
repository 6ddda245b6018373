"""Laws for parts of one's own: run them in the tests of a likelihood, a prior, a family, an algorithm or a sampler.

`check_likelihood(Poisson())` runs every law of likelihoods and raises one AssertionError that names those that are
broken. `LIKELIHOOD_LAWS` and its neighbours are the laws one by one, for `pytest.mark.parametrize`.

The laws compare the parts with each other: the density with the moments, draws, distribution function and information
that go with it. They need no reference, and cannot see a mistake that all parts share.
"""

from lamu.testing.algorithms import ALGORITHM_LAWS, check_algorithm
from lamu.testing.calibration import check_calibration
from lamu.testing.families import FAMILY_LAWS, check_family
from lamu.testing.kernels import KERNEL_LAWS, check_kernel
from lamu.testing.likelihoods import LIKELIHOOD_LAWS, LikelihoodCase, check_likelihood
from lamu.testing.priors import PRIOR_LAWS, check_prior

__all__ = [
    "ALGORITHM_LAWS",
    "FAMILY_LAWS",
    "KERNEL_LAWS",
    "LIKELIHOOD_LAWS",
    "PRIOR_LAWS",
    "LikelihoodCase",
    "check_algorithm",
    "check_calibration",
    "check_family",
    "check_kernel",
    "check_likelihood",
    "check_prior",
]
