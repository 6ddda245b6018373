"""Dispersions of likelihoods: positive numbers for each output, given, or learned as logarithms with a prior."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from lamu.base.sizes import require_positive
from lamu.likelihoods.interface import Likelihood, LikelihoodWrapper
from lamu.likelihoods.several_targets import IndependentTargets
from lamu.record import record
from lamu.typing import Array, DTypeLike, Number, Params, RandomKey, Targets

__all__ = ["Dispersed", "DispersionPrior", "FixedDispersion", "GammaDispersion", "GammaPowerLaw", "LogNormalDispersion"]


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
        >>> from lamu.likelihoods.dispersion import LogNormalDispersion
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
        >>> from lamu.likelihoods.dispersion import GammaDispersion
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
