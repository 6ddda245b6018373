"""`lamu fit --trials`, `--censored`, `--weight` and `--exposure`: what rows of a table bring beside their target."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

from lamu.algorithms import conjugate
from lamu.cli import learning, reporting, training
from lamu.cli.predicting import estimates, score_rows
from lamu.cli.request import Request, learning_rows
from lamu.data import Encoding, inputs
from lamu.data.leaks import leaks
from lamu.data.table import match, read
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import Columns
from lamu.posterior import load as posterior_of
from lamu.scores import calibration
from lamu.tabular import stacked_fit
from lamu.tabular.peers import peer
from tests.command_line import assert_refused

random = np.random.default_rng(0)
X = random.normal(size=(80, 2))
SOWN = random.integers(1, 12, 80)
SEEDS = pd.DataFrame(X, columns=["wet", "warm"]).assign(
    sown=SOWN, grown=random.binomial(SOWN, 1 / (1 + np.exp(-X[:, 0])))
)
TIMES = random.weibull(1.5, 80) * np.exp(1 + X[:, 0])
STUDY = pd.DataFrame(X, columns=["dose", "age"]).assign(time=np.minimum(TIMES, 4.0), ended=(TIMES > 4.0).astype(int))
FIT = ("--algorithm", "ivon", "--epochs", "3", "--temperature", "1", "--no-report", "--out", "run")


@pytest.mark.stress
def test_successes_of_trials(lamu) -> None:
    SEEDS.to_csv("seeds.csv", index=False)
    ran = lamu("fit", "seeds.csv", "--target", "grown", "--trials", "sown", *FIT)
    assert ran.code == 0, ran.err
    assert "likelihood binomial: 'grown' counts successes in 'sown' trials" in ran.out
    config = json.loads(Path("run/config.json").read_text())
    assert (config["task"], config["columns"], config["beside"]) == (
        "regression",
        ["wet", "warm"],
        [["trials", "sown"]],
    )
    found = pd.read_csv("run/predictions.csv")
    assert found["trials"].tolist() == SEEDS["sown"].iloc[found["row"]].tolist()
    assert (found["mean"] < found["trials"]).all()
    assert (found["upper"] <= found["trials"]).all()
    # The probability of a count of the row's own trials: of one trial each it would be that of zero or one.
    rows = SEEDS.iloc[found["row"]]
    pred = posterior_of("run/posterior").predict({"x": rows[["wet", "warm"]].to_numpy(), "trials": rows["sown"]})
    np.testing.assert_allclose(pred.mean, found["mean"], rtol=1e-5)
    assert np.all(found["log_prob"] <= 0)

    again = lamu("predict", "run", "seeds.csv", "--json").document
    assert len(again["predictions"]) == 80
    assert again["predictions"][0]["trials"] == SEEDS["sown"][0]
    no_target = SEEDS.drop(columns="grown")
    no_target.to_csv("new.csv", index=False)
    assert lamu("predict", "run", "new.csv", "--json").document["predictions"][0]["mean"] < SEEDS["sown"][0]
    SEEDS.drop(columns="sown").to_csv("lacking.csv", index=False)
    assert_refused(
        lamu("predict", "run", "lacking.csv"),
        "lacks the column 'sown', which was fitted as trials: successes are predicted in the trials of each row",
    )


def test_an_indicator_of_events_is_told_and_rows_without_an_event_are_scored(lamu) -> None:
    events = STUDY.assign(ended=1 - STUDY["ended"])
    events.to_csv("study.csv", index=False)
    ran = lamu(
        "fit", "study.csv", "--target", "time", "--censored", "ended", *FIT, "--epochs", "1", "--test-size", "0.05"
    )
    count = int(events["ended"].sum())
    assert f"of 80 rows {count} are censored (ended = 1); if 1 marks an event in 'ended', give 1 - it" in ran.out
    assert ran.code == 0, ran.err
    assert (pd.read_csv("run/predictions.csv")["censored"] == 1).all()  # which ended with an error of no rows
    events.assign(ended=1).to_csv("study.csv", index=False)
    refused = lamu("fit", "study.csv", "--target", "time", "--censored", "ended", *FIT[:-1], "other")
    assert_refused(refused, "of 80 rows 80 are censored")


@pytest.mark.stress
def test_censored_times(lamu) -> None:
    STUDY.to_csv("study.csv", index=False)
    ran = lamu("fit", "study.csv", "--target", "time", "--censored", "ended", *FIT)
    assert ran.code == 0, ran.err
    assert "likelihood weibull, censored by 'ended'" in ran.out
    metrics = json.loads(Path("run/metrics.json").read_text())
    assert list(metrics["scores"]) == ["nll"]
    found = pd.read_csv("run/predictions.csv")
    assert found["censored"].tolist() == STUDY["ended"].iloc[found["row"]].tolist()
    assert found["censored"].any()
    # A censored row has the probability of a longer time, a number below one; the limit's density is another.
    assert (found.loc[found["censored"] == 1, "log_prob"] <= 0).all()
    posterior = posterior_of("run/posterior")
    base = posterior.model.likelihood.base
    rows = STUDY.iloc[found["row"]]
    pred = posterior.predict(rows[["dose", "age"]].to_numpy())
    above = np.log1p(-np.asarray(pred.cdf(rows["time"].to_numpy())))
    censored = found["censored"].to_numpy() == 1
    np.testing.assert_allclose(found["log_prob"][censored], above[censored], rtol=2e-3)
    assert type(base).__name__ == "Weibull"

    STUDY.drop(columns="time").to_csv("new.csv", index=False)
    assert lamu("predict", "run", "new.csv").code == 0
    STUDY.drop(columns="ended").to_csv("lacking.csv", index=False)
    assert_refused(
        lamu("predict", "run", "lacking.csv"),
        "lacks the column 'ended', which was fitted as censored: the target is scored with it; add it, or leave 'time'",
    )


@pytest.mark.parametrize(
    ("table", "words", "message"),
    [
        (
            SEEDS.assign(grown=np.where(np.arange(80) == 7, 30, SEEDS["grown"])),
            ("--target", "grown", "--trials", "sown"),
            "'grown' is 30 of",
        ),
        (
            SEEDS.assign(sown=SEEDS["sown"] - 0.5),
            ("--target", "grown", "--trials", "sown"),
            "in row 0 (the first is 0); trials are whole numbers from 0",
        ),
        (
            STUDY.assign(ended=np.where(np.arange(80) == 9, 2, STUDY["ended"])),
            ("--target", "time", "--censored", "ended"),
            "the column 'ended' has 2.0 in row 9 (the first is 0); an indicator is 1 where a row is censored, else 0",
        ),
        (STUDY, ("--target", "time", "--censored", "endde"), "has no column 'endde' with censored"),
        (STUDY, ("--target", "time", "--censored", "time"), "'time' is the target and cannot be its censored as well"),
        (STUDY, ("--target", "time", "--censored", "ended", "--trials", "ended"), "are two kinds of target"),
        (STUDY, ("--target", "time", "--censored", "ended", "--task", "classes"), "leave --task out"),
        (
            SEEDS,
            ("--target", "grown", "--trials", "sown", "--likelihood", "poisson"),
            "--likelihood poisson takes no trials",
        ),
    ],
)
def test_bad_columns_are_told(lamu, table, words, message) -> None:
    table.to_csv("table.csv", index=False)
    assert_refused(lamu("fit", "table.csv", *words, *FIT), message)


RATES = pd.DataFrame(X, columns=["wet", "warm"]).assign(
    hours=np.exp(random.normal(size=80)), share=random.integers(0, 3, 80), kind=random.choice(["a", "b"], 80)
)
RATES["seen"] = random.poisson(RATES["hours"] * np.exp(1 + 0.5 * X[:, 0]))
RATES["level"] = X[:, 0] + 0.3 * random.normal(size=80)
WEIGHED = ("--target", "level", "--weight", "share")
COUNTED = ("--target", "seen", "--exposure", "hours")
QUICK = ("--algorithm", "adam", "--epochs", "2", "--temperature", "1", "--prior-scale", "1", "--no-report")


class Hearing:
    """Stands for a stage: hears what it is given, and answers as the stage does."""

    def __init__(self, stage):
        self.stage, self.heard = stage, []

    def __call__(self, *given, **options):
        self.heard.append((given, options))
        return self.stage(*given, **options)


@pytest.mark.parametrize("algorithm", [None, "adam"])
def test_every_stage_hears_the_weights_and_the_offsets(lamu, monkeypatch, algorithm) -> None:
    """Which rows, which weights, which offsets: of the choice, the scaling, the fit, the bound and the scores."""
    RATES.assign(share=RATES["share"] + 1.0).to_csv("rates.csv", index=False)
    stages = [
        (learning, "candidates"), (learning, "compare_likelihoods"), (learning, "fit_table"),
        (learning, "fit_prior_scale"), (learning, "required_parts"), (Model, "standardised"), (learning, "centred"),
        (inputs, "learn_joint"), (calibration, "_statistic"), (training, "elbo"), (reporting, "peer"),
    ]  # fmt: skip
    heard = {name: Hearing(getattr(place, name)) for place, name in stages}
    of_model = lambda model, *given: heard["standardised"](model, *given)
    for place, name in stages:
        monkeypatch.setattr(place, name, of_model if place is Model else heard[name])
    monkeypatch.setattr(stacked_fit, "_steps_for", lambda count, folds: 15)
    quick = () if algorithm is None else QUICK[:-1]
    ran = lamu("fit", "rates.csv", *COUNTED, "--weight", "share", "--impute", "--out", "run", *quick)
    assert ran.code == 0, ran.err
    request = Request("rates.csv", "seen", weight="share", exposure="hours", impute=True)
    _, train, test = learning_rows(request.read(), request, 0)
    weight, offset = RATES["share"].to_numpy()[train] + 1.0, np.log(RATES["hours"].to_numpy()[train])
    same = lambda one, other: np.testing.assert_allclose(np.asarray(one, float), other, rtol=1e-6)
    same(heard["candidates"].heard[-1][0][3], weight)
    chosen = heard["compare_likelihoods"].heard[0][1]
    order = np.random.default_rng(0).permutation(len(train))
    same(chosen["weight"], weight[order])
    same(chosen["offset"], offset[order])
    same(heard["required_parts"].heard[-1][0][5], weight)
    same(heard["standardised"].heard[-1][0][3], weight)
    same(heard["learn_joint"].heard[-1][0][4], weight)
    if algorithm is None:
        fitted = heard["fit_table"].heard[0][1]
        assert not heard["centred"].heard  # the constant of a model that no run trains
    else:
        same(heard["centred"].heard[-1][0][1]["weight"], weight)
        same(heard["centred"].heard[-1][0][1]["offset"], offset)
        fitted = heard["fit_prior_scale"].heard[0][0][1]
    same(fitted["weight"], weight)
    same(fitted["offset"], offset)
    same(heard["elbo"].heard[-1][0][1]["weight"], weight)
    same(heard["elbo"].heard[-1][0][1]["offset"], offset)
    judged = [given[2] for given, _ in heard["_statistic"].heard if len(given[1]) == len(test)]
    assert len(judged) > 3
    for each in judged:
        same(each, RATES["share"].to_numpy()[test] + 1.0)
    assert {given[0] for given, _ in heard["peer"].heard} == {"boosting", "linear", "constant"}
    for given, _ in heard["peer"].heard:
        same(given[7], weight)
        same(given[8][0], np.exp(offset))
        same(given[8][1], RATES["hours"].to_numpy()[test])
    page = Path("run/report.html").read_text()
    assert "Weight of a row" in page
    assert "Exposure" in page
    found = pd.read_csv("run/predictions.csv")
    same(found["exposure"], RATES["hours"].iloc[found["row"]])
    same(found["weight"], RATES["share"].iloc[found["row"]] + 1.0)
    config = json.loads(Path("run/config.json").read_text())
    assert config["beside"] == [["weight", "share"], ["exposure", "hours"]]
    assert config["columns"] == ["wet", "warm", "kind", "level"]


def test_a_row_of_weight_zero_is_left_out(lamu) -> None:
    """The same split, posterior and scores, to the last digit, as of a table without these rows."""
    level = np.where(RATES["share"] == 0, 1e6, RATES["level"])
    table = RATES.drop(columns="seen").assign(level=level)
    table.loc[table["share"] == 0, "kind"] = "only here"
    table.to_csv("all.csv", index=False)
    kept = table[table["share"] > 0]
    kept.to_csv("kept.csv", index=False)
    for name in ("all", "kept"):
        ran = lamu("fit", f"{name}.csv", *WEIGHED, *QUICK, "--out", name)
        assert ran.code == 0, ran.err
        assert ("rows of weight 0 are left out" in ran.out) == (name == "all")
    one, other = (json.loads(Path(name, "metrics.json").read_text()) for name in ("all", "kept"))
    for key in ("task", "rows", "scores", "standard_errors"):
        assert one[key] == other[key]
    mine, theirs = (pd.read_csv(Path(name, "predictions.csv")) for name in ("all", "kept"))
    np.testing.assert_array_equal(mine["row"], kept.index[theirs["row"]])  # counted in the file
    pd.testing.assert_frame_equal(mine.drop(columns="row"), theirs.drop(columns="row"))
    # Predicted are all rows of a table, and the scores are of those that count.
    again, plain = (lamu("predict", "all", f"{name}.csv", "--json").document for name in ("all", "kept"))
    assert (again["rows"], plain["rows"]) == (80, len(kept))
    assert again["scores"] == pytest.approx(plain["scores"])
    assert [note for note in again["notes"] if "the table that was fitted" in note]


def test_a_row_of_weight_two_is_the_row_twice() -> None:
    """Wherever that is exact: columns, medians, choices, noise, posterior, baselines and scores."""
    x, y = X.astype(np.float32), RATES["level"].to_numpy(np.float32)
    weight = random.integers(1, 4, 80).astype(float)
    rows = np.repeat(np.arange(80), weight.astype(int))
    near = lambda one, other, tolerance=1e-5: np.testing.assert_allclose(one, other, rtol=tolerance, atol=1e-6)
    heavy = np.column_stack([X, random.standard_cauchy(80), np.where(X[:, 0] > 0.5, X[:, 1], 0.0)])
    jax.tree.map(near, Columns.of(heavy, weight=weight), Columns.of(heavy[rows]))
    features = inputs.Features(("wet", "warm"), X, ((), ()))
    near(inputs.learn(features, slice(None), True, y, 0, weight)["fills"], np.median(X[rows], axis=0))
    near(learning._shape(x, y, weight), learning._shape(x[rows], y[rows], np.ones(len(rows))), 1e-4)
    ordered = np.digitize(y, [-0.5, 0.5])
    assert learning._is_ordered(x, ordered, weight) == learning._is_ordered(x[rows], ordered[rows], np.ones(len(rows)))
    encoding = Encoding("level", "regression", (), ("wet", "warm"))
    model, _ = learning.model_for(encoding, x, y, None, "conjugate", None, weight)
    other, _ = learning.model_for(encoding, x[rows], y[rows], None, "conjugate")
    near(model.likelihood.base.scale, other.likelihood.base.scale)
    fits = [
        fit(model, {"x": x, "y": y, "weight": weight}, conjugate()).posterior,
        fit(other, (x[rows], y[rows]), conjugate()).posterior,
    ]
    preds = [posterior.predict(x) for posterior in fits]
    near(preds[0].mean, preds[1].mean, 1e-3)
    near(preds[0].std, preds[1].std, 1e-3)
    near(fits[0].evidence, fits[1].evidence, 1e-4)
    linear = peer("constant", "regression", x, y, x, (0, 0), weight=weight)
    near(linear.mean, np.average(y, weights=weight))
    label = (y > 0).astype(int)
    two = Encoding("level", "binary", ("no", "yes"), ("wet", "warm"))
    sure = peer("linear", "binary", x, label, x, (0, 0), 2)
    for pred, target, of in ((preds[0], y, encoding), (sure, label, two)):
        judged = score_rows(pred, target, of)
        values = estimates(judged, weight)
        repeated = estimates({name: np.asarray(part)[rows] for name, part in judged.items()})
        for name, estimate in values.items():
            near(estimate.value, repeated[name].value)
        equal = estimates(judged, np.full(80, 3.0))  # of equal weights the error is that without weights
        for name, estimate in estimates(judged).items():
            near(equal[name].error, estimate.error)


def test_a_doubled_exposure_doubles_the_mean(lamu) -> None:
    RATES.to_csv("rates.csv", index=False)
    ran = lamu("fit", "rates.csv", *COUNTED, *QUICK, "--likelihood", "zero_inflated_poisson", "--out", "run")
    assert ran.code == 0, ran.err
    RATES.drop(columns="seen").to_csv("new.csv", index=False)
    RATES.drop(columns="seen").assign(hours=2 * RATES["hours"]).to_csv("longer.csv", index=False)
    RATES.drop(columns="hours").to_csv("rate.csv", index=False)
    documents = [lamu("predict", "run", f"{name}.csv", "--json").document for name in ("new", "longer", "rate")]
    one, two, rate = (np.array([row["mean"] for row in each["predictions"]]) for each in documents)
    np.testing.assert_allclose(two, 2 * one, rtol=1e-5)
    np.testing.assert_allclose(one, rate * RATES["hours"], rtol=1e-5)
    assert documents[2]["scores"] is None  # a count of an exposure that is not known cannot be judged
    (note,) = (note for note in documents[2]["notes"] if "exposure" in note)
    assert note.endswith("rates, counts at an exposure of 1, and are not scored")


def test_an_interrupted_run_goes_on_with_the_same_columns_alone(lamu, monkeypatch) -> None:
    RATES.to_csv("rates.csv", index=False)

    def stop(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(learning, "fit_prior_scale", stop)
    assert lamu("fit", "rates.csv", *COUNTED, "--weight", "share", *QUICK, "--out", "run").code == 130
    for words in ((*COUNTED,), (*COUNTED, "--weight", "hours"), ("--target", "seen", "--weight", "share")):
        ran = lamu("fit", "rates.csv", *words, *QUICK, "--out", "run", "--resume")
        assert ran.code == 2
        assert "run.unfinished" in ran.err


@pytest.mark.parametrize(
    ("column", "value", "option", "message"),
    [
        (
            "share",
            -0.5,
            "--weight",
            "the column 'share' has -0.5 in row 3 (the first is 0); weights are numbers",
        ),
        ("share", np.nan, "--weight", "the column 'share' has no value in row 3 (the first is 0); weights are"),
        ("share", np.inf, "--weight", "the column 'share' has inf in row 3"),
        (
            "share",
            None,
            "--weight",
            "the column 'share' of weights is 0 in all rows; give those that count more",
        ),
        ("share", "much", "--weight", "the column 'share' of weight holds no numbers; weights are numbers from 0"),
        (
            "hours",
            -1.0,
            "--exposure",
            "the column 'hours' has -1.0 in row 3 (the first is 0); exposures are",
        ),
        ("hours", np.nan, "--exposure", "the column 'hours' has no value in row 3 (the first is 0); exposures are"),
        (
            "hours",
            None,
            "--exposure",
            "the column 'hours' has 0.0 in row 0 (the first is 0); exposures are",
        ),
        ("seen", 0.5, "--exposure", "the column 'seen' has 0.5 in row 3 (the first is 0); counts of an exposure are"),
    ],
)
def test_bad_weights_and_exposures_are_told(lamu, column, value, option, message) -> None:
    rows = np.arange(80) == 3 if value != "much" else np.ones(80, bool)
    frame = RATES.astype({column: object})
    frame[column] = 0.0 if value is None else np.where(rows, value, RATES[column].astype(object))
    frame.to_csv("rates.csv", index=False)
    used = "share" if option == "--weight" else "hours"
    assert_refused(lamu("fit", "rates.csv", "--target", "seen", option, used, *QUICK, "--out", "run"), message)


@pytest.mark.parametrize("name", ["gaussian", "poisson_square_root", "gamma", "binomial", "student_t"])
def test_an_exposure_is_of_counts_with_a_log_link(lamu, name) -> None:
    RATES.to_csv("rates.csv", index=False)
    told = f"--likelihood {name} has no rate that an exposure multiplies, and --exposure is hours; give poisson,"
    assert_refused(lamu("fit", "rates.csv", *COUNTED, "--likelihood", name, *QUICK, "--out", "run"), told)
    assert_refused(lamu("compare", "rates.csv", *COUNTED, "--likelihood", name), told)
    both = ("--trials", "hours", "--out", "run")
    assert_refused(lamu("fit", "rates.csv", *COUNTED, *QUICK, *both), "--trials hours and --exposure hours are")


def test_of_a_table_of_frequencies_cases_are_held_out(tmp_path) -> None:
    """By rows, cells lacked all cases of the targets held out: accuracy 0 and 3.98 nats on a set with 1.03."""
    cells = pd.MultiIndex.from_product([["low", "mid", "high"], ["flat", "house"], [0, 1]], names=["a", "b", "y"])
    counts = cells.to_frame(index=False).assign(n=np.arange(3, 15))
    counts.to_csv(tmp_path / "counts.csv", index=False)
    request = Request(str(tmp_path / "counts.csv"), target="y", weight="n")
    parts, train, test = learning_rows(request.read(), request, 0)
    assert parts.encoding.task == "binary"
    weight = parts.beside["weight"]
    np.testing.assert_array_equal(weight, np.rint(weight))
    np.testing.assert_array_equal(np.bincount(parts.numbers, weights=weight), counts["n"])
    assert weight[test].sum() == np.ceil(0.2 * counts["n"].sum())
    assert not set(train) & set(test)
    assert np.bincount(parts.numbers[train], minlength=12).min() == 1
    assert "'n' counts the cases of cells" in " ".join(parts.notes)
    assert not leaks(parts, train, test)
    assert parts.fingerprint() == match(str(tmp_path / "counts.csv"), parts.encoding).fingerprint()
    # Importance weights, and rows that are their own, are split by rows.
    for other in (counts.assign(n=counts["n"] / 2), counts.assign(c=np.arange(12) * 1.5)):
        other.to_csv(tmp_path / "other.csv", index=False)
        rows, train, test = learning_rows(
            Request(str(tmp_path / "other.csv"), target="y", weight="n").read(), request, 0
        )
        assert sorted([*train, *test]) == list(range(12)) == rows.numbers.tolist()


VISITS = pd.DataFrame(X, columns=["dose", "age"]).assign(
    patient=[f"P{number:02d}" for number in np.repeat(np.arange(16), 5)], ward=np.repeat(np.arange(8), 10), pain=X[:, 0]
)


def test_a_column_of_groups_is_no_input_and_held_out_whole(tmp_path) -> None:
    file = str(tmp_path / "visits.csv")
    VISITS.assign(patient=VISITS["patient"].str[1:]).to_csv(file, index=False)  # codes such as 07
    for groups, count, held_out in (("patient", 16, 3), ("ward", 8, 2)):
        request = Request(file, target="pain", groups=groups)
        table, train, test = learning_rows(request.read(), request, 0)
        assert groups not in table.encoding.columns
        assert (table.encoding.task, table.encoding.beside) == ("regression", (("groups", groups),))
        numbers = VISITS[groups]
        assert not set(numbers.iloc[train]) & set(numbers.iloc[test])
        assert len(set(numbers.iloc[test])) == held_out
        said = (
            f"{groups!r} groups the rows and is no input: {held_out} of {count} groups are held out with all of their"
        )
        assert said in " ".join(table.notes)
        assert not any("categories" in note for note in table.notes if "patient" in note and groups == "patient")
        assert table.data["groups"].dtype == np.int32
    again = match(VISITS.drop(columns="ward"), table.encoding)
    assert "was fitted as groups: the standard errors of the scores are those of independent rows" in " ".join(
        again.notes
    )
    assert match(VISITS, table.encoding).beside["groups"].tolist() == VISITS["ward"].tolist()
    assert match(VISITS.drop(columns=["ward", "pain"]), table.encoding).beside == {}


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            [None, *range(79)],
            "the column 'g' of groups has no value in row 0 (the first is 0); give each row its group",
        ),
        (["one"] * 80, "the column 'g' of groups is 'one' in every row; leave it out, or add rows of others"),
        ("pain", "'pain' is the target and cannot be its groups as well"),
        ("none", "has no column 'none' with groups"),
    ],
)
def test_groups_that_cannot_be_held_out_are_refused(groups: object, said: str) -> None:
    frame = VISITS if isinstance(groups, str) else VISITS.assign(g=groups)
    with pytest.raises(ValueError, match=re.escape(said)):
        read(frame, target="pain", beside={"groups": groups if isinstance(groups, str) else "g"})


def test_the_errors_of_scores_are_over_groups() -> None:
    rng = np.random.default_rng(0)
    losses = rng.normal(size=40)
    rows = {"nll": np.repeat(losses, 3), "rmse": np.repeat(losses**2, 3)}
    rows["ece"] = np.stack([np.full(120, 0.7), np.repeat(losses > -0.5, 3)], axis=1)
    single = {name: part[::3] for name, part in rows.items()}
    of_rows, of_groups = estimates(rows), estimates(rows, None, np.repeat(np.arange(40), 3))
    for name, alone in estimates(single).items():
        assert of_groups[name].value == pytest.approx(alone.value)
        assert of_groups[name].error == pytest.approx(alone.error, rel=1e-6 if name != "ece" else 0.2)
        assert of_rows[name].error < 0.65 * alone.error
    weight = np.append(np.ones(117), np.zeros(3))
    assert estimates(rows, weight, np.repeat(np.arange(40), 3))["nll"].error == pytest.approx(
        estimates({"nll": single["nll"][:-1]})["nll"].error
    )


@pytest.mark.stress
def test_groups_reach_the_fit_its_scores_and_a_comparison(lamu) -> None:
    VISITS.to_csv("visits.csv", index=False)
    ran = lamu("fit", "visits.csv", "--target", "pain", "--groups", "patient", *FIT)
    assert ran.code == 0, ran.err
    assert "3 of 16 groups are held out with all of their rows" in ran.out
    config = json.loads(Path("run/config.json").read_text())
    assert (config["groups"], config["beside"]) == ("patient", [["groups", "patient"]])
    asked = ("--target", "pain", "--groups", "patient", "--algorithms", "linear,constant")
    assert "one standard error over the groups of 'patient'; the" in lamu("compare", "visits.csv", *asked).out
    ran = lamu("compare", "visits.csv", *asked, "--json")
    assert ran.code == 0, ran.err
    about = json.loads(ran.out)
    assert about["groups"] == "patient"
    assert any("3 of 16 groups" in note for note in about["notes"])
    ran = lamu("fit", "visits.csv", "--target", "pain", "--groups", "ward", "--folds", "9", "--out", "x")
    assert (ran.code, ran.err) == (2, "lamu: folds=9 cannot be made of 6 groups; give a number from 2 to the groups\n")
