"""The likelihoods by name, for the command line and `lamu.regression`."""

from __future__ import annotations

from collections.abc import Callable

from lamu.likelihoods.censored import Tobit
from lamu.likelihoods.classes import Bernoulli, Categorical, Ordinal
from lamu.likelihoods.counts import NegativeBinomial, Poisson, ZeroInflated
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.links import ComplementaryLogLog, LogLog, Probit, Reciprocal, SquareRoot
from lamu.likelihoods.normal import Gaussian, HeteroscedasticGaussian
from lamu.likelihoods.positive import Beta, Gamma, Weibull
from lamu.likelihoods.real_valued import Quantile, StudentT, VonMises
from lamu.likelihoods.trials import Binomial

__all__ = ["LIKELIHOODS", "OTHER_NAMES"]

# The task of each, and a function of the number of classes that makes it.
LIKELIHOODS: dict[str, tuple[str, Callable[[int], Likelihood]]] = {
    "gaussian": ("regression", lambda _: Gaussian()),
    "heteroscedastic": ("regression", lambda _: HeteroscedasticGaussian()),
    "student_t": ("regression", lambda _: StudentT()),
    "median": ("regression", lambda _: Quantile(0.5)),
    "tobit": ("regression", lambda _: Tobit()),
    "poisson": ("regression", lambda _: Poisson()),
    "negative_binomial": ("regression", lambda _: NegativeBinomial()),
    "poisson_square_root": ("regression", lambda _: Poisson(SquareRoot())),
    "zero_inflated_poisson": ("regression", lambda _: ZeroInflated(Poisson())),
    "zero_inflated_negative_binomial": ("regression", lambda _: ZeroInflated(NegativeBinomial())),
    "binomial": ("regression", lambda _: Binomial()),
    "gamma": ("regression", lambda _: Gamma()),
    "gamma_reciprocal": ("regression", lambda _: Gamma(link=Reciprocal())),
    "weibull": ("regression", lambda _: Weibull()),
    "beta": ("regression", lambda _: Beta()),
    "von_mises": ("regression", lambda _: VonMises()),
    "logit": ("binary", lambda _: Bernoulli()),
    "probit": ("binary", lambda _: Bernoulli(Probit())),
    "log_log": ("binary", lambda _: Bernoulli(LogLog())),
    "complementary_log_log": ("binary", lambda _: Bernoulli(ComplementaryLogLog())),
    "categorical": ("classes", Categorical),
    "ordinal": ("classes", Ordinal),
}

# What scikit-learn, statsmodels, NumPyro and R call them, which messages point from.
OTHER_NAMES = {
    "gaussian": ("normal", "least_squares", "squared_error", "linear", "ols"),
    "student_t": ("t", "robust", "cauchy"),
    "median": ("laplace", "absolute_error", "quantile", "lad"),
    "negative_binomial": ("negbin", "nbinom", "nb"),
    "zero_inflated_poisson": ("zip",),
    "zero_inflated_negative_binomial": ("zinb",),
    "logit": ("bernoulli", "logistic", "log_loss", "binary"),
    "complementary_log_log": ("cloglog",),
    "categorical": ("multinomial", "softmax", "multiclass"),
    "ordinal": ("cumulative", "ordered_logit", "ordered_logistic", "proportional_odds"),
    "heteroscedastic": ("heteroskedastic",),
    "tobit": ("censored",),
    "gamma": ("lognormal", "log_normal"),
    "weibull": ("survival", "exponential"),
}
