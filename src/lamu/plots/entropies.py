"""The entropy of predictions in a plane of two inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu import scores
from lamu.plots.plane import Plane, draw_rows, require_classes
from lamu.plots.style import ACCENT, GREY, INK, head

__all__ = ["entropy_map"]


def entropy_map(posterior: Any, x: Any, axes: Any = None) -> Any:
    r"""Draws the entropy of the predicted class at every point of a plane, \(-\sum_k \bar p_k \log \bar p_k\) in nats.

    A point estimate is certain far from all data; a belief need not be. The colours go from 0 to \(\log K\), whatever
    the posterior, so that pictures can be compared. The map of a dense prediction is `scores.entropy(pred)[i]` itself,
    an image.

    Args:
        posterior: of a model of classes with two inputs.
        x: the rows that are drawn as points, and around which the plane lies, `[N, 2]`.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for other than two inputs, or a regression.

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
