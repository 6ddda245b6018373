"""Independent weights with other tails than normal ones: sharper at zero, or further out."""

# None is Gaussian, so each enters every algorithm through the loss.

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import gammaln

from lamu.priors.independent import Independent
from lamu.record import record
from lamu.typing import Array, Number, RandomKey

__all__ = ["Cauchy", "GeneralisedNormal", "Laplace", "StudentT"]


@record
class Laplace(Independent):
    r"""Laplace weights, \(p(\theta_i) = \frac1{2 s_i} e^{-|\theta_i - m| / s_i}\): L1 regularisation of rate 1/s.

    The mode has exact zeros, where an optimiser reaches them. Draws and means have none: sparsity is a property of the
    point estimate.

    Attributes:
        scale: s, the mean distance from m; a number, a `FanIn`, or a mapping by path pattern.
        loc: m.
        patterns: filled in from a mapping.

    Source: Tibshirani (1996); Park & Casella (2008).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Laplace
        >>> round(float(Laplace(0.5).log_prob({"w": jnp.array([1.0])})), 4)
        -2.0
    """

    def log_density(self, z: Array) -> Array:
        """Returns −|z| − log 2."""
        return -jnp.abs(z) - math.log(2.0)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns draws of Laplace's distribution."""
        return jax.random.laplace(key, shape, dtype)


@record
class StudentT(Independent):
    r"""Student-t weights, \(p_0(z) \propto (1 + z^2/\nu)^{-(\nu + 1)/2}\).

    A normal of which every weight has a variance of its own, inverse-Gamma(ν/2, ν/2): large weights are pulled less.

    Attributes:
        scale: s; the standard deviation is \(s \sqrt{\nu / (\nu - 2)}\). A number, a `FanIn`, or a mapping.
        loc: m.
        patterns: filled in from a mapping.
        df: ν, the degrees of freedom.

    Raises:
        ValueError: for degrees of freedom that are not positive; and as every prior of independent weights.

    Source: Fortuin et al. (2022), who find such tails in trained networks.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import StudentT
        >>> round(float(StudentT(df=4.0).log_prob({"w": jnp.zeros(1)})), 4)
        -0.9808
    """

    df: Number = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.df, Tracer) and not 0.0 < self.df < math.inf:
            raise ValueError(
                f"df={self.df!r} is no number of degrees of freedom; give a positive one, for instance 3.0"
            )

    def log_density(self, z: Array) -> Array:
        """Returns the log density of Student's t."""
        df = jnp.asarray(self.df, z.dtype)
        constant = gammaln((df + 1) / 2) - gammaln(df / 2) - jnp.log(df * math.pi) / 2
        return constant - (df + 1) / 2 * jnp.log1p(z * z / df)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns draws of Student's t."""
        return jax.random.t(key, jnp.asarray(self.df, dtype), shape, dtype)


@record
class Cauchy(Independent):
    r"""Cauchy weights, \(p_0(z) = 1 / (\pi (1 + z^2))\): Student's t of one degree of freedom.

    It has neither mean nor variance. In a wide network a few weights then do most of the work, and the limit is no
    Gaussian process.

    Attributes:
        scale: s, half of the distance between the quartiles. A number, a `FanIn`, or a mapping.
        loc: m.
        patterns: filled in from a mapping.

    Source: Neal (1996), section 2.1, for the limit of wide networks.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Cauchy
        >>> round(float(Cauchy().log_prob({"w": jnp.zeros(1)})), 4)
        -1.1447
    """

    def log_density(self, z: Array) -> Array:
        """Returns −log π − log(1 + z²)."""
        return -math.log(math.pi) - jnp.log1p(z * z)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns draws of Cauchy's distribution."""
        return jax.random.cauchy(key, shape, dtype)


@record
class GeneralisedNormal(Independent):
    r"""Weights with \(p_0(z) = \frac{\beta}{2 \Gamma(1/\beta)} e^{-|z|^\beta}\).

    β = 2 is a normal of standard deviation \(s/\sqrt2\), β = 1 is `Laplace`; below one the mode at m is sharper still.

    Attributes:
        scale: s. A number, a `FanIn`, or a mapping.
        loc: m.
        patterns: filled in from a mapping.
        power: β.

    Raises:
        ValueError: for a power that is not positive; and as every prior of independent weights.

    Source: Nadarajah (2005).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import GeneralisedNormal, Laplace
        >>> weights = {"w": jnp.array([0.3, -2.0])}
        >>> float(GeneralisedNormal(0.5, power=1.0).log_prob(weights)) == float(Laplace(0.5).log_prob(weights))
        True
    """

    power: Number = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.power, Tracer) and not 0.0 < self.power < math.inf:
            raise ValueError(f"power={self.power!r} is no power of a distance; give a positive one, for instance 1.5")

    def log_density(self, z: Array) -> Array:
        power = jnp.asarray(self.power, z.dtype)
        # |z|^β has no finite slope at zero for β < 1, and NaN for its gradient by the general rule.
        away = jnp.where(z == 0, 1.0, jnp.abs(z))
        return jnp.log(power / 2) - gammaln(1 / power) - jnp.where(z == 0, 0.0, away**power)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Returns draws: a sign, and the root of a Gamma variable."""
        sign_key, size_key = jax.random.split(key)
        power = jnp.asarray(self.power, dtype)
        size = jax.random.gamma(size_key, 1 / power, shape, dtype) ** (1 / power)
        return size * jax.random.rademacher(sign_key, shape, dtype)
