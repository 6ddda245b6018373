"""Partial dependence of the prediction on each feature, with epistemic uncertainty."""

# \[ \bar f_j(v) = \frac1B \sum_{b=1}^B E[y \mid x_b,\, x_{bj} = v] \]
#
# over B training rows \(x_b\) with feature j set to v (Friedman 2001). The band is \(\pm 1.645\) times the posterior
# standard deviation of \(\bar f_j(v)\), if the prediction has samples of the weights. Otherwise it is the mean over the
# rows of the standard deviation of \(E[y \mid x, \theta]\), which is at least as large.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lamu.data import Encoding
from lamu.plots.plane import COLOURS
from lamu.plots.style import ACCENT, INK, canvas, head, literal, shortened, tidy
from lamu.predictives import MixturePredictive, Predictive
from lamu.typing import Array, Inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Effect", "as_columns", "draw", "effects"]

_POINTS, _ROWS = 12, 24
_MOST_PREDICTIONS = 40_000
_MOST_CURVES = 4  # classes in one picture
_NORMAL_90 = 1.645


@dataclass(frozen=True)
class Effect:
    """The effect of one feature."""

    name: str  # the feature
    values: np.ndarray  # its values, numbers or words, `[points]`
    mean: np.ndarray  # the mean prediction, `[points, curves]`: in the target's units, or probabilities
    deviation: np.ndarray  # the posterior standard deviation, in the shape of the mean
    curves: tuple[str, ...]  # the label of each curve; empty for a regression

    @property
    def size(self) -> float:
        """The largest change of the mean prediction over the feature's values."""
        return float(np.max(np.ptp(self.mean, axis=0)))


def effects(posterior: Any, x: Inputs, encoding: Encoding, seed: int, **options: Any) -> list[Effect]:
    """Returns the effect of each feature, the largest first; empty for a table with too many columns."""
    x = np.asarray(x)
    columns = [column for column in range(len(encoding.columns)) if len(np.unique(x[:, column])) > 1]
    rows = min(len(x), _ROWS, _MOST_PREDICTIONS // (_POINTS * max(len(columns), 1)))
    if not columns or rows < 1:
        return []
    background = x[np.random.default_rng(seed).choice(len(x), rows, replace=False)]
    grids = [_grid(x[:, column], encoding.cardinalities[column] > 0) for column in columns]
    blocks = []
    for column, grid in zip(columns, grids, strict=True):
        block = np.repeat(background[None], len(grid), axis=0)
        block[:, :, column] = grid[:, None]
        blocks.append(block.reshape(-1, x.shape[1]))
    mean, deviation = _mean_and_deviation(posterior.predict(np.concatenate(blocks), **options), rows)
    if encoding.task == "regression":
        origin, unit = encoding.origin_and_unit(encoding.target)
        mean, deviation = origin + unit * mean, unit * deviation
    curves = list(range(min(len(encoding.labels), _MOST_CURVES))) if encoding.task == "classes" else [0]
    parts, start = [], 0
    for column, grid in zip(columns, grids, strict=True):
        part = slice(start, start + len(grid))
        start = part.stop
        of_mean, of_deviation = (moment[part][:, curves] for moment in (mean, deviation))
        named = encoding.labels[-1:] if encoding.task == "binary" else encoding.labels
        labels = tuple(str(named[k]) for k in curves) if named else ()
        parts.append(Effect(encoding.columns[column], _shown(grid, column, encoding), of_mean, of_deviation, labels))
    return sorted(parts, key=lambda effect: -effect.size)


def as_columns(found: Sequence[Effect]) -> dict[str, np.ndarray]:
    """Returns effects as the columns of a table, with a row for each value of a feature, and each class."""
    rows = [
        (effect.name, value, *effect.curves[k : k + 1], effect.mean[point, k], effect.deviation[point, k])
        for effect in found
        for k in range(effect.mean.shape[1])
        for point, value in enumerate(effect.values)
    ]
    names = ("column", "value", *(["class"] if found[0].curves else []), "mean", "deviation")
    return {name: np.asarray(column, object) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def draw(effect: Effect, target: str, legend: bool = True) -> Figure:
    """Returns a figure of an effect: curves with bands for numbers, points with bars for words."""
    figure = canvas(3.2, 2.4)
    axes = figure.subplots()
    words = effect.values.dtype.kind not in "fiu"
    places = np.arange(len(effect.values)) if words else effect.values
    reach = _NORMAL_90 * effect.deviation
    lowest, highest = (0.0, 1.0) if effect.curves else (-np.inf, np.inf)
    several = effect.mean.shape[1] > 1
    for k, (mean, half) in enumerate(zip(effect.mean.T, reach.T, strict=True)):
        colour = tuple(COLOURS[k]) if several else ACCENT
        label = literal(shortened(effect.curves[k], 20)) if several else None
        ends = np.clip(mean - half, lowest, highest), np.clip(mean + half, lowest, highest)
        if words:
            place = places + 0.12 * (k - (effect.mean.shape[1] - 1) / 2)
            axes.vlines(place, *ends, color=colour, linewidth=1.3)
            axes.plot(place, mean, "o", color=colour, markersize=4, label=label)
        else:
            axes.fill_between(places, *ends, color=colour, alpha=0.2, linewidth=0)
            axes.plot(places, mean, color=colour, linewidth=1.6, label=label)
    if words:
        names = [literal(shortened(value, 14)) for value in effect.values]
        crowded = sum(map(len, names)) > 24
        axes.set_xticks(places, names, rotation=40 if crowded else 0, ha="right" if crowded else "center")
    else:
        axes.locator_params(axis="x", nbins=5)
    axes.locator_params(axis="y", nbins=5)
    axes.set_ylabel("probability" if several else literal(shortened(target, 22)))
    if several and legend:
        axes.legend(loc="best", frameon=False, fontsize=6.5, labelcolor=INK, handlelength=1.2)
    head(axes, literal(shortened(effect.name, 34)))
    tidy(axes)
    return figure


@jax.jit
def _means(pred: MixturePredictive) -> Array:
    return jax.vmap(pred.likelihood.mean)(pred.dispersion, pred.f)


def _mean_and_deviation(pred: Predictive, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of E[y | x, θ] over blocks of rows, and its posterior standard deviation, `[N / rows, K]`."""

    def over_rows(values: object, *leading: int) -> np.ndarray:
        values = np.asarray(values, float)
        return values.reshape(*leading, values.shape[len(leading)] // rows, rows, -1).mean(axis=-2)

    if isinstance(pred, MixturePredictive):
        draws = over_rows(_means(pred), len(pred.f))
        weights = np.exp(np.asarray(pred.log_weights, float))
        mean = np.tensordot(weights, draws, axes=1)
        return mean, np.sqrt(np.tensordot(weights, (draws - mean[None]) ** 2, axes=1))
    mean, epistemic = np.asarray(pred.mean, float), np.asarray(pred.epistemic, float)
    if not pred.support.has_classes:
        return over_rows(mean), over_rows(np.sqrt(epistemic))
    # To second order the mutual information for one class is Var(p) / (2 p (1 − p)); for all classes it is larger.
    epistemic = epistemic.reshape(-1, *(1,) * (mean.ndim - 1))
    return over_rows(mean), over_rows(np.sqrt(2.0 * mean * (1.0 - mean) * epistemic))


def _grid(column: np.ndarray, words: bool) -> np.ndarray:
    """Returns the values for a feature: the most frequent words, or quantiles of a number."""
    values, counts = np.unique(column, return_counts=True)
    if words:
        return values[np.sort(np.argsort(-counts, kind="stable")[:_POINTS])]
    if len(values) <= _POINTS:
        return values
    return np.unique(np.quantile(column, np.linspace(0.02, 0.98, _POINTS)).astype(column.dtype))


def _shown(grid: np.ndarray, column: int, encoding: Encoding) -> np.ndarray:
    levels = encoding.levels[column]
    if levels:
        return np.asarray(["(unknown)", *levels], object)[grid.astype(int)]
    origin, unit = encoding.origin_and_unit(encoding.columns[column])
    return origin + unit * grid.astype(float)
