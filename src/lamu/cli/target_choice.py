"""The likelihood of a table's target where none is named: by the values that it takes, then by rows held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.data import Encoding
from lamu.likelihood_choice import compare_likelihoods

__all__ = ["Chosen", "candidates", "choose", "told_beside"]

_MOST_ROWS = 2000
_FEWEST_ROWS = 30
_SKEWED, _HEAVY = 0.5, 2.0  # of residuals: what a Gaussian has not
_TREES, _HALF = 60, 0.5  # trees enough that every row is unseen by some; of the variance that least squares leaves
_LARGE = 5  # counts from here on that are not skewed are nearly Gaussian
_ORDERED = 4  # classes from which whole-numbered labels may have an order that matters
_KNOWN = 10  # rows from which the mean of a class says where it lies


@dataclass(frozen=True)
class Chosen:
    """A likelihood by name, and why."""

    # One of `lamu.likelihoods.table.LIKELIHOODS`; None for the task's own, where nothing else was tried.
    name: str | None
    why: str  # one sentence, empty where nothing else was tried
    tried: dict[str, float]  # the mean held-out log density of each candidate, in nats a row


def candidates(encoding: Encoding, x: Any, y: Any) -> tuple[str, tuple[str, ...]]:
    """Returns what the target is, and the few likelihoods that suit it, the task's own first."""
    # Gates that cost little come first: a target whose residuals, by least squares, are as symmetric and as light in
    # their tails as normal ones keeps its Gaussian; so do numbers of which a forest leaves less than half of the
    # variance that least squares leaves, since their skew and their tails are mostly what a line misses; and
    # whole-numbered classes whose fitted means, by least squares of the numbers, do not rise with them have no order.
    x, y = np.asarray(x, float), np.asarray(y, float)
    if encoding.task == "classes":
        labels = encoding.labels
        whole = all(isinstance(label, int) for label in labels) and len(labels) >= _ORDERED
        ordered = whole and _rising(x, y)
        return ("whole-numbered classes", ("categorical", "ordinal")) if ordered else ("classes", ("categorical",))
    if encoding.task == "binary" or len(y) < _FEWEST_ROWS:
        return "two classes", ()
    skew, excess = _shape(x, y)
    if np.all(np.isfinite(y) & (y >= 0) & (y == np.floor(y))):
        few = ("gaussian", "poisson", "negative_binomial")
        if y.min() >= _LARGE and skew < _SKEWED:
            return "large counts", ("gaussian",)
        return "counts", (*few, "zero_inflated_poisson") if (y == 0).any() else few
    kind, few = "numbers", ("gaussian",)
    if y.min() > 0 and y.max() < 1:
        kind, few = "shares", ("gaussian", "beta")
    elif y.min() > 0 and skew > _SKEWED:
        kind, few = "positive numbers", ("gaussian", "gamma", "weibull")
    elif excess > _HEAVY:
        kind, few = "numbers with heavy tails", ("gaussian", "student_t")
    return ("numbers", ("gaussian",)) if len(few) > 1 and _bent(x, y) else (kind, few)


def choose(encoding: Encoding, x: Any, y: Any, seed: int) -> Chosen:
    """Returns the likelihood whose generalised linear model gives rows held out the highest log density."""
    # The task's own gives way only to one that is better by a paired standard error or more. Training rows alone are
    # asked, 2,000 at most.
    kind, names = candidates(encoding, x, y)
    if len(names) < 2:
        return Chosen(None, "", {})
    order = np.random.default_rng(seed).permutation(len(y))[:_MOST_ROWS]
    inputs = _columns(np.asarray(x, float)[order], encoding)
    found = compare_likelihoods(inputs, np.asarray(y)[order], names, seed=seed)
    means = {name: float(np.mean(values)) for name, values in found.items()}
    own = names[0]
    # Of two that are as good the simpler one, which comes first.
    best = max(means, key=lambda name: means[name] if np.isfinite(means[name]) else -np.inf)
    gain = found[best] - found[own]
    name = best if np.mean(gain) >= np.std(gain, ddof=1) / np.sqrt(len(gain)) else own
    others = ", ".join(f"{each} {-mean:.3f}" for each, mean in means.items() if each != name)
    why = (
        f"likelihood {name}: {encoding.target!r} is of {kind}, and rows held out from linear models have nll "
        f"{-means[name]:.3f} ({others}); --likelihood overrides"
    )
    return Chosen(name, why, means)


def told_beside(encoding: Encoding, y: Any) -> Chosen:
    """Returns the likelihood of a target of which a column tells more: successes in trials, or censored values."""
    ((name, column),) = encoding.beside
    if name == "trials":
        return Chosen("binomial", f"likelihood binomial: {encoding.target!r} counts successes in {column!r} trials", {})
    positive = bool(np.min(np.asarray(y["value"])) > 0)
    chosen, kind = ("weibull", "positive") if positive else ("gaussian", "not positive everywhere")
    why = f"likelihood {chosen}, censored by {column!r}: {encoding.target!r} is {kind}; --likelihood overrides"
    return Chosen(chosen, why, {})


def _rising(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the mean that least squares fits to a class rises with its number."""
    fitted = _fitted(x, y)
    means = [fitted[y == label].mean() for label in np.unique(y) if (y == label).sum() >= _KNOWN]
    return bool(np.all(np.diff(means) > 0))


def _fitted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones(len(y)), x])
    return design @ np.linalg.lstsq(design, y, rcond=None)[0]


def _shape(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Skewness and excess kurtosis of the residuals of least squares."""
    residual = y - _fitted(x, y)
    deviation = residual.std()
    if deviation <= 1e-9 * (1.0 + np.abs(y).max()):
        return 0.0, 0.0
    z = residual / deviation
    return float(np.mean(z**3)), float(np.mean(z**4) - 3.0)


def _bent(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether a forest explains, of rows that its trees have not seen, far more than a line."""
    from sklearn.ensemble import RandomForestRegressor

    rows = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
    x, y = x[rows], y[rows]
    forest = RandomForestRegressor(_TREES, min_samples_leaf=3, oob_score=True, random_state=0).fit(x, y)
    return bool(np.var(y - forest.oob_prediction_) < _HALF * np.var(y - _fitted(x, y)))


def _columns(x: np.ndarray, encoding: Encoding) -> np.ndarray:
    """The inputs of a linear model: numbers, and for words a column for each level but the first."""
    parts = []
    for column, levels in zip(x.T, encoding.cardinalities, strict=True):
        parts.append(column[:, None] if not levels else (column[:, None] == np.arange(2, levels + 1)).astype(x.dtype))
    return np.concatenate(parts, axis=1)
