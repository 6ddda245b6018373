"""The table of speed: its timer, what it writes, and that each row is a race between sides that compute the same.

No statement here is about seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.speed import environments, report, run
from benchmarks.speed.environments import Missing
from benchmarks.speed.machine import counted, floor, machine
from benchmarks.speed.race import Growth, Race, Row, file_of, rows
from benchmarks.speed.timing import Side, Turn, Worker, alternate, command, here, ratio

PEAKS = {"operations": 1e9, "bytes": 1e9}


def steady(name: str, seconds: float, calls: list[str]) -> Side:
    def turn() -> Turn:
        calls.append(name)
        return Turn(seconds, 2 * seconds, 4.0)

    return Side(name, turn)


def toy(same: str = "nothing", **options: object) -> Race:
    calls: list[str] = []
    return Race((steady("lamu", 1.0, calls),), (steady("peer", 2.0, calls),), "step", same, 4, **options)  # type: ignore[arg-type]


def test_sides_take_turns_in_an_order_that_is_reversed() -> None:
    calls: list[str] = []
    turns = alternate([steady("a", 1.0, calls), steady("b", 1.0, calls)], 3)
    assert "".join(calls) == "abbaabba"
    assert [len(side) for side in turns] == [4, 4]


def test_a_limit_of_time_leaves_two_rounds() -> None:
    turns = alternate([steady("a", 1.0, [])], 100, limit=0.0)
    assert len(turns[0]) == 3  # the first and two


@pytest.mark.parametrize("clock", ["wall", "processor"])
def test_a_ratio_of_the_means_weighs_units_and_one_of_medians_does_not(clock: str) -> None:
    theirs = [Turn(1.0, 1.0, 1.0)] * 9
    ours = [Turn(1.0, 1.0, 1.0)] * 8 + [Turn(10.0, 10.0, 1.0)]  # one step of nine decomposes
    assert ratio(ours, theirs, clock, "median").value == 1.0
    assert ratio(ours, theirs, clock, "mean").value == pytest.approx(2.0)
    found = ratio(ours, theirs, clock, "mean")
    assert found.lower < found.value < found.upper
    assert ratio([Turn(6.0, 6.0, 3.0)] * 3, theirs[:3], clock, "mean").value == pytest.approx(2.0)  # a unit
    with pytest.raises(ValueError, match="'mean' or 'median'"):
        ratio(ours, theirs, clock, "mode")


def test_two_rounds_have_no_interval() -> None:
    assert np.isnan(ratio([Turn(1.0, 1.0)] * 2, [Turn(1.0, 1.0)] * 2, "wall", "mean").lower)


def test_units_are_counted_from_the_result() -> None:
    assert here("a", lambda: [1, 2, 3], len).turn().units == 3
    assert here("a", lambda: None, 5).turn().units == 5


def test_a_command_tells_its_own_processor_time_and_memory_and_an_error_its_words() -> None:
    turn = command("a", [sys.executable, "-c", "sum(range(10**6))"]).turn()
    assert turn.processor > 0
    assert turn.peak is not None
    assert turn.peak > 2**20
    with pytest.raises(RuntimeError, match="no such thing"):
        command("a", [sys.executable, "-c", "raise SystemExit('no such thing')"]).turn()


def test_a_command_keeps_bytecode_as_an_installed_package_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KEPT", "1")
    asked = "import os, sys; sys.exit(sys.dont_write_bytecode or 'KEPT' not in os.environ or os.environ['MORE'] != '2')"
    command("a", [sys.executable, "-c", asked], {"MORE": "2"}).turn()


def test_a_worker_runs_a_task_a_request_and_tells_why_it_ended(tmp_path: Path) -> None:
    (tmp_path / "toy_worker.py").write_text(
        "from benchmarks.speed.peers.worker import serve\n"
        "serve({'two': lambda: {'value': 2}, 'bad': lambda: 1 / 0, 'loud': lambda: print('a word')})\n"
    )
    python = Path(sys.executable)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        worker = Worker(python, "toy_worker")
    assert worker.ask("two")["value"] == 2
    assert worker.side("peer", "loud", 3.0).turn().units == 3.0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        worker.ask("bad")


def test_a_floor_is_the_larger_of_arithmetic_and_memory() -> None:
    import jax
    import jax.numpy as jnp

    counts = counted((jax.jit(lambda a: a @ a), (jnp.zeros((64, 64)),)))
    assert counts["operations"] == pytest.approx(2 * 64**3, rel=0.1)
    assert counts["bytes"] == 2 * 64 * 64 * jnp.zeros(()).dtype.itemsize
    assert floor({"operations": 3e9, "bytes": 1e9}, PEAKS) == (3.0, "operations")
    assert floor({"operations": 1e9, "bytes": 5e9}, PEAKS) == (5.0, "bytes")


def test_a_row_that_fails_or_lacks_a_peer_is_a_sentence_of_the_table() -> None:
    def lacking(quick: bool) -> Race:
        raise Missing("ivon was not run: it is not there.")

    def differing(quick: bool) -> Race:
        np.testing.assert_allclose(1.0, 2.0)
        return toy()

    told = [
        run.measure(Row(name, f"the row {name}", build, quick=True), True)
        for name, build in (("lacking", lacking), ("differing", differing), ("good", lambda quick: toy()))
    ]
    assert told[0]["missing"] == "ivon was not run: it is not there."
    assert "AssertionError" in told[1]["failed"]
    assert told[2]["ratios"][0]["wall_mean"]["value"] == 0.5
    text = report.page({"machine": machine() | {"date": "today", "peaks": PEAKS}, "rows": told}, grown=False)
    assert "ivon was not run: it is not there." in text
    assert "| the row good | peer | 0.50 [0.50, 0.50] |" in text
    assert "not explained yet" not in text


def test_a_gap_has_its_sentence_and_a_busy_machine_its_dagger(tmp_path: Path) -> None:
    slow = Race((steady("lamu", 3.0, []),), (steady("peer", 2.0, []),), "step", "nothing", 3, spins=True)
    told = run.measure(Row("slow", "slow", lambda quick: slow, quick=True, why="It does more."), True)
    told["others"] = 1.0
    results = {"machine": machine() | {"date": "today", "peaks": PEAKS}, "rows": [told]}
    report.write(results, tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "- **slow** (1.50): It does more." in text
    assert "peer †" in text
    assert (tmp_path / "images" / "benchmarks.png").is_file()


def test_growth_is_fitted_on_logarithms_and_drawn(tmp_path: Path) -> None:
    assert run.exponent([1, 10, 100], [2, 200, 20_000]) == pytest.approx(2.0)
    entry = Growth("grows", "as it grows", "rows", (1, 2), lambda size: toy())
    told = run.measure(entry, True)
    assert told["curves"]["lamu"]["exponent"] == pytest.approx(0.0)
    report.write({"machine": machine() | {"date": "today", "peaks": PEAKS}, "rows": [told]}, tmp_path)
    assert "![Growth of times](images/benchmarks_growth.png)" in (tmp_path / "benchmarks.md").read_text()
    assert (tmp_path / "images" / "benchmarks_growth.png").is_file()


def test_results_are_written_whole(tmp_path: Path) -> None:
    run.write(tmp_path / "a.json", {"name": "a"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"name": "a"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_every_row_is_registered_once_with_a_title_and_its_file() -> None:
    known = rows()
    assert len({entry.title for entry in known.values()}) == len(known)
    assert all(file_of(entry).startswith("benchmarks.speed.rows.") for entry in known.values())
    assert sum(isinstance(entry, Row) and entry.quick for entry in known.values()) >= 20


def test_a_row_is_a_race_of_sides_that_compute_the_same() -> None:
    import jax

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):  # as the table runs
        race = rows()["adam_rule"].build(True)
        assert "the loss after 20 steps" in race.same
        turns = alternate([*race.ours, *race.theirs], 1)
    assert all(turn.units > 1 for side in turns for turn in side)


def test_peers_of_torch_import_neither_jax_nor_lamu() -> None:
    folder = Path(environments.__file__).parent / "peers"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import jax" not in text or "import torch" not in text, path  # in one process they stall
        assert "import lamu" not in text, path


def test_an_environment_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert environments.missing("torch", tmp_path) == (
        "torch was not run: its environment is not installed (`make bench` makes it)."
    )
    assert all("==" in line for line in environments.requirements())


def test_the_command_lists_its_rows() -> None:
    line = [sys.executable, "-m", "benchmarks.speed", "--list"]
    said = subprocess.run(line, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]).stdout
    assert "ivon_128" in said
