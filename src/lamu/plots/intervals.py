"""The coverage plot: do central intervals hold as many targets as they should?"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lamu import scores
from lamu.plots.style import ACCENT, GREY, IN_RANGE, INK, PALE, canvas, head, likely_range, panels, percent, tidy
from lamu.scores.validation import target

__all__ = ["coverage"]

LEVELS = np.linspace(0.02, 0.98, 49)
BINS = 10


def coverage(pred: Any, y: Any, axes: Any = None) -> Any:
    r"""Draws the coverage of central intervals against their level, beside the histogram of the targets' ranks.

    The rank of a target is \(F(y)\), its place in its own predictive distribution (the probability integral
    transform, PIT; Dawid 1984). The central interval of level \(\ell\) holds the targets with
    \(|2 F(y) - 1| \le \ell\). Where the predictions are right the ranks are uniform: the curve follows the diagonal and
    the histogram is flat, up to the pale band, where each would lie in nine of ten such tables. A curve below the
    diagonal and a histogram with high ends are overconfidence.

    Args:
        pred: a prediction of a regression, with `cdf`.
        y: targets, `[N]` or `[N, K]`; several outputs are pooled.
        axes: two of matplotlib's axes, for the curve and the histogram; those of a new figure where None.

    Returns:
        The two axes, in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the prediction is of classes, the shapes differ, or other than two axes are given.

    Examples:
        >>> import jax.numpy as jnp
        >>> from jax.scipy.stats import norm
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu import plots
        >>> pred = SimpleNamespace(support=Real(), mean=jnp.zeros(3), cdf=norm.cdf)
        >>> len(plots.coverage(pred, jnp.array([-1.0, 0.2, 0.9])))
        2
    """
    y = target("coverage", pred, y, has_classes=False)
    rank = np.asarray(pred.cdf(jnp.asarray(y, jnp.asarray(pred.mean).dtype)), float).ravel()
    rows = len(y)
    axes = canvas(6.8, 3.5).subplots(1, 2, width_ratios=(1.15, 1)) if axes is None else panels("coverage", axes, 2)
    left, right = axes
    # The share that a score of the same name tells, of intervals as they are written: equal to that of the ranks but
    # for rounding, and of counts, whose intervals have both their ends.
    share = scores.coverage(pred, y, 0.9) if hasattr(pred, "interval") else float(np.mean(np.abs(2 * rank - 1) <= 0.9))
    _draw_curve(left, rank, rows, share)
    _draw_ranks(right, rank, rows)
    for each in axes:
        tidy(each)
    return axes


def _draw_curve(axes: Any, rank: np.ndarray, rows: int, share: float) -> None:
    held = np.mean(np.abs(2 * rank[None] - 1) <= LEVELS[:, None], axis=1)
    low, high = likely_range(LEVELS, rows)
    axes.fill_between(LEVELS, low, high, color=PALE, linewidth=0, label=IN_RANGE)
    axes.plot((0, 1), (0, 1), color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(LEVELS, held, color=ACCENT, linewidth=1.6, label="observed")
    axes.plot((0.9, 0.9), (0, share), color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.plot(0.9, share, "o", color=ACCENT, markersize=4.5)
    says = f"{percent(share)} % of targets\nin 90 % intervals"
    axes.text(0.875, 0.03, says, ha="right", va="bottom", fontsize=8, color=INK, linespacing=1.35)
    axes.set(xlim=(0, 1), ylim=(0, 1.0), aspect="equal", xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))
    axes.set(xlabel="level of the central interval", ylabel="fraction of targets inside")
    head(axes, "Coverage")
    axes.legend(loc="upper left", frameon=False, fontsize=7.5, labelcolor=INK, handletextpad=0.6)


def _draw_ranks(axes: Any, rank: np.ndarray, rows: int) -> None:
    counts, edges = np.histogram(np.clip(rank, 0, 1), BINS, (0, 1))
    share = counts / len(rank)
    low, high = likely_range(1 / BINS, rows)
    axes.axhspan(float(low) * BINS, float(high) * BINS, color=PALE, linewidth=0, zorder=0)
    axes.bar(edges[:-1], share * BINS, 1 / BINS, align="edge", color=ACCENT, alpha=0.65, edgecolor="white", linewidth=1)
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, max(1.6, 1.1 * BINS * share.max(), 1.1 * BINS * float(high))))
    axes.locator_params(axis="y", nbins=5)
    axes.set(xlabel="rank of the target in its prediction", ylabel="density")
    head(axes, "Ranks (PIT)", f"{rows:,} rows")
