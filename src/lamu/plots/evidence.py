"""The evidence of models against their complexity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

__all__ = ["evidence_curve"]


def evidence_curve(estimates: Mapping[Any, Any], complexity: str = "complexity", axes: Any = None) -> Any:
    r"""Draws the log evidence, or the bound below it, against the complexity of the model, and marks the greatest.

    Args:
        estimates: by complexity (hidden units, degree, components, ...) what has a `value` in nats and a standard
            `error`, as `lamu.scores.evidence` returns it.
        complexity: what the axis counts.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for no estimate, or none that is finite.

    Source: MacKay (1992), Bayesian interpolation.

    Examples:
        >>> from lamu import plots
        >>> from lamu.scores import Estimate
        >>> axes = plots.evidence_curve({1: Estimate(-9.0, 0.0), 2: Estimate(-5.0, 0.0), 3: Estimate(-6.0, 0.0)})
        >>> axes.get_title(loc="right")
        'greatest at 2'
    """
    order = sorted(estimates)
    values = np.array([estimates[each].value for each in order], float)
    if not np.isfinite(values).any():
        raise ValueError(f"{len(order)} estimates are given, none of them finite; give one or more")
    errors = np.nan_to_num(np.array([estimates[each].error for each in order], float))
    best = int(np.nanargmax(np.where(np.isfinite(values), values, np.nan)))
    axes = canvas(4.6, 3.2).subplots() if axes is None else axes
    axes.axvline(order[best], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.errorbar(order, values, errors, color=ACCENT, linewidth=1.5, marker="o", markersize=4.5, ecolor=INK)
    axes.set(xlabel=complexity, ylabel="log evidence, nats")
    head(axes, "Evidence", f"greatest at {order[best]:g}")
    tidy(axes)
    return axes
