"""Marginal posteriors of parameters."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.plots.style import ACCENT, GREY, canvas, head, literal, tidy
from lamu.typing import RandomKey

__all__ = ["weight_posteriors"]


def weight_posteriors(
    posterior: Any, key: RandomKey, pattern: str = "*", most: int = 20, samples: int = 400, axes: Any = None
) -> Any:
    r"""Draws the medians of parameters with the intervals that hold 50 % and 90 % of their posterior samples.

    Args:
        posterior: a posterior.
        key: for the samples.
        pattern: which leaves, by path, for instance "network/layers/0/*".
        most: how many coordinates are drawn at most, the first ones of the leaves in their order.
        samples: how many samples.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: where no leaf has the path.

    Examples:
        >>> import jax, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> len(lamu.plots.weight_posteriors(posterior, jax.random.key(0), "*kernel").get_yticks())
        10
    """
    drawn = posterior.sample(key, samples)
    leaves = dict(zip(tree.paths(drawn), map(np.asarray, jax.tree.leaves(drawn)), strict=True))
    chosen = {path: leaf for path, leaf in leaves.items() if tree.matches(path, pattern) and leaf.size}
    if not chosen:
        raise ValueError(f"no parameter has a path like {pattern!r}; the paths are {', '.join(leaves)}")
    names, columns = [], []
    for path, leaf in chosen.items():
        for index in np.ndindex(leaf.shape[1:]):
            names.append(f"{path}[{', '.join(map(str, index))}]" if index else path)
            columns.append(leaf[:, *index])
    names, columns = names[:most], columns[:most]
    ends = np.quantile(np.stack(columns, axis=1), (0.05, 0.25, 0.5, 0.75, 0.95), axis=0)
    axes = canvas(5.2, 1.1 + 0.24 * len(names)).subplots() if axes is None else axes
    places = np.arange(len(names))
    axes.axvline(0.0, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.hlines(places, ends[0], ends[4], color=ACCENT, linewidth=1.0)
    axes.hlines(places, ends[1], ends[3], color=ACCENT, linewidth=3.0)
    axes.plot(ends[2], places, "o", color="white", markeredgecolor=ACCENT, markersize=4.5)
    axes.set_yticks(places, [literal(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("value")
    rest = sum(leaf[0].size for leaf in chosen.values()) - len(names)
    head(axes, "Posterior of parameters", f"{rest:,} more" if rest else "50 % and 90 %")
    tidy(axes)
    axes.tick_params(axis="y", length=0)
    return axes
