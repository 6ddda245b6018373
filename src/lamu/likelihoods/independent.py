r"""Likelihoods whose every output has a target of its own: \(p(y \mid f) = \prod_k p(y_k \mid f_k)\)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.likelihoods.interface import Likelihood
from lamu.typing import Array, Params, RandomKey

__all__ = ["Independent"]


class Independent(Likelihood):
    """A likelihood of one target for each output, independent given f."""

    # The targets are `[batch]` where there is one output, `[batch, outputs]` where there are several. A subclass says
    # what one entry is by methods whose arguments all have the shape `[batch, outputs]`: `density`, `weight`,
    # `location`, `spread`, `draw`, and `surprise`, `below` and `tails` where there are formulas.

    @abstractmethod
    def density(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log p(y_k | f_k) in nats."""

    @abstractmethod
    def weight(self, params: Params, f: Array) -> Array:
        """Returns the Fisher information of each target about its output."""

    @abstractmethod
    def location(self, params: Params, f: Array) -> Array:
        """Returns the means."""

    @abstractmethod
    def spread(self, params: Params, f: Array) -> Array:
        """Returns the variances."""

    @abstractmethod
    def draw(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw of each target."""

    def surprise(self, params: Params, f: Array) -> Array | None:
        """Returns the entropies in nats; None where there is no formula, and an average over draws is taken."""
        del params, f

    def below(self, params: Params, f: Array, y: Array) -> Array | None:
        """Returns P(Y_k ≤ y_k), of targets in the support; None for an average over draws."""
        del params, f, y

    def tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array] | None:
        """Returns log P(Y_k ≤ y_k) and log P(Y_k > y_k), of targets in the support; None for those of the density."""
        del params, f, y

    # What follows.

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are in the support, `[batch]` or `[batch, outputs]`."""
        shape = np.shape(y)
        if len(shape) not in (1, 2):
            raise ValueError(f"the targets have shape {shape}; {self.name} takes [batch] or [batch, outputs]")
        if len(shape) == 2 and shape[1] == 1:
            raise ValueError(f"the targets have shape {shape}, a single column; pass y[:, 0], of shape [batch]")
        self.support.check(y, self.name)

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\sum_k \log p(y_k \mid f_k)\) in nats, `[batch]`."""
        return jnp.sum(self.density(params, f, _columns(y, f)), axis=-1)

    def information(self, params: Params, f: Array) -> Array:
        """Returns the weights on a diagonal, `[batch, outputs, outputs]`."""
        return self.weight(params, f)[:, :, None] * jnp.eye(f.shape[-1], dtype=f.dtype)[None]

    def information_root(self, params: Params, f: Array) -> Array:
        """Returns the roots of the weights on a diagonal."""
        return jnp.sqrt(self.weight(params, f))[:, :, None] * jnp.eye(f.shape[-1], dtype=f.dtype)[None]

    def information_diagonal(self, params: Params, f: Array) -> Array:
        return self.weight(params, f)

    def mean(self, params: Params, f: Array) -> Array:
        return _target(self.location(params, f))

    def variance(self, params: Params, f: Array) -> Array:
        """Returns the variances in the target's shape."""
        return _target(self.spread(params, f))

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns the sum of the entropies in nats, `[batch]`."""
        entropies = self.surprise(params, f)
        return super().entropy(params, f) if entropies is None else jnp.sum(entropies, axis=-1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        return _target(jax.lax.stop_gradient(self.draw(key, params, f)).astype(f.dtype))

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y_k ≤ y_k | f_k), output by output, in the target's shape."""
        ends, y = self.support, _columns(y, f)
        inside = self.below(params, f, jnp.clip(jnp.floor(y) if ends.discrete else y, ends.lower, ends.upper))
        if inside is None:
            return super().cdf(params, f, _target(y))
        return _target(jnp.where(y < ends.lower, 0.0, jnp.where(y >= ends.upper, 1.0, inside)))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns log P(Y_k ≤ y_k | f_k) and log P(Y_k > y_k | f_k), output by output, in the target's shape."""
        ends, y = self.support, _columns(y, f)
        some = jnp.clip(jnp.floor(y) if ends.discrete else y, ends.lower, ends.upper)
        found = self.tails(params, f, jnp.where(jnp.isfinite(some), some, 1.0))
        if found is None:
            return super().log_tails(params, f, _target(y))
        below = jnp.where(y < ends.lower, -jnp.inf, jnp.where(y >= ends.upper, 0.0, found[0]))
        above = jnp.where(y < ends.lower, 0.0, jnp.where(y >= ends.upper, -jnp.inf, found[1]))
        return _target(below), _target(above)


def _columns(y: Array, f: Array) -> Array:
    """The targets as `[batch, outputs]`; a reshape, so that another size is an error and is never broadcast."""
    return jnp.reshape(y, f.shape).astype(f.dtype)


def _target(columns: Array) -> Array:
    """`[batch, outputs]` in the target's shape."""
    return columns[:, 0] if columns.shape[-1] == 1 else columns
