"""The course of a run: its loss, and the predictive density of rows that were set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lamu.plots.style import ACCENT, canvas, head, tidy

__all__ = ["training_curve", "validation_curve"]

_POINTS = 200


def training_curve(histories: Any, axes: Any = None) -> Any:
    r"""Draws the loss of every step, in nats a row, the prior's share included.

    Of `vmp` and `cvi` a step is a sweep, and the loss is the negative bound a row. Many steps are drawn as the means of
    equal parts of the run, and the axis is that of the steps after the first tenth.

    Args:
        histories: `fit.history`, or several of them, for instance of the members of an ensemble.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for histories without a step.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> len(plots.training_curve({"loss": np.linspace(2.0, 1.0, 50)}).lines)
        1
    """
    curves = [_averaged(np.asarray(each["loss"], float)) for each in _several(histories) if len(each["loss"])]
    if not curves:
        raise ValueError("no history has a step; draw runs of one step or more")
    return _drawn(curves, "Training", "loss, nats a row", axes)


def validation_curve(histories: Any, axes: Any = None) -> Any:
    r"""Draws the negative log predictive density of rows that were set aside, in nats a row, against the step.

    Args:
        histories: `fit.history` of a run with validation, or several of them.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for histories without a validation.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> history = {"validation_step": np.array([5, 10]), "validation_nll": np.array([1.2, 1.1])}
        >>> plots.validation_curve(history).get_ylabel()
        'nll, nats a row'
    """
    curves = [
        (np.asarray(each["validation_step"], float), np.asarray(each["validation_nll"], float))
        for each in _several(histories)
        if len(each.get("validation_nll", ()))
    ]
    if not curves:
        raise ValueError("no history has a validation; fit with validation=0.1, for instance")
    return _drawn(curves, "Rows set aside", "nll, nats a row", axes)


def _several(histories: Any) -> Sequence[Mapping[str, Any]]:
    return [histories] if isinstance(histories, Mapping) else list(histories)


def _averaged(loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends and the means of equal parts of the steps."""
    parts = np.array_split(np.arange(1, len(loss) + 1), min(len(loss), _POINTS))
    return np.array([part[-1] for part in parts]), np.array([np.mean(loss[part - 1]) for part in parts])


def _drawn(curves: Sequence[tuple[np.ndarray, np.ndarray]], title: str, label: str, axes: Any) -> Any:
    axes = canvas(5.2, 2.8).subplots() if axes is None else axes
    for steps, values in curves:
        axes.plot(steps, values, color=ACCENT, linewidth=1.2, alpha=0.8, marker="o" if len(steps) == 1 else None)
    axes.set(xlabel="step", ylabel=label)
    # Beside the steep first steps the rest of a curve would be flat.
    late = np.concatenate([values[len(values) // 10 :] for _, values in curves])
    late = late[np.isfinite(late)]
    if late.size:
        low, high = float(late.min()), float(late.max())
        room = 0.08 * (high - low) or 0.1
        axes.set_ylim(low - room, high + room)
    head(axes, title, f"{len(curves)} runs" if len(curves) > 1 else "")
    tidy(axes)
    return axes
