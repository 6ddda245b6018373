r"""Counts without an upper end: \(y \sim \mathrm{Poisson}(\mu)\), \(\mu = g^{-1}(f)\)."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.likelihoods.factorials import log_prob_of_count
from lamu.likelihoods.incomplete import cdf_of_count
from lamu.likelihoods.independent import Independent
from lamu.likelihoods.links import Log, PositiveLink, SquareRoot, require_link
from lamu.likelihoods.tails import log_tails_of_gamma
from lamu.record import record
from lamu.supports import Counts
from lamu.typing import Array, Params, RandomKey

__all__ = ["Poisson", "draw_counts"]

_FEW = 64.0  # the mean up to which the entropy is a sum over counts, and above which a series is exact to 1e-10
_LEAST = 1e-30  # the mean whose entropy those below have, which is zero for all purposes
_COUNTS = 192  # of which those of that mean are all but 1e-40


@record
class Poisson(Independent):
    r"""Counts with variance equal to the mean: \(p(y \mid f) = \mu^y e^{-\mu} / y!\).

    The outputs are `[batch, outputs]`, the targets whole numbers from zero, `[batch]` where there is one output.
    Log-concave with each link below.

    Attributes:
        link: g, `Log` or `SquareRoot`, under which the Fisher information is 4 everywhere.

    Raises:
        TypeError: for another link.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Poisson
        >>> from lamu.likelihoods.links import SquareRoot
        >>> Poisson().mean({}, jnp.log(jnp.array([[2.0]]))).round(4).tolist()
        [2.0]
        >>> Poisson(link=SquareRoot()).mean({}, jnp.array([[2.0]])).tolist()
        [4.0]
    """

    link: PositiveLink | Any = Log()

    support = Counts()
    log_concave = True

    def __post_init__(self) -> None:
        require_link(self.link, (Log, SquareRoot), "Poisson")

    def density(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(y \log \mu - \mu - \log y!\), by a form that has the digits of counts of a million."""
        return log_prob_of_count(y, self.link.inverse(f), self.link.log_mean(f))

    def weight(self, params: Params, f: Array) -> Array:
        r"""Returns \(\mu'^2 / \mu\)."""
        return self.link.weight(f)

    def location(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def spread(self, params: Params, f: Array) -> Array:
        """Returns μ."""
        return self.link.inverse(f)

    def surprise(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sum_y p \log(1/p)\), and for a large mean its series \(\tfrac12 \log(2 \pi e \mu) - \ldots\)."""
        mean = self.link.inverse(f)
        few = jnp.clip(mean, _LEAST, _FEW)
        y = jnp.arange(_COUNTS, dtype=f.dtype).reshape(-1, *[1] * f.ndim)
        log_prob = log_prob_of_count(y, few[None], jnp.log(few)[None])
        many = jnp.maximum(mean, _FEW)
        r = 1.0 / many  # by Horner's scheme, as powers of a large mean have no float32
        series = -r * (1 / 12 + r * (1 / 24 + r * (19 / 360 + r * (9 / 80 + r * (863 / 2520)))))
        few = -jnp.sum(jnp.exp(log_prob) * log_prob, axis=0)
        return jnp.where(mean < _FEW, few, 0.5 * jnp.log(2 * math.pi * math.e * many) + series)

    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns Poisson counts."""
        return draw_counts(key, self.link.inverse(f))

    def below(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete gamma function Q(y + 1, μ)."""
        return cdf_of_count(y, self.link.inverse(f))

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns those of a gamma distributed number of shape y + 1, in the other order."""
        above, below = log_tails_of_gamma(y + 1.0, self.link.inverse(f))
        return below, above


def draw_counts(key: RandomKey, mean: Array) -> Array:
    """Returns Poisson counts as numbers of the mean's dtype."""
    # Above a mean of 10⁸ they are rounded normal draws, since counts of JAX are integers of 32 bits.
    first, second = jax.random.split(key)
    counts = jax.random.poisson(first, jnp.minimum(mean, 1e8)).astype(mean.dtype)
    many = jnp.maximum(mean, 1e8)
    return jnp.where(
        mean < 1e8, counts, jnp.round(many + jnp.sqrt(many) * jax.random.normal(second, mean.shape, mean.dtype))
    )
