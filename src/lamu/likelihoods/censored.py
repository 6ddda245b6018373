r"""Targets of which some rows say only that they lie beyond, or between, known numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.wrapper import LikelihoodWrapper
from lamu.record import record
from lamu.supports import Interval, Support
from lamu.typing import Array, Params

__all__ = ["IntervalCensored", "LeftCensored", "RightCensored"]


class _Censored(LikelihoodWrapper):
    """What the three have in common: all but the density is the base's, of the target that censoring hides."""

    base: Likelihood
    second: str  # what rows bring beside their value

    quadratic = False
    takes_trials = False
    check_training = Likelihood.check_training  # of a censored row the base knows no value

    def distribution(self, params: Params, f: Array) -> None:
        """Returns None: the density is not the base's."""
        return

    def marginal(self, params: Params, mean: Array, covariance: Array) -> None:
        """Returns None: a censored row has no Gaussian density."""
        return

    def __post_init__(self) -> None:
        if not self.base.support.ordered:
            raise ValueError(
                f"{type(self).__name__} takes a likelihood of numbers, or of classes with an order, and "
                f"{self.base.name} takes {self.base.support.values}, of which none is beyond another; give Weibull() "
                "or Gaussian(), for instance"
            )

    @property
    def name(self) -> str:
        """The kind of censoring, and the base."""
        return f"{type(self).__name__}({self.base.name})"

    @property
    def support(self) -> Support:
        """The base's, which cannot be standardised: limits have the target's units."""
        return Interval() if self.base.support.affine else self.base.support

    def split(self, y: Any) -> tuple[Any, Any]:
        """Returns the value of each row and what it brings beside it, None for plain targets.

        Args:
            y: targets, an array or a mapping.

        Raises:
            ValueError: for a mapping of other names.
        """
        if not isinstance(y, Mapping):
            return y, None
        if set(y) != {"value", self.second}:
            raise ValueError(
                f"the targets bring {sorted(y)}, and {self.name} takes 'value' and {self.second!r}; rename them"
            )
        return y["value"], y[self.second]

    def outputs(self, y: Any) -> int:
        return self.base.outputs(self.split(y)[0])

    def init(self, y: Any) -> Params:
        """Returns the base's first dispersions, for the values as if they were targets."""
        return self.base.init(self.split(y)[0])

    def log_prob(self, params: Params, f: Array, y: Any) -> Array:
        """Returns the log density, or the log probability of what a censored row says, in nats, `[batch]`."""
        value, second = self.split(y)
        if second is None:
            return self.base.log_prob(params, f, value)
        return self.of_rows(params, f, jnp.asarray(value).astype(f.dtype), jnp.asarray(second))

    @abstractmethod
    def of_rows(self, params: Params, f: Array, value: Array, second: Array) -> Array:
        """Returns the log density of rows with what they bring beside their value."""

    def counted(self, params: Params, f: Array, y: Any, weights: Array) -> Array:
        r"""Returns the weights times \(-\partial_f^2 \log p(y_i \mid f_i) / \Lambda_i\), of each row, `[batch]`.

        The expected information of a study depends on when each of its rows would have been censored, which is not
        known of those that were not. The observed one is what these rows tell, and has the right expectation. Where a
        row has several outputs, or the base is not log-concave, a row counts its weight.
        """
        if self.split(y)[1] is None or f.shape[1] != 1 or not self.base.log_concave:
            return weights
        slope = jax.grad(lambda f: jnp.sum(self.log_prob(params, f, y)))
        observed = -jax.jvp(slope, (f,), (jnp.ones_like(f),))[1][:, 0]
        expected = self.base.information_diagonal(params, f)[:, 0]
        share = jnp.maximum(observed, 0.0) / jnp.maximum(expected, jnp.finfo(f.dtype).tiny)
        counts = weights * jax.lax.stop_gradient(share).astype(weights.dtype)
        return jnp.where(weights > 0, counts, jnp.zeros_like(counts))  # in padding there may be no number


class _OneSided(_Censored):
    """Rows with an indicator."""

    second = "censored"

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the base takes the values, and indicators are 0 or 1."""
        value, censored = self.split(y)
        _one_value(value, self.name)
        self.base.check(value)
        if censored is None:
            return
        censored = np.asarray(censored)
        if censored.shape != np.shape(value):
            raise ValueError(
                f"there are values of shape {np.shape(value)}, and indicators of {censored.shape}; give the same"
            )
        wrong = ~((censored == 0) | (censored == 1))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"the indicator 'censored' of row {row} is {censored[row]!s}; give 1 where a row is censored, else 0"
            )
        self.check_censored(np.asarray(value), censored == 1)

    def check_censored(self, value: np.ndarray, censored: np.ndarray) -> None:
        """Raises a ValueError where a censored row says what cannot be; nothing, unless overridden."""


@record
class RightCensored(_OneSided):
    """A base whose rows may say only that the target is above a value: a study that ended, a meter at its end.

    The targets are `{"value": [batch], "censored": [batch]}`, with 1 where the target is above the value and 0 where it
    is the value; a plain array has no row censored. Everything that a prediction says is about the target itself. A
    censored row counts with the information that it has (`counted`).

    Attributes:
        base: a likelihood of one number a row, such as `Gaussian` or `Weibull`.

    Raises:
        ValueError: for a base whose targets have no order.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gaussian, RightCensored
        >>> y = {"value": jnp.array([0.0, 40.0]), "censored": jnp.array([1, 1])}
        >>> RightCensored(Gaussian(1.0)).log_prob({}, jnp.zeros((2, 1)), y).round(3).tolist()
        [-0.693..., -804.60...]
    """

    base: Likelihood

    def check_censored(self, value: np.ndarray, censored: np.ndarray) -> None:
        """Raises a ValueError where a row is above the largest value."""
        wrong = censored & (value >= self.support.upper)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"row {row} is above {value[row]!s}, and {self.name} takes {self.support.values}; give a smaller "
                "value, or 0 for its indicator"
            )

    def of_rows(self, params: Params, f: Array, value: Array, second: Array) -> Array:
        """Returns log P(Y > value) where a row is censored."""
        return jnp.where(second > 0, self.base.log_survival(params, f, value), self.base.log_prob(params, f, value))


@record
class LeftCensored(_OneSided):
    """A base whose rows may say only that the target is at most a value: a concentration below what can be measured.

    The targets are `{"value": [batch], "censored": [batch]}`, with 1 where the target is at most the value and 0 where
    it is the value; a plain array has no row censored. Everything else is as for `RightCensored`.

    Attributes:
        base: a likelihood of one number a row, such as `Gaussian` or `Weibull`.

    Raises:
        ValueError: for a base whose targets have no order.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gaussian, LeftCensored
        >>> y = {"value": jnp.array([0.0]), "censored": jnp.array([1])}
        >>> LeftCensored(Gaussian(1.0)).log_prob({}, jnp.zeros((1, 1)), y).round(3).tolist()
        [-0.693...]
    """

    base: Likelihood

    def of_rows(self, params: Params, f: Array, value: Array, second: Array) -> Array:
        """Returns log P(Y ≤ value) where a row is censored."""
        return jnp.where(second > 0, self.base.log_cdf(params, f, value), self.base.log_prob(params, f, value))


@record
class IntervalCensored(_Censored):
    """A base whose rows say that the target lies between two values: an age in years, a visit before and one after.

    The targets are `{"value": [batch], "upper": [batch]}`: the target is above the value and at most `upper`, and is
    the value itself where both are the same. Everything else is as for `RightCensored`.

    Attributes:
        base: a likelihood of one number a row, such as `Gaussian` or `Weibull`.

    Raises:
        ValueError: for a base whose targets have no order.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gaussian, IntervalCensored
        >>> y = {"value": jnp.array([-1.0, 40.0]), "upper": jnp.array([1.0, 41.0])}
        >>> IntervalCensored(Gaussian(1.0)).log_prob({}, jnp.zeros((2, 1)), y).round(3).tolist()
        [-0.38..., -804.60...]
    """

    base: Likelihood

    second = "upper"

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the base takes both ends, and they are in order."""
        value, upper = self.split(y)
        _one_value(value, self.name)
        self.base.check(value)
        if upper is None:
            return
        self.base.check(upper)
        value, upper = np.asarray(value), np.asarray(upper)
        if value.shape != upper.shape:
            raise ValueError(f"there are values of shape {value.shape}, and upper ends of {upper.shape}; give the same")
        if (upper < value).any():
            row = int(np.argmax(upper < value))
            raise ValueError(f"row {row} is between {value[row]!s} and {upper[row]!s}; give the smaller one first")

    def of_rows(self, params: Params, f: Array, value: Array, second: Array) -> Array:
        """Returns log P(value < Y ≤ upper), or the log density where both are the same."""
        upper = second.astype(f.dtype)
        wide = upper > value
        within = self.base.log_interval(params, f, value, jnp.where(wide, upper, value + 1.0))
        return jnp.where(wide, within, self.base.log_prob(params, f, value))


def _one_value(value: Any, name: str) -> None:
    if np.ndim(value) != 1:
        raise ValueError(f"the values have shape {np.shape(value)}; {name} takes one number a row, of shape [batch]")
