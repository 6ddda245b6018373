"""Plots of models and runs: comparisons, evidence, prior functions, influential rows, training and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.base.arguments import whole_number
from lamu.model import Model
from lamu.plots.style import ACCENT, GREY, INK, LEGEND, PALE, Axes, canvas, finished, literal, panels
from lamu.supports import Classes, Support
from lamu.typing import Inputs, RandomKey

__all__ = [
    "evidence_curve",
    "forest",
    "influence",
    "prior_functions",
    "training_curve",
    "validation_curve",
    "weight_posteriors",
]


_NORMAL_95 = 1.96


def forest(
    estimates: Mapping[str, Any], title: str = "", unit: str = "", reference: float = 0.0, axes: Axes = None
) -> Axes:
    r"""Plots estimates with their 95 % intervals, \(\pm 1.96\) standard errors, and a reference line.

    For paired differences to one algorithm, an interval that excludes zero is evidence of a difference.

    Args:
        estimates: objects by name with a `value` and a standard `error`, for instance `lamu.scores.difference(...)`;
            drawn from the top. One whose error is not finite is drawn without an interval.
        title: the title of the plot.
        unit: the label of the axis.
        reference: the position of the line.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: without estimates.

    Examples:
        >>> from lamu import plots
        >>> from lamu.scores import Estimate
        >>> axes = plots.forest({"laplace": Estimate(-0.1, 0.02), "ivon": Estimate(0.0, 0.03)}, "nll − adam's", "nats")
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['laplace', 'ivon']
    """
    if not estimates:
        raise ValueError("there is no estimate to draw; give one name or more")
    names, given = list(estimates), list(estimates.values())
    axes = canvas(5.2, 1.1 + 0.32 * len(names)).subplots() if axes is None else axes
    places = np.arange(len(names))
    values = np.array([each.value for each in given], float)
    errors = np.array([each.error for each in given], float)
    reach = np.where(np.isfinite(errors), _NORMAL_95 * errors, 0.0)
    axes.axvline(reference, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.hlines(places, values - reach, values + reach, color=ACCENT, linewidth=1.6)
    axes.plot(values, places, "o", color=ACCENT, markersize=5)
    return _listed(axes, names, unit, title, "95 % intervals")


def _listed(axes: Axes, names: Sequence[str], label: str, title: str, aside: str) -> Axes:
    """Returns axes with a name at every row, from the top."""
    axes.set_yticks(np.arange(len(names)), [literal(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(label)
    finished(axes, title, aside).tick_params(axis="y", length=0)
    return axes


def evidence_curve(estimates: Mapping[Any, Any], complexity: str = "complexity", axes: Axes = None) -> Axes:
    r"""Plots the log evidence, or a lower bound, against the complexity of the model, and marks the maximum.

    Args:
        estimates: estimates by complexity (hidden units, degree, components, ...), each with a `value` in nats and a
            standard `error`, from `lamu.scores.evidence`.
        complexity: the label of the axis.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: without a finite estimate.

    Source: MacKay (1992), Bayesian interpolation.

    Examples:
        >>> from lamu import plots
        >>> from lamu.scores import Estimate
        >>> axes = plots.evidence_curve({1: Estimate(-9.0, 0.0), 2: Estimate(-5.0, 0.0), 3: Estimate(-6.0, 0.0)})
        >>> axes.get_title(loc="right")
        'greatest at 2'
    """
    order = sorted(estimates)
    values = np.array([estimates[each].value for each in order], float)
    if not np.isfinite(values).any():
        raise ValueError(f"{len(order)} estimates are given, none of them finite; give one or more")
    errors = np.nan_to_num(np.array([estimates[each].error for each in order], float))
    best = int(np.nanargmax(np.where(np.isfinite(values), values, np.nan)))
    axes = canvas(4.6, 3.2).subplots() if axes is None else axes
    axes.axvline(order[best], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.errorbar(order, values, errors, color=ACCENT, linewidth=1.5, marker="o", markersize=4.5, ecolor=INK)
    axes.set(xlabel=complexity, ylabel="log evidence, nats")
    return finished(axes, "Evidence", f"greatest at {order[best]:g}")


_BAND = 400  # samples for the band; their quantiles have standard errors of at most 2 percentage points


def prior_functions(
    key: RandomKey, model: Model, x: Inputs, samples: int = 12, column: int = 0, axes: Axes = None
) -> Axes:
    r"""Plots functions from the prior, \(E[y \mid f(\theta, x)]\) for \(\theta \sim p(\theta)\), along one input.

    The band is the central 90 % interval of the targets \(y \sim p(y \mid f(\theta, x))\) at each input, from 400
    further samples of θ. If it is much wider than the data, or functions saturate, the prior is too wide.

    Args:
        key: a random key.
        model: network, likelihood and prior. For two classes the probability of the second is drawn, for several
            classes that of the first, and for several outputs the first.
        x: inputs `[N, features]` in the units of the data, ordered along the column.
        samples: the number of functions.
        column: the input on the horizontal axis.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: for no samples, or a column that x does not have; and as `Model.prior_predictive`.

    Examples:
        >>> import jax, numpy as np, lamu
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Gaussian(0.1))
        >>> axes = lamu.plots.prior_functions(jax.random.key(0), model, np.linspace(-2, 2, 30)[:, None], samples=5)
        >>> len(axes.lines)
        5
    """
    samples = whole_number("samples", samples)
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
        axes.legend(loc="upper left", **LEGEND)
    for line in means:
        axes.plot(along, line, color=ACCENT, linewidth=1.0, alpha=0.7)
    axes.set(xlabel=f"input {column + 1}", ylabel=_meaning(model.support))
    return finished(axes, "Functions drawn from the prior", type(model.prior).__name__)


def _meaning(support: Support) -> str:
    """Returns the label of the first entry of a mean."""
    if not support.has_classes:
        return "E[y]"
    return "probability of class 0" if isinstance(support, Classes) else "probability of 1"


def influence(of: Any, names: Sequence[str] | None = None, rows: int = 10, axes: Axes = None) -> Axes:
    r"""Plots the most influential rows, with their leverages and residuals.

    A row changes the belief if its inputs are unusual (leverage) and its target is far from its prediction (Pearson
    residual). The area of a point is the divergence in nats. Conjugate models have no leverages, and their picture has
    only the bars.

    Args:
        of: the result of `lamu.sensitivity`.
        names: names of the rows, `[N]`; "row 0" and so on where None.
        rows: the number of rows that are named.
        axes: two of matplotlib's axes, for the points and the bars, or one for the bars alone; those of a new figure
            where None.

    Returns:
        The axes in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the numbers of names and rows differ, or for another number of axes.

    Examples:
        >>> import numpy as np
        >>> from lamu import Sensitivity, plots
        >>> of = Sensitivity(np.array([0.1, 0.5]), np.zeros((2, 1)), np.array([0.2, 0.4]), np.array([0.3, 1.0]))
        >>> len(plots.influence(of))
        2
    """
    count = len(of.belief)
    if names is not None and len(names) != count:
        raise ValueError(f"there are {len(names)} names and {count} rows; give one name for each row")
    named = [f"row {i}" for i in range(count)] if names is None else [str(name) for name in names]
    top = of.order[: max(1, rows)]
    height = max(2.6, 0.9 + 0.24 * len(top))
    if np.all(np.isnan(of.leverage)):
        axes = panels("influence", canvas(3.8, height).subplots() if axes is None else axes, 1)
    else:
        if axes is None:
            axes = canvas(7.2, height).subplots(1, 2, width_ratios=(1.2, 1))
        axes = panels("influence", axes, 2)
        _draw_plane(axes[0], of, top, named)
    _draw_bars(axes[-1], of, top, named)
    return axes


def _draw_plane(axes: Axes, of: Any, top: np.ndarray, named: Sequence[str]) -> None:
    size = 4.0 + 160.0 * of.belief / max(float(of.belief.max()), 1e-300)
    chosen = np.isin(np.arange(len(of.belief)), top)
    colours = np.where(chosen, ACCENT, GREY)
    axes.scatter(of.leverage, of.residual, s=size, c=colours, alpha=0.55, linewidths=0)
    for i in top[:4]:
        axes.annotate(
            str(named[i]).removeprefix("row "),
            (of.leverage[i], of.residual[i]),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=7.5,
            color=INK,
        )
    axes.set(xlabel="leverage", ylabel="residual, standard deviations")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.margins(0.12)
    axes.set_axisbelow(True)
    axes.grid(color=PALE, linewidth=0.7)
    finished(axes, "Leverage and residual", f"{len(of.belief):,} rows")


def _draw_bars(axes: Axes, of: Any, top: np.ndarray, named: Sequence[str]) -> None:
    place = np.arange(len(top))
    axes.barh(place, of.belief[top], height=0.7, color=ACCENT, alpha=0.8)
    axes.set_yticks(place, [named[i] for i in top])
    axes.invert_yaxis()
    axes.set(xlabel="KL of the belief without the row, nats")
    finished(axes, "Most influential rows").tick_params(axis="y", length=0)


_POINTS = 200


def training_curve(histories: object, axes: Axes = None) -> Axes:
    r"""Plots the loss of every step in nats a row, including the prior.

    For `vmp` and `cvi` a step is a sweep, and the loss is the negative bound a row. Long runs are drawn as the means of
    equal parts. The range of the axis is that of the steps after the first tenth.

    Args:
        histories: one or more `fit.history`, for instance of the members of an ensemble.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if no history has a step.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> len(plots.training_curve({"loss": np.linspace(2.0, 1.0, 50)}).lines)
        1
    """
    curves = [_averaged(np.asarray(each["loss"], float)) for each in _several(histories) if len(each["loss"])]
    if not curves:
        raise ValueError("no history has a step; draw runs of one step or more")
    return _drawn(curves, "Training", "loss, nats a row", axes)


def validation_curve(histories: object, axes: Axes = None) -> Axes:
    r"""Plots the negative log predictive density of held-out rows, in nats a row, against the step.

    Args:
        histories: one or more `fit.history` of runs with validation.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if no history has a validation.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> history = {"validation_step": np.array([5, 10]), "validation_nll": np.array([1.2, 1.1])}
        >>> plots.validation_curve(history).get_ylabel()
        'nll, nats a row'
    """
    curves = [
        (np.asarray(each["validation_step"], float), np.asarray(each["validation_nll"], float))
        for each in _several(histories)
        if len(each.get("validation_nll", ()))
    ]
    if not curves:
        raise ValueError("no history has a validation; fit with validation=0.1, for instance")
    return _drawn(curves, "Rows set aside", "nll, nats a row", axes)


def _several(histories: Any) -> Sequence[Mapping[str, Any]]:
    return [histories] if isinstance(histories, Mapping) else list(histories)


def _averaged(loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends and the means of equal parts of the run."""
    parts = np.array_split(np.arange(1, len(loss) + 1), min(len(loss), _POINTS))
    return np.array([part[-1] for part in parts]), np.array([np.mean(loss[part - 1]) for part in parts])


def _drawn(curves: Sequence[tuple[np.ndarray, np.ndarray]], title: str, label: str, axes: Axes) -> Axes:
    axes = canvas(5.2, 2.8).subplots() if axes is None else axes
    for steps, values in curves:
        axes.plot(steps, values, color=ACCENT, linewidth=1.2, alpha=0.8, marker="o" if len(steps) == 1 else None)
    axes.set(xlabel="step", ylabel=label)
    # Including the steep first steps would flatten the rest of the curve.
    late = np.concatenate([values[len(values) // 10 :] for _, values in curves])
    late = late[np.isfinite(late)]
    if late.size:
        low, high = float(late.min()), float(late.max())
        room = 0.08 * (high - low) or 0.1
        axes.set_ylim(low - room, high + room)
    return finished(axes, title, f"{len(curves)} runs" if len(curves) > 1 else "")


def weight_posteriors(
    posterior: Any, key: RandomKey, pattern: str = "*", most: int = 20, samples: int = 400, axes: Axes = None
) -> Axes:
    r"""Plots the posterior medians of parameters with their central 50 % and 90 % intervals.

    Args:
        posterior: a posterior.
        key: for the samples.
        pattern: the path pattern of the leaves, for instance "network/layers/0/*".
        most: the largest number of coordinates; the first ones in the order of the leaves are drawn.
        samples: the number of samples.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if no leaf matches the pattern.

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
    rest = sum(leaf[0].size for leaf in chosen.values()) - len(names)
    return _listed(axes, names, "value", "Posterior of parameters", f"{rest:,} more" if rest else "50 % and 90 %")
