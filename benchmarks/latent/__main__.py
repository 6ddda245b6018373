"""Latent-variable models beside published figures and beside each other.

    python -m benchmarks.latent                  all of it
    python -m benchmarks.latent --quick          shorter runs on fewer rows
    python -m benchmarks.latent mnist holes      some of it

Parts: linear, mnist, layers, labels, swept, holes, coding, pinwheel, priors, few, chosen, drawing, counts. Images
and documents are read below the folder that `LAMU_DATA` names.
"""

from __future__ import annotations

import sys

from benchmarks.latent import (
    chosen,
    coding,
    counts,
    drawing,
    few,
    holes,
    labels,
    layers,
    linear,
    mnist,
    pinwheel,
    priors,
    swept,
)

PARTS = {
    "linear": linear.main,
    "mnist": mnist.main,
    "layers": layers.main,
    "labels": labels.main,
    "swept": swept.main,
    "holes": holes.main,
    "coding": coding.main,
    "pinwheel": pinwheel.main,
    "priors": priors.main,
    "few": few.main,
    "chosen": chosen.main,
    "drawing": drawing.main,
    "counts": counts.main,
}


def main(words: list[str]) -> None:
    """Runs the named parts, or all of them."""
    quick, names = "--quick" in words, [word for word in words if word != "--quick"]
    for name in names or PARTS:
        if name not in PARTS:
            raise SystemExit(f"there is no part {name!r}; give some of {', '.join(PARTS)}")
        PARTS[name](quick)


if __name__ == "__main__":
    main(sys.argv[1:])
