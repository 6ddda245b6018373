"""A plane of two inputs: where to ask a posterior, and how its pictures look."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.plots.style import canvas, tidy

__all__ = ["COLOURS", "MOST", "Plane", "draw_rows", "require_classes"]

COLOURS = np.array(
    [
        [27, 108, 168], [214, 110, 45], [62, 140, 92], [168, 62, 92], [120, 94, 170],
        [196, 160, 40], [70, 150, 160], [140, 110, 80], [200, 110, 160], [110, 120, 130],
    ]
) / 255  # fmt: skip
MOST = len(COLOURS)  # classes that can be told apart by colour
_MARGIN, _POINTS = 0.25, 120


class Plane:
    """A grid of inputs around some rows, and the axes that show it."""

    # `axes`: matplotlib's axes.
    #
    # `x`: the rows, `[N, 2]`.
    #
    # `grid`: the inputs, `[points * points, 2]`.
    #
    # `ends`: the grid's ends in both directions, `[2, 2]`.

    def __init__(self, x: Any, axes: Any) -> None:
        self.x = np.asarray(x)
        if self.x.ndim != 2 or self.x.shape[1] != 2:
            raise ValueError(f"x has the shape {self.x.shape}; a plane has two inputs a row, [N, 2]")
        low, high = self.x.min(axis=0), self.x.max(axis=0)
        room = _MARGIN * np.where(high > low, high - low, 1.0)
        self.ends = np.stack([low - room, high + room], axis=1)
        self.axes = canvas(4.4, 3.6).subplots() if axes is None else axes
        self.lines = [np.linspace(start, stop, _POINTS, dtype=self.x.dtype) for start, stop in self.ends]
        self.grid = np.stack(np.meshgrid(*self.lines), axis=-1).reshape(-1, 2)

    def square(self, values: Any) -> np.ndarray:
        """Returns values at the grid's inputs, `[points * points, ...]`, as an image, the second input upwards."""
        return np.asarray(values).reshape(_POINTS, _POINTS, *np.shape(values)[1:])

    def show(self, image: np.ndarray, **options: Any) -> Any:
        """Draws an image of the plane and returns it."""
        self.axes.set(xlim=self.ends[0], ylim=self.ends[1], xlabel="first input", ylabel="second input")
        tidy(self.axes)
        return self.axes.imshow(
            image, extent=self.ends.ravel(), origin="lower", aspect="auto", interpolation="bilinear", **options
        )


def draw_rows(plane: Plane, **options: Any) -> None:
    """Draws the rows as small points with a light edge."""
    plane.axes.scatter(*plane.x.T, s=14, linewidths=0.6, edgecolors="white", zorder=3, **options)


def require_classes(picture: str, pred: Any) -> None:
    """Raises a ValueError unless a prediction is of classes that colours can tell apart."""
    if not pred.support.has_classes:
        raise ValueError(f"{picture} is of classes, and this prediction's task is {pred.support.task!r}")
