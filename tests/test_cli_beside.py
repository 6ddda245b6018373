"""`lamu fit --trials` and `--censored`: what rows of a table bring beside their target."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lamu.posterior import load as posterior_of
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
