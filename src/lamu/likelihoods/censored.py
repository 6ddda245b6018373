"""Likelihoods of censored targets, which for some rows are only known to lie beyond, or between, given numbers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from lamu.families.special import log_normal_cdf, log_normal_interval, log_normal_pdf
from lamu.likelihoods.bases import DispersionPrior, LearnedScale, LogNormalDispersion
from lamu.likelihoods.interface import Likelihood, LikelihoodWrapper
from lamu.record import record, static
from lamu.supports import Interval, Support
from lamu.typing import Array, Number, Params, PyTree, RandomKey, Targets

__all__ = ["IntervalCensored", "LeftCensored", "RightCensored", "Tobit"]


_LOG_ROOT = 0.5 * math.log(2 * math.pi)


@record
class Tobit(LearnedScale):
    r"""The Tobit model: a normal target censored at one or two limits, the same for all rows. Log-concave in f.

    A target at a limit has the probability of all values beyond it, another one the normal density. Mean, variance,
    entropy and draws are those of the recorded target; f is the mean of the latent normal one. For limits that differ
    between rows use `RightCensored`, `LeftCensored` or `IntervalCensored`.

    Attributes:
        lower: l; −∞ for none.
        upper: u; ∞ for none.
        scale: σ in the target's units; None where it is learned, as `params["log_scale"]`, `[outputs]`.
        scale_prior: the prior of a learned σ.

    Raises:
        ValueError: if the limits are out of order, or the scale is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Tobit
        >>> Tobit(scale=1.0).mean({}, jnp.array([[0.0], [1e4]])).round(4).tolist()
        [0.398..., 10000.0]
    """

    lower: float = static(default=0.0)
    upper: float = static(default=math.inf)
    scale: Number | None = None
    scale_prior: DispersionPrior = LogNormalDispersion()

    log_concave = True

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise ValueError(f"the limits {self.lower} and {self.upper} are out of order; give the lower one first")
        super().__post_init__()

    @property
    def support(self) -> Interval:
        """The numbers between the limits."""
        return Interval(self.lower, self.upper)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density, or the log probability of all values beyond a limit."""
        scale = self.dispersion(params, f)
        at_lower, at_upper = y <= self.lower, y >= self.upper
        z = (y - f) / scale
        beyond = log_normal_cdf(jnp.where(at_upper, -z, z))
        return jnp.where(at_lower | at_upper, beyond, log_normal_pdf(z) - jnp.log(scale))

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns the information about f, with the limits α and β in deviations.

        \[ \frac{1}{\sigma^2} \Big(\int_\alpha^\beta z^2 \phi\, dz
            + \phi(\alpha)^2/\Phi(\alpha) + \phi(\beta)^2/\Phi(-\beta)\Big) \]
        """
        a, b = self._limits(params, f)
        at_limits = jnp.exp(2 * log_normal_pdf(a) - log_normal_cdf(a)) + jnp.exp(
            2 * log_normal_pdf(b) - log_normal_cdf(-b)
        )
        return (jnp.maximum(_second(a, b), 0.0) + at_limits) / self.dispersion(params, f) ** 2

    def target_mean(self, params: Params, f: Array) -> Array:
        """Returns the mean of the recorded target."""
        a, b = self._limits(params, f)
        inner = f * _mass_between(a, b) + self.dispersion(params, f) * (_phi(a) - _phi(b))
        return inner + self._at(self.lower) * ndtr(a) + self._at(self.upper) * ndtr(-b)

    def target_variance(self, params: Params, f: Array) -> Array:
        """Returns the variance of the recorded target."""
        (a, b), scale = self._limits(params, f), self.dispersion(params, f)
        mean = self.target_mean(params, f)
        far = f - mean
        inner = far**2 * _mass_between(a, b) + 2 * far * scale * (_phi(a) - _phi(b)) + scale**2 * _second(a, b)
        atoms = (self._at(self.lower) - mean) ** 2 * ndtr(a) + (self._at(self.upper) - mean) ** 2 * ndtr(-b)
        return jnp.maximum(inner + atoms, 0.0)

    def target_entropy(self, params: Params, f: Array) -> Array:
        """Returns the entropy, of the density and of the two masses together."""
        a, b = self._limits(params, f)
        inner = (jnp.log(self.dispersion(params, f)) + _LOG_ROOT) * _mass_between(a, b) + 0.5 * _second(a, b)
        return inner - ndtr(a) * log_normal_cdf(a) - ndtr(-b) * log_normal_cdf(-b)

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns normal draws, clipped to the limits."""
        return jnp.clip(
            f + self.dispersion(params, f) * jax.random.normal(key, f.shape, f.dtype), self.lower, self.upper
        )

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the normal distribution function."""
        return ndtr((y - f) / self.dispersion(params, f))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the normal tails."""
        z = (y - f) / self.dispersion(params, f)
        return log_normal_cdf(z), log_normal_cdf(-z)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns the log probability of the latent normal interval, where all beyond a limit belongs to the limit."""
        beyond = jnp.asarray(2.0 * jnp.finfo(f.dtype).max ** 0.25, f.dtype)  # beyond any representable deviation
        a, b = (jnp.reshape(end, f.shape).astype(f.dtype) for end in (lower, upper))
        scale = self.dispersion(params, f)
        a = jnp.where(a < self.lower, -beyond, (a - f) / scale)
        b = jnp.where(b >= self.upper, beyond, (b - f) / scale)
        log_probability = log_normal_interval(a, jnp.where(b > a, b, a + 1.0))
        return jnp.where(b > a, log_probability, -jnp.inf)[:, 0]

    def _limits(self, params: Params, f: Array) -> tuple[Array, Array]:
        """Returns the limits in standard deviations from f; a missing limit is replaced by a very distant one."""
        scale = self.dispersion(params, f)
        a = jnp.full_like(f, -1e8) if math.isinf(self.lower) else (self.lower - f) / scale
        b = jnp.full_like(f, 1e8) if math.isinf(self.upper) else (self.upper - f) / scale
        return a, b

    def _at(self, limit: float) -> float:
        return 0.0 if math.isinf(limit) else limit


def _phi(x: Array) -> Array:
    return jnp.exp(log_normal_pdf(x))


def _mass_between(a: Array, b: Array) -> Array:
    """Returns Φ(b) − Φ(a), computed in the smaller tail."""
    return jnp.where(a + b > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))


def _second(a: Array, b: Array) -> Array:
    """Returns ∫ z² φ dz from a to b."""
    return _mass_between(a, b) - (b * _phi(b) - a * _phi(a))


class _Censored(LikelihoodWrapper):
    """Base class of censored likelihoods: all but the density is the base's, for the uncensored target."""

    base: Likelihood
    second: str  # the name of the rows' second entry

    quadratic = False
    takes_trials = False
    check_training = Likelihood.check_training  # the base has no value for a censored row

    distribution, marginal = Likelihood.distribution, Likelihood.marginal  # the base's are for another target

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
        """The base's, without standardisation, since limits have the target's units."""
        return Interval() if self.base.support.affine else self.base.support

    def split(self, y: Targets) -> tuple[Targets, Targets]:
        """Returns the value and the second entry of each row, None for plain targets.

        Args:
            y: targets, an array or a mapping.

        Raises:
            ValueError: for a mapping of other names.
        """
        return self._split_targets(y, self.second)

    def outputs(self, y: Targets) -> int:
        return self.base.outputs(self.split(y)[0])

    def init(self, y: Targets) -> Params:
        """Returns the base's initial dispersions, from the values as if they were targets."""
        return self.base.init(self.split(y)[0])

    def log_prob(self, params: Params, f: Array, y: Targets) -> Array:
        """Returns the log density, or the log probability of a censored row, in nats, `[batch]`."""
        value, second = self.split(y)
        if second is None:
            return self.base.log_prob(params, f, value)
        return self.of_rows(params, f, jnp.asarray(value).astype(f.dtype), jnp.asarray(second))

    def of_rows(self, params: Params, f: Array, value: Array, second: Array) -> Array:
        """Returns the log density of rows with a second entry."""
        raise NotImplementedError

    def counted(self, params: Params, f: Array, y: Targets, weights: Array) -> Array:
        r"""Returns the weights times \(-\partial_f^2 \log p(y_i \mid f_i) / \Lambda_i\), of each row, `[batch]`.

        The expected information of a study depends on the censoring times of all rows, which are unknown for uncensored
        ones. The observed information has the right expectation. Where a row has several outputs, or the base is not
        log-concave, the weight itself is returned.
        """
        if self.split(y)[1] is None or f.shape[1] != 1 or not self.base.log_concave:
            return weights
        slope = jax.grad(lambda f: jnp.sum(self.log_prob(params, f, y)))
        observed = -jax.jvp(slope, (f,), (jnp.ones_like(f),))[1][:, 0]
        expected = self.base.information_diagonal(params, f)[:, 0]
        share = jnp.maximum(observed, 0.0) / jnp.maximum(expected, jnp.finfo(f.dtype).tiny)
        counts = weights * jax.lax.stop_gradient(share).astype(weights.dtype)
        return jnp.where(weights > 0, counts, jnp.zeros_like(counts))  # padded rows may be NaN


class _OneSided(_Censored):
    """Base class for rows with an indicator of censoring."""

    second = "censored"

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the base accepts the values, and indicators are 0 or 1."""
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
        """Raises a ValueError where a censored row is impossible; by default no check."""


@record
class RightCensored(_OneSided):
    """A base likelihood with right-censored rows, such as survival times at the end of a study.

    The targets are `{"value": [batch], "censored": [batch]}`, with 1 where the target is above the value and 0 where it
    equals the value; a plain array has no censored rows. Predictions are of the uncensored target. A censored row
    counts by its observed information (`counted`).

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
    """A base likelihood with left-censored rows, such as concentrations below a detection limit.

    The targets are `{"value": [batch], "censored": [batch]}`, with 1 where the target is at most the value and 0 where
    it equals the value; a plain array has no censored rows. All else is as for `RightCensored`.

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
    """A base likelihood with interval-censored rows, such as an event between two visits.

    The targets are `{"value": [batch], "upper": [batch]}`: the target is above the value and at most `upper`, and
    equals the value where both are the same. All else is as for `RightCensored`.

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

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the base accepts both ends, and they are in order."""
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


def _one_value(value: PyTree, name: str) -> None:
    if np.ndim(value) != 1:
        raise ValueError(f"the values have shape {np.shape(value)}; {name} takes one number a row, of shape [batch]")
