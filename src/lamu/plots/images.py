"""Rows of small images: samples, reconstructions beside inputs, imputations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu.plots.style import INK, PALE, canvas, panels

__all__ = ["image_rows"]


def image_rows(images: Mapping[str, Any], shape: tuple[int, int] | None = None, axes: Any = None) -> Any:
    """Draws images side by side, one row of them for each name, from white at zero to black at the largest value.

    All rows have one scale. NaN, a missing pixel, is tinted.

    Args:
        images: by name `[count, height, width]`, or `[count, pixels]` with a shape.
        shape: height and width of images that are vectors.
        axes: as many of matplotlib's axes as there are names; those of a new figure where None.

    Returns:
        The axes, one a name, in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for nothing to draw, images that have not the shape, or another number of axes.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> len(plots.image_rows({"input": np.eye(4)[None], "sample": np.zeros((3, 16))}, shape=(4, 4)))
        2
    """
    if not images:
        raise ValueError("images is empty; give arrays by name, for instance {'input': x, 'reconstruction': y}")
    arrays = {name: _images(name, np.asarray(array, float), shape) for name, array in images.items()}
    largest = max(float(np.nanmax(array, initial=0.0)) for array in arrays.values()) or 1.0
    count = max(len(array) for array in arrays.values())
    if axes is None:
        figure = canvas(1.5 + 0.55 * count, 0.6 * len(arrays))
        figure.get_layout_engine().set(w_pad=0.12)  # the names stand outside what the layout measures
        axes = figure.subplots(len(arrays), 1)
    axes = panels("image_rows", axes, len(arrays))
    for each, (name, array) in zip(axes, arrays.items(), strict=True):
        _draw(each, array, count, largest)
        each.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, color=INK)
    return axes


def _images(name: str, array: np.ndarray, shape: tuple[int, int] | None) -> np.ndarray:
    """Returns `[count, height, width]`."""
    if array.ndim == 2 and shape is not None and array.shape[1] == shape[0] * shape[1]:
        return array.reshape(-1, *shape)
    if array.ndim != 3:
        raise ValueError(f"{name} has the shape {array.shape}; give [count, height, width], or vectors and their shape")
    return array


def _draw(axes: Any, array: np.ndarray, count: int, largest: float) -> None:
    """Draws one row, with a column of background between two images."""
    from matplotlib import colormaps

    height, width = array.shape[1:]
    strip = np.full((height, count * (width + 1) - 1), -1.0)
    for place, image in enumerate(array):
        strip[:, place * (width + 1) : place * (width + 1) + width] = image
    colours = colormaps["gray_r"](np.clip(np.nan_to_num(strip, nan=0.0) / largest, 0.0, 1.0))
    colours[np.isnan(strip)] = (0.80, 0.87, 0.93, 1.0)
    colours[strip < 0] = (1.0, 1.0, 1.0, 1.0)
    axes.imshow(colours, interpolation="nearest", aspect="equal")
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_color(PALE)
