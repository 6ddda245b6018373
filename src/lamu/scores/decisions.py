"""Decisions under a utility, their regret, and selective prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.predictives.interface import Predictive, mean_over_draws, utility_table
from lamu.scores.proper_scores import target
from lamu.typing import Prediction, RandomKey, Targets

__all__ = [
    "RiskCoverage",
    "aurc",
    "auroc",
    "expected_regret",
    "expected_utility",
    "least_expected_loss",
    "realised_regret",
    "risk_coverage",
    "value_of_information",
    "with_question",
]


def auroc(known: object, unknown: object) -> float:
    r"""Returns the area under the ROC curve: how often an out-of-distribution row has a higher score than a known one.

    \[ \frac{1}{N M} \sum_{i=1}^N \sum_{j=1}^M \mathbf 1[u_i < v_j] + \tfrac12 \mathbf 1[u_i = v_j] \]

    as used by Hendrycks & Gimpel (2017). The score may be any measure of uncertainty: `pred.total` or `pred.epistemic`,
    or one minus the largest probability.

    Args:
        known: scores u of rows like those of training, `[N]`.
        unknown: scores v of out-of-distribution rows, `[M]`.

    Returns:
        A fraction, 0 to 1: one half for uninformative scores, one for perfect separation.

    Raises:
        ValueError: for arrays that are not one number a row, empty ones, or NaN.

    Examples:
        >>> from lamu.scores import auroc
        >>> auroc([0.1, 0.2, 0.6], [0.5, 0.9])
        0.8333333333333334
    """
    u, v = (np.asarray(doubts, float) for doubts in (known, unknown))
    for name, doubts in (("known", u), ("unknown", v)):
        if doubts.ndim != 1 or not doubts.size:
            raise ValueError(f"{name} has the shape {doubts.shape}; give one number a row, for instance pred.total")
        if np.isnan(doubts).any():
            raise ValueError(f"{name} holds NaN in {int(np.isnan(doubts).sum())} rows; their doubt cannot be ranked")
    ordered = np.sort(u)
    below = np.searchsorted(ordered, v, side="left") + np.searchsorted(ordered, v, side="right")
    return float(np.mean(below) / 2 / len(u))


@dataclass(frozen=True)
class RiskCoverage:
    """Result of `risk_coverage`: the mean error of the least uncertain rows, for every share of them.

    Attributes:
        share: the share of rows that are kept, `[N]`, rising to one.
        risk: their mean error, `[N]`: the fraction of wrong labels, or the mean square in the target's units.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import risk_coverage
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.6]), total=np.array([0.3, 0.7]))
        >>> risk_coverage(pred, np.array([1, 0])).risk.tolist()
        [0.0, 0.5]
    """

    share: np.ndarray
    risk: np.ndarray


def risk_coverage(pred: Prediction, y: Targets, doubt: Any = None) -> RiskCoverage:
    """Returns the risk–coverage curve of selective prediction: the error on the rows that are not rejected.

    Rows of equal uncertainty have their mean error, so that their order does not matter.

    Args:
        pred: a prediction of any task; of a regression with one output.
        y: targets, `[N]`.
        doubt: the uncertainty of each row, `[N]`, by which rows are ranked; `pred.total` where None.

    Returns:
        Shares and errors.

    Raises:
        ValueError: if the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Real
        >>> from lamu.scores import risk_coverage
        >>> pred = SimpleNamespace(support=Real(), mean=np.array([0.0, 0.0]), total=np.array([2.0, 1.0]))
        >>> risk_coverage(pred, np.array([3.0, 1.0])).risk.tolist()
        [1.0, 5.0]
    """
    y = target("risk_coverage", pred, y)
    if y.ndim != 1:
        raise ValueError(f"risk_coverage ranks rows with one target, and these have the shape {y.shape}")
    mean = np.asarray(pred.mean, float)
    if not pred.support.has_classes:
        error = (mean - y) ** 2
    else:
        label = pred.support.labels(mean)
        error = (label.astype(int) != y.astype(int)).astype(float)
    ranked = np.asarray(pred.total if doubt is None else doubt, float)
    if ranked.shape != y.shape:
        raise ValueError(f"doubt has the shape {ranked.shape}, and there are {len(y)} rows; give one number a row")
    if np.isnan(ranked).any():
        raise ValueError(f"the doubt of {int(np.isnan(ranked).sum())} rows is NaN and cannot be ranked; leave them out")
    _, group = np.unique(ranked, return_inverse=True)
    averaged = (np.bincount(group, weights=error) / np.bincount(group))[group]  # ties have their mean error
    kept = np.arange(1, len(y) + 1)
    return RiskCoverage(kept / len(y), np.cumsum(averaged[np.argsort(ranked, kind="stable")]) / kept)


def aurc(pred: Prediction, y: Targets, doubt: object = None) -> float:
    """Returns the area under the risk–coverage curve: the mean of its risks.

    Args:
        pred: a prediction of any task; of a regression with one output.
        y: targets, `[N]`.
        doubt: the uncertainty of each row, `[N]`; `pred.total` where None.

    Returns:
        An error, in the units of `risk_coverage`; lower is better.

    Raises:
        ValueError: if the shapes differ.

    Source: Geifman, Uziel & El-Yaniv (2019).

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import aurc
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.6]), total=np.array([0.3, 0.7]))
        >>> aurc(pred, np.array([1, 0]))
        0.25
    """
    return float(np.mean(risk_coverage(pred, y, doubt).risk))


# A utility u(a, y) is the value of action a if the target is y: for classes a table `[actions, classes]`, for
# regression a function of targets `[draws, N]` that returns `[actions, draws, N]`. For classes every expectation here
# is an exact sum over the table; for regression it is an average over draws of y.


def expected_utility(pred: Prediction, utility: object, key: RandomKey | None = None, samples: int = 256) -> np.ndarray:
    r"""Returns the expected utility of each action, \(\bar u_{ia} = E[u(a, y_i)]\).

    Args:
        pred: a prediction of any task.
        utility: a table `[actions, classes]`, or for regression a function of targets `[draws, N]`, which must treat
            all rows alike, since large predictions are evaluated in chunks of rows.
        key: for the draws (regression); by default a fixed one, so that a decision can be repeated.
        samples: the number of draws (regression).

    Returns:
        `[N, actions]`, in the utility's units.

    Raises:
        ValueError: for a table that does not fit the classes.
        TypeError: for a regression and a utility that is not a function.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import expected_utility
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2]))
        >>> expected_utility(pred, [[0.0, -10.0], [-1.0, 0.0]]).round(3).tolist()
        [[-9.0, -0.1], [-2.0, -0.8]]
    """
    return _expected(pred, utility, key, samples)[0]


def least_expected_loss(pred: Prediction, loss: object, key: RandomKey | None = None, samples: int = 256) -> np.ndarray:
    r"""Returns the action of least expected loss for each row, \(\arg\min_a E[l(a, y_i)]\).

    Args:
        pred: a prediction of any task.
        loss: the cost of actions, as a utility: a table `[actions, classes]`, or a function of targets.
        key: for the draws (regression).
        samples: the number of draws (regression).

    Returns:
        Actions, integers `[N]`; the first of equal ones.

    Raises:
        ValueError: for a table that does not fit the classes.
        TypeError: for a regression and a utility that is not a function.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import least_expected_loss
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.3, 0.05]))
        >>> least_expected_loss(pred, [[0.0, 10.0], [1.0, 0.0]]).tolist()  # to miss a one costs ten times as much
        [1, 0]
    """
    return np.argmin(expected_utility(pred, loss, key, samples), axis=1)


def value_of_information(
    pred: Prediction, utility: object, key: RandomKey | None = None, samples: int = 256
) -> np.ndarray:
    r"""Returns the value of perfect information: the expected gain from knowing the target before acting.

    \[ E\big[\max_a u(a, y_i)\big] - \max_a E\big[u(a, y_i)\big] \;\ge\; 0 \]

    It is the expected regret of the best action, and an upper bound of a reasonable price for the target.

    Args:
        pred: a prediction of any task.
        utility: a table `[actions, classes]`, or a function of targets.
        key: for the draws (regression).
        samples: the number of draws (regression); the maximum over few draws is biased, by about one over their number.

    Returns:
        `[N]`, in the utility's units.

    Source: Raiffa & Schlaifer (1961).

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import value_of_information
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.5, 0.1]))
        >>> value_of_information(pred, np.eye(2)).round(3).tolist()
        [0.5, 0.1]
    """
    values, informed = _expected(pred, utility, key, samples)
    return np.maximum(informed - values.max(axis=1), 0.0)


def expected_regret(
    pred: Prediction, utility: object, action: object, key: RandomKey | None = None, samples: int = 256
) -> np.ndarray:
    r"""Returns the expected regret of given actions relative to the best action in hindsight.

    \[ E\big[\max_b u(b, y_i)\big] - E\big[u(a_i, y_i)\big] \]

    Args:
        pred: a prediction of any task.
        utility: a table `[actions, classes]`, or a function of targets.
        action: the action of each row, integers `[N]`, or one for all.
        key: for the draws (regression).
        samples: the number of draws (regression).

    Returns:
        `[N]`, in the utility's units.

    Raises:
        ValueError: for an action that the utility does not have.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import expected_regret
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.9]))
        >>> expected_regret(pred, np.eye(2), [1, 0]).round(3).tolist()
        [0.1, 0.9]
    """
    values, informed = _expected(pred, utility, key, samples)
    chosen = np.broadcast_to(_numbered("actions", action, values.shape[1]), len(values))
    return informed - values[np.arange(len(values)), chosen]


def realised_regret(action: object, utility: object, y: Targets) -> np.ndarray:
    r"""Returns the realised regret of actions, \(\max_b u(b, y_i) - u(a_i, y_i)\): a score of decisions.

    Args:
        action: the action of each row, integers `[N]`.
        utility: a table `[actions, classes]`, or a function of targets.
        y: the targets, `[N]`.

    Returns:
        `[N]`, in the utility's units; lower is better, zero at best.

    Raises:
        ValueError: for an action that the utility does not have, or another number of actions than targets.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import realised_regret
        >>> realised_regret([0, 1], np.eye(2), [1, 1]).tolist()
        [1.0, 0.0]
    """
    chosen, y = np.asarray(action), np.asarray(y)
    y = y[:, 0] if y.shape == (*chosen.shape, 1) else y
    if chosen.shape != y.shape or y.ndim != 1:
        raise ValueError(f"actions have the shape {chosen.shape} and targets {y.shape}; give one of each a row")
    if callable(utility):
        values = np.asarray(utility(jnp.asarray(y)[None]), float)[:, 0]
    else:
        table = utility_table(utility)
        values = table[:, _numbered("classes", y, table.shape[1])]
    return values.max(axis=0) - values[_numbered("actions", chosen, len(values)), np.arange(len(y))]


def with_question(utility: object, cost: float) -> Any:
    r"""Returns the utility with an additional last action: asking an expert, at a cost.

    \[ u(\mathrm{ask}, y) = \max_a u(a, y) - \mathrm{cost} \]

    The optimal decision asks exactly where `value_of_information` exceeds the cost.

    Args:
        utility: a table `[actions, classes]`, or for regression a function of targets.
        cost: the cost of an answer, in the utility's units.

    Returns:
        A utility of the same type, with one more row.

    Raises:
        ValueError: for a cost that is not positive.

    Source: Chow (1970).

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import least_expected_loss, with_question
        >>> pred = SimpleNamespace(support=TwoClasses(), mean=np.array([0.97, 0.6]))
        >>> least_expected_loss(pred, -with_question(np.eye(2), 0.1)).tolist()
        [1, 2]
    """
    if not cost > 0:
        raise ValueError(f"cost={cost!r} would make asking free, and it would always be asked; give a positive cost")
    if callable(utility):

        def asked(targets: object) -> Any:
            values: Any = utility(targets)
            return jnp.concatenate([values, jnp.max(values, axis=0)[None] - cost])

        return asked
    table = utility_table(utility)
    return np.concatenate([table, table.max(axis=0)[None] - cost])


def _expected(pred: Prediction, utility: Any, key: RandomKey | None, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns E[u(a, y)], `[N, actions]`, and E[max u], `[N]`."""
    if pred.support.has_classes:
        p = np.asarray(pred.support.probabilities(np.asarray(pred.mean, float)))
        table = utility_table(utility, p.shape[1])
        return p @ table.T, p @ table.max(axis=0)
    if not isinstance(utility, Callable):
        raise TypeError("for regression the utility is a function of targets [draws, N]")
    key = jax.random.key(0) if key is None else key
    entropies = []
    for rows, part in pred.chunks() if isinstance(pred, Predictive) else [(slice(0, None), pred)]:
        targets = part.sample(jax.random.clone(key), samples, rows.start)
        means = mean_over_draws(partial(_with_best, utility), targets)
        entropies.append((means[:-1].T, means[-1]))
    means, informed = zip(*entropies, strict=True)
    return np.concatenate(means), np.concatenate(informed)


def _with_best(utility: Callable[[Any], Any], targets: Any) -> np.ndarray:
    """Returns the utilities of all actions, and of the best one for each target, `[actions + 1, draws, N]`."""
    values = np.asarray(utility(targets), float)
    if values.ndim != 3 or values.shape[1:] != targets.shape[:2]:
        raise ValueError(
            f"the utility of targets {targets.shape} has the shape {values.shape}; return [actions, draws, N]"
        )
    return np.concatenate([values, values.max(axis=0)[None]])


def _numbered(of: str, given: object, count: int) -> np.ndarray:
    """Returns the numbers of actions or classes; raises a ValueError for what is none of them."""
    # An index of -1 would pick the last one, and truth values would pick rows.
    numbers = np.asarray(given)
    known = np.isin(numbers, np.arange(count))
    if not known.all():
        raise ValueError(
            f"the utility has {count} {of}, 0 to {count - 1}, and one that was given is {numbers[~known][0]!s}; number "
            f"them as the utility's {of} are"
        )
    return numbers.astype(int)
