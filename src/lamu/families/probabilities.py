"""Beliefs about events and their probabilities, about rates and counts, and about angles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import digamma, gammaln, i0e

from lamu.base.compile_once import compiled_once, lenient
from lamu.families.exponential import Domain, Finite, Formulas, Positive, TextbookFamily, increasing_root, total
from lamu.families.special import draw_counts, entropy_of_count
from lamu.record import record
from lamu.typing import Array, Params, PyTree, RandomKey, Statistics

__all__ = [
    "Bernoulli",
    "Beta",
    "Binary",
    "Categorical",
    "Dirichlet",
    "Exponential",
    "Gamma",
    "InverseGamma",
    "Poisson",
    "VonMises",
]


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
    unbounded: ClassVar[bool] = True
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda logits: logits[..., :-1] - logits[..., -1:],
        textbook=lambda natural: _with_zero(natural),
        partition=lambda natural: jax.nn.logsumexp(_with_zero(natural), axis=-1),
        statistics=lambda one_hot: one_hot[..., :-1],
        mean=compiled_once()(jax.nn.softmax),
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


# The inverse from μ to λ has no formula: the shape is the root of an increasing function of one variable, \(\psi(a) -
# \log a = E\log\theta - \log E\theta\), found by bisection.


@record
class Gamma(TextbookFamily):
    r"""A positive number: \(T = (\log\theta, \theta)\), \(\lambda = (a - 1, -b)\).

    \[ A = \log\Gamma(a) - a \log b, \qquad \mu = (\psi(a) - \log b,\; a/b) \]

    Attributes:
        shape: a, positive.
        rate: b, positive.

    Examples:
        >>> from lamu.families import Gamma
        >>> float(Gamma(shape=3.0, rate=2.0).mean)
        1.5
    """

    shape: Params
    rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"shape": Positive(), "rate": Positive()}
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda a, b: (a - 1.0, -b),
        textbook=lambda log, linear: (log + 1.0, -linear),
        partition=lambda log, linear: gammaln(log + 1.0) - (log + 1.0) * jnp.log(-linear),
        statistics=lambda x: (jnp.log(x), x),
        mean=lambda a, b: a / b,
        draw=lambda key, a, b: gamma_draw(key, a) / b,
        of_moments=lambda log, mean: _with_ratio(gamma_shape(log - jnp.log(mean)), mean),
        variance=lambda a, b: a / b**2,
    )


@record
class InverseGamma(TextbookFamily):
    r"""A positive number whose reciprocal is Gamma: \(T = (\log\theta, 1/\theta)\), \(\lambda = (-a - 1, -b)\).

    \[ A = \log\Gamma(a) - a \log b, \qquad \mu = (\log b - \psi(a),\; a/b) \]

    Attributes:
        shape: a, positive.
        scale: b, positive.

    Examples:
        >>> from lamu.families import InverseGamma
        >>> float(InverseGamma(shape=3.0, scale=2.0).mean)
        1.0
    """

    shape: Params
    scale: Params

    domains: ClassVar[Mapping[str, Domain]] = {"shape": Positive(), "scale": Positive()}
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda a, b: (-a - 1.0, -b),
        textbook=lambda log, inverse: (-log - 1.0, -inverse),
        partition=lambda log, inverse: gammaln(-log - 1.0) + (log + 1.0) * jnp.log(-inverse),
        statistics=lambda x: (jnp.log(x), 1.0 / x),
        mean=lambda a, b: jnp.where(a > 1.0, b / jnp.where(a > 1.0, a - 1.0, 1.0), jnp.inf),
        draw=lambda key, a, b: b / gamma_draw(key, a),
        of_moments=lambda log, inverse: _with_ratio(gamma_shape(-log - jnp.log(inverse)), inverse),
        variance=lambda a, b: jnp.where(a > 2.0, (b / (a - 1.0)) ** 2 / jnp.where(a > 2.0, a - 2.0, 1.0), jnp.inf),
    )


@record
class Exponential(TextbookFamily):
    r"""A waiting time: \(T = \theta > 0\), \(\lambda = -r\), \(A = -\log r\), \(\mu = 1/r\).

    Attributes:
        rate: r, positive.

    Examples:
        >>> from lamu.families import Exponential
        >>> float(Exponential(rate=4.0).mean)
        0.25
    """

    rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"rate": Positive()}
    formulas: ClassVar[Formulas] = Formulas(
        natural=jnp.negative,
        textbook=jnp.negative,
        partition=lambda natural: -jnp.log(-natural),
        statistics=lambda x: x,
        mean=jnp.reciprocal,
        draw=lambda key, r: jax.random.exponential(key, r.shape, r.dtype) / r,
        of_moments=jnp.reciprocal,
    )


def _with_ratio(shape: Array, ratio: Array) -> tuple[Array, Array]:
    """Returns a, and the b for a given ratio a/b."""
    return shape, shape / ratio


def by_halves(a: Array, dimension: int) -> Array:
    """Returns a − j/2 for j < p along a last axis, the arguments of gamma functions of matrices."""
    # One array for all: the program of separate terms grows with p, and each takes long to compile.
    steps = jnp.arange(dimension, dtype=a.dtype).reshape((1,) * a.ndim + (dimension,)) / 2.0
    return a[..., None] - steps


def gamma_shape(gap: Array, dimension: int = 1) -> Array:
    r"""Returns the a at which \(\sum_{j<p} \psi(a - j/2) - p \log a\) is the given gap, for p dimensions."""
    # The gap is \(E\log\theta - \log E\theta\) of the Gamma, and its matrix counterpart of the Wishart; NaN if it is
    # not negative.
    least, p = (dimension - 1) / 2.0, float(dimension)

    def function(t: Array) -> Array:
        a = least + jnp.exp(t)
        return jnp.sum(digamma(by_halves(a, dimension)), axis=-1) - p * jnp.log(a)

    t = increasing_root(function, jnp.where(gap < 0, gap, jnp.nan), -60.0, 40.0)
    return jnp.where(gap < 0, least + jnp.exp(t), jnp.nan)


def gamma_draw(key: RandomKey, shape: Array) -> Array:
    """Returns a sample of Gamma(shape, 1), bounded away from zero."""
    return jnp.maximum(jax.random.gamma(key, shape, dtype=shape.dtype), jnp.finfo(shape.dtype).tiny)


# The only family here with a base measure, \(h(\theta) = 1/\theta!\), that is not constant: \(\nabla_\mu H = -\lambda\)
# does not hold, and the rule applies in its first form, with the gradient of the entropy.


@record
class Poisson(TextbookFamily):
    r"""A count: \(T = \theta\), λ the logarithm of the rate, \(A = e^\lambda\), \(\mu = e^\lambda\), \(h = 1/\theta!\).

    Attributes:
        log_rate: λ, a tree of arrays of any shapes.

    Examples:
        >>> from lamu.families import Poisson
        >>> round(float(Poisson(log_rate=0.0).entropy()), 4)  # nats
        1.3048
    """

    log_rate: Params

    domains: ClassVar[Mapping[str, Domain]] = {"log_rate": Finite()}
    unbounded: ClassVar[bool] = True
    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda log_rate: log_rate,
        textbook=lambda natural: natural,
        partition=jnp.exp,
        statistics=lambda count: count,
        mean=jnp.exp,
        draw=lambda key, log_rate: draw_counts(key, jnp.exp(log_rate)),
        of_moments=jnp.log,
    )

    def log_base_measure(self, theta: Params) -> Array:
        """Returns −log θ!."""
        return total(lambda count: -gammaln(count + 1.0), theta)

    def expected_log_base_measure(self) -> Array:
        """Returns −E log θ!, from the entropy."""
        leaf = lambda log_rate: jnp.exp(log_rate) * (1.0 - log_rate) - entropy_of_count(jnp.exp(log_rate))
        return total(leaf, self.log_rate)

    def entropy(self) -> Array:
        return total(lambda log_rate: entropy_of_count(jnp.exp(log_rate)), self.log_rate)


@record
class VonMises(TextbookFamily):
    r"""An angle in \((-\pi, \pi]\): \(T = (\cos\theta, \sin\theta)\), \(\lambda = \kappa\,(\cos m, \sin m)\).

    \[ A = \log 2\pi I_0(\lVert\lambda\rVert), \qquad \mu = \frac{I_1(\kappa)}{I_0(\kappa)}\,(\cos m, \sin m) \]

    The inverse from μ to κ has no formula and uses Newton's method.

    Attributes:
        location: m, an angle, up to full turns.
        concentration: κ, positive.

    Examples:
        >>> from lamu.families import VonMises
        >>> round(float(VonMises(0.5, 2.0).expectation().family().concentration), 4)
        2.0
    """

    location: Params
    concentration: Params

    domains: ClassVar[Mapping[str, Domain]] = {"location": Finite(), "concentration": Positive()}
    unbounded: ClassVar[bool] = True

    formulas: ClassVar[Formulas] = Formulas(
        natural=lambda m, kappa: (kappa * jnp.cos(m), kappa * jnp.sin(m)),
        textbook=lambda cosine, sine: (jnp.arctan2(sine, cosine), _length(cosine, sine)),
        partition=lambda cosine, sine: _log_normaliser(_length(cosine, sine)),
        statistics=lambda angle: (jnp.cos(angle), jnp.sin(angle)),
        mean=lambda m, kappa: jnp.arctan2(jnp.sin(m), jnp.cos(m)),  # the mean direction, in (−π, π]
        draw=lambda key, m, kappa: _draw(key, m, kappa),
    )

    @classmethod
    def guess(cls, values: Statistics) -> VonMises:
        """Returns the belief with the usual approximation to κ."""
        length = _length(*values)
        room = jnp.maximum(1.0 - length**2, jnp.finfo(length.dtype).eps)
        return cls(jnp.arctan2(values[1], values[0]), length * (2.0 - length**2) / room)


def _draw(key: RandomKey, m: Array, kappa: Array) -> Array:
    """Returns angles in (−π, π], by Best and Fisher's rejection."""
    from numpyro.distributions import VonMises as Angle

    with lenient():
        return Angle(m, kappa).sample(key).astype(m.dtype)


def _log_normaliser(kappa: Array) -> Array:
    """Returns log 2π I₀(κ)."""
    return kappa + jnp.log(2.0 * jnp.pi * i0e(kappa))


def _length(cosine: Array, sine: Array) -> Array:
    """Returns the length of the vector, bounded away from zero, where it has no derivative."""
    return jnp.sqrt(jnp.maximum(cosine**2 + sine**2, jnp.finfo(cosine.dtype).tiny))
