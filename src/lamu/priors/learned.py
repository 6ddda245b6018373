"""A normal prior whose scale nobody knows, for algorithms that can learn it."""

from __future__ import annotations

from lamu.families import Gaussian
from lamu.priors.interface import IndependentLeaves
from lamu.priors.normal import Normal
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["LearnedNormal"]


@record
class LearnedNormal(IndependentLeaves):
    r"""Independent normal weights of one unknown scale, \(p(\theta) = \prod_i N(\theta_i \mid 0, s^2)\).

    Laplace's method and its last layer choose s after the mode is found, by the evidence (MacKay 1992) or on the rows
    that `lamu.fit(validation=...)` sets aside, and their posterior's model has `Normal(s)` in the place of this.
    `lamu.fit_folds` compares s, 2s and s/2 by the density of the rows that each member has not seen, whatever the
    algorithm, and `lamu.fit_prior_scale` doubles or halves s as long as rows set aside are predicted better. In a
    single run every other algorithm uses the first guess as it stands: the joint density of θ and s has no maximum,
    so an optimiser could not learn it, and the ELBO of a mean-field belief about a network is greatest where most
    weights are pruned.

    Attributes:
        start: the first guess of s, under which the mode is found.

    Raises:
        ValueError: if the guess is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import LearnedNormal, Normal
        >>> weights = {"w": jnp.ones(3)}
        >>> float(LearnedNormal(0.5).log_prob(weights)) == float(Normal(0.5).log_prob(weights))
        True
    """

    start: Number = 1.0

    def __post_init__(self) -> None:
        self.at(self.start)

    def at(self, scale: Number) -> Normal:
        """Returns the prior of a known scale."""
        return Normal(scale)

    def check(self, params: Params) -> None:
        """Accepts all parameters."""

    def log_prob(self, params: Params) -> Array:
        """Returns the log density under the first guess, a scalar in nats."""
        return self.at(self.start).log_prob(params)

    def gaussian(self, params: Params) -> Gaussian:
        """Returns the Gaussian under the first guess."""
        return self.at(self.start).gaussian(params)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw under the first guess, a tree like `params`."""
        return self.at(self.start).sample(key, params)
