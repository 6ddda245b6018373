"""Plots of small images: samples, reconstructions with inputs, imputations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu.plots.plane import COLOURS, MOST
from lamu.plots.style import ACCENT, INK, LEGEND, PALE, Axes, canvas, finished, literal, panels

__all__ = ["analogies", "image_rows", "latent_map"]


def image_rows(images: Mapping[str, object], shape: tuple[int, int] | None = None, axes: Axes = None) -> Axes:
    """Plots rows of images, one row for each name, from white at zero to black at the largest value.

    All rows have the same scale. Missing pixels (NaN) are tinted.

    Args:
        images: arrays by name, `[count, height, width]`, or `[count, pixels]` with a shape.
        shape: height and width of images that are vectors.
        axes: matplotlib's axes, one a name; those of a new figure where None.

    Returns:
        The axes in an array, one a name; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for no images, images of another shape, or another number of axes.

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
        figure.get_layout_engine().set(w_pad=0.12)  # the layout does not include the names
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


def _draw(axes: Axes, array: np.ndarray, count: int, largest: float) -> None:
    """Plots one row, with a background column between images."""
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


def analogies(
    images: object, swept: object, shape: tuple[int, int] | None = None, names: Any = None, axes: Axes = None
) -> Axes:
    """Plots each image followed by images of its style in all classes.

    Args:
        images: `[N, height, width]`, or `[N, pixels]` with a shape.
        swept: `[N, K, ...]`, from `lamu.latent.analogies(posterior, rows, key)["y"]`.
        shape: height and width of images that are vectors.
        names: the names of the K classes; 0 to K − 1 where None.
        axes: matplotlib's axes, one an image; those of a new figure where None.

    Returns:
        The axes in an array, one an image; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the numbers of rows, names or axes are not those of the images or classes.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> axes = plots.analogies(np.eye(4).reshape(4, 2, 2), np.zeros((4, 3, 2, 2)))
        >>> [label.get_text() for label in axes[0].get_xticklabels()]
        ['given', '0', '1', '2']
    """
    images, swept = np.asarray(images, float), np.asarray(swept, float)
    if swept.ndim < 3 or len(swept) != len(images):
        raise ValueError(f"swept has the shape {swept.shape} for {len(images)} images; give [N, classes, ...]")
    count = swept.shape[1]
    names = list(range(count)) if names is None else list(names)
    if len(names) != count:
        raise ValueError(f"there are {len(names)} names for {count} classes; give one a class")
    rows = {
        str(n): np.concatenate([image[None], each.reshape(count, *image.shape)])
        for n, (image, each) in enumerate(zip(images, swept, strict=True))
    }
    axes = image_rows(rows, shape, axes)
    for each in axes:
        each.set_ylabel("")
    width = shape[1] if images.ndim == 2 and shape is not None else images.shape[-1]
    places = [n * (width + 1) + (width - 1) / 2 for n in range(count + 1)]
    top = axes[0]
    top.xaxis.tick_top()
    top.set_xticks(places, ["given", *map(str, names)], fontsize=8)
    top.tick_params(length=0)
    return axes


def latent_map(z: object, labels: object = None, axes: Axes = None, deviations: object = None) -> Axes:
    r"""Plots the latent variables of rows in two or three dimensions, coloured by labels.

    Args:
        z: latent variables `[N, 2]` or `[N, 3]`, for instance the means of `posterior.local(rows)`.
        labels: the labels of the rows, `[N]`, at most ten different ones; None for one colour.
        axes: matplotlib's axes to draw on, with `projection="3d"` for three dimensions; those of a new figure where
            None.
        deviations: standard deviations of z in its shape, drawn as thin crosses; None for points alone.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: unless z has two or three dimensions, for labels of another length, or for more than ten of them.

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
    return finished(axes, "Latent variables", f"{len(z):,} rows")


def _space() -> Any:
    from matplotlib import rc_context

    with rc_context({"grid.color": PALE}):  # the only setting for the lines of a 3D grid
        return canvas(5.2, 3.8).subplots(subplot_kw={"projection": "3d"})


def _draw_labels(axes: Axes, z: np.ndarray, labels: np.ndarray) -> None:
    if labels.shape != z.shape[:1]:
        raise ValueError(f"the labels have the shape {labels.shape} for {len(z)} rows; give one label a row")
    names = np.unique(labels)
    if len(names) > MOST:
        raise ValueError(f"latent_map has {MOST} colours, and there are {len(names)} labels; leave labels out")
    for name, colour in zip(names, COLOURS, strict=False):
        axes.scatter(*z[labels == name].T, s=10, color=[tuple(colour)], alpha=0.7, linewidths=0, label=literal(name))
    deep = z.shape[1] == 3
    place = {"loc": "center right", "bbox_to_anchor": (-0.05, 0.5)} if deep else {"loc": "best"}
    axes.legend(**place, **LEGEND, markerscale=1.6)
