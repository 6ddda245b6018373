"""The influence plot: which rows move the belief when they are left out, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lamu.plots.style import ACCENT, GREY, INK, PALE, canvas, head, panels, tidy

__all__ = ["influence"]


def influence(of: Any, names: Sequence[str] | None = None, rows: int = 10, axes: Any = None) -> Any:
    r"""Draws the most influential rows, and where they lie in leverage and residual.

    A row moves the belief where its inputs are unusual (leverage) and its target is far from its prediction (Pearson
    residual); the area of a point is the divergence in nats. A conjugate model has no leverages, and its picture is
    the bars alone.

    Args:
        of: what `lamu.sensitivity` returned.
        names: names of the rows, `[N]`; "row 0" and so on where None.
        rows: how many are shown by name.
        axes: two of matplotlib's axes, for the points and the bars, or the one of a picture of bars alone; those of a
            new figure where None.

    Returns:
        The axes, in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for names of another number than the rows, or another number of axes.

    Examples:
        >>> import numpy as np
        >>> from lamu import Sensitivity, plots
        >>> of = Sensitivity(np.array([0.1, 0.5]), np.zeros((2, 1)), np.array([0.2, 0.4]), np.array([0.3, 1.0]))
        >>> len(plots.influence(of))
        2
    """
    count = len(of.belief)
    if names is not None and len(names) != count:
        raise ValueError(f"there are {len(names)} names and {count} rows; give one name for each row")
    named = [f"row {i}" for i in range(count)] if names is None else [str(name) for name in names]
    top = of.order[: max(1, rows)]
    height = max(2.6, 0.9 + 0.24 * len(top))
    if np.all(np.isnan(of.leverage)):
        axes = panels("influence", canvas(3.8, height).subplots() if axes is None else axes, 1)
    else:
        if axes is None:
            axes = canvas(7.2, height).subplots(1, 2, width_ratios=(1.2, 1))
        axes = panels("influence", axes, 2)
        _draw_plane(axes[0], of, top, named)
    _draw_bars(axes[-1], of, top, named)
    return axes


def _draw_plane(axes: Any, of: Any, top: np.ndarray, named: Sequence[str]) -> None:
    size = 4.0 + 160.0 * of.belief / max(float(of.belief.max()), 1e-300)
    chosen = np.isin(np.arange(len(of.belief)), top)
    colours = np.where(chosen, ACCENT, GREY)
    axes.scatter(of.leverage, of.residual, s=size, c=colours, alpha=0.55, linewidths=0)
    for i in top[:4]:
        axes.annotate(
            str(named[i]).removeprefix("row "),
            (of.leverage[i], of.residual[i]),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=7.5,
            color=INK,
        )
    axes.set(xlabel="leverage", ylabel="residual, standard deviations")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.margins(0.12)
    axes.set_axisbelow(True)
    axes.grid(color=PALE, linewidth=0.7)
    head(axes, "Leverage and residual", f"{len(of.belief):,} rows")
    tidy(axes)


def _draw_bars(axes: Any, of: Any, top: np.ndarray, named: Sequence[str]) -> None:
    place = np.arange(len(top))
    axes.barh(place, of.belief[top], height=0.7, color=ACCENT, alpha=0.8)
    axes.set_yticks(place, [named[i] for i in top])
    axes.invert_yaxis()
    axes.set(xlabel="KL of the belief without the row, nats")
    head(axes, "Most influential rows")
    tidy(axes)
    axes.tick_params(axis="y", length=0)
