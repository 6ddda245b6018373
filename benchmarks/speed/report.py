"""The page docs/benchmarks.md and its pictures, from the JSON of the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.machine import floor

__all__ = ["page", "write"]

LIMIT = 1.3  # a gap above this has its reason in the page
BUSY = 0.2  # cores of other work, above which threads that spin are not timed fairly
INTRODUCTION = """# Benchmarks

Lamu's speed beside other libraries, measured by one command. **A ratio is Lamu's time by the peer's: below 1, Lamu is
faster.** This page and its pictures are written by

```
make bench-quick                       # the quick rows, ten minutes on two quiet cores
make bench                             # all rows, hours; goes on where it was interrupted
make bench BENCH_ARGS="--rows nuts"    # rows by the beginnings of their names; --list names them, --again repeats
```

Each row first checks that both sides compute the same: the last table says what was compared. Then the sides take
turns, in an order that is reversed from round to round, so that a drifting machine cancels out. The first round is
not counted: it is the column *first*. Ratios are the median of the rounds' ratios and the ratio of the means (all
seconds by all units), with the 10 % and 90 % quantiles of the bootstrap over rounds in brackets. Wall time is what one
waits; processor time counts all threads. JAX's persistent cache of compiled programs is off, except where a row says
that it is filled. PyTorch and JAX have processes of their own. `.cache/bench/results.json` has all figures.

A dagger (†), and a hollow point in the picture, marks what is not to be trusted: the peer's threads wait for each other
while they spin (OpenMP), and other work took more than a fifth of a core meanwhile, beside which such a peer slows down
by up to thirty times.
"""


def duration(seconds: float) -> str:
    """Returns seconds with three digits, in a unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def size(count: float | None) -> str:
    """Returns bytes in MB."""
    return "–" if count is None else f"{count / 1e6:.3g} MB"


def interval(told: dict[str, float]) -> str:
    value = f"{told['value']:.2f}"
    low, high = told["lower"], told["upper"]
    return value if math.isnan(low) else f"{value} [{low:.2f}, {high:.2f}]"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a table of Markdown."""
    rows = ["| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines]]
    return "\n".join(rows)


def doubtful(told: dict[str, Any], peer: str) -> bool:
    """Returns whether the peer's threads spin, and other work held them up."""
    return bool(told.get("spins")) and (told.get("others") or 0.0) > BUSY and "one thread" not in peer


def ratios(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for told in rows:
        for key, word in (("missing", ""), ("failed", "failed: ")):
            if key in told:
                lines.append([told["title"], f"*{word}{told[key]}*", "", "", "", "", ""])
        for index, each in enumerate(told.get("ratios", ())):
            mine = len({other["ours"] for other in told["ratios"]})
            name = each["theirs"] if mine == 1 else f"{each['theirs']} ({each['ours']})"
            if doubtful(told, each["theirs"]):
                name += " †"
            lines.append(
                [
                    told["title"] if index == 0 else "",
                    name,
                    interval(each["processor_median"]),
                    interval(each["processor_mean"]),
                    interval(each["wall_median"]),
                    interval(each["wall_mean"]),
                    f"{each['first']:.2f}" if told["first"] == "compiles" else "–",
                ]
            )
    head = ["workload", "peer", "processor, median", "processor, mean", "wall, median", "wall, mean", "first"]
    return table(head, lines)


def times(rows: Sequence[dict[str, Any]], peaks: dict[str, float]) -> str:
    lines = []
    for told in rows:
        for index, side in enumerate(told.get("sides", ())):
            built = side.get("compile")
            least = "–"
            if "counts" in side:
                seconds, bound = floor(side["counts"], peaks)
                least = f"{side['wall']['median'] / seconds:.1f} × {duration(seconds)} ({bound})"
            lines.append(
                [
                    f"{told['title']}, a {told['unit']}" if index == 0 else "",
                    side["name"],
                    duration(side["wall"]["median"]),
                    duration(side["wall"]["mean"]),
                    duration(side["processor"]["mean"]),
                    "–" if built is None else f"{built['wall']:.1f} s, {built['processor']:.1f} s",
                    size(side["peak"]),
                    least,
                ]
            )
    head = ["workload", "side", "wall, median", "wall, mean", "processor, mean", "compile, wall and processor"]
    return table([*head, "peak memory", "time by floor"], lines)


def gaps(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a sentence for each row whose ratio is above the limit."""
    lines = []
    for told in rows:
        worst = max((each["processor_mean"]["value"] for each in told.get("ratios", ())), default=0.0)
        if worst > LIMIT:
            lines.append(f"- **{told['title']}** ({worst:.2f}): {told['why'] or 'not explained yet.'}")
    return "\n".join(lines) or "None."


def exponents(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for told in rows:
        for index, (name, curve) in enumerate(told.get("curves", {}).items()):
            sizes = ", ".join(f"{count:,}" for count in told["sizes"])
            seconds = ", ".join(duration(value) for value in curve["seconds"])
            lines.append([told["title"] if index == 0 else "", name, f"{curve['exponent']:.2f}", sizes, seconds])
    return table(["workload", "side", "exponent", "sizes", "seconds, wall"], lines)


def checks(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for told in rows:
        if "same" in told:
            extra = "; ".join(f"{name} {value:.3g}" for name, value in told.get("figures", {}).items())
            others = told.get("others")
            lines.append(
                [
                    told["name"],
                    told["same"] + (f"; {extra}" if extra else ""),
                    str(told["sides"][0]["rounds"]) if "sides" in told else "–",
                    "–" if others is None else f"{others:.2f}",
                    f"{told['seconds']:.0f}",
                    told.get("commit", ""),
                ]
            )
    return table(["row", "the same on both sides", "rounds", "cores that other work took", "seconds", "commit"], lines)


def picture(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the ratios of means with their intervals, on a logarithmic axis."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    found = [(told, each) for told in rows for each in told.get("ratios", ())]
    if not found:
        return
    figure, axis = pyplot.subplots(figsize=(8, 0.6 + 0.26 * len(found)))
    for place, (row, each) in enumerate(reversed(found)):
        style = {"markersize": 4, "markerfacecolor": "white"} if doubtful(row, each["theirs"]) else {"markersize": 4}
        for clock, colour, shift in (("processor_mean", "tab:blue", 0.12), ("wall_mean", "tab:orange", -0.12)):
            told = each[clock]
            axis.plot(told["value"], place + shift, "o", color=colour, **style)
            if not math.isnan(told["lower"]):
                axis.plot([told["lower"], told["upper"]], [place + shift] * 2, color=colour, linewidth=1.5)
    names = []
    for told, each in reversed(found):
        mine = len({other["ours"] for other in told["ratios"]})
        names.append(f"{told['name']} / {each['theirs']}" + (f" ({each['ours']})" if mine > 1 else ""))
    axis.set_yticks(range(len(found)), names, fontsize=7)
    axis.set_xscale("log")
    axis.axvline(1.0, color="black", linewidth=0.8)
    axis.plot([], [], "o-", color="tab:blue", label="processor time")
    axis.plot([], [], "o-", color="tab:orange", label="wall time")
    axis.legend(fontsize=8)
    axis.set_xlabel("Lamu's time by the peer's, ratio of means; below 1: Lamu is faster")
    axis.set_ylim(-0.7, len(found) - 0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def growth_picture(rows: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draws seconds over sizes; returns whether there are any."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    found = [told for told in rows if "curves" in told]
    if not found:
        return False
    columns = min(3, len(found))
    lines = math.ceil(len(found) / columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(3.6 * columns, 2.8 * lines), squeeze=False)
    for axis, told in zip(axes.flat, found, strict=False):
        for name, curve in told["curves"].items():
            axis.loglog(told["sizes"], curve["seconds"], "o-", markersize=3, label=f"{name}, {curve['exponent']:.2f}")
        axis.set_title(told["title"], fontsize=8)
        axis.set_xlabel(told["size"], fontsize=8)
        axis.set_xticks(told["sizes"], [f"{size:,}" for size in told["sizes"]])
        axis.minorticks_off()
        axis.tick_params(labelsize=7)
        axis.legend(fontsize=6)
    for axis in list(axes.flat)[len(found) :]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True


def page(results: dict[str, Any], grown: bool) -> str:
    """Returns the text of the page."""
    held, rows = results["machine"], results["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in held["versions"].items())
    load = "unknown" if held["load"] is None else f"{held['load']:.1f}"
    peaks = held["peaks"]
    machine = (
        f"{held['date']}, {held['processor']}, {held['cores']} cores, {held['system']}; {versions}; commit "
        f"{held['commit']}. The load of the minute before was {load}. A product of matrices of 1,024 reaches "
        f"{peaks['operations'] / 1e9:.0f} GFLOP/s, and a copy in memory {peaks['bytes'] / 1e9:.1f} GB/s."
    )
    parts = [
        INTRODUCTION,
        f"## Machine\n\n{machine}",
        "## Ratios\n\n![Ratios of times](images/benchmarks.png)",
        ratios(rows),
        f"## Gaps above {LIMIT} ×\n\nBy processor time, means.\n\n" + gaps(rows),
        "## Times and floors\n\nThe floor of a program is the larger of two: its operations at the rate of the product "
        "of matrices above, and its arguments and results moved once at the rate of the copy. Peak memory is that of "
        "the compiled program with its arguments and results, or of a process of its own.",
        times(rows, peaks),
    ]
    if any("curves" in told for told in rows):
        parts += ["## Growth\n\nb of times that grow as size to the power b, by least squares of logarithms."]
        parts += ["![Growth of times](images/benchmarks_growth.png)"] if grown else []
        parts += [exponents(rows)]
    parts += ["## What was checked\n\n" + checks(rows)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def write(results: dict[str, Any], docs: Path) -> None:
    """Writes the page and its pictures below the folder of the site."""
    (docs / "images").mkdir(parents=True, exist_ok=True)
    picture(results["rows"], docs / "images" / "benchmarks.png")
    grown = growth_picture(results["rows"], docs / "images" / "benchmarks_growth.png")
    (docs / "benchmarks.md").write_text(page(results, grown), encoding="utf-8")
