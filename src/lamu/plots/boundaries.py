"""Decision boundaries in a plane of two inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.plots.plane import COLOURS, MOST, Plane, draw_rows, require_classes
from lamu.plots.style import INK, head

__all__ = ["decision_boundary"]


def decision_boundary(posterior: Any, x: Any, y: Any, axes: Any = None, point: Any = None) -> Any:
    r"""Draws which class a posterior predicts at every point of a plane, and the boundaries between classes.

    A point has the colours of the classes, mixed by their probabilities, so that it is pure where the prediction is
    certain. Lines are the boundaries, where the two most probable classes are equally probable.

    With a point estimate beside the posterior, its boundaries are dashed: averaging over parameters moves a boundary
    little near the data and much far from them.

    Args:
        posterior: of a model of classes with two inputs.
        x: the rows that are drawn as points, and around which the plane lies, `[N, 2]`.
        y: their labels, `[N]`.
        axes: matplotlib's axes to draw on; those of a new figure where None.
        point: a posterior at one point, such as that of `lamu.algorithms.adam()`; None draws the posterior alone.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for other than two inputs, a regression, more classes than can be told apart by colour, labels of
            another length, or a point of other classes.

    Examples:
        >>> import numpy as np, lamu
        >>> x = np.random.default_rng(0).normal(size=(60, 2))
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
        >>> posterior = lamu.fit(model, (x, (x[:, 0] > 0).astype(int)), lamu.algorithms.laplace(), epochs=20).posterior
        >>> lamu.plots.decision_boundary(posterior, x, x[:, 0] > 0).get_title(loc="left")
        'Decision boundary'
    """
    plane, y = Plane(x, axes), np.asarray(y)
    if y.shape != plane.x.shape[:1]:
        raise ValueError(f"the labels have the shape {y.shape} for {len(plane.x)} rows; give one label a row")
    pred = posterior.predict(plane.grid)
    require_classes("decision_boundary", pred)
    p = plane.square(pred.probabilities)
    classes = p.shape[-1]
    if classes > MOST:
        raise ValueError(f"decision_boundary has {MOST} colours, and the prediction has {classes} classes")
    colours = COLOURS[:classes]
    plane.show(np.clip(1 - 0.75 * (1 - p @ colours), 0, 1))  # paler than the points
    _draw_boundaries(plane, p, "solid")
    if point is not None:
        other = plane.square(point.predict(plane.grid).probabilities)
        if other.shape != p.shape:
            raise ValueError(f"the point predicts {other.shape[-1]} classes and the posterior {classes}; give the same")
        _draw_boundaries(plane, other, "dashed")
        for name, style in (("posterior", "solid"), ("point", "dashed")):
            plane.axes.plot([], [], color=INK, linewidth=1.1, linestyle=style, label=name)
        plane.axes.legend(loc="best", fontsize=7.5, labelcolor=INK, frameon=False)
    draw_rows(plane, c=colours[np.asarray(pred.support.numbers(y)).astype(int)])
    head(plane.axes, "Decision boundary")
    return plane.axes


def _draw_boundaries(plane: Plane, p: np.ndarray, style: str) -> None:
    """Draws where the two most probable classes are equally probable."""
    classes = p.shape[-1]
    for k in range(classes if classes > 2 else 1):
        lead = p[..., k] - np.delete(p, k, axis=-1).max(axis=-1)
        if lead.min() < 0 < lead.max():
            plane.axes.contour(*plane.lines, lead, levels=[0.0], colors=INK, linewidths=1.1, linestyles=style)
