"""Imputation by draws given the rest of a row, from one joint distribution of the training rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, is_dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from lamu.typing import Document, Targets

__all__ = ["DRAWS", "MOST_LEVELS", "Completions", "JointOfColumns", "as_lists", "learn_joint", "mixed", "uniforms"]


@dataclass(frozen=True)
class Completions:
    """Inputs of rows to predict: one for a complete row, and one for each draw of missing values."""

    x: np.ndarray  # inputs `[completions, columns]`
    row: np.ndarray  # the row of each, in ascending order, `[completions]`
    # The shift of a completion's prediction, in standard deviations between the completions of its row: not
    # zero if a word is new, whose effect may exceed those of the known words. `[completions]`.
    spread: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Completions:
        """Returns complete rows."""
        return cls(x, np.arange(len(x)), np.zeros(len(x)))

    @property
    def complete(self) -> bool:
        """Whether each row has one completion."""
        return len(self.row) == self.rows

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.row[-1]) + 1 if len(self.row) else 0


# \[ z_j = \Phi^{-1}\big(F_j(x_j)\big), \qquad (z_1, \ldots, z_D, c, t) \sim \mathcal N(\mu, \Sigma), \qquad
#    p(x_{\text{mis}} \mid x_{\text{obs}}) = \mathcal N\big(\mu_m + \Sigma_{mo} \Sigma_{oo}^{-1} (z_o - \mu_o),
#    \Sigma_{mm} - \Sigma_{mo} \Sigma_{oo}^{-1} \Sigma_{om}\big) \]
#
# with F the distribution function of a column of numbers, c the categories as zeros and ones, and t the target. Numbers
# given the rest are a linear regression of scores; a category k has a probability in proportion to its frequency times
# \(p(c = e_k \mid z_o) / p(c = e_k)\), which is linear discriminant analysis. Training rows are completed given their
# targets, as the regression of the target on complete rows requires; rows to predict are completed without, many
# times, and the prediction is the mixture
#
# \[ p(y \mid x_{\text{obs}}) = \int p(y \mid x_{\text{obs}}, x_{\text{mis}}) \, p(x_{\text{mis}} \mid x_{\text{obs}})
#    \, dx_{\text{mis}} \]
#
# A category that is not in the training rows is new: it is drawn from the known categories with equal probabilities,
# whatever their frequencies, since each known category is one observation of a category's effect.


DRAWS = 128  # completions of a row to predict: the 5 % and 95 % quantiles of so many hold 89 %
_BITS = 30
_CELLS = 64  # between the quantiles of a column
_DISCRETE = 32  # distinct values up to which a draw is one of them
_MOST = 20_000  # rows that are used
_MOST_WORK = 10_000_000  # rows times squared scores of an iteration, if every row lacks other values
MOST_LEVELS = 20  # of a column of words whose relation to other columns is learned
_MOST_SCORES = 100  # of all columns together whose relations are learned
_LEAST_PRIOR = 0.1  # rows, so that columns that determine each other have an invertible covariance
_DOUBT = 10.0  # rows
_LEAST_SHARE = 0.1  # of a level, in units of its share of the rows that have one
_ITERATIONS = 30
_SETTLED = 1e-3  # of a covariance of scores
_AT_ONCE = 10_000_000  # scores of all completions that are in memory


@dataclass(frozen=True)
class JointOfColumns:
    """Joint distribution of a table's columns, learned by `learn_joint`."""

    numbers: tuple[int, ...]  # the columns of numbers, by their positions
    words: tuple[tuple[int, int], ...]  # the columns of words, with the number of their levels
    quantiles: tuple[tuple[float, ...], ...] = ()  # of each column of numbers, and of the target of a regression
    frequencies: tuple[tuple[float, ...], ...] = ()  # of the levels of each column of words
    # The columns whose relations to others are learned; others are drawn from their own distributions.
    related: tuple[int, ...] = ()
    classes: int = 0  # the target's number of classes; 0 for a number
    rows: float = 1.0  # number of training rows
    mean: tuple[float, ...] = ()  # of the scores
    covariance: tuple[tuple[float, ...], ...] = ()  # of the scores
    lacking: tuple[int, ...] = ()  # the columns whose absence is a score as well, since it may tell the value

    @classmethod
    def of(cls, described: Mapping[str, object]) -> JointOfColumns:
        """Returns the distribution from the data of `describe`."""
        known = {"lacking": (), **described}  # which earlier versions did not have
        joint = cls(**{name: _as_tuples(kind, known[name]) for name, kind in _KINDS.items()})
        size = sum(map(len, joint._places.values())) + len(joint.lacking) + max(joint.classes - 1, 1)
        knots = len(joint.numbers) + (not joint.classes)
        if len(joint.mean) != size or {len(row) for row in (joint.covariance, *joint.covariance)} != {size}:
            raise ValueError(f"the joint distribution has {len(joint.mean)} means for {size} scores; give one each")
        if len(joint.quantiles) != knots or any(len(column) != _CELLS + 1 for column in joint.quantiles):
            raise ValueError(f"the joint distribution has {len(joint.quantiles)} columns of quantiles; give {knots}")
        if tuple(map(len, joint.frequencies)) != tuple(levels for _, levels in joint.words):
            raise ValueError(f"the joint distribution has frequencies that do not fit the levels {joint.words}")
        return joint

    def describe(self) -> Document:
        """Returns the distribution as plain data that `json.dumps` accepts and `of` reads back."""
        return {name: as_lists(getattr(self, name)) for name in _KINDS}

    def central(self, x: np.ndarray) -> np.ndarray:
        """Returns rows with missing numbers replaced by medians given the rest of their row, `[rows, columns]`."""
        words = [column for column, _ in self.words]
        incomplete = x.copy()
        incomplete[:, words] = np.where(x[:, words] == 0, np.nan, x[:, words])
        completed = self._completed(incomplete, None, lambda rows, columns: np.full((len(rows), 1, len(columns)), 0.5))[
            :, 0
        ]
        completed[:, words] = x[:, words]
        return completed

    def draws(self, x: np.ndarray, unseen: np.ndarray | None = None) -> np.ndarray:
        """Returns the completions of rows to predict, `[rows, DRAWS, columns]`."""
        # Draws depend only on the known values of the row, not on other rows or the order of the rows.
        return self._completed(x, unseen, lambda rows, columns: uniforms(rows, columns, DRAWS))

    def given_targets(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Returns a completion of training rows, given their targets as well, `[rows, columns]`."""
        completed, y = x.copy(), np.asarray(y)
        alike = _earlier_copies(np.column_stack([x, y]))
        for rows, columns in _patterns(x):
            if len(columns):
                noise = uniforms(np.column_stack([x[rows], y[rows], alike[rows]]), columns, 1)
                completed[rows] = self._filled(x[rows], y[rows], columns, columns[:0], noise)[:, 0]
        return completed

    def _completed(self, x: np.ndarray, unseen: np.ndarray | None, random: Callable[..., np.ndarray]) -> np.ndarray:
        """Returns completions of all rows, by patterns of missing values."""
        new = np.zeros(x.shape, bool) if unseen is None else unseen
        x = np.where(new, np.nan, x)
        parts, places = [], []
        for rows, marks in _groups(np.isnan(x) * 1 + new):
            columns = np.flatnonzero(marks)
            at_once = max(1, _AT_ONCE // (DRAWS * (len(self.mean) + x.shape[1])))
            for start in range(0, len(rows), at_once):
                indices = rows[start : start + at_once]
                parts.append(
                    self._filled(x[indices], None, columns, np.flatnonzero(marks > 1), random(x[indices], columns))
                )
                places.append(indices)
        return np.concatenate(parts)[np.argsort(np.concatenate(places), kind="stable")]

    def _filled(
        self, x: np.ndarray, y: Targets, columns: np.ndarray, unseen: np.ndarray, uniform: np.ndarray
    ) -> np.ndarray:
        """Returns completions of rows that lack the same columns, given uniform numbers, `[rows, draws, columns]`."""
        from scipy.special import ndtri

        draws = uniform.shape[1]
        completed = np.repeat(x[:, None], draws, axis=1)
        scores = np.repeat(self.scores(x, y, unseen)[:, None], draws, axis=1)
        mean, covariance = np.asarray(self.mean), np.asarray(self.covariance)
        observed = ~np.isnan(scores[0, 0]) if len(mean) else np.zeros(0, bool)
        lacking = {int(column): uniform[:, :, place] for place, column in enumerate(columns)}
        for column, levels, frequencies in self._words_in_turn(lacking, unseen):
            place = self._places.get(column, np.zeros(0, int))
            if column in unseen:
                probabilities = np.full(levels, 1.0 / levels)
            elif not len(place):
                probabilities = np.asarray(frequencies)
            else:
                weights, residual = _regression(covariance, place, np.flatnonzero(observed))
                expected = mean[place] + (scores[..., observed] - mean[observed]) @ weights
                prior = mean[place], covariance[np.ix_(place, place)]
                probabilities = _discriminant(expected, residual, *prior, np.asarray(frequencies))
            below = np.cumsum(probabilities, axis=-1)[..., :-1]
            code = 1 + (lacking[column][..., None] > below).sum(axis=-1)
            completed[..., column] = code
            if len(place):
                scores[..., place] = code[..., None] == np.arange(2, levels + 1)
                observed[place] = True
        wanted = [column for column in self.numbers if column in lacking and column in self._places]
        normal = {column: ndtri(lacking[column]) for column in self.numbers if column in lacking}
        if wanted:
            place = np.concatenate([self._places[column] for column in wanted])
            weights, residual = _regression(covariance, place, np.flatnonzero(observed))
            expected = (scores[..., observed] - mean[observed]) @ weights
            residual = residual * self._unknown_weights(
                int(observed.sum()), residual, covariance[np.ix_(place, place)], y is None
            )
            noise = np.stack([normal[column] for column in wanted], axis=-1) @ np.linalg.cholesky(residual).T
            # In units of the score's deviation, which ties make smaller than one: the marginals are then the columns'.
            standard = (expected + noise) / np.sqrt(np.diag(covariance)[place])
            normal |= {column: standard[..., index] for index, column in enumerate(wanted)}
        for column, standard in normal.items():
            quantiles = np.asarray(self.quantiles[self.numbers.index(column)])
            completed[..., column] = _value(standard, quantiles, self.rows)
        return completed

    def _unknown_weights(self, seen: int, left: np.ndarray, own: np.ndarray, new: bool) -> float:
        """Returns the factor by which a regression's residual variance exceeds that of its residuals."""
        # Residuals are too small by the weights that were fitted to them, and a new row has the errors of the weights,
        # too; the total is at most the variance of the column's own distribution.
        freedom = max(self.rows - seen - 1.0, 1.0)
        factor = (self.rows + (seen + 1.0) * new) / freedom
        return float(np.clip(factor, 1.0, max(1.0, float(np.min(np.diag(own) / np.diag(left))))))

    def _words_in_turn(self, lacking: Collection[int], unseen: np.ndarray) -> list[tuple[int, int, tuple[float, ...]]]:
        """Returns the words to draw: new ones first, which are independent, then missing ones given those before."""
        frequencies = self.frequencies or ((),) * len(self.words)
        drawn_words = [
            (column, levels, share)
            for (column, levels), share in zip(self.words, frequencies, strict=True)
            if column in lacking
        ]
        return sorted(drawn_words, key=lambda word: word[0] not in unseen)

    @cached_property
    def _places(self) -> dict[int, np.ndarray]:
        """The indices of each related column's scores."""
        places, start = {}, 0
        sizes = [(column, 1) for column in self.numbers] + [(column, levels - 1) for column, levels in self.words]
        for column, size in sizes:
            if column in self.related:
                places[column] = np.arange(start, start + size)
                start += size
        return places

    def scores(self, x: np.ndarray, y: np.ndarray | None, unseen: np.ndarray | Sequence[int] = ()) -> np.ndarray:
        """Returns the scores of rows, NaN if a value, or every target, is missing, `[rows, scores]`."""
        # A new word is not a missing one.
        quantiles = dict(zip(self.numbers, self.quantiles, strict=False))
        parts = [_score(x[:, c], np.asarray(quantiles[c]), self.rows) for c in self.numbers if c in self.related]
        for column, levels in self.words:
            if column in self.related:
                codes = x[:, column]
                present = np.where(np.isnan(codes), np.nan, 1.0)
                parts += [(codes == level) * present for level in range(2, levels + 1)]
        parts += [np.isnan(x[:, column]) * float(column not in unseen) for column in self.lacking]
        if not self.quantiles and not self.classes:
            return np.zeros((len(x), 0))
        if y is None:
            parts += [np.full(len(x), np.nan)] * max(self.classes - 1, 1)
        elif self.classes:
            parts += [(y == label).astype(float) for label in range(1, self.classes)]
        else:
            parts.append(_score(np.asarray(y, float), np.asarray(self.quantiles[-1]), self.rows))
        return np.stack(parts, axis=1)


# The fields of a joint distribution, with the type of their numbers.
_KINDS = {
    **dict.fromkeys(("numbers", "words", "lacking"), int),
    **dict.fromkeys(("quantiles", "frequencies"), float),
    **dict.fromkeys(("related", "classes"), int),
    **dict.fromkeys(("rows", "mean", "covariance"), float),
}


def as_lists(value: object) -> Any:
    """Returns tuples and described records as lists, for JSON; anything else unchanged."""
    if isinstance(value, JointOfColumns):
        return value.describe()
    value = astuple(value) if is_dataclass(value) and not isinstance(value, type) else value
    return [as_lists(part) for part in value] if isinstance(value, tuple) else value


def _as_tuples(kind: type[int] | type[float], value: Any) -> Any:
    return tuple(_as_tuples(kind, part) for part in value) if isinstance(value, list | tuple) else kind(value)


def learn_joint(
    x: np.ndarray, levels: tuple[int, ...], y: np.ndarray, classes: int, weight: np.ndarray | None = None
) -> JointOfColumns:
    """Returns the joint distribution of training rows, complete or not."""
    # Mean and covariance are the mode under \(\Sigma \sim \mathcal W^{-1}\) with D²/N prior rows for D scores of N
    # rows, at most D, by expectation maximisation, from 20,000 rows at most. If the columns have more than 100
    # scores together, only those most closely related to the target keep their relations to others.
    #
    # Source: Dempster, Laird & Rubin (1977), for the iteration; Rubin (1987), for draws given the target; Zhao & Udell
    # (2020), for normal scores.
    order = np.random.default_rng(0).permutation(len(x))[:_MOST]
    counts = (np.ones(len(x)) if weight is None else np.asarray(weight, float))[order]
    x, y = x[order], np.asarray(y)[order]
    counts = counts * (counts.sum() / (counts**2).sum())  # scaled to the effective number of equal rows
    numbers = tuple(c for c, count in enumerate(levels) if not count)
    words = tuple((c, count) for c, count in enumerate(levels) if count)
    quantiles = [_quantiles(x[:, c], counts) for c in numbers]
    quantiles += [] if classes else [_quantiles(np.asarray(y, float), counts)]
    shares = [np.array([counts[x[:, c] == code].sum() for code in range(1, count + 1)]) for c, count in words]
    frequencies = tuple(tuple((share / share.sum()).tolist()) for share in shares)
    varying = [c for c, knots in zip(numbers, quantiles, strict=False) if knots[0] < knots[-1]]
    varying += [c for c, count in words if 2 <= count <= MOST_LEVELS]
    rows = float(f"{counts.sum():.8g}")
    joint = JointOfColumns(numbers, words, tuple(quantiles), frequencies, tuple(varying), classes, rows)
    scores = joint.scores(x, y)
    if scores.shape[1] - max(classes - 1, 1) > _MOST_SCORES:
        related = _most_correlated(scores, joint._places, max(classes - 1, 1))
        joint = replace(joint, related=related)
        scores = joint.scores(x, y)
    few = max(1, _MOST_WORK // scores.shape[1] ** 2) if np.isnan(scores).any() else len(scores)
    mean, covariance = _mode(scores[:few], counts[:few])
    frequencies = tuple(
        _of_all_rows(share, mean[joint._places[column]]) if column in joint._places else share
        for (column, _), share in zip(words, frequencies, strict=True)
    )
    # Those of the related columns, so that there are at most twice as many scores.
    lacking = np.array([column for column in joint.related if np.isnan(x[:, column]).any()], int)
    at = scores.shape[1] - max(classes - 1, 1)  # before the target
    mean, covariance = _with_absence(scores[:few], np.isnan(x[:few, lacking]), counts[:few], mean, covariance, at)
    joint = replace(joint, frequencies=frequencies, lacking=tuple(lacking.tolist()))
    digits = lambda values: tuple(float(f"{value:.8g}") for value in values)
    return replace(joint, mean=digits(mean), covariance=tuple(map(digits, covariance)))


def _of_all_rows(share: Sequence[float], mean: np.ndarray) -> tuple[float, ...]:
    """Returns the frequencies of levels in complete and incomplete rows, by the means of their indicators."""
    # Those of the rows that have a level are other ones where that it is missing tells of it.
    least = _LEAST_SHARE * np.asarray(share)
    shares = np.maximum(np.append(1.0 - mean.sum(), mean), least)
    return tuple((shares / shares.sum()).tolist())


def uniforms(x: np.ndarray, columns: np.ndarray | Sequence[int], draws: int) -> np.ndarray:
    """Returns uniform numbers for the draws of some columns of rows, one in each of equal parts of (0, 1)."""
    # Their shape is `[rows, draws, columns]`. They are points of one Sobol sequence, shifted by a hash of the bits of
    # the row's values, so that they depend only on the row.
    bits = np.ascontiguousarray(np.where(np.isnan(x), np.nan, x + 0.0), np.float64).view(np.uint64)
    columns, seed = np.asarray(columns, np.uint64), np.zeros(len(x), np.uint64)
    with np.errstate(over="ignore"):
        for column in bits.T:
            seed = mixed(seed ^ column)
        shift = mixed(seed[:, None] ^ mixed(columns + np.uint64(1))[None]) >> np.uint64(64 - _BITS)
    points = _sobol(x.shape[1] + 1)[:draws, columns.astype(int)]
    return ((points[None] ^ shift[:, None]).astype(float) + 0.5) / 2.0**_BITS


@lru_cache(maxsize=8)
def _sobol(columns: int) -> np.ndarray:
    """Returns scrambled Sobol points, `[DRAWS, columns]`, as integers."""
    from scipy.stats.qmc import Sobol

    points = Sobol(columns, scramble=True, bits=_BITS, rng=0).random(DRAWS)
    return np.floor(points * 2.0**_BITS).astype(np.uint64)


def mixed(bits: np.ndarray) -> np.ndarray:
    """Returns the next step of SplitMix64 (Steele, Lea & Flood 2014), where every output bit depends on all bits."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _most_correlated(scores: np.ndarray, places: Mapping[int, np.ndarray], targets: int) -> tuple[int, ...]:
    """Returns the columns whose scores are correlated most with the target's, as many as may be related."""
    filled = np.nan_to_num(scores - np.nanmean(scores, axis=0))
    deviation = np.maximum(filled.std(axis=0), 1e-12)
    correlation = np.abs(filled.T @ filled[:, -targets:] / np.outer(deviation, deviation[-targets:])).max(axis=1)
    related, room = [], _MOST_SCORES
    for column in sorted(places, key=lambda c: -correlation[places[c]].max()):
        if len(places[column]) <= room:
            related.append(column)
            room -= len(places[column])
    return tuple(sorted(related))


def _discriminant(
    expected: np.ndarray, left: np.ndarray, mean: np.ndarray, covariance: np.ndarray, frequencies: np.ndarray
) -> np.ndarray:
    """Returns the probabilities of levels given their indicators' conditional mean and covariance, `[..., levels]`."""
    levels = np.vstack([np.zeros(len(mean)), np.eye(len(mean))])
    squared = lambda residual, spread: np.einsum("...i,ij,...j->...", residual, np.linalg.inv(spread), residual)
    log = squared(levels - mean, covariance) - squared(levels - expected[..., None, :], left)
    with np.errstate(divide="ignore"):
        log = 0.5 * log + np.log(frequencies)
    probabilities = np.exp(log - log.max(axis=-1, keepdims=True))
    return probabilities / probabilities.sum(axis=-1, keepdims=True)


def _mode(scores: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and covariance of weighted rows with missing scores."""
    rows, size = weight.sum(), scores.shape[1]
    prior_rows = _prior_rows(rows, size)
    mean, prior = _moments(scores, weight)
    covariance, patterns = np.diag(prior), list(_patterns(scores))
    for _ in range(_ITERATIONS):
        filled, spread = scores.copy(), prior_rows * np.diag(prior)
        for indices, missing in patterns:
            if not len(missing):
                continue
            observed = np.setdiff1d(np.arange(size), missing)
            weights, residual = _regression(covariance, missing, observed)
            filled[np.ix_(indices, missing)] = (
                mean[missing] + (scores[np.ix_(indices, observed)] - mean[observed]) @ weights
            )
            spread[np.ix_(missing, missing)] += weight[indices].sum() * residual
        mean, before = weight @ filled / rows, covariance
        centred = filled - mean
        covariance = ((centred.T * weight) @ centred + spread) / (rows + prior_rows)
        if np.abs(covariance - before).max() < _SETTLED:
            break
    return mean, covariance


def _with_absence(
    scores: np.ndarray, absent: np.ndarray, weight: np.ndarray, mean: np.ndarray, covariance: np.ndarray, at: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and covariance with those of absent values inserted, which depend on values through their rows."""
    # A value is taken to be missing for reasons that the rest of its row and the target tell, so that its expectation
    # given these stands for it. A few missing values say little of others: the variance is that of ten more rows.
    rows, filled = weight.sum(), scores.copy()
    for indices, missing in _patterns(scores):
        seen = np.setdiff1d(np.arange(scores.shape[1]), missing)
        weights, _ = _regression(covariance, missing, seen)
        filled[np.ix_(indices, missing)] = mean[missing] + (scores[np.ix_(indices, seen)] - mean[seen]) @ weights
    share = weight @ absent / rows
    centred = absent - share
    across = (centred.T * weight) @ (filled - mean) / rows
    own = (centred.T * weight) @ centred / rows + np.eye(len(share)) * _DOUBT / rows
    places = np.r_[: len(mean)] + len(share) * (np.r_[: len(mean)] >= at), at + np.r_[: len(share)]
    both = np.empty(len(mean) + len(share)), np.empty((len(mean) + len(share),) * 2)
    both[0][places[0]], both[0][places[1]] = mean, share
    both[1][np.ix_(places[0], places[0])], both[1][np.ix_(places[1], places[1])] = covariance, own
    both[1][np.ix_(places[1], places[0])], both[1][np.ix_(places[0], places[1])] = across, across.T
    return both


def _prior_rows(rows: float, size: int) -> float:
    """Returns the number of scores for few rows; less for more rows, since it widens nearly determined columns."""
    return float(np.clip(size**2 / rows, _LEAST_PRIOR, size))


def _moments(scores: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of the observed scores, and their variance, which is positive."""
    present = ~np.isnan(scores) * weight[:, None]
    counts = np.maximum(present.sum(axis=0), 1e-12)
    mean = (present * np.nan_to_num(scores)).sum(axis=0) / counts
    return mean, np.maximum((present * np.nan_to_num(scores - mean) ** 2).sum(axis=0) / counts, 1e-3)


def _regression(covariance: np.ndarray, wanted: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weights of the observed scores, and the residual covariance of the wanted ones."""
    own, across = covariance[np.ix_(wanted, wanted)], covariance[np.ix_(seen, wanted)]
    if not len(seen):
        return across, own
    weights = np.linalg.solve(covariance[np.ix_(seen, seen)], across)
    return weights, own - across.T @ weights


def _patterns(scores: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the rows with the same missing scores, and these scores."""
    for rows, lacks in _groups(np.isnan(scores)):
        yield rows, np.flatnonzero(lacks)


def _groups(marks: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the rows with the same marks, and these marks."""
    patterns, which = np.unique(marks, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(patterns)))
    for pattern, end, start in zip(patterns, ends, [0, *ends[:-1]], strict=True):
        yield order[start:end], pattern


def _earlier_copies(rows: np.ndarray) -> np.ndarray:
    """Returns how many of the rows before each are the same, so that equal rows get different draws."""
    earlier = np.zeros(len(rows))
    for indices, _ in _groups(np.where(np.isnan(rows), np.inf, rows)):
        earlier[indices] = np.arange(len(indices))
    return earlier


def _quantiles(column: np.ndarray, weight: np.ndarray) -> tuple[float, ...]:
    present = np.flatnonzero(~np.isnan(column) & (weight > 0))
    present = present[np.argsort(column[present], kind="stable")]
    above, grid = np.cumsum(weight[present]), np.linspace(0, 1, _CELLS + 1)
    if 2 * len(np.unique(column[present])) <= min(len(present), 2 * _DISCRETE):  # such values have nothing between them
        position = np.searchsorted(above, grid * above[-1] * (1 - 1e-12))
        return tuple(column[present[np.minimum(position, len(present) - 1)]].tolist())
    middle = (above - weight[present] / 2) / above[-1]
    return tuple(np.interp(grid, middle, column[present]).tolist())


def _score(values: np.ndarray, quantiles: np.ndarray, rows: float) -> np.ndarray:
    """Returns normal scores, linear between two quantiles; a value at several of them gets the middle one's."""
    scores = _knots(rows)
    low, high = np.searchsorted(quantiles, values, "left"), np.searchsorted(quantiles, values, "right")
    cell = np.clip(low, 1, _CELLS)
    width = quantiles[cell] - quantiles[cell - 1]
    share = np.clip((values - quantiles[cell - 1]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    between = scores[cell - 1] + share * (scores[cell] - scores[cell - 1])
    middle = np.interp((low + high - 1) / 2, np.arange(_CELLS + 1), scores)
    return np.where(np.isnan(values), np.nan, np.where(high > low, middle, between))


def _value(scores: np.ndarray, quantiles: np.ndarray, rows: float) -> np.ndarray:
    """Returns the values of scores; for a column of few values, one of them."""
    from scipy.special import ndtr

    if len(np.unique(quantiles)) <= _DISCRETE:
        return quantiles[np.rint(ndtr(scores) * _CELLS).astype(int)]
    return np.interp(scores, _knots(rows), quantiles)


def _knots(rows: float) -> np.ndarray:
    """Returns the scores of the quantiles; the least and the largest are at half a row from the ends."""
    from scipy.special import ndtri

    half = min(0.5 / rows, 0.5)
    return ndtri(np.clip(np.linspace(0, 1, _CELLS + 1), half, 1 - half))
