"""The common style of plots. Matplotlib's global settings are not changed."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "ACCENT",
    "GREY",
    "INK",
    "IN_RANGE",
    "LEGEND",
    "MARGIN",
    "PALE",
    "Axes",
    "canvas",
    "finished",
    "head",
    "likely_range",
    "literal",
    "panels",
    "save_adaptive",
    "shortened",
    "tidy",
]

# Types of matplotlib, which is imported only in the functions.
Axes: TypeAlias = Any
Figure: TypeAlias = Any

INK, GREY, PALE, ACCENT = "#1f2933", "#8a94a0", "#e1e6eb", "#1b6ca8"
_DARK = {
    INK: "#e4e8ec",
    GREY: "#9eabb8",
    PALE: "#303a45",
    ACCENT: "#6fb7ee",
    "#ffffff": "#14191f",
    "#000000": "#e4e8ec",
}
MARGIN = 0.04
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 7.5, "labelcolor": INK}
IN_RANGE = "90 % range if calibrated"


def canvas(width: float, height: float) -> Figure:
    """Returns an empty figure of a size in inches, independent of pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawn

    figure = Drawn(figsize=(width, height), dpi=200, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def panels(picture: str, axes: Axes, count: int) -> Axes:
    """Returns the axes given for a picture of several panels, as a flat array."""
    given = np.ravel(np.asarray(axes, dtype=object))
    if len(given) != count:
        raise ValueError(f"{picture} draws on {count} axes, and {len(given)} are given; give {count} or none")
    return given


def tidy(axes: Axes) -> None:
    """Removes the upper and right spines, and sets thin lines with small outward ticks."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
        axes.spines[side].set_linewidth(0.8)
    axes.tick_params(colors=INK, labelsize=8, color=GREY, width=0.8, length=3)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=INK, fontsize=9)


def head(axes: Axes, name: str, aside: str = "") -> None:
    """Writes a title above the left end of a panel, and a number above its right end."""
    axes.set_title(name, loc="left", fontsize=10, color=INK, fontweight="bold")
    axes.set_title(aside, loc="right", fontsize=8, color=INK)


def finished(axes: Axes, name: str, aside: str = "") -> Axes:
    """Returns tidied axes with their title."""
    head(axes, name, aside)
    tidy(axes)
    return axes


def likely_range(probability: object, count: object, level: float = 0.9) -> tuple[Any, Any]:
    """Returns the central interval of an event's relative frequency in `count` rows, of probability `level`."""
    # Quantiles of the binomial distribution, divided by the count; `scipy.stats` takes longer to import than JAX.
    from scipy import special

    probability, count = np.clip(np.asarray(probability, float), 0.0, 1.0), np.asarray(count, int)

    def quantile(q: float) -> np.ndarray:
        above = np.ceil(special.bdtrik(q, count, probability))
        below = np.maximum(above - 1.0, 0.0)
        found = np.where(special.bdtr(below, count, probability) >= q, below, above)
        return np.where((probability > 0.0) & (probability < 1.0), found, probability * count)

    return quantile((1 - level) / 2) / count, quantile((1 + level) / 2) / count


def save_adaptive(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure as SVG that follows the browser's light or dark mode."""
    # This package's line and text colours are replaced in dark mode; the colours of classes and of images are not.
    path = Path(path)
    if path.suffix != ".svg":
        raise ValueError(f"path={str(path)!r} is not an .svg file, the only kind that adapts; name it {path.stem}.svg")
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    svg = file.getvalue()
    names = {colour: f"--lamu-{colour[1:]}" for colour in _DARK}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var({name})")
    light, dark = ("; ".join(f"{names[c]}: {to(c)}" for c in _DARK) for to in (str, _DARK.__getitem__))
    # Matplotlib omits a black fill.
    style = (
        f"<style>svg {{ {light}; fill: var(--lamu-000000) }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    )
    start = svg.index(">", svg.index("<svg")) + 1
    path.write_text(f"{svg[:start]}{style}{svg[start:]}", encoding="utf-8")


def literal(text: object) -> str:
    """Returns text with escaped dollars, which matplotlib would read as formulas."""
    return str(text).replace("$", r"\$")


def percent(share: float) -> str:
    """Returns a share as a percentage, with one decimal where it is not an integer."""
    return f"{100 * share:.1f}".removesuffix(".0")


def shortened(text: object, most: int) -> str:
    """Returns text truncated to a number of characters, with an ellipsis."""
    text = str(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
