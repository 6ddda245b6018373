"""Plots of predictions over one input or a plane of two, and of small images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamu import scores
from lamu.plots.style import ACCENT, GREY, INK, LEGEND, PALE, Axes, canvas, finished, head, literal, panels, tidy
from lamu.typing import Inputs, Prediction, Targets

__all__ = [
    "COLOURS",
    "MOST",
    "Plane",
    "analogies",
    "decision_boundary",
    "draw_rows",
    "entropy_map",
    "image_rows",
    "latent_map",
    "predictive_bands",
    "require_classes",
]


COLOURS = np.array(
    [
        [27, 108, 168], [214, 110, 45], [62, 140, 92], [168, 62, 92], [120, 94, 170],
        [196, 160, 40], [70, 150, 160], [140, 110, 80], [200, 110, 160], [110, 120, 130],
    ]
) / 255  # fmt: skip
MOST = len(COLOURS)  # the number of distinguishable colours
_MARGIN, _POINTS = 0.25, 120


class Plane:
    """A grid of inputs around some rows, and its axes."""

    # `axes`: matplotlib's axes.
    #
    # `x`: the rows, `[N, 2]`.
    #
    # `grid`: the inputs, `[points * points, 2]`.
    #
    # `ends`: the grid's ends in both directions, `[2, 2]`.

    def __init__(self, x: Inputs, axes: Axes) -> None:
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
        """Returns values at the grid's inputs, `[points * points, ...]`, as an image with the second input upwards."""
        return np.asarray(values).reshape(_POINTS, _POINTS, *np.shape(values)[1:])

    def show(self, image: np.ndarray, **options: object) -> Any:
        """Plots an image of the plane and returns it."""
        self.axes.set(xlim=self.ends[0], ylim=self.ends[1], xlabel="first input", ylabel="second input")
        tidy(self.axes)
        return self.axes.imshow(
            image, extent=self.ends.ravel(), origin="lower", aspect="auto", interpolation="bilinear", **options
        )


def draw_rows(plane: Plane, **options: object) -> None:
    """Plots the rows as small points with a light edge."""
    plane.axes.scatter(*plane.x.T, s=14, linewidths=0.6, edgecolors="white", zorder=3, **options)


def require_classes(picture: str, pred: Prediction) -> None:
    """Raises a ValueError unless a prediction is of classes."""
    if not pred.support.has_classes:
        raise ValueError(f"{picture} is of classes, and this prediction's task is {pred.support.task!r}")


def decision_boundary(posterior: Any, x: Inputs, y: Targets, axes: Axes = None, point: Any = None) -> Axes:
    r"""Plots the predicted class at every point of a plane, and the boundaries between classes.

    The colour of a point is the average of the classes' colours, weighted by their probabilities. Lines are the
    boundaries, where the two most probable classes are equally probable.

    With a point estimate its boundaries are added as dashed lines: averaging over parameters moves a boundary little
    near the data and much far from them.

    Args:
        posterior: a posterior of a classifier with two inputs.
        x: the rows `[N, 2]`, which are drawn as points and determine the range of the plane.
        y: their labels, `[N]`.
        axes: matplotlib's axes to draw on; those of a new figure where None.
        point: a posterior of a point estimate, such as that of `lamu.algorithms.adam()`; None for the posterior alone.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: unless there are two inputs, for a regression, for more classes than colours, labels of another
            length, or a point with other classes.

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
        plane.axes.legend(loc="best", **LEGEND)
    draw_rows(plane, c=colours[np.asarray(pred.support.numbers(y)).astype(int)])
    head(plane.axes, "Decision boundary")
    return plane.axes


def _draw_boundaries(plane: Plane, p: np.ndarray, style: str) -> None:
    """Plots the boundary where the two most probable classes are equally probable."""
    classes = p.shape[-1]
    for k in range(classes if classes > 2 else 1):
        lead = p[..., k] - np.delete(p, k, axis=-1).max(axis=-1)
        if lead.min() < 0 < lead.max():
            plane.axes.contour(*plane.lines, lead, levels=[0.0], colors=INK, linewidths=1.1, linestyles=style)


def entropy_map(posterior: Any, x: Inputs, axes: Axes = None) -> Axes:
    r"""Plots the entropy of the predicted class at every point of a plane, \(-\sum_k \bar p_k \log \bar p_k\) in nats.

    A point estimate is certain far from all data; a posterior may be uncertain there. The colours always range from 0
    to \(\log K\), so that pictures can be compared. For a dense prediction `scores.entropy(pred)[i]` is such an image.

    Args:
        posterior: a posterior of a classifier with two inputs.
        x: the rows `[N, 2]`, which are drawn as points and determine the range of the plane.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: unless there are two inputs, or for a regression.

    Examples:
        >>> import numpy as np, lamu
        >>> x = np.random.default_rng(0).normal(size=(60, 2))
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
        >>> posterior = lamu.fit(model, (x, (x[:, 0] > 0).astype(int)), lamu.algorithms.laplace(), epochs=20).posterior
        >>> lamu.plots.entropy_map(posterior, x).get_title(loc="left")
        'Entropy'
    """
    plane = Plane(x, axes)
    pred = posterior.predict(plane.grid)
    require_classes("entropy_map", pred)
    most = float(np.log(pred.probabilities.shape[-1]))
    image = plane.show(plane.square(scores.entropy(pred)), cmap=_pale_to_accent(), vmin=0.0, vmax=most)
    draw_rows(plane, color=GREY)
    bar = plane.axes.figure.colorbar(image, ax=plane.axes, ticks=[0.0, most], pad=0.02)
    bar.ax.set_yticklabels(["0", f"log {pred.probabilities.shape[-1]}"], fontsize=8, color=INK)
    bar.outline.set_visible(False)
    head(plane.axes, "Entropy", "nats")
    return plane.axes


def _pale_to_accent() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("entropy", ["white", ACCENT, INK])


_BAND_POINTS, _BAND_MARGIN = 200, 0.15
_NORMAL_90 = 1.645


def predictive_bands(posterior: Any, x: Inputs, y: Targets = None, column: int = 0, axes: Axes = None) -> Axes:
    r"""Plots the prediction of a regression along one input, with the other inputs at their medians.

    The outer band is the 90 % interval of new targets. The inner one is \(\pm 1.645\) standard deviations of
    \(E[y \mid x, \theta]\), which shrinks with more data.

    Args:
        posterior: a posterior of a regression with one output.
        x: the rows `[N, D]`, which are drawn as points and determine the range of the inputs.
        y: their targets, `[N]`; None draws no points.
        column: the input on the horizontal axis.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for classes, a column that x does not have, or targets of another shape.

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
    room = _BAND_MARGIN * ((high - low) or 1.0)
    grid = np.repeat(np.median(x, axis=0)[None], _BAND_POINTS, axis=0).astype(x.dtype)
    grid[:, column] = np.linspace(low - room, high + room, _BAND_POINTS)
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
    axes.legend(loc="best", **LEGEND)
    return finished(axes, "Prediction")


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
