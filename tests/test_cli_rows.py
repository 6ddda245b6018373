"""`lamu fit --model`: tables without a target, the latents and the holes of their rows, and what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lamu.cli import latents, main
from lamu.cli.printing import show_unreliable
from lamu.cli.row_models import MODELS, reference_log_probs
from lamu.data.table import match_columns, read_columns
from lamu.latent import Columns
from lamu.posterior import Posterior
from lamu.running.conclusion import Fit
from lamu.scores import UnreliableWeights
from tests.command_line import assert_refused

ROWS, HELD_OUT = 60, 12


def numbers() -> pd.DataFrame:
    """Two groups of rows in three columns of units of their own, the odd one last."""
    random = np.random.default_rng(0)
    side = np.repeat([-1.0, 1.0], ROWS // 2)[random.permutation(ROWS)]
    rows = side[:, None] * [3.0, 200.0, -1.0] + random.normal(size=(ROWS, 3)) * [0.5, 30.0, 0.2] + [10.0, 0.0, 5.0]
    rows[-1] = [10.0, 5_000.0, 40.0]
    return pd.DataFrame(rows, columns=["length", "mass", "depth"])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    table = numbers()
    table.iloc[2, 1] = np.nan
    table.to_csv(folder / "table.csv", index=False)
    words = ["fit", str(folder / "table.csv"), "--model", "gmm", "--set", "components=2", "--epochs", "60"]
    assert main([*words, "--samples", "8", "--out", str(folder / "run")]) == 0
    return folder


@pytest.mark.stress
def test_fit_writes_the_folder(fitted) -> None:
    run = fitted / "run"
    names = ["config.json", "latents.csv", "latents.png", "metrics.json", "posterior", "report.html"]
    assert sorted(path.name for path in run.iterdir()) == names
    config, metrics = (json.loads((run / name).read_text()) for name in ("config.json", "metrics.json"))
    assert (config["model"], config["size"], config["kinds"]) == ("gmm", 2, ["number"] * 3)
    assert metrics["rows"] == {"train": ROWS - HELD_OUT, "test": HELD_OUT}
    table = pd.read_csv(run / "latents.csv")
    assert table["held_out"].sum() == HELD_OUT
    assert metrics["log_prob"] == pytest.approx(table["log_prob"][table["held_out"]].mean())
    np.testing.assert_allclose(table[["component 1", "component 2"]].sum(axis=1), 1.0, rtol=1e-5)
    for other in metrics["references"].values():
        assert other["difference"] == pytest.approx(metrics["log_prob"] - other["log_prob"])
    report = (run / "report.html").read_text()
    assert "a mixture of Gaussians" in report
    assert "The strangest rows" in report


def test_new_rows_have_latents_and_densities_and_the_odd_one_comes_first(fitted, lamu) -> None:
    numbers().to_csv("new.csv", index=False)
    ran = lamu("predict", fitted / "run", "new.csv", "--samples", "8", "--out", "latents.csv")
    assert ran.code == 0, ran.err
    table = pd.read_csv("latents.csv")
    assert table["row"].tolist() == list(range(ROWS))
    assert table["log_prob"].argmin() == ROWS - 1
    assert ran.out.index(f" {ROWS - 1} ") < ran.out.index(" 0 ")
    again = pd.read_csv(fitted / "run" / "latents.csv")
    same = np.arange(ROWS) != 2
    np.testing.assert_allclose(table["log_prob"][same], again["log_prob"][same], rtol=1e-4, atol=1e-4)


@pytest.mark.stress
def test_holes_are_filled_with_intervals_and_what_is_there_stays(fitted, lamu) -> None:
    table = numbers().iloc[:6]
    holes = table.copy()
    holes.loc[[1, 4], "mass"] = np.nan
    holes.to_csv("holes.csv", index=False)
    ran = lamu("impute", fitted / "run", "holes.csv", "--out", "filled.csv", "--samples", "40")
    assert ran.code == 0, ran.err
    assert "2 empty cells of 2 rows filled in" in ran.out
    filled = pd.read_csv("filled.csv")
    np.testing.assert_allclose(filled["length"], table["length"])
    np.testing.assert_allclose(filled["mass"].drop([1, 4]), table["mass"].drop([1, 4]))
    lower, upper = filled["mass lower"], filled["mass upper"]
    assert (lower <= filled["mass"]).all()
    assert (upper - lower)[[1, 4]].min() > 20.0  # the noise of a group is 30
    np.testing.assert_allclose((upper - lower).drop([1, 4]), 0.0)
    assert_refused(lamu("impute", fitted / "run", "holes.csv", "--out", "filled.csv"), "exists already")


def test_what_cannot_be(fitted, lamu) -> None:
    table = numbers()
    table.to_csv("table.csv", index=False)
    table[["mass"]].to_csv("one.csv", index=False)
    table.assign(word=["a", "b"] * (ROWS // 2)).to_csv("words.csv", index=False)
    table.assign(same=1.0).to_csv("same.csv", index=False)
    table.iloc[:8].to_csv("short.csv", index=False)
    for words, told in {
        ("table.csv", "--model", "gmn"): "did you mean 'gmm'?",
        ("table.csv", "--model", "fa", "--target", "mass"): "--target is for a target, and --model fa has none",
        ("table.csv", "--model", "fa", "--set", "components=2"): "--set components is not a setting of --model fa",
        ("table.csv", "--model", "fa", "--set", "factors=0"): "give a whole number from 1",
        ("table.csv", "--model", "lda"): "every value of it is a whole number from 0",
        ("words.csv", "--model", "lda"): "the column 'word' holds words such as 'a'",
        ("words.csv", "--model", "hmm"): "leave it out, or take --model vae",
        ("one.csv", "--model", "ppca"): "there is one column, 'mass'",
        ("same.csv", "--model", "gmm"): "the column 'same' has one value",
        ("short.csv", "--model", "gmm", "--set", "components=7"): "fewer than 7 components",
        ("none.csv", "--model", "gmm"): "there is no file 'none.csv'",
        ("table.csv", "--model", "gmm", "--test-size", "2"): "--test-size is 2",
    }.items():
        assert_refused(lamu("fit", *words, "--out", "new"), told)
    assert_refused(lamu("fit", "table.csv", "--model", "gmm", "--out", fitted / "run"), "exists already")
    run = fitted / "run"
    assert_refused(lamu("impute", run, "table.csv"), "no cell of 'table.csv' is empty")
    assert_refused(lamu("predict", run, "one.csv"), "lacks the columns 'length', 'depth'")
    assert_refused(lamu("predict", run, "table.csv", "--out", "latents.npz"), "give FILE.csv")
    config = json.loads((run / "config.json").read_text())
    Path("other").mkdir()
    (Path("other") / "config.json").write_text(json.dumps({**config, "model": None}))
    assert_refused(lamu("impute", "other", "table.csv"), "was fitted to a target")
    assert not Path("new").exists()


def test_sizes_are_tried_while_the_bound_rises(monkeypatch) -> None:
    asked = []

    class Known(Posterior):
        def __init__(self, size: int) -> None:
            object.__setattr__(self, "evidence", -abs(size - 3.0))

    def fitted(size: int, *rest, **options) -> Fit:
        return Fit(Known(size), {}, None)

    monkeypatch.setattr(latents, "for_rows", lambda spec, posterior, *rest: posterior)

    spec = MODELS["gmm"]
    features, encoding, _ = read_columns(numbers())
    columns = Columns.learned(features, encoding)
    rows = latents._SplitRows(columns, features.values, np.arange(40), np.arange(40, 60), ())
    monkeypatch.setattr(type(spec), "graph", lambda self, size, *rest: asked.append(size) or size)
    monkeypatch.setattr(latents, "fit", fitted)
    monkeypatch.setattr(type(spec), "log_prob", lambda self, posterior, columns, values, samples: np.zeros(len(values)))
    request = latents.Request("table.csv")
    tried = latents._fit_sizes(spec, rows, (1, 2, 3, 4, 5, 6), request, {}, {})
    assert (tried.best, asked, list(tried.told)) == (3, [1, 2, 3, 4], [1, 2, 3, 4])


def test_references_are_the_densities_of_scipy() -> None:
    from scipy.stats import multivariate_normal, norm

    values = numbers().to_numpy()
    features, encoding, _ = read_columns(numbers())
    columns = Columns.learned(features, encoding, dict.fromkeys(encoding.columns, "number"))
    train, test = values[:40], values[40:].copy()
    told = reference_log_probs("gmm", columns, train, test)
    mean, covariance = train.mean(axis=0), np.cov(train.T, bias=True)
    np.testing.assert_allclose(told["one Gaussian"], multivariate_normal(mean, covariance).logpdf(test), rtol=1e-6)
    independent = norm.logpdf(test, mean, train.std(axis=0)).sum(axis=1)
    np.testing.assert_allclose(told["independent columns"], independent)
    holes, rest = np.where(np.arange(3) == 1, np.nan, test), [0, 2]
    told = reference_log_probs("gmm", columns, train, holes)
    marginal = multivariate_normal(mean[rest], covariance[np.ix_(rest, rest)])
    np.testing.assert_allclose(told["one Gaussian"], marginal.logpdf(test[:, rest]), rtol=1e-6)


def test_the_reference_gaussian_of_rows_with_holes_is_that_of_largest_likelihood() -> None:
    """A column that is missing where another is large keeps the mean that a regression on the other one gives."""
    random = np.random.default_rng(1)
    first = random.normal(size=4_000)
    second = 2.0 * first + 0.5 * random.normal(size=4_000)
    rows = np.stack([first, np.where(first > 0.5, np.nan, second)], axis=1)
    features, encoding, _ = read_columns(pd.DataFrame(rows, columns=["a", "b"]))
    columns = Columns.learned(features, encoding, {"a": "number", "b": "number"})
    test = np.stack([first, second], axis=1)[:500]
    told = reference_log_probs("fa", columns, rows, test)["one Gaussian"]
    from scipy.stats import multivariate_normal

    true = multivariate_normal([0.0, 0.0], [[1.0, 2.0], [2.0, 4.25]]).logpdf(test)
    assert abs(np.mean(told - true)) < 0.02


def test_a_series_is_told_row_by_row_given_its_past() -> None:
    """The gains of all rows add up to the density of the series."""

    class Known(Posterior):
        def log_prob(self, rows, samples):
            return -np.nansum(np.asarray(rows["y"]) ** 2, axis=(1, 2))

    table = numbers()
    features, encoding, _ = read_columns(table)
    columns = Columns.learned(features, encoding, dict.fromkeys(encoding.columns, "number"))
    told = MODELS["hmm"].log_prob(object.__new__(Known), columns, features.values, 1)
    scaled = columns.rows_of(features.values)["numbers"]
    np.testing.assert_allclose(told, -(scaled**2).sum(axis=1) - columns.log_unit(features.values), rtol=1e-4)


def test_a_table_is_read_again_by_name_and_a_new_word_is_missing(tmp_path) -> None:
    table = pd.DataFrame({"size": np.arange(6.0), "sort": list("aabbab")})
    _, encoding, _ = read_columns(table)
    values, notes = match_columns(pd.DataFrame({"more": [1], "sort": ["c"], "size": [3.0]}), encoding)
    assert values[0, 0] == 3.0
    assert np.isnan(values[0, 1])
    assert any("new values, taken as missing: 'c' (1)" in note for note in notes)
    assert any("ignored the extra column 'more'" in note for note in notes)


def test_rows_whose_weights_leave_their_density_open_are_one_line_of_the_command(capsys) -> None:
    @show_unreliable()
    def density() -> None:
        warnings.warn("the weights of 2 of 6 rows leave it open: too low; ask for more samples", UnreliableWeights, 2)
        warnings.warn("another", FutureWarning, 2)

    with pytest.warns(FutureWarning, match="another"):
        density()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "the weights of 2 of 6 rows leave it open: too low; give more --samples\n")
