"""Beliefs about things that are so or not: coins (0 and 1) and binary weights (−1 and +1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.families.domains import Domain, Real
from lamu.families.exponential import ExponentialFamily, sample_leaves, total
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Bernoulli", "Binary"]


@record
class Bernoulli(ExponentialFamily):
    r"""Coins, \(\theta \in \{0, 1\}\): \(T = \theta\), \(A = \log(1 + e^\lambda)\), \(\mu = \sigma(\lambda)\).

    λ is the logit.

    Attributes:
        logit: \(\log p/(1-p)\), a tree of arrays of any shapes.

    Examples:
        >>> from lamu.families import Bernoulli
        >>> float(Bernoulli(0.0).mean), round(float(Bernoulli(0.0).entropy()), 4)
        (0.5, 0.6931)
    """

    logit: Params

    domains: ClassVar[Mapping[str, Domain]] = {"logit": Real()}
    unbounded: ClassVar[bool] = True

    def to_natural(self) -> Any:
        return self.logit

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Bernoulli:
        """Returns the belief with this logit."""
        return cls(values)

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Bernoulli:
        r"""Returns the belief with the logit \(\log \mu - \log(1 - \mu)\)."""
        return cls(jax.tree.map(lambda mu: jnp.log(mu) - jnp.log1p(-mu), values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        r"""Returns \(\sum \log(1 + e^\lambda)\)."""
        return total(jax.nn.softplus, values)

    def statistics(self, theta: Params) -> Any:
        return theta

    @property
    def mean(self) -> Params:
        """The probabilities of a one."""
        return jax.tree.map(jax.nn.sigmoid, self.logit)

    def sample(self, key: RandomKey) -> Params:
        """Returns zeros and ones, as floating numbers."""
        flip = lambda k, logit: jnp.asarray(jax.random.bernoulli(k, jax.nn.sigmoid(logit)), logit.dtype)
        return sample_leaves(key, flip, self.logit)


@record
class Binary(ExponentialFamily):
    r"""Binary weights, \(\theta \in \{-1, +1\}\): \(T = \theta\), \(A = \log(2\cosh\lambda)\), \(\mu = \tanh\lambda\).

    λ is half of the logit of +1.

    Attributes:
        half_logit: λ, a tree of arrays of any shapes.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Binary
        >>> belief = Binary({"kernel": jnp.array([-20.0, 20.0])})
        >>> belief.sample(jax.random.key(0))["kernel"].tolist()
        [-1.0, 1.0]
    """

    half_logit: Params

    domains: ClassVar[Mapping[str, Domain]] = {"half_logit": Real()}
    unbounded: ClassVar[bool] = True

    def to_natural(self) -> Any:
        """Returns half of the logit."""
        return self.half_logit

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Binary:
        """Returns the belief with this half of a logit."""
        return cls(values)

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Binary:
        r"""Returns the belief with \(\lambda = \operatorname{artanh} \mu\)."""
        return cls(jax.tree.map(jnp.arctanh, values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        r"""Returns \(\sum \log(e^\lambda + e^{-\lambda})\)."""
        return total(lambda half: jax.nn.softplus(2.0 * half) - half, values)

    def statistics(self, theta: Params) -> Any:
        return theta

    @property
    def mode(self) -> Params:
        """The more probable value of every weight, +1 or −1."""
        sign = lambda half: jnp.where(half >= 0, jnp.ones_like(half), -jnp.ones_like(half))
        return jax.tree.map(sign, self.half_logit)

    @property
    def mean(self) -> Params:
        r"""\(\tanh\lambda\)."""
        return jax.tree.map(jnp.tanh, self.half_logit)

    def sample(self, key: RandomKey) -> Params:
        """Returns minus and plus ones, as floating numbers."""

        def flip(k: RandomKey, half: Array) -> Array:
            return jnp.where(jax.random.bernoulli(k, jax.nn.sigmoid(2.0 * half)), 1.0, -1.0).astype(half.dtype)

        return sample_leaves(key, flip, self.half_logit)
