"""Scores against scikit-learn, closed forms and counts by hand, and the predictions that they refuse."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from jax.scipy.stats import norm
from scipy import stats
from sklearn import metrics
from sklearn.calibration import calibration_curve

import lamu
from lamu import scores
from lamu.data import Batch
from lamu.families import Point
from lamu.likelihoods import Gaussian, Poisson, Tobit
from lamu.model import Model
from lamu.networks import Linear
from lamu.predictives import Deferred, MixturePredictive, Sampled
from lamu.record import record
from lamu.scores.calibration import calibrated_gap, estimate
from lamu.scores.proper_scores import crps_of_rows
from lamu.supports import Classes, Real, TwoClasses
from tests.for_each import for_each

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 4, 200)
PROBABILITIES = RANDOM.dirichlet(np.ones(4), 200)
BITS = RANDOM.integers(0, 2, 200)
CHANCES = RANDOM.uniform(size=200)


def classes(p) -> SimpleNamespace:
    def log_prob(y):
        return jnp.log(jnp.asarray(p))[jnp.arange(len(p)), y]

    def prediction_set(level):
        order = np.argsort(-p, axis=1)
        before = np.cumsum(np.take_along_axis(p, order, 1), 1) - np.take_along_axis(p, order, 1)
        members = np.zeros(p.shape, bool)
        np.put_along_axis(members, order, before < level, 1)
        return members

    return SimpleNamespace(
        support=Classes(p.shape[-1]), mean=jnp.asarray(p), log_prob=log_prob, prediction_set=prediction_set
    )


def binary(p) -> SimpleNamespace:
    return SimpleNamespace(
        support=TwoClasses(), mean=jnp.asarray(p), log_prob=lambda y: jnp.log(jnp.where(y.astype(int) == 1, p, 1.0 - p))
    )


def normal(mean, std) -> SimpleNamespace:
    """Independent normal predictions; a trailing axis of outputs is summed in the density."""
    mean, std = jnp.broadcast_arrays(jnp.asarray(mean), jnp.asarray(std))

    def log_prob(y):
        each = norm.logpdf(y, mean, std)
        return each if each.ndim == 1 else jnp.sum(each, axis=1)

    def interval(level):
        return norm.ppf(0.5 - level / 2.0, mean, std), norm.ppf(0.5 + level / 2.0, mean, std)

    cdf = lambda z: norm.cdf(z, mean, std)
    return SimpleNamespace(support=Real(), mean=mean, std=std, log_prob=log_prob, interval=interval, cdf=cdf)


def test_scores_of_classes_are_scikit_learns() -> None:
    pred = classes(PROBABILITIES)
    assert np.isclose(scores.accuracy(pred, LABELS), metrics.accuracy_score(LABELS, PROBABILITIES.argmax(1)))
    assert np.isclose(scores.nll(pred, LABELS), metrics.log_loss(LABELS, PROBABILITIES))
    assert np.isclose(scores.brier(pred, LABELS), metrics.brier_score_loss(LABELS, PROBABILITIES))


@pytest.mark.parametrize("dtype", [bool, int, float])
def test_scores_of_a_binary_target_are_scikit_learns(dtype) -> None:
    pred, y = binary(CHANCES), BITS.astype(dtype)
    assert np.isclose(scores.accuracy(pred, y), metrics.accuracy_score(BITS, CHANCES > 0.5))
    assert np.isclose(scores.nll(pred, y), metrics.log_loss(BITS, CHANCES))
    assert np.isclose(scores.brier(pred, y), metrics.brier_score_loss(BITS, CHANCES))


def test_two_classes_score_as_the_binary_target_that_they_are() -> None:
    two, one = classes(np.stack([1.0 - CHANCES, CHANCES], axis=1)), binary(CHANCES)
    for score in (scores.accuracy, scores.nll, scores.ece):
        assert np.isclose(score(two, BITS), score(one, BITS))
    assert np.isclose(scores.brier(two, BITS), 2.0 * scores.brier(one, BITS))


def test_rmse_is_scikit_learns_in_the_targets_units() -> None:
    y, mean = RANDOM.normal(size=50), RANDOM.normal(size=50)
    assert np.isclose(scores.rmse(normal(mean, 1.0), y), metrics.root_mean_squared_error(y, mean))
    assert scores.rmse(normal(np.zeros((1, 2)), 1.0), np.array([[3.0, 1.0]])) == pytest.approx(np.sqrt(5.0))


def test_nll_of_several_outputs_is_joint_and_for_each_row() -> None:
    assert np.isclose(scores.nll(normal(np.zeros((3, 2)), 1.0), np.zeros((3, 2))), np.log(2.0 * np.pi))


def test_crps_of_a_normal_is_its_closed_form() -> None:
    """Gneiting et al. 2005, eq. 5; one target is 30 standard deviations away."""
    mean, std = np.array([0.0, 1.0, -2.0, 0.0]), np.array([1.0, 0.3, 2.0, 1.0])
    y = np.array([0.3, 1.0, 4.0, 30.0])
    z = (y - mean) / std
    closed = std * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi))
    assert np.isclose(scores.crps(normal(mean, std), y), np.mean(closed), rtol=1e-9)
    pair = normal(mean.reshape(2, 2), std.reshape(2, 2))
    assert np.isclose(scores.crps(pair, y.reshape(2, 2)), np.mean(closed), rtol=1e-9)


def test_crps_of_a_mixture_is_its_energy_form() -> None:
    """Grimit et al. 2006, eq. 5: E|Y − y| − ½ E|Y − Y'|; with components much narrower than the whole."""
    means, stds, y = np.array([-3.0, 0.0, 3.0]), np.array([0.05, 1.0, 0.05]), 0.4

    def distance(m, v):
        s = np.sqrt(v)
        return 2.0 * s * norm.pdf(m / s) + m * (2.0 * norm.cdf(m / s) - 1.0)

    pairs = distance(means[:, None] - means[None], stds[:, None] ** 2 + stds[None] ** 2)
    energy = np.mean(distance(y - means, stds**2)) - 0.5 * np.mean(pairs)
    std = np.sqrt(np.mean(stds**2 + means**2))
    cdf = lambda z: jnp.mean(norm.cdf(z[None], means[:, None], stds[:, None]), axis=0)
    pred = SimpleNamespace(support=Real(), mean=jnp.zeros(1), std=jnp.full(1, std), cdf=cdf)
    assert np.isclose(scores.crps(pred, np.array([y])), energy, rtol=1e-3)
    assert np.isclose(scores.crps(pred, np.array([y]), panels=1024), energy, rtol=1e-9)


def test_crps_of_a_sharp_prediction_is_the_absolute_error() -> None:
    assert np.isclose(scores.crps(normal([0.0], 1e-9), np.array([2.0])), 2.0, rtol=1e-6)


@pytest.mark.parametrize(("rate", "y"), [(0.5, 0), (3.0, 0), (3.0, 9), (40.0, 31)])
def test_crps_of_counts_is_a_sum_over_whole_numbers(rate: float, y: int) -> None:
    whole = np.arange(400)
    direct = np.sum((stats.poisson.cdf(whole, rate) - (whole >= y)) ** 2)
    pred = MixturePredictive.equal(Poisson(), {}, jnp.log(jnp.full((1, 1, 1), rate)))
    assert np.isclose(scores.crps(pred, np.array([y])), direct, rtol=1e-9)


def test_crps_of_large_counts_is_the_sum_to_five_digits() -> None:
    """One sum of few counts and one of 40,000, whose distribution function is taken at every ninth or so."""
    rates, y = np.array([2.0, 4e6]), np.array([3, 4_001_000])
    direct = []
    for rate, target in zip(rates, y, strict=True):
        whole = np.arange(max(0, int(rate - 12 * rate**0.5)), int(rate + 12 * rate**0.5) + 20)
        direct.append(np.sum((stats.poisson.cdf(whole, rate) - (whole >= target)) ** 2))
    pred = MixturePredictive.equal(Poisson(), {}, jnp.log(jnp.asarray(rates))[None, :, None])
    np.testing.assert_allclose(crps_of_rows(pred, y), direct, rtol=1e-5)


def test_crps_at_limits_is_the_integral_of_both_parts() -> None:
    """A Tobit's distribution function jumps at its limits, outside of which there is nothing to integrate."""
    pred = MixturePredictive.equal(Tobit(0.0, 2.0, scale=1.0), {}, jnp.full((1, 1, 1), 0.3))
    z = np.linspace(0.0, 2.0, 200_001)
    F = stats.norm.cdf(z, 0.3)
    direct = np.trapezoid(np.where(z < 0.5, F, 1.0 - F) ** 2, z)
    assert np.isclose(scores.crps(pred, np.array([0.5])), direct, rtol=1e-5)


def test_crps_of_a_deferred_prediction_is_that_of_the_same_in_memory() -> None:
    """Five rows, two at a time, the last chunk smaller; chunks of one shape trace the distribution function once."""
    traced = []

    @record
    class Counted(Gaussian):
        def cdf(self, params, f, y):
            traced.append(y.shape)
            return super().cdf(params, f, y)

    x, y = RANDOM.normal(size=(5, 2)), RANDOM.normal(size=5)
    model = Model(Linear(), Counted(0.5))
    params, state = model.init(jax.random.key(0), Batch.of(jnp.asarray(x), jnp.asarray(y)))
    prepared = Sampled().prepare(model, Point(params), state, samples=1, key=jax.random.key(1))
    expected = scores.crps(prepared.at(jnp.asarray(x), None), y)
    del traced[:]
    deferred = Deferred(prepared, x, None, rows=2)
    assert scores.crps(deferred, y) == pytest.approx(expected, rel=1e-9)
    assert scores.with_error(scores.crps, deferred, y).value == pytest.approx(expected, rel=1e-9)
    assert traced == [(2,), (1,)]


@pytest.mark.stress
def test_proper_scores_prefer_the_truth() -> None:
    """20 000 draws of N(0, 1): a wider, a narrower and a shifted prediction lose by far more than sampling error."""
    y = np.random.default_rng(1).normal(size=20_000)
    for score in (scores.nll, scores.crps):
        truth = score(normal(np.zeros_like(y), 1.0), y)
        assert all(truth < score(normal(np.full_like(y, m), s), y) for m, s in ((0.0, 1.5), (0.0, 0.6), (0.4, 1.0)))


def test_ece_by_hand() -> None:
    """Two bins of two: confidences 0.6 and 0.7 with one right, 0.8 and 0.9 with both right."""
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]])
    y = np.array([0, 1, 1, 1])
    assert np.isclose(scores.ece(classes(p), y, bins=2), 0.5 * abs(0.5 - 0.65) + 0.5 * abs(1.0 - 0.85))


def test_ece_bins_have_equal_mass_as_scikit_learns_quantiles() -> None:
    confidence = PROBABILITIES.max(1)
    right = PROBABILITIES.argmax(1) == LABELS
    truth, mean = calibration_curve(right, confidence, n_bins=10, strategy="quantile")
    assert np.isclose(scores.ece(classes(PROBABILITIES), LABELS, bins=10), np.mean(np.abs(truth - mean)))


def test_ece_does_not_depend_on_the_order_of_rows_nor_part_ties() -> None:
    p = np.repeat([[0.75, 0.25]], 8, axis=0)
    y = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    assert scores.ece(classes(p), y) == scores.ece(classes(p), y[::-1]) == 0.0


def test_ece_sees_overconfidence() -> None:
    sure = np.repeat([[1.0, 0.0]], 10, axis=0)
    assert np.isclose(scores.ece(classes(sure), np.arange(10) % 2), 0.5)
    with pytest.raises(ValueError, match="bins=0 is not"):
        scores.ece(classes(sure), np.zeros(10, int), bins=0)


def test_coverage_is_the_level_for_the_truth() -> None:
    """5000 draws: within five standard errors of the level, a false alarm with probability 6e-7 each."""
    y = np.random.default_rng(2).normal(size=5000)
    for level in (0.5, 0.9):
        error = 5.0 * np.sqrt(level * (1.0 - level) / len(y))
        assert abs(scores.coverage(normal(np.zeros_like(y), 1.0), y, level) - level) < error
    assert scores.coverage(normal(np.zeros((1, 2)), 1.0), np.array([[0.0, 9.0]])) == 0.5


def test_coverage_of_classes_counts_the_sets_that_hold_the_label() -> None:
    pred = classes(np.array([[0.95, 0.05, 0.0], [0.5, 0.45, 0.05], [0.5, 0.45, 0.05]]))
    assert np.isclose(scores.coverage(pred, np.array([1, 1, 2])), 1.0 / 3.0)


@pytest.mark.parametrize("score", [scores.accuracy, scores.brier, scores.ece])
def test_scores_of_labels_refuse_a_regression(score) -> None:
    with pytest.raises(ValueError, match=f"{score.__name__} is for classes.*'regression'"):
        score(normal(np.zeros(2), 1.0), np.zeros(2))


@pytest.mark.parametrize("score", [scores.rmse, scores.crps])
@pytest.mark.parametrize("pred", [classes(PROBABILITIES), binary(CHANCES)])
def test_scores_of_numbers_refuse_classes(score, pred) -> None:
    with pytest.raises(ValueError, match=f"{score.__name__} is for regression.*'{pred.support.task}'"):
        score(pred, LABELS)


@for_each("score", [scores.rmse, scores.nll, scores.crps, scores.coverage])
def test_targets_of_another_shape_never_broadcast(score) -> None:
    pred, y = normal(np.zeros(3), 1.0), np.array([0.5, -1.0, 2.0])
    with pytest.raises(ValueError, match=rf"{score.__name__} needs targets of shape \(3,\).*\(1, 3\)"):
        score(pred, y[None])
    for column in (y[:, None], y.astype(object), pd.DataFrame({"y": pd.array(y, "Float64")})):
        assert score(pred, column) == score(pred, y)
    with pytest.raises(ValueError, match="there are none"):
        score(normal(np.zeros(0), 1.0), np.zeros(0))


@for_each("score", [scores.rmse, scores.nll, lamu.calibration.conformal])
def test_a_posterior_or_a_pair_in_place_of_a_prediction_is_named(score) -> None:
    pred, y = normal(np.zeros(3), 1.0), np.zeros(3)
    with pytest.raises(TypeError, match=r"takes a prediction, posterior.predict\(x\), and pred=Posterior\("):
        score(lamu.regression(np.eye(3), np.arange(3.0)), y)
    with pytest.raises(TypeError, match=r"takes targets alone, and y is a tuple of 2"):
        score(pred, (np.zeros((3, 2)), y))


def test_a_column_of_labels_is_scored_as_labels() -> None:
    for score in (scores.accuracy, scores.nll, scores.brier, scores.ece):
        assert score(classes(PROBABILITIES), LABELS[:, None]) == score(classes(PROBABILITIES), LABELS)
    counts = MixturePredictive.equal(Poisson(), {}, jnp.zeros((1, 3, 1)))
    np.testing.assert_array_equal(counts.log_prob(np.array([2, 0, 1], object)), counts.log_prob(np.array([2, 0, 1])))


@pytest.mark.parametrize("level", [0.0, 1.0, 90.0])
def test_levels_are_probabilities(level) -> None:
    with pytest.raises(ValueError, match=f"level {level} is not between"):
        scores.coverage(normal(np.zeros(2), 1.0), np.zeros(2), level)


def test_scores_are_floats() -> None:
    with jax.enable_x64(False):
        regression = normal(np.zeros(3, np.float32), 1.0)
        for score in (scores.rmse, scores.nll, scores.crps, scores.coverage):
            assert type(score(regression, np.zeros(3))) is float
    for score in (scores.accuracy, scores.nll, scores.brier, scores.ece):
        assert type(score(classes(PROBABILITIES), LABELS)) is float


# Standard errors


def close(found: scores.Estimate, value: float, error: float) -> bool:
    return found.value == pytest.approx(value) and found.error == pytest.approx(error)


def test_errors_of_means_are_the_textbooks() -> None:
    pred, binary_pred = normal(RANDOM.normal(size=40), 1.3), binary(CHANCES)
    y = RANDOM.normal(size=40)
    surprise = -np.asarray(pred.log_prob(y))
    found = scores.with_error(scores.nll, pred, y)
    assert close(found, scores.nll(pred, y), surprise.std(ddof=1) / 40**0.5)
    p = scores.accuracy(binary_pred, BITS)
    found = scores.with_error(scores.accuracy, binary_pred, BITS)
    assert close(found, p, np.sqrt(p * (1 - p) / 199))
    inside = scores.coverage(pred, y, 0.5)
    found = scores.with_error(scores.coverage, pred, y, level=0.5)
    assert close(found, inside, np.sqrt(inside * (1 - inside) / 39))


def test_errors_of_statistics_are_what_repeated_tables_show() -> None:
    """Tables of 300 rows, drawn again and again: the mean standard error is the scores' own spread (seeded).

    The spread of 400 values has an error of 3.5 %, that of 100 values 7 %; the bootstrap of the calibration error,
    which is a sum of absolute values, is known to be rough.
    """
    random = np.random.default_rng(3)

    def table(score):
        if score is scores.ece:
            p = random.uniform(size=300)
            return binary(p), (random.uniform(size=300) < 0.5 * p).astype(int)
        return normal(np.zeros(300), 1.0), random.normal(size=300) * random.gamma(2.0, size=300)

    for score, tables, limit in ((scores.rmse, 400, 0.12), (scores.ece, 100, 0.25)):
        found = [scores.with_error(score, *table(score)) for _ in range(tables)]
        spread = np.std([each.value for each in found], ddof=1)
        assert np.mean([each.error for each in found]) == pytest.approx(spread, rel=limit), score.__name__


def test_errors_over_groups_are_what_repeated_tables_show() -> None:
    """Tables of 60 groups of five rows that share most of their error (seeded).

    The spread of 300 tables has an error of 4 %. Rows taken for independent have .5 and .6 of the spread.
    """
    random, groups = np.random.default_rng(5), np.repeat([f"patient {n}" for n in range(60)], 5)

    def table(score):
        shared = np.repeat(random.normal(size=60), 5)
        if score is scores.ece:
            return binary(np.full(300, 0.9)), (random.uniform(size=300) < np.where(shared > 0, 0.95, 0.2)).astype(int)
        return normal(np.zeros(300), 1.0), shared + 0.3 * random.normal(size=300)

    for score, count, limit in ((scores.nll, 300, 0.12), (scores.rmse, 300, 0.12), (scores.ece, 100, 0.25)):
        tables = [table(score) for _ in range(count)]
        found = [scores.with_error(score, *rows, groups=groups) for rows in tables]
        spread = np.std([each.value for each in found], ddof=1)
        assert np.mean([each.error for each in found]) == pytest.approx(spread, rel=limit), score.__name__
        assert np.mean([scores.with_error(score, *rows).error for rows in tables[:50]]) < 0.75 * spread


def test_groups_of_one_row_are_independent_rows_and_one_group_has_no_error() -> None:
    pred, other, y = normal(np.zeros(30), 1.0), normal(np.ones(30), 2.0), RANDOM.normal(size=30)
    for score in (scores.nll, scores.rmse):
        once = scores.with_error(score, pred, y)
        assert close(scores.with_error(score, pred, y, groups=np.arange(30)[::-1]), once.value, once.error)
        assert np.isnan(scores.with_error(score, pred, y, groups=np.zeros(30)).error)
    # Thirty copies of ten rows tell no more than the ten do.
    copied, named = np.tile(y[:10], 3), np.tile(np.arange(10), 3)
    once = scores.difference(scores.nll, normal(np.zeros(10), 1.0), normal(np.ones(10), 2.0), y[:10])
    thrice = scores.difference(scores.nll, pred, other, copied, groups=named)
    assert close(thrice, once.value, once.error)
    with pytest.raises(ValueError, match=r"groups has the shape \(3,\); pass one group a row, the shape \(30,\)"):
        scores.with_error(scores.nll, pred, y, groups=[1, 2, 3])


def test_a_row_of_weight_two_counts_twice_in_a_score_and_once_in_its_error() -> None:
    y, weight = RANDOM.normal(size=12), np.repeat([1.0, 2.0], 6)
    twice = normal(np.zeros(18), 1.0), np.append(y, y[6:])
    for score in (scores.nll, scores.rmse):
        found = scores.with_error(score, normal(np.zeros(12), 1.0), y, weight=weight)
        copies = scores.with_error(score, *twice, groups=np.append(np.arange(12), np.arange(6, 12)))
        assert close(found, copies.value, copies.error)
    with pytest.raises(ValueError, match="give 12 weights, not negative nor all zero"):
        scores.with_error(scores.nll, normal(np.zeros(12), 1.0), y, weight=np.ones(3))


def test_every_score_is_the_value_of_its_estimate() -> None:
    regression, y = normal(np.zeros((20, 2)), 1.0), RANDOM.normal(size=(20, 2))
    for score in (scores.rmse, scores.nll, scores.crps, scores.coverage):
        found = scores.with_error(score, regression, y)
        assert found.value == pytest.approx(score(regression, y))
        assert found.error > 0
    for score in (scores.accuracy, scores.nll, scores.brier, scores.ece, scores.coverage):
        found = scores.with_error(score, classes(PROBABILITIES), LABELS)
        assert found.value == pytest.approx(score(classes(PROBABILITIES), LABELS))
        assert found.error > 0
    assert scores.with_error(scores.ece, classes(PROBABILITIES), LABELS, bins=3).value == pytest.approx(
        scores.ece(classes(PROBABILITIES), LABELS, bins=3)
    )


def test_outputs_of_one_row_are_one_observation() -> None:
    """Repeating the output of a row adds no information, so that it must not shrink the error."""
    y = RANDOM.normal(size=30)
    once = scores.with_error(scores.rmse, normal(np.zeros(30), 1.0), y)
    twice = scores.with_error(scores.rmse, normal(np.zeros((30, 2)), 1.0), np.stack([y, y], axis=1))
    assert close(twice, once.value, once.error)


def test_one_row_has_an_unknown_error_and_no_spread_has_none() -> None:
    for score in (scores.nll, scores.rmse):
        assert np.isnan(scores.with_error(score, normal(np.zeros(1), 1.0), np.ones(1)).error)
    assert np.isnan(scores.with_error(scores.ece, binary(np.array([0.7])), np.array([1])).error)
    assert scores.with_error(scores.rmse, normal(np.zeros(3), 1.0), np.zeros(3)) == scores.Estimate(0.0, 0.0)
    assert scores.with_error(scores.nll, normal(np.zeros(3), 1.0), np.ones(3)).error == pytest.approx(0.0, abs=1e-12)


def test_a_difference_is_paired() -> None:
    y, mean = RANDOM.normal(size=60), RANDOM.normal(size=60)
    one, other = normal(mean, 1.0), normal(mean + 0.1, 1.0)
    apart = -np.asarray(one.log_prob(y)) + np.asarray(other.log_prob(y))
    found = scores.difference(scores.nll, one, other, y)
    assert close(found, apart.mean(), apart.std(ddof=1) / 60**0.5)
    assert found.error < 0.2 * scores.with_error(scores.nll, one, y).error
    for score in (scores.rmse, scores.crps, scores.coverage):
        assert scores.difference(score, one, one, y) == scores.Estimate(0.0, 0.0)
        found = scores.difference(score, one, other, y)
        assert found.value == pytest.approx(score(one, y) - score(other, y))
    assert scores.difference(scores.ece, binary(CHANCES), binary(CHANCES), BITS) == scores.Estimate(0.0, 0.0)


def test_the_error_of_the_calibration_error_is_the_same_each_time_and_of_many_rows_quick() -> None:
    random = np.random.default_rng(4)
    p = random.uniform(size=40_000)
    y = (random.uniform(size=40_000) < 0.8 * p).astype(int)
    small, large = (scores.with_error(scores.ece, binary(p[:n]), y[:n]) for n in (10_000, 40_000))
    assert large == scores.with_error(scores.ece, binary(p), y)
    assert large.error == pytest.approx(small.error / 2, rel=0.2)


def test_an_estimate_is_printed_to_the_second_digit_of_its_error() -> None:
    shown = {
        (0.97222, 0.00861): "0.9722 ± 0.0086",
        (123.456, 12.3): "123 ± 12",
        (5.0, 0.0): "5",
        (5.0, float("nan")): "5 ± ?",
        (1.0, 1e-12): "1 ± 1e-12",
        (-0.0312, 0.0996): "-0.031 ± 0.100",
    }
    assert {pair: str(scores.Estimate(*pair)) for pair in shown} == shown


def test_only_scores_of_this_package_have_errors() -> None:
    def acuracy(pred, y):
        return 0.0

    with pytest.raises(ValueError, match=r"'acuracy' is not a score.*did you mean 'accuracy'"):
        scores.with_error(acuracy, binary(CHANCES), BITS)


def test_reliability_counts_every_row_once() -> None:
    found = scores.reliability(binary(np.array([0.0, 0.05, 0.1, 0.55, 1.0])), np.array([0, 0, 1, 1, 1]))
    assert isinstance(found, scores.Reliability)
    assert found.count.tolist() == [2, 1, 1, 1]
    assert found.happened.tolist() == [0.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(found.said, [0.025, 0.1, 0.55, 1.0])
    top = scores.reliability(classes(PROBABILITIES), LABELS, bins=7)
    right = PROBABILITIES.argmax(1) == LABELS
    truth, mean = calibration_curve(right, PROBABILITIES.max(1), n_bins=7)
    np.testing.assert_allclose(top.happened, truth)
    np.testing.assert_allclose(top.said, mean)
    with pytest.raises(ValueError, match="bins=0 is not"):
        scores.reliability(binary(CHANCES), BITS, bins=0)
    with pytest.raises(ValueError, match=r"reliability is for classes|ece is for classes"):
        scores.reliability(normal(np.zeros(2), 1.0), np.zeros(2))


def test_the_error_of_a_score_that_is_not_finite_is_nan() -> None:
    """A prediction may hold a target impossible, or its mean may not be finite; warnings are errors in tests."""
    for rows in (np.array([1.0, np.inf, 2.0]), np.array([np.nan, 1.0]), np.array([np.inf, -np.inf, 1.0])):
        for score in (scores.nll, scores.rmse):
            found = estimate(score, rows)
            assert not np.isfinite(found.value)
            assert np.isnan(found.error)
    assert estimate(scores.nll, np.array([1.0, np.inf])).value == np.inf
    assert "inf" in str(estimate(scores.nll, np.array([1.0, np.inf])))
    lost, good = (SimpleNamespace(support=Real(), mean=np.array(mean)) for mean in ([np.inf, 0.0], [0.0, 1.0]))
    found = scores.difference(scores.rmse, lost, good, np.array([0.0, 1.0]))
    assert (found.value, np.isnan(found.error)) == (np.inf, True)
    assert np.isnan(scores.difference(scores.rmse, lost, lost, np.array([0.0, 1.0])).value)


def test_right_probabilities_have_the_calibration_error_that_is_told() -> None:
    """Beside targets drawn from the probabilities, of two classes and of three; a mean of 300 tables."""
    random = np.random.default_rng(0)
    for p in (random.uniform(size=84), random.dirichlet(np.ones(3), 84)):
        pred = SimpleNamespace(support=TwoClasses() if p.ndim == 1 else Classes(3), mean=p)
        wide = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
        draws = [
            (random.random((84, 1)) > wide.cumsum(axis=1)).sum(axis=1).clip(0, wide.shape[1] - 1) for _ in range(300)
        ]
        found = np.array([scores.ece(pred, y) for y in draws])
        told = scores.ece_if_calibrated(pred)
        assert told.value == pytest.approx(found.mean(), abs=5 * found.std() / np.sqrt(300))
        assert told.error == pytest.approx(found.std(), rel=0.25)
        assert 0.05 < told.value < 0.2


def test_sums_of_many_rows_are_as_good_as_normal() -> None:
    p = np.random.default_rng(0).uniform(0.5, 1, 40_000)
    many, some = calibrated_gap(p), calibrated_gap(p[:20_000])
    assert many.value == pytest.approx(some.value / np.sqrt(2), rel=0.05)
    # Bins of 2,667 rows: the mean absolute value of a normal.
    order = np.sort(p[:20_000])
    spread = [np.sqrt((part * (1 - part)).sum()) for part in np.array_split(order, 15)]
    assert some.value == pytest.approx(np.sqrt(2 / np.pi) * np.sum(spread) / 20_000, rel=0.05)


def test_what_is_known_of_a_row_is_scored_and_nothing_else() -> None:
    """Censored times are no events, and successes of n trials no successes of one."""
    rng = np.random.default_rng(0)
    x, time, censored = rng.normal(size=(30, 1)), rng.uniform(0.1, 3, 30), rng.integers(0, 2, 30)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.RightCensored(lamu.likelihoods.Gamma()))
    seen = {"value": time, "censored": censored}
    posterior = lamu.fit(model, (x, seen), lamu.algorithms.adam(1e-2), steps=20).posterior
    pred = posterior.predict(x)
    density = np.where(censored, np.log1p(-np.asarray(pred.cdf(time))), np.asarray(pred.log_prob(time)))
    np.testing.assert_allclose(lamu.scores.nll(pred, seen), -density.mean(), rtol=1e-5)
    for score in (lamu.scores.rmse, lamu.scores.coverage, lamu.calibration.conformal):
        with pytest.raises(
            ValueError, match=f"{censored.sum()} of 30 are censored; leave them out, or take lamu.scores"
        ):
            score(pred, seen)
    with pytest.raises(ValueError, match="1 of 2 are censored"):
        lamu.scores.rmse(posterior.predict(x[:2]), {"value": time[:2], "upper": time[:2] + np.arange(2)})
    stacked = lamu.composition.stack([posterior, posterior], x, seen)
    np.testing.assert_allclose(stacked.weights, 0.5)
    tosses = {"value": rng.binomial(5, 0.3, 30), "trials": np.full(30, 5)}
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Binomial())
    posterior = lamu.fit(model, (x, tosses), lamu.algorithms.adam(1e-2), steps=20).posterior
    with pytest.raises(ValueError, match=r"this one is of 1 in each row; take posterior.predict\(\{.*trials"):
        lamu.scores.rmse(posterior.predict(x), tosses)
    assert 0.3 < lamu.scores.rmse(posterior.predict({"x": x, "trials": tosses["trials"]}), tosses) < 2
