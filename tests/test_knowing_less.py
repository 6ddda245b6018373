"""Knowing less of a row never narrows its interval, nor sharpens its probabilities; intervals keep their coverage.

The data are a linear Gaussian model with a known marginal of every part, so that the widths are known too. One small
table is fitted by the command line, once, and asked about rows that lack more and more.
"""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import lamu
from lamu.cli import main
from lamu.data import UnfamiliarRows
from lamu.data.encoding import Encoding
from lamu.data.imputation import Completions
from lamu.data.inputs import Features, completions, transform
from lamu.predictives import GaussianPredictive, InputMixture, MixturePredictive
from lamu.predictives.input_mixture import CompletedRows
from lamu.sklearn import BayesianClassifier, BayesianRegressor
from lamu.tabular import stacked_fit
from lamu.tabular.candidates import ADDITIVE, NETWORKS

KNOWN, NEW, ROWS, NEW_ROWS = 15, 60, 300, 200
EFFECT, SLOPE, NOISE = 2.0, 1.5, 0.5
WIDTH = 2 * 1.645


def rows(random, shops, effects, count):
    x = random.normal(size=count)
    shop = random.choice(shops, count)
    table = pd.DataFrame({"a": x, "b": 0.6 * x + 0.8 * random.normal(size=count), "shop": [f"s{k:02d}" for k in shop]})
    return table.assign(y=10 + SLOPE * (table["a"] + table["b"]) + effects[shop] + NOISE * random.normal(size=count))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder with a fitted run, and the rows to predict: of known shops, and of new ones."""
    folder, random = tmp_path_factory.mktemp("knowing"), np.random.default_rng(0)
    # Effects at the quantiles of their distribution: what 15 shops say of the next is then no matter of luck.
    effects = EFFECT * np.concatenate([norm.ppf((random.permutation(n) + 0.5) / n) for n in (KNOWN, NEW)])
    rows(random, np.arange(KNOWN), effects, ROWS).to_csv(folder / "table.csv", index=False)
    known = rows(random, np.arange(KNOWN), effects, NEW_ROWS)
    new = rows(random, np.arange(KNOWN, KNOWN + NEW), effects, NEW_ROWS)
    with pytest.MonkeyPatch.context() as patched, jax.enable_x64(False):  # as users run it
        # A linear candidate and a network, few steps: what is asked here is asked of every mixture.
        patched.setattr(stacked_fit, "_steps_for", lambda count, folds: 300)
        patched.setattr(stacked_fit, "candidates_for", lambda varying, kernels: (ADDITIVE[:1], NETWORKS[:1]))
        asked = ["fit", "table.csv", "--target", "y", "--out", "run", "--impute", "--folds", "2", "--no-report"]
        patched.chdir(folder)
        assert main(asked) == 0
    return folder, known, new


def predicted(tables, name, frame, capsys):
    """What `lamu predict` writes, with the width of each interval and whether it holds its target; and what it says."""
    folder, *_ = tables
    asked, out = (str(folder / f"{name}{end}.csv") for end in ("", "_out"))
    frame.to_csv(asked, index=False)
    capsys.readouterr()
    with jax.enable_x64(False):
        assert main(["predict", str(folder / "run"), asked, "--out", out]) == 0
    found, y = pd.read_csv(out), frame["y"].to_numpy()
    found = found.assign(covered=found["lower"].le(y) & found["upper"].ge(y), width=found["upper"] - found["lower"])
    return found, " ".join(capsys.readouterr().out.split())


# The marginals of the model: a and b have the correlation .6, and both together the slope 1.5.
EXACT = {
    "complete": NOISE**2,
    "a missing": NOISE**2 + SLOPE**2 * 0.64,
    "shop missing": NOISE**2 + EFFECT**2,
    "all missing": NOISE**2 + SLOPE**2 * 3.2 + EFFECT**2,
    "new shop": NOISE**2 + EFFECT**2,
    "new shop, a missing": NOISE**2 + EFFECT**2 + SLOPE**2 * 0.64,
}
COLUMNS = {
    "a missing": ["a"],
    "shop missing": ["shop"],
    "all missing": ["a", "b", "shop"],
    "new shop, a missing": ["a"],
}


@pytest.mark.stress
def test_intervals_of_the_command_line_are_as_wide_as_what_is_not_known(tables, capsys):
    """One file with the same rows again and again, of which less and less is known."""
    _, known, new = tables
    frame = pd.concat([new if "new" in name else known for name in EXACT], keys=EXACT)
    for name, columns in COLUMNS.items():
        frame.loc[name, columns] = None
    found, said = predicted(tables, "rows", frame, capsys)
    for name, part in found.set_index(frame.index).groupby(level=0):
        exact = WIDTH * np.sqrt(EXACT[name])
        coverage, width = part["covered"].mean(), part["width"].mean()
        assert 0.85 <= coverage <= 0.96, (name, coverage, width / exact)  # 200 rows have a standard error of .02
        assert 0.85 * exact <= width <= 1.5 * exact, name
    assert "each is predicted as a new draw from the 15 known values, with a wider interval" in said
    assert "by draws given the rest of their rows" in said


def test_a_row_far_outside_is_not_predicted_more_narrowly(tables, capsys):
    _, known, _ = tables
    parts = [known.iloc[:60]]
    for far in (5.0, 20.0, 100.0):
        moved = np.where(np.arange(60) % 2, far, -far)
        parts.append(known.iloc[:60].assign(a=moved, y=lambda part, a=moved: part["y"] + SLOPE * (a - known["a"][:60])))
    found, _ = predicted(tables, "far", pd.concat(parts), capsys)
    widths, coverage = (found[name].to_numpy().reshape(4, 60).mean(axis=1) for name in ("width", "covered"))
    assert np.all(np.diff(widths) >= 0)
    assert np.all(coverage[1:] >= 0.85)


@pytest.mark.stress
def test_predictions_do_not_depend_on_blocks(tables, monkeypatch, capsys):
    from lamu.cli import predicting
    from lamu.predictives import input_mixture

    folder, known, new = tables
    frame = pd.concat([known.iloc[:6], new.iloc[:4]])
    frame.iloc[::2, 0] = None
    predicted(tables, "whole", frame, capsys)
    monkeypatch.setattr(predicting, "COMPLETED", 3)
    monkeypatch.setattr(input_mixture, "_AT_ONCE", 150)
    predicted(tables, "cut", frame, capsys)
    whole, cut = (pd.read_csv(folder / f"{name}_out.csv") for name in ("whole", "cut"))
    pd.testing.assert_frame_equal(whole, cut, rtol=1e-4)
    # No row shares its draws with another: the same numbers missing in rows that differ a little.
    assert whole["mean"].nunique() == len(frame)


def linear(estimator, **options):
    return estimator(network=lamu.networks.Linear(), algorithm=lamu.algorithms.laplace(), random_state=0, **options)


def sample(random, count):
    x = random.normal(size=(count, 3))
    return x, x @ [1.0, -2.0, 0.5] + 0.3 * random.normal(size=count)


def lacking(rows, *columns):
    """The rows once for each set of columns, without these; one call is asked for all."""
    asked = np.stack([rows] * len(columns))
    for part, missing in zip(asked, columns, strict=True):
        part[:, missing] = np.nan
    return asked.reshape(-1, rows.shape[1])


@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_an_estimator_covers_rows_that_lack_numbers(holes):
    random = np.random.default_rng(1)
    (x, y), (new, y_new) = sample(random, 400), sample(random, 500)
    regressor = linear(BayesianRegressor).fit(np.where(random.random(x.shape) < holes, np.nan, x), y)
    intervals = regressor.predict_interval(asked := lacking(new, [], [0], [1], [0, 1, 2])).reshape(4, 500, 2)
    before = 0.0
    for (lower, upper), variance in zip(intervals.transpose(0, 2, 1), (0.09, 1.09, 4.09, 5.34), strict=True):
        assert 0.85 <= np.mean((lower <= y_new) & (y_new <= upper)) <= 0.95 + 0.02 * bool(holes)
        width = (upper - lower).mean()
        assert width > before
        assert width == pytest.approx(WIDTH * np.sqrt(variance), rel=0.12 + holes)
        before = width
    mean, std = regressor.predict(asked[-1:], return_std=True)  # all is missing: the marginal of the target
    assert (mean[0], std[0]) == pytest.approx((y.mean(), y.std()), abs=0.35)


@pytest.mark.stress
def test_a_classifier_is_as_sure_as_it_is_right_where_a_number_is_missing():
    random = np.random.default_rng(2)
    draw = lambda count: (x := random.normal(size=(count, 3)), (x @ [1.0, -2.0, 0.5] > 0).astype(int))
    (x, y), (new, y_new) = draw(300), draw(600)
    asked = lacking(new, [], [0], [1], [0, 1, 2])
    some, nothing = np.split(linear(BayesianClassifier).fit(x, y).predict_proba(asked).reshape(4, 600, 2), [3])
    sure = [p.max(axis=1).mean() for p in (*some, *nothing)]
    for p, expected in zip(some, sure, strict=False):
        assert np.mean(p.argmax(axis=1) == y_new) == pytest.approx(expected, abs=0.05)
    assert y_new.mean() == pytest.approx(nothing[..., 1].mean(), abs=0.05)
    assert sure == sorted(sure, reverse=True)
    assert sure[-1] < 0.6


def test_rows_are_predicted_alike_whatever_other_rows_are_asked_for():
    random = np.random.default_rng(3)
    x, y = sample(random, 60)
    regressor = linear(BayesianRegressor).fit(x, y)
    asked = np.where(random.random((12, 3)) < 0.4, np.nan, x[:12])
    whole = regressor.predict(asked)
    np.testing.assert_allclose([regressor.predict(row[None])[0] for row in asked], whole, rtol=1e-9)
    np.testing.assert_allclose(regressor.predict(asked[::-1])[::-1], whole, rtol=1e-9)


def test_fewer_rows_and_rows_that_weigh_nearly_nothing_widen():
    random = np.random.default_rng(4)
    x, y = sample(random, 200)
    new, _ = sample(random, 100)
    width = lambda *data: np.diff(linear(BayesianRegressor).fit(*data).predict_interval(new), axis=1).mean()
    many, few = width(x, y), width(x[:10], y[:10])
    with pytest.warns(UserWarning, match="sample_weight sums to 10 over 200 rows"):
        light = width(x, y, np.where(np.arange(200) < 10, 1.0, 1e-6))
    assert few > many
    assert light == pytest.approx(few, rel=0.05)


def test_python_refuses_nan_in_one_sentence():
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    posterior = lamu.fit(model, (x, x[:, 0]), lamu.algorithms.laplace(), progress=False).posterior
    with pytest.raises(ValueError, match="x holds NaN or infinity in float32; remove or fill those rows first"):
        posterior.predict(np.array([[np.nan, 1.0]], np.float32))


# The mixture over completions, in closed form


def gaussians(x, _):
    x = jnp.asarray(x)
    return GaussianPredictive(x[:, 0], jnp.full((len(x), 1, 1), 1.5, x.dtype), jnp.full(len(x), 0.5, x.dtype))


ROWS_OF_TWO = Completions(
    np.array([[0.0], [1.0], [3.0], [-1.0], [5.0], [9.0]]), np.array([0, 1, 1, 2, 2, 2]), np.zeros(6)
)
PARTS = ([0.0], [1.0, 3.0], [-1.0, 5.0, 9.0])


@pytest.mark.parametrize("blocks", [False, True])
def test_a_mixture_over_completions_is_the_average_over_those_of_its_row(blocks):
    pred = CompletedRows(gaussians, ROWS_OF_TWO, 2) if blocks else InputMixture.of(gaussians, ROWS_OF_TWO)
    y, sd = np.array([0.3, 2.5, 4.0]), np.sqrt(1.5)
    means = np.array([np.mean(part) for part in PARTS])
    between = np.array([np.var(part) for part in PARTS])
    np.testing.assert_allclose(pred.mean, means, atol=1e-5)
    np.testing.assert_allclose(pred.variance, 1.5 + between, rtol=1e-5)
    np.testing.assert_allclose(pred.epistemic, 1.0 + between, rtol=1e-5)
    np.testing.assert_allclose(pred.aleatoric, 0.5, rtol=1e-5)
    density = [np.mean(norm.pdf(value, part, sd)) for value, part in zip(y, PARTS, strict=True)]
    np.testing.assert_allclose(pred.log_prob(jnp.asarray(y)), np.log(density), rtol=1e-4)
    below = [np.mean(norm.cdf(value, part, sd)) for value, part in zip(y, PARTS, strict=True)]
    np.testing.assert_allclose(pred.cdf(jnp.asarray(y)), below, rtol=1e-4)
    for end, share in zip(pred.interval(0.9), (0.05, 0.95), strict=True):
        for value, part in zip(np.asarray(end, float), PARTS, strict=True):
            assert np.mean(norm.cdf(value, part, sd)) == pytest.approx(share, abs=1e-4)
    draws = np.asarray(pred.sample(jax.random.key(0), 4000))
    assert draws.shape == (4000, 3)
    np.testing.assert_allclose(draws.mean(axis=0), means, atol=4 * np.sqrt((1.5 + between.max()) / 4000))
    np.testing.assert_allclose(draws.var(axis=0), 1.5 + between, rtol=0.1)


def test_probabilities_of_a_mixture_are_averaged():
    logits = np.array([[2.0, 0.0], [-3.0, 0.0], [1.0, 0.0]])
    predict = lambda x, _: MixturePredictive.equal(lamu.likelihoods.Categorical(2), {}, jnp.asarray(x)[None])
    pred = InputMixture.of(predict, Completions(logits, np.array([0, 0, 1]), np.zeros(3)))
    p = 1 / (1 + np.exp(-np.array([2.0, -3.0, 1.0])))
    np.testing.assert_allclose(pred.mean[:, 0], [(p[0] + p[1]) / 2, p[2]], rtol=1e-5)
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p))
    np.testing.assert_allclose(pred.aleatoric, [(entropy[0] + entropy[1]) / 2, entropy[2]], rtol=1e-4)
    assert pred.epistemic[0] > 0.1 > 1e-5 > abs(pred.epistemic[1])


def test_completions_of_new_words_are_moved_by_the_deviation_between_them():
    spread = np.array([0.0, 1.0, -2.0, 0.0])
    rows = Completions(np.array([[7.0], [1.0], [3.0], [2.0]]), np.array([0, 1, 1, 1]), spread)
    pred = InputMixture.of(gaussians, rows)
    deviation = np.std([1.0, 3.0, 2.0])
    moved = [1.0 + deviation, 3.0 - 2 * deviation, 2.0]
    np.testing.assert_allclose(pred.mean, [7.0, np.mean(moved)], rtol=1e-5)
    np.testing.assert_allclose(pred.variance, [1.5, 1.5 + np.var(moved)], rtol=1e-5)
    density = np.mean(norm.pdf(2.2, moved, np.sqrt(1.5)))
    np.testing.assert_allclose(pred.log_prob(jnp.array([7.0, 2.2]))[1], np.log(density), rtol=1e-4)


def test_positive_targets_are_moved_on_a_logarithmic_scale():
    predict = lambda x, _: MixturePredictive.equal(lamu.likelihoods.Gamma(4.0), {}, jnp.asarray(x)[None])
    rows = Completions(np.array([[0.0], [2.0]]), np.array([0, 0]), np.array([1.5, -0.5]))
    pred = InputMixture.of(predict, rows)
    np.testing.assert_allclose(pred.mean, np.mean(np.exp([0.0 + 1.5, 2.0 - 0.5])), rtol=1e-5)
    lower, upper = pred.interval(0.9)
    assert 0 < float(lower[0]) < float(upper[0])
    y = jnp.linspace(1e-3, 60.0, 20_001)
    values = jax.vmap(lambda value: jnp.exp(pred.log_prob(value[None])[0]))(y)
    assert float(jnp.trapezoid(values, y)) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("known", [2, 3, 5, 20])
def test_the_next_of_few_words_is_covered(known):
    """Effects of normal words: the kernel of Student's t around each makes 90 % intervals hold nine in ten new ones."""
    names = tuple(f"w{k:02d}" for k in range(known))
    encoding = Encoding("y", "regression", (), ("word",), (names,))
    found = completions(Features(("word",), np.zeros((1, 1)), (("new",),)), encoding)
    random = np.random.default_rng(0)
    effects = random.normal(size=(2000, known))
    at = effects[:, found.x[:, 0].astype(int) - 1]
    moved = at + found.spread * at.std(axis=1, keepdims=True)
    lower, upper = np.quantile(moved, [0.05, 0.95], axis=1)
    assert np.mean(norm.cdf(upper) - norm.cdf(lower)) == pytest.approx(0.9, abs=0.04)


# Graphs


@pytest.mark.stress
def test_a_graph_knows_less_of_a_row_that_lacks_an_entry():
    random = np.random.default_rng(0)
    z = random.normal(size=(60, 1))
    y = z * [1.0, 0.8, -0.5] + 0.3 * random.normal(size=(60, 3))
    from lamu.sklearn import FactorAnalysis

    posterior = FactorAnalysis(1).fit(y).posterior_
    spread = []
    for columns in ([], [0], [0, 1]):
        rows = y[:10].copy()
        rows[:, columns] = np.nan
        pred = posterior.predict({"y": rows})
        spread.append(float(np.asarray(pred.std)[:, 0].mean()))
    assert spread[0] <= spread[1] <= spread[2]


def test_the_run_says_what_it_drew(tables):
    folder, *_ = tables
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["joint"]["related"] == [0, 1, 2]
    assert config["indicators"] == []


def test_inputs_in_other_units_are_told():
    x, y = np.random.default_rng(0).uniform(size=(2, 60, 4, 4))
    model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Gaussian()).standardised(x, y[:, 0, 0])
    posterior = lamu.fit(model, (x, y[:, 0, 0]), lamu.algorithms.adam(), steps=2).posterior
    posterior.predict(x)
    posterior.predict(20 * x[:1])  # far outside, but a number that a table may have
    pixels = (255 * x).astype(np.uint8)
    with pytest.warns(
        UnfamiliarRows, match=r"the inputs are 5\d\d\.\d standard deviations .*, for instance pixels / 255$"
    ):
        posterior.predict(pixels)
    with pytest.warns(UnfamiliarRows, match=r"they reach from .*; give them in the units of the training rows"):
        posterior.predict(pixels[:1])


def test_a_column_that_was_constant_in_training_is_told_where_it_varies(tmp_path, monkeypatch, capsys):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"a": random.normal(size=60), "b": 5.0, "c": random.normal(size=60)})
    y = table["a"] + 0.1 * random.normal(size=60)
    estimator = BayesianRegressor(network=lamu.networks.Linear()).fit(table, y)
    estimator.predict(table)
    sentence = r"the column 'b' was 5 in all training rows and has other values here \(8 is the first of 60\); their"
    with pytest.warns(UnfamiliarRows, match=sentence):
        estimator.predict(table.assign(b=8.0))
    monkeypatch.chdir(tmp_path)
    table.assign(y=y).to_csv("table.csv", index=False)
    table.assign(b=8.0).to_csv("new.csv", index=False)
    quick = ["--algorithm", "laplace", "--prior-scale", "1", "--epochs", "2", "--no-report"]
    assert main(["fit", "table.csv", "--target", "y", "--out", "run", *quick]) == 0
    assert main(["predict", "run", "new.csv"]) == 0
    assert re.search(sentence, capsys.readouterr().out)


@pytest.mark.parametrize("value", [0.1, 2020.0])
def test_a_table_is_widened_where_a_column_that_was_constant_varies(value):
    """It was not, and in 64 bits 0.1 had the deviation 4e-17 of its mean's rounding."""
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(size=40), np.full(40, value)])
    y = 10 * (x[:, 0] + 0.2 * random.normal(size=40))
    with jax.enable_x64():
        posterior = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), folds=2, steps=30).posterior
        pred = [posterior.predict(np.column_stack([x[:, 0], np.full(40, value + change)])) for change in (0, 8, 1e6)]
    known, other, far = (np.asarray(each.std) for each in pred)
    assert (other**2 > known**2 + (0.7 * y.std()) ** 2).all()
    np.testing.assert_allclose(far, other, rtol=0.05)
    assert np.abs(np.asarray(pred[1].mean) - np.asarray(pred[0].mean)).max() < 0.5 * y.std()


def test_a_table_is_widened_at_a_new_word_of_a_column_of_one_word():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=40), "shop": "one"})
    frame["y"] = frame["a"] + 0.2 * random.normal(size=40)
    table = lamu.data.table.read(frame, "y")
    features, levels = Features(("shop",), np.zeros((1, 1)), (("two",),)), (("one",),)
    _, notes = transform(features, Encoding("y", "regression", (), ("shop",), levels))
    assert notes == [
        "the column 'shop' was 'one' in all training rows and has other values here: 'two' (1); their effect is not "
        "known, and intervals may be too narrow"
    ]
    options = {"levels": table.encoding.cardinalities, "folds": 2, "steps": 30}
    posterior = lamu.fit_table(table.x, table.y, lamu.likelihoods.Gaussian(), **options).posterior
    stds = []
    for shop in ("one", "two"):
        rows = lamu.data.table.match(frame.assign(shop=shop), table.encoding).completions(slice(None))
        stds.append(np.asarray(InputMixture.of(lambda x, _: posterior.predict(x), rows).std))
    assert (stds[1] ** 2 > stds[0] ** 2 + 0.7**2).all()
