r"""Mean ranks of algorithms over sets, with a critical difference: `python -m benchmarks.ranks [FILE] [PICTURE]`.

`FILE` is what `python -m benchmarks.defaults` has written, `.cache/defaults.json` where none is given. The algorithms
of each set are ranked by the mean of its splits, ties sharing their ranks, and the ranks averaged over the sets. Two
algorithms differ, at a level of 5 %, where their mean ranks are further apart than

\[ \mathrm{CD} = q_{0.05,k} \sqrt{k (k + 1) / (6 n)} \]

for k algorithms and n sets (Nemenyi's test; Demšar 2006, section 3.2.2). Splits of one set share its rows, so that a
set counts once however many splits it has. In the picture algorithms differ whose lines do not overlap.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

LEVEL = 0.05
PICTURE = Path("docs/images/ranks.png")


def mean_ranks(means: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[dict[str, float], int]:
    """Returns the mean rank of each algorithm that all sets have, best first, and the number of sets."""
    names = [name for name in next(iter(means.values())) if all(name in of_set for of_set in means.values())]
    table = np.array([[np.mean(of_set[name]) for name in names] for of_set in means.values()])
    ranks = stats.rankdata(table, axis=1).mean(0)
    return {names[i]: float(ranks[i]) for i in np.argsort(ranks)}, len(table)


def critical_difference(algorithms: int, sets: int) -> float:
    """Returns how far apart two mean ranks are at least, where they differ."""
    quantile = stats.studentized_range.ppf(1 - LEVEL, algorithms, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(algorithms * (algorithms + 1) / (6 * sets)))


def draw(ranks: Mapping[str, float], sets: int, file: Path) -> None:
    """Draws the mean ranks, each with half the critical difference to either side."""
    import matplotlib.pyplot as plt

    names, values = list(ranks), list(ranks.values())
    difference = critical_difference(len(names), sets)
    figure, axes = plt.subplots(figsize=(7, 0.9 + 0.32 * len(names)), layout="constrained")
    axes.errorbar(values, range(len(names)), xerr=difference / 2, fmt="o", color="#1f4e79", elinewidth=2)
    axes.set_yticks(range(len(names)), [f"{name}  {value:.1f}" for name, value in ranks.items()])
    axes.set_xlabel(
        f"mean rank over {sets} sets, 1 is best; half the critical difference {difference:.1f} to each side"
    )
    axes.margins(y=0.12)
    axes.invert_yaxis()
    axes.spines[["right", "top"]].set_visible(False)
    figure.savefig(file, dpi=150)


def main() -> None:
    """Prints the mean ranks, and draws them."""
    given = [Path(argument) for argument in sys.argv[1:]]
    file, picture = (*given, *[Path(".cache/defaults.json"), PICTURE][len(given) :])
    means = json.loads(file.read_text())
    ranks, sets = mean_ranks(means)
    print(f"{sets} sets: {', '.join(means)}")
    for name, rank in ranks.items():
        print(f"{name:12}{rank:6.2f}")
    print(f"critical difference {critical_difference(len(ranks), sets):.2f}")
    draw(ranks, sets, picture)


if __name__ == "__main__":
    main()
