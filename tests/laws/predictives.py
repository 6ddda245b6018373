"""Laws of predictives: all that a prediction says is of one distribution, the right one, and in its support.

A row's subject makes a prediction of two rows or three. Its extras: `density`, the density of one target of each row,
written out with SciPy; `epistemic`, by hand; `atoms`, the values of a mixed distribution that have a probability;
`whole`, the same prediction with all rows in memory. Integrals are sums over points that are equally far apart on the
scale of an inverse hyperbolic sine, or of a logarithm, where they have the accuracy of the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import lamu
from lamu.calibration import TemperedClasses, Widened
from lamu.data.imputation import Completions
from lamu.families import Beta as BetaFamily
from lamu.families import Dirichlet, Ensemble, Gamma, Gaussian, NormalGamma, Point, Product
from lamu.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    IntervalCensored,
    LeftCensored,
    Ordinal,
    Poisson,
    RightCensored,
    Scaled,
    StudentT,
    Tobit,
    Weibull,
    ZeroInflated,
)
from lamu.likelihoods.links import Tanh
from lamu.operators import Scalar
from lamu.predictives import (
    AtPositions,
    ClassProbabilities,
    ConjugatePredictive,
    Deferred,
    GaussianPredictive,
    InputMixture,
    LaplaceBridge,
    Linearised,
    MixturePredictive,
    OfTrials,
    Pooling,
    Probit,
    Sampled,
    StudentPredictive,
    Weighted,
)
from lamu.predictives.graph import DrawnVariable
from lamu.predictives.input_mixture import CompletedRows
from lamu.predictives.wrapper import Moved, PredictiveWrapper
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("predictives", "number whole_numbers classes several draws deferred censored")

W = np.array([0.7, 0.3])
LOG_W = jnp.log(jnp.asarray(W))
F = np.array([[[0.3], [1.2]], [[2.0], [-0.9]]])  # of two components and two rows
X = np.array([[1.0], [-0.5]])
TRIALS = np.array([4.0, 9.0])


def mixture(likelihood: Any, f: Any = F, drawn: bool = False) -> MixturePredictive:
    """Of the weights .7 and .3, or of draws, which have equal weights."""
    f = jnp.asarray(f)
    if drawn:
        return MixturePredictive.equal(likelihood, {}, f, drawn=True)
    return MixturePredictive(likelihood, {}, f, jnp.log(jnp.asarray(W)))


def normal(centre: Any, variance: Any, noise: Any) -> GaussianPredictive:
    centre, variance, noise = (jnp.asarray(np.broadcast_to(part, 2), float) for part in (centre, variance, noise))
    return GaussianPredictive(centre, variance[:, None, None], noise)


def averaged(*densities: Callable[[Any], Any], weights: Any = W) -> Callable[[Any], Any]:
    """The density of a mixture."""
    return lambda y: sum(w * density(y) for w, density in zip(weights, densities, strict=True))


def over_f(density: Callable[[Any, Any], Any], f: Any = F, weights: Any = W) -> Callable[[Any], Any]:
    """The average over components of a density given outputs."""
    f = np.asarray(f)
    return averaged(*[partial(lambda y, f: density(y, f), f=each) for each in f], weights=weights)


def one_of(f: Any) -> Any:
    return f[:, 0]


def poisson(y: Any, f: Any) -> Any:
    return stats.poisson.pmf(y, np.exp(one_of(f)))


def inflated(y: Any, f: Any) -> Any:
    zero = special.expit(f[:, 1])
    return zero * (np.asarray(y) == 0) + (1 - zero) * stats.poisson.pmf(y, np.exp(f[:, 0]))


def gaussian(y: Any, f: Any, scale: float = 0.5) -> Any:
    return stats.norm.pdf(y, one_of(f), scale)


def weibull(y: Any, f: Any) -> Any:
    return stats.weibull_min.pdf(y, 2.0, scale=np.exp(one_of(f)))


def limited(y: Any, f: Any) -> Any:
    return np.where(np.asarray(y) == 0, stats.norm.cdf(-one_of(f)), stats.norm.pdf(y, one_of(f), 1.0))


def student(y: Any, f: Any) -> Any:
    return stats.t.pdf(y, 6.0, 2.0 + 3.0 * one_of(f), 3.0 * 0.4)


def beta(y: Any, f: Any) -> Any:
    m = special.expit(one_of(f))
    return stats.beta.pdf(y, 6.0 * m, 6.0 * (1 - m))


def binomial(y: Any, f: Any) -> Any:
    return stats.binom.pmf(y, TRIALS, special.expit(one_of(f)))


def between(means: Any, weights: Any = W) -> Any:
    """The variance of means `[components, N]`."""
    centre = np.tensordot(weights, means, 1)
    return np.tensordot(weights, (means - centre) ** 2, 1)


EQUAL = np.array([0.5, 0.5])
TWO = np.concatenate([F, F[::-1, ::-1] - 0.5], axis=-1)
NORMALS = over_f(gaussian)


def shifted(density: Callable[[Any], Any], shift: Any, scale: Any) -> Callable[[Any], Any]:
    return lambda y: density((y - shift) / scale) / scale


# Mixtures of likelihoods, and closed forms.

ROW: dict[str, Row] = {}


def numbers(name: str, subject: Callable[[], Any], traits: str, density: Any, **extras: Any) -> None:
    ROW[name] = row("predictives", name, subject, f"number {traits}", density=density, **extras)


numbers(
    "mixture of normals", lambda: mixture(lamu.likelihoods.Gaussian(0.5)), "", NORMALS, epistemic=between(F[..., 0])
)
numbers(
    "draws of counts",
    lambda: mixture(Poisson(), drawn=True),
    "whole_numbers draws",
    over_f(poisson, weights=EQUAL),
    epistemic=between(np.exp(F[..., 0]), EQUAL),
)
numbers("zero-inflated counts", lambda: mixture(ZeroInflated(Poisson()), TWO), "whole_numbers", over_f(inflated, TWO))
numbers(
    "mixture of times",
    lambda: mixture(Weibull(2.0)),
    "",
    over_f(weibull),
    epistemic=between(math.gamma(1.5) * np.exp(F[..., 0])),
)
numbers("mixture of shares", lambda: mixture(Beta(6.0)), "", over_f(beta), ends=(0.0, 1.0))
numbers("mixture of limited numbers", lambda: mixture(Tobit(scale=1.0)), "", over_f(limited), atoms=(0.0,))
numbers(
    "standardised mixture",
    lambda: mixture(Scaled(StudentT(6.0, 0.4), 2.0, 3.0)),
    "",
    over_f(student),
    epistemic=between(3.0 * F[..., 0]),
)
numbers(
    "normal in closed form",
    lambda: normal([0.5, 1.5], 0.64, 0.36),
    "",
    lambda y: stats.norm.pdf(y, [0.5, 1.5], 0.8),
    epistemic=np.full(2, 0.28),
)
numbers(
    "student",
    lambda: StudentPredictive(
        jnp.array([0.3, -1.0]), jnp.array([0.5, 2.0]), jnp.array([5.0, 9.0]), jnp.array([0.8, 0.4])
    ),
    "",
    lambda y: stats.t.pdf(y, [5.0, 9.0], [0.3, -1.0], [0.5, 2.0]),
    epistemic=np.array([0.2, 0.6]) * np.array([0.25 * 5 / 3, 4 * 9 / 7]),
)
numbers(
    "conjugate normal",
    lambda: ConjugatePredictive(
        lamu.observations.Normal(), NormalGamma(*(jnp.asarray(v) for v in (0.5, 3.0, 4.0, 2.0))), rows=2
    ),
    "",
    lambda y: stats.t.pdf(y, 8.0, 0.5, math.sqrt(2.0 * 4.0 / (4.0 * 3.0))),
    epistemic=np.full(2, 2.0 / (3.0 * 3.0)),
)
numbers(
    "conjugate counts",
    lambda: ConjugatePredictive(lamu.observations.Poisson(), Gamma(2.0, 1.5), rows=2),
    "whole_numbers",
    lambda y: stats.nbinom.pmf(y, 2.0, 0.6) + np.zeros(2),
    epistemic=np.full(2, 2.0 / 2.25),
)


# What rules make.


def model_of(likelihood: Any) -> Any:
    return lamu.Model(lamu.networks.Linear(bias=False), likelihood)


def kernels(*values: float) -> Any:
    return {"layers": {0: {"kernel": jnp.asarray(values).reshape(-1, 1, 1)}}}


def about(kernel: Any, precision: Any) -> Product:
    weights = Gaussian({"layers": {0: {"kernel": jnp.asarray(kernel)}}}, Scalar(jnp.asarray(precision)))
    return Product({"network": weights, "likelihood": Point({})})


OFFSET = jnp.array([[0.3], [-0.2]])


def linearised_counts() -> Any:
    belief = about([[0.4]], 4.0)
    prepared = Linearised().prepare(model_of(Poisson()), belief, {}, 1, jax.random.key(3))
    return prepared.at(jnp.asarray(X), OFFSET)


def counts_over_normal(y: Any) -> Any:
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    f = (0.4 * X + np.asarray(OFFSET))[:, 0] + np.abs(X[:, 0]) / 2 * nodes[:, None]
    return np.tensordot(weights / weights.sum(), stats.poisson.pmf(y, np.exp(f)), 1)


numbers("linearised counts", linearised_counts, "whole_numbers", counts_over_normal)


def weighted_points() -> Any:
    points = Ensemble(Point({"network": kernels(0.5, 3.0), "likelihood": {}}), LOG_W)
    prepared = Sampled().prepare(model_of(lamu.likelihoods.Gaussian(0.5)), points, {}, 4, jax.random.key(3))
    return prepared.at(jnp.asarray(X), None)


POINTS = np.array([0.5, 3.0])[:, None, None] * X
numbers("weighted points", weighted_points, "", over_f(gaussian, POINTS), epistemic=between(POINTS[..., 0]))


def pooled() -> Any:
    members = Ensemble(about([[[0.5]], [[3.0]]], [4.0, 25.0]))
    prepared = Pooling(Linearised()).prepare(
        model_of(lamu.likelihoods.Gaussian(0.5)), members, {}, 4, jax.random.key(3)
    )
    return prepared.at(jnp.asarray(X), None)


numbers(
    "pooled members",
    pooled,
    "",
    averaged(
        lambda y: stats.norm.pdf(y, 0.5 * X[:, 0], np.sqrt(0.25 + X[:, 0] ** 2 / 4)),
        lambda y: stats.norm.pdf(y, 3.0 * X[:, 0], np.sqrt(0.25 + X[:, 0] ** 2 / 25)),
        weights=EQUAL,
    ),
    epistemic=between(POINTS[..., 0], EQUAL) + X[:, 0] ** 2 * (1 / 4 + 1 / 25) / 2,
)


# Predictives of predictives.

PAIR = averaged(lambda y: stats.norm.pdf(y, [0.0, 1.0], 1.0), lambda y: stats.norm.pdf(y, 3.0, 0.4))
APART = between(np.array([[0.0, 1.0], [3.0, 3.0]])) + W @ np.array([0.75, 0.07])


def pair() -> Weighted:
    return Weighted((normal([0.0, 1.0], 1.0, 0.25), normal(3.0, 0.16, 0.09)), LOG_W)


numbers("weighted", pair, "", PAIR, epistemic=APART)
numbers(
    "weighted counts",
    lambda: Weighted((mixture(Poisson()), mixture(ZeroInflated(Poisson()), TWO)), LOG_W),
    "whole_numbers",
    averaged(over_f(poisson), over_f(inflated, TWO)),
)
numbers(
    "weighted of weighted and draws",
    lambda: Weighted((pair(), mixture(lamu.likelihoods.Gaussian(0.5), drawn=True)), jnp.log(jnp.array([0.2, 0.8]))),
    "draws",
    averaged(PAIR, over_f(gaussian, weights=EQUAL), weights=[0.2, 0.8]),
)
SHIFT, SCALE = np.array([1.0, -2.0]), np.array([2.0, 0.3])
numbers(
    "moved draws",
    lambda: Moved(mixture(lamu.likelihoods.Gaussian(0.5), drawn=True), *(jnp.asarray(part) for part in (SHIFT, SCALE))),
    "draws",
    shifted(over_f(gaussian, weights=EQUAL), SHIFT, SCALE),
    epistemic=SCALE**2 * between(F[..., 0], EQUAL),
)
numbers(
    "moved times",
    lambda: Moved(mixture(Weibull(2.0)), jnp.zeros(2), jnp.asarray(SCALE)),
    "",
    shifted(over_f(weibull), 0.0, SCALE),
)
MEAN = np.tensordot(W, np.array([[0.0, 1.0], [3.0, 3.0]]), 1)
numbers(
    "widened",
    lambda: Widened(pair(), 1.8),
    "",
    shifted(PAIR, MEAN - 1.8 * MEAN, 1.8),
    epistemic=1.8**2 * APART,
)
DRAWN_MEAN = F[..., 0].mean(axis=0)
numbers(
    "narrowed draws",
    lambda: Widened(mixture(lamu.likelihoods.Gaussian(0.5), drawn=True), 0.6),
    "draws",
    shifted(over_f(gaussian, weights=EQUAL), 0.4 * DRAWN_MEAN, 0.6),
)
COMPLETIONS = Completions(np.array([[0.4], [-1.0], [0.5], [3.0]]), np.array([0, 1, 1, 1]), np.zeros(4))


def of_inputs(x: Any, row: Any, drawn: bool = False) -> Any:
    x = jnp.asarray(x)
    if drawn:
        return mixture(lamu.likelihoods.Gaussian(0.5), jnp.stack([x, 1.0 - x]), drawn=True)
    return GaussianPredictive(x[:, 0], (1.0 + x**2)[:, :, None], jnp.full(len(x), 0.5))


def of_completions(density: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The average over the completions of each row."""

    def found(y: Any) -> Any:
        y = np.broadcast_to(y, 2)
        first = density(y[0], COMPLETIONS.x[:1, 0]).mean()
        return np.array([first, density(y[1], COMPLETIONS.x[1:, 0]).mean()])

    return found


numbers(
    "rows with holes",
    lambda: InputMixture.in_memory(of_inputs, COMPLETIONS),
    "",
    of_completions(lambda y, x: stats.norm.pdf(y, x, np.sqrt(1 + x**2))),
    epistemic=np.array([0.66, np.var([-1.0, 0.5, 3.0]) + np.mean([1.5, 0.75, 9.5])]),
)
numbers(
    "rows with holes, of draws",
    lambda: InputMixture.in_memory(partial(of_inputs, drawn=True), COMPLETIONS),
    "draws",
    of_completions(lambda y, x: (stats.norm.pdf(y, x, 0.5) + stats.norm.pdf(y, 1 - x, 0.5)) / 2),
)
STEPS = np.array([0.0, -1.0, 0.5, 2.0])
numbers(
    "rows with holes and a spread",
    lambda: InputMixture.in_memory(of_inputs, Completions(COMPLETIONS.x, COMPLETIONS.row, STEPS)),
    "",
    lambda y: np.array(
        [
            stats.norm.pdf(np.broadcast_to(y, 2)[0], 0.4, math.sqrt(1.16)),
            stats.norm.pdf(
                np.broadcast_to(y, 2)[1],
                COMPLETIONS.x[1:, 0] + STEPS[1:] * np.std([-1.0, 0.5, 3.0]),
                np.sqrt(1 + COMPLETIONS.x[1:, 0] ** 2),
            ).mean(),
        ]
    ),
)
numbers(
    "trials",
    lambda: OfTrials(mixture(Binomial(), drawn=True), jnp.asarray(TRIALS)),
    "whole_numbers draws",
    over_f(binomial, weights=EQUAL),
    epistemic=TRIALS**2 * between(special.expit(F[..., 0]), EQUAL),
)
numbers(
    "weighted trials",
    lambda: OfTrials(Weighted((mixture(Binomial()), mixture(Binomial(), -F)), LOG_W), jnp.asarray(TRIALS)),
    "whole_numbers",
    averaged(over_f(binomial), over_f(binomial, -F)),
)


def graph_entries(likelihood: Any, f: Any, value: Any) -> DrawnVariable:
    return DrawnVariable(jnp.asarray(value), jnp.zeros(2, bool), likelihood, jnp.asarray(f)[:, :, None, :], {})


numbers(
    "entries of a graph",
    lambda: graph_entries(lamu.likelihoods.Gaussian(0.5), F, [0.0, 0.0]),
    "",
    over_f(gaussian, weights=EQUAL),
    epistemic=between(F[..., 0], EQUAL),
)


# Censored rows.


def censored(name: str, subject: Callable[[], Any], density: Any, second: str, sign: int = 1) -> None:
    numbers(name, subject, "censored", density, second=second, sign=sign)


censored("censored times", lambda: mixture(RightCensored(Weibull(2.0))), over_f(weibull), "censored")
censored(
    "censored times, moved and weighted",
    lambda: Weighted(
        (
            Moved(mixture(RightCensored(Weibull(2.0))), jnp.zeros(2), jnp.asarray(SCALE)),
            mixture(RightCensored(Weibull(2.0))),
        ),
        LOG_W,
    ),
    averaged(shifted(over_f(weibull), 0.0, SCALE), over_f(weibull)),
    "censored",
)
censored(
    "times below a limit, moved",
    lambda: Moved(mixture(LeftCensored(Weibull(2.0))), jnp.zeros(2), jnp.asarray(SCALE)),
    shifted(over_f(weibull), 0.0, SCALE),
    "censored",
    -1,
)
censored(
    "times between limits, moved",
    lambda: Moved(mixture(IntervalCensored(Weibull(2.0))), jnp.zeros(2), jnp.asarray(SCALE)),
    shifted(over_f(weibull), 0.0, SCALE),
    "upper",
)


# Several outputs.

CENTRE = np.array([[0.5, -1.0], [1.5, 2.0]])
COVARIANCE = np.array([[[1.0, 0.5], [0.5, 0.8]], [[0.6, -0.3], [-0.3, 2.0]]])


def joint() -> GaussianPredictive:
    return GaussianPredictive(jnp.asarray(CENTRE), jnp.asarray(COVARIANCE), jnp.full((2, 2), 0.2))


def joint_density(factor: Any = 1.0, centre: Any = CENTRE, covariance: Any = COVARIANCE) -> Callable[[Any], Any]:
    def density(y: Any) -> Any:
        y, scale = np.broadcast_to(y, (2, 2)), np.broadcast_to(factor, (2, 2))
        return np.array(
            [
                stats.multivariate_normal.pdf(y[i], centre[i], scale[i][:, None] * covariance[i] * scale[i])
                for i in (0, 1)
            ]
        )

    return density


def several(name: str, subject: Callable[[], Any], density: Any, covariance: Any, traits: str = "") -> None:
    ROW[name] = row("predictives", name, subject, f"several {traits}", density=density, covariance=covariance)


DIAGONAL = np.stack([np.diag(np.diag(each)) for each in COVARIANCE])
FACTORS = np.array([[2.0, 0.5], [1.5, 3.0]])
several("joint normal", joint, joint_density(), COVARIANCE)
several(
    "independent normals",
    lambda: GaussianPredictive(
        jnp.asarray(CENTRE), jnp.asarray(np.diagonal(COVARIANCE, axis1=1, axis2=2)), jnp.full((2, 2), 0.2)
    ),
    joint_density(covariance=DIAGONAL),
    DIAGONAL,
)
several("joint normal, widened", lambda: Widened(joint(), 1.8), joint_density(1.8), 1.8**2 * COVARIANCE)
several(
    "joint normal, moved",
    lambda: Moved(joint(), jnp.asarray(CENTRE), jnp.asarray(FACTORS)),
    joint_density(FACTORS, CENTRE + FACTORS * CENTRE),
    FACTORS[:, :, None] * COVARIANCE * FACTORS[:, None],
)
several(
    "positions",
    lambda: AtPositions(
        GaussianPredictive(
            jnp.asarray(CENTRE.ravel()),
            jnp.asarray(np.diagonal(COVARIANCE, axis1=1, axis2=2).ravel()),
            jnp.full(4, 0.2),
        ),
        (2,),
    ),
    joint_density(covariance=DIAGONAL),
    DIAGONAL,
)


# Classes.

LOGITS = np.array([[[0.3, -1.0, 0.4], [1.2, 0.1, -0.5]], [[2.0, 0.0, -2.0], [-0.9, 1.0, 3.0]]])


def softmax(logits: Any) -> Any:
    return special.softmax(logits, axis=-1)


def entropy(p: Any) -> Any:
    return special.entr(p).sum(axis=-1)


def pairs(p: Any) -> Any:
    return np.stack([1 - p, p], axis=-1)


def classes(name: str, subject: Callable[[], Any], p: Any, aleatoric: Any = None, traits: str = "") -> None:
    ROW[name] = row("predictives", name, subject, f"classes {traits}", p=p, aleatoric=aleatoric)


P = softmax(LOGITS)
B = pairs(special.expit(F[..., 0]))
MIXED_P, MIXED_B = np.tensordot(W, P, 1), np.tensordot(W, B, 1)
classes("mixture of classes", lambda: mixture(Categorical(3), LOGITS), MIXED_P, W @ entropy(P))
classes("draws of classes", lambda: mixture(Categorical(3), LOGITS, True), P.mean(0), entropy(P).mean(0), "draws")
classes("mixture of two classes", lambda: mixture(Bernoulli()), MIXED_B, W @ entropy(B))


def ordinal() -> np.ndarray:
    below = special.expit(np.array([-1.0, 1.0]) - F)
    return np.diff(np.concatenate([0 * F, below, 1 + 0 * F], axis=-1), axis=-1)


classes("mixture of grades", lambda: mixture(Ordinal(3, cuts=(-1.0, 1.0))), np.tensordot(W, ordinal(), 1))
classes(
    "probabilities in closed form",
    lambda: ClassProbabilities(jnp.log(jnp.asarray(MIXED_P)), jnp.asarray(W @ entropy(P))),
    MIXED_P,
    W @ entropy(P),
)
classes(
    "weighted classes",
    lambda: Weighted(
        (mixture(Categorical(3), LOGITS), ClassProbabilities(jnp.log(jnp.asarray(P[1])), jnp.asarray(entropy(P[1])))),
        LOG_W,
    ),
    0.7 * MIXED_P + 0.3 * P[1],
    0.7 * (W @ entropy(P)) + 0.3 * entropy(P[1]),
)


def tempered(p: Any, temperature: float) -> Any:
    return softmax(np.log(p) / temperature)


SHARE = (entropy(MIXED_P) - W @ entropy(P)) / entropy(MIXED_P)
classes(
    "tempered classes",
    lambda: TemperedClasses(mixture(Categorical(3), LOGITS), 2.5),
    tempered(MIXED_P, 2.5),
    (1 - SHARE) * entropy(tempered(MIXED_P, 2.5)),
)
classes("two classes, colder", lambda: TemperedClasses(mixture(Bernoulli()), 0.4), tempered(MIXED_B, 0.4))


classes(
    "two signs, tempered",
    lambda: TemperedClasses(mixture(Bernoulli(Tanh()), drawn=True), 2.0),
    tempered(pairs(special.expit(2 * F[..., 0])).mean(0), 2.0),
)


def class_inputs(x: Any, row: Any) -> Any:
    logits = jnp.asarray(x) * jnp.array([[1.0, -0.5, 0.2]])
    return mixture(Categorical(3), jnp.stack([logits, -logits]))


def class_of_inputs(x: Any) -> Any:
    logits = np.asarray(x) * np.array([1.0, -0.5, 0.2])
    return np.stack([softmax(logits), softmax(-logits)])


AT_X = class_of_inputs(COMPLETIONS.x)
classes(
    "classes of rows with holes",
    lambda: InputMixture.in_memory(class_inputs, COMPLETIONS),
    np.stack([(W[:, None] * AT_X[:, 0]).sum(0), np.tensordot(W, AT_X[:, 1:].mean(1), 1)]),
    np.array([W @ entropy(AT_X[:, 0]), W @ entropy(AT_X[:, 1:]).mean(1)]),
)
classes(
    "conjugate classes",
    lambda: ConjugatePredictive(lamu.observations.Categorical(3), Dirichlet(jnp.array([0.5, 1.0, 2.0])), rows=2),
    np.tile(np.array([0.5, 1.0, 2.0]) / 3.5, (2, 1)),
)
classes(
    "conjugate two classes",
    lambda: ConjugatePredictive(lamu.observations.Bernoulli(), BetaFamily(3.0, 1.0), rows=2),
    np.array([[0.25, 0.75]] * 2),
)


def of_two_classes(rule: Any) -> Any:
    prepared = rule.prepare(model_of(Bernoulli()), about([[1.2]], 2.0), {}, 1, jax.random.key(3))
    return prepared.at(jnp.asarray(X), OFFSET)


NORMAL_LOGITS = (1.2 * X + np.asarray(OFFSET))[:, 0], X[:, 0] ** 2 / 2


def over_logits(of: Callable[[Any], Any]) -> Any:
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    f = NORMAL_LOGITS[0] + np.sqrt(NORMAL_LOGITS[1]) * nodes[:, None]
    return np.tensordot(weights / weights.sum(), of(pairs(special.expit(f))), 1)


classes("linearised", lambda: of_two_classes(Linearised()), over_logits(lambda p: p), over_logits(entropy))
PROBIT = NORMAL_LOGITS[0] / np.sqrt(1 + np.pi / 8 * NORMAL_LOGITS[1])
classes("probit", lambda: of_two_classes(Probit()), pairs(special.expit(PROBIT)), over_logits(entropy))
# Two classes of logits −f/2 and f/2 with variances v/4: α_k = (1 + e^{m_k} Σ e^{−m_l})/v, of which 1 − 2/K is zero.
BRIDGE = np.stack([np.exp(s * NORMAL_LOGITS[0] / 2) for s in (-1, 1)], axis=-1)
classes("laplace bridge", lambda: of_two_classes(LaplaceBridge()), BRIDGE / BRIDGE.sum(-1, keepdims=True))
classes(
    "classes of a graph",
    lambda: graph_entries(Categorical(3), LOGITS, [0.0, 0.0]),
    P.mean(0),
    entropy(P).mean(0),
)


# Some rows at a time.

MANY = np.linspace(-1.0, 2.0, 5)[:, None]


def prepared(likelihood: Any) -> Any:
    belief = about([[0.4, -0.3, 0.9]] if isinstance(likelihood, Categorical) else [[0.4]], 4.0)
    return Sampled().prepare(model_of(likelihood), belief, {}, 3, jax.random.key(3))


def cut(likelihood: Any, whole: bool) -> Any:
    made, x, offset = prepared(likelihood), jnp.asarray(MANY), jnp.asarray(MANY)[:, 0] ** 2
    return made.at(x, offset) if whole else Deferred(made, x, offset, rows=2)


FIVE = jnp.linspace(0.5, 2.0, 5)
CUT: dict[str, Callable[[Any], Any]] = {
    "deferred counts": lambda whole: cut(Poisson(), whole),
    "deferred classes": lambda whole: cut(Categorical(3), whole),
    "deferred and moved": lambda whole: Moved(cut(lamu.likelihoods.Gaussian(0.5), whole), -FIVE, FIVE),
    "deferred and widened": lambda whole: Widened(cut(lamu.likelihoods.Gaussian(0.5), whole), 1.5),
    "deferred and tempered": lambda whole: TemperedClasses(cut(Categorical(3), whole), 1.5),
    "deferred trials": lambda whole: OfTrials(cut(Binomial(), whole), jnp.array([3.0, 7.0, 1.0, 12.0, 4.0])),
    "deferred and weighted": lambda whole: Weighted((cut(Poisson(), whole), cut(Poisson(), whole)), LOG_W),
    "one part deferred": lambda whole: Weighted(
        (cut(Poisson(), whole), mixture(Poisson(), np.tile(F[:, :1], (1, 5, 1)))), LOG_W
    ),
}
for name, subject in CUT.items():
    ROW[name] = row("predictives", name, partial(subject, False), "deferred", whole=partial(subject, True))


def holes(whole: bool) -> Any:
    made = partial(of_inputs, drawn=True)
    return InputMixture.in_memory(made, COMPLETIONS) if whole else CompletedRows(made, COMPLETIONS, at_once=2)


ROW["rows with holes, some at a time"] = row(
    "predictives",
    "rows with holes, some at a time",
    partial(holes, False),
    "deferred",
    whole=partial(holes, True),
    same_draws=False,  # each block folds its own number into the key
)
PIXELS = np.linspace(-1.0, 2.0, 8)[:, None]
ROW["deferred positions"] = row(
    "predictives",
    "deferred positions",
    lambda: AtPositions(Deferred(prepared(Poisson()), jnp.asarray(PIXELS), None, rows=4), (2,)),
    "deferred",
    whole=lambda: AtPositions(prepared(Poisson()).at(jnp.asarray(PIXELS), None), (2,)),
)


# What laws ask of a prediction, once a row.


@cache
def prediction(name: str) -> Any:
    return SUBJECTS[name]()


SUBJECTS: dict[str, Callable[[], Any]] = {}


def of(row: Row) -> Any:
    SUBJECTS[row.name] = row.subject
    return prediction(row.name)


@cache
def grid(name: str, traits: frozenset[str]) -> tuple[np.ndarray, np.ndarray]:
    """Points that the numbers of two rows may be, with the widths that make a sum over them an integral."""
    pred = prediction(name)
    mean, std = np.asarray(pred.mean, float), np.asarray(pred.std, float)
    lower, upper = (math.isfinite(end) for end in (pred.support.lower, pred.support.upper))
    if pred.support.discrete:
        points = np.arange(0.0, mean.max() + 40 * std.max() + 20)
        return np.tile(points[:, None], (1, 2)), np.ones((len(points), 2))
    if lower and not upper:
        t = np.linspace(-22.0, 4.5, 1000)[:, None]
        points, slope = mean * np.exp(t), mean * np.exp(t)
    elif lower:
        t = np.linspace(-25.0, 25.0, 1000)[:, None]
        points = special.expit(t) + np.zeros(2)
        slope = special.expit(t) * special.expit(-t) + np.zeros(2)
    else:
        t = np.linspace(-9.0, 9.0, 720)[:, None]
        points, slope = mean + std * np.sinh(t), std * np.cosh(t)
    return points, slope * (t[1] - t[0])


@cache
def masses(name: str, traits: frozenset[str]) -> np.ndarray:
    points, widths = grid(name, traits)
    log_density = jax.jit(partial(jax.lax.map, prediction(name).log_prob))
    return np.exp(np.asarray(log_density(jnp.asarray(points)), float)) * widths


def atoms_of(row: Row) -> list[tuple[float, np.ndarray]]:
    pred = of(row)
    return [(at, np.exp(np.asarray(pred.log_prob(jnp.full(2, at)), float))) for at in row.extras.get("atoms", ())]


def summed(row: Row, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The expectation of a function under the density of each row."""
    of(row)
    points, found = grid(row.name, row.traits)[0], masses(row.name, row.traits)
    return (found * function(points)).sum(axis=0) + sum(p * function(np.full(2, at)) for at, p in atoms_of(row))


PLACES = (0.1, 0.5, 0.8)


@cache
def some_targets(name: str) -> list[Any]:
    """Targets in the support, below and above the mean."""
    pred = prediction(name)
    found = [pred.mean + away * pred.std for away in (-0.6, 0.1, 0.9)]
    found = [jnp.round(y) + 0.0 for y in found] if pred.support.discrete else found
    if math.isfinite(pred.support.upper):
        found = [jnp.minimum(y, (pred.support.upper + pred.mean) / 2) for y in found]
    return [jnp.maximum(y, (pred.support.lower + pred.mean) / 2 if not pred.support.discrete else 0.0) for y in found]


@law("predictives", when="number")
def the_density_is_the_one_written_by_hand(row: Row) -> None:
    pred = of(row)
    for y in some_targets(row.name):
        np.testing.assert_allclose(np.exp(pred.log_prob(y)), row.extras["density"](np.asarray(y)), rtol=2e-5)


@law("predictives", when="number")
def moments_are_those_of_the_density(row: Row) -> None:
    pred = of(row)
    np.testing.assert_allclose(summed(row, np.ones_like), 1.0, rtol=1e-5)
    mean = summed(row, lambda y: y)
    np.testing.assert_allclose(pred.mean, mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(pred.variance, summed(row, lambda y: (y - mean) ** 2), rtol=1e-4)
    np.testing.assert_allclose(pred.std**2, pred.variance, rtol=1e-6)


@law("predictives", when="number")
def the_distribution_function_is_the_sum_of_the_density(row: Row) -> None:
    pred = of(row)
    points, mass = grid(row.name, row.traits)[0], masses(row.name, row.traits)
    before = np.cumsum(mass, axis=0) - (0 if "whole_numbers" in row.traits else mass / 2)
    before = before + sum(p for _, p in atoms_of(row))
    steps = np.array([int(np.argmin(np.abs(before[:, 0] - p))) for p in (0.15, 0.5, 0.85)])
    for k in steps:
        y = jnp.asarray(points[k])
        np.testing.assert_allclose(pred.cdf(y), before[k], atol=3e-4)
        if "whole_numbers" in row.traits:
            np.testing.assert_allclose(pred.cdf(y + 0.5), before[k], atol=3e-4)


@law("predictives")
def quantiles_and_intervals_hold_what_they_say(row: Row) -> None:
    if "classes" in row.traits or "deferred" in row.traits:
        return
    pred = of(row)
    jump = pred.support.discrete
    less = lambda y: np.asarray(pred.cdf(y - 1.0 if jump else y - 1e-6 * (1e-6 + jnp.abs(y))), float)
    for place in PLACES:
        y = pred.quantile(place)
        reached = np.asarray(pred.cdf(y), float)
        at_atom = np.isin(np.asarray(y), row.extras.get("atoms", ()))
        assert (reached >= place - 1e-5).all()
        assert (less(y) <= place + 1e-5).all()
        assert (jump | at_atom | (np.abs(reached - place) < 1e-5)).all()
    for level in (0.5, 0.9):
        lower, upper = pred.interval(level)
        held = np.asarray(pred.cdf(upper), float) - less(lower) * (np.asarray(lower) > float(pred.support.lower))
        assert (held >= level - 2e-5).all()
        if not jump:
            assert (np.isin(np.asarray(lower), row.extras.get("atoms", ())) | (held <= level + 2e-5)).all()
            continue
        # Of whole numbers neither end can move inwards.
        shorter = np.asarray(pred.cdf(upper - 1.0), float) - less(lower) * (np.asarray(lower) > 0)
        assert (shorter < level + 1e-5).all()


@law("predictives")
def draws_fall_as_often_as_the_distribution_says(row: Row) -> None:
    """Shares of 1,000 draws within five standard errors: a right one fails in 1e-5 of the seeds of all rows."""
    if "deferred" in row.traits:
        return
    pred, n = of(row), 1000
    sample = np.asarray(pred.sample(jax.random.key(11), n))
    if "classes" in row.traits:
        assert np.asarray(pred.support.contains(sample)).all()
        p, sample = row.extras["p"], pred.support.numbers(sample)
        shares = np.stack([(sample == k).mean(axis=0) for k in range(p.shape[1])], axis=-1)
        assert (np.abs(shares - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-9).all()
        return
    assert np.asarray(pred.support.contains(sample)).all()
    for y in some_targets(row.name):
        reached = np.asarray(pred.cdf(y), float)
        share = (sample <= np.asarray(y) + 1e-9).mean(axis=0)
        assert (np.abs(share - reached) <= 5 * np.sqrt(reached * (1 - reached) / n) + 1e-9).all()
    if "several" in row.traits:
        away = sample - np.asarray(pred.mean)
        covariance = np.einsum("snk,snl->nkl", away, away) / n
        C = row.extras["covariance"]
        error = np.sqrt((np.einsum("nk,nl->nkl", *[np.diagonal(C, axis1=1, axis2=2)] * 2) + C**2) / n)
        assert (np.abs(covariance - C) <= 5 * error).all()


@law("predictives")
def both_kinds_of_uncertainty_make_up_the_whole(row: Row) -> None:
    if "deferred" in row.traits:
        return
    pred = of(row)
    whole = entropy(row.extras["p"]) if "classes" in row.traits else np.asarray(pred.variance, float)
    for part in (pred.aleatoric, pred.epistemic):
        assert part.shape == whole.shape
        assert (np.asarray(part) >= -1e-9).all()
    np.testing.assert_allclose(pred.aleatoric + pred.epistemic, whole, rtol=1e-5)
    np.testing.assert_allclose(pred.total, whole, rtol=1e-5)
    if row.extras.get("epistemic") is not None:
        np.testing.assert_allclose(pred.epistemic, row.extras["epistemic"], rtol=1e-5, atol=1e-9)
    if row.extras.get("aleatoric") is not None:
        np.testing.assert_allclose(pred.aleatoric, row.extras["aleatoric"], rtol=1e-5, atol=1e-9)


@law("predictives", when="draws")
def without_a_draw_the_density_is_that_of_the_others(row: Row) -> None:
    """The mean over draws of the density without each of them is the density; the error is the jackknife's."""
    pred = of(row)
    y = jnp.array([0, 1]) if "classes" in row.traits else some_targets(row.name)[0]
    groups, density = pred.left_out(y), np.asarray(pred.log_prob(y), float)
    assert groups
    square = 0.0
    for group in groups:
        assert group.shape == (2, 2)
        np.testing.assert_allclose(special.logsumexp(group, axis=0) - math.log(2), density, rtol=1e-6)
        assert (np.abs(group[0] - group[1]) > 1e-3).any()
        rows = np.asarray(group, float).mean(axis=1)
        square += ((rows - rows.mean()) ** 2).sum() / 2
    np.testing.assert_allclose(pred.monte_carlo_error(y), math.sqrt(square), rtol=1e-6)


@law("predictives", when="censored")
def what_is_known_to_lie_in_a_range_has_its_probability(row: Row) -> None:
    """Row 0 lies beyond its value, or between two; row 1 is known."""
    pred = of(row)
    y = some_targets(row.name)[1]
    known = np.log(row.extras["density"](np.asarray(y)))[1]
    if row.extras["second"] == "upper":
        targets = {"value": y, "upper": y * jnp.array([1.5, 1.0])}
        expected = np.asarray(pred.cdf(targets["upper"]) - pred.cdf(y))[0]
    else:
        targets = {"value": y, "censored": jnp.array([1, 0])}
        expected = np.asarray(pred.cdf(y) if row.extras["sign"] < 0 else 1 - pred.cdf(y))[0]
    np.testing.assert_allclose(pred.log_prob(targets), [math.log(expected), known], rtol=1e-5)


@law("predictives", when="several")
def the_density_of_several_outputs_is_theirs_together(row: Row) -> None:
    pred, density = of(row), row.extras["density"]
    mean, std = np.asarray(pred.mean, float), np.asarray(pred.std, float)
    np.testing.assert_allclose(std**2, np.diagonal(row.extras["covariance"], axis1=1, axis2=2), rtol=1e-6)
    for away in ([0.3, -0.8], [-1.2, 0.5]):
        y = mean + std * np.array(away)
        np.testing.assert_allclose(np.exp(pred.log_prob(jnp.asarray(y))), density(y), rtol=1e-6)
        np.testing.assert_allclose(pred.cdf(jnp.asarray(y)), stats.norm.cdf([away] * 2), rtol=1e-6)


@law("predictives", when="classes")
def classes_have_the_probabilities_written_by_hand(row: Row) -> None:
    pred, p = of(row), row.extras["p"]
    binary = pred.support.task == "binary"
    np.testing.assert_allclose(pred.mean, p[:, 1] if binary else p, rtol=2e-5)
    np.testing.assert_allclose(pred.probabilities, p, rtol=2e-5)
    np.testing.assert_allclose(pred.variance, (p * (1 - p))[:, 1] if binary else p * (1 - p), rtol=2e-5)
    for k in range(p.shape[1]):
        target = 2 * k - 1 if isinstance(pred.support, lamu.supports.Signs) else k
        np.testing.assert_allclose(np.exp(pred.log_prob(jnp.full(2, target))), p[:, k], rtol=2e-5)
    sets = np.asarray(pred.prediction_set(0.75))
    for chosen, each in zip(sets, p, strict=True):
        assert each[chosen].sum() >= 0.75
        assert each[chosen].sum() - each[chosen].min() < 0.75
    for question in (lambda: pred.interval(0.9), lambda: pred.quantile(0.5)):
        with pytest.raises(TypeError):
            question()


@law("predictives")
def the_best_action_is_taken(row: Row) -> None:
    if "deferred" in row.traits or "several" in row.traits:
        return
    pred = of(row)
    if "classes" in row.traits:
        p = row.extras["p"]
        utility = np.array([[1.0, 0.0, -4.0], [0.3, 0.5, 0.2]])[:, : p.shape[1]]
        np.testing.assert_array_equal(pred.decide(utility), np.argmax(p @ utility.T, axis=1))
        return
    actions = np.asarray(pred.mean, float) + np.array([[-3.0], [0.2], [4.0]]) * np.asarray(pred.std, float)
    squares = lambda y: -((y[None] - jnp.asarray(actions)[:, None]) ** 2)
    np.testing.assert_array_equal(pred.decide(squares), [1, 1])


@law("predictives", when="deferred")
def some_rows_at_a_time_are_all_of_them(row: Row) -> None:
    pred, whole = of(row), row.extras["whole"]()
    assert pred.deferred
    assert pred.support == whole.support
    for name in ("mean", "variance", "std", "aleatoric", "epistemic", "total"):
        np.testing.assert_allclose(getattr(pred, name), getattr(whole, name), rtol=1e-9, err_msg=name)
    sizes = [np.arange(len(whole.mean))[rows] for rows, _ in pred.chunks()]
    np.testing.assert_array_equal(np.concatenate(sizes), np.arange(len(whole.mean)))
    for rows, part in pred.chunks():
        np.testing.assert_allclose(part.mean, whole.mean[rows], rtol=1e-9)
    if row.extras.get("same_draws", True):
        drawn = [each.sample(jax.random.key(2), 4, first=3) for each in (pred, whole)]
        np.testing.assert_allclose(*drawn, rtol=1e-9)
    else:
        assert pred.sample(jax.random.key(2), 4).shape == (4, *whole.mean.shape)
    if pred.support.has_classes:
        y = jnp.argmax(whole.mean, axis=-1)
        np.testing.assert_array_equal(pred.prediction_set(0.6), whole.prediction_set(0.6))
        np.testing.assert_array_equal(pred.decide(np.eye(3)), whole.decide(np.eye(3)))
    else:
        y = whole.quantile(0.6)
        np.testing.assert_allclose(pred.cdf(y), whole.cdf(y), rtol=1e-9)
        np.testing.assert_allclose(pred.quantile(0.6), y, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(pred.interval(0.6), whole.interval(0.6), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(pred.log_prob(y), whole.log_prob(y), rtol=1e-9)
    for cut_group, group in zip(pred.left_out(y), whole.left_out(y), strict=True):
        np.testing.assert_allclose(cut_group, group, rtol=1e-9)
    error = whole.monte_carlo_error(y)
    assert error > 0
    np.testing.assert_allclose(pred.monte_carlo_error(y), error, rtol=1e-6)


# Broken twins: a wrapper whose base is right, and one member wrong.


def lying(name: str, **members: Any) -> Callable[[], Any]:
    def make() -> Any:
        false = object.__new__(type("Lying", (PredictiveWrapper,), members))
        object.__setattr__(false, "base", ROW[name].subject())
        return false

    return make


def plant(name: str, fault: str, laws: str, **members: Any) -> None:
    twin(ROW[name], fault, laws, lying(name, **members))


plant(
    "weighted",
    "of equal weights",
    "the_density_is_the_one_written_by_hand",
    log_prob=lambda self, y: Weighted.equal(self.base.parts).log_prob(y),
)
plant(
    "widened",
    "without the Jacobian",
    "the_density_is_the_one_written_by_hand moments_are_those_of_the_density",
    log_prob=lambda self, y: self.base.log_prob(y) + math.log(1.8),
)
plant(
    "joint normal, widened",
    "with the Jacobian of one output",
    "the_density_of_several_outputs_is_theirs_together",
    log_prob=lambda self, y: self.base.log_prob(y) + math.log(1.8),
)
plant(
    "weighted",
    "whose variance lacks that of the means",
    "moments_are_those_of_the_density both_kinds_of_uncertainty_make_up_the_whole",
    variance=property(lambda self: self.base.average(self.base.each(lambda part, _: part.variance))),
)
plant(
    "mixture of normals",
    "whose mean is shifted",
    "moments_are_those_of_the_density the_best_action_is_taken",
    mean=property(lambda self: self.base.mean + 2 * self.base.std),
)
plant(
    "draws of counts",
    "whose cdf is of less",
    "the_distribution_function_is_the_sum_of_the_density quantiles_and_intervals_hold_what_they_say",
    cdf=lambda self, y: self.base.cdf(y - 1.0),
)
plant(
    "mixture of normals",
    "whose quantile is of the other side",
    "quantiles_and_intervals_hold_what_they_say",
    quantile=lambda self, p: self.base.quantile(1 - p),
)
plant(
    "student",
    "whose draws are wider",
    "draws_fall_as_often_as_the_distribution_says",
    sample=lambda self, key, n, first=0: (
        self.base.mean[None] + 1.5 * self.base.std[None] * jax.random.normal(key, (n, 2))
    ),
)
plant(
    "joint normal",
    "whose draws are independent",
    "draws_fall_as_often_as_the_distribution_says",
    sample=lambda self, key, n, first=0: self.base.mean[None] + self.base.std[None] * jax.random.normal(key, (n, 2, 2)),
)
plant(
    "moved draws",
    "whose densities without a draw have another unit",
    "without_a_draw_the_density_is_that_of_the_others",
    left_out=lambda self, y: self.base.base.left_out(self.base.target_rows(y)),
)
plant(
    "censored times, moved and weighted",
    "with a unit for rows that are censored",
    "what_is_known_to_lie_in_a_range_has_its_probability",
    log_prob=lambda self, y: self.base.log_prob(y) - (math.log(2.0) if isinstance(y, dict) else 0.0),
)
plant(
    "weighted classes",
    "whose probabilities are of equal weights",
    "classes_have_the_probabilities_written_by_hand",
    mean=property(lambda self: Weighted.equal(self.base.parts).mean),
)
plant(
    "mixture of classes",
    "that takes the worst action",
    "the_best_action_is_taken",
    decide=lambda self, utility: self.base.decide(-utility),
)
plant(
    "tempered classes",
    "whose epistemic part is the base's",
    "both_kinds_of_uncertainty_make_up_the_whole",
    epistemic=property(lambda self: self.base.base.epistemic),
)
plant(
    "deferred trials",
    "whose chunks have the trials of the first rows",
    "some_rows_at_a_time_are_all_of_them",
    chunks=lambda self: (
        (rows, OfTrials(part, self.base.trials[: len(part.mean)])) for rows, part in self.base.base.chunks()
    ),
)
