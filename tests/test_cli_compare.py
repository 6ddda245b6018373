"""`lamu compare`: the same rows for all, paired differences, one row each, and a failure that stays its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from lamu.cli import comparing, printing
from lamu.cli.comparing import FLOOR
from lamu.cli.printing import plain
from lamu.cli.request import Request
from lamu.cli.worker import fit_and_score, main
from tests.command_line import assert_refused, csv_of


def answer(nll, streams: int = 1, steps: int = 10, evidence: float | None = None) -> dict:
    """What a process would answer, one split a row of `nll`."""
    splits = [
        {
            "scores": {"accuracy": 0.9, "nll": float(np.mean(rows)), "ece": 0.05},
            "standard_errors": {"accuracy": 0.01, "nll": float(np.std(rows, ddof=1) / len(rows) ** 0.5), "ece": 0.01},
            "nll": list(rows),
            "steps": steps,
            "seconds": 2.0,
            "evidence": evidence,
        }
        for rows in np.atleast_2d(nll)
    ]
    return {"splits": splits, "streams": streams, "epochs": 50, "memory": 300 * 2**20}


@pytest.fixture
def answers(monkeypatch):
    """Puts answers in the place of processes, and keeps what was asked of them."""
    known, asked = {}, []

    def run(task):
        asked.append(task)
        return known[task["algorithm"]]

    monkeypatch.setattr(comparing, "run", run)
    known["asked"] = asked
    return known


def test_one_split_is_paired_row_by_row(lamu, answers):
    random = np.random.default_rng(0)
    hard = random.gamma(1.0, 5.0, 30)  # what makes a row hard makes it hard for both
    answers |= {"adam": answer(hard), "ivon": answer(hard - 0.1 + 0.01 * random.normal(size=30))}
    found = lamu("compare", "iris", "--algorithms", "adam,ivon", "--json").document
    first, second = found["algorithms"]
    apart = np.array(answers["ivon"]["splits"][0]["nll"]) - np.array(answers["adam"]["splits"][0]["nll"])
    assert second["nll_difference"]["value"] == pytest.approx(apart.mean())
    assert second["nll_difference"]["standard_error"] == pytest.approx(apart.std(ddof=1) / np.sqrt(30))
    assert second["nll_difference"]["standard_error"] < 0.01 * second["standard_errors"]["nll"]
    assert first["nll_difference"] == {"value": 0.0, "standard_error": 0.0}
    assert (found["complete"], found["rows"], found["splits"]) == (True, {"train": 120, "test": 30}, 1)
    assert [task["request"] for task in answers["asked"]] == [answers["asked"][0]["request"]] * 2


def test_several_splits_are_paired_split_by_split(lamu, answers):
    random = np.random.default_rng(1)
    level = np.array([[1.0], [2.0], [3.0]])
    answers |= {
        "adam": answer(level + random.normal(size=(3, 30))),
        "ivon": answer(level - np.array([[0.1], [0.2], [0.3]]) + random.normal(size=(3, 30))),
    }
    found = lamu("compare", "iris", "--algorithms", "adam,ivon", "--splits", "3", "--json").document
    means = [[split["scores"]["nll"] for split in answers[name]["splits"]] for name in ("adam", "ivon")]
    apart = np.subtract(means[1], means[0])
    row = found["algorithms"][1]
    assert row["nll_difference"]["value"] == pytest.approx(apart.mean())
    assert row["nll_difference"]["standard_error"] == pytest.approx(apart.std(ddof=1) / np.sqrt(3))
    assert row["scores"]["nll"] == pytest.approx(np.mean(means[1]))
    assert row["standard_errors"]["nll"] == pytest.approx(np.std(means[1], ddof=1) / np.sqrt(3))


@pytest.mark.parametrize("columns", [80, 240])
def test_the_table_fits_the_line(lamu, answers, monkeypatch, columns):
    rows = np.random.default_rng(2).gamma(1.0, 0.2, 30)
    answers |= {"adam": answer(rows), "deep_ensemble": answer(rows - 0.05, streams=5)}
    for module in (comparing, printing):
        monkeypatch.setattr(module, "width", lambda: columns)
    ran = lamu("compare", "iris", "--algorithms", "adam,deep_ensemble")
    assert ran.code == 0, ran.err
    table = [line for line in ran.out.splitlines() if line[:1] in "│╭╰├"]
    assert all(len(line) <= columns for line in table)
    assert ("what it cost" in ran.out) == (columns == 80)
    for part in ("nll − adam's", "-0.05", "5 × 10", "300", "one standard error over the test rows", "epochs 50"):
        assert part in ran.out
    assert "…" not in ran.out
    assert "deep_ensemble steps several members at once" in ran.out


def test_a_failure_is_a_sentence_and_a_code(lamu, answers):
    rows = np.linspace(0.1, 0.9, 30)
    answers |= {"adam": {"failure": "the loss is nan at step 3; lower the learning rate"}, "ivon": answer(rows)}
    ran = lamu("compare", "iris", "--algorithms", "adam,ivon")
    assert ran.code == 1
    assert "adam failed: the loss is nan at step 3; lower the learning rate\n" in ran.out
    assert "ivon" in ran.out
    found = lamu("compare", "iris", "--algorithms", "adam,ivon", "--json")
    assert (found.code, found.document["complete"]) == (1, False)
    assert found.document["algorithms"][1]["nll_difference"] is None
    assert lamu("compare", "iris", "--algorithms", "ivon").code == 0


@pytest.mark.stress
def test_a_contestant_fits_every_split_and_says_why_it_failed(tmp_path, monkeypatch):
    csv_of("iris").to_csv(tmp_path / "iris.csv", index=False)
    request = Request(str(tmp_path / "iris.csv"), "target", epochs=4)
    found = fit_and_score(request, "adam", ("learning_rate=0.01",), 2)
    assert [len(split["nll"]) for split in found["splits"]] == [24, 24]
    assert found["splits"][0]["nll"].tolist() != found["splits"][1]["nll"].tolist()
    assert found["splits"][0]["steps"] == 4 * 2
    assert found["memory"] is None or 50 * 2**20 < found["memory"] < 2**37
    for split in found["splits"]:
        assert split["scores"]["nll"] == pytest.approx(np.mean(split["nll"]))
    task, answer_file = tmp_path / "task.json", tmp_path / "answer.json"
    for sentence, reason in (
        (ValueError("lower the rate"), "lower the rate"),
        (MemoryError("8 GiB"), "MemoryError: 8 GiB"),
        (ValueError("two\nlines"), "ValueError: two lines"),
    ):

        def fail(*arguments, sentence=sentence, **options):
            raise sentence

        monkeypatch.setattr("lamu.cli.learning.fit_temperature", fail)
        task.write_text(comparing.dump({"request": vars(request), "algorithm": "adam", "settings": [], "splits": 1}))
        assert main(str(task), str(answer_file)) == 0
        assert comparing.json.loads(answer_file.read_text()) == {"failure": reason}


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by signal 9, as when memory is short"),
        ("raise SystemExit('no room')", "its process ended with code 1: no room"),
    ],
)
def test_a_process_that_dies_is_a_failure(monkeypatch, program, failure):
    run = subprocess.run
    stand_in = lambda words, **options: run([sys.executable, "-c", program], **options)
    monkeypatch.setattr(comparing.subprocess, "run", stand_in)
    assert comparing.run({}) == {"failure": failure}


def test_rows_are_ordered_by_what_is_asked(lamu, answers):
    rows = np.random.default_rng(0).normal(size=30)
    answers |= {
        "adam": answer(rows + 3.0),
        "laplace": answer(rows + 2.0, evidence=-1234.5),
        "ivon": answer(rows + 1.0, evidence=-2000.0),
    }
    order = lambda *words: [
        row["algorithm"]
        for row in lamu("compare", "iris", "--algorithms", "adam,ivon,laplace", *words, "--json").document["algorithms"]
    ]
    assert order() == ["adam", "ivon", "laplace"]
    assert order("--by", "nll") == ["ivon", "laplace", "adam"]
    assert order("--by", "evidence") == ["laplace", "ivon", "adam"]  # of a point nothing is known
    shown = lamu("compare", "iris", "--algorithms", "adam,laplace", "--by", "evidence").out
    assert "-1,234.5" in shown
    assert "nll − adam's" in shown  # still the measure, though it stands last
    assert_refused(lamu("compare", "iris", "--algorithms", "adam", "--by", "evidenc"), "--by is 'evidenc'")


def test_a_reference_is_run_beside_and_compared_with(lamu, answers, monkeypatch):
    rows = np.random.default_rng(0).normal(size=30)
    answers |= {"ivon": answer(rows), "nuts": answer(rows)}
    near = {"ivon": {"agreement": 0.97, "total_variation": 0.031, "coverage": 0.91}}
    near[FLOOR] = {"agreement": 0.99, "total_variation": 0.012, "coverage": 0.9}
    monkeypatch.setattr(comparing, "closeness", lambda *given: near)
    ran = lamu("compare", "iris", "--algorithms", "ivon", "--reference", "nuts")
    assert [(task["algorithm"], "keep" in task) for task in answers["asked"]] == [("ivon", True), ("nuts", True)]
    assert "how close to nuts" in ran.out
    assert "0.0310" in ran.out
    assert "0.0120" in ran.out  # how far the reference is from itself
    assert "warmup=250, draws=250" in ran.out  # lengths of its own would take an hour
    lamu("compare", "iris", "--algorithms", "ivon", "--reference", "nuts", "--set", "nuts.draws=300")
    assert answers["asked"][-1]["settings"] == ["draws=300", "warmup=250"]
    assert_refused(lamu("compare", "iris", "--algorithms", "ivon", "--reference", "nut"), "there is no algorithm 'nut'")


@pytest.mark.stress
def test_processes_keep_their_posteriors_for_a_reference(lamu):
    words = ("--algorithms", "ivon", "--epochs", "2", "--reference", "nuts")
    short = [word for each in ("chains=2", "warmup=20", "draws=20") for word in ("--set", f"nuts.{each}")]
    ran = lamu("compare", "iris", *words, *short, "--json")
    found = ran.document["algorithms"]
    assert 0 <= found[0]["closeness"]["agreement"] <= 1
    assert 0 < found[0]["closeness"]["total_variation"] < 1
    assert found[1]["closeness"] is None
    assert 0 < ran.document["reference"]["floor"]["total_variation"] < found[0]["closeness"]["total_variation"]


def test_an_interrupted_process_interrupts_the_comparison(lamu, monkeypatch):
    stand_in = lambda words, **options: subprocess.CompletedProcess(words, 130)
    monkeypatch.setattr(comparing.subprocess, "run", stand_in)
    assert lamu("compare", "iris", "--algorithms", "adam").code == 130


def test_processes_answer(lamu, tmp_path):
    """The one real process: a comparison of one algorithm, from the words to the table."""
    csv_of("iris").to_csv(tmp_path / "iris.csv", index=False)
    ran = lamu("compare", "iris.csv", "--target", "target", "--algorithms", "adam", "--epochs", "2", "--json")
    assert ran.code == 0, ran.out + ran.err
    (row,) = ran.document["algorithms"]
    assert row["steps"] == 4
    assert 0 < row["scores"]["nll"] < 10
    assert ran.document["budget"]["epochs"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["iris.csv"]


@pytest.mark.stress
def test_the_default_is_what_fit_runs_unless_it_is_told(lamu, tmp_path):
    csv_of("iris", rows=60).to_csv("table.csv", index=False)
    data = ("table.csv", "--target", "target", "--epochs", "2")
    assert lamu("fit", *data, "--no-report", "--out", "run").code == 0
    fitted = json.loads((tmp_path / "run" / "metrics.json").read_text())["scores"]
    request = Request("table.csv", "target", epochs=2)
    found = fit_and_score(request, "default", (), splits=1)
    assert plain(found["splits"][0]["scores"]) == pytest.approx(fitted)  # twelve rows have no calibration error
    assert found["epochs"] is None


def test_the_default_has_no_settings_and_is_no_reference(lamu, answers):
    words = ("compare", "iris", "--algorithms", "default,adam")
    assert_refused(lamu(*words, "--set", "default.learning_rate=1"), "'default'", "which is as it is")
    assert_refused(lamu(*words, "--reference", "default"), "--reference is 'default'", "hmc")
    answers |= {"default": answer([1.0, 2.0]) | {"epochs": None}, "adam": answer([1.5, 2.5])}
    ran = lamu(*words)
    assert ran.code == 0
    assert "default takes its own number of steps" in ran.out
