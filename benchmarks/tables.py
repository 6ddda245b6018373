"""`lamu fit TABLE --target T` beside scikit-learn's models, on twelve tables: `python -m benchmarks.tables`.

Ours is the command itself, in a process of its own, run on a file of the rows with nothing but `--target`, `--seed` and
`--out`; the peers see the same training rows (`benchmarks/table_peers.py` says how they come by a density). Printed are
the mean test negative log densities in nats a row over the judged 80/20 splits, ours less each peer's with the standard
error over splits, the coverage of the 90 % intervals of a number, and the seconds.

`python -m benchmarks.tables 3` takes the first three splits, `--quick` two splits of the six smaller tables,
`--development` the development splits, and further words are names of tables.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import lamu
from benchmarks.splits import DEVELOPMENT, JUDGED, paired
from benchmarks.table_peers import PEERS, TREES, peer_scores
from benchmarks.table_sets import KINDS, QUICK, table


def ours(path: Path, seed: int, place: Path) -> tuple[dict[str, float], float, bool]:
    """Returns the scores and the seconds of the command, and whether its intervals stay where the targets are."""
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
    return json.loads((out / "metrics.json").read_text())["scores"], seconds, inside


def main() -> None:
    """Prints a block for each table, and how often ours is the better one."""
    words = sys.argv[1:]
    seeds = DEVELOPMENT if "--development" in words else JUDGED
    counts = [int(word) for word in words if word.isdigit()]
    seeds = seeds[: counts[0] if counts else 2 if "--quick" in words else None]
    names = [word for word in words if word in KINDS] or (QUICK if "--quick" in words else tuple(KINDS))
    beats_trees, behind, covered = 0, 0, []
    for name in names:
        frame, kind = table(name), KINDS[name]
        x, y = frame.drop(columns="target"), frame["target"].to_numpy()
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "table.csv"
            frame.to_csv(path, index=False)
            runs = [ours(path, seed, Path(place)) for seed in seeds]
        mine = np.array([scores["nll"] for scores, _, _ in runs])
        print(f"{name} ({len(frame)} rows, {x.shape[1]} columns, {kind}): lamu fit {mine.mean():.4f}", end="")
        if "coverage" in runs[0][0]:
            coverage = float(np.mean([scores["coverage"] for scores, _, _ in runs]))
            covered.append(coverage)
            print(f", coverage {coverage:.3f}", end="")
        if kind == "counts":
            print(", intervals in the support" if all(inside for _, _, inside in runs) else ", intervals leave", end="")
        print(f", {np.mean([seconds for _, seconds, _ in runs]):.1f} s a split")
        theirs, worst = {}, -np.inf
        for peer in PEERS:
            found = []
            for seed in seeds:
                train, test = (np.asarray(rows) for rows in lamu.data.split(y, 0.2, seed, stratify=kind == "classes"))
                density, seconds = peer_scores(peer, x, y, train, test, kind)
                found.append((-density.mean(), seconds))
            theirs[peer] = np.array([nll for nll, _ in found])
            difference = mine - theirs[peer]
            error = difference.std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.inf
            worst = max(worst, difference.mean() / error)
            cost = np.mean([seconds for _, seconds in found])
            apart = paired(mine, theirs[peer])
            print(f"    {peer:10} {theirs[peer].mean():8.4f}   ours less theirs {apart}, {cost:.1f} s")
        beats_trees += bool(mine.mean() < min(theirs[tree].mean() for tree in TREES))
        behind += bool(worst > 2.0)
        sys.stdout.flush()
    print(f"below the better of forest and boosting on {beats_trees} of {len(names)} tables")
    print(f"above the best of all by more than two paired errors on {behind}")
    if covered:
        print(f"90 % intervals cover {np.mean(covered):.3f} on average, {min(covered):.3f} to {max(covered):.3f}")


if __name__ == "__main__":
    main()
