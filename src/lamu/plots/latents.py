"""A map of latent variables in two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.plots.plane import COLOURS, MOST
from lamu.plots.style import ACCENT, INK, PALE, canvas, head, literal, tidy

__all__ = ["latent_map"]


def latent_map(z: Any, labels: Any = None, axes: Any = None, deviations: Any = None) -> Any:
    r"""Draws the latent variables of rows as points of a plane, in the colours of their labels.

    Args:
        z: latent variables `[N, 2]`, for instance the means of `posterior.local(rows)`.
        labels: of the rows, `[N]`, ten different ones at most; None for one colour.
        axes: matplotlib's axes to draw on; those of a new figure where None.
        deviations: standard deviations of z, `[N, 2]`, drawn as thin crosses; None for points alone.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for other than two dimensions, labels of another length, or too many of them.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> axes = plots.latent_map(np.eye(2), ["a", "b"])
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['a', 'b']
    """
    z = np.asarray(z)
    if z.ndim != 2 or z.shape[1] != 2:
        raise ValueError(f"z has the shape {z.shape}; a map has two dimensions a row, [N, 2]")
    axes = canvas(4.4, 3.8).subplots() if axes is None else axes
    if deviations is not None:
        spread = np.asarray(deviations, float)
        axes.errorbar(*z.T, xerr=spread[:, 0], yerr=spread[:, 1], fmt="none", ecolor=PALE, elinewidth=0.6, zorder=1)
    if labels is None:
        axes.scatter(*z.T, s=10, color=ACCENT, alpha=0.7, linewidths=0)
    else:
        _draw_labels(axes, z, np.asarray(labels))
    axes.set(xlabel="first latent", ylabel="second latent")
    head(axes, "Latent variables", f"{len(z):,} rows")
    tidy(axes)
    return axes


def _draw_labels(axes: Any, z: np.ndarray, labels: np.ndarray) -> None:
    if labels.shape != z.shape[:1]:
        raise ValueError(f"the labels have the shape {labels.shape} for {len(z)} rows; give one label a row")
    names = np.unique(labels)
    if len(names) > MOST:
        raise ValueError(f"latent_map has {MOST} colours, and there are {len(names)} labels; leave labels out")
    for name, colour in zip(names, COLOURS, strict=False):
        axes.scatter(*z[labels == name].T, s=10, color=[tuple(colour)], alpha=0.7, linewidths=0, label=literal(name))
    axes.legend(loc="best", frameon=False, fontsize=7.5, labelcolor=INK, markerscale=1.6)
