"""Maps of the latents of rows in two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.plots.style import ACCENT, GREY, INK, PALE, canvas, head, tidy

__all__ = ["latent_map"]


def latent_map(means: Any, labels: Any = None, deviations: Any = None) -> Any:
    """Draws where rows lie in the space of two latents, coloured by their labels.

    Args:
        means: of the beliefs about the latents, `[N, 2]`, for instance `posterior.local(rows)["z"].mean`.
        labels: one a row, `[N]`, for colours; None for one colour.
        deviations: standard deviations, `[N, 2]`, drawn as thin crosses; None for points alone.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: for other than two latents, or labels of another number.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> len(plots.latent_map(np.zeros((3, 2)), labels=[0, 1, 1]).axes)
        1
    """
    means = np.asarray(means, float)
    if means.ndim != 2 or means.shape[1] != 2:
        raise ValueError(f"the means have the shape {means.shape}; a map is of two latents, give means[:, [i, j]]")
    if labels is not None and len(labels) != len(means):
        raise ValueError(f"there are {len(labels)} labels and {len(means)} rows; give one label for each row")
    from matplotlib import colormaps

    figure = canvas(4.6, 4.2)
    axes = figure.subplots()
    if deviations is not None:
        spread = np.asarray(deviations, float)
        axes.errorbar(*means.T, xerr=spread[:, 0], yerr=spread[:, 1], fmt="none", ecolor=PALE, elinewidth=0.6, zorder=1)
    if labels is None:
        axes.scatter(*means.T, s=7, color=ACCENT, alpha=0.6, linewidths=0)
    else:
        classes = np.unique(np.asarray(labels))
        for number, label in enumerate(classes):
            own = means[np.asarray(labels) == label]
            colour = colormaps["tab10" if len(classes) <= 10 else "turbo"](
                number if len(classes) <= 10 else number / len(classes)
            )
            axes.scatter(*own.T, s=7, color=colour, alpha=0.6, linewidths=0)
            axes.annotate(
                str(label), np.median(own, axis=0), ha="center", va="center", fontsize=11, fontweight="bold", color=INK
            )
    axes.set(xlabel="first latent", ylabel="second latent")
    axes.axhline(0, color=GREY, linewidth=0.4, zorder=0)
    axes.axvline(0, color=GREY, linewidth=0.4, zorder=0)
    head(axes, "Latents", f"{len(means):,} rows")
    tidy(axes)
    return figure
