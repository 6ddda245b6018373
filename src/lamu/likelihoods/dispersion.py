"""A likelihood's dispersion: a positive number for each output, given, or learned as its logarithm with a prior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.several_targets import Independent
from lamu.likelihoods.wrapper import LikelihoodWrapper
from lamu.record import record
from lamu.typing import Array, DTypeLike, Number, Params, RandomKey, Targets

__all__ = [
    "Dispersed",
    "DispersionPrior",
    "FixedDispersion",
    "GammaDispersion",
    "LogNormalDispersion",
    "require_positive",
]


class DispersionPrior(ABC):
    """The prior of a positive dispersion, as a density of its logarithm."""

    @abstractmethod
    def log_prob(self, log_dispersion: Array) -> Array:
        """Returns the log density of each logarithm in nats, in its shape."""

    @abstractmethod
    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns draws of the logarithm."""


@record
class LogNormalDispersion(DispersionPrior):
    r"""The default, \(\log s \sim N(0, \text{scale}^2)\): weak, and meant for targets of order one.

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

    def log_prob(self, log_dispersion: Array) -> Array:
        return norm.logpdf(log_dispersion, 0.0, self.scale)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return jnp.asarray(self.scale, dtype) * jax.random.normal(key, shape, dtype)


@record
class GammaDispersion(DispersionPrior):
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

    def __post_init__(self) -> None:
        for name, value in (("shape", self.shape), ("rate", self.rate)):
            require_positive(name, value, "give a number above 0")

    def log_prob(self, log_dispersion: Array) -> Array:
        r"""Returns \(\log \mathrm{Gamma}(s) + \log s\)."""
        a, b = (jnp.asarray(value, log_dispersion.dtype) for value in (self.shape, self.rate))
        return a * (jnp.log(b) + log_dispersion) - b * jnp.exp(log_dispersion) - gammaln(a)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        a, b = (jnp.asarray(value, dtype) for value in (self.shape, self.rate))
        return jax.random.loggamma(key, a, shape, dtype) - jnp.log(b)


class Dispersed(Independent):
    """A likelihood whose outputs have a positive dispersion each, given as a number or learned with a prior."""

    # A subclass names the leaf of its parameters (`leaf`), its two fields (`given`, `dispersion_prior`), and a first
    # guess from the targets (`guess`).

    leaf = "log_scale"  # the name of the logarithm among the parameters, `[outputs]`

    @property
    @abstractmethod
    def given(self) -> Number | None:
        """The dispersion where it is given, else None."""

    @property
    @abstractmethod
    def dispersion_prior(self) -> DispersionPrior:
        """The prior of a learned one."""

    @abstractmethod
    def guess(self, y: Array) -> Array:
        """Returns a first dispersion, `[outputs]`, from targets `[batch, outputs]`; where it is no number it is one."""

    def init(self, y: Targets) -> Params:
        """Returns the logarithm of a first guess from the targets, between 1e-3 and 1e3 of a target of order one."""
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
        """Returns draws of the logarithms; nothing where the dispersion is given."""
        if self.given is not None:
            return params
        return {self.leaf: self.dispersion_prior.draw(key, params[self.leaf].shape, params[self.leaf].dtype)}

    def dispersion(self, params: Params, f: Array) -> Array:
        """Returns the dispersion of every entry in the shape and dtype of f."""
        if self.given is not None:
            return jnp.full(f.shape, self.given, f.dtype)
        return jnp.broadcast_to(jnp.exp(params[self.leaf]).astype(f.dtype)[None], f.shape)


class Scale(Dispersed):
    """A likelihood whose dispersion is a scale in the target's units."""

    def scale_noise(self, params: Params, factor: Number) -> Params:
        return jax.tree.map(lambda leaf: leaf + jnp.log(jnp.asarray(factor, leaf.dtype)), params)


def require_positive(name: str, value: Any, advice: str) -> None:
    """Raises a ValueError unless a number is positive and finite; None and traced values pass."""
    if value is None or isinstance(value, Tracer):
        return
    if not 0.0 < value < float("inf"):
        raise ValueError(f"the {name} {value} is not positive and finite; {advice}")


@record
class FixedDispersion(LikelihoodWrapper):
    r"""\(p(y \mid f, \phi)\) with φ given, and nothing left to learn beside f."""

    base: Likelihood  # the likelihood
    dispersion: Params  # φ, its parameters

    check_training = Likelihood.check_training  # nothing is learned

    def parameters(self, params: Params) -> Params:
        # Returns φ.
        return self.dispersion

    def init(self, y: Targets) -> Params:
        return {}

    def log_prior(self, params: Params) -> Array:
        # Returns zero.
        return jnp.asarray(0.0)

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        # Returns the parameters as they are: there are none to draw.
        return params

    def dispersion_information(self, params: Params) -> Params:
        # Returns the parameters as they are: there are none.
        return params

    def scale_noise(self, params: Params, factor: Any) -> Params:
        # Returns the parameters as they are: there are none to widen.
        return params
