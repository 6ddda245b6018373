"""The checks of likelihoods, each in float64, against SciPy's log density and sums over it."""

# The deviation is the largest of those of the log density, the mean, the variance, and the Fisher information \(\sum_y
# m(y)\, s\, s^\top\), with m the masses of SciPy and s the slope of its log density by central differences; relative
# for numbers above one.

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from lamu.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    LeftCensored,
    Likelihood,
    Multinomial,
    MultivariateGaussian,
    NegativeBinomial,
    Ordinal,
    PlackettLuce,
    Poisson,
    Quantile,
    RightCensored,
    StudentT,
    Tobit,
    VonMises,
    Weibull,
    ZeroInflated,
    links,
)
from lamu_verification.problems import Check

__all__ = ["likelihood_rows"]

_POINTS = (0.0, -1.3, 0.7)
_STEP = 1e-5
_COVARIANCE = np.array([[0.16, 0.34], [0.34, 2.89]])
_CUTS = np.array([-0.8, 0.7, 1.1])


@dataclass(frozen=True)
class _Targets:
    """Representative targets at one f, with a reference."""

    f: np.ndarray  # the outputs, `[K]`
    y: np.ndarray  # the targets, `[points, ...]`
    mass: np.ndarray  # the probability that each represents, `[points]`
    log_prob: Callable[[np.ndarray], np.ndarray]  # the reference's log density of the targets, as a function of f


def likelihood_rows() -> dict[str, Callable[[], Check]]:
    """Returns the check of every likelihood by its name; each is a function without arguments."""
    sigmoid = special.expit
    pinball = (Quantile(0.8, 0.5), lambda f: stats.laplace_asymmetric(2.0, f, 1.25))
    rows = {
        "Gaussian": (Gaussian(0.7), _continuous(lambda f: stats.norm(f, 0.7))),
        "HeteroscedasticGaussian": (HeteroscedasticGaussian(), _own_noise()),
        "MultivariateGaussian": (MultivariateGaussian(_COVARIANCE), _correlated()),
        "StudentT": (StudentT(5.0, 0.6), _continuous(lambda f: stats.t(5.0, f, 0.6))),
        "Quantile": (pinball[0], _continuous(pinball[1], 64_001)),  # whose kink needs many points
        "Tobit": (Tobit(scale=0.7), _recorded()),
        "Gamma": (Gamma(2.5), _continuous(lambda f: stats.gamma(2.5, scale=np.exp(f) / 2.5))),
        "Weibull": (Weibull(1.7), _continuous(lambda f: stats.weibull_min(1.7, scale=np.exp(f)))),
        "Beta": (Beta(6.0), _continuous(lambda f: stats.beta(6 * sigmoid(f), 6 * sigmoid(-f)))),
        "VonMises": (VonMises(2.5), _angles()),
        "Bernoulli": (Bernoulli(), _counts(lambda f: stats.bernoulli(sigmoid(f)), 2)),
        "Bernoulli Probit": (Bernoulli(links.Probit()), _counts(lambda f: stats.bernoulli(stats.norm.cdf(f)), 2)),
        "Binomial": (Binomial(10), _counts(lambda f: stats.binom(10, sigmoid(f)), 11)),
        "Categorical": (Categorical(3), _classes(_softmax)),
        "Multinomial": (Multinomial(3, 3), _several()),
        "Ordinal": (Ordinal(4, cuts=tuple(_CUTS)), _classes(_grades, [np.array([f]) for f in _POINTS])),
        "Poisson": (Poisson(), _counts(lambda f: stats.poisson(np.exp(f)), 60)),
        "Poisson SquareRoot": (Poisson(links.SquareRoot()), _counts(lambda f: stats.poisson(f**2), 60, (0.5, 1.4))),
        "NegativeBinomial": (
            NegativeBinomial(1.7),
            _counts(lambda f: stats.nbinom(1.7, 1.7 / (1.7 + np.exp(f))), 300),
        ),
        "ZeroInflated": (ZeroInflated(Poisson()), _inflated()),
        "PlackettLuce": (PlackettLuce(3), _rankings()),
    }
    checks = {name: _row(name, *row) for name, row in rows.items()}
    return checks | {"RightCensored": _right_censored, "LeftCensored": _left_censored}


def _row(name: str, likelihood: Likelihood, cases: Sequence[_Targets]) -> Callable[[], Check]:
    words = "SciPy's log density; mean, variance and Fisher information by sums over it"
    return lambda: Check(name, words, max(_deviation(likelihood, case) for case in cases), 1e-6)


def _deviation(likelihood: Likelihood, case: _Targets) -> float:
    f, rows = jnp.asarray(case.f)[None], jnp.asarray(np.tile(case.f, (len(case.y), 1)))
    likely = case.mass > 1e-12
    log_probs = np.asarray(likelihood.log_prob({}, rows, jnp.asarray(case.y)))[likely]
    y = np.asarray(likelihood.support.indicators(jnp.asarray(case.y), likelihood.mean({}, f)), float)
    mass = case.mass.reshape(-1, *[1] * (y.ndim - 1))
    mean = np.sum(mass * y, axis=0)
    variance = np.sum(mass * (y - mean) ** 2, axis=0)
    unit = np.eye(len(case.f)) * _STEP
    slopes = [(case.log_prob(case.f + step) - case.log_prob(case.f - step)) / (2 * _STEP) for step in unit]
    score = np.where(likely[:, None], np.stack(slopes, axis=-1), 0.0)
    pairs = [
        (log_probs, case.log_prob(case.f)[likely]),
        (likelihood.mean({}, f)[0], mean),
        (likelihood.information({}, f)[0], np.einsum("p,pi,pj->ij", case.mass, score, score)),
    ]
    if not likelihood.support.circular:
        pairs.append((likelihood.variance({}, f)[0], variance))
    return max(float(np.max(np.abs(np.asarray(a) - b) / np.maximum(1.0, np.abs(b)))) for a, b in pairs)


def _continuous(of: Callable[[Any], Any], points: int = 4001) -> list[_Targets]:
    """Returns quantiles at equal steps of their log odds, where sums converge as fast as the density is smooth."""
    log_odds = np.linspace(-36.0, 36.0, points)
    log_odds = log_odds + np.log(4.0) + (log_odds[1] - log_odds[0]) / 2  # the quantile's kink lies between two points
    mass = special.expit(log_odds) * special.expit(-log_odds) * (log_odds[1] - log_odds[0])
    cases = []
    for f in _POINTS:
        tails = special.expit(-np.abs(log_odds))
        y = np.where(log_odds < 0, of(f).ppf(tails), of(f).isf(tails))
        cases.append(_Targets(np.array([f]), y, mass, lambda g, y=y: of(g[0]).logpdf(y)))
    return cases


def _counts(of: Callable[[Any], Any], most: int, points: Sequence[float] = _POINTS) -> list[_Targets]:
    y = np.arange(most)
    return [_Targets(np.array([f]), y, of(f).pmf(y), lambda g: of(g[0]).logpmf(y)) for f in points]


def _classes(log_p: Callable[[np.ndarray], np.ndarray], points: Sequence[np.ndarray] | None = None) -> list[_Targets]:
    points = [np.zeros(3), np.array([0.4, -1.1, 0.3])] if points is None else points
    return [_Targets(f, np.arange(len(log_p(f))), np.exp(log_p(f)), log_p) for f in points]


def _softmax(f: np.ndarray) -> np.ndarray:
    return np.array([stats.multinomial.logpmf(row, 1, special.softmax(f)) for row in np.eye(3, dtype=int)])


def _grades(f: np.ndarray) -> np.ndarray:
    return np.log(np.diff(stats.logistic.cdf(np.concatenate([[-np.inf], _CUTS, [np.inf]]), f[0])))


def _several() -> list[_Targets]:
    y = np.array([row for row in itertools.product(range(4), repeat=3) if sum(row) == 3])
    log_p = lambda f: np.asarray(stats.multinomial.logpmf(y, 3, special.softmax(f)))
    return [_Targets(f, y, np.exp(log_p(f)), log_p) for f in (np.zeros(3), np.array([0.4, -1.1, 0.3]))]


def _rankings() -> list[_Targets]:
    y = np.array(list(itertools.permutations(range(3))))

    def log_p(f: np.ndarray) -> np.ndarray:
        orders = f[y]
        return np.sum([orders[:, k] - special.logsumexp(orders[:, k:], axis=1) for k in range(3)], axis=0)

    return [_Targets(f, y, np.exp(log_p(f)), log_p) for f in (np.zeros(3), np.array([0.4, -1.1, 0.3]))]


def _inflated() -> list[_Targets]:
    y = np.arange(60)

    def log_p(f: np.ndarray) -> np.ndarray:
        share = special.expit(f[1])
        return np.log(share * (y == 0) + (1 - share) * stats.poisson.pmf(y, np.exp(f[0])))

    return [_Targets(f, y, np.exp(log_p(f)), log_p) for f in (np.zeros(2), np.array([0.9, -0.7]))]


def _angles() -> list[_Targets]:
    """Returns angles about f, at which the mean direction is evaluated."""
    angles = np.linspace(-np.pi, np.pi, 4001)
    step = angles[1] - angles[0]
    ends = np.where(np.abs(angles) == np.pi, 0.5, 1.0)
    return [
        _Targets(
            np.array([f]),
            f + angles,
            stats.vonmises.pdf(angles, 2.5) * step * ends,
            lambda g, f=f: stats.vonmises.logpdf(f + angles, 2.5, g[0]),
        )
        for f in _POINTS
    ]


def _own_noise() -> list[_Targets]:
    z, weights = np.polynomial.hermite_e.hermegauss(80)
    width = lambda f: 1e-6 + np.log1p((np.e - 1) * np.exp(f[1]))
    cases = []
    for f in (np.zeros(2), np.array([0.7, -0.4])):
        y = f[0] + width(f) * z
        cases.append(_Targets(f, y, weights / weights.sum(), lambda g, y=y: stats.norm.logpdf(y, g[0], width(g))))
    return cases


def _correlated() -> list[_Targets]:
    z, weights = np.polynomial.hermite_e.hermegauss(12)
    nodes = np.array(list(itertools.product(z, z))) @ np.linalg.cholesky(_COVARIANCE).T
    mass = np.prod(np.array(list(itertools.product(weights, weights))), axis=1)
    normal: Any = stats.multivariate_normal(np.zeros(2), _COVARIANCE)  # pyright: ignore[reportArgumentType]
    return [
        _Targets(f, f + nodes, mass / mass.sum(), lambda g, f=f: normal.logpdf(f + nodes - g))
        for f in (np.zeros(2), np.array([0.7, -0.4]))
    ]


def _recorded() -> list[_Targets]:
    """Returns the limit, and normal targets above it."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    cases = []
    for f in _POINTS:
        far = f + 0.7 * 9.0
        y = np.concatenate([[0.0], (nodes + 1) / 2 * far])

        def log_p(g: np.ndarray, y: np.ndarray = y) -> np.ndarray:
            return np.where(y == 0, stats.norm.logcdf(-g[0] / 0.7), stats.norm.logpdf(y, g[0], 0.7))

        mass = np.exp(log_p(np.array([f]))) * np.concatenate([[1.0], weights / 2 * far])
        cases.append(_Targets(np.array([f]), y, mass, log_p))
    return cases


def _right_censored() -> Check:
    return _censored("RightCensored", RightCensored(Gaussian(1.0)), stats.norm.logsf)


def _left_censored() -> Check:
    return _censored("LeftCensored", LeftCensored(Gaussian(1.0)), stats.norm.logcdf)


def _censored(name: str, likelihood: Likelihood, tail: Callable[[np.ndarray], np.ndarray]) -> Check:
    """Returns rows up to forty deviations on either side, and as many uncensored ones."""
    far = np.linspace(-40.0, 40.0, 161)
    deviation = 0.0
    for status, expected in ((1, tail(far)), (0, stats.norm.logpdf(far))):
        y: Any = {"value": jnp.asarray(far), "censored": jnp.full(far.shape, status)}
        log_probs = np.asarray(likelihood.log_prob({}, jnp.zeros((len(far), 1)), y))
        deviation = max(deviation, float(np.max(np.abs(log_probs - expected) / np.maximum(1.0, np.abs(expected)))))
    return Check(name, "SciPy's tails to forty standard deviations", deviation, 1e-9)
