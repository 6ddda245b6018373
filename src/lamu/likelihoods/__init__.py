"""Likelihoods: distributions of a target given the network's outputs."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.likelihoods import links
    from lamu.likelihoods.bases import GammaDispersion, LogNormalDispersion, PerPosition
    from lamu.likelihoods.censored import IntervalCensored, LeftCensored, RightCensored, Tobit
    from lamu.likelihoods.classes import Bernoulli, Categorical, Ordinal, PlackettLuce
    from lamu.likelihoods.counts import NegativeBinomial, Poisson, ZeroInflated
    from lamu.likelihoods.interface import Likelihood
    from lamu.likelihoods.normal import Gaussian, HeteroscedasticGaussian, MultivariateGaussian
    from lamu.likelihoods.positive import Beta, Gamma, Weibull
    from lamu.likelihoods.real_valued import Quantile, StudentT, VonMises
    from lamu.likelihoods.scaled import Scaled
    from lamu.likelihoods.trials import Binomial, Multinomial
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

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
