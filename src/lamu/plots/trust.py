"""Plots of predictions: reliability, coverage, selective prediction, out-of-distribution detection; and of chains."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np

from lamu import scores
from lamu.mcmc import inference_data
from lamu.plots.style import (
    ACCENT,
    GREY,
    IN_RANGE,
    INK,
    LEGEND,
    MARGIN,
    PALE,
    Axes,
    canvas,
    finished,
    head,
    likely_range,
    panels,
    percent,
    tidy,
)
from lamu.scores.calibration import FEWEST_ROWS
from lamu.scores.proper_scores import target
from lamu.typing import Prediction, Targets

__all__ = ["coverage", "energy", "reliability", "risk_coverage", "trace", "uncertainty_shift"]


def reliability(pred: Prediction, y: Targets, bins: int = 10, event: str | None = None, axes: Axes = None) -> Axes:
    r"""Plots a reliability diagram with the number of rows in each bin.

    Each point is a bin: relative frequency against mean probability. The pale bar is the 90 % interval of the frequency
    if the probabilities were calibrated (Bröcker & Smith 2007), so that only points outside of their bar are evidence
    of miscalibration.

    Args:
        pred: a prediction of classes (evaluated for the most probable label), or of a binary target.
        y: labels, `[N]`.
        bins: the number of bins of equal width.
        event: the event of a binary target, for the labels; "y = 1" by default.
        axes: two of matplotlib's axes, for the diagram and the numbers of rows; those of a new figure where None.

    Returns:
        The two axes in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the prediction is of a regression, the shapes differ, or other than two axes are given.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu import plots
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.1, 0.1, 0.8, 0.8]))
        >>> len(plots.reliability(pred, np.array([0, 0, 1, 0])))
        2
    """
    diagram = scores.reliability(pred, y, bins)
    binary = np.ndim(pred.mean) == 1
    what = event or "y = 1"
    start = 0.0 if binary else _start(diagram)
    if axes is None:
        axes = canvas(4.2, 4.9).subplots(2, 1, sharex=True, height_ratios=(4, 1))
    upper, lower = axes = panels("reliability", axes, 2)
    upper.plot((start, 1), (start, 1), color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    low, high = likely_range(diagram.said, diagram.count)
    width = 0.34 * (diagram.edges[1] - diagram.edges[0])
    upper.bar(diagram.said, high - low, width, low, color=PALE, linewidth=0, zorder=0, label=IN_RANGE)
    outside = (diagram.happened < low) | (diagram.happened > high)
    upper.plot(diagram.said, diagram.happened, color=ACCENT, linewidth=1.0, alpha=0.55, zorder=2)
    for chosen, face, name in ((~outside, ACCENT, "observed"), (outside, "white", "observed, out of range")):
        if chosen.any():
            upper.scatter(
                diagram.said[chosen], diagram.happened[chosen], 26, face, edgecolors=ACCENT, linewidths=1.3, zorder=3,
                label=name,
            )  # fmt: skip
    floor = min(start, float(np.min(diagram.happened)), float(np.min(low)))
    upper.set(xlim=(start - MARGIN, 1 + MARGIN), ylim=(floor - MARGIN, 1 + MARGIN))
    lower.set_xlim(upper.get_xlim())
    upper.set_ylabel(f"frequency of {what}" if binary else "fraction that is right")
    right = scores.ece_if_calibrated(pred).value
    few = len(y) < FEWEST_ROWS
    ece = "too few rows for an ECE" if few else f"ECE {scores.with_error(scores.ece, pred, y)}; {right:.3f} if right"
    head(upper, "Reliability", ece)
    upper.legend(loc="best", **LEGEND, handletextpad=0.6, borderaxespad=0.2)
    _draw_counts(lower, diagram)
    lower.set_xlabel(f"predicted probability of {what}" if binary else "predicted probability of the chosen class")
    for each in axes:
        tidy(each)
    return axes


def _start(diagram: scores.Reliability) -> float:
    """Returns the lower end of the axis: the lowest bin with a row, and at most one half."""
    return float(min(0.5, diagram.edges[np.searchsorted(diagram.edges, diagram.said.min(), side="right") - 1]))


def _draw_counts(axes: Axes, diagram: scores.Reliability) -> None:
    step = diagram.edges[1] - diagram.edges[0]
    middles = (np.floor(np.minimum(diagram.said, 1 - 1e-12) / step) + 0.5) * step
    axes.bar(middles, diagram.count, 0.9 * step, color=ACCENT, alpha=0.85, linewidth=0)
    axes.set_ylabel("rows")
    largest = int(diagram.count.max())
    axes.set(ylim=(0, 1.32 * largest), yticks=())
    for middle, count in zip(middles, diagram.count, strict=True):
        axes.text(middle, count + 0.05 * largest, f"{count:,}", ha="center", va="bottom", fontsize=7, color=INK)


LEVELS = np.linspace(0.02, 0.98, 49)
BINS = 10


def coverage(pred: Prediction, y: Targets, axes: Axes = None) -> Axes:
    r"""Plots the coverage of central intervals against their level, and the histogram of the targets' ranks.

    The rank of a target is \(F(y)\), with F its predictive distribution function (the probability integral transform,
    PIT; Dawid 1984). The central interval of level \(\ell\) contains the targets with \(|2 F(y) - 1| \le \ell\). For
    calibrated predictions the ranks are uniform: the curve follows the diagonal and the histogram is flat, within the
    pale 90 % bands. A curve below the diagonal and a histogram with high ends indicate overconfidence.

    Args:
        pred: a prediction of a regression, with `cdf`.
        y: targets, `[N]` or `[N, K]`; several outputs are pooled.
        axes: two of matplotlib's axes, for the curve and the histogram; those of a new figure where None.

    Returns:
        The two axes in an array; `axes[0].figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the prediction is of classes, the shapes differ, or other than two axes are given.

    Examples:
        >>> import jax.numpy as jnp
        >>> from jax.scipy.stats import norm
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu import plots
        >>> pred = SimpleNamespace(support=Real(), mean=jnp.zeros(3), cdf=norm.cdf)
        >>> len(plots.coverage(pred, jnp.array([-1.0, 0.2, 0.9])))
        2
    """
    y = target("coverage", pred, y, has_classes=False)
    rank = np.asarray(pred.cdf(jnp.asarray(y, jnp.asarray(pred.mean).dtype)), float).ravel()
    rows = len(y)
    axes = canvas(6.8, 3.5).subplots(1, 2, width_ratios=(1.15, 1)) if axes is None else panels("coverage", axes, 2)
    left, right = axes
    # The value of the score of the same name, from the closed intervals: it equals that of the ranks up to rounding,
    # and except for counts, whose intervals include both ends.
    share = scores.coverage(pred, y, 0.9) if hasattr(pred, "interval") else float(np.mean(np.abs(2 * rank - 1) <= 0.9))
    _draw_curve(left, rank, rows, share)
    _draw_ranks(right, rank, rows)
    for each in axes:
        tidy(each)
    return axes


def _draw_curve(axes: Axes, rank: np.ndarray, rows: int, share: float) -> None:
    coverage_at_levels = np.mean(np.abs(2 * rank[None] - 1) <= LEVELS[:, None], axis=1)
    low, high = likely_range(LEVELS, rows)
    axes.fill_between(LEVELS, low, high, color=PALE, linewidth=0, label=IN_RANGE)
    axes.plot((0, 1), (0, 1), color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(LEVELS, coverage_at_levels, color=ACCENT, linewidth=1.6, label="observed")
    axes.plot((0.9, 0.9), (0, share), color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.plot(0.9, share, "o", color=ACCENT, markersize=4.5)
    says = f"{percent(share)} % of targets\nin 90 % intervals"
    axes.text(0.875, 0.03, says, ha="right", va="bottom", fontsize=8, color=INK, linespacing=1.35)
    axes.set(xlim=(0, 1), ylim=(0, 1.0), aspect="equal", xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))
    axes.set(xlabel="level of the central interval", ylabel="fraction of targets inside")
    head(axes, "Coverage")
    axes.legend(loc="upper left", **LEGEND, handletextpad=0.6)


def _draw_ranks(axes: Axes, rank: np.ndarray, rows: int) -> None:
    counts, edges = np.histogram(np.clip(rank, 0, 1), BINS, (0, 1))
    share = counts / len(rank)
    low, high = likely_range(1 / BINS, rows)
    axes.axhspan(float(low) * BINS, float(high) * BINS, color=PALE, linewidth=0, zorder=0)
    axes.bar(edges[:-1], share * BINS, 1 / BINS, align="edge", color=ACCENT, alpha=0.65, edgecolor="white", linewidth=1)
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, max(1.6, 1.1 * BINS * share.max(), 1.1 * BINS * float(high))))
    axes.locator_params(axis="y", nbins=5)
    axes.set(xlabel="rank of the target in its prediction", ylabel="density")
    head(axes, "Ranks (PIT)", f"{rows:,} rows")


_POINTS = 200


def risk_coverage(pred: Prediction, y: Targets, axes: Axes = None) -> Axes:
    r"""Plots the mean error of the retained rows against their share, with the most uncertain rows rejected first.

    An increasing curve shows that uncertain rows have larger errors; a flat one shows that the uncertainty is not
    informative. The dashed line is the error of all rows.

    Args:
        pred: a prediction; for a regression with one output.
        y: targets, `[N]`.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: if the shapes differ.

    Source: Geifman & El-Yaniv (2017).

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu import plots
        >>> pred = SimpleNamespace(support=Real(), mean=np.zeros(3), total=np.array([1.0, 2.0, 3.0]))
        >>> plots.risk_coverage(pred, np.array([0.1, 1.0, 2.0])).get_title(loc="left")
        'Risk against coverage'
    """
    curve = scores.risk_coverage(pred, y)
    risk = curve.risk if pred.support.has_classes else np.sqrt(curve.risk)
    axes = canvas(4.2, 3.4).subplots() if axes is None else axes
    # A file with a point for each of many rows would be large, and the means of the first few rows are noise.
    chosen = np.unique(np.linspace(0, len(risk) - 1, _POINTS).astype(int))
    axes.axhline(risk[-1], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(curve.share[chosen], risk[chosen], color=ACCENT, linewidth=1.6)
    axes.set(xlim=(0, 1), xlabel="share of rows kept, the most certain first")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("fraction wrong" if pred.support.has_classes else "root mean square error")
    index = int(0.8 * (len(risk) - 1))
    axes.plot(curve.share[index], risk[index], "o", color=ACCENT, markersize=4.5)
    axes.annotate(
        f"{risk[index]:.3g} at 80 %", (curve.share[index], risk[index]), xytext=(-6, 7), textcoords="offset points",
        ha="right", fontsize=8, color=INK,
    )  # fmt: skip
    return finished(axes, "Risk against coverage", f"{len(risk):,} rows")


_BINS = 30


def uncertainty_shift(known: Prediction, unknown: Prediction, axes: Axes = None) -> Axes:
    r"""Plots histograms of the uncertainty in and out of distribution, with their AUROC.

    Args:
        known: uncertainties of rows in distribution, `[N]`, for instance `pred.epistemic`.
        unknown: uncertainties of rows out of distribution, `[M]`.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        ValueError: as `lamu.scores.auroc`.

    Examples:
        >>> import numpy as np
        >>> from lamu import plots
        >>> plots.uncertainty_shift(np.array([0.1, 0.2]), np.array([0.5, 0.9])).get_title(loc="right")
        'AUROC 1.000'
    """
    separated = scores.auroc(known, unknown)
    known, unknown = np.asarray(known, float), np.asarray(unknown, float)
    axes = canvas(4.6, 3.2).subplots() if axes is None else axes
    edges = np.histogram_bin_edges(np.concatenate([known, unknown]), _BINS)
    for values, colour, name in ((known, GREY, "in distribution"), (unknown, ACCENT, "out of distribution")):
        axes.hist(values, edges, density=True, color=colour, alpha=0.55, label=f"{name} ({len(values):,} rows)")
    axes.set(xlabel="uncertainty", ylabel="density")
    axes.legend(loc="best", **LEGEND)
    return finished(axes, "Uncertainty", f"AUROC {separated:.3f}")


def trace(posterior: Any, name: str, axes: Axes = None) -> Axes:
    """Plots the values of a parameter along the chains, by ArviZ's `plot_trace`.

    Args:
        posterior: a posterior of draws.
        name: the parameter, as `lamu.mcmc.inference_data` names it; all its coordinates are drawn.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        TypeError: for a belief that does not consist of draws.
        ValueError: for an unknown name.
        ModuleNotFoundError: without the extra: `pip install "lamu[mcmc]"`.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta["a"] ** 2), {"a": jnp.zeros(2)})
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(warmup=0, draws=50, step_size=0.8))
        >>> len(lamu.plots.trace(fit.posterior, "a").lines)
        8
    """
    data = inference_data(posterior)
    if name not in data.posterior:
        raise ValueError(f"there is no parameter {name!r}; choose one of {', '.join(map(str, data.posterior))}")
    import arviz as az

    axes = canvas(6.4, 2.8).subplots() if axes is None else axes
    aside = canvas(1.0, 1.0).subplots()  # for the densities that ArviZ draws next to the chains
    with _quietly():
        az.plot_trace(data, var_names=[name], axes=np.array([[aside, axes]]), compact=True, legend=False)
    axes.set(xlabel="draw", ylabel="", title="")
    return finished(axes, name, f"{data.posterior.sizes['chain']} chains")


def energy(posterior: Any, axes: Axes = None) -> Axes:
    """Plots the distributions of the energy and of its changes, by ArviZ's `plot_energy`.

    If the second is much narrower, the chains change their energy too slowly and explore the tails slowly (Betancourt
    2016).

    Args:
        posterior: a posterior of draws by Hamiltonian dynamics, such as `lamu.mcmc.nuts()`.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        TypeError: for a belief that does not consist of draws.
        ValueError: for a sampler without an energy.
        ModuleNotFoundError: without the extra: `pip install "lamu[mcmc]"`.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta["a"] ** 2), {"a": jnp.zeros(2)})
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(warmup=0, draws=50, step_size=0.8))
        >>> lamu.plots.energy(fit.posterior).get_title(loc="left")
        'Energy'
    """
    data = inference_data(posterior)
    if "sample_stats" not in data.groups() or "energy" not in data.sample_stats:
        raise ValueError("the sampler follows no energy; draw with lamu.mcmc.hmc() or lamu.mcmc.nuts()")
    import arviz as az

    axes = canvas(4.6, 3.2).subplots() if axes is None else axes
    with _quietly():
        az.plot_energy(data, ax=axes, textsize=8, fill_color=(GREY, ACCENT), bfmi=False)
    axes.legend(loc="best", **LEGEND)
    return finished(axes, "Energy", f"{data.posterior.sizes['chain']} chains")


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppresses ArviZ's warnings about matplotlib."""
    from matplotlib import MatplotlibDeprecationWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MatplotlibDeprecationWarning)
        yield
