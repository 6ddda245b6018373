"""The plot of what a prior says of functions: some draws, and a band of the targets expected before any data."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamu.model import Model
from lamu.plots.style import ACCENT, INK, PALE, canvas, head, tidy
from lamu.typing import RandomKey

__all__ = ["prior_functions"]

_BAND = 400  # draws of the band; a quantile of them has a standard error of 2 percentage points at most


def prior_functions(key: RandomKey, model: Model, x: Any, draws: int = 12, column: int = 0) -> Any:
    r"""Draws functions from the prior, \(E[y \mid f(\theta, x)]\) for \(\theta \sim p(\theta)\), along one input.

    The band holds the middle nine tenths of the targets \(y \sim p(y \mid f(\theta, x))\) at each input, over 400 draws
    of θ of its own. A band much wider than the data, or functions that saturate, say that the prior does.

    Args:
        key: a random key.
        model: network, likelihood without a dispersion to learn, and prior. Of classes, the first one's probability is
            drawn.
        x: inputs `[N, features]` in the units of the data, ordered along the column.
        draws: how many functions.
        column: the input along which they are drawn.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: for no draws, or a column that x lacks; and as `Model.prior_predictive`.

    Examples:
        >>> import jax, numpy as np, lamu
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Gaussian(0.1))
        >>> figure = lamu.plots.prior_functions(jax.random.key(0), model, np.linspace(-2, 2, 30)[:, None], draws=5)
        >>> len(figure.axes[0].lines)
        5
    """
    if draws < 1:
        raise ValueError(f"draws={draws!r} are no functions; ask for at least one")
    x = np.asarray(x)
    if x.ndim != 2 or not 0 <= column < x.shape[1]:
        raise ValueError(f"x has the shape {x.shape}, which has no column {column!r}; give rows of features")
    band_key, line_key = jax.random.split(key)
    targets = np.asarray(model.prior_predictive(band_key, _BAND, x)).reshape(_BAND, len(x), -1)[..., 0]
    means = np.asarray(model.prior_mean(line_key, draws, x)).reshape(draws, len(x), -1)[..., 0]
    figure = canvas(5.2, 3.4)
    axes = figure.subplots()
    along = x[:, column]
    if not model.support.has_classes:
        low, high = np.quantile(targets, (0.05, 0.95), axis=0)
        axes.fill_between(along, low, high, color=PALE, linewidth=0, label="90 % of targets")
        axes.legend(loc="upper left", frameon=False, fontsize=7.5, labelcolor=INK)
    for line in means:
        axes.plot(along, line, color=ACCENT, linewidth=1.0, alpha=0.7)
    axes.set(
        xlabel=f"input {column + 1}", ylabel="probability of the first class" if model.support.has_classes else "E[y]"
    )
    head(axes, "Functions drawn from the prior", type(model.prior).__name__)
    tidy(axes)
    return figure
