"""Calibration on held-out rows: exact fits, exact coverage counts, and the rows that are refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lamu
from lamu.calibration import (
    LeftOut,
    Selective,
    Temperature,
    TemperedClasses,
    Widened,
    jackknife_plus,
    require_unseen,
    selective,
    temperature_scaling,
)
from lamu.data import Batch, FewRows
from lamu.families import Draws
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.predictives import Deferred, GaussianPredictive, MixturePredictive, Sampled
from lamu.supports import Classes, Real, TwoClasses

RANDOM = np.random.default_rng(5)
F = jnp.asarray(RANDOM.normal(size=(3, 6, 4)))
LABELS = jnp.asarray(RANDOM.integers(0, 4, 6))


def classes(p: Any) -> Any:
    return SimpleNamespace(support=Classes(p.shape[-1]), mean=p)


def normal(mean: Any, std: Any) -> GaussianPredictive:
    mean, std = jnp.asarray(mean), jnp.asarray(std)
    return GaussianPredictive(mean, (std**2)[:, None, None], std**2 / 2)


def test_the_temperature_undoes_a_power() -> None:
    p = RANDOM.dirichlet(np.ones(4), 40_000)
    y = (p.cumsum(1) < RANDOM.uniform(size=(len(p), 1))).sum(1)
    for power in (0.4, 3.0):
        sharp = p**power / np.sum(p**power, axis=1, keepdims=True)
        assert temperature_scaling(classes(sharp), y).value == pytest.approx(power, rel=0.03)
    nll = lambda T: (
        -np.mean(np.log((sharp ** (1 / T) / np.sum(sharp ** (1 / T), 1, keepdims=True))[np.arange(len(y)), y]))
    )
    best = temperature_scaling(classes(sharp), y).value
    assert nll(best) < min(nll(best * 1.001), nll(best / 1.001))


def test_a_binary_target_is_two_classes() -> None:
    chances, y = RANDOM.uniform(size=500), RANDOM.integers(0, 2, 500)
    chances = np.where(y == 1, chances**0.5, chances**2)
    pair = temperature_scaling(classes(np.stack([1 - chances, chances], 1)), y)
    alone = temperature_scaling(SimpleNamespace(support=TwoClasses(), mean=chances), y)
    assert alone.value == pytest.approx(pair.value, rel=1e-9)


@pytest.mark.parametrize("T", [0.5, 2.0])
def test_of_a_point_it_is_the_scaling_of_logits(T: float) -> None:
    pred = Temperature(T, Classes(4))(MixturePredictive.equal(Categorical(4), {}, F[:1]))
    np.testing.assert_allclose(pred.mean, jax.nn.softmax(F[0] / T), rtol=1e-12)
    expected = jax.nn.log_softmax(F[0] / T)[jnp.arange(6), LABELS]
    np.testing.assert_allclose(pred.log_prob(LABELS), expected, rtol=1e-12)
    np.testing.assert_allclose(pred.total, -jnp.sum(pred.mean * jnp.log(pred.mean), axis=1), rtol=1e-12)
    np.testing.assert_allclose(pred.variance, pred.mean * (1 - pred.mean))
    assert pred.prediction_set(0.9).shape == (6, 4)
    assert pred.decide(jnp.eye(4)).tolist() == jnp.argmax(F[0], axis=1).tolist()


def test_tempered_classes_keep_the_share_that_is_epistemic() -> None:
    before = MixturePredictive.equal(Categorical(4), {}, F, drawn=True)
    after = TemperedClasses(before, 3.0)
    np.testing.assert_allclose(after.epistemic / after.total, before.epistemic / before.total, rtol=1e-9)
    drawn = after.sample(jax.random.key(0), 4000)
    share = jnp.mean(drawn[:, :, None] == jnp.arange(4)[None, None], axis=0)
    np.testing.assert_allclose(share, after.mean, atol=0.04)  # five standard deviations of 24 frequencies
    with pytest.raises(TypeError, match="no cdf"):
        after.cdf(LABELS)


@pytest.mark.parametrize("calibrate", [Temperature(0.4, Classes(4)), Temperature(2.5, Classes(4))])
def test_a_draw_is_left_out_before_the_temperature_acts(calibrate: Temperature) -> None:
    whole = calibrate(MixturePredictive.equal(Categorical(4), {}, F, drawn=True))
    (found,) = whole.left_out(LABELS)
    for s in range(3):
        without = calibrate(MixturePredictive.equal(Categorical(4), {}, F[jnp.array([t for t in range(3) if t != s])]))
        np.testing.assert_allclose(found[s], without.log_prob(LABELS), rtol=1e-9)
    assert whole.monte_carlo_error(LABELS) > 0


def test_a_probability_of_zero_stays_finite() -> None:
    pred = MixturePredictive.equal(Bernoulli(), {}, jnp.full((1, 1, 1), -800.0))
    assert float(pred.mean[0]) == 0.0
    assert -1000 < float(TemperedClasses(pred, 1.0).log_prob(jnp.array([1]))[0]) < -600
    assert float(TemperedClasses(pred, 1.0).total[0]) == pytest.approx(0.0, abs=1e-12)


def test_the_spread_of_a_normal_has_a_closed_form() -> None:
    mean, std, y = (RANDOM.normal(size=300), RANDOM.uniform(0.5, 2.0, 300), 3 * RANDOM.normal(size=300))
    calibrate = temperature_scaling(normal(mean, std), y)
    assert calibrate.value == pytest.approx(np.sqrt(np.mean(((y - mean) / std) ** 2)), rel=1e-5)
    pred, expected = calibrate(normal(mean, std)), normal(mean, std * calibrate.value)
    np.testing.assert_allclose(pred.log_prob(y), expected.log_prob(y), rtol=1e-9)
    np.testing.assert_allclose(pred.cdf(y), expected.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(pred.std, expected.std)
    np.testing.assert_allclose(pred.total, expected.total)
    np.testing.assert_allclose(pred.interval(0.8), expected.interval(0.8), rtol=1e-6)
    key = jax.random.key(0)
    np.testing.assert_allclose(pred.sample(key, 2), expected.sample(jax.random.clone(key), 2), rtol=1e-9)


def test_few_rows_do_not_tell_a_temperature() -> None:
    """The information about the log of a normal's spread is two a row."""
    error = f"{np.exp(0.5):.3g}"
    with pytest.warns(FewRows, match=f"2 rows hardly determine the temperature, .* a factor of {error} "):
        temperature_scaling(normal(np.zeros(2), np.ones(2)), np.array([0.01, -0.01]))
    with pytest.warns(FewRows, match="4 rows hardly determine"):
        temperature_scaling(classes(np.array([[0.9, 0.1]] * 4)), np.array([0, 0, 0, 1]))


def test_several_outputs_share_a_spread_and_its_jacobian() -> None:
    covariance = jnp.array([[2.0, 0.5], [0.5, 1.0]])[None].repeat(3, 0)
    centre, y = jnp.zeros((3, 2)), jnp.asarray(RANDOM.normal(size=(3, 2)))
    pred = Widened(GaussianPredictive(centre, covariance, jnp.ones((3, 2))), 2.0)
    expected = GaussianPredictive(centre, 4 * covariance, 4 * jnp.ones((3, 2)))
    np.testing.assert_allclose(pred.log_prob(y), expected.log_prob(y), rtol=1e-12)


def test_a_deferred_prediction_is_calibrated_in_chunks() -> None:
    model = lamu.Model(lamu.networks.Linear(), Gaussian(scale=1.0))
    x, y = jnp.asarray(RANDOM.normal(size=(7, 2))), jnp.asarray(RANDOM.normal(size=7))
    params, state = model.init(jax.random.key(0), Batch.of(x, y))
    belief = Draws(jax.tree.map(lambda leaf: leaf[None, None] * jnp.ones((1, 4) + (1,) * leaf.ndim), params))
    prepared = Sampled().prepare(model, belief, state, samples=4, key=jax.random.key(1))
    whole, deferred = Widened(prepared.at(x, None), 1.5), Widened(Deferred(prepared, x, None, rows=3), 1.5)
    assert [part.mean.shape[0] for _, part in deferred.chunks()] == [3, 3, 1]
    np.testing.assert_allclose(deferred.log_prob(y), whole.log_prob(y), rtol=1e-12)
    assert lamu.scores.crps(deferred, y) == pytest.approx(lamu.scores.crps(whole, y), rel=1e-9)


def test_where_no_temperature_is_best_it_is_said() -> None:
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    with pytest.raises(ValueError, match="all 2 rows are predicted right"):
        temperature_scaling(classes(p), np.array([0, 1]))
    with pytest.raises(ValueError, match="no better than chance"):
        temperature_scaling(classes(p), np.array([1, 0]))
    with pytest.raises(ValueError, match="of whole numbers from 0 to 2, and this one is of finite numbers"):
        Temperature(1.0, Classes(3))(normal([0.0], [1.0]))
    with pytest.raises(ValueError, match="no calibration mends"):
        temperature_scaling(normal([0.0, 0.0], [1.0, 1.0]), np.array([0.0, 0.0]))


def members(y: np.ndarray, held: list[np.ndarray]) -> list[Any]:
    """Each predicts the mean of the rows that it has seen, whatever x is, with another spread for each row."""

    def posterior(rows: np.ndarray) -> Any:
        centre = np.delete(y, rows).mean()
        predict = lambda x, samples: SimpleNamespace(
            support=Real(), mean=np.full(len(x), centre), std=1 + np.abs(np.asarray(x)[:, 0])
        )
        return SimpleNamespace(predict=predict)

    return [posterior(rows) for rows in held]


def test_frames_are_matched_by_name_after_a_fit_too() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(20, 3))
    y = (x[:, 0] > 0).astype(int)
    frame = pd.DataFrame(x, columns=list("abc"))
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
    posterior = lamu.fit(model, (frame, y), lamu.algorithms.adam(0.1), steps=3).posterior
    moved = lambda leaf: jnp.asarray(np.asarray(leaf) + random.normal(size=(2, 4, *leaf.shape)), leaf.dtype)
    draws = Draws(jax.tree.map(moved, posterior.mean))
    chains = replace(posterior, belief=draws)
    held = [np.arange(10), np.arange(10, 20)]
    for result in (
        lambda x: lamu.scores.energy(posterior, x),
        lambda x: lamu.scores.mahalanobis(posterior, frame, y).score(x),
        lambda x: lamu.mcmc.diagnose(chains, x).r_hat["f"],
        lambda x: jackknife_plus([posterior, posterior], x, y, held).distances,
    ):
        np.testing.assert_array_equal(result(frame[["c", "a", "b"]]), result(frame))
    for matched in (
        lambda x, y: jackknife_plus([posterior, posterior], x, y, held),
        lambda x, y: lamu.composition.stack([posterior, posterior], x, y),
        lambda x, y: lamu.scores.mahalanobis(posterior, x, y),
    ):
        with pytest.raises(ValueError, match="row 0 of x has the label 19 and that of y 0"):
            matched(frame[::-1], pd.Series(y))


def test_jackknife_plus_is_its_definition() -> None:
    y, x = RANDOM.normal(size=9), RANDOM.normal(size=(9, 1))
    held = [np.array([i]) for i in range(9)]
    found = jackknife_plus(members(y, held), x, y, held)
    assert isinstance(found, LeftOut)
    new = np.array([[0.7], [-2.0]])
    lower, upper = found.interval(new, 0.8)
    centre = np.array([np.delete(y, i).mean() for i in range(9)])
    score = np.abs(y - centre) / (1 + np.abs(x[:, 0]))
    for j, spread in enumerate(1 + np.abs(new[:, 0])):
        ups, downs = np.sort(centre + score * spread), np.sort(centre - score * spread)
        assert upper[j] == pytest.approx(ups[8 - 1])  # ⌈0.8 · 10⌉ = 8
        assert lower[j] == pytest.approx(downs[2 - 1])  # ⌊0.2 · 10⌋ = 2
    with pytest.raises(ValueError, match=r"9 rows cannot promise 0\.95; calibrate on at least 19"):
        found.interval(new, 0.95)
    with pytest.raises(TypeError, match="interval"):
        found.prediction_set(new)


def test_jackknife_plus_predicts_with_the_offsets_of_the_rows() -> None:
    """A member whose mean is the offset: each row has its own, and new rows theirs."""
    y, offset = RANDOM.normal(size=6), np.array([2.0, -1.0, 0.5, 7.0, 3.0, -4.0])
    predict = lambda x, samples, offset: SimpleNamespace(support=Real(), mean=offset, std=np.ones(len(x)))
    held = [np.array([4, 1, 0]), np.array([2, 5, 3])]
    found = jackknife_plus([SimpleNamespace(predict=predict)] * 2, np.zeros((6, 1)), y, held, offset=offset)
    for member, rows in enumerate(held):
        np.testing.assert_allclose(np.sort(found.distances[found.member == member]), np.sort(abs(y - offset)[rows]))
    lower, upper = found.interval(np.zeros((2, 1)), 0.5, offset=np.array([10.0, 20.0]))
    np.testing.assert_allclose((lower + upper) / 2, [10.0, 20.0])
    classes = lambda x, samples, offset: SimpleNamespace(
        support=TwoClasses(), mean=offset, probabilities=np.stack([1 - offset, offset], axis=1)
    )
    share, k = np.array([0.1, 0.8, 0.3, 0.6, 0.9, 0.2]), np.array([0, 1, 1, 1, 0, 0])
    found = jackknife_plus([SimpleNamespace(predict=classes)] * 2, np.zeros((6, 1)), k, held, offset=share)
    # Distances .1 .1 .2 .2 .4 .7 .9: four of six are closer than a set of 0.5 may hold.
    np.testing.assert_array_equal(
        found.prediction_set(np.zeros((2, 1)), 0.5, offset=np.array([0.95, 0.05])), [[False, True], [True, False]]
    )
    with pytest.raises(ValueError, match="give one number for each of the 6 rows"):
        jackknife_plus([SimpleNamespace(predict=predict)] * 2, np.zeros((6, 1)), y, held, offset=offset[:3])


def test_cv_plus_holds_as_often_as_it_says() -> None:
    """Skewed data, a model that ignores x: 1,000 trials at 0.9; proved is 0.8 − √(2/20), found about 0.9."""
    generator, hits = np.random.default_rng(0), []
    held = [np.arange(k, 20, 4) for k in range(4)]
    for _ in range(1000):
        x, y = generator.normal(size=(21, 1)), np.exp(generator.normal(size=21))
        lower, upper = jackknife_plus(members(y[:20], held), x[:20], y[:20], held).interval(x[20:], 0.9)
        hits.append(bool(lower[0] <= y[20] <= upper[0]))
    assert abs(np.mean(hits) - 0.9) < 5 * np.sqrt(0.09 / 1000)


def test_sets_of_classes_are_counted_by_their_definition() -> None:
    y, held = RANDOM.integers(0, 3, 12), [np.arange(k, 12, 3) for k in range(3)]
    table = RANDOM.dirichlet(np.ones(3), (3, 30))  # [member, rows, classes]
    x = np.arange(30.0)[:, None]

    def posterior(k: int) -> Any:
        at = lambda x: table[k][np.asarray(x)[:, 0].astype(int)]
        return SimpleNamespace(
            predict=lambda x, samples: SimpleNamespace(
                support=Classes(at(x).shape[-1]), mean=at(x), probabilities=at(x)
            )
        )

    found = jackknife_plus([posterior(k) for k in range(3)], x[:12], y, held).prediction_set(x[12:], 0.8)
    for j in range(18):
        for c in range(3):
            closer = sum(1 - table[k, i, y[i]] < 1 - table[k, 12 + j, c] for k, rows in enumerate(held) for i in rows)
            assert found[j, c] == (closer < 0.8 * 13)


def test_rows_that_training_has_seen_are_refused() -> None:
    y, x = RANDOM.normal(size=6), np.zeros((6, 1))
    held = [np.array([0, 1, 2]), np.array([3, 4, 5])]
    pair = members(y, held)
    with pytest.raises(ValueError, match="row 2 is held out by 2 members"):
        jackknife_plus(pair, x, y, [np.array([0, 1, 2]), np.array([2, 3, 4, 5])])
    with pytest.raises(ValueError, match="row 5 is held out by no member"):
        jackknife_plus(pair, x, y, [held[0], held[1][:2]])
    with pytest.raises(ValueError, match="2 members and 1 sets"):
        jackknife_plus(pair, x, y, held[:1])
    with pytest.raises(ValueError, match="held has the row 6, and there are 6 rows"):
        jackknife_plus(pair, x, y, [held[0], held[1] + 1])
    with pytest.raises(ValueError, match="give held=folds_of"):
        jackknife_plus(pair, x, y)
    folded = SimpleNamespace(fits=[SimpleNamespace(posterior=each) for each in pair], held=held)
    assert len(jackknife_plus(folded, x, y).distances) == 6


def test_overlap_is_told_by_identity_and_twins_are_let_pass() -> None:
    x, y = RANDOM.normal(size=(100, 3)), RANDOM.normal(size=100)
    require_unseen((x[50:], y[50:]), (x[:50], y[:50]))
    require_unseen((x[50:], y[:50]), (x[:50], y[:50]))  # another row with a known target
    with pytest.raises(ValueError, match="1 of 51 rows to calibrate on are rows of training too, the first one row 0"):
        require_unseen((x[49:], y[49:]), (x[:50], y[:50]))
    with pytest.raises(ValueError, match="1 of 51"):  # another container and precision of the same numbers
        require_unseen((x[49:].astype(np.float32).tolist(), y[49:]), (jnp.asarray(x[:50]), y[:50]))
    # Of a table of few values every split shares some rows by chance; a set that is all shared is another matter.
    x = RANDOM.integers(0, 4, size=(400, 2)).astype(float)
    y = RANDOM.normal(size=400)
    few = x[:, 0]
    require_unseen((x[200:], few[200:]), (x[:200], few[:200]))
    y[:40] = y[40:80]
    x[:40] = x[40:80]
    order = RANDOM.permutation(400)
    x, y = x[order], y[order]
    require_unseen((x[200:], y[200:]), (x[:200], y[:200]))
    with pytest.raises(ValueError, match="of 300 rows"):
        require_unseen((x[100:], y[100:]), (x[:200], y[:200]))


def test_the_selected_error_is_as_promised() -> None:
    """The error at doubt u is u/2, so that R(t) = t/4. The promise may fail in 10 % of 300 trials: 45 are 3 σ more."""
    generator, broken, shares, n = np.random.default_rng(2), 0, [], 1500
    for _ in range(300):
        u = generator.uniform(size=n)
        y = (generator.uniform(size=n) >= u / 2).astype(int)  # predicted is 1
        pred = SimpleNamespace(support=TwoClasses(), mean=np.full(n, 0.9), total=u)
        found = selective(pred, y, risk=0.15, confidence=0.9, candidates=10)
        broken += min(found.threshold, 1.0) / 4 > 0.15
        shares.append(found.share)
    assert broken <= 45
    assert 0.3 < np.mean(shares) < 0.6  # the most that is right is 0.6


def test_selection_without_errors_keeps_everything_it_may() -> None:
    pred = SimpleNamespace(support=Real(), mean=np.zeros(200), total=np.arange(200.0))
    found = selective(pred, np.r_[np.zeros(199), 5.0], risk=0.05, tolerance=1.0, candidates=4)
    assert isinstance(found, Selective)
    assert found.share == 1.0
    assert found.bound < 0.05
    assert found.answers(pred).all()
    tight = selective(pred, np.r_[np.zeros(120), np.full(80, 5.0)], risk=0.1, tolerance=1.0, candidates=4)
    assert tight.answers(pred.total).sum() == 99  # below the 100th smallest doubt; 150 would hold 29 errors
    tied = SimpleNamespace(support=Real(), mean=np.zeros(200), total=np.zeros(200))
    with pytest.raises(ValueError, match="no threshold promises"):
        selective(tied, np.r_[np.zeros(120), np.full(80, 5.0)], risk=0.1, tolerance=1.0)
    with pytest.raises(ValueError, match="tolerance"):
        selective(pred, np.zeros(200), risk=0.1)
    with pytest.raises(ValueError, match=r"risk=2\.0"):
        selective(pred, np.zeros(200), risk=2.0, tolerance=1.0)
