"""The plot of what a prior says of functions: some draws, and a band of the targets expected before any data."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamu.model import Model
from lamu.plots.style import ACCENT, INK, PALE, canvas, head, tidy
from lamu.supports import Classes, Support
from lamu.typing import RandomKey

__all__ = ["prior_functions"]

_BAND = 400  # draws of the band; a quantile of them has a standard error of 2 percentage points at most


def prior_functions(key: RandomKey, model: Model, x: Any, samples: int = 12, column: int = 0, axes: Any = None) -> Any:
    r"""Draws functions from the prior, \(E[y \mid f(\theta, x)]\) for \(\theta \sim p(\theta)\), along one input.

    The band holds the middle nine tenths of the targets \(y \sim p(y \mid f(\theta, x))\) at each input, over 400 draws
    of θ of its own. A band much wider than the data, or functions that saturate, say that the prior does.

    Args:
        key: a random key.
        model: network, likelihood and prior. Of two classes the probability of one is drawn, the second class; of
            several, that of the first; of several outputs, the first.
        x: inputs `[N, features]` in the units of the data, ordered along the column.
        samples: how many functions.
        column: the input along which they are drawn.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for no draws, or a column that x lacks; and as `Model.prior_predictive`.

    Examples:
        >>> import jax, numpy as np, lamu
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Gaussian(0.1))
        >>> axes = lamu.plots.prior_functions(jax.random.key(0), model, np.linspace(-2, 2, 30)[:, None], samples=5)
        >>> len(axes.lines)
        5
    """
    if samples < 1:
        raise ValueError(f"samples={samples!r} are no functions; ask for at least one")
    x = np.asarray(x)
    if x.ndim != 2 or not 0 <= column < x.shape[1]:
        raise ValueError(f"x has the shape {x.shape}, which has no column {column!r}; give rows of features")
    band_key, line_key = jax.random.split(key)
    targets = np.asarray(model.prior_predictive(band_key, _BAND, x)).reshape(_BAND, len(x), -1)[..., 0]
    means = np.asarray(model.prior_mean(line_key, samples, x)).reshape(samples, len(x), -1)[..., 0]
    axes = canvas(5.2, 3.4).subplots() if axes is None else axes
    along = x[:, column]
    if not model.support.has_classes:
        low, high = np.quantile(targets, (0.05, 0.95), axis=0)
        axes.fill_between(along, low, high, color=PALE, linewidth=0, label="90 % of targets")
        axes.legend(loc="upper left", frameon=False, fontsize=7.5, labelcolor=INK)
    for line in means:
        axes.plot(along, line, color=ACCENT, linewidth=1.0, alpha=0.7)
    axes.set(xlabel=f"input {column + 1}", ylabel=_meaning(model.support))
    head(axes, "Functions drawn from the prior", type(model.prior).__name__)
    tidy(axes)
    return axes


def _meaning(support: Support) -> str:
    """What the first entry of a mean is."""
    if not support.has_classes:
        return "E[y]"
    return "probability of class 0" if isinstance(support, Classes) else "probability of 1"
