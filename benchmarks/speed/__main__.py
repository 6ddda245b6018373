"""Makes the table of speed: `python -m benchmarks.speed`, which `make bench` and `make bench-quick` call.

    python -m benchmarks.speed --quick             the quick rows, ten minutes on two quiet cores
    python -m benchmarks.speed --rows ivon nuts    rows by the beginnings of their names
    python -m benchmarks.speed --report            the page from what was measured before

Each file of rows runs in a process of its own, without a cache of compiled programs, and a row's JSON is written when
it is done: a run that was interrupted goes on where it was, unless `--again` is given. At the end all of it is written
to .cache/bench/results.json, docs/benchmarks.md and the pictures beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.speed import environments, report
from benchmarks.speed.machine import machine
from benchmarks.speed.race import file_of, rows

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".cache" / "bench"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the quick rows, with fewer turns")
    parser.add_argument("--rows", nargs="+", default=[], help="names of rows, or their beginnings")
    parser.add_argument("--again", action="store_true", help="measure rows that have been measured")
    parser.add_argument("--report", action="store_true", help="only write the page")
    parser.add_argument("--list", action="store_true", help="only print the names of the rows")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the rows' JSON")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/benchmarks.md")
    given = parser.parse_args()
    known = rows()
    if given.list:
        print("\n".join(f"{name:28}{entry.title}" for name, entry in known.items()))
        return 0
    begins = lambda name: not given.rows or any(name.startswith(start) for start in given.rows)
    chosen = [
        name for name, entry in known.items() if begins(name) and (entry.quick or not given.quick or name in given.rows)
    ]
    folder = given.out / ("quick" if given.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    if not given.report:
        measure(chosen, folder, given.quick, given.again)
    # Of a row with all its turns and with quick ones what was measured last.
    ends = [
        [path for path in given.out.glob(f"*/{name}.json") if path.parent.name in ("full", "quick")] for name in known
    ]
    found = [json.loads(max(paths, key=lambda path: path.stat().st_mtime).read_text()) for paths in ends if paths]
    found = [told | {"title": known[told["name"]].title, "why": known[told["name"]].why} for told in found]
    results = {"machine": json.loads((folder / "machine.json").read_text()), "rows": found}
    (given.out / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
    if not given.no_page:
        report.write(results, ROOT / "docs")
    return int(any("failed" in told for told in found))


def measure(chosen: list[str], folder: Path, quick: bool, again: bool) -> None:
    """Runs the chosen rows, those of a file in one process."""
    environments.install()
    done = {path.stem for path in folder.glob("*.json")}
    waiting = [name for name in chosen if again or name not in done]
    peaks = folder / "machine.json"
    if again or not peaks.is_file():
        told = machine() | {"date": time.strftime("%Y-%m-%d")}
        code = "import json; from benchmarks.speed.machine import measure_peaks; print(json.dumps(measure_peaks()))"
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
        peaks.write_text(json.dumps(told | {"peaks": json.loads(said.stdout.splitlines()[-1])}, indent=1))
    bare = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")} | {"LAMU_CACHE": "off"}
    known, files = rows(), {}
    for name in waiting:
        files.setdefault(file_of(known[name]), []).append(name)
    for names in files.values():
        line = [sys.executable, "-m", "benchmarks.speed.run", *names, "--out", str(folder)]
        subprocess.run([*line, "--quick"] if quick else line, cwd=ROOT, env=bare, check=False)


if __name__ == "__main__":
    sys.exit(main())
