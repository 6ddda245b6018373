"""Distributions of a scale τ that weights share: half-Cauchy on τ, gamma or inverse gamma on the variance τ²."""

# Each is a density of u = log τ, the Jacobian included, so that scales are real coordinates that any algorithm can
# move. Two of them are conjugate to normal weights: given their squares, 1/τ² is gamma again.

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import gammaln

from lamu.record import record
from lamu.typing import Array, Number, RandomKey

__all__ = ["GammaVariance", "HalfCauchyScale", "InverseGammaVariance", "ScaleLaw"]


class ScaleLaw(ABC):
    """The distribution of a positive scale, as a density of its logarithm.

    A law of one's own inherits from this class, is a `lamu.record.record`, and defines the three abstract methods.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import HalfCauchyScale
        >>> HalfCauchyScale(1.0).log_prob(jnp.zeros(1)).round(4).tolist()  # the density 2 / (π (1 + τ²)) at 1 is 1/π
        [-1.1447...]
    """

    @property
    @abstractmethod
    def typical(self) -> Any:
        """A scale in the middle of the distribution, from which runs start."""

    @abstractmethod
    def log_prob(self, log_scale: Array) -> Array:
        """Returns the log density of each u = log τ in nats, in its shape."""

    @abstractmethod
    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns draws of u = log τ."""

    def precision_prior(self, mean_precision: Array, temperature: Number = 1.0) -> tuple[Array, Array]:
        r"""Returns shape and rate of the gamma message to the precision 1/τ², given its mean so far.

        \[ q(\tau^{-2}) = \mathrm{Gamma}\big((a - 1 + n/2)/T + 1,\;
            (b + \tfrac12 \textstyle\sum_i E[w_i^2])/T\big) \]

        for n weights of this scale, with a and b returned here, neither divided by T.

        Args:
            mean_precision: E[1/τ²] under the belief so far, any shape.
            temperature: T, for the belief about a variable between, which divides its log densities too.

        Raises:
            TypeError: for a law that is not conjugate.
        """
        del mean_precision, temperature
        raise TypeError(
            f"{type(self).__name__} is not conjugate to normal weights; take HalfCauchyScale or InverseGammaVariance, "
            "or the form that is not centred, Model(prior.around(network), likelihood, prior)"
        )


@record
class HalfCauchyScale(ScaleLaw):
    r"""A half-Cauchy scale, \(p(\tau) = \frac{2}{\pi s (1 + \tau^2/s^2)}\), \(\tau > 0\).

    It has mass at zero and a tail without a mean: a scale can vanish, or be as large as the data say. As a mixture,
    \(\tau^2 \mid \nu \sim \mathrm{InverseGamma}(\frac12, 1/\nu)\), \(\nu \sim \mathrm{InverseGamma}(\frac12, 1/s^2)\).

    Attributes:
        scale: s, the median of τ.

    Raises:
        ValueError: if it is not positive and finite.

    Source: Gelman (2006); Wand et al. (2011), result 5, for the mixture.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import HalfCauchyScale
        >>> [float(value) for value in HalfCauchyScale(1.0).precision_prior(jnp.array(1.0))]
        [0.5, 0.5]
    """

    scale: Number = 1.0

    def __post_init__(self) -> None:
        _require_positive("scale", self.scale)

    @property
    def typical(self) -> Any:
        """The median s."""
        return self.scale

    def log_prob(self, log_scale: Array) -> Array:
        r"""Returns \(-\log \pi - \log\cosh(u - \log s)\)."""
        v = jnp.abs(log_scale - jnp.log(jnp.asarray(self.scale, log_scale.dtype)))
        return math.log(2 / math.pi) - v - jnp.log1p(jnp.exp(-2 * v))

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns the logarithms of absolute Cauchy draws."""
        return jnp.log(jnp.abs(jax.random.cauchy(key, shape, dtype))) + jnp.log(jnp.asarray(self.scale, dtype))

    def precision_prior(self, mean_precision: Array, temperature: Number = 1.0) -> tuple[Array, Array]:
        r"""Returns ½ and \(E[1/\nu] = T / (1/s^2 + E[1/\tau^2])\).

        In 1/ν the log densities of τ² given ν and of ν have no logarithm left, so that at temperature T
        \(q(1/\nu) = \mathrm{Gamma}(1, (1/s^2 + E[1/\tau^2])/T)\).
        """
        s = jnp.asarray(self.scale, mean_precision.dtype)
        return jnp.full_like(mean_precision, 0.5), temperature / (s**-2 + mean_precision)


@record
class GammaVariance(ScaleLaw):
    r"""A gamma variance, \(\tau^2 \sim \mathrm{Gamma}(a, b)\).

    Normal weights of this variance are `Laplace` of scale \(1/\sqrt{2b}\) for a = 1.

    Attributes:
        shape: a.
        rate: b; the mean of τ² is a / b.

    Raises:
        ValueError: if one is not positive and finite.

    Source: Griffin & Brown (2010).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import GammaVariance
        >>> GammaVariance(1.0, 0.5).log_prob(jnp.zeros(1)).round(4).tolist()  # ½ exp(−½) and the Jacobian 2
        [-0.5...]
    """

    shape: Number = 1.0
    rate: Number = 1.0

    def __post_init__(self) -> None:
        _require_positive("shape", self.shape)
        _require_positive("rate", self.rate)

    @property
    def typical(self) -> Any:
        """The root of the mean variance."""
        return (self.shape / self.rate) ** 0.5

    def log_prob(self, log_scale: Array) -> Array:
        r"""Returns the log density of τ² plus \(\log 2\tau^2\)."""
        a, b = (jnp.asarray(value, log_scale.dtype) for value in (self.shape, self.rate))
        return a * jnp.log(b) - gammaln(a) + 2 * a * log_scale - b * jnp.exp(2 * log_scale) + math.log(2.0)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns half the logarithms of gamma draws."""
        a, b = (jnp.asarray(value, dtype) for value in (self.shape, self.rate))
        return (jax.random.loggamma(key, a, shape, dtype) - jnp.log(b)) / 2


@record
class InverseGammaVariance(ScaleLaw):
    r"""An inverse-gamma variance, \(\tau^2 \sim \mathrm{InverseGamma}(a, b)\): the precision 1/τ² is Gamma(a, b).

    Normal weights that have one each are `StudentT` of 2a degrees of freedom and scale \(\sqrt{b/a}\).

    Attributes:
        shape: a.
        rate: b.

    Raises:
        ValueError: if one is not positive and finite.

    Source: Neal (1996), section 4.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import InverseGammaVariance
        >>> [float(value) for value in InverseGammaVariance(2.0, 3.0).precision_prior(jnp.array(1.0))]
        [2.0, 3.0]
    """

    shape: Number = 1.0
    rate: Number = 1.0

    def __post_init__(self) -> None:
        _require_positive("shape", self.shape)
        _require_positive("rate", self.rate)

    @property
    def typical(self) -> Any:
        """The root of the inverse mean precision."""
        return (self.rate / self.shape) ** 0.5

    def log_prob(self, log_scale: Array) -> Array:
        r"""Returns the log density of τ² plus \(\log 2\tau^2\)."""
        a, b = (jnp.asarray(value, log_scale.dtype) for value in (self.shape, self.rate))
        return a * jnp.log(b) - gammaln(a) - 2 * a * log_scale - b * jnp.exp(-2 * log_scale) + math.log(2.0)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns minus half the logarithms of gamma draws."""
        a, b = (jnp.asarray(value, dtype) for value in (self.shape, self.rate))
        return (jnp.log(b) - jax.random.loggamma(key, a, shape, dtype)) / 2

    def precision_prior(self, mean_precision: Array, temperature: Number = 1.0) -> tuple[Array, Array]:
        del temperature
        a, b = (jnp.asarray(value, mean_precision.dtype) for value in (self.shape, self.rate))
        return jnp.full_like(mean_precision, a), jnp.full_like(mean_precision, b)


def _require_positive(name: str, value: Any) -> None:
    if not isinstance(value, Tracer) and not 0.0 < value < math.inf:
        raise ValueError(f"{name}={value!r} is not positive and finite; give a positive number")
