"""The reliability diagram: does what is said to happen with a probability happen that often?"""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import scores
from lamu.plots.style import ACCENT, GREY, IN_RANGE, INK, MARGIN, PALE, canvas, head, likely_range, panels, tidy
from lamu.scores.calibration import FEWEST_ROWS

__all__ = ["reliability"]


def reliability(pred: Any, y: Any, bins: int = 10, event: str | None = None, axes: Any = None) -> Any:
    r"""Draws a reliability diagram with the number of rows in each bin below it.

    A point is a bin: the mean probability against the frequency. The pale bar behind it is where the frequency would
    lie in nine of ten such tables if the probabilities were right (Bröcker & Smith 2007), so that only points outside
    their bar speak against the prediction.

    Args:
        pred: a prediction of classes (the most probable label is judged), or of a binary target.
        y: labels, `[N]`.
        bins: how many bins of equal width.
        event: what the probability of a binary target is of, for the axes; "y = 1" where none is given.
        axes: two of matplotlib's axes, for the diagram and the numbers of rows; those of a new figure where None.

    Returns:
        The two axes, in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the prediction is of a regression, the shapes differ, or other than two axes are given.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu import plots
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.1, 0.1, 0.8, 0.8]))
        >>> len(plots.reliability(pred, np.array([0, 0, 1, 0])))
        2
    """
    found = scores.reliability(pred, y, bins)
    binary = np.ndim(pred.mean) == 1
    what = event or "y = 1"
    start = 0.0 if binary else _start(found)
    if axes is None:
        axes = canvas(4.2, 4.9).subplots(2, 1, sharex=True, height_ratios=(4, 1))
    upper, lower = axes = panels("reliability", axes, 2)
    upper.plot((start, 1), (start, 1), color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    low, high = likely_range(found.said, found.count)
    width = 0.34 * (found.edges[1] - found.edges[0])
    upper.bar(found.said, high - low, width, low, color=PALE, linewidth=0, zorder=0, label=IN_RANGE)
    outside = (found.happened < low) | (found.happened > high)
    upper.plot(found.said, found.happened, color=ACCENT, linewidth=1.0, alpha=0.55, zorder=2)
    for chosen, face, name in ((~outside, ACCENT, "observed"), (outside, "white", "observed, out of range")):
        if chosen.any():
            upper.scatter(
                found.said[chosen], found.happened[chosen], 26, face, edgecolors=ACCENT, linewidths=1.3, zorder=3,
                label=name,
            )  # fmt: skip
    floor = min(start, float(np.min(found.happened)), float(np.min(low)))
    upper.set(xlim=(start - MARGIN, 1 + MARGIN), ylim=(floor - MARGIN, 1 + MARGIN))
    lower.set_xlim(upper.get_xlim())
    upper.set_ylabel(f"frequency of {what}" if binary else "fraction that is right")
    right = scores.ece_if_calibrated(pred).value
    few = len(y) < FEWEST_ROWS
    ece = "too few rows for an ECE" if few else f"ECE {scores.with_error(scores.ece, pred, y)}; {right:.3f} if right"
    head(upper, "Reliability", ece)
    upper.legend(loc="best", frameon=False, fontsize=7.5, labelcolor=INK, handletextpad=0.6, borderaxespad=0.2)
    _draw_counts(lower, found)
    lower.set_xlabel(f"predicted probability of {what}" if binary else "predicted probability of the chosen class")
    for each in axes:
        tidy(each)
    return axes


def _start(found: scores.Reliability) -> float:
    """Returns where the axis begins: at the lowest bin with a row, and no later than one half."""
    return float(min(0.5, found.edges[np.searchsorted(found.edges, found.said.min(), side="right") - 1]))


def _draw_counts(axes: Any, found: scores.Reliability) -> None:
    step = found.edges[1] - found.edges[0]
    middles = (np.floor(np.minimum(found.said, 1 - 1e-12) / step) + 0.5) * step
    axes.bar(middles, found.count, 0.9 * step, color=ACCENT, alpha=0.85, linewidth=0)
    axes.set_ylabel("rows")
    largest = int(found.count.max())
    axes.set(ylim=(0, 1.32 * largest), yticks=())
    for at, count in zip(middles, found.count, strict=True):
        axes.text(at, count + 0.05 * largest, f"{count:,}", ha="center", va="bottom", fontsize=7, color=INK)
