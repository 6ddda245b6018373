"""`lamu fit TABLE --target T` beside scikit-learn's models, on twelve tables: `python -m benchmarks.tables`.

Ours is the command itself, in a process of its own, run on a file of the rows with nothing but `--target`, `--seed` and
`--out`; the peers see the same training rows (`benchmarks/table_peers.py` says how they come by a density). Printed are
the mean test negative log densities in nats a row over the judged 80/20 splits, ours less each peer's with the standard
error over splits, the coverage of the 90 % intervals of a number, and the seconds.

`python -m benchmarks.tables 3` takes the first three splits, `--quick` two splits of the six smaller tables,
`--development` the development splits, `--keep FILE` adds each split to a file of JSON lines as it comes and goes on
from there, and further words are names of tables. Judged split 100 is left out: its test rows were seen while lengths,
cuts and the width of the noise were chosen; split 110 stands in for it. Peers give counts a mass; where `lamu fit`
chose a continuous likelihood for them, ours is a density, which the block says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import lamu
from benchmarks.splits import DEVELOPMENT, JUDGED, paired
from benchmarks.table_peers import PEERS, TREES, peer_scores
from benchmarks.table_sets import KINDS, QUICK, table

FRESH = (*JUDGED[1:], 110)
CONTINUOUS = ("gaussian", "student_t")


def ours(path: Path, seed: int, place: Path) -> tuple[dict[str, float], float, dict[str, Any]]:
    """Returns the scores and the seconds of the command, its likelihood, and whether intervals stay above zero."""
    import pandas as pd

    out, start = place / f"run{seed}", time.perf_counter()
    words = ["fit", str(path), "--target", "target", "--seed", str(seed), "--out", str(out), "--json"]
    code = "import sys; from lamu.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"lamu fit ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    seconds = time.perf_counter() - start
    predictions = pd.read_csv(out / "predictions.csv")
    inside = "lower" not in predictions or bool((predictions["lower"] >= 0).all())
    likelihood = json.loads((out / "config.json").read_text())["likelihood"]
    told = {"inside": inside, "likelihood": likelihood}
    return json.loads((out / "metrics.json").read_text())["scores"], seconds, told


def scored(name: str, seed: int) -> dict[str, Any]:
    """Returns the mean test nll of ours and of each peer on a split, with coverage and seconds."""
    frame, kind = table(name), KINDS[name]
    x, y = frame.drop(columns="target"), frame["target"].to_numpy()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "table.csv"
        frame.to_csv(path, index=False)
        scores, seconds, told = ours(path, seed, Path(place))
    found = {"table": name, "seed": seed, "rows": len(frame), "columns": x.shape[1], **told}
    found["positive"] = kind == "counts" or (kind == "regression" and bool((y > 0).all()))
    found |= {"coverage": scores.get("coverage"), "nll": {"lamu fit": scores["nll"]}, "seconds": {"lamu fit": seconds}}
    train, test = (np.asarray(rows) for rows in lamu.data.split(y, 0.2, seed, stratify=kind == "classes"))
    for peer in PEERS:
        density, found["seconds"][peer] = peer_scores(peer, x, y, train, test, kind)
        found["nll"][peer] = float(-density.mean())
    return found


def summarise(name: str, runs: list[dict[str, Any]]) -> tuple[bool, bool]:
    """Prints a table's block; returns whether ours is below both trees, and whether it is behind the best of all."""
    mine, kind = np.array([run["nll"]["lamu fit"] for run in runs]), KINDS[name]
    about = f"{runs[0]['rows']} rows, {runs[0]['columns']} columns, {kind}; {len(runs)} splits"
    print(f"{name} ({about}): lamu fit {mine.mean():.4f}", end="")
    if runs[0]["coverage"] is not None:
        print(f", coverage {np.mean([run['coverage'] for run in runs]):.3f}", end="")
    if any(run["positive"] for run in runs):
        below = sum(not run["inside"] for run in runs)
        print(", intervals in the support" if not below else f", intervals below zero in {below} splits", end="")
    if kind == "counts" and any(run["likelihood"] in CONTINUOUS for run in runs):
        print(", a density and not a mass in some splits", end="")
    print(f", {np.mean([run['seconds']['lamu fit'] for run in runs]):.1f} s a split")
    worst, means = -np.inf, {}
    for peer in PEERS:
        theirs = np.array([run["nll"][peer] for run in runs])
        means[peer], difference = theirs.mean(), mine - theirs
        error = difference.std(ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.inf
        worst = max(worst, difference.mean() / error if error > 0 else np.inf * (difference.mean() > 0 or -1))
        cost = np.mean([run["seconds"][peer] for run in runs])
        print(f"    {peer:10} {theirs.mean():8.4f}   ours less theirs {paired(mine, theirs)}, {cost:.1f} s")
    return bool(mine.mean() < min(means[tree] for tree in TREES)), bool(worst > 2.0)


def main() -> None:
    """Prints a block for each table, and how often ours is the better one."""
    words = sys.argv[1:]
    seeds = DEVELOPMENT if "--development" in words else FRESH
    counts = [int(word) for word in words if word.isdigit()]
    seeds = seeds[: counts[0] if counts else 2 if "--quick" in words else None]
    names = [word for word in words if word in KINDS] or list(QUICK if "--quick" in words else KINDS)
    kept = Path(words[words.index("--keep") + 1]) if "--keep" in words else None
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    runs = {(run["table"], run["seed"]): run for run in map(json.loads, lines)}
    for seed in seeds:  # all tables before the next split, so that what is cut short has something of each
        for name in names:
            if (name, seed) not in runs:
                runs[name, seed] = scored(name, seed)
                if kept is not None:
                    with kept.open("a") as file:
                        file.write(json.dumps(runs[name, seed]) + "\n")
    outcomes = [summarise(name, [runs[name, seed] for seed in seeds]) for name in names]
    print(f"below the better of forest and boosting on {sum(ahead for ahead, _ in outcomes)} of {len(names)} tables")
    print(f"above the best of all by more than two paired errors on {sum(behind for _, behind in outcomes)}")
    for kind in ("regression", "counts"):
        covered = [np.mean([runs[name, seed]["coverage"] for seed in seeds]) for name in names if KINDS[name] == kind]
        if covered:
            print(f"90 % intervals, {kind}: cover {np.mean(covered):.3f} on average,", end=" ")
            print(f"{min(covered):.3f} to {max(covered):.3f}")


if __name__ == "__main__":
    main()
