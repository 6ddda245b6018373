"""Images in the style of others, in every class."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.plots.images import image_rows

__all__ = ["analogies"]


def analogies(
    images: Any, swept: Any, shape: tuple[int, int] | None = None, names: Any = None, axes: Any = None
) -> Any:
    """Draws each image at the left, and beside it its style in all classes.

    Args:
        images: `[N, height, width]`, or `[N, pixels]` with a shape.
        swept: `[N, K, ...]`, as `lamu.latent.analogies(posterior, rows, key)["y"]` returns them.
        shape: height and width of images that are vectors.
        names: of the classes, K; 0 to K − 1 where None.
        axes: as many of matplotlib's axes as there are images; those of a new figure where None.

    Returns:
        The axes, one an image, in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for other numbers of rows, names or axes than there are images or classes.

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
        str(n): np.concatenate([one[None], each.reshape(count, *one.shape)])
        for n, (one, each) in enumerate(zip(images, swept, strict=True))
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
