"""The joint density of a graph's row as a function of one latent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.dtype_policy import lenient
from lamu.families import Bernoulli, Gaussian
from lamu.graphs.elimination import Rest
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, log_joint
from lamu.graphs.program import GraphSite, LearnedPrior
from lamu.graphs.statistics import Bits, Numbers, Series, Vectors
from lamu.latent.bounds import Joint
from lamu.latent.locals.encoder import latent_site
from lamu.operators import Diagonal
from lamu.typing import Array, Belief, RandomKey, Statistics

__all__ = ["RowOfGraph", "moments", "natural"]


class RowOfGraph(Joint):
    r"""\(\log p(x, z)/T\) of a row and one of its latents, with the others eliminated by `rest`."""

    # The prior of the latent is its factor if that does not depend on a latent without a value; otherwise the factor
    # belongs to the rest, and the prior is flat.

    def __init__(self, name: str, row: Row, environment: Environment, rest: Rest) -> None:
        self.site: GraphSite = latent_site(name, row)
        self.row, self.at, self.rest = row, environment, rest
        self.known_prior = not self.site.factor.names & {site.name for site in row.latent}

    def log_likelihood(self, z: Array, key: RandomKey | None) -> Array:
        # Returns the rest of the row at z, without the prior, over T.
        conditioned = self.row.given(self.site.name, jnp.reshape(z, self.site.shape or ()))
        return self.rest(conditioned, replace(self.at, values_only=True), key)[0] - self.log_prior(z)

    def log_prior(self, z: Array) -> Array:
        # Returns log p(z)/T, or zero if the prior depends on other latents.
        with lenient():
            return self._expected(self.site.kind.of(jnp.reshape(z, self.site.shape or ())))

    def divergences(self, belief: Belief) -> Array | None:
        # Returns −H(q) − E_q[log p(z)]/T by the coordinates of a mean-field Gaussian.
        #
        # None for another belief, or under a prior that is not affine in the statistics of z.
        if not self._has_divergence(belief):
            return None
        if self.site.kind is not Numbers or not self.known_prior:
            return jnp.reshape(jnp.asarray(self.divergence(belief)), 1)
        mean, precision = belief.mean, belief.precision.values
        expected = moments(self.site, mean, precision)
        masks = jnp.eye(mean.size, dtype=bool).reshape(-1, *(self.site.shape or ()))
        return -(_entropies(precision) + jax.vmap(lambda mask: self._expected(expected, mask))(masks))

    def divergence(self, belief: Belief) -> Array | None:
        # Returns the sum of `divergences` by one evaluation of the prior, where those need one for each coordinate.
        if not self._has_divergence(belief):
            return None
        mean, precision = belief.mean, belief.precision.values
        return -(jnp.sum(_entropies(precision)) + self._expected(moments(self.site, mean, precision)))

    def _has_divergence(self, belief: Belief) -> bool:
        is_mean_field = isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal)
        return is_mean_field and self.site.factor.conjugate

    def unit_divergences(self, belief: Belief) -> Array | None:
        """Returns the divergences of the units, also for binary latents; None if the prior has no such form."""
        if not self.known_prior or isinstance(self.site.factor, LearnedPrior):
            return None
        return self._of_bits(belief) if isinstance(belief, Bernoulli) else self.divergences(belief)

    def _of_bits(self, belief: Bernoulli) -> Array:
        r"""Returns \(\sum_b q_j(b) \log(q_j(b) / p_j(b))\) of every unit j."""
        logits, shape = jnp.ravel(belief.logit), self.site.shape or ()
        chance, masks = jax.nn.sigmoid(logits), jnp.eye(logits.size, dtype=bool).reshape(-1, *shape)
        entropies = jax.nn.softplus(logits) - chance * logits
        expected = Bits(jnp.reshape(chance, shape))
        return -entropies - jax.vmap(lambda mask: self._expected(expected, mask))(masks)

    def _expected(self, statistics: Statistics, observed: Any = None) -> Array:
        """Returns the prior's F at statistics of z, over T."""
        if not self.known_prior:
            return jnp.zeros((), jax.tree.leaves(statistics)[0].dtype)
        environment = self.row.environment(self.at, {self.site.name: statistics})
        mask = {} if observed is None else {self.site.name: observed}
        return log_joint((self.site,), environment, mask) / self.row.temperature


def _entropies(precision: Array) -> Array:
    """Returns the entropy of every coordinate of a mean-field Gaussian."""
    return (1 + math.log(2 * math.pi) - jnp.log(precision)) / 2


def moments(site: GraphSite, mean: Array, precision: Array) -> Any:
    """Returns E_q[T(z)] of a mean-field Gaussian."""
    kind: Any = site.kind
    return kind.under_independent(mean.reshape(site.shape or ()), (1 / precision).reshape(site.shape or ()))


def natural(site: GraphSite, mean: Array, precision: Array) -> Any:
    """Returns λ of a mean-field Gaussian, as the statistics of z."""
    mean, precision = mean.reshape(site.shape or ()), precision.reshape(site.shape or ())
    second = -precision / 2
    if issubclass(site.kind, Series):
        outer = second[..., None] * jnp.eye(second.shape[-1], dtype=second.dtype)[None]
        return site.kind(precision * mean, outer, jnp.zeros_like(outer[1:]))
    return Numbers(precision * mean, second) if site.kind is Numbers else Vectors(precision * mean, jnp.diag(second))
