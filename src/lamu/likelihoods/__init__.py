"""Likelihoods: the distribution of a target given the network's outputs, one file a distribution."""

from lamu.likelihoods import links
from lamu.likelihoods.bernoulli import Bernoulli
from lamu.likelihoods.beta import Beta
from lamu.likelihoods.binomial import Binomial
from lamu.likelihoods.categorical import Categorical
from lamu.likelihoods.censored import IntervalCensored, LeftCensored, RightCensored
from lamu.likelihoods.dispersion import GammaDispersion, LogNormalDispersion
from lamu.likelihoods.gamma import Gamma
from lamu.likelihoods.gaussian import Gaussian
from lamu.likelihoods.heteroscedastic import HeteroscedasticGaussian
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.multinomial import Multinomial
from lamu.likelihoods.multivariate_gaussian import MultivariateGaussian
from lamu.likelihoods.negative_binomial import NegativeBinomial
from lamu.likelihoods.ordinal import Ordinal
from lamu.likelihoods.per_position import PerPosition
from lamu.likelihoods.plackett_luce import PlackettLuce
from lamu.likelihoods.poisson import Poisson
from lamu.likelihoods.quantile import Quantile
from lamu.likelihoods.scaled import Scaled
from lamu.likelihoods.student_t import StudentT
from lamu.likelihoods.tobit import Tobit
from lamu.likelihoods.von_mises import VonMises
from lamu.likelihoods.weibull import Weibull
from lamu.likelihoods.zero_inflated import ZeroInflated

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Gamma",
    "GammaDispersion",
    "Gaussian",
    "HeteroscedasticGaussian",
    "IntervalCensored",
    "LeftCensored",
    "Likelihood",
    "LogNormalDispersion",
    "Multinomial",
    "MultivariateGaussian",
    "NegativeBinomial",
    "Ordinal",
    "PerPosition",
    "PlackettLuce",
    "Poisson",
    "Quantile",
    "RightCensored",
    "Scaled",
    "StudentT",
    "Tobit",
    "VonMises",
    "Weibull",
    "ZeroInflated",
    "links",
]
