"""A map of latent variables in two or three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.plots.plane import COLOURS, MOST
from lamu.plots.style import ACCENT, INK, PALE, canvas, head, literal, tidy

__all__ = ["latent_map"]


def latent_map(z: Any, labels: Any = None, axes: Any = None, deviations: Any = None) -> Any:
    r"""Draws the latent variables of rows as points of a plane or of space, in the colours of their labels.

    Args:
        z: latent variables `[N, 2]` or `[N, 3]`, for instance the means of `posterior.local(rows)`.
        labels: of the rows, `[N]`, ten different ones at most; None for one colour.
        axes: matplotlib's axes to draw on; those of a new figure where None; of `projection="3d"` for three dimensions.
        deviations: standard deviations of z, of its shape, drawn as thin crosses; None for points alone.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for other than two or three dimensions, labels of another length, or too many of them.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> axes = plots.latent_map(np.eye(2), ["a", "b"])
        >>> [text.get_text() for text in axes.get_legend().get_texts()]
        ['a', 'b']
    """
    z = np.asarray(z)
    if z.ndim != 2 or z.shape[1] not in (2, 3):
        raise ValueError(f"z has the shape {z.shape}; a map has two or three dimensions a row, [N, 2] or [N, 3]")
    deep = z.shape[1] == 3
    if axes is None:
        axes = _space() if deep else canvas(4.4, 3.8).subplots()
    if deep and not hasattr(axes, "zaxis"):
        raise ValueError('z has three dimensions and the axes two; make them with projection="3d", or leave axes out')
    if deviations is not None:
        bars = dict(zip(("xerr", "yerr", "zerr"), np.asarray(deviations, float).T, strict=False))
        axes.errorbar(*z.T, **bars, fmt="none", ecolor=PALE, elinewidth=0.6, zorder=1)
    if labels is None:
        axes.scatter(*z.T, s=10, color=ACCENT, alpha=0.7, linewidths=0)
    else:
        _draw_labels(axes, z, np.asarray(labels))
    axes.set(xlabel="first latent", ylabel="second latent")
    if deep:
        axes.set_zlabel("third latent", color=INK, fontsize=9)
        axes.tick_params(axis="z", colors=INK, labelsize=8)
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.pane.set_facecolor("white")
            axis.pane.set_edgecolor(PALE)
    head(axes, "Latent variables", f"{len(z):,} rows")
    tidy(axes)
    return axes


def _space() -> Any:
    from matplotlib import rc_context

    with rc_context({"grid.color": PALE}):  # the lines of a cube have no other setting
        return canvas(5.2, 3.8).subplots(subplot_kw={"projection": "3d"})


def _draw_labels(axes: Any, z: np.ndarray, labels: np.ndarray) -> None:
    if labels.shape != z.shape[:1]:
        raise ValueError(f"the labels have the shape {labels.shape} for {len(z)} rows; give one label a row")
    names = np.unique(labels)
    if len(names) > MOST:
        raise ValueError(f"latent_map has {MOST} colours, and there are {len(names)} labels; leave labels out")
    for name, colour in zip(names, COLOURS, strict=False):
        axes.scatter(*z[labels == name].T, s=10, color=[tuple(colour)], alpha=0.7, linewidths=0, label=literal(name))
    deep = z.shape[1] == 3
    place = {"loc": "center right", "bbox_to_anchor": (-0.05, 0.5)} if deep else {"loc": "best"}
    axes.legend(**place, frameon=False, fontsize=7.5, labelcolor=INK, markerscale=1.6)
