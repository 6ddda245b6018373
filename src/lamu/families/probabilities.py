"""Beliefs about events and their probabilities: Bernoulli, Binary, Categorical, Beta and Dirichlet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import digamma, gammaln

from lamu.families.exponential import Domain, Finite, Formulas, Positive, TextbookFamily
from lamu.record import record
from lamu.typing import Array, Params, PyTree, Statistics

__all__ = ["Bernoulli", "Beta", "Binary", "Categorical", "Dirichlet"]


@record
class Bernoulli(TextbookFamily):
    r"""Binary θ, \(\theta \in \{0, 1\}\): \(T = \theta\), \(A = \log(1 + e^\lambda)\), \(\mu = \sigma(\lambda)\).

    λ is the logit.

    Attributes:
        logit: \(\log p/(1-p)\), a tree of arrays of any shapes.

    Examples:
        >>> from lamu.families import Bernoulli
        >>> float(Bernoulli(0.0).mean), round(float(Bernoulli(0.0).entropy()), 4)
        (0.5, 0.6931)
    """

    logit: Params

    domains: ClassVar[Mapping[str, Domain]] = {"logit": Finite()}
    unbounded: ClassVar[bool] = True
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda logit: logit,
        textbook=lambda natural: natural,
        partition=jax.nn.softplus,
        statistics=lambda one: one,
        mean=jax.nn.sigmoid,
        draw=lambda key, logit: jnp.asarray(jax.random.bernoulli(key, jax.nn.sigmoid(logit)), logit.dtype),
        of_moments=lambda mu: jnp.log(mu) - jnp.log1p(-mu),
        variance=lambda logit: jax.nn.sigmoid(logit) * jax.nn.sigmoid(-logit),
    )


@record
class Binary(TextbookFamily):
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

    domains: ClassVar[Mapping[str, Domain]] = {"half_logit": Finite()}
    unbounded: ClassVar[bool] = True
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda half: half,
        textbook=lambda natural: natural,
        partition=lambda half: jax.nn.softplus(2.0 * half) - half,
        statistics=lambda sign: sign,
        mean=jnp.tanh,
        draw=lambda key, half: _sign(jax.random.bernoulli(key, jax.nn.sigmoid(2.0 * half)), half),
        of_moments=jnp.arctanh,
    )

    @property
    def mode(self) -> Params:
        """The more probable value of every weight, +1 or −1."""
        return jax.tree.map(lambda half: _sign(half >= 0, half), self.half_logit)


def _sign(positive: Array, like: Array) -> Array:
    return jnp.where(positive, 1.0, -1.0).astype(like.dtype)


@record
class Categorical(TextbookFamily):
    r"""One of K categories, θ a one-hot vector: \(T = (\theta_1, \ldots, \theta_{K-1})\), minimal.

    \[ \lambda_k = \log \pi_k / \pi_K, \qquad A = \log\Big(1 + \sum_{k<K} e^{\lambda_k}\Big), \qquad \mu_k = \pi_k \]

    Attributes:
        logits: log probabilities `[..., K]` up to a constant for each vector, or a tree of them.

    Examples:
        >>> from lamu.families import Categorical
        >>> belief = Categorical.from_probabilities([0.5, 0.25, 0.25])
        >>> belief.expectation().values.tolist(), belief.mean.tolist()  # μ leaves the last one out
        ([0.5, 0.25], [0.5, 0.25, 0.25])
    """

    logits: Params

    domains: ClassVar[Mapping[str, Domain]] = {"logits": Finite(event=1)}
    events: ClassVar[tuple[int, ...]] = (1,)
    unbounded: ClassVar[bool] = True
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda logits: logits[..., :-1] - logits[..., -1:],
        textbook=lambda natural: _with_zero(natural),
        partition=lambda natural: jax.nn.logsumexp(_with_zero(natural), axis=-1),
        statistics=lambda one_hot: one_hot[..., :-1],
        mean=lambda logits: jax.nn.softmax(logits, axis=-1),
        draw=lambda key, p: jax.nn.one_hot(jax.random.categorical(key, p), p.shape[-1], dtype=p.dtype),
        of_moments=lambda mu: jnp.log(jnp.concatenate([mu, 1.0 - jnp.sum(mu, axis=-1, keepdims=True)], axis=-1)),
        variance=lambda logits: jax.nn.softmax(logits, axis=-1) * (1.0 - jax.nn.softmax(logits, axis=-1)),
    )

    @classmethod
    def from_probabilities(cls, probabilities: Params) -> Categorical:
        """Returns the belief with the given probabilities.

        Args:
            probabilities: `[..., K]`, or a tree of them.

        Raises:
            ValueError: if one is not positive, or a vector does not sum to one.
        """

        def logarithm(leaf: PyTree) -> Array:
            if not isinstance(leaf, Tracer):
                sums, least = np.sum(np.asarray(leaf), axis=-1), np.min(np.asarray(leaf))
                if not least > 0:
                    raise ValueError(f"the probability {least:.6g} is not positive; leave out impossible categories")
                if not np.allclose(sums, 1.0, rtol=0.0, atol=1e-5):
                    worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1.0))]
                    raise ValueError(f"the probabilities sum to {worst:.6g} and not to one; divide them by their sum")
            return jnp.log(jnp.asarray(leaf))

        return cls(jax.tree.map(logarithm, probabilities, is_leaf=lambda leaf: isinstance(leaf, list)))


def _with_zero(natural: Array) -> Array:
    return jnp.concatenate([natural, jnp.zeros((*natural.shape[:-1], 1), natural.dtype)], axis=-1)


@record
class Beta(TextbookFamily):
    r"""A probability, \(0 < \theta < 1\): \(T = (\log\theta, \log(1-\theta))\), \(\lambda = (\alpha-1, \beta-1)\).

    \[ A = \log B(\alpha, \beta), \qquad \mu = (\psi(\alpha), \psi(\beta)) - \psi(\alpha + \beta) \]

    Attributes:
        alpha: α, positive: one more than the number of successes, from a flat start.
        beta: β, positive: one more than the number of failures.

    Examples:
        >>> from lamu.families import Beta
        >>> float(Beta(3.0, 1.0).mean)
        0.75
    """

    alpha: Params
    beta: Params

    domains: ClassVar[Mapping[str, Domain]] = {"alpha": Positive(), "beta": Positive()}
    events: ClassVar[tuple[int, ...]] = (0, 0)
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda a, b: (a - 1.0, b - 1.0),
        textbook=lambda one, zero: (one + 1.0, zero + 1.0),
        partition=lambda one, zero: gammaln(one + 1.0) + gammaln(zero + 1.0) - gammaln(one + zero + 2.0),
        statistics=lambda x: (jnp.log(x), jnp.log1p(-x)),
        mean=lambda a, b: a / (a + b),
        draw=lambda key, a, b: _inside(jax.random.beta(key, a, b, dtype=a.dtype)),
        variance=lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1.0)),
    )

    @classmethod
    def guess(cls, values: Statistics) -> Beta:
        """Returns an initial belief near the solution."""
        a, b = _guess(jnp.stack(values))
        return cls(a, b)


def _of_shares(a: Array, total: Array) -> Array:
    """Returns the variances of probabilities with a Dirichlet belief."""
    return a * (total - a) / (total**2 * (total + 1.0))


def _inside(share: Array) -> Array:
    limits = jnp.finfo(share.dtype)
    return jnp.clip(share, limits.tiny, 1.0 - limits.epsneg)


@record
class Dirichlet(TextbookFamily):
    r"""K probabilities that sum to one: \(T = \log\theta\), \(\lambda = \alpha - 1\).

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
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda a: a - 1.0,
        textbook=lambda natural: natural + 1.0,
        partition=lambda n: jnp.sum(gammaln(n + 1.0), axis=-1) - gammaln(jnp.sum(n + 1.0, axis=-1)),
        statistics=jnp.log,
        mean=lambda a: a / jnp.sum(a, axis=-1, keepdims=True),
        draw=lambda key, a: jnp.maximum(jax.random.dirichlet(key, a, dtype=a.dtype), jnp.finfo(a.dtype).tiny),
        variance=lambda a: _of_shares(a, jnp.sum(a, axis=-1, keepdims=True)),
    )

    @classmethod
    def guess(cls, values: Statistics) -> Dirichlet:
        """Returns an initial belief near the solution."""
        return cls(_guess(values))


def _guess(mu: Array) -> Array:
    r"""Returns α near the one with \(\psi(\alpha_k) - \psi(\sum_j \alpha_j) = \mu_k\)."""
    # The sum is that of the limit in which all α are large, and ψ is inverted approximately.
    #
    # Source: Minka (2000), "Estimating a Dirichlet distribution", appendix C.
    room = jnp.maximum(1.0 - jnp.sum(jnp.exp(mu)), jnp.finfo(mu.dtype).eps)
    y = mu + digamma((mu.size - 1) / (2.0 * room))
    large = jnp.exp(jnp.minimum(y, 80.0)) + 0.5
    return jnp.where(y > -2.22, large, -1.0 / (jnp.minimum(y, -2.22) + 0.5772))
