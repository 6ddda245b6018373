"""Risk against coverage: the error among the rows that are kept where the most uncertain ones are set aside."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import scores
from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

__all__ = ["risk_coverage"]

_POINTS = 200


def risk_coverage(pred: Any, y: Any, axes: Any = None) -> Any:
    r"""Draws the mean error of the rows that are kept against their share, the most uncertain ones left out first.

    A curve that rises to the right says that uncertain rows are those with large errors; a flat one that the
    uncertainty does not tell them apart. The dashed line is the error of all rows.

    Args:
        pred: a prediction of any task; of a regression with one output.
        y: targets, `[N]`.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the shapes differ.

    Source: Geifman & El-Yaniv (2017).

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu import plots
        >>> pred = SimpleNamespace(support=Real(), mean=np.zeros(3), total=np.array([1.0, 2.0, 3.0]))
        >>> plots.risk_coverage(pred, np.array([0.1, 1.0, 2.0])).get_title(loc="left")
        'Risk against coverage'
    """
    found = scores.risk_coverage(pred, y)
    risk = found.risk if pred.support.has_classes else np.sqrt(found.risk)
    axes = canvas(4.2, 3.4).subplots() if axes is None else axes
    # A file with a point for each of many rows would be large; the first rows, of few, are noise.
    chosen = np.unique(np.linspace(0, len(risk) - 1, _POINTS).astype(int))
    axes.axhline(risk[-1], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(found.share[chosen], risk[chosen], color=ACCENT, linewidth=1.6)
    axes.set(xlim=(0, 1), xlabel="share of rows kept, the most certain first")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("fraction wrong" if pred.support.has_classes else "root mean square error")
    at = int(0.8 * (len(risk) - 1))
    axes.plot(found.share[at], risk[at], "o", color=ACCENT, markersize=4.5)
    axes.annotate(
        f"{risk[at]:.3g} at 80 %", (found.share[at], risk[at]), xytext=(-6, 7), textcoords="offset points",
        ha="right", fontsize=8, color=INK,
    )  # fmt: skip
    head(axes, "Risk against coverage", f"{len(risk):,} rows")
    tidy(axes)
    return axes
