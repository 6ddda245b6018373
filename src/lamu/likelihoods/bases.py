"""Bases of likelihoods: independent targets, and dispersions, given or learned as logarithms with a prior."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from lamu.base.arguments import require_positive, whole
from lamu.likelihoods.interface import Likelihood, LikelihoodWrapper
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Number, Params, RandomKey, Targets

__all__ = [
    "Dispersed",
    "DispersionPrior",
    "FixedDispersion",
    "GammaDispersion",
    "GammaPowerLaw",
    "IndependentTargets",
    "LogNormalDispersion",
    "PerPosition",
    "target_of",
]


class IndependentTargets(Likelihood):
    """Base class of likelihoods with one target for each output, independent given f."""

    # The targets are `[batch]` for one output and `[batch, outputs]` for several. A subclass defines these methods,
    # whose arguments all have the shape `[batch, outputs]`; those that may return None where there is a formula. Where
    # a target has several outputs, it overrides `targets_shape`.

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log p(y_k | f_k) in nats."""
        raise NotImplementedError

    def target_information(self, params: Params, f: Array) -> Array:
        """Returns the Fisher information of each target about its output."""
        raise NotImplementedError

    def target_mean(self, params: Params, f: Array) -> Array:
        """Returns the means."""
        raise NotImplementedError

    def target_variance(self, params: Params, f: Array) -> Array:
        """Returns the variances."""
        raise NotImplementedError

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw of each target."""
        raise NotImplementedError

    def target_entropy(self, params: Params, f: Array) -> Array | None:
        """Returns the entropies in nats; None without a formula, for an average over draws."""
        del params, f

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array | None:
        """Returns P(Y_k ≤ y_k) for targets in the support, from `target_log_tails`; None without a formula."""
        tails = self.target_log_tails(params, f, y)
        return None if tails is None else jnp.exp(tails[0])

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array] | None:
        """Returns log P(Y_k ≤ y_k) and log P(Y_k > y_k) for targets in the support; None without a formula."""
        del params, f, y

    def targets_shape(self, f: Array) -> tuple[int, ...]:
        """Returns `[batch, targets]`; by default the shape of f."""
        return f.shape

    # Derived from the above.

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are in the support, `[batch]` or `[batch, outputs]`."""
        shape = np.shape(y)
        if len(shape) not in (1, 2):
            raise ValueError(f"the targets have shape {shape}; {self.name} takes [batch] or [batch, outputs]")
        if len(shape) == 2 and shape[1] == 1:
            raise ValueError(f"the targets have shape {shape}, a single column; pass y[:, 0], of shape [batch]")
        self.support.check(y, self.name)

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\sum_k \log p(y_k \mid f_k)\) in nats, `[batch]`."""
        return jnp.sum(self.target_log_prob(params, f, self._columns(y, f)), axis=-1)

    def information(self, params: Params, f: Array) -> Array:
        """Returns the weights on a diagonal, `[batch, outputs, outputs]`."""
        return self.target_information(params, f)[:, :, None] * jnp.eye(f.shape[-1], dtype=f.dtype)[None]

    def information_root(self, params: Params, f: Array) -> Array:
        """Returns the roots of the weights on a diagonal."""
        return jnp.sqrt(self.target_information(params, f))[:, :, None] * jnp.eye(f.shape[-1], dtype=f.dtype)[None]

    def information_diagonal(self, params: Params, f: Array) -> Array:
        return self.target_information(params, f)

    def mean(self, params: Params, f: Array) -> Array:
        return target_of(self.target_mean(params, f))

    def variance(self, params: Params, f: Array) -> Array:
        """Returns the variances in the target's shape."""
        return target_of(self.target_variance(params, f))

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns the sum of the entropies in nats, `[batch]`."""
        entropies = self.target_entropy(params, f)
        return super().entropy(params, f) if entropies is None else jnp.sum(entropies, axis=-1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        return target_of(jax.lax.stop_gradient(self.target_sample(key, params, f)).astype(f.dtype))

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y_k ≤ y_k | f_k), output by output, in the target's shape."""
        ends, y = self.support, self._columns(y, f)
        inside = self.target_cdf(params, f, jnp.clip(jnp.floor(y) if ends.discrete else y, ends.lower, ends.upper))
        if inside is None:
            return super().cdf(params, f, target_of(y))
        return target_of(jnp.where(y < ends.lower, 0.0, jnp.where(y >= ends.upper, 1.0, inside)))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns log P(Y_k ≤ y_k | f_k) and log P(Y_k > y_k | f_k), output by output, in the target's shape."""
        ends, y = self.support, self._columns(y, f)
        some = jnp.clip(jnp.floor(y) if ends.discrete else y, ends.lower, ends.upper)
        logs = self.target_log_tails(params, f, jnp.where(jnp.isfinite(some), some, 1.0))
        if logs is None:
            return super().log_tails(params, f, target_of(y))
        below = jnp.where(y < ends.lower, -jnp.inf, jnp.where(y >= ends.upper, 0.0, logs[0]))
        above = jnp.where(y < ends.lower, 0.0, jnp.where(y >= ends.upper, -jnp.inf, logs[1]))
        return target_of(below), target_of(above)

    def _columns(self, y: Array, f: Array) -> Array:
        """Returns the targets as `[batch, targets]`, by a reshape, so that another size is an error."""
        return jnp.reshape(y, self.targets_shape(f)).astype(f.dtype)


def target_of(columns: Array) -> Array:
    """Returns `[batch, targets]` in the target's shape."""
    return columns[:, 0] if columns.shape[-1] == 1 else columns


@record
class PerPosition(LikelihoodWrapper):
    r"""A target at every position of a row, pixels or steps, independent given f, for dense prediction.

    \[ \log p(y \mid f) = \sum_p \log p_0(y_p \mid f_p) \]

    Targets are `[batch, *positions]`, outputs `[batch, positions * K]` with the K outputs of the base for one position
    after the other, as `networks.UNet` and `networks.EveryStep` return them. Dispersions are the base's, shared by all
    positions. The mean and the uncertainty of a prediction are maps, `[N, *positions]`, for classes
    `[N, *positions, K]`. The density is one number a row.

    Positions of one row are not independent rows: a likelihood of 576 pixels has 576 times the weight of one label
    relative to the prior.

    Attributes:
        base: p₀, a likelihood of one value a row.
        positions: the shape of the targets of one row, `(height, width)` or `(steps,)`.

    Raises:
        ValueError: for positions that are not positive integers.
        TypeError: for a base that is not a likelihood.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical, PerPosition
        >>> pixels = PerPosition(Categorical(3), (4, 4))
        >>> f = jnp.zeros((2, 48))
        >>> pixels.mean({}, f).shape, pixels.entropy({}, f).shape
        ((2, 4, 4, 3), (2, 4, 4))
        >>> round(float(pixels.log_prob({}, f, jnp.ones((2, 4, 4), int))[0]), 3)  # 16 log(1/3)
        -17.578
    """

    base: Likelihood | Any
    positions: tuple[int, ...] = static()

    def __post_init__(self) -> None:
        sizes = tuple(map(whole, self.positions))
        if not isinstance(self.base, Likelihood):
            raise TypeError(f"the base is {self.base!r}; give one of lamu.likelihoods, for instance Categorical(10)")
        if not sizes or any(size is None or size < 1 for size in sizes):
            raise ValueError(
                f"positions={self.positions} have no targets; give the shape of one row's, for instance (28, 28)"
            )
        object.__setattr__(self, "positions", sizes)

    @property
    def name(self) -> str:
        return f"PerPosition({self.base.name})"

    @property
    def n_positions(self) -> int:
        """The number of positions."""
        return math.prod(self.positions)

    @property
    def of_position(self) -> Likelihood:
        return self.base

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are `[batch, *positions]`, and the base accepts each."""
        shape = np.shape(y)
        if shape[1:] != self.positions:
            raise ValueError(
                f"the targets have shape {shape}; {self.name} takes [batch, {', '.join(map(str, self.positions))}]"
            )
        self.support.check(y, self.name)
        self.base.check(np.reshape(y, -1))

    def outputs(self, y: Targets) -> int:
        return self.n_positions * self._width

    def output_scales(self, width: int) -> tuple[str, ...]:
        return self.base.output_scales(width // self.n_positions) * self.n_positions

    def output_start(self, mean: Array, f: Array) -> Array:
        """Returns the base's at each position."""
        return self.base.output_start(jnp.reshape(mean, (-1, 1)), f.reshape(self.n_positions, -1)).reshape(f.shape)

    def init(self, y: Targets) -> Params:
        """Returns the base's initial dispersions, from the targets at all positions."""
        return self.base.init(jnp.reshape(jnp.asarray(y), (-1,)))

    def dispersion_information(self, params: Params) -> Params:
        """Returns the base's information, summed over positions."""
        return jax.tree.map(lambda leaf: self.n_positions * leaf, self.base.dispersion_information(params))

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\sum_p \log p_0(y_p \mid f_p)\) in nats, `[batch]`."""
        each = self.base.log_prob(params, self._apart(f), self._rows(y, f))
        return jnp.sum(jnp.reshape(each, (f.shape[0], -1)), axis=1)

    def mean(self, params: Params, f: Array) -> Array:
        """Returns the base's means, `[batch, *positions]`, for classes `[batch, *positions, classes]`."""
        return self._together(self.base.mean(params, self._apart(f)))

    def variance(self, params: Params, f: Array) -> Array:
        """Returns the base's variances in the shape of the mean."""
        return self._together(self.base.variance(params, self._apart(f)))

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns the base's entropy of each position in nats, `[batch, *positions]`; its sum is that of a row."""
        return self._together(self.base.entropy(params, self._apart(f)))

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw of every target, `[batch, *positions]`."""
        return self._together(self.base.sample(key, params, self._apart(f)))

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y_p ≤ y_p | f_p), position by position, `[batch, *positions]`."""
        return self._together(self.base.cdf(params, self._apart(f), self._rows(y, f)))

    def _averaged(self, params: Params, f: Array) -> set[str]:
        return self.base._averaged(params, self._apart(f))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns log P(Y_p ≤ y_p | f_p) and log P(Y_p > y_p | f_p), position by position."""
        below, above = self.base.log_tails(params, self._apart(f), self._rows(y, f))
        return self._together(below), self._together(above)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns log P(lower_p < Y_p ≤ upper_p | f_p), position by position."""
        ends = self._rows(lower, f), self._rows(upper, f)
        return self._together(self.base.log_interval(params, self._apart(f), *ends))

    distribution, marginal = Likelihood.distribution, Likelihood.marginal  # the base's are for another target

    log_cdf, log_survival = Likelihood.log_cdf, Likelihood.log_survival
    counted, check_training = Likelihood.counted, Likelihood.check_training
    information_sum = Likelihood.information_sum
    takes_trials = False
    logits = False  # the softmax is over those of a position

    def information(self, params: Params, f: Array) -> Array:
        """Returns the base's information in blocks along the diagonal, `[batch, outputs, outputs]`."""
        return self._blocks(self.base.information(params, self._apart(f)), f)

    def information_blocks(self, params: Params, f: Array) -> Array:
        return self.base.information_blocks(params, self._apart(f))

    def information_root(self, params: Params, f: Array) -> Array:
        """Returns the base's roots in blocks along the diagonal."""
        return self._blocks(self.base.information_root(params, self._apart(f)), f)

    def information_diagonal(self, params: Params, f: Array) -> Array:
        return jnp.reshape(self.base.information_diagonal(params, self._apart(f)), f.shape)

    @property
    def _width(self) -> int:
        return self.base.outputs(self.support.zeros(1))

    def _apart(self, f: Array) -> Array:
        """Returns outputs with positions as rows, `[batch * positions, K]`."""
        return jnp.reshape(f, (f.shape[0] * self.n_positions, self._width))

    def _rows(self, y: Array, f: Array) -> Array:
        """Returns the targets with positions as rows, `[batch * positions]`."""
        return jnp.reshape(y, (f.shape[0] * self.n_positions,))

    def _together(self, values: Array) -> Array:
        """Returns values of positions as rows again, `[batch, *positions, ...]`."""
        return jnp.reshape(values, (values.shape[0] // self.n_positions, *self.positions, *values.shape[1:]))

    def _blocks(self, each: Array, f: Array) -> Array:
        """Returns matrices `[batch * positions, K, R]` as block-diagonal ones, `[batch, outputs, positions * R]`."""
        each = jnp.reshape(each, (f.shape[0], self.n_positions, *each.shape[1:]))
        apart = each[:, :, :, None, :] * jnp.eye(self.n_positions, dtype=f.dtype)[None, :, None, :, None]
        return jnp.reshape(apart, (f.shape[0], f.shape[1], -1))


class DispersionPrior(ABC):
    """Base class of priors of a positive dispersion, as densities of its logarithm."""

    _checks_arguments = True  # of constructors, by `record`

    @abstractmethod
    def log_prob(self, log_scale: Array) -> Array:
        """Returns the log density of each logarithm in nats, in its shape."""

    @abstractmethod
    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns draws of the logarithm."""


@record
class LogNormalDispersion(DispersionPrior):
    r"""A log-normal prior, \(\log s \sim N(0, \text{scale}^2)\): the default, weak for targets of order one.

    Attributes:
        scale: the standard deviation of log s.

    Raises:
        ValueError: if it is not positive and finite.

    Examples:
        >>> from lamu.likelihoods.bases import LogNormalDispersion
        >>> LogNormalDispersion().scale
        3.0
    """

    scale: Number = 3.0

    def __post_init__(self) -> None:
        require_positive("scale", self.scale, "give the standard deviation of the logarithm")

    def log_prob(self, log_scale: Array) -> Array:
        return jax.scipy.stats.norm.logpdf(log_scale, 0.0, self.scale)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return jnp.asarray(self.scale, dtype) * jax.random.normal(key, shape, dtype)


class GammaPowerLaw(DispersionPrior):
    """Base class of priors of a dispersion with a power that is Gamma(shape, rate) distributed."""

    shape: Number
    rate: Number
    power: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name, value in (("shape", self.shape), ("rate", self.rate)):
            require_positive(name, value, "give a number above 0")

    @property
    def typical(self) -> Number:
        """The dispersion at the mean of the power."""
        return (self.shape / self.rate) ** (1 / self.power)

    def log_prob(self, log_scale: Array) -> Array:
        """Returns the log density of the power plus the log Jacobian."""
        a, b = (jnp.asarray(value, log_scale.dtype) for value in (self.shape, self.rate))
        log_power = self.power * log_scale
        return a * jnp.log(b) - gammaln(a) + a * log_power - b * jnp.exp(log_power) + math.log(abs(self.power))

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns the logarithms of gamma draws, divided by the power."""
        a, b = (jnp.asarray(value, dtype) for value in (self.shape, self.rate))
        return (jax.random.loggamma(key, a, shape, dtype) - jnp.log(b)) / self.power


@record
class GammaDispersion(GammaPowerLaw):
    r"""A gamma prior, \(s \sim \mathrm{Gamma}(\text{shape}, \text{rate})\), with the Jacobian s of its logarithm.

    Attributes:
        shape: above zero.
        rate: above zero; the mean is shape / rate.

    Raises:
        ValueError: if one is not positive and finite.

    Examples:
        >>> import lamu
        >>> from lamu.likelihoods.bases import GammaDispersion
        >>> likelihood = lamu.likelihoods.Gaussian(scale_prior=GammaDispersion(2.0, 2.0))
    """

    shape: Number
    rate: Number


class Dispersed(IndependentTargets):
    """Base class of likelihoods with a positive dispersion for each output, given or learned with a prior."""

    # A subclass has two fields, the dispersion (`scale`) and the prior of a learned one (`scale_prior`), named by
    # `dispersed`, and a first guess from the targets (`guess`). The parameters are the logarithms, `[outputs]`.

    dispersed: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        require_positive(self.dispersed, self.given, "give a number above 0, or leave it out to learn it")

    @property
    def given(self) -> Number | None:
        """The dispersion where it is given, else None."""
        return getattr(self, self.dispersed)

    @property
    def leaf(self) -> str:
        """The name of the logarithm among the parameters."""
        return f"log_{self.dispersed}"

    @property
    def dispersion_prior(self) -> DispersionPrior:
        """The prior of a learned dispersion."""
        return getattr(self, f"{self.dispersed}_prior")

    def guess(self, y: Array) -> Array:
        """Returns an initial dispersion, `[outputs]`, from targets `[batch, outputs]`; NaN is replaced by one."""
        raise NotImplementedError

    def init(self, y: Targets) -> Params:
        """Returns the logarithm of a first guess from the targets, clipped to 1e-3 to 1e3."""
        if self.given is not None:
            return {}
        y = jnp.asarray(y)
        dtype = y.dtype if jnp.issubdtype(y.dtype, jnp.floating) else jnp.result_type(float)
        guess = self.guess(y.astype(dtype).reshape(y.shape[0], -1))
        return {self.leaf: jnp.log(jnp.where(jnp.isfinite(guess) & (guess > 0), guess, jnp.ones_like(guess)))}

    def log_prior(self, params: Params) -> Array:
        """Returns the log density of the logarithms in nats; zero where the dispersion is given."""
        if self.given is not None:
            return jnp.asarray(0.0)
        return jnp.sum(self.dispersion_prior.log_prob(params[self.leaf]))

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        """Returns draws of the logarithms; empty where the dispersion is given."""
        if self.given is not None:
            return params
        return {self.leaf: self.dispersion_prior.draw(key, params[self.leaf].shape, params[self.leaf].dtype)}

    def dispersion(self, params: Params, f: Array) -> Array:
        """Returns the dispersion of every entry in the shape and dtype of f."""
        return jnp.broadcast_to(self.dispersion_row(params, f), f.shape)

    def dispersion_row(self, params: Params, f: Array) -> Array:
        """Returns the dispersion of every output in the dtype of f, `[1, outputs]`."""
        if self.given is not None:
            return jnp.full((1, f.shape[-1]), self.given, f.dtype)
        return jnp.exp(params[self.leaf]).astype(f.dtype)[None]


class LearnedScale(Dispersed):
    """Base class of likelihoods with a scale in the target's units as dispersion."""

    def guess(self, y: Array) -> Array:
        """Returns the standard deviation of the targets; zero where they do not vary."""
        deviation = jnp.std(y, axis=0)
        varies = deviation > jnp.finfo(y.dtype).eps * jnp.max(jnp.abs(y), axis=0)
        return jnp.where(varies, deviation, jnp.zeros_like(deviation))

    def scale_noise(self, params: Params, factor: Number) -> Params:
        return jax.tree.map(lambda leaf: leaf + jnp.log(jnp.asarray(factor, leaf.dtype)), params)


@record
class FixedDispersion(LikelihoodWrapper):
    r"""A likelihood \(p(y \mid f, \phi)\) with fixed dispersions φ."""

    base: Likelihood  # the likelihood
    dispersion: Params  # φ, its parameters

    check_training = Likelihood.check_training  # nothing is learned

    def parameters(self, params: Params) -> Params:
        # Returns φ.
        return self.dispersion

    init, log_prior, dispersion_information = Likelihood.init, Likelihood.log_prior, Likelihood.dispersion_information

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        # Returns the parameters unchanged: there are none to draw.
        return params

    def scale_noise(self, params: Params, factor: Number) -> Params:
        # Returns the parameters unchanged: there are none to widen.
        return params
