"""Uncertainty on rows like those of training and on rows of another kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import scores
from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

__all__ = ["uncertainty_shift"]

_BINS = 30


def uncertainty_shift(known: Any, unknown: Any, axes: Any = None) -> Any:
    r"""Draws the histograms of the uncertainty in and out of distribution, with the AUROC that tells them apart.

    Args:
        known: uncertainties of rows like those of training, `[N]`, for instance `pred.epistemic`.
        unknown: uncertainties of rows of another kind, `[M]`.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: as `lamu.scores.auroc`.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> plots.uncertainty_shift(np.array([0.1, 0.2]), np.array([0.5, 0.9])).get_title(loc="right")
        'AUROC 1.000'
    """
    separated = scores.auroc(known, unknown)
    known, unknown = np.asarray(known, float), np.asarray(unknown, float)
    axes = canvas(4.6, 3.2).subplots() if axes is None else axes
    edges = np.histogram_bin_edges(np.concatenate([known, unknown]), _BINS)
    for values, colour, name in ((known, GREY, "in distribution"), (unknown, ACCENT, "out of distribution")):
        axes.hist(values, edges, density=True, color=colour, alpha=0.55, label=f"{name} ({len(values):,} rows)")
    axes.set(xlabel="uncertainty", ylabel="density")
    head(axes, "Uncertainty", f"AUROC {separated:.3f}")
    axes.legend(loc="best", frameon=False, fontsize=7.5, labelcolor=INK)
    tidy(axes)
    return axes
