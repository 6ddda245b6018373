r"""Missing numbers as draws given the rest of their row, from one joint distribution of the training rows.

\[ z_j = \Phi^{-1}\big(F_j(x_j)\big), \qquad (z_1, \ldots, z_D, c, t) \sim \mathcal N(\mu, \Sigma), \qquad
   p(x_{\text{mis}} \mid x_{\text{obs}}) = \mathcal N\big(\mu_m + \Sigma_{mo} \Sigma_{oo}^{-1} (z_o - \mu_o),
   \Sigma_{mm} - \Sigma_{mo} \Sigma_{oo}^{-1} \Sigma_{om}\big) \]

with F the distribution function of a column, c the categories as zeros and ones, and t the target. Every conditional is
a linear regression of scores, and a draw is a value between the smallest and the largest of its column. Training rows
are completed given their targets, as the regression of the target on complete rows needs it; rows to predict are
completed without, several times, and their predictions are averaged:

\[ p(y \mid x_{\text{obs}}) = \int p(y \mid x_{\text{obs}}, x_{\text{mis}}) \, p(x_{\text{mis}} \mid x_{\text{obs}}) \,
   dx_{\text{mis}} \]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["DRAWS", "Joint", "learn_joint"]

DRAWS = 10  # completions of a row to predict
_CELLS = 64  # between the quantiles of a column
_DISCRETE = 32  # different values up to which a draw is one of them
_FEWEST = 40  # rows, with fewer of which a column keeps its median
_MOST = 20_000  # rows that are learned from
_MOST_LEVELS = 20  # of words that say something of the numbers
_ITERATIONS = 30
_SETTLED = 1e-3  # of a covariance of scores


@dataclass(frozen=True)
class Joint:
    """The joint distribution of a table's columns, as `learn_joint` finds it.

    Attributes:
        drawn: the columns of numbers whose missing values are drawn, by their positions; others have their median.
        numbers: the columns of numbers that it knows.
        words: the columns of words, with the number of their levels.
        quantiles: of each of these numbers, and of the target of a regression.
        classes: the target's number of classes; 0 for a number.
        mean: of the scores.
        covariance: of the scores.

    Examples:
        >>> import numpy as np
        >>> from lamu.data.imputation import learn_joint
        >>> x = np.random.default_rng(0).normal(size=(200, 1)) + np.array([[0.0, 1.0]])
        >>> x[:20, 0] = np.nan
        >>> joint = learn_joint(x, (0, 0), x[:, 1], classes=0)
        >>> joint.drawn, abs(float(joint.central(np.array([[np.nan, 1.5]]))[0, 0]) - 0.5) < 0.2
        ((0,), True)
    """

    drawn: tuple[int, ...]
    numbers: tuple[int, ...]
    words: tuple[tuple[int, int], ...]
    quantiles: tuple[tuple[float, ...], ...]
    classes: int
    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Joint:
        """Returns the distribution that `describe` put into words.

        Args:
            described: what `describe` returned.
        """
        covariance = tuple(tuple(map(float, row)) for row in described["covariance"])
        joint = cls(
            drawn=tuple(map(int, described["drawn"])),
            numbers=tuple(map(int, described["numbers"])),
            words=tuple((int(column), int(levels)) for column, levels in described["words"]),
            quantiles=tuple(tuple(map(float, each)) for each in described["quantiles"]),
            classes=int(described["classes"]),
            mean=tuple(map(float, described["mean"])),
            covariance=covariance,
        )
        size = len(joint.numbers) + sum(levels - 1 for _, levels in joint.words) + max(joint.classes - 1, 1)
        knots = len(joint.numbers) + (not joint.classes)
        if len(joint.mean) != size or {len(row) for row in (covariance, *covariance)} != {size}:
            raise ValueError(f"the joint distribution has {len(joint.mean)} means for {size} scores; give one each")
        if len(joint.quantiles) != knots or any(len(each) != _CELLS + 1 for each in joint.quantiles):
            raise ValueError(f"the joint distribution has {len(joint.quantiles)} columns of quantiles; give {knots}")
        return joint

    def describe(self) -> dict[str, Any]:
        """Returns the distribution as plain data that `json.dumps` accepts and `of` reads back."""
        return {
            "drawn": list(self.drawn),
            "numbers": list(self.numbers),
            "words": [list(each) for each in self.words],
            "quantiles": [list(each) for each in self.quantiles],
            "classes": self.classes,
            "mean": list(self.mean),
            "covariance": [list(row) for row in self.covariance],
        }

    def central(self, x: np.ndarray) -> np.ndarray:
        """Returns rows whose missing numbers are the medians given the rest of their row, `[rows, columns]`.

        Args:
            x: numbers, NaN where one is missing, and codes of words, which count from 1.
        """
        return self._completed(x, None, lambda rows, count: np.zeros((len(rows), count)))

    def draw(self, x: np.ndarray, which: int) -> np.ndarray:
        """Returns one of the completions of rows to predict, `[rows, columns]`.

        What is random is the same for every row, so that the completions of a row depend on nothing but the row.

        Args:
            x: as for `central`.
            which: its number, below `DRAWS`.
        """
        size = len(self.mean)
        random = np.random.default_rng(0)
        # Of each score the normal quantiles in an order of its own: few draws, with the right mean and variance.
        noise = np.stack([random.permutation(_normal_quantiles(DRAWS)) for _ in range(size)], axis=1)[which]
        return self._completed(x, None, lambda rows, count: np.broadcast_to(noise[:count], (len(rows), count)))

    def given_targets(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Returns a completion of training rows, given their targets as well, `[rows, columns]`.

        Args:
            x: as for `central`.
            y: the targets, `[rows]`: numbers, or the indices of classes.
        """
        noise = np.random.default_rng(1).normal(size=(len(x), len(self.numbers)))
        return self._completed(x, y, lambda rows, count: noise[rows, :count])

    def _completed(self, x: np.ndarray, y: np.ndarray | None, noise: Any) -> np.ndarray:
        x = x.copy()
        lacking = np.isnan(x[:, list(self.drawn)]).any(axis=1)
        rows = np.flatnonzero(lacking)
        if not len(rows):
            return x
        scores = self.scores(x[rows], None if y is None else y[rows])
        mean, covariance = np.asarray(self.mean), np.asarray(self.covariance)
        for of, missing in _patterns(scores):
            wanted = missing[missing < len(self.numbers)]  # the target, where it is missing, is left out
            if not len(wanted):
                continue
            weights, left = _regression(covariance, wanted, np.setdiff1d(np.arange(len(mean)), missing))
            seen = np.setdiff1d(np.arange(len(mean)), missing)
            found = mean[wanted] + (scores[np.ix_(of, seen)] - mean[seen]) @ weights
            found = found + noise(rows[of], len(wanted)) @ np.linalg.cholesky(left).T
            for place, index in enumerate(wanted):
                if self.numbers[index] in self.drawn:
                    x[rows[of], self.numbers[index]] = _value(found[:, place], np.asarray(self.quantiles[index]))
        return x

    def scores(self, x: np.ndarray, y: np.ndarray | None) -> np.ndarray:
        """Returns the scores of rows, NaN where a number, or every target, is missing, `[rows, scores]`.

        Args:
            x: as for `central`.
            y: the targets, or None.
        """
        parts = [_score(x[:, c], np.asarray(q)) for c, q in zip(self.numbers, self.quantiles, strict=False)]
        parts += [(x[:, c] == level).astype(float) for c, levels in self.words for level in range(2, levels + 1)]
        if y is None:
            parts += [np.full(len(x), np.nan)] * max(self.classes - 1, 1)
        elif self.classes:
            parts += [(y == label).astype(float) for label in range(1, self.classes)]
        else:
            parts.append(_score(np.asarray(y, float), np.asarray(self.quantiles[-1])))
        return np.stack(parts, axis=1)


def learn_joint(x: np.ndarray, levels: tuple[int, ...], y: np.ndarray, classes: int) -> Joint | None:
    r"""Returns the joint distribution of training rows; None where no missing number is predicted better by it.

    Half of the rows (of 20,000 at most) judge, for each column with missing values, whether the other half predicts the
    values that are there from the rest of their row, without the target, at a higher mean log density than the column's
    own distribution does, by a paired standard error or more. Mean and covariance are the mode under
    \(\Sigma \sim \mathcal W^{-1}\) with as many prior rows as there are scores, by expectation maximisation.

    Args:
        x: numbers, NaN where one is missing, and codes of words, `[rows, columns]`.
        levels: how many levels a column of words has; 0 for numbers.
        y: the targets, `[rows]`: numbers, or the indices of classes.
        classes: how many classes there are; 0 for a number.

    Source: Dempster, Laird & Rubin (1977), for the iteration; Rubin (1987), for draws given the target; Zhao & Udell
    (2020), for normal scores.

    Examples:
        >>> import numpy as np
        >>> from lamu.data.imputation import learn_joint
        >>> x = np.random.default_rng(0).normal(size=(200, 2))  # columns that know nothing of each other
        >>> x[:50, 0] = np.nan
        >>> learn_joint(x, (0, 0), x[:, 1], classes=0) is None
        True
    """
    lacks = np.isnan(x)
    counts = (~lacks).sum(axis=0)
    numbers = tuple(c for c, known in enumerate(levels) if not known and counts[c] >= _FEWEST and _varies(x[:, c]))
    asked = [c for c in numbers if lacks[:, c].any()]
    if not asked or len(x) < 2 * _FEWEST:
        return None
    order = np.random.default_rng(0).permutation(len(x))[:_MOST]
    x, y = x[order], np.asarray(y)[order]
    words = tuple((c, known) for c, known in enumerate(levels) if 2 <= known <= _MOST_LEVELS)
    quantiles = [_quantiles(x[:, c]) for c in numbers] + ([] if classes else [_quantiles(np.asarray(y, float))])
    first = Joint((), numbers, words, tuple(quantiles), classes, (), ())
    scores, half = first.scores(x, y), len(x) // 2
    mean, covariance = _mode(scores[:half])
    judged = scores[half:].copy()
    judged[:, scores.shape[1] - max(classes - 1, 1) :] = np.nan
    drawn = tuple(c for c in asked if _predicted(judged, numbers.index(c), mean, covariance))
    if not drawn:
        return None
    mean, covariance = _mode(scores)
    return Joint(
        drawn, numbers, words, tuple(quantiles), classes,
        tuple(mean.tolist()), tuple(tuple(row) for row in covariance.tolist()),
    )  # fmt: skip


def _predicted(scores: np.ndarray, column: int, mean: np.ndarray, covariance: np.ndarray) -> bool:
    """Whether the others tell more of a column than its own distribution does, in rows that were not learned from."""
    own = scores[:, column].copy()
    there = np.flatnonzero(~np.isnan(own))
    if len(there) < _FEWEST // 2:
        return False
    others = scores[there].copy()
    others[:, column] = np.nan
    gain = np.zeros(len(there))
    for rows, missing in _patterns(others):
        seen = np.setdiff1d(np.arange(len(mean)), missing)
        weights, left = _regression(covariance, np.array([column]), seen)
        found = mean[column] + (others[np.ix_(rows, seen)] - mean[seen]) @ weights[:, 0]
        gain[rows] = _log_normal(own[there[rows]] - found, left[0, 0])
    gain -= _log_normal(own[there] - mean[column], covariance[column, column])
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))


def _log_normal(error: np.ndarray, variance: float) -> np.ndarray:
    return -0.5 * (error**2 / variance + np.log(variance))


def _mode(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of rows with missing scores."""
    rows, size = scores.shape
    mean = np.nan_to_num(np.nanmean(scores, axis=0))
    prior = np.maximum(np.nan_to_num(np.nanvar(scores, axis=0)), 1e-3)
    covariance, patterns = np.diag(prior), list(_patterns(scores))
    for _ in range(_ITERATIONS):
        filled, spread = scores.copy(), size * np.diag(prior)
        for of, missing in patterns:
            if not len(missing):
                continue
            seen = np.setdiff1d(np.arange(size), missing)
            weights, left = _regression(covariance, missing, seen)
            filled[np.ix_(of, missing)] = mean[missing] + (scores[np.ix_(of, seen)] - mean[seen]) @ weights
            spread[np.ix_(missing, missing)] += len(of) * left
        mean, before = filled.mean(axis=0), covariance
        centred = filled - mean
        covariance = (centred.T @ centred + spread) / (rows + size)
        if np.abs(covariance - before).max() < _SETTLED:
            break
    return mean, covariance


def _regression(covariance: np.ndarray, wanted: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights of the scores that are seen, and the covariance that is left of those that are wanted."""
    own, across = covariance[np.ix_(wanted, wanted)], covariance[np.ix_(seen, wanted)]
    if not len(seen):
        return across, own
    weights = np.linalg.solve(covariance[np.ix_(seen, seen)], across)
    return weights, own - across.T @ weights


def _patterns(scores: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the rows that lack the same scores, and these."""
    lacks, which = np.unique(np.isnan(scores), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(lacks)))
    for pattern, end, start in zip(lacks, ends, [0, *ends[:-1]], strict=True):
        yield order[start:end], np.flatnonzero(pattern)


def _varies(column: np.ndarray) -> bool:
    return bool(np.nanmin(column) < np.nanmax(column))


def _quantiles(column: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(column[~np.isnan(column)], np.linspace(0, 1, _CELLS + 1)).tolist())


def _score(values: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """Normal scores: of a value that many rows share, the score of the middle of its rank."""
    from scipy.special import ndtri

    low, high = np.searchsorted(quantiles, values, "left"), np.searchsorted(quantiles, values, "right")
    at = np.clip(low, 1, _CELLS)
    width = quantiles[at] - quantiles[at - 1]
    between = at - 1 + np.clip((values - quantiles[at - 1]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    rank = np.where(high > low, (low + high - 1) / 2, between) / _CELLS
    return np.where(np.isnan(values), np.nan, ndtri(np.clip(rank, 0.25 / _CELLS, 1 - 0.25 / _CELLS)))


def _value(scores: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """The values of scores; of a column of few values, one of them."""
    from scipy.special import ndtr

    rank = ndtr(scores) * _CELLS
    if len(np.unique(quantiles)) <= _DISCRETE:
        return quantiles[np.rint(rank).astype(int)]
    return np.interp(rank, np.arange(_CELLS + 1), quantiles)


def _normal_quantiles(count: int) -> np.ndarray:
    """Normal quantiles at the middles of equal parts, of variance one."""
    from scipy.special import ndtri

    found = ndtri((np.arange(count) + 0.5) / count)
    return found / found.std()
