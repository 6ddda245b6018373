"""A likelihood whose dispersions are held: what an optimiser sees where something else moves them."""

from __future__ import annotations

from typing import Any

from lamu.likelihoods.interface import Likelihood
from lamu.record import record
from lamu.supports import Support
from lamu.typing import Array, Params, RandomKey

__all__ = ["FixedDispersion"]


@record
class FixedDispersion(Likelihood):
    r"""\(p(y \mid f, \phi)\) with φ given, and nothing left to learn beside f.

    Attributes:
        base: the likelihood.
        dispersion: φ, its parameters.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.fixed_dispersion import FixedDispersion
        >>> from lamu.likelihoods import Gaussian
        >>> held = FixedDispersion(Gaussian(), {"log_scale": jnp.zeros(1)})
        >>> held.init(jnp.ones(3)), held.variance({}, jnp.zeros((1, 1))).tolist()
        ({}, [1.0])
    """

    base: Likelihood
    dispersion: Params

    @property
    def name(self) -> str:
        """The base's name."""
        return self.base.name

    @property
    def support(self) -> Support:
        """The base's support."""
        return self.base.support

    @property
    def log_concave(self) -> bool:
        """Whether the base is log-concave in f."""
        return self.base.log_concave

    @property
    def quadratic(self) -> bool:
        """Whether the base is quadratic in f."""
        return self.base.quadratic

    @property
    def logits(self) -> bool:
        """Whether f are the base's logits."""
        return self.base.logits

    def check(self, y: Any) -> None:
        """Raises a ValueError if the targets cannot be of the base."""
        self.base.check(y)

    def outputs(self, y: Any) -> int:
        """Returns the base's width."""
        return self.base.outputs(y)

    def output_scales(self, width: int) -> tuple[str, ...]:
        """Returns the base's."""
        return self.base.output_scales(width)

    def widened(self, params: Params, factor: Any) -> Params:
        """Returns the parameters as they are: there are none to widen."""
        return params

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the base's log density in nats, `[batch]`."""
        return self.base.log_prob(self.dispersion, f, y)

    def counted(self, params: Params, f: Array, y: Any, weights: Array) -> Array:
        """Returns the base's counts of the rows, `[batch]`."""
        return self.base.counted(self.dispersion, f, y, weights)

    def information(self, params: Params, f: Array) -> Array:
        """Returns the base's information, `[batch, outputs, outputs]`."""
        return self.base.information(self.dispersion, f)

    def information_root(self, params: Params, f: Array) -> Array:
        """Returns the base's root, `[batch, outputs, rank]`."""
        return self.base.information_root(self.dispersion, f)

    def information_diagonal(self, params: Params, f: Array) -> Array:
        """Returns the base's diagonal, `[batch, outputs]`."""
        return self.base.information_diagonal(self.dispersion, f)

    def information_sum(self, params: Params, f: Array, weights: Array) -> Array:
        """Returns the base's sum, `[outputs, outputs]`."""
        return self.base.information_sum(self.dispersion, f, weights)

    def mean(self, params: Params, f: Array) -> Array:
        """Returns the base's mean."""
        return self.base.mean(self.dispersion, f)

    def variance(self, params: Params, f: Array) -> Array:
        """Returns the base's variance."""
        return self.base.variance(self.dispersion, f)

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns the base's entropy in nats, `[batch]`."""
        return self.base.entropy(self.dispersion, f)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw a row."""
        return self.base.sample(key, self.dispersion, f)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the base's distribution function."""
        return self.base.cdf(self.dispersion, f, y)

    def marginal(self, params: Params, mean: Array, covariance: Array) -> Any:
        """Returns the base's marginal."""
        return self.base.marginal(self.dispersion, mean, covariance)
