"""Missing values as draws given the rest of their row: the closed forms, what is learned from, and predictions."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import lamu
from lamu.data import Encoding, imputation, split, table
from lamu.data.imputation import DRAWS, Completions, learn_joint
from tests.command_line import QUICK, runner

CORRELATION, NOISE, SLOPES = 0.8, 0.5, np.array([1.0, 2.0])


def pair(rows: int, seed: int = 0):
    """Two correlated columns, and a target of both."""
    random = np.random.default_rng(seed)
    x = random.multivariate_normal(np.zeros(2), [[1.0, CORRELATION], [CORRELATION, 1.0]], rows)
    return x, x @ SLOPES + NOISE * random.normal(size=rows)


def with_holes(x, share: float = 0.3, seed: int = 1):
    return np.where(np.random.default_rng(seed).random(x.shape) < share, np.nan, x)


def written(path, x, y):
    pd.DataFrame(x, columns=[f"x{c}" for c in range(x.shape[1])]).assign(y=y).to_csv(path, index=False)
    return table.read(path, "y", impute=True)


@pytest.fixture(scope="module")
def joint():
    x, y = pair(20_000)
    return learn_joint(with_holes(x, 0.2), (0, 0), y, classes=0)


def test_draws_have_the_moments_of_the_conditional(joint):
    x = np.array([[np.nan, 1.0], [np.nan, -0.5]])
    draws = joint.draws(x)[..., 0]
    assert draws.shape == (2, DRAWS)
    # Scores of 64 quantiles, and a covariance of 20,000 rows: 0.05 is the error of both.
    np.testing.assert_allclose(joint.central(x)[:, 0], CORRELATION * x[:, 1], atol=0.05)
    np.testing.assert_allclose(draws.mean(axis=1), CORRELATION * x[:, 1], atol=0.05)
    np.testing.assert_allclose(draws.std(axis=1), np.sqrt(1 - CORRELATION**2), atol=0.05)
    both = joint.draws(np.full((1, 2), np.nan))[0]
    np.testing.assert_allclose(np.cov(both.T), [[1.0, CORRELATION], [CORRELATION, 1.0]], atol=0.25)


def by_rows(scores, weight, prior_rows, iterations):
    """EM as it is written: for every row E[z] and E[z zᵀ] given what is seen, with the conditional covariance."""
    size = scores.shape[1]
    mean = np.array([np.average(c[~np.isnan(c)], weights=weight[~np.isnan(c)]) for c in scores.T])
    variance = [
        np.average((c - m)[~np.isnan(c)] ** 2, weights=weight[~np.isnan(c)])
        for c, m in zip(scores.T, mean, strict=True)
    ]
    prior = np.diag(variance)
    covariance = prior.copy()
    for _ in range(iterations):
        first, second = np.zeros(size), np.zeros((size, size))
        for z, w in zip(scores, weight, strict=True):
            o, m = ~np.isnan(z), np.isnan(z)
            expected, spread = z.copy(), np.zeros((size, size))
            gain = covariance[np.ix_(m, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
            expected[m] = mean[m] + gain @ (z[o] - mean[o])
            spread[np.ix_(m, m)] = covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]
            first += w * expected
            second += w * (np.outer(expected, expected) + spread)
        mean = first / weight.sum()
        centred = second - weight.sum() * np.outer(mean, mean)
        covariance = (centred + prior_rows * prior) / (weight.sum() + prior_rows)
    return mean, covariance


def test_expectation_maximisation_is_that_of_a_loop_over_rows_with_the_conditional_covariance(monkeypatch):
    monkeypatch.setattr(imputation, "_SETTLED", 0.0)
    random = np.random.default_rng(3)
    full = random.multivariate_normal([1.0, -2.0, 0.5], [[2.0, 1.2, 0.3], [1.2, 1.0, 0.0], [0.3, 0.0, 0.7]], 40)
    scores, weight = with_holes(full, 0.4), random.uniform(0.2, 2.0, 40)
    scores[np.isnan(scores).all(axis=1), 0] = 1.0
    prior_rows = 9 / weight.sum()
    mean, covariance = imputation._mode(scores, weight)
    expected = by_rows(scores, weight, prior_rows, imputation._ITERATIONS)
    np.testing.assert_allclose(mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(covariance, expected[1], atol=1e-9)
    # Without the conditional covariance, variances are far smaller.
    assert np.linalg.det(covariance) > 0.2 * np.linalg.det(np.cov(full.T))


def test_expectation_maximisation_ends_at_the_mode_of_the_observed_density():
    """The gradient of Σ log N(z_seen) plus the prior's log density is zero there, by central differences."""
    random = np.random.default_rng(4)
    full = random.multivariate_normal([0.0, 0.0], [[1.0, 0.7], [0.7, 1.0]], 300)
    scores, weight = with_holes(full, 0.3), np.ones(300)
    scores[np.isnan(scores).all(axis=1), 0] = 0.3
    mean, covariance = imputation._mode(scores, weight)
    prior = np.diag(np.nanvar(scores, axis=0))
    count = imputation._prior_rows(300.0, 2)

    def objective(v):
        m, s = v[:2], np.array([[v[2], v[3]], [v[3], v[4]]])
        total = -0.5 * count * (np.linalg.slogdet(s)[1] + np.trace(np.linalg.solve(s, prior)))
        for z in scores:
            o = ~np.isnan(z)
            away, part = z[o] - m[o], s[np.ix_(o, o)]
            total -= 0.5 * (np.linalg.slogdet(part)[1] + away @ np.linalg.solve(part, away))
        return total

    at = np.array([*mean, covariance[0, 0], covariance[0, 1], covariance[1, 1]])
    steps = 1e-4 * np.eye(5)
    gradient = np.array([(objective(at + step) - objective(at - step)) / 2e-4 for step in steps])
    curvature = np.array([(objective(at + s) - 2 * objective(at) + objective(at - s)) / 1e-8 for s in steps])
    assert (np.abs(gradient) < 0.05 * np.sqrt(-curvature)).all()  # a twentieth of a standard error


def test_draws_of_a_column_that_is_not_normal_have_its_distribution():
    random = np.random.default_rng(0)
    z = random.multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], 5000)
    x = np.column_stack([np.exp(z[:, 0]), z[:, 1], random.choice([0.0, 1.0, 7.0], 5000, p=[0.7, 0.2, 0.1])])
    joint = learn_joint(x, (0, 0, 0), z.sum(axis=1), classes=0)
    draws = joint.draws(np.array([[np.nan, 1.0, np.nan], [np.nan, -1.0, np.nan]]))
    share = [0.05, 0.25, 0.5, 0.75, 0.95]
    for row, score in zip(draws, (1.0, -1.0), strict=True):
        exact = np.exp(0.8 * score + 0.6 * np.array([-1.645, -0.674, 0.0, 0.674, 1.645]))
        np.testing.assert_allclose(np.quantile(row[:, 0], share), exact, rtol=0.1)
        assert [np.mean(row[:, 2] == value) for value in (0, 1, 7)] == pytest.approx([0.7, 0.2, 0.1], abs=0.05)


def test_a_missing_word_has_its_probability_given_the_others():
    """By Bayes' rule: a number of variance one around -1, 1 and 3, and frequencies of .5, .3 and .2."""
    random = np.random.default_rng(0)
    word = random.choice(3, 20_000, p=[0.5, 0.3, 0.2])
    centre = np.array([-1.0, 1.0, 3.0])
    x = np.column_stack([word + 1.0, centre[word] + random.normal(size=20_000)])
    joint = learn_joint(x, (3, 0), random.normal(size=20_000), classes=0)
    for value in (-1.5, 0.0, 2.0, np.nan):
        draws = joint.draws(np.array([[np.nan, value]]))[0, :, 0]
        exact = np.array([0.5, 0.3, 0.2]) * (1 if np.isnan(value) else np.exp(-0.5 * (value - centre) ** 2))
        found = [np.mean(draws == code) for code in (1, 2, 3)]
        # Within words, the score of the number is normal only nearly: .12.
        assert found == pytest.approx((exact / exact.sum()).tolist(), abs=0.12 if value == value else 2 / DRAWS)


@pytest.mark.parametrize("of", ["word", "number"])
def test_that_a_value_is_missing_tells_of_it_as_far_as_targets_do(of):
    """Half of the high values are missing, and a tenth of the others: a target with little noise tells which."""
    random = np.random.default_rng(3)
    high = random.random(4_000) < 0.25
    y = 3.0 * high + 0.3 * random.normal(size=4_000)
    value = 1.0 + high if of == "word" else high + 0.2 * random.normal(size=4_000)
    x = np.where(random.random(4_000) < np.where(high, 0.5, 0.1), np.nan, value)[:, None]
    joint = learn_joint(x, (2 * (of == "word"),), y, classes=0)
    drawn = joint.draws(np.array([[np.nan]]))[0, :, 0] > (1.5 if of == "word" else 0.5)
    # Of the missing values .625 are high, and .156 of those that are there, the share that it had been.
    assert drawn.mean() > (0.4 if of == "word" else 0.2)
    # A word that is new is not a missing one.
    assert (
        of == "number"
        or abs(np.mean(joint.draws(np.array([[np.nan]]), np.array([[True]]))[0, :, 0] > 1.5) - 0.5) < 0.02
    )


def test_the_absence_of_many_columns_does_not_make_the_joint_larger_than_twice_its_limit():
    random = np.random.default_rng(0)
    x = with_holes(random.normal(size=(400, 130)), 0.05)
    joint = learn_joint(x, (0,) * 130, random.normal(size=400), classes=0)
    assert set(joint.lacking) <= set(joint.related)
    assert len(joint.mean) <= 201


def test_a_missing_word_is_drawn_also_where_training_rows_lack_it(tmp_path):
    """As a level of its own, which rows of all words share, it had the noise of rows whose word is known."""
    random = np.random.default_rng(4)
    word, y = random.choice(["a", "b", "c"], 300, p=[0.6, 0.3, 0.1]), random.normal(size=300)
    frame = pd.DataFrame({"word": np.where(random.random(300) < 0.1, None, word), "y": y + 3 * (word == "b")})
    frame.to_csv(tmp_path / "table.csv", index=False)
    read = table.read(tmp_path / "table.csv", "y", impute=True)
    row = int(np.flatnonzero(frame["word"].isna())[0])
    completed = read.completions([row]).x
    shares = np.bincount(completed[:, 0].astype(int), minlength=4)[1:] / len(completed)
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.15)
    assert (completed[:, 1] == 1).all()
    assert read.encoding.names == ("word", "word is missing")


def test_a_new_word_is_drawn_from_the_known_ones_alike_whatever_their_rows():
    random = np.random.default_rng(0)
    word = random.choice(4, 2000, p=[0.9, 0.05, 0.03, 0.02]) + 1.0
    joint = learn_joint(np.column_stack([word]), (4,), word, classes=0)
    found = joint.draws(np.array([[np.nan]]), np.array([[True]]))[0, :, 0]
    assert np.bincount(found.astype(int)).tolist() == [0, *[DRAWS // 4] * 4]
    missing = joint.draws(np.array([[np.nan]]))[0, :, 0]
    assert np.mean(missing == 1) == pytest.approx(0.9, abs=0.02)


def test_many_columns_keep_the_relations_of_those_that_matter_most():
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 130))
    x[:, 5] = x[:, 6] + 0.1 * random.normal(size=150)
    y = x[:, 5] + x[:, 6]
    joint = learn_joint(x, (0,) * 130, y, classes=0)
    assert len(joint.related) == imputation._MOST_SCORES
    assert {5, 6} <= set(joint.related)
    row = np.zeros((1, 130))
    row[0, [0, 5, 129]] = np.nan
    row[0, 6] = 1.5
    draws = joint.draws(row)[0]
    assert not np.isnan(draws).any()
    assert draws[:, 5].mean() > 0.5


def test_weights_are_rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    count = random.integers(1, 4, 60)
    y = x[:, 0] + random.normal(size=60)
    once = learn_joint(x, (0, 0), y, 0, weight=count.astype(float))
    # A row that weighs nothing teaches nothing.
    more, zero = np.vstack([x, [[50.0, -50.0]]]), np.append(count.astype(float), 1e-9)
    other = learn_joint(more, (0, 0), np.append(y, 99.0), 0, weight=zero)
    inner = slice(1, -1)  # the ends are the least and the largest of what weighs anything
    for a, b in zip(once.quantiles, other.quantiles, strict=True):
        np.testing.assert_allclose(a[inner], b[inner], atol=1e-6)
    heavy = learn_joint(x, (0, 0), y, 0, weight=np.where(x[:, 0] > 0, 50.0, 1.0))
    assert np.median(heavy.quantiles[0]) > 0.3 > np.median(learn_joint(x, (0, 0), y, 0).quantiles[0])


def test_training_rows_are_completed_given_their_targets(joint):
    x, y = pair(20_000, seed=2)
    found = joint.given_targets(np.column_stack([np.full(len(x), np.nan), x[:, 1]]), y)
    # As the complete rows, and so is the regression on them; without the target it would be a different one.
    np.testing.assert_allclose(np.linalg.lstsq(found, y, rcond=None)[0], SLOPES, atol=0.1)
    np.testing.assert_allclose(np.corrcoef(found.T)[0, 1], CORRELATION, atol=0.02)
    assert np.corrcoef(found[:, 0], x[:, 0])[0, 1] > 0.8


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_and_words_say_something_of_a_number(classes):
    random = np.random.default_rng(0)
    y, word = random.integers(0, classes, 2000), random.integers(1, 4, 2000)
    x = np.column_stack([2.0 * y + 3.0 * word + 0.1 * random.normal(size=2000), word])
    x[:500, 0] = np.nan
    joint = learn_joint(x, (0, 3), y, classes)
    levels = joint.draws(np.array([[np.nan, code] for code in (1.0, 2.0, 3.0)]))[..., 0].mean(axis=1)
    assert np.diff(levels) == pytest.approx([3.0, 3.0], abs=1.0)
    given = joint.given_targets(np.array([[np.nan, 2.0]] * 200), np.repeat([0, 1], 100))[:, 0]
    assert len(np.unique(given)) == 200  # rows that are alike, and lack different values
    assert given[100:].mean() - given[:100].mean() == pytest.approx(2.0, abs=1.0)


def test_a_column_of_few_values_gets_one_of_them():
    random = np.random.default_rng(0)
    latent = random.normal(size=1000)
    x = np.column_stack([latent > 0.5, latent + 0.3 * random.normal(size=1000)]).astype(float)
    x[::3, 0] = np.nan
    joint = learn_joint(x, (0, 0), latent, classes=0)
    draws = joint.draws(x[::3])[..., 0].T
    assert set(np.unique(draws)) == {0.0, 1.0}
    assert draws[:, x[::3, 1] > 1.5].mean() > 0.8 > 0.2 > draws[:, x[::3, 1] < -0.5].mean()


def test_a_column_that_nothing_predicts_has_its_own_distribution(tmp_path):
    random = np.random.default_rng(0)
    x = with_holes(random.normal(size=(300, 3)))
    x[:, 2] = np.nan_to_num(x[:, 0]) + 0.1 * random.normal(size=300)
    read = written(tmp_path / "table.csv", x, random.normal(size=300))
    assert f"'x1' ({np.isnan(x[:, 1]).sum()} by draws given the rest of their rows)" in read.notes[0]
    found = read.completions(slice(None))
    there = x[~np.isnan(x[:, 1]), 1]
    for row in np.flatnonzero(np.isnan(x[:, 1]))[:5]:
        drawn = found.x[found.row == row, 1]
        np.testing.assert_allclose(np.quantile(drawn, [0.1, 0.5, 0.9]), np.quantile(there, [0.1, 0.5, 0.9]), atol=0.35)
    medians = read.with_medians()
    np.testing.assert_array_equal(medians.x[np.isnan(x[:, 0]), 0], np.nanmedian(x[:, 0]))


def test_few_rows_draw_too():
    x, y = pair(6)
    draws = learn_joint(with_holes(x, 0.2), (0, 0), y, classes=0).draws(np.array([[np.nan, 0.3]]))[0, :, 0]
    assert draws.std() > 0.3 * np.nanstd(x[:, 0])


@pytest.fixture
def recorded(monkeypatch):
    """What `learn_joint` was asked, each time."""
    asked = []
    learn = imputation.learn_joint

    def recorder(x, levels, y, classes, weight=None):
        asked.append((np.array(x), np.array(y), None if weight is None else np.array(weight)))
        return learn(x, levels, y, classes, weight)

    monkeypatch.setattr("lamu.data.inputs.learn_joint", recorder)
    return asked


def test_the_imputation_sees_the_training_rows_and_their_targets_alone(tmp_path, recorded):
    x, y = pair(60)
    x = with_holes(x)
    read, train = written(tmp_path / "table.csv", x, y), np.array([3, 1, 8, 40, 22, 59, 13])
    recorded.clear()
    fitted = read.refit(train)
    ((seen, targets, _),) = recorded
    np.testing.assert_array_equal(seen, x[train])
    np.testing.assert_array_equal(targets, y[train])
    # Rows that judge are completed without their targets, by the medians of what is left.
    others = np.setdiff1d(np.arange(60), train)
    np.testing.assert_array_equal(fitted.x[others, :2], fitted.encoding.joint.central(x[others]))


def test_an_estimator_hands_the_rows_of_its_fit_and_their_weights_to_the_imputation(recorded, monkeypatch):
    from lamu.sklearn import BayesianRegressor

    monkeypatch.setattr(
        BayesianRegressor, "_posterior", lambda self, likelihood, x, y, weight, groups, seed: (x, y, weight)
    )
    x, y = pair(30)
    x = with_holes(x)
    weight = np.arange(30.0)
    regressor = BayesianRegressor().fit(x, y, sample_weight=weight)
    ((seen, targets, weights),) = recorded
    order = np.argsort(targets)
    by_target = np.argsort(y[1:]) + 1  # the first row weighs nothing
    np.testing.assert_array_equal(targets[order], y[by_target])
    np.testing.assert_array_equal(seen[order], x[by_target])
    np.testing.assert_array_equal(weights[order], weight[by_target])
    learned, _, _ = regressor.posterior_
    assert not np.isnan(learned).any()


def test_nothing_of_test_rows_or_their_targets_is_learned(tmp_path):
    x, y = pair(200)
    x = with_holes(x)
    train, test = split(200)
    first = written(tmp_path / "first.csv", x, y).refit(train)
    other, target = x.copy(), y.copy()
    other[test], target[test] = -3 * np.nan_to_num(x[test][::-1]), 9 - y[test]
    second = written(tmp_path / "second.csv", other, target).refit(train)
    assert first.encoding == second.encoding
    np.testing.assert_array_equal(first.x[train], second.x[train])
    # The targets of rows to predict do not reach what they are predicted from.
    third = written(tmp_path / "third.csv", x, np.where(np.isin(np.arange(200), test), 9 - y, y)).refit(train)
    np.testing.assert_array_equal(first.completions(test).x, third.completions(test).x)
    np.testing.assert_array_equal(first.x[test], third.x[test])


def test_completions_depend_on_their_row_alone_and_differ_between_rows(tmp_path):
    x, y = pair(200)
    x = with_holes(x)
    read = written(tmp_path / "table.csv", x, y)
    found = read.completions(slice(None))
    assert found.rows == 200
    for row in range(200):
        mine = found.x[found.row == row]
        alone = read.completions([row])
        assert len(mine) == (DRAWS if np.isnan(x[row]).any() else 1)
        np.testing.assert_array_equal(alone.x, mine)
        assert not alone.spread.any()
    # In other blocks, in another order: the same draws of each row, and no two rows share what is random.
    order = np.random.default_rng(5).permutation(200)
    blocks = [read.completions(part) for part in np.array_split(order, 7)]
    joined = {int(row): part.x[part.row == at] for rows, part in zip(np.array_split(order, 7), blocks, strict=True)
              for at, row in enumerate(rows)}  # fmt: skip
    for row in range(200):
        np.testing.assert_array_equal(joined[row], found.x[found.row == row])
    lacking = np.isnan(x[:, 0]) & ~np.isnan(x[:, 1])
    noise = imputation.uniforms(x[lacking], [0], DRAWS)[:, :, 0]
    assert len(np.unique(noise[:, 0])) == len(noise)
    np.testing.assert_allclose(np.sort(noise, axis=1), np.broadcast_to(np.arange(DRAWS) + 0.5, noise.shape) / DRAWS,
                               atol=0.5 / DRAWS)  # fmt: skip
    # What is matched later, as a saved encoding says, is completed in the same way.
    encoding = Encoding.of(json.loads(json.dumps(read.encoding.describe())))
    assert encoding == read.encoding
    np.testing.assert_array_equal(table.match(tmp_path / "table.csv", encoding).completions(slice(None)).x, found.x)


def test_an_altered_joint_is_refused(joint):
    described = joint.describe()
    with pytest.raises(ValueError, match="has 2 means for 5 scores"):
        type(joint).of({**described, "mean": described["mean"][:2]})
    with pytest.raises(ValueError, match="2 columns of quantiles; give 3"):
        type(joint).of({**described, "quantiles": described["quantiles"][:2]})


@pytest.mark.stress
def test_draws_predict_better_than_medians_and_know_what_they_lack(tmp_path):
    """With a linear model, on rows of which three in ten numbers are missing."""
    x, y = pair(2000)
    x = with_holes(x)
    read, (train, test) = written(tmp_path / "table.csv", x, y), split(2000, 0.5)
    read = read.refit(train)

    def predictive(x_train, rows):
        """Least squares, and a Gaussian with the spread of its residuals."""
        design = lambda x: np.column_stack([np.ones(len(x)), x])
        weights = np.linalg.lstsq(design(x_train), read.y[train], rcond=None)[0]
        spread = float(np.std(read.y[train] - design(x_train) @ weights))

        def predict(x, _):
            means = jnp.asarray(design(x) @ weights)[None, :, None]
            return lamu.predictives.MixturePredictive.equal(lamu.likelihoods.Gaussian(scale=spread), {}, means)

        return lamu.predictives.InputMixture.of(predict, rows)

    pred, y_test = predictive(read.x[train], read.completions(test)), read.y[test]
    medians = read.with_medians()
    plain = predictive(medians.x[train], Completions.of(medians.x[test]))
    better = lamu.scores.difference(lamu.scores.nll, pred, plain, y_test)
    assert better.value < -3 * better.error
    lower, upper = pred.interval(0.9)
    width, count = np.asarray(upper - lower), np.isnan(x[test]).sum(axis=1)
    widths = [width[count == k].mean() for k in range(3)]
    assert widths[0] < 0.75 * widths[1] < 0.75 * 0.75 * widths[2] * 2
    for k in range(3):
        covered = ((lower <= y_test) & (y_test <= upper))[count == k]
        assert covered.mean() == pytest.approx(0.9, abs=0.02 + 3 * np.sqrt(0.09 / len(covered)))


@pytest.mark.stress
def test_a_saved_run_predicts_what_was_written(tmp_path, capsys, monkeypatch):
    lamu_command = runner(capsys, tmp_path, monkeypatch)
    x, y = pair(200)
    written(tmp_path / "table.csv", with_holes(x), y)
    ran = lamu_command("fit", "table.csv", "--target", "y", "--out", "run", "--impute", *QUICK)
    assert ran.code == 0, ran.err
    assert "by draws given the rest of their rows" in ran.out
    ran = lamu_command("predict", "run", "table.csv", "--out", "all.csv")
    assert ran.code == 0, ran.err
    assert "this is the table that was fitted" in ran.out
    before = pd.read_csv(tmp_path / "run" / "predictions.csv")
    now = pd.read_csv(tmp_path / "all.csv").iloc[before["row"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(now, before, rtol=1e-4, atol=1e-4)


def test_a_column_that_was_complete_in_training_is_drawn_in_rows_to_predict(tmp_path):
    x, y = pair(100)
    read = written(tmp_path / "table.csv", x, y)
    assert read.encoding.indicators == ()
    assert read.complete
    assert read.completions(slice(None)).complete
    written(
        tmp_path / "new.csv", np.array([[np.nan, 1.0], [0.5, np.nan], [np.nan, np.nan], [1.0, 1.0], [0.2, 0.1]]), y[:5]
    )
    new = table.match(tmp_path / "new.csv", read.encoding)
    assert not new.complete
    found = new.completions(slice(None))
    widths = [np.std(found.x[found.row == row], axis=0).tolist() for row in range(5)]
    assert [[width > 0 for width in row] for row in widths] == [
        [True, False],
        [False, True],
        [True, True],
        *[[False] * 2] * 2,
    ]
    assert widths[0][0] < 0.8 * widths[2][0]


@pytest.mark.parametrize(("brought", "extra"), [("trials", "sown"), ("censored", "cut")])
def test_rows_with_trials_or_limits_are_drawn_too(tmp_path, brought, extra):
    x, y = pair(200)
    x = with_holes(x)
    share = 1 / (1 + np.exp(-y))
    target = {"trials": np.round(20 * share), "censored": y}[brought]
    beside = {"trials": np.full(200, 20), "censored": (y > 1).astype(int)}[brought]
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=target, **{extra: beside})
    frame.to_csv(tmp_path / "table.csv", index=False)
    read = table.read(tmp_path / "table.csv", "y", impute=True, beside={brought: extra})
    found = read.completions(slice(None))
    row = int(np.flatnonzero(np.isnan(x[:, 0]))[0])
    assert found.x[found.row == row, 0].std() > 0.2
