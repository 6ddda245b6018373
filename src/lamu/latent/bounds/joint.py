r"""The joint density of one row, \(p(y, z) = p(y \mid z)\, p(z)\), as bounds see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lamu import tree
from lamu.families import ExponentialFamily, Gaussian
from lamu.operators import Diagonal
from lamu.record import given, record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Joint", "RowJoint", "gaussian_divergences"]


class Joint(ABC):
    r"""\(p(y, z)\) of one row as a function of its latents z; the row's y is inside.

    Densities are scalars in nats.
    """

    @abstractmethod
    def log_likelihood(self, z: Params, key: RandomKey | None) -> Array:
        """Returns log p(y | z), or an unbiased estimate of a bound of it.

        Args:
            z: the latents of the row.
            key: for what is random in an estimate; None where nothing is.
        """

    @abstractmethod
    def log_prior(self, z: Params) -> Array:
        """Returns log p(z).

        Args:
            z: the latents of the row.
        """

    def divergences(self, belief: Any) -> Array | None:
        r"""Returns \(KL(q \,\|\, p(z))\) in nats as a vector of independent terms that sum to it.

        None where it has no closed form, and bounds estimate it from their draws; so unless overridden.

        Args:
            belief: q(z | y).
        """
        del belief

    def divergence(self, belief: Any) -> Array | None:
        r"""Returns \(KL(q \,\|\, p(z))\) in nats, a scalar; None where `divergences` has none.

        Args:
            belief: q(z | y).
        """
        terms = self.divergences(belief)
        return None if terms is None else jnp.sum(terms)


@record
class RowJoint(Joint):
    r"""A family as the prior of z and any function as the likelihood.

    Attributes:
        prior: p(z), a belief of `lamu.families`.
        likelihood: \(z \mapsto \log p(y \mid z)\) in nats.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2)))
        >>> joint = RowJoint(prior, lambda z: -jnp.sum((z - 1.0) ** 2))
        >>> joint.divergences(prior).tolist()
        [0.0, 0.0]
    """

    prior: Any
    likelihood: Callable[[Params], Array] = given()

    def log_likelihood(self, z: Params, key: RandomKey | None) -> Array:
        return self.likelihood(z)

    def log_prior(self, z: Params) -> Array:
        return self.prior.log_prob(z)

    def divergences(self, belief: Any) -> Array | None:
        """Returns KL terms, one a coordinate for two diagonal Gaussians; None for two different families."""
        if not isinstance(belief, ExponentialFamily) or type(belief) is not type(self.prior):
            return None
        if isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal):
            terms = gaussian_divergences(belief, self.prior)
            if terms is not None:
                return terms
        return belief.kl(self.prior).reshape(1)


def gaussian_divergences(q: Gaussian, p: Gaussian) -> Array | None:
    r"""Returns \(KL(q_j \,\|\, p_j)\) of every coordinate of two diagonal Gaussians, `[coordinates]` in nats."""
    # \[ KL_j = \tfrac12 \Big( \frac{p_j}{s_j} + p_j (m_j - n_j)^2 - 1 + \log \frac{s_j}{p_j} \Big) \]
    #
    # for precisions s and p and means m and n. None unless both precisions are diagonal.
    if not (isinstance(q.precision, Diagonal) and isinstance(p.precision, Diagonal)):
        return None
    away = tree.ravel(tree.add(q.mean, p.mean, -1.0))[0]
    s, t = (tree.ravel(precision.values)[0] for precision in (q.precision, p.precision))
    return (t / s + t * away**2 - 1 + jnp.log(s / t)) / 2
