"""Beliefs about events and their probabilities: Bernoulli, Binary, Categorical, Beta and Dirichlet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import digamma, gammaln

from lamu.families.exponential import Domain, ExponentialFamily, Positive, Real, sample_leaves, total
from lamu.record import record
from lamu.typing import Array, Params, RandomKey, Statistics

__all__ = ["Bernoulli", "Beta", "Binary", "Categorical", "Dirichlet"]


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

    def statistics(self, theta: Params) -> Statistics:
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

    def statistics(self, theta: Params) -> Statistics:
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


@record
class Categorical(ExponentialFamily):
    r"""One of K categories, θ a one-hot vector: \(T = (\theta_1, \ldots, \theta_{K-1})\), minimal.

    \[ \lambda_k = \log \pi_k / \pi_K, \qquad A = \log\Big(1 + \sum_{k<K} e^{\lambda_k}\Big), \qquad \mu_k = \pi_k \]

    Attributes:
        logits: log probabilities `[..., K]` up to a constant a vector, or a tree of them.

    Examples:
        >>> from lamu.families import Categorical
        >>> belief = Categorical.from_probabilities([0.5, 0.25, 0.25])
        >>> belief.expectation().values.tolist(), belief.mean.tolist()  # μ leaves the last one out
        ([0.5, 0.25], [0.5, 0.25, 0.25])
    """

    logits: Params

    domains: ClassVar[Mapping[str, Domain]] = {"logits": Real(event=1)}
    events: ClassVar[tuple[int, ...]] = (1,)
    unbounded: ClassVar[bool] = True

    @classmethod
    def from_probabilities(cls, probabilities: Any) -> Categorical:
        """Returns the belief with the given probabilities.

        Args:
            probabilities: `[..., K]`, or a tree of them.

        Raises:
            ValueError: if one is not positive, or a vector does not sum to one.
        """

        def logarithm(leaf: Any) -> Array:
            if not isinstance(leaf, Tracer):
                sums, least = np.sum(np.asarray(leaf), axis=-1), np.min(np.asarray(leaf))
                if not least > 0:
                    raise ValueError(f"the probability {least:.6g} is not positive; a category that cannot be is none")
                if not np.allclose(sums, 1.0, rtol=0.0, atol=1e-5):
                    worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1.0))]
                    raise ValueError(f"the probabilities sum to {worst:.6g} and not to one; divide them by their sum")
            return jnp.log(jnp.asarray(leaf))

        return cls(jax.tree.map(logarithm, probabilities, is_leaf=lambda leaf: isinstance(leaf, list)))

    def to_natural(self) -> Any:
        """Returns the logits relative to the last category's."""
        return jax.tree.map(lambda logits: logits[..., :-1] - logits[..., -1:], self.logits)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Categorical:
        """Returns the belief whose last logit is zero."""
        return cls(jax.tree.map(_with_zero, values))

    @classmethod
    def from_expectation(cls, values: Any, given: Any) -> Categorical:
        """Returns the belief with these probabilities of all categories but the last."""
        whole = lambda mu: jnp.concatenate([mu, 1.0 - jnp.sum(mu, axis=-1, keepdims=True)], axis=-1)
        return cls(jax.tree.map(lambda mu: jnp.log(whole(mu)), values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns the log of the sum of exponentials, the last one of zero."""
        return total(lambda natural: jax.nn.logsumexp(_with_zero(natural), axis=-1), values)

    def statistics(self, theta: Params) -> Statistics:
        """Returns the one-hot vector without its last entry."""
        return jax.tree.map(lambda one_hot: one_hot[..., :-1], theta)

    @property
    def mean(self) -> Params:
        """The probabilities `[..., K]`, which is the mean of one-hot vectors."""
        return jax.tree.map(lambda logits: jax.nn.softmax(logits, axis=-1), self.logits)

    def sample(self, key: RandomKey) -> Params:
        """Returns one-hot vectors `[..., K]`, as floating numbers."""

        def draw(k: RandomKey, logits: Array) -> Array:
            return jax.nn.one_hot(jax.random.categorical(k, logits), logits.shape[-1], dtype=logits.dtype)

        return sample_leaves(key, draw, self.logits)


def _with_zero(natural: Array) -> Array:
    return jnp.concatenate([natural, jnp.zeros((*natural.shape[:-1], 1), natural.dtype)], axis=-1)


@record
class Beta(ExponentialFamily):
    r"""A probability, \(0 < \theta < 1\): \(T = (\log\theta, \log(1-\theta))\), \(\lambda = (\alpha-1, \beta-1)\).

    \[ A = \log B(\alpha, \beta), \qquad \mu = (\psi(\alpha), \psi(\beta)) - \psi(\alpha + \beta) \]

    Attributes:
        alpha: α, positive: one more than the successes seen, from a flat start.
        beta: β, positive: one more than the failures.

    Examples:
        >>> from lamu.families import Beta
        >>> float(Beta(3.0, 1.0).mean)
        0.75
    """

    alpha: Params
    beta: Params

    domains: ClassVar[Mapping[str, Domain]] = {"alpha": Positive(), "beta": Positive()}
    events: ClassVar[tuple[int, ...]] = (0, 0)

    def to_natural(self) -> Any:
        """Returns (α − 1, β − 1)."""
        return tuple(jax.tree.map(lambda x: x - 1.0, part) for part in (self.alpha, self.beta))

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Beta:
        """Returns the belief with α and β one larger."""
        return cls(*(jax.tree.map(lambda x: x + 1.0, part) for part in values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns log B(α, β)."""
        leaf = lambda a, b: gammaln(a + 1.0) + gammaln(b + 1.0) - gammaln(a + b + 2.0)
        return total(leaf, *values)

    @classmethod
    def guess(cls, values: Any) -> Beta:
        """Returns a belief nearby."""
        a, b = _guess(jnp.stack(values))
        return cls(a, b)

    def statistics(self, theta: Params) -> Statistics:
        """Returns the logarithms of θ and of 1 − θ."""
        return jax.tree.map(jnp.log, theta), jax.tree.map(lambda x: jnp.log1p(-x), theta)

    @property
    def mean(self) -> Params:
        """α / (α + β)."""
        return jax.tree.map(lambda a, b: a / (a + b), self.alpha, self.beta)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw, differentiable in α and β."""

        def draw(k: RandomKey, a: Array, b: Array) -> Array:
            limits = jnp.finfo(a.dtype)
            return jnp.clip(jax.random.beta(k, a, b, dtype=a.dtype), limits.tiny, 1.0 - limits.epsneg)

        return sample_leaves(key, draw, self.alpha, self.beta)


@record
class Dirichlet(ExponentialFamily):
    r"""Probabilities of K things: \(T = \log\theta\), \(\lambda = \alpha - 1\).

    \[ A = \sum_k \log\Gamma(\alpha_k) - \log\Gamma\Big(\sum_k \alpha_k\Big), \qquad
       \mu_k = \psi(\alpha_k) - \psi\Big(\sum_j \alpha_j\Big) \]

    Attributes:
        concentration: α `[..., K]`, positive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Dirichlet
        >>> Dirichlet(jnp.array([2.0, 1.0, 1.0])).mean.tolist()
        [0.5, 0.25, 0.25]
    """

    concentration: Params

    domains: ClassVar[Mapping[str, Domain]] = {"concentration": Positive(event=1)}
    events: ClassVar[tuple[int, ...]] = (1,)

    def to_natural(self) -> Any:
        """Returns α − 1."""
        return jax.tree.map(lambda a: a - 1.0, self.concentration)

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Dirichlet:
        """Returns the belief with α one larger."""
        return cls(jax.tree.map(lambda a: a + 1.0, values))

    @classmethod
    def partition(cls, values: Any, given: Any) -> Array:
        """Returns the log of the multivariate Beta function of α."""
        return total(lambda a: jnp.sum(gammaln(a + 1.0), axis=-1) - gammaln(jnp.sum(a + 1.0, axis=-1)), values)

    @classmethod
    def guess(cls, values: Any) -> Dirichlet:
        """Returns a belief nearby."""
        return cls(_guess(values))

    def statistics(self, theta: Params) -> Statistics:
        return jax.tree.map(jnp.log, theta)

    @property
    def mean(self) -> Params:
        """α over its sum."""
        return jax.tree.map(lambda a: a / jnp.sum(a, axis=-1, keepdims=True), self.concentration)

    def sample(self, key: RandomKey) -> Params:
        """Returns a draw `[..., K]`, differentiable in α."""

        def draw(k: RandomKey, a: Array) -> Array:
            return jnp.maximum(jax.random.dirichlet(k, a, dtype=a.dtype), jnp.finfo(a.dtype).tiny)

        return sample_leaves(key, draw, self.concentration)


def _guess(mu: Array) -> Array:
    r"""Returns α near the one with \(\psi(\alpha_k) - \psi(\sum_j \alpha_j) = \mu_k\)."""
    # The sum is what it is where all α are large, and ψ is inverted roughly.
    #
    # Source: Minka (2000), "Estimating a Dirichlet distribution", appendix C.
    room = jnp.maximum(1.0 - jnp.sum(jnp.exp(mu)), jnp.finfo(mu.dtype).eps)
    y = mu + digamma((mu.size - 1) / (2.0 * room))
    large = jnp.exp(jnp.minimum(y, 80.0)) + 0.5
    return jnp.where(y > -2.22, large, -1.0 / (jnp.minimum(y, -2.22) + 0.5772))
