"""Supports: which targets are taken, and what follows from the kind of a target."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import lamu
from lamu.likelihoods import Binomial, Gamma, NegativeBinomial, Poisson, Tobit, Weibull, ZeroInflated
from lamu.likelihoods.table import LIKELIHOODS
from lamu.predictives import MixturePredictive, Predictive, Weighted
from lamu.record import record
from lamu.supports import (
    Circle,
    Classes,
    Counts,
    OpenRange,
    OrderedClasses,
    PositiveReal,
    Rankings,
    Real,
    Support,
    TwoClasses,
    UnitInterval,
)
from tests.for_each import for_each

ALL = [
    Circle(),
    Classes(3),
    Counts(),
    OrderedClasses(3),
    PositiveReal(),
    Rankings(3),
    Real(),
    TwoClasses(),
    UnitInterval(),
]


NUMBERS = [name for name, (task, _) in LIKELIHOODS.items() if task == "regression"]


@pytest.mark.parametrize("name", NUMBERS)
def test_the_density_outside_of_the_support_is_zero(name: str) -> None:
    """Poisson had a density of half a count, and NaN with a warning of its draws at minus one."""
    likelihood = LIKELIHOODS[name][1](2)
    y = jnp.asarray([-1.0, 0.0, 0.5, 1.0, 1.2, 3.0, jnp.inf])
    inside = np.asarray(likelihood.support.contains(y))
    learned = likelihood.init(jnp.asarray([0.2, 0.4, 0.8]) if name == "beta" else jnp.asarray([1.0, 1.0, 2.0, 5.0]))
    outputs = jnp.full((2, len(y), likelihood.outputs(jnp.ones(3))), 0.3)
    pred = MixturePredictive.equal(likelihood, jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), learned), outputs)
    found = np.asarray(pred.log_prob(y))
    assert np.isfinite(found[inside]).all()
    assert (found[~inside] == -np.inf).all()
    assert not inside.all()
    at_inner = np.asarray(pred.log_prob(np.where(inside, y, likelihood.support.some(y))))
    np.testing.assert_allclose(found[inside], at_inner[inside], rtol=1e-12)


@for_each(
    "support, inside, outside",
    [
        (Real(), [0.0, -3.5], [np.nan, np.inf]),
        (PositiveReal(), [1e-30, 2.0], [0.0, -1.0, np.inf]),
        (PositiveReal(zero=True), [0.0, 2.0], [-1e-30]),
        (UnitInterval(), [0.1, 0.9], [0.0, 1.0, np.nan]),
        (Circle(), [-9.0, 9.0], [np.nan]),
        (Counts(), [0, 7.0, 1e6], [-1, 0.5, np.nan, np.inf]),
        (Counts(most=4), [0, 4], [5]),
        (TwoClasses(), [0, 1.0, True], [2, -1, 0.5, np.nan]),
        (Classes(3), [0, 2], [3, -1, 0.5, np.nan]),
        (OrderedClasses(3), [0, 2], [3, -1, 0.5]),
        (Rankings(3), [[2, 0, 1]], [[0, 0, 1], [1, 2, 3]]),
    ],
)
def test_what_is_outside_is_refused_with_its_row(support: Support, inside: list, outside: list) -> None:
    support.check(np.asarray(inside), "A")
    for value in outside:
        with pytest.raises(ValueError, match=f"the target in row {len(inside)} is .*, and A takes"):
            support.check(np.asarray([*inside, value]), "A")
    with pytest.raises(ValueError, match="is not a number, and A takes"):
        support.check(np.asarray(["a"]), "A")


@pytest.mark.parametrize("support", ALL, ids=str)
def test_facts_agree_with_each_other(support: Support) -> None:
    rows = support.zeros(5)
    assert rows.shape == (5,)
    assert jnp.issubdtype(rows.dtype, jnp.integer) is support.has_classes
    assert support.has_classes is (support.task != "regression")
    assert ("coverage" in support.scores) is (support.ordered and not support.has_classes)
    assert all(callable(getattr(lamu.scores, name)) for name in support.scores)
    assert not (support.affine and support.discrete)
    assert support == type(support)(**vars(support))
    assert hash(support) == hash(type(support)(**vars(support)))
    if not support.has_classes:
        with pytest.raises(TypeError, match="no class probabilities"):
            support.probabilities(np.zeros(5))


def test_classes_say_how_a_mean_is_read() -> None:
    p = np.array([0.2, 0.7])
    np.testing.assert_allclose(TwoClasses().probabilities(p), [[0.8, 0.2], [0.3, 0.7]])
    assert TwoClasses().labels(p).tolist() == [False, True]
    assert TwoClasses().shape((2,)) == (2,)
    table = np.array([[0.2, 0.5, 0.3]])
    assert Classes(3).probabilities(table) is table
    assert Classes(3).labels(table).tolist() == [1]
    assert Classes(3).shape((1, 3)) == (1,)
    assert Classes(3).indicators(jnp.array([1]), jnp.asarray(table)).tolist() == [[0.0, 1.0, 0.0]]
    assert Real().labels(p) is p


@record
class _Counted(lamu.likelihoods.Likelihood):
    """Counts of rate e^f."""

    support = Counts()

    def distribution(self, params, f):
        return dist.Poisson(jnp.exp(f[:, 0]))


@record
class _Angle(lamu.likelihoods.Likelihood):
    """Angles around f."""

    support = Circle()

    def distribution(self, params, f):
        return dist.VonMises(f[:, 0], 2.0)


@pytest.mark.parametrize("rate", [0.02, 0.7, 3.0, 40.0, 3000.0])
@pytest.mark.parametrize("probability", [0.05, 0.3, 0.5, 0.95, 0.975])
def test_quantiles_of_counts_are_whole_numbers_exactly(rate: float, probability: float) -> None:
    pred = MixturePredictive.equal(_Counted(), {}, jnp.log(jnp.full((1, 1, 1), rate)))
    assert float(pred.quantile(probability)[0]) == stats.poisson.ppf(probability, rate)


@pytest.mark.parametrize("f", [25.0, 32.0, 40.0])
@pytest.mark.parametrize(
    ("likelihood", "of"),
    [
        (NegativeBinomial(2.0), lambda mean: stats.gamma(2.0, scale=mean / 2.0)),  # of which it is the limit
        (Gamma(2.0), lambda mean: stats.gamma(2.0, scale=mean / 2.0)),
        (Weibull(1.5), lambda mean: stats.weibull_min(1.5, scale=mean / special.gamma(1 + 1 / 1.5))),
    ],
)
def test_intervals_of_large_means_have_a_width_in_float32(f: float, likelihood, of) -> None:
    pred = MixturePredictive.equal(likelihood, {}, jnp.full((1, 1, 1), f, jnp.float32))
    lower, upper = pred.interval(0.9)
    reference = of(float(pred.mean[0]))
    np.testing.assert_allclose([lower[0], upper[0]], reference.ppf([0.05, 0.95]), rtol=1e-3)


def test_a_likelihood_of_ones_own_has_quantiles_of_any_mean() -> None:
    pred = MixturePredictive.equal(_Counted(), {}, jnp.full((1, 1, 1), 25.0, jnp.float32))
    np.testing.assert_allclose(pred.quantile(0.95), np.exp(25.0), rtol=1e-4)


def test_quantiles_of_a_weighted_average_of_counts_are_whole_numbers() -> None:
    """Of two kinds of prediction, whose average is no mixture of one likelihood."""
    parts = tuple(
        MixturePredictive.equal(kind, {}, jnp.log(jnp.full((1, 1, 1), 3.0))) for kind in (_Counted(), Poisson())
    )
    assert float(Weighted.equal(parts).quantile(0.95)[0]) == stats.poisson.ppf(0.95, 3.0)


def test_angles_have_no_quantiles() -> None:
    with pytest.raises(TypeError, match="angles in radians have no order"):
        MixturePredictive.equal(_Angle(), {}, jnp.zeros((1, 1, 1))).interval(0.9)


def test_counts_below_their_interval_are_covered_as_often_as_promised() -> None:
    """The smallest interval between quantiles holds at least its level, of rates where a step is large too."""
    rates = jnp.asarray([0.05, 0.5, 1.5, 4.0])
    pred = MixturePredictive.equal(_Counted(), {}, jnp.log(rates)[None, :, None])
    lower, upper = (np.asarray(end) for end in pred.interval(0.9))
    draws = np.asarray(jax.random.poisson(jax.random.key(0), rates, (4000, 4)))
    # Four standard errors of 4,000 draws below 0.9; a failure in 30,000 seeds.
    assert (np.mean((lower <= draws) & (draws <= upper), axis=0) > 0.9 - 4 * np.sqrt(0.09 / 4000)).all()


@record
class _Waiting(MixturePredictive):
    deferred = True
    _quantile = Predictive._quantile  # uncompiled, as all that is deferred


@pytest.mark.parametrize(("kind", "x64"), [(MixturePredictive, True), (MixturePredictive, False), (_Waiting, False)])
def test_neither_end_of_an_interval_of_counts_can_move_inwards(x64: bool, kind: type[MixturePredictive]) -> None:
    rates = np.array([0.05, 0.5, 1.5, 4.0, 60.0])
    with jax.enable_x64(x64):
        pred = kind.equal(Poisson(), {}, jnp.log(jnp.asarray(rates))[None, :, None])
        lower, upper = (np.asarray(end, float) for end in pred.interval(0.9))
    of = stats.poisson(rates)
    held = of.cdf(upper) - of.cdf(lower - 1)
    assert (held >= 0.9 - 1e-6).all()
    assert (held - of.pmf(lower) < 0.9).all()
    assert (held - of.pmf(upper) < 0.9).all()
    assert (upper <= of.ppf(0.95)).all()
    assert upper[2] < of.ppf(0.95)[2], "where nothing lies below, all of the rest lies above"


@pytest.mark.parametrize("likelihood", [NegativeBinomial(0.7), ZeroInflated(Poisson()), Binomial(12)], ids=repr)
def test_intervals_of_other_counts_start_and_end_where_their_masses_say(likelihood) -> None:
    f = jnp.array([[-3.0], [-0.5], [0.4], [1.5]])
    f = jnp.concatenate([f, jnp.full_like(f, -1.0)], axis=1) if isinstance(likelihood, ZeroInflated) else f
    pred = MixturePredictive.equal(likelihood, {}, f[None])
    lower, upper = (np.asarray(end, int) for end in pred.interval(0.9))
    numbers = np.arange(400 if not isinstance(likelihood, Binomial) else 13)
    mass = np.exp(np.stack([pred.log_prob(jnp.full(4, k)) for k in numbers]))
    held = [mass[a : b + 1, k].sum() for k, (a, b) in enumerate(zip(lower, upper, strict=True))]
    assert np.all(np.asarray(held) >= 0.9 - 1e-5)
    assert np.all(held - mass[lower, range(4)] < 0.9 + 1e-5)
    assert np.all(held - mass[upper, range(4)] < 0.9 + 1e-5)


RECORDED = np.array([-4.0, -2.5, -1.5, -0.8, 0.5])
LIMITS = (-2.0, 0.0)


@pytest.mark.parametrize(("probability", "dtype"), [(0.25, jnp.float64), (0.5, jnp.float32), (0.9, jnp.float32)])
def test_quantiles_are_the_limits_at_which_targets_pile_up(probability: float, dtype) -> None:
    """Of a Tobit model exactly the limit, of a mixture of draws and of a weighted average of such."""
    likelihood = Tobit(*LIMITS, scale=1.0)
    one = MixturePredictive.equal(likelihood, {}, jnp.asarray(RECORDED, dtype)[None, :, None])
    expected = np.clip(stats.norm.ppf(probability, RECORDED), *LIMITS)
    same = Weighted((one, one), jnp.log(jnp.array([0.3, 0.7], dtype)))
    for pred in (one, same):
        found = np.asarray(pred.quantile(probability))
        np.testing.assert_allclose(found, expected, atol=2e-6)
        at_end = (expected == LIMITS[0]) | (expected == LIMITS[1])
        np.testing.assert_array_equal(found[at_end], expected[at_end])


def test_a_weighted_average_ends_at_the_limit_too() -> None:
    """Half of the mass at the limit by one part, and none of it by the other, whose quantile lies far off."""
    parts = tuple(MixturePredictive.equal(Tobit(scale=1.0), {}, jnp.full((1, 1, 1), f)) for f in (-9.0, 9.0))
    assert float(Weighted.equal(parts).quantile(0.4)[0]) == 0.0


def test_intervals_hold_the_targets_at_a_limit() -> None:
    """Both tails are at most 5 %, so at least 90 % of draws lie within, and all of those at the limit."""
    pred = MixturePredictive.equal(Tobit(scale=1.0), {}, jnp.asarray([-1.0, 0.5, 1.0])[None, :, None])
    lower, upper = (np.asarray(end) for end in pred.interval(0.9))
    draws = np.asarray(pred.sample(jax.random.key(0), 4000))
    inside = (lower <= draws) & (draws <= upper)
    assert inside[draws == 0.0].all()
    assert (np.mean(inside, axis=0) > 0.9 - 4 * np.sqrt(0.09 / 4000)).all()


@pytest.mark.parametrize(
    ("ends", "at"), [((0.0, 1.0), 0.3), ((-2.0, np.inf), 3.5), ((-np.inf, 2.0), -1.5), ((-np.inf, np.inf), 0.7)]
)
def test_an_open_range_is_a_line_without_ends(ends: tuple[float, float], at: float) -> None:
    place = OpenRange(*ends)
    z = place.of(jnp.asarray(at))
    np.testing.assert_allclose(place.value(z), at, rtol=1e-6)
    np.testing.assert_allclose(place.log_slope(z), jnp.log(jnp.abs(jax.grad(place.value)(z))), rtol=1e-5, atol=1e-6)
