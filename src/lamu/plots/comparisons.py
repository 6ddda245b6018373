"""The forest plot: estimates with their intervals, one below the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu.plots.style import ACCENT, GREY, canvas, head, literal, tidy

__all__ = ["forest"]

_NORMAL_95 = 1.96


def forest(
    estimates: Mapping[str, Any], title: str = "", unit: str = "", reference: float = 0.0, axes: Any = None
) -> Any:
    r"""Draws estimates with their 95 % intervals, \(\pm 1.96\) standard errors, around a line of reference.

    For paired differences to one algorithm, zero is no difference: an interval that leaves it out is evidence of one.

    Args:
        estimates: by name what has a `value` and a standard `error`, for instance `lamu.scores.difference(...)`; drawn
            from the top. One whose error is not finite is drawn without an interval.
        title: what the estimates are of.
        unit: what the axis counts.
        reference: where the line is.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for no estimate.

    Examples:
        >>> from lamu import plots
        >>> from lamu.scores import Estimate
        >>> axes = plots.forest({"laplace": Estimate(-0.1, 0.02), "ivon": Estimate(0.0, 0.03)}, "nll − adam's", "nats")
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['laplace', 'ivon']
    """
    if not estimates:
        raise ValueError("there is no estimate to draw; give one name or more")
    names, found = list(estimates), list(estimates.values())
    axes = canvas(5.2, 1.1 + 0.32 * len(names)).subplots() if axes is None else axes
    places = np.arange(len(names))
    values = np.array([each.value for each in found], float)
    errors = np.array([each.error for each in found], float)
    reach = np.where(np.isfinite(errors), _NORMAL_95 * errors, 0.0)
    axes.axvline(reference, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.hlines(places, values - reach, values + reach, color=ACCENT, linewidth=1.6)
    axes.plot(values, places, "o", color=ACCENT, markersize=5)
    axes.set_yticks(places, [literal(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(unit)
    head(axes, title, "95 % intervals")
    tidy(axes)
    axes.tick_params(axis="y", length=0)
    return axes
