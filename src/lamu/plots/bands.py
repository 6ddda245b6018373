"""Predictive bands of a regression along one input."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

__all__ = ["predictive_bands"]

_POINTS, _MARGIN = 200, 0.15
_NORMAL_90 = 1.645


def predictive_bands(posterior: Any, x: Any, y: Any = None, column: int = 0, axes: Any = None) -> Any:
    r"""Draws the prediction of a regression along one input, the other inputs at their medians.

    The outer band holds 90 % of new targets. The inner one is \(\pm 1.645\) standard deviations of
    \(E[y \mid x, \theta]\), which more data would narrow.

    Args:
        posterior: of a regression with one output.
        x: the rows that are drawn as points and around which the inputs lie, `[N, D]`.
        y: their targets, `[N]`; None draws no points.
        column: the input along which the prediction is drawn.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for classes, a column that x lacks, or targets of another shape.

    Examples:
        >>> import numpy as np, lamu
        >>> x = np.linspace(-1, 1, 30)[:, None]
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.1))
        >>> posterior = lamu.fit(model, (x, x[:, 0]), lamu.algorithms.conjugate()).posterior
        >>> len(lamu.plots.predictive_bands(posterior, x, x[:, 0]).collections)
        3
    """
    x = np.asarray(x)
    if x.ndim != 2 or not 0 <= column < x.shape[1]:
        raise ValueError(f"x has the shape {x.shape}, which has no column {column!r}; give rows of features")
    if y is not None and np.shape(y) != (len(x),):
        raise ValueError(f"the targets have the shape {np.shape(y)} for {len(x)} rows; give one target a row")
    low, high = float(x[:, column].min()), float(x[:, column].max())
    room = _MARGIN * ((high - low) or 1.0)
    grid = np.repeat(np.median(x, axis=0)[None], _POINTS, axis=0).astype(x.dtype)
    grid[:, column] = np.linspace(low - room, high + room, _POINTS)
    pred = posterior.predict(grid)
    if pred.support.has_classes:
        raise ValueError(f"predictive_bands is of a regression, and this prediction's task is {pred.support.task!r}")
    axes = canvas(5.2, 3.4).subplots() if axes is None else axes
    along, mean = grid[:, column], np.asarray(pred.mean)
    reach = _NORMAL_90 * np.sqrt(np.asarray(pred.epistemic))
    axes.fill_between(along, *pred.interval(0.9), color=ACCENT, alpha=0.15, linewidth=0, label="90 % of targets")
    axes.fill_between(along, mean - reach, mean + reach, color=ACCENT, alpha=0.35, linewidth=0, label="90 % of means")
    axes.plot(along, mean, color=ACCENT, linewidth=1.6, label="mean")
    if y is not None:
        axes.scatter(x[:, column], y, s=10, color=GREY, linewidths=0, alpha=0.8, zorder=3)
    axes.set(xlim=(along[0], along[-1]), xlabel=f"input {column + 1}", ylabel="target")
    head(axes, "Prediction")
    axes.legend(loc="best", frameon=False, fontsize=7.5, labelcolor=INK)
    tidy(axes)
    return axes
