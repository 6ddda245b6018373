"""Drift: whether new rows are predicted as the rows of a reference were, by tests of two samples."""

# No targets are needed: what is compared is the distribution of what the model says about the rows.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu import memory
from lamu.predictives.interface import Predictive

__all__ = ["Drift", "drift", "kernel_drift"]


@dataclass(frozen=True)
class Drift:
    """What a test of two samples found.

    Attributes:
        names: what was compared.
        statistics: how far apart the two samples are, one number a name.
        p_values: the probability of statistics as large or larger between samples of one distribution.
        level: the probability of a false alarm over all names together.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import Drift
        >>> found = Drift(("entropy", "epistemic"), np.array([0.4, 0.1]), np.array([0.001, 0.6]), 0.05)
        >>> found.found, found.p_value
        (True, 0.002)
    """

    names: tuple[str, ...]
    statistics: np.ndarray
    p_values: np.ndarray
    level: float

    @property
    def p_value(self) -> float:
        """The smallest p value times their number (Bonferroni), one at most."""
        return float(min(1.0, self.p_values.min() * len(self.p_values)))

    @property
    def found(self) -> bool:
        """Whether there is drift, at the level."""
        return self.p_value < self.level

    def __str__(self) -> str:
        """One line a quantity, and the verdict."""
        each = zip(self.names, self.statistics, self.p_values, strict=True)
        lines = [f"{name:16} {statistic:7.4f}   p = {p:.3g}" for name, statistic, p in each]
        verdict = "drift" if self.found else "no drift"
        tests = f"{len(self.names)} tests together" if len(self.names) > 1 else "one test"
        return "\n".join([*lines, f"{verdict} at the level {self.level:g}: p = {self.p_value:.3g} ({tests})"])


def drift(reference: Any, new: Any, level: float = 0.05) -> Drift:
    r"""Returns whether new rows are predicted otherwise than those of a reference, by Kolmogorov–Smirnov tests.

    \[ D = \sup_z |\hat F_{\mathrm{reference}}(z) - \hat F_{\mathrm{new}}(z)| \]

    for each quantity, and Bonferroni's correction for their number. The quantities are, for classes, each class's
    probability, the entropy and, where it is not zero, the mutual information; for regression mean, standard deviation
    and, where it is not zero, the variance of the mean.

    The reference rows must be held out: on training rows a model is surer than on new ones of the same kind.

    Args:
        reference: a prediction of held-out rows of the known kind, or an array `[N]` or `[N, D]` of quantities.
        new: one of the rows in question, of the same kind.
        level: the probability of a false alarm.

    Returns:
        Statistics, p values and the verdict.

    Raises:
        ValueError: for different quantities, ones that are not finite, or fewer than two rows.

    Source: Rabanser, Günnemann & Lipton (2019).

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import drift
        >>> generator = np.random.default_rng(0)
        >>> drift(generator.normal(size=500), generator.normal(size=500)).found
        False
        >>> drift(generator.normal(size=500), generator.normal(size=500) + 0.5).found
        True
    """
    from scipy.stats import ks_2samp

    names, one, other = _samples(reference, new, level)
    method = "exact" if len(one) * len(other) <= 250_000 else "asymp"
    tests: list[Any] = [ks_2samp(one[:, j], other[:, j], method=method) for j in range(len(names))]
    statistics, p_values = (np.array([getattr(t, what) for t in tests], float) for what in ("statistic", "pvalue"))
    return Drift(names, statistics, p_values, level)


def kernel_drift(
    reference: Any, new: Any, level: float = 0.05, permutations: int = 500, seed: int = 0, most: int = 1000
) -> Drift:
    r"""Returns whether new rows are predicted otherwise, by one test of all quantities at once.

    The statistic is the squared maximum mean discrepancy between the samples,

    \[ \widehat{\mathrm{MMD}}^2 = \frac{1}{n^2} \sum_{ij} k(u_i, u_j) + \frac{1}{m^2} \sum_{ij} k(v_i, v_j)
       - \frac{2}{n m} \sum_{ij} k(u_i, v_j), \qquad k(u, v) = e^{-\|u - v\|^2 / 2 h^2} \]

    of the quantities of `drift`, each over its standard deviation, with h the median distance. Its p value is that of a
    test of permutations, exact for any sample size. It sees changes in how quantities depend on each other, which
    `drift` does not. Time and memory grow with the square of the rows.

    Args:
        reference: as for `drift`.
        new: as for `drift`.
        level: the probability of a false alarm.
        permutations: how many; the smallest p value is one over their number plus one.
        seed: of the permutations.
        most: rows of each sample that are used, the first ones of a shuffle.

    Returns:
        The statistic, its p value and the verdict.

    Raises:
        ValueError: as for `drift`.

    Source: Gretton et al. (2012), section 3.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import kernel_drift
        >>> generator = np.random.default_rng(0)
        >>> pairs = generator.normal(size=(200, 2))
        >>> kernel_drift(pairs, np.stack([pairs[:, 0], pairs[:, 0]], axis=1) + 0.0).found  # each column is as it was
        True
    """
    names, one, other = _samples(reference, new, level)
    memory.demand(24.0 * (2 * min(most, max(len(one), len(other)))) ** 2, f"the kernel of {most:,} rows", "lower most")
    random = np.random.default_rng(seed)
    one, other = (part[random.permutation(len(part))[:most]] for part in (one, other))
    both = np.concatenate([one, other])
    scale = both.std(axis=0)
    both = both / np.where(scale > 0, scale, 1.0)
    squares = np.sum(both**2, axis=1)
    distance = np.maximum(squares[:, None] + squares[None] - 2 * both @ both.T, 0.0)
    middle = float(np.median(distance[np.triu_indices(len(both), 1)]))
    kernel = np.exp(-distance / (2 * middle if middle > 0 else 1.0))
    n, m = len(one), len(other)

    def signs(first: np.ndarray) -> np.ndarray:
        """1/n for rows of the first sample and −1/m for the others, whose quadratic form is the statistic."""
        return np.where(first, 1 / n, -1 / m)

    start = np.arange(n + m) < n
    orders = np.stack([start, *(random.permutation(start) for _ in range(permutations))])
    forms = signs(orders)
    values = np.einsum("pi,pi->p", forms @ kernel, forms)
    p = float(np.mean(values >= values[0] * (1 - 1e-12)))
    return Drift((f"all of {', '.join(names)}",), values[:1], np.array([p]), level)


def _samples(reference: Any, new: Any, level: float) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    if not 0 < level < 1:
        raise ValueError(f"level={level!r} is no probability strictly between 0 and 1; for 5 % write 0.05")
    one, other = _quantities(reference), _quantities(new)
    # An epistemic part that is zero in one sample and not in the other is a difference too.
    for name in [name for name in {*one, *other} if name.startswith("epistemic")]:
        for each in (one, other):
            each.setdefault(name, np.zeros(len(next(iter(each.values())))))
    if set(one) != set(other):
        raise ValueError(f"the reference tells {sorted(one)} and the new rows {sorted(other)}; compare the same things")
    names = tuple(one)
    samples = [np.stack([each[name] for name in names], axis=1) for each in (one, other)]
    for sample in samples:
        if len(sample) < 2 or not np.isfinite(sample).all():
            raise ValueError(
                f"a sample of {len(sample)} rows is too small or not finite; give at least two rows of numbers"
            )
    return names, samples[0], samples[1]


def _quantities(pred: Any) -> dict[str, np.ndarray]:
    if not isinstance(pred, Predictive):
        table = np.asarray(pred, float)
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim != 2:
            raise ValueError(f"quantities of shape {table.shape} are no rows; give [N] or [N, D]")
        return {f"column {j}": table[:, j] for j in range(table.shape[1])}
    mean = np.asarray(pred.mean, float)
    columns = mean[:, None] if mean.ndim == 1 else mean
    if not pred.support.has_classes:
        std = np.asarray(pred.std, float).reshape(columns.shape)
        known = np.asarray(pred.epistemic, float).reshape(columns.shape)
        several = columns.shape[1] > 1
        parts = {"mean": columns, "std": std, "epistemic": known}
        found = {
            f"{name} {j}" if several else name: part[:, j] for name, part in parts.items() for j in range(part.shape[1])
        }
    else:
        found = {"p" if mean.ndim == 1 else f"p(class {j})": columns[:, j] for j in range(columns.shape[1])}
        found |= {"entropy": np.asarray(pred.total, float), "epistemic": np.asarray(pred.epistemic, float)}
    return {name: part for name, part in found.items() if "epistemic" not in name or np.any(part != 0)}
