"""Laws of likelihoods: normalised, a density by SciPy's account, and every other method a consequence of that density.

A row's extras: `params`, `f` and `y` (a few rows, f = 0 among them), and `reference`, SciPy's account of p(y | f).
Expectations over y are exact sums for classes. For regression they are trapezoidal sums over 24 standard deviations,
whose error is below rounding for densities as smooth as these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from lamu.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Gamma,
    GammaDispersion,
    Gaussian,
    HeteroscedasticGaussian,
    IntervalCensored,
    LeftCensored,
    Likelihood,
    LogNormalDispersion,
    Multinomial,
    MultivariateGaussian,
    NegativeBinomial,
    Ordinal,
    PerPosition,
    PlackettLuce,
    Poisson,
    Quantile,
    RightCensored,
    Scaled,
    StudentT,
    Tobit,
    VonMises,
    Weibull,
    ZeroInflated,
    links,
)
from tests.laws.harness import Row, law, row, twin, vocabulary

# What a row declares: a task of regression, or of several classes; a distribution function that is smooth (continuous)
# or has steps at whole numbers (counts); a Hessian in f with an expectation (smooth); an entropy that is no average of
# draws (entropy); targets of one row that depend on each other (correlated); dispersions whose information does not
# depend on f (homogeneous); cut-points that are learned (cuts); a score that no target makes large (bounded).
vocabulary(
    "likelihoods",
    "bounded continuous correlated counts cuts dispersion entropy homogeneous limited marginal regression several "
    "smooth",
)

METHODS = ["support", *(name for name in dir(Likelihood) if not name.startswith("_"))]


@dataclass(frozen=True)
class Noise:
    """y_k ~ N(shift + stretch f_k, scale_k²)."""

    scale: np.ndarray
    shift: np.ndarray | float = 0.0
    stretch: np.ndarray | float = 1.0

    def mean(self, f: np.ndarray) -> np.ndarray:
        return self.shift + self.stretch * f

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.norm.logpdf(np.reshape(y, f.shape), self.mean(f), self.scale).sum(axis=-1)

    def support(self, f: np.ndarray) -> tuple[np.ndarray, Any]:
        """A grid over the targets, `[points, batch]` or `[points, batch, outputs]`, and the volume of its cells."""
        outputs = f.shape[-1]
        line = np.linspace(-12.0, 12.0, 601 if outputs == 1 else 97)
        z = np.stack(np.meshgrid(*[line] * outputs, indexing="ij"), axis=-1).reshape(-1, 1, outputs)
        y = self.mean(f) + self.scale * z
        return y[..., 0] if outputs == 1 else y, float(np.prod((line[1] - line[0]) * self.scale))


@dataclass(frozen=True)
class OwnNoise:
    """y ~ N(shift + stretch f₁, stretch² σ²), σ the softplus of f₂, the factor at zero."""

    shift: float = 0.0
    stretch: float = 1.0
    factor: float = 1.0

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.norm.logpdf(y, self.shift + self.stretch * f[:, 0], self.width(f))

    def width(self, f: np.ndarray) -> np.ndarray:
        return self.stretch * self.factor * (1e-6 + np.log1p((np.e - 1) * np.exp(f[:, 1])))

    def support(self, f: np.ndarray) -> tuple[np.ndarray, Any]:
        line = np.linspace(-12.0, 12.0, 601)
        width = self.width(f)
        return self.shift + self.stretch * f[:, 0] + width * line[:, None], (line[1] - line[0]) * width[None]


class Coin:
    """y ∈ {0, 1} with log-odds f."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.bernoulli.logpmf(y, 1.0 / (1.0 + np.exp(-np.asarray(f[:, 0]))))

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        return np.broadcast_to(np.arange(2)[:, None], (2, len(f))), 1.0


class Die:
    """y ∈ {0, …, K − 1} with log-odds f_y."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = np.exp(f) / np.exp(f).sum(axis=-1, keepdims=True)
        return np.array([stats.rv_discrete(values=(np.arange(len(q)), q)).logpmf(k) for q, k in zip(p, y, strict=True)])

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        return np.broadcast_to(np.arange(f.shape[1])[:, None], (f.shape[1], len(f))), 1.0


def example(reference: Any, outputs: int, y: Any, params: Any = None) -> dict[str, Any]:
    f = np.random.default_rng(outputs).normal(0.0, 1.5, (4, outputs))
    f[0] = 0.0
    return {"reference": reference, "f": jnp.asarray(f), "y": jnp.asarray(y), "params": params or {}}


ONE, TWO = [0.2, -1.0, 0.4, 3.0], [[0.2, 1.0], [-1.0, 0.0], [0.4, -0.3], [3.0, 2.5]]
LEARNED, LEARNED_TWO = {"log_scale": jnp.log(jnp.array([0.4]))}, {"log_scale": jnp.log(jnp.array([0.4, 1.7]))}
SHIFT, STRETCH = np.array([3.0, -20.0]), np.array([0.2, 5.0])

fixed = row(
    "likelihoods",
    "Gaussian fixed",
    Gaussian(0.7),
    "regression continuous smooth entropy marginal",
    **example(Noise(np.array([0.7])), 1, ONE),
)
learned = row(
    "likelihoods",
    "Gaussian",
    Gaussian(),
    "regression continuous smooth entropy dispersion homogeneous marginal",
    **example(Noise(np.array([0.4])), 1, ONE, LEARNED),
)
several = row(
    "likelihoods",
    "Gaussian several outputs",
    Gaussian(),
    "regression continuous smooth entropy dispersion homogeneous marginal",
    **example(Noise(np.array([0.4, 1.7])), 2, TWO, LEARNED_TWO),
)
bernoulli = row("likelihoods", "Bernoulli", Bernoulli(), "smooth entropy", **example(Coin(), 1, [1, 0, 1, 0]))
categorical = row(
    "likelihoods", "Categorical", Categorical(3), "several smooth entropy", **example(Die(), 3, [2, 0, 1, 1])
)
scaled = row(
    "likelihoods",
    "Scaled",
    Scaled(Gaussian(0.7), shift=3.0, scale=0.2),
    "regression continuous smooth entropy marginal",
    **example(Noise(np.array([0.14]), 3.0, 0.2), 1, [3.1, 2.8, 3.0, 2.5]),
)
scaled_several = row(
    "likelihoods",
    "Scaled several outputs",
    Scaled(Gaussian(), shift=SHIFT, scale=STRETCH),
    "regression continuous smooth entropy dispersion homogeneous marginal",
    **example(Noise(STRETCH * [0.4, 1.7], SHIFT, STRETCH), 2, SHIFT + STRETCH * np.array(TWO), LEARNED_TWO),
)
heteroscedastic = row(
    "likelihoods",
    "HeteroscedasticGaussian",
    HeteroscedasticGaussian(),
    "regression continuous smooth entropy",
    **example(OwnNoise(), 2, ONE),
)
heteroscedastic_narrowed = row(
    "likelihoods",
    "HeteroscedasticGaussian narrowed",
    HeteroscedasticGaussian(factor=0.6),
    "regression continuous smooth entropy",
    **example(OwnNoise(factor=0.6), 2, ONE),
)
heteroscedastic_scaled = row(
    "likelihoods",
    "Scaled heteroscedastic",
    Scaled(HeteroscedasticGaussian(), shift=3.0, scale=0.2),
    "regression continuous smooth entropy",
    **example(OwnNoise(3.0, 0.2), 2, [3.1, 2.8, 3.0, 2.5]),
)


@dataclass(frozen=True)
class Frozen:
    """SciPy's distribution of a target, given the outputs, and targets that stand for all of them.

    Attributes:
        of: a function of f `[batch]` that returns one of SciPy's frozen distributions.
        grid: of the same, the targets `[points, batch]`, and how much of the line each stands for.
    """

    of: Callable[[np.ndarray], Any]
    grid: Callable[[np.ndarray, Any], tuple[np.ndarray, Any]]

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        scipys = self.of(f[:, 0])
        return (scipys.logpmf if hasattr(scipys.dist, "logpmf") else scipys.logpdf)(y)

    def support(self, f: np.ndarray) -> tuple[np.ndarray, Any]:
        return self.grid(f[:, 0], self.of(f[:, 0]))


def whole_numbers(most: int) -> Callable[..., Any]:
    return lambda f, of: (np.broadcast_to(np.arange(float(most))[:, None], (most, len(f))), 1.0)


def positive(f: np.ndarray, of: Any) -> tuple[np.ndarray, Any]:
    """Trapezoidal in log y, from far below the smallest quantile to far above the largest."""
    line = np.linspace(-90.0, 12.0, 8001)[:, None]
    y = of.mean() * np.exp(line)
    return y, y * (line[1] - line[0])


def unit_interval(f: np.ndarray, of: Any) -> tuple[np.ndarray, Any]:
    """Trapezoidal in the log odds of y, where y and 1 − y still differ from one."""
    line = np.linspace(-36.0, 36.0, 4001)[:, None] * np.ones(len(f))
    y = special.expit(line)
    return y, y * special.expit(-line) * (line[1] - line[0])


def heavy(f: np.ndarray, of: Any) -> tuple[np.ndarray, Any]:
    """Trapezoidal in arsinh, which reaches 10¹³ deviations on either side."""
    line = np.linspace(-30.0, 30.0, 6001)[:, None]
    width = of.std()
    return of.mean() + width * np.sinh(line), width * np.cosh(line) * (line[1] - line[0])


def kinked(f: np.ndarray, of: Any) -> tuple[np.ndarray, Any]:
    """Trapezoidal in log |y − f| on either side of the kink at f."""
    line = np.linspace(-34.0, 6.0, 8001)[:, None] * np.ones(len(f))
    step = np.exp(line) * (line[1] - line[0])
    return np.concatenate([f - np.exp(line), f + np.exp(line)]), np.concatenate([step, step])


class Spin:
    """y ∈ {−1, 1} with mean tanh f."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.bernoulli.logpmf((y + 1) // 2, (1 + np.tanh(f[:, 0])) / 2)

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        return np.broadcast_to(np.array([-1, 1])[:, None], (2, len(f))), 1.0


def rows_at(f: Any, y: Any, reference: Any, **params: Any) -> dict[str, Any]:
    leaves = {name: jnp.log(jnp.asarray([value])) for name, value in params.items()}
    return {"reference": reference, "f": jnp.asarray(f)[:, None], "y": jnp.asarray(y), "params": leaves}


COUNTED, FLOWING = "regression counts smooth", "regression continuous smooth entropy"
POINTS, INSIDE = [0.0, -1.3, 0.7, 2.1], [0.5, 1.1, 1.9, 2.6]  # outputs anywhere, and those of a link with an end


def coin(name: str, link: Any, of: Callable[[np.ndarray], np.ndarray]) -> Row:
    reference = Frozen(lambda f: stats.bernoulli(of(f)), whole_numbers(2))
    return row("likelihoods", name, Bernoulli(link), "smooth entropy", **rows_at(POINTS, [1, 0, 1, 0], reference))


probit = coin("Bernoulli Probit", links.Probit(), stats.norm.cdf)
loglog = coin("Bernoulli LogLog", links.LogLog(), lambda f: np.exp(-np.exp(-f)))
coin("Bernoulli ComplementaryLogLog", links.ComplementaryLogLog(), lambda f: -np.expm1(-np.exp(f)))
signs = row(
    "likelihoods",
    "Bernoulli Tanh",
    Bernoulli(links.Tanh()),
    "smooth entropy",
    **rows_at(POINTS, [1, -1, 1, -1], Spin()),
)
poisson = row(
    "likelihoods",
    "Poisson",
    Poisson(),
    COUNTED + " entropy",
    **rows_at(POINTS, [2, 0, 5, 9], Frozen(lambda f: stats.poisson(np.exp(f)), whole_numbers(80))),
)
row(
    "likelihoods",
    "Poisson many",
    Poisson(),
    COUNTED + " entropy",
    **rows_at([4.1, 4.2, 4.5, 5.0], [60, 0, 99, 190], Frozen(lambda f: stats.poisson(np.exp(f)), whole_numbers(400))),
)
rooted = row(
    "likelihoods",
    "Poisson SquareRoot",
    Poisson(links.SquareRoot()),
    COUNTED + " entropy",
    **rows_at(INSIDE, [2, 0, 5, 9], Frozen(lambda f: stats.poisson(f**2), whole_numbers(80))),
)
overdispersed = row(
    "likelihoods",
    "NegativeBinomial",
    NegativeBinomial(),
    COUNTED + " entropy dispersion",
    **rows_at(
        POINTS,
        [2, 0, 5, 30],
        Frozen(lambda f: stats.nbinom(1.7, 1.7 / (1.7 + np.exp(f))), whole_numbers(400)),
        log_concentration=1.7,
    ),
)
row(
    "likelihoods",
    "NegativeBinomial SquareRoot",
    NegativeBinomial(1.7, links.SquareRoot()),
    COUNTED + " entropy",
    **rows_at(INSIDE, [2, 0, 5, 9], Frozen(lambda f: stats.nbinom(1.7, 1.7 / (1.7 + f**2)), whole_numbers(400))),
)
row(
    "likelihoods",
    "NegativeBinomial many",
    NegativeBinomial(3.0),
    COUNTED + " entropy",
    **rows_at(
        [4.1, 4.2, 4.5, 5.0],
        [60, 0, 99, 190],
        Frozen(lambda f: stats.nbinom(3.0, 3.0 / (3.0 + np.exp(f))), whole_numbers(4000)),
    ),
)
student = row(
    "likelihoods",
    "StudentT",
    StudentT(5.0),
    FLOWING + " bounded dispersion homogeneous",
    **rows_at(POINTS, ONE, Frozen(lambda f: stats.t(5.0, f, 0.6), heavy), log_scale=0.6),
)
gamma = row(
    "likelihoods",
    "Gamma",
    Gamma(),
    FLOWING + " dispersion homogeneous",
    **rows_at(
        POINTS, [0.3, 2.0, 1.5, 9.0], Frozen(lambda f: stats.gamma(2.5, scale=np.exp(f) / 2.5), positive), log_shape=2.5
    ),
)
reciprocal = row(
    "likelihoods",
    "Gamma Reciprocal",
    Gamma(2.5, links.Reciprocal()),
    FLOWING,
    **rows_at(INSIDE, [0.3, 2.0, 1.5, 0.2], Frozen(lambda f: stats.gamma(2.5, scale=1 / f / 2.5), positive)),
)
shares = row(
    "likelihoods",
    "Beta",
    Beta(),
    FLOWING + " dispersion",
    **rows_at(
        [0.0, -1.3, 0.7, 1.1],
        [0.3, 0.01, 0.5, 0.98],
        Frozen(lambda f: stats.beta(6.0 * special.expit(f), 6.0 * special.expit(-f)), unit_interval),
        log_concentration=6.0,
    ),
)
times = row(
    "likelihoods",
    "Weibull",
    Weibull(),
    FLOWING + " dispersion homogeneous",
    **rows_at(
        POINTS,
        [0.3, 2.0, 1.5, 9.0],
        Frozen(lambda f: stats.weibull_min(1.4, scale=np.exp(f)), positive),
        log_shape=1.4,
    ),
)
pinball = row(
    "likelihoods",
    "Quantile",
    Quantile(0.8),
    "regression bounded continuous entropy dispersion homogeneous",
    **rows_at(
        POINTS,
        ONE,
        Frozen(
            # SciPy's κ and s: slopes of κ/s = τ/σ to the right of the peak, and of 1/(κ s) = (1 − τ)/σ to the left.
            lambda f: stats.laplace_asymmetric(2.0, f, 1.25),
            kinked,
        ),
        log_scale=0.5,
    ),
)
prior_of_scale = row(
    "likelihoods",
    "Gaussian gamma prior",
    Gaussian(scale_prior=GammaDispersion(2.0, 3.0)),
    "regression continuous smooth entropy dispersion marginal homogeneous",
    **example(Noise(np.array([0.4])), 1, ONE, LEARNED),
    prior=lambda log_scale: stats.gamma.logpdf(np.exp(log_scale), 2.0, scale=1 / 3.0) + log_scale,
)


class Grades:
    """Ordered classes, by the differences of a distribution function at the cut-points less f."""

    def __init__(self, cuts: list[float], cdf: Callable[[np.ndarray], np.ndarray]) -> None:
        self.cuts, self.cdf = np.array([-np.inf, *cuts, np.inf]), cdf

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.log(self.cdf(self.cuts[y + 1] - f[:, 0]) - self.cdf(self.cuts[y] - f[:, 0]))

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        classes = len(self.cuts) - 1
        return np.broadcast_to(np.arange(classes)[:, None], (classes, len(f))), 1.0


@dataclass(frozen=True)
class Recorded:
    """Normal targets recorded at limits: two masses beside a density, which a grid in log odds goes through."""

    lower: float
    upper: float
    scale: float

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        normal = stats.norm(f[:, 0], self.scale)
        inner = np.where(y >= self.upper, normal.logsf(self.upper), normal.logpdf(y))
        return np.where(y <= self.lower, normal.logcdf(self.lower), inner)

    def support(self, f: np.ndarray) -> tuple[np.ndarray, Any]:
        line, end = np.linspace(-36.0, 36.0, 4001)[:, None] * np.ones(len(f)), min(self.upper, self.lower + 40.0)
        y = self.lower + (end - self.lower) * special.expit(line)
        volume = (end - self.lower) * special.expit(line) * special.expit(-line) * (line[1] - line[0])
        # Beside the upper end numbers round to it, and would count as it.
        within = (y > self.lower) & (y < end)
        y, volume = np.where(within, y, (self.lower + end) / 2), np.where(within, volume, 0.0)
        atoms = np.stack([np.full(len(f), self.lower), np.full(len(f), end)])
        masses = np.stack([np.ones(len(f)), np.full(len(f), float(np.isfinite(self.upper)))])
        return np.concatenate([y, atoms]), np.concatenate([volume, masses])


class Inflated:
    """A Poisson count, or zero with log odds f₂."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        share = special.expit(f[:, 1])
        return np.log((1 - share) * stats.poisson.pmf(y, np.exp(f[:, 0])) + share * (y == 0))

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        return np.broadcast_to(np.arange(120.0)[:, None], (120, len(f))), 1.0


@dataclass(frozen=True)
class Shared:
    """Three trials over three categories."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.array([stats.multinomial.logpmf(k, 3, p) for k, p in zip(y, special.softmax(f, axis=1), strict=True)])

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        ys = np.array([y for y in itertools.product(range(4), repeat=3) if sum(y) == 3], float)
        return np.broadcast_to(ys[:, None], (len(ys), *f.shape)), 1.0


class Ranked:
    """Items drawn one after the other without replacement, with weights e^f."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        weights = np.take_along_axis(np.exp(f), y, axis=1)
        return np.array([sum(np.log(w[i] / w[i:].sum()) for i in range(len(w))) for w in weights])

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        ys = np.array(list(itertools.permutations(range(f.shape[1]))))
        return np.broadcast_to(ys[:, None], (len(ys), *f.shape)), 1.0


@dataclass(frozen=True)
class Correlated:
    """Normal noise of a given covariance."""

    covariance: np.ndarray

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.multivariate_normal.logpdf(y - f, np.zeros(f.shape[1]), self.covariance)

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        line, root = np.linspace(-12.0, 12.0, 97), np.linalg.cholesky(self.covariance)
        z = np.stack(np.meshgrid(*[line] * f.shape[1], indexing="ij"), axis=-1).reshape(-1, f.shape[1])
        return f + (z @ root.T)[:, None], float((line[1] - line[0]) ** f.shape[1] * np.linalg.det(root))


class Dice:
    """Two faces of a die each, of two positions."""

    def log_prob(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return sum(Die().log_prob(f[:, 2 * p : 2 * p + 2], y[:, p]) for p in range(2))

    def support(self, f: np.ndarray) -> tuple[np.ndarray, float]:
        ys = np.array(list(itertools.product((0, 1), repeat=2)))
        return np.broadcast_to(ys[:, None], (4, len(f), 2)), 1.0


def half_circles(f: np.ndarray, of: Any) -> tuple[np.ndarray, Any]:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return f + np.pi * nodes[:, None], np.pi * weights[:, None]


row(
    "likelihoods",
    "Gaussian narrow prior",
    Gaussian(scale_prior=LogNormalDispersion(0.5)),
    "regression continuous smooth entropy dispersion marginal homogeneous",
    **example(Noise(np.array([0.4])), 1, ONE, LEARNED),
    prior=lambda log_scale: stats.norm.logpdf(log_scale, 0.0, 0.5),
)
tossed = row(
    "likelihoods",
    "Binomial",
    Binomial(6),
    COUNTED + " entropy",
    **rows_at(POINTS, [2, 0, 6, 5], Frozen(lambda f: stats.binom(6, special.expit(f)), whole_numbers(7))),
)
row(
    "likelihoods",
    "Binomial Probit",
    Binomial(30, links.Probit()),
    COUNTED + " entropy",
    **rows_at(POINTS, [12, 0, 30, 29], Frozen(lambda f: stats.binom(30, stats.norm.cdf(f)), whole_numbers(31))),
)
CUTS = {"first": jnp.asarray(-0.8), "log_gaps": jnp.log(jnp.asarray([1.5, 0.4]))}
graded = row(
    "likelihoods",
    "Ordinal",
    Ordinal(4),
    "several counts cuts smooth entropy",
    **{**rows_at(POINTS, [0, 3, 1, 2], Grades([-0.8, 0.7, 1.1], special.expit)), "params": CUTS},
)
for link, cdf in (
    (links.Probit(), stats.norm.cdf),
    (links.ComplementaryLogLog(), lambda x: -np.expm1(-np.exp(x))),
    (links.LogLog(), lambda x: np.exp(-np.exp(-x))),
):
    row(
        "likelihoods",
        f"Ordinal {type(link).__name__}",
        Ordinal(4, link, cuts=(-0.8, 0.7, 1.1)),
        "several counts smooth entropy",
        **rows_at(POINTS, [0, 3, 1, 2], Grades([-0.8, 0.7, 1.1], cdf)),
    )
tobit = row(
    "likelihoods",
    "Tobit",
    Tobit(),
    "regression limited smooth entropy dispersion",
    **rows_at(POINTS, [0.0, 0.0, 1.5, 3.0], Recorded(0.0, np.inf, 0.7), log_scale=0.7),
)
row(
    "likelihoods",
    "Tobit two limits",
    Tobit(-1.0, 1.5, 0.7),
    "regression limited smooth entropy",
    **rows_at(POINTS, [0.3, -1.0, 1.5, 1.2], Recorded(-1.0, 1.5, 0.7)),
)
for kind in (LeftCensored, RightCensored, IntervalCensored):  # of plain targets, of which no row is censored
    row(
        "likelihoods",
        kind.__name__,
        kind(Weibull(1.4)),
        FLOWING,
        **rows_at(POINTS, [0.3, 2.0, 1.5, 9.0], Frozen(lambda f: stats.weibull_min(1.4, scale=np.exp(f)), positive)),
    )
angles = row(
    "likelihoods",
    "VonMises",
    VonMises(),
    "regression smooth entropy dispersion homogeneous",
    **rows_at(
        POINTS, [0.5, -2.0, 3.0, 9.0], Frozen(lambda f: stats.vonmises(2.5, f), half_circles), log_concentration=2.5
    ),
)
inflated = row(
    "likelihoods",
    "ZeroInflated",
    ZeroInflated(Poisson()),
    COUNTED + " entropy",
    **example(Inflated(), 2, [0.0, 2.0, 0.0, 5.0]),
)
shared = row(
    "likelihoods",
    "Multinomial",
    Multinomial(3, 3),
    "regression correlated smooth",
    **example(Shared(), 3, [[1, 1, 1], [0, 0, 3], [2, 1, 0], [0, 3, 0]]),
)
ranked = row(
    "likelihoods",
    "PlackettLuce",
    PlackettLuce(3),
    "regression correlated smooth entropy",
    **example(Ranked(), 3, [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]]),
)
row(
    "likelihoods",
    "PerPosition",
    PerPosition(Categorical(2), (2,)),
    "several smooth",
    **example(Dice(), 4, [[0, 1], [1, 1], [0, 0], [1, 0]]),
)
COVARIANCE = np.array([[0.16, 0.34], [0.34, 2.89]])
correlated = row(
    "likelihoods",
    "MultivariateGaussian",
    MultivariateGaussian(COVARIANCE),
    "regression correlated smooth entropy marginal",
    **example(Correlated(COVARIANCE), 2, TWO),
)
row(
    "likelihoods",
    "MultivariateGaussian learned",
    MultivariateGaussian(),
    "regression correlated smooth entropy marginal",
    **example(
        # Deviations of 0.4 and of 1.7 times the length of (0.5, 1), and the covariance that mixes them.
        Correlated(np.array([[0.16, 0.34], [0.34, 2.89 * 1.25]])),
        2,
        TWO,
        {"log_scale": jnp.log(jnp.array([0.4, 1.7])), "mixing": jnp.array([0.5])},
    ),
)


def parts(row: Row) -> tuple[Any, Any, Any, Any]:
    return row.subject, row.extras["params"], row.extras["f"], row.extras["y"]


def masses(row: Row, params: Any = None) -> tuple[jax.Array, jax.Array]:
    """Targets y_g `[points, batch, ...]`, and how much of p(y | f) each stands for, `[points, batch]`."""
    likelihood, learned, f, _ = parts(row)
    ys, volume = row.extras["reference"].support(np.asarray(f))
    ys = jnp.asarray(ys)
    log_prob = jax.vmap(lambda y: likelihood.log_prob(params or learned, f, y))(ys)
    return ys, jnp.exp(log_prob) * volume


def average(mass: jax.Array, values: jax.Array) -> jax.Array:
    """Σ_g mass_g values_g over the leading axis; values have further axes after the batch's."""
    return jnp.sum(mass.reshape(*mass.shape, *[1] * (values.ndim - mass.ndim)) * values, axis=0)


def outcome(row: Row, ys: jax.Array) -> jax.Array:
    """The target as that whose mean `mean` returns: one-hot for classes, zero and one for two."""
    if row.subject.task == "classes":
        return jax.nn.one_hot(ys, row.subject.support.number, dtype=row.extras["f"].dtype)
    if row.subject.task == "binary":
        return (ys > 0).astype(row.extras["f"].dtype)
    return ys.astype(row.extras["f"].dtype)


def by_row(function: Callable[..., jax.Array], f: jax.Array, y: jax.Array) -> jax.Array:
    """Calls a function of one row's f `[outputs]` and y on every row."""
    return jax.vmap(function)(f, y)


def one_row(likelihood: Any, params: Any) -> Callable[[jax.Array, jax.Array], jax.Array]:
    return lambda f, y: likelihood.log_prob(params, f[None], y[None])[0]


@law("likelihoods")
def log_prob_is_scipys(row: Row) -> None:
    likelihood, params, f, y = parts(row)
    found = likelihood.log_prob(params, f, y)
    assert found.shape == (len(f),)
    np.testing.assert_allclose(found, row.extras["reference"].log_prob(np.asarray(f), np.asarray(y)), rtol=1e-10)


@law("likelihoods")
def density_integrates_to_one(row: Row) -> None:
    _, mass = masses(row)
    np.testing.assert_allclose(jnp.sum(mass, axis=0), 1.0, rtol=1e-9)


@law("likelihoods", when="smooth")
def information_is_the_expected_curvature(row: Row) -> None:
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    curvature = jax.hessian(one_row(likelihood, params))
    expected = average(mass, -jax.vmap(lambda y: by_row(curvature, f, y))(ys))
    found = likelihood.information(params, f)
    assert found.shape == (*f.shape, f.shape[1])
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


@law("likelihoods", when="bounded")
def influence_is_bounded(row: Row) -> None:
    """The score in f of one target is no larger at ±10⁷ than it is somewhere within a hundred of f, where it peaks."""
    likelihood, params, f, _ = parts(row)
    score = lambda y: jnp.abs(by_row(jax.grad(one_row(likelihood, params)), f, jnp.full(len(f), y)))
    near = jnp.max(jax.lax.map(score, jnp.linspace(-100.0, 100.0, 2001)), axis=0)
    far = jnp.max(jax.lax.map(score, jnp.array([-1e7, 1e7])), axis=0)
    assert np.all(far <= near * (1 + 1e-6))


@law("likelihoods")
def information_is_the_variance_of_the_score(row: Row) -> None:
    """The score has mean zero and the information for covariance: first derivatives alone, so those are tested too."""
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    score = jax.vmap(lambda y: by_row(jax.grad(one_row(likelihood, params)), f, y))(ys)
    np.testing.assert_allclose(average(mass, score), 0.0, atol=1e-9)
    outer = score[..., :, None] * score[..., None, :]
    np.testing.assert_allclose(likelihood.information(params, f), average(mass, outer), rtol=1e-8, atol=1e-9)


@law("likelihoods")
def mean_and_variance_are_moments(row: Row) -> None:
    likelihood, params, f, y = parts(row)
    ys, mass = masses(row)
    values = outcome(row, ys)
    mean = average(mass, values)
    variance = average(mass, (values - mean[None]) ** 2)
    found_mean, found_variance = likelihood.mean(params, f), likelihood.variance(params, f)
    assert (
        found_mean.shape
        == found_variance.shape
        == ((*y.shape, likelihood.support.number) if likelihood.task == "classes" else y.shape)
    )
    np.testing.assert_allclose(found_mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found_variance, variance, rtol=1e-8)


@law("likelihoods")
def sample_has_the_moments(row: Row) -> None:
    """Mean and variance of n draws within five standard errors: at most 24 numbers, a false alarm at 2e-5."""
    likelihood, params, f, y = parts(row)
    n = 20_000
    draws = jax.vmap(lambda key: likelihood.sample(key, params, f))(jax.random.split(jax.random.key(3), n))
    assert draws.shape == (n, *y.shape)
    ys, mass = masses(row)
    values, drawn = outcome(row, ys), outcome(row, draws)
    mean = average(mass, values)
    variance = average(mass, (values - mean[None]) ** 2)
    fourth = average(mass, (values - mean[None]) ** 4)
    assert np.all(np.abs(jnp.mean(drawn, axis=0) - mean) < 5.0 * np.sqrt(variance / n))
    # The sample variance of a fair coin varies at the next order only, hence the second term.
    error = np.sqrt((fourth - variance**2) / n) + 25.0 * variance / n
    assert np.all(np.abs(jnp.var(drawn, axis=0) - variance) < 5.0 * error)


@law("likelihoods")
def sample_rows_are_independent(row: Row) -> None:
    """Correlations between rows and outputs within five standard errors: at most 66, a false alarm at 4e-5.

    Outputs of one row whose targets depend on each other are left out.
    """
    likelihood, params, f, _ = parts(row)
    n = 20_000
    draws = jax.vmap(lambda key: likelihood.sample(key, params, f))(jax.random.split(jax.random.key(4), n))
    flat = np.reshape(draws, (n, -1))
    values = flat.shape[1] // len(f) if "correlated" in row.traits else 1
    own = np.kron(np.eye(flat.shape[1] // values), np.ones((values, values))) > 0
    assert np.all(np.abs(np.corrcoef(flat.T.astype(float)))[~own] < 5.0 / np.sqrt(n))


@law("likelihoods")
def extremes_stay_finite(row: Row) -> None:
    """Outputs of ±10⁴ in both precisions: values and derivatives are finite, and what must not be negative is not."""
    likelihood, params, f, y = parts(row)
    pattern = (
        np.where(np.arange(f.size).reshape(f.shape) % 2 == 0, 1.0, -1.0) * np.array([1.0, -1.0, 1.0, -1.0])[:, None]
    )
    for dtype in (jnp.float32, jnp.float64):
        for sign in (1e4, -1e4):
            extreme = jnp.asarray(sign * pattern, dtype)
            gradient = jax.grad(lambda g: jnp.sum(likelihood.log_prob(params, g, y)))(extreme)
            values = [method(params, extreme) for method in (likelihood.mean, likelihood.variance, likelihood.entropy)]
            values += [likelihood.information(params, extreme), likelihood.log_prob(params, extreme, y), gradient]
            assert all(np.all(np.isfinite(value)) for value in values)
            assert np.all(np.linalg.eigvalsh(likelihood.information(params, extreme)) >= -1e-6)
            assert np.all(likelihood.variance(params, extreme) >= 0.0)
            surprise = jax.grad(lambda g: jnp.sum(likelihood.entropy(params, g)))(extreme)
            assert np.all(np.isfinite(surprise))


@law("likelihoods", when="entropy")
def entropy_is_the_expected_surprise(row: Row) -> None:
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    surprise = -jax.vmap(lambda y: likelihood.log_prob(params, f, y))(ys)
    found = likelihood.entropy(params, f)
    assert found.shape == (len(f),)
    np.testing.assert_allclose(found, average(mass, surprise), rtol=1e-8)


@law("likelihoods", when="continuous")
def cdf_differentiates_to_the_density(row: Row) -> None:
    """Independent outputs: the product of the derivatives is the joint density; and F starts at 0 and ends at 1."""
    likelihood, params, f, y = parts(row)
    cdf = lambda z: likelihood.cdf(params, f, z)
    value, slope = jax.jvp(cdf, (y,), (jnp.ones_like(y),))
    assert value.shape == likelihood.mean(params, f).shape
    np.testing.assert_allclose(jnp.prod(slope.reshape(len(f), -1), axis=1), jnp.exp(likelihood.log_prob(params, f, y)))
    reach = 1e6 * jnp.sqrt(likelihood.variance(params, f))  # t of five degrees of freedom has 1e-30 beyond it
    np.testing.assert_allclose(cdf(likelihood.mean(params, f) - reach), 0.0, atol=1e-12)
    np.testing.assert_allclose(cdf(likelihood.mean(params, f) + reach), 1.0, atol=1e-12)


@law("likelihoods", when="continuous")
def tails_and_intervals_are_of_the_cdf(row: Row) -> None:
    """What a censored row says, of one number a row: the logarithms of F, of 1 − F, and of a difference of F."""
    likelihood, params, f, y = parts(row)
    if y.ndim > 1:
        return
    F, further = likelihood.cdf(params, f, y), likelihood.cdf(params, f, y + 0.01)
    tails = likelihood.log_cdf(params, f, y), likelihood.log_survival(params, f, y)
    for tail, expected in zip(tails, (F, 1.0 - F), strict=True):
        np.testing.assert_allclose(jnp.exp(tail), expected, rtol=1e-9, atol=1e-13)
    within = y + 0.01 < row.subject.support.upper
    found = jnp.exp(likelihood.log_interval(params, f, y, y + 0.01))
    np.testing.assert_allclose(found[within], (further - F)[within], rtol=1e-7, atol=1e-13)


@law("likelihoods", when="counts")
def cdf_steps_by_the_mass(row: Row) -> None:
    """F(y) − F(y − 1) is the mass of y, F does not move between whole numbers, and it starts at zero."""
    likelihood, params, f, y = parts(row)
    cdf = lambda z: likelihood.cdf(params, f, z)
    y = y.astype(f.dtype)
    assert cdf(y).shape == y.shape
    mass = jnp.exp(likelihood.log_prob(params, f, y))
    np.testing.assert_allclose(cdf(y) - cdf(y - 1.0), mass, rtol=1e-9, atol=1e-13)
    np.testing.assert_array_equal(cdf(y + 0.5), cdf(y))
    np.testing.assert_array_equal(cdf(jnp.full_like(y, -1.0)), 0.0)
    np.testing.assert_allclose(cdf(jnp.full_like(y, 1e6)), 1.0, rtol=1e-12)


@law("likelihoods", when="limited")
def cdf_has_the_masses_and_the_density(row: Row) -> None:
    """It is zero below the lower limit and the mass at it, its slope is the density, and what is left is the other."""
    likelihood, params, f, _ = parts(row)
    cdf = lambda z: likelihood.cdf(params, f, z)
    support, mass = row.subject.support, lambda end: jnp.exp(likelihood.log_prob(params, f, jnp.full(len(f), end)))
    np.testing.assert_array_equal(cdf(jnp.full(len(f), support.lower - 1e-12)), 0.0)
    np.testing.assert_allclose(cdf(jnp.full(len(f), support.lower)), mass(support.lower), rtol=1e-12)
    for z in support.lower + np.array([0.3, 1.1, 1.9]):
        _, slope = jax.jvp(cdf, (jnp.full(len(f), z),), (jnp.ones(len(f)),))
        np.testing.assert_allclose(slope, mass(z), rtol=1e-10)
    np.testing.assert_array_equal(cdf(jnp.full(len(f), min(support.upper, 1e3))), 1.0)
    if np.isfinite(support.upper):
        left = cdf(jnp.full(len(f), np.nextafter(support.upper, -np.inf)))
        np.testing.assert_allclose(1.0 - left, mass(support.upper), rtol=1e-9)


@law("likelihoods", when="marginal")
def marginal_is_the_mixture(row: Row) -> None:
    """∫ p(y | f) N(f | m, C) df by Gauss–Hermite quadrature, beside the density of the claimed Gaussian."""
    likelihood, params, f, y = parts(row)
    outputs = f.shape[1]
    root = np.random.default_rng(0).normal(size=(len(f), outputs, outputs)) * 0.2 + 0.3 * np.eye(outputs)
    covariance = root @ root.swapaxes(1, 2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.stack(np.meshgrid(*[nodes] * outputs, indexing="ij"), axis=-1).reshape(-1, outputs)
    weight = np.prod(np.meshgrid(*[weights] * outputs, indexing="ij"), axis=0).ravel() / np.sum(weights) ** outputs
    fs = np.asarray(f)[None] + np.einsum("nij,gj->gni", np.linalg.cholesky(covariance), z)
    density = jax.vmap(lambda g: jnp.exp(likelihood.log_prob(params, g, y)))(jnp.asarray(fs))
    mean, spread = likelihood.marginal(params, f, jnp.asarray(covariance))
    assert mean.shape == f.shape
    assert spread.shape == (*f.shape, outputs)
    claimed = [
        stats.multivariate_normal.pdf(target, m, C)
        for target, m, C in zip(np.reshape(y, f.shape), np.asarray(mean), np.asarray(spread), strict=True)
    ]
    np.testing.assert_allclose(weight @ np.asarray(density), claimed, rtol=1e-6)


@law("likelihoods", when="dispersion homogeneous")
def dispersion_information_is_the_expected_curvature(row: Row) -> None:
    """Of one row: E[−∂² log p / ∂(log σ_k)²] for each entry of each leaf, the same in every row."""
    likelihood, params, f, _ = parts(row)
    ys, mass = masses(row)
    for name, leaf in params.items():
        log_prob = lambda leaf, y, name=name: likelihood.log_prob({**params, name: leaf}, f, y)
        second = jax.hessian(log_prob)  # [batch, outputs, outputs]
        curvature = average(mass, -jax.vmap(lambda y, leaf=leaf, second=second: second(leaf, y))(ys))
        found = likelihood.dispersion_information(params)[name]
        assert found.shape == leaf.shape
        for each in curvature:
            np.testing.assert_allclose(found, jnp.diag(each), rtol=1e-8)


@law("likelihoods", when="dispersion")
def dispersion_prior_is_scipys(row: Row) -> None:
    """A density of the logarithms: N(0, 3²) unless the row says otherwise."""
    likelihood, params, _, _ = parts(row)
    reference = row.extras.get("prior", lambda logarithm: stats.norm.logpdf(logarithm, 0.0, 3.0))
    found = likelihood.log_prior(params)
    assert found.shape == ()
    expected = sum(np.sum(reference(np.asarray(leaf))) for leaf in params.values())
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@law("likelihoods", when="dispersion")
def draws_of_dispersions_have_their_prior(row: Row) -> None:
    """Kolmogorov's test of 4,000 draws of each entry at level 1e-4, beside the density's own integral."""
    likelihood, params, _, _ = parts(row)
    draws = jax.vmap(lambda key: likelihood.sample_prior(key, params))(jax.random.split(jax.random.key(6), 4000))
    line = jnp.linspace(-60.0, 20.0, 40_001)
    for name, leaf in params.items():
        assert draws[name].shape == (4000, *leaf.shape)
        assert draws[name].dtype == leaf.dtype
        # Along one entry, the others held, the density is that entry's own up to a constant.
        along = jax.vmap(lambda t, name=name, leaf=leaf: likelihood.log_prior({**params, name: leaf.at[0].set(t)}))
        mass = np.exp(along(line) - along(line).max())
        cdf = np.cumsum(mass) / mass.sum()
        for entry in np.asarray(draws[name]).T:
            assert stats.kstest(entry, lambda t, cdf=cdf: np.interp(t, line, cdf)).pvalue > 1e-4


@law("likelihoods", when="cuts")
def draws_of_cuts_are_sorted_normals(row: Row) -> None:
    """Kolmogorov's test of 4,000 draws of each cut-point at level 1e-4, beside the normal order statistic's."""
    likelihood, params, _, _ = parts(row)
    number = likelihood.classes - 1
    draws = jax.vmap(lambda key: likelihood.cut_points(likelihood.sample_prior(key, params)))(
        jax.random.split(jax.random.key(7), 4000)
    )
    for k, cuts in enumerate(np.asarray(draws).T):
        order = stats.beta(k + 1, number - k)
        assert stats.kstest(cuts, lambda c, order=order: order.cdf(stats.norm.cdf(c, 0.0, 5.0))).pvalue > 1e-4


@law("likelihoods", when="cuts")
def prior_of_cuts_is_a_density(row: Row) -> None:
    """Of three classes it integrates to one over the parameters, by a trapezoidal sum over both."""
    likelihood = row.extras.get("three", Ordinal(3))
    first, log_gap = np.linspace(-60.0, 60.0, 401), np.linspace(-40.0, 6.0, 1201)
    log_prior = jax.vmap(
        jax.vmap(lambda a, b: likelihood.log_prior({"first": a, "log_gaps": b[None]}), (None, 0)), (0, None)
    )
    mass = np.exp(log_prior(jnp.asarray(first), jnp.asarray(log_gap)))
    np.testing.assert_allclose(mass.sum() * (first[1] - first[0]) * (log_gap[1] - log_gap[0]), 1.0, rtol=1e-6)


@law("likelihoods")
def declarations_hold(row: Row) -> None:
    """Quadratic exactly where the Hessian does not depend on f; log-concave only where it is never positive."""
    likelihood, params, f, y = parts(row)
    assert likelihood.task == (
        "regression" if "regression" in row.traits else "classes" if "several" in row.traits else "binary"
    )
    curvature = lambda g: by_row(jax.hessian(one_row(likelihood, params)), g, y)
    here, there = curvature(f), curvature(1.7 * f + 0.9)
    if "smooth" in row.traits:  # elsewhere the Hessian is zero wherever it exists
        assert likelihood.quadratic == np.allclose(here, there, rtol=1e-10)
    concave = max(np.linalg.eigvalsh(here).max(), np.linalg.eigvalsh(there).max()) < 1e-10
    assert concave or not likelihood.log_concave


@law("likelihoods")
def float32_beside_float64(row: Row) -> None:
    likelihood, params, f, y = parts(row)
    single = f.astype(jnp.float32)
    for name in ("log_prob", "mean", "variance", "entropy", "information", "cdf"):
        if (name == "cdf" and not row.traits & {"continuous", "counts", "limited"}) or (
            name == "entropy" and "entropy" not in row.traits  # draws of float32 are others
        ):
            continue
        method, targets = getattr(likelihood, name), (y,) if name in ("log_prob", "cdf") else ()
        found = method(params, single, *targets)
        assert found.dtype == jnp.float32, f"{name} is {found.dtype}"
        np.testing.assert_allclose(found, method(params, f, *targets), rtol=2e-5, atol=2e-6, err_msg=name)


@law("likelihoods")
def jit_and_vmap_change_nothing(row: Row) -> None:
    """A row's value does not depend on the other rows, nor on being traced."""
    likelihood, params, f, y = parts(row)
    for name in ("log_prob", "mean", "variance", "entropy", "information"):
        method = getattr(likelihood, name)
        call = (lambda g, t, m=method: m(params, g, t)) if name == "log_prob" else (lambda g, t, m=method: m(params, g))
        whole = call(f, y)
        np.testing.assert_allclose(jax.jit(call)(f, y), whole, rtol=1e-10, err_msg=name)
        alone = jax.vmap(lambda g, t, call=call: call(g[None], t[None])[0])(f, y)
        np.testing.assert_allclose(alone, whole, rtol=1e-10, err_msg=name)


def twin_of(of: Row, fault: str, laws: str, **methods: Any) -> None:
    whole = {name: getattr(of.subject, name) for name in METHODS}
    twin(of, fault, laws, SimpleNamespace(**{**whole, **methods}))


density = "log_prob_is_scipys density_integrates_to_one"
density_alone = "log_prob_is_scipys"  # the fault is a density too
g, b, c, s = fixed.subject, bernoulli.subject, categorical.subject, scaled.subject

twin_of(fixed, "sign of log_prob", density, log_prob=lambda p, f, y: -g.log_prob(p, f, y))
twin_of(fixed, "unnormalised", density, log_prob=lambda p, f, y: -0.5 * ((y - f[:, 0]) / 0.7) ** 2)
twin_of(fixed, "variance for scale in log_prob", "log_prob_is_scipys", log_prob=Gaussian(0.7**2).log_prob)
twin_of(
    fixed,
    "standard deviation for variance",
    "mean_and_variance_are_moments",
    variance=lambda p, f: jnp.sqrt(g.variance(p, f)),
)
twin_of(fixed, "mean without f", "mean_and_variance_are_moments", mean=lambda p, f: jnp.zeros_like(f[:, 0]))
twin_of(
    fixed,
    "information without the square",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: jnp.sqrt(g.information(p, f)),
)
twin_of(fixed, "sample with variance for scale", "sample_has_the_moments", sample=Gaussian(0.7**2).sample)
twin_of(
    several,
    "one draw for all outputs",
    "sample_rows_are_independent",
    sample=lambda key, p, f: f + jnp.exp(p["log_scale"])[None] * jax.random.normal(key, (len(f), 1)),
)
twin_of(fixed, "entropy without e", "entropy_is_the_expected_surprise", entropy=lambda p, f: g.entropy(p, f) - 0.5)
twin_of(
    several,
    "entropy of one output",
    "entropy_is_the_expected_surprise",
    entropy=lambda p, f: learned.subject.entropy({"log_scale": p["log_scale"][:1]}, f[:, :1]),
)
twin_of(
    fixed,
    "survival for cdf",
    "cdf_differentiates_to_the_density",
    cdf=lambda p, f, y: 1.0 - g.cdf(p, f, y),
)
twin_of(fixed, "survival for cdf of censored rows", "tails_and_intervals_are_of_the_cdf", log_cdf=g.log_survival)
twin_of(times, "density for survival", "tails_and_intervals_are_of_the_cdf", log_survival=times.subject.log_prob)
twin_of(fixed, "cdf with variance for scale", "cdf_differentiates_to_the_density", cdf=Gaussian(0.7**2).cdf)
twin_of(fixed, "marginal without noise", "marginal_is_the_mixture", marginal=lambda p, m, C: (m, C))
twin_of(
    several,
    "marginal with standard deviation for variance",
    "marginal_is_the_mixture",
    marginal=lambda p, m, C: (m, C + jnp.diag(jnp.exp(p["log_scale"]))[None]),
)
twin_of(
    several,
    "noise of one output for all",
    "log_prob_is_scipys",
    log_prob=lambda p, f, y: several.subject.log_prob({"log_scale": p["log_scale"][:1].repeat(2)}, f, y),
)
twin_of(
    learned,
    "dispersion information of log σ²",
    "dispersion_information_is_the_expected_curvature",
    dispersion_information=lambda p: jax.tree.map(lambda x: jnp.full_like(x, 0.5), p),
)
twin_of(
    several,
    "dispersion information of the batch",
    "dispersion_information_is_the_expected_curvature",
    dispersion_information=lambda p: jax.tree.map(lambda x: jnp.full_like(x, 2.0 * x.size), p),
)
twin_of(learned, "dispersion prior dropped", "dispersion_prior_is_scipys", log_prior=lambda p: jnp.zeros(()))
twin_of(
    several,
    "dispersion prior averaged",
    "dispersion_prior_is_scipys",
    log_prior=lambda p: several.subject.log_prior(p) / 2,
)

twin_of(
    prior_of_scale,
    "missing Jacobian of a scale",
    "dispersion_prior_is_scipys",
    log_prior=lambda p: prior_of_scale.subject.log_prior(p) - jnp.sum(p["log_scale"]),
)
twin_of(
    learned,
    "draws of the scale for its logarithm",
    "draws_of_dispersions_have_their_prior",
    sample_prior=lambda k, p: jax.tree.map(jnp.exp, learned.subject.sample_prior(k, p)),
)
twin_of(
    prior_of_scale,
    "draws of the default prior",
    "draws_of_dispersions_have_their_prior",
    sample_prior=learned.subject.sample_prior,
)
twin_of(
    graded,
    "draws of equal gaps",
    "draws_of_cuts_are_sorted_normals",
    sample_prior=lambda k, p: {
        "first": 5.0 * jax.random.normal(k, ()),
        "log_gaps": jnp.zeros_like(p["log_gaps"]),
    },
    cut_points=graded.subject.cut_points,
    classes=4,
)
twin(
    graded,
    "missing Jacobian of a cut-point",
    "prior_of_cuts_is_a_density",
    graded.subject,
    three=SimpleNamespace(log_prior=lambda p: Ordinal(3).log_prior(p) - jnp.sum(p["log_gaps"])),
)
twin_of(
    graded,
    "f added to the cut-points",
    density_alone,
    log_prob=lambda p, f, y: graded.subject.log_prob(p, -f, y),
)
twin_of(
    graded,
    "survival for cdf",
    "cdf_steps_by_the_mass",
    cdf=lambda p, f, y: 1.0 - graded.subject.cdf(p, f, y),
)
twin_of(
    tobit,
    "density for mass at the limit",
    density,
    log_prob=lambda p, f, y: learned.subject.log_prob(p, f, y),
)
twin_of(
    tobit,
    "survival for cdf",
    "cdf_has_the_masses_and_the_density",
    cdf=lambda p, f, y: 1.0 - tobit.subject.cdf(p, f, y),
)
twin_of(
    tobit,
    "cdf of the target behind the record",
    "cdf_has_the_masses_and_the_density",
    cdf=lambda p, f, y: learned.subject.cdf(p, f, y),
)
twin_of(
    tobit,
    "information of rows that are not at the limit",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=learned.subject.information,
)
twin_of(tossed, "one trial", density, log_prob=lambda p, f, y: Bernoulli().log_prob(p, f, (y > 0).astype(int)))
twin_of(
    inflated,
    "information without the cross term",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: inflated.subject.information(p, f) * jnp.eye(2)[None],
)
twin_of(angles, "not on a circle", density, log_prob=Gaussian(0.6).log_prob)
twin_of(ranked, "worst first", density_alone, log_prob=lambda p, f, y: ranked.subject.log_prob(p, f, y[:, ::-1]))
twin_of(shared, "draws of one trial", "sample_has_the_moments", sample=Multinomial(3).sample)
twin_of(
    correlated,
    "covariance for precision",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: jnp.broadcast_to(jnp.asarray(COVARIANCE)[None], (4, 2, 2)),
)
twin_of(
    probit,
    "link for inverse",
    density + " mean_and_variance_are_moments",
    log_prob=lambda p, f, y: jnp.where(y == 1, 1.0, -1.0) * links.Probit().forward(jax.nn.sigmoid(f[:, 0])) ** 2,
    mean=lambda p, f: links.Probit().forward(jax.nn.sigmoid(f[:, 0])),
)
twin_of(
    loglog,
    "complementary log-log for log-log",
    "log_prob_is_scipys",
    log_prob=Bernoulli(links.ComplementaryLogLog()).log_prob,
)
twin_of(
    signs,
    "log odds of f, and not of 2f",
    "log_prob_is_scipys",
    log_prob=lambda p, f, y: jax.nn.log_sigmoid(y.astype(f.dtype) * f[:, 0]),
)
twin_of(
    poisson,
    "factorial dropped",
    density,
    log_prob=lambda p, f, y: y.astype(f.dtype) * f[:, 0] - jnp.exp(f[:, 0]),
)
twin_of(
    poisson,
    "survival for cdf",
    "cdf_steps_by_the_mass",
    cdf=lambda p, f, y: 1.0 - poisson.subject.cdf(p, f, y),
)
twin_of(
    poisson,
    "cdf below and not up to",
    "cdf_steps_by_the_mass",
    cdf=lambda p, f, y: poisson.subject.cdf(p, f, y - 1),
)
twin_of(
    rooted,
    "information of the logarithm",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=Poisson().information,
)
twin_of(
    overdispersed,
    "variance of Poisson",
    "mean_and_variance_are_moments",
    variance=lambda p, f: jnp.exp(f[:, 0]),
)
twin_of(
    gamma,
    "standard deviation for variance",
    "mean_and_variance_are_moments",
    variance=lambda p, f: jnp.sqrt(gamma.subject.variance(p, f)),
)
twin_of(reciprocal, "link of the logarithm", density_alone, log_prob=Gamma(2.5).log_prob)
twin_of(
    shares,
    "odds for probabilities in draws",
    "sample_has_the_moments",
    sample=lambda k, p, f: shares.subject.sample(k, p, 2.0 * f),
)
twin_of(
    times,
    "dispersion information of a scale",
    "dispersion_information_is_the_expected_curvature",
    dispersion_information=lambda p: jax.tree.map(jnp.ones_like, p),
)
twin_of(student, "scale for deviation", "mean_and_variance_are_moments", variance=lambda p, f: jnp.full(4, 0.36))
twin_of(
    student,
    "normal tails",
    f"{density_alone} influence_is_bounded",
    log_prob=lambda p, f, y: Gaussian(0.6).log_prob({}, f, y),
)
twin_of(pinball, "levels swapped", density_alone, log_prob=Quantile(0.2).log_prob)

twin_of(
    bernoulli,
    "naive logarithm",
    "extremes_stay_finite",
    log_prob=lambda p, f, y: jnp.where(y == 1, jnp.log(jax.nn.sigmoid(f[:, 0])), jnp.log1p(-jax.nn.sigmoid(f[:, 0]))),
)
twin_of(
    bernoulli,
    "naive entropy",
    "extremes_stay_finite",
    entropy=lambda p, f: -b.mean(p, f) * jnp.log(b.mean(p, f)) - b.mean(p, -f) * jnp.log(b.mean(p, -f)),
)


def one_sided(p: Any, f: jax.Array, y: jax.Array) -> jax.Array:
    """Right in value, one-sided in its derivative at f = 0: the formula of NumPyro 0.22."""
    return f[:, 0] * y.astype(f.dtype) - jnp.clip(f[:, 0], 0) - jnp.log1p(jnp.exp(-jnp.abs(f[:, 0])))


twin_of(bernoulli, "one-sided derivative at zero", "information_is_the_variance_of_the_score", log_prob=one_sided)
twin_of(bernoulli, "labels exchanged", "log_prob_is_scipys", log_prob=lambda p, f, y: b.log_prob(p, -f, y))
twin_of(
    bernoulli,
    "information without one factor",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: b.mean(p, f)[:, None, None],
)
twin_of(bernoulli, "logit for mean", "mean_and_variance_are_moments", mean=lambda p, f: f[:, 0])
twin_of(
    bernoulli,
    "rounds for draws",
    "sample_has_the_moments",
    sample=lambda key, p, f: (b.mean(p, f) > 0.5).astype(jnp.int32),
)
twin_of(
    bernoulli,
    "entropy in bits",
    "entropy_is_the_expected_surprise",
    entropy=lambda p, f: b.entropy(p, f) / jnp.log(2.0),
)
twin_of(bernoulli, "declared quadratic", "declarations_hold", quadratic=True)
twin_of(
    bernoulli,
    "float64 always",
    "float32_beside_float64",
    log_prob=lambda p, f, y: b.log_prob(p, f.astype(jnp.float64), y),
)

twin_of(categorical, "unnormalised logits", density, log_prob=lambda p, f, y: f[jnp.arange(len(y)), y])
twin_of(
    categorical,
    "information without pp'",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: c.mean(p, f)[:, :, None] * jnp.eye(3)[None],
)
twin_of(
    categorical,
    "logits for probabilities in draws",
    "sample_has_the_moments",
    sample=lambda k, p, f: c.sample(k, p, 2.0 * f),
)
twin_of(
    categorical,
    "naive normaliser",
    "extremes_stay_finite",
    log_prob=lambda p, f, y: f[jnp.arange(len(y)), y] - jnp.log(jnp.sum(jnp.exp(f), axis=1)),
)
twin_of(
    categorical,
    "softmax over the batch",
    "jit_and_vmap_change_nothing",
    mean=lambda p, f: jax.nn.softmax(f, axis=0),
)
twin_of(
    categorical,
    "declared log-concave and is not",
    "declarations_hold",
    log_prob=lambda p, f, y: -c.log_prob(p, f, y),
)

twin_of(scaled, "Jacobian dropped", density, log_prob=lambda p, f, y: g.log_prob(p, f, (y - 3.0) / 0.2))
twin_of(
    scaled, "Jacobian with the other sign", density, log_prob=lambda p, f, y: s.log_prob(p, f, y) + 2.0 * jnp.log(0.2)
)
twin_of(
    scaled_several,
    "Jacobian of one output",
    density,
    log_prob=lambda p, f, y: scaled_several.subject.log_prob(p, f, y) + np.log(STRETCH[1]),
)
twin_of(
    scaled, "variance stretched once", "mean_and_variance_are_moments", variance=lambda p, f: 0.2 * g.variance(p, f)
)
twin_of(scaled, "mean in standard units", "mean_and_variance_are_moments", mean=g.mean)
twin_of(scaled, "draws in standard units", "sample_has_the_moments", sample=g.sample)
twin_of(scaled, "entropy in standard units", "entropy_is_the_expected_surprise", entropy=g.entropy)
twin_of(scaled, "cdf in standard units", "cdf_differentiates_to_the_density", cdf=g.cdf)
twin_of(scaled, "marginal in standard units", "marginal_is_the_mixture", marginal=g.marginal)
twin_of(
    scaled,
    "information in original units",
    "information_is_the_expected_curvature information_is_the_variance_of_the_score",
    information=lambda p, f: g.information(p, f) / 0.2**2,
)
