"""Supports: the sets of values that a target can take.

A likelihood has a support, which determines whether the mean is a number or a vector of probabilities, whether the
target may be shifted and scaled, whether quantiles exist and are whole numbers, and which values `lamu.fit` refuses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.record import record, static
from lamu.typing import Array, Rows, Targets

__all__ = [
    "Circle",
    "Classes",
    "Counts",
    "Interval",
    "OpenRange",
    "OrderedClasses",
    "PositiveReal",
    "Rankings",
    "Real",
    "Signs",
    "Support",
    "TwoClasses",
    "UnitInterval",
    "value_of",
]


class Support:
    """Base class of supports: a set of values that a target can take.

    Attributes:
        has_classes: whether a target is one of several classes, with their probabilities as the mean of a prediction;
            else it is a number.
        discrete: whether numbers are whole, and so are quantiles.
        ordered: whether values have an order, so that a distribution function and quantiles exist.
        circular: whether a target is an angle in radians, where π and −π are the same.
        lower, upper: the bounds of numbers.
        values: the values in words, for messages: "whole numbers from 0".
        task: the name of the task in `lamu fit --task`: "regression", "binary" or "classes".
        advice: the remedy for a target outside, for messages.
        affine: whether a shifted and scaled target has the same support, so that `Model.standardised` may standardise
            it.

    Examples:
        >>> from lamu import supports
        >>> supports.Counts().discrete, supports.Counts().affine, supports.Real().affine
        (True, False, True)
    """

    has_classes: bool = False
    discrete: bool = False
    ordered: bool = True
    circular: bool = False
    affine: bool = False
    lower: float | Any = -math.inf
    upper: float | Any = math.inf
    values: str | Any
    task: str = "regression"
    advice: str = "leave the row out, or take another likelihood"

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the scores of `lamu.scores` for this support: error, density and calibration.

        Numbers without an order, such as angles, have neither errors nor intervals, and are scored by their density.
        """
        if self.has_classes:
            return "accuracy", "nll", "ece"
        return ("rmse", "nll", "coverage") if self.ordered else ("nll",)

    def contains(self, y: Targets) -> Targets:
        """Returns whether each target is in the support, an array of Booleans like `y`.

        By default those that are finite, between the bounds, and whole where the support is discrete.
        """
        inside = np.isfinite(y) & np.greater_equal(y, self.lower) & np.less_equal(y, self.upper)
        return inside & np.equal(np.floor(np.asarray(y, float)), y) if self.discrete else inside

    def some(self, like: Targets) -> Targets:
        """Returns a value of the support, or values that broadcast against targets.

        Args:
            like: the targets.
        """
        del like
        return next((value for value in (1.0, 0.5, 0.0, self.lower, self.upper) if self.contains(value)), math.nan)

    def check(self, y: Targets, name: str) -> None:
        """Raises a ValueError, which names the first invalid row, unless every target is in the support.

        Args:
            y: targets, leading axis `batch`.
            name: the name of the likelihood, for the message.

        Examples:
            >>> from lamu.supports import Counts
            >>> Counts().check([3.0, 1.0], "Poisson")
        """
        if isinstance(y, Mapping):
            raise ValueError(
                f"the targets are a mapping of {', '.join(map(repr, y))} without 'value', and {name} takes "
                f"{self.values}; give them under 'value', several numbers of a row side by side"
            )
        y = np.asarray(y)
        if not (np.issubdtype(y.dtype, np.number) or y.dtype == bool or jnp.issubdtype(y.dtype, jnp.floating)):
            raise ValueError(
                f"the target {y.ravel()[:1].tolist()} is not a number, and {name} takes {self.values}; {self.advice}"
            )
        inside = np.asarray(self.contains(y))
        if not inside.all():
            row = np.argwhere(~inside)[0, 0]
            raise ValueError(
                f"the target in row {row} is {y[~inside].ravel()[0]!s}, and {name} takes {self.values}; {self.advice}"
            )

    def probabilities(self, mean: Rows) -> Rows:
        """Returns the probabilities of the classes, `[N, classes]`.

        Args:
            mean: the mean of a prediction.

        Raises:
            TypeError: where a target is a number.
        """
        del mean
        raise TypeError("a regression has no class probabilities; use mean, variance and interval")

    def labels(self, mean: Rows) -> Rows:
        """Returns the most probable class of each row, `[N]`; for numbers the mean.

        Args:
            mean: the mean of a prediction.
        """
        return mean

    def numbers(self, y: Targets) -> Targets:
        """Returns targets with classes numbered from zero, as in predictions.

        Args:
            y: targets in the support.
        """
        return y

    def targets(self, numbers: Targets) -> Targets:
        """Returns the targets of class numbers, the inverse of `numbers`.

        Args:
            numbers: the class numbers.
        """
        return numbers

    def indicators(self, y: Targets, mean: Rows) -> Array:
        """Returns targets in the shape and dtype of `mean`, their average: for classes one-hot vectors.

        Args:
            y: targets.
            mean: the mean of a prediction.
        """
        return jnp.asarray(y).astype(mean.dtype)

    def shape(self, mean: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the targets.

        Args:
            mean: the shape of the mean of a prediction.
        """
        return mean

    def zeros(self, rows: int) -> Array:
        """Returns targets of zeros in the support's dtype, `[rows]`, for shapes.

        Args:
            rows: the number of rows.
        """
        return jnp.zeros(rows, jnp.result_type(float))


@record
class Real(Support):
    """All numbers.

    Examples:
        >>> from lamu.supports import Real
        >>> Real().contains([0.5, -2.0]).tolist()
        [True, True]
    """

    affine = True
    values = "finite numbers"
    advice = "leave the row out; classes go with Categorical or Bernoulli once they are encoded as integers"


@record
class PositiveReal(Support):
    """Numbers above zero.

    Attributes:
        zero: whether zero is included.

    Examples:
        >>> from lamu.supports import PositiveReal
        >>> PositiveReal().contains([0.0, 2.0]).tolist()
        [False, True]
    """

    zero: bool = static(default=False)

    lower = 0.0

    @property
    def values(self) -> str:
        """The values in words."""
        return "numbers from 0" if self.zero else "numbers above 0"

    def contains(self, y: Targets) -> Targets:
        """Returns whether the targets are positive and finite."""
        return np.isfinite(y) & (np.greater_equal(y, 0) if self.zero else np.greater(y, 0))


@record
class Interval(Support):
    """Numbers between two bounds, both included, in the units of the target, which is therefore not standardised.

    Attributes:
        least: the lower bound; −∞ for none.
        most: the upper bound; ∞ for none.

    Examples:
        >>> from lamu.supports import Interval
        >>> Interval(least=0.0).contains([-1.0, 0.0, 2.0]).tolist()
        [False, True, True]
    """

    least: float = static(default=-math.inf)
    most: float = static(default=math.inf)

    @property
    def lower(self) -> float:
        return self.least

    @property
    def upper(self) -> float:
        return self.most

    @property
    def values(self) -> str:
        """The values in words."""
        if math.isinf(self.least):
            return "finite numbers" if math.isinf(self.most) else f"numbers up to {self.most:g}"
        return f"numbers from {self.least:g}" + ("" if math.isinf(self.most) else f" to {self.most:g}")


@record
class UnitInterval(Support):
    """Numbers between zero and one, both excluded.

    Examples:
        >>> from lamu.supports import UnitInterval
        >>> UnitInterval().contains([0.0, 0.3]).tolist()
        [False, True]
    """

    lower = 0.0
    upper = 1.0
    values = "numbers strictly between 0 and 1"

    def contains(self, y: Targets) -> Targets:
        """Returns whether the targets lie between zero and one."""
        return np.greater(y, 0) & np.less(y, 1)


@record
class Circle(Support):
    """Angles in radians, any number; those that differ by 2π are the same.

    Examples:
        >>> from lamu.supports import Circle
        >>> Circle().circular, Circle().ordered
        (True, False)
    """

    circular = True
    ordered = False
    values = "angles in radians"


@record
class Counts(Support):
    """Whole numbers from zero.

    Attributes:
        most: the largest; None where there is none.

    Examples:
        >>> from lamu.supports import Counts
        >>> Counts(most=3).contains([0, 1.5, 4]).tolist()
        [True, False, False]
    """

    most: int | None = static(default=None)

    discrete = True
    lower = 0.0

    @property
    def upper(self) -> float:
        return math.inf if self.most is None else float(self.most)

    @property
    def values(self) -> str:
        """The values in words."""
        return "whole numbers from 0" + ("" if self.most is None else f" to {self.most}")


@record
class TwoClasses(Support):
    """Zero or one. The mean of a prediction is the probability of one, `[N]`.

    Examples:
        >>> import numpy as np
        >>> from lamu.supports import TwoClasses
        >>> TwoClasses().probabilities(np.array([0.25])).tolist()
        [[0.75, 0.25]]
    """

    has_classes = True
    discrete = True
    ordered = False
    task = "binary"
    values = "0 and 1"
    advice = (
        "encode the two classes, for instance with names, y = np.unique(y, return_inverse=True), or use "
        "Categorical if there are more"
    )

    def contains(self, y: Targets) -> Targets:
        return np.equal(y, 0) | np.equal(y, 1)

    def probabilities(self, mean: Rows) -> Rows:
        """Returns the probabilities of zero and of one, `[N, 2]`."""
        stack = jnp.stack if isinstance(mean, jax.Array) else np.stack
        return stack([1 - mean, mean], axis=-1)

    def labels(self, mean: Rows) -> Rows:
        """Returns one where its probability is above one half, else zero."""
        return mean > 0.5

    def zeros(self, rows: int) -> Array:
        return jnp.zeros(rows, jnp.int32)


@record
class Signs(TwoClasses):
    """Minus one or one. The mean of a prediction is the probability of one, `[N]`.

    Examples:
        >>> from lamu.supports import Signs
        >>> Signs().contains([-1, 0, 1]).tolist()
        [True, False, True]
    """

    values = "-1 and 1"
    advice = "encode the two classes as -1 and 1, for instance 2 * y - 1, or take a link other than Tanh"

    def contains(self, y: Targets) -> Targets:
        return np.equal(y, -1) | np.equal(y, 1)

    def indicators(self, y: Targets, mean: Rows) -> Array:
        """Returns one where the target is one, else zero."""
        return (jnp.asarray(y) > 0).astype(mean.dtype)

    def numbers(self, y: Targets) -> Targets:
        """Returns zero instead of minus one."""
        where = jnp.where if isinstance(y, jax.Array) else np.where
        return where(y == -1, 0, y)

    def targets(self, numbers: Targets) -> Targets:
        """Returns minus one instead of zero."""
        return 2 * numbers - 1

    def zeros(self, rows: int) -> Array:
        """Returns integer ones, as zero is not in the support."""
        return jnp.ones(rows, jnp.int32)


@record
class Classes(Support):
    """One of several classes, numbered from zero. The mean of a prediction is their probabilities, `[N, number]`.

    Attributes:
        number: the number of classes.

    Examples:
        >>> import numpy as np
        >>> from lamu.supports import Classes
        >>> Classes(3).labels(np.array([[0.2, 0.5, 0.3]])).tolist()
        [1]
    """

    number: int = static()

    has_classes = True
    discrete = True
    ordered = False
    task = "classes"

    @property
    def values(self) -> str:
        """The values in words."""
        return f"whole numbers from 0 to {self.number - 1}"

    advice = (
        "encode the classes, for instance with names, y = np.unique(y, return_inverse=True), and leave out rows "
        "without a class, which -100 or 255 may mark"
    )

    def contains(self, y: Targets) -> Targets:
        return np.isin(y, np.arange(self.number))

    def probabilities(self, mean: Rows) -> Rows:
        return mean

    def labels(self, mean: Rows) -> Rows:
        return mean.argmax(axis=-1)

    def indicators(self, y: Targets, mean: Rows) -> Array:
        """Returns one-hot vectors, `[N, number]`."""
        return jax.nn.one_hot(y, mean.shape[-1], dtype=mean.dtype)

    def shape(self, mean: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of the class numbers."""
        return mean[:-1]

    def zeros(self, rows: int) -> Array:
        return jnp.zeros(rows, jnp.int32)


@record
class OrderedClasses(Classes):
    """One of several classes that have an order, as grades do.

    Attributes:
        number: the number of classes.

    Examples:
        >>> from lamu.supports import OrderedClasses
        >>> OrderedClasses(5).ordered
        True
    """

    ordered = True


@record
class Rankings(Support):
    """Orders of several items, best first: `[N, items]`, each row a permutation of 0 to items − 1.

    Attributes:
        items: the number of items.

    Examples:
        >>> from lamu.supports import Rankings
        >>> Rankings(3).contains([[2, 0, 1], [0, 0, 1]])[:, 0].tolist()
        [True, False]
    """

    items: int = static()

    discrete = True
    ordered = False

    @property
    def values(self) -> str:
        """The values in words."""
        return f"orders of the numbers 0 to {self.items - 1}, best first"

    def contains(self, y: Targets) -> Targets:
        """Returns, for every entry, whether its row is a permutation."""
        y = np.asarray(y)
        is_permutation = np.all(np.sort(y, axis=-1) == np.arange(self.items), axis=-1, keepdims=True)
        return np.broadcast_to(is_permutation, y.shape)

    def some(self, like: Targets) -> Targets:
        return np.arange(self.items)


class OpenRange:
    """Maps an open interval of numbers to the real line, by a logarithm or by log odds.

    Args:
        lower: the lower bound; −∞ for none.
        upper: the upper bound; ∞ for none.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.supports import OpenRange
        >>> OpenRange(0.0, 1.0).of(jnp.array(0.5)).tolist(), OpenRange(0.0, jnp.inf).value(jnp.array(0.0)).tolist()
        (0.0, 1.0)
    """

    def __init__(self, lower: float, upper: float) -> None:
        self.lower, self.upper = lower, upper
        self.ends = math.isfinite(lower), math.isfinite(upper)

    def of(self, y: Array) -> Array:
        """Returns the real numbers for numbers in the interval."""
        tiny = jnp.finfo(y.dtype).tiny
        above = jnp.maximum(y - self.lower, tiny) if self.ends[0] else y
        below = jnp.maximum(self.upper - y, tiny) if self.ends[1] else y
        if all(self.ends):
            return jnp.log(above) - jnp.log(below)
        return jnp.log(above) if self.ends[0] else -jnp.log(below) if self.ends[1] else y

    def value(self, z: Array) -> Array:
        """Returns the numbers in the interval for real numbers, clipped to those representable in the dtype."""
        dtype = jnp.finfo(z.dtype)
        if all(self.ends):
            share = jnp.clip(jax.nn.sigmoid(z), dtype.tiny, 1.0 - dtype.eps)
            return self.lower + (self.upper - self.lower) * share
        distance = jnp.exp(jnp.clip(z if self.ends[0] else -z, math.log(dtype.tiny), math.log(dtype.max) - 1.0))
        return self.lower + distance if self.ends[0] else self.upper - distance if self.ends[1] else z

    def log_slope(self, z: Array) -> Array:
        """Returns the logarithm of the slope of `value`."""
        if all(self.ends):
            return math.log(self.upper - self.lower) - jax.nn.softplus(z) - jax.nn.softplus(-z)
        return z if self.ends[0] else -z if self.ends[1] else jnp.zeros_like(z)


def value_of(y: Targets) -> Targets:
    """Returns the values of targets, where rows have more, such as trials.

    Args:
        y: targets, or arrays by name with `"value"` among them.

    Examples:
        >>> from lamu.supports import value_of
        >>> value_of({"value": [3.0], "trials": [5.0]}), value_of([1.0])
        ([3.0], [1.0])
    """
    return y["value"] if isinstance(y, Mapping) and "value" in y else y
