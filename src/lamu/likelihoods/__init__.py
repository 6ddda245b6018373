"""Likelihoods: the distribution of a target given the network's outputs, one file a distribution."""

from lamu.likelihoods.bernoulli import Bernoulli
from lamu.likelihoods.categorical import Categorical
from lamu.likelihoods.gaussian import Gaussian
from lamu.likelihoods.heteroscedastic import HeteroscedasticGaussian
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.scaled import Scaled

__all__ = ["Bernoulli", "Categorical", "Gaussian", "HeteroscedasticGaussian", "Likelihood", "Scaled"]
