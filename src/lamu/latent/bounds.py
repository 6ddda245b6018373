"""Lower bounds on the log density of a row with latent variables."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import sized
from lamu.families import ExponentialFamily, Gaussian
from lamu.latent.flows import Flowed
from lamu.operators import Diagonal
from lamu.record import given, record, static
from lamu.typing import Array, Belief, Number, Params, RandomKey

__all__ = [
    "ELBO",
    "Bound",
    "DoublyReparameterised",
    "FreeBits",
    "Importance",
    "Joint",
    "Renyi",
    "RowJoint",
    "StickingTheLanding",
    "WarmUp",
]


class Joint(ABC):
    r"""\(p(y, z)\) of one row as a function of its latents z, for the row's y.

    Densities are scalars in nats.
    """

    @abstractmethod
    def log_likelihood(self, z: Params, key: RandomKey | None) -> Array:
        """Returns log p(y | z), or an unbiased estimate of a bound of it.

        Args:
            z: the latents of the row.
            key: for random estimates; None for deterministic ones.
        """

    @abstractmethod
    def log_prior(self, z: Params) -> Array:
        """Returns log p(z).

        Args:
            z: the latents of the row.
        """

    def divergences(self, belief: Belief) -> Array | None:
        r"""Returns \(KL(q \,\|\, p(z))\) in nats as a vector of independent terms that sum to it.

        None if it has no closed form, so that bounds estimate it from samples; this is the default.

        Args:
            belief: q(z | y).
        """
        del belief

    def divergence(self, belief: Belief) -> Array | None:
        r"""Returns \(KL(q \,\|\, p(z))\) in nats, a scalar; None if `divergences` returns None.

        Args:
            belief: q(z | y).
        """
        terms = self.divergences(belief)
        return None if terms is None else jnp.sum(terms)


@record
class RowJoint(Joint):
    r"""A family as the prior of z with any function as the likelihood.

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

    def divergences(self, belief: Belief) -> Array | None:
        """Returns KL terms, one for each coordinate of two diagonal Gaussians; None for two different families."""
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
    difference = tree.ravel(tree.add(q.mean, p.mean, -1.0))[0]
    s, t = (tree.ravel(precision.values)[0] for precision in (q.precision, p.precision))
    return (t / s + t * difference**2 - 1 + jnp.log(s / t)) / 2


class Bound(ABC):
    r"""An estimate of a lower bound on \(\log p(y)\) of one row, from samples of a belief \(q(z \mid y)\).

    Its expectation over the key is at most \(\log p(y)\) at weight one. Its gradient, in any parameters of the joint
    density and the belief, is the estimator that the class states. The objective applies the number of rows and
    the temperature.
    """

    @abstractmethod
    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        r"""Returns the estimate in nats, a scalar.

        Args:
            key: a random key for this row.
            joint: p(y, z) of the row.
            belief: q(z | y), with `sample` and `log_prob`.
            weight: β, which multiplies the divergence (\(\log q - \log p(z)\)); one for a bound.
        """

    def weight(self, step: Number) -> Array:
        """Returns β at a training step; one by default.

        Args:
            step: number of training steps so far.
        """
        del step
        return jnp.ones(())


def draw(key: RandomKey, belief: Belief) -> tuple[Params, Array]:
    """Returns one sample z and log q(z) in nats."""
    if isinstance(belief, Flowed):
        return belief.draw(key)
    z = belief.sample(key)
    return z, belief.log_prob(z)


def log_weight(key: RandomKey, joint: Joint, belief: Belief, weight: Number) -> Array:
    r"""Returns \(\log p(y \mid z) + \beta\,(\log p(z) - \log q(z))\) at one sample z of q, in nats."""
    of_draw, of_rest = jax.random.split(key)
    z, log_q = draw(of_draw, belief)
    return joint.log_likelihood(z, of_rest) + weight * (joint.log_prior(z) - log_q)


def expected_log_likelihood(key: RandomKey, joint: Joint, belief: Belief, samples: int) -> Array:
    r"""Returns the average of \(\log p(y \mid z)\) over samples of q, in nats."""

    def of_draw(key: RandomKey) -> Array:
        of_draw, of_rest = jax.random.split(key)
        return joint.log_likelihood(belief.sample(of_draw), of_rest)

    return jnp.mean(over_samples(key, samples, of_draw))


def over_samples(key: RandomKey, samples: int, of_key: Callable[[RandomKey], Array]) -> Array:
    """Evaluates a function at several independent keys, stacked along a leading axis."""
    if samples == 1:  # the key itself: saves a split for each row
        return jax.tree.map(lambda leaf: leaf[None], of_key(key))
    return jax.vmap(of_key)(jax.random.split(key, samples))


@record
@sized
class Importance(Bound):
    r"""The importance-weighted bound with k samples.

    \[ \mathcal L_k = E \log \frac1k \sum_{i=1}^k w_i, \qquad w_i = \frac{p(y, z_i)}{q(z_i \mid y)}, \qquad
       \mathcal L_1 \le \mathcal L_2 \le \dots \le \log p(y) \]

    As k grows, the signal-to-noise ratio of its gradient in q vanishes; `DoublyReparameterised` avoids this.

    Attributes:
        samples: k.

    Raises:
        ValueError: for fewer than one sample.

    Source: Burda, Grosse & Salakhutdinov (2016), equation 8 and theorem 1.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import Importance, RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(-2.0))
        >>> round(float(Importance(5).of_row(jax.random.key(0), joint, prior)), 5)
        -2.0
    """

    samples: int = static()

    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        return log_mean(over_samples(key, self.samples, lambda k: log_weight(k, joint, belief, weight)))


def log_mean(log_weights: Array) -> Array:
    r"""Returns \(\log \frac1k \sum_i e^{l_i}\), a scalar."""
    return jax.nn.logsumexp(log_weights) - math.log(log_weights.size)


@record
@sized
class DoublyReparameterised(Bound):
    r"""The importance-weighted bound with k samples and a lower-variance gradient in q.

    \[ \nabla_\phi \mathcal L_k = E \sum_{i=1}^k \tilde w_i^2\, \frac{\partial \log w_i}{\partial z_i}\,
       \frac{\partial z_i}{\partial \phi}, \qquad
       \nabla_\theta \mathcal L_k = E \sum_{i=1}^k \tilde w_i\, \nabla_\theta \log p(y, z_i), \qquad
       \tilde w_i = \frac{w_i}{\sum_j w_j} \]

    The value is that of `Importance`. A path through z is weighted twice and one through the model's parameters once:
    one backward pass of \(\sum_i \tilde w_i \log w_i\) in which the gradient that reaches \(z_i\) is scaled by
    \(\tilde w_i\).

    Attributes:
        samples: k.

    Raises:
        ValueError: for fewer than one sample.

    Source: Tucker, Lawson, Gu & Maddison (2019), equation 8.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import DoublyReparameterised, RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(-2.0))
        >>> round(float(DoublyReparameterised(5).of_row(jax.random.key(0), joint, prior)), 5)
        -2.0
    """

    samples: int = static()

    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        """Returns the log of the mean weight, with the gradient above."""
        fixed = jax.lax.stop_gradient(belief)
        of_draws, of_rest = jax.random.split(key)
        draws = over_samples(of_draws, self.samples, belief.sample)
        keys = jax.random.split(of_rest, self.samples)

        def log_weight(z: Any, k: RandomKey) -> Array:
            return joint.log_likelihood(z, k) + weight * (joint.log_prior(z) - fixed.log_prob(z))

        # The same keys twice, since both evaluate the same weights.
        shares = jax.nn.softmax(jax.lax.stop_gradient(jax.vmap(log_weight)(draws, jax.random.clone(keys))))
        log_weights = jax.vmap(log_weight)(_scaled_gradient(draws, shares), keys)
        surrogate = jnp.sum(shares * log_weights)
        return jax.lax.stop_gradient(log_mean(log_weights) - surrogate) + surrogate


def _scaled_gradient(draws: Any, shares: Array) -> Any:
    """Returns the samples unchanged, with their gradients multiplied by their shares."""

    def of_leaf(leaf: Array) -> Array:
        fixed = jax.lax.stop_gradient(leaf)
        return fixed + jnp.reshape(shares, (-1,) + (1,) * (leaf.ndim - 1)) * (leaf - fixed)

    return jax.tree.map(of_leaf, draws)


@record
@sized
class ELBO(Bound):
    r"""The evidence lower bound, with reparameterised samples.

    \[ \mathcal L = E_q[\log p(y \mid z)] - \beta\, KL(q(z \mid y) \,\|\, p(z)) = \log p(y) - KL(q \,\|\, p(z \mid y))
       \quad (\beta = 1) \]

    The divergence has a closed form if both families are known, otherwise it is the average of \(\log q - \log p\) over
    the samples.

    Attributes:
        samples: number of samples of z a row.

    Raises:
        ValueError: for fewer than one sample.

    Source: Kingma & Welling (2014), equations 3 and 10; Rezende, Mohamed & Wierstra (2014), equation 6.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import ELBO, RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(-2.0))
        >>> float(ELBO().of_row(jax.random.key(0), joint, prior))
        -2.0
    """

    samples: int = static(default=1)

    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        """Returns the average log likelihood of the samples, minus β times the divergence."""
        divergence = joint.divergence(belief)
        if divergence is not None:
            return expected_log_likelihood(key, joint, belief, self.samples) - weight * divergence
        return jnp.mean(over_samples(key, self.samples, lambda k: log_weight(k, joint, belief, weight)))


@record
@sized
class FreeBits(Bound):
    r"""The evidence lower bound with λ free nats for every latent coordinate.

    \[ \mathcal L_\lambda = E_q[\log p(y \mid z)] - \beta \sum_j \max(\lambda,\, KL_j) \le \mathcal L \]

    It keeps coordinates from collapsing to the prior early in training. The paper takes the maximum of the minibatch's
    average over a group; here it is taken for each row, so that the bound of a row does not depend on the others.

    Attributes:
        nats: λ, for each independent term of the divergence.
        samples: number of samples of z a row.

    Raises:
        ValueError: for a negative λ, or fewer than one sample.
        TypeError: if it is used with a divergence without a closed form.

    Source: Kingma, Salimans, Jozefowicz, Chen, Sutskever & Welling (2016), equation 15.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import FreeBits, RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(2), Diagonal(jnp.ones(2)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(0.0))
        >>> float(FreeBits(0.25).of_row(jax.random.key(0), joint, prior))
        -0.5
    """

    nats: float = static()
    samples: int = static(default=1)

    def __post_init__(self) -> None:
        if not self.nats >= 0:
            raise ValueError(f"nats={self.nats!r} must not be negative; give for instance 0.1")

    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        """Returns the average log likelihood, minus β times the divergences, each at least λ."""
        terms = joint.divergences(belief)
        if terms is None:
            raise TypeError(
                f"FreeBits needs the divergence of {type(belief).__name__} from the prior in closed form; use a "
                "Gaussian belief with a Gaussian prior, or WarmUp(ELBO(), steps)"
            )
        value = expected_log_likelihood(key, joint, belief, self.samples)
        return value - weight * jnp.sum(jnp.maximum(terms, self.nats))


@record
@sized
class Renyi(Bound):
    r"""The variational Rényi bound of order α with k samples.

    \[ \mathcal L_{\alpha, k} = \frac{1}{1 - \alpha}\, E \log \frac1k \sum_{i=1}^k w_i^{1 - \alpha} \]

    α = 0 is `Importance`, and α → 1 the evidence lower bound. For \(\alpha \ge 0\) it is below \(\log p(y)\) for every
    k, and falls as α grows.

    Attributes:
        alpha: α, from zero, other than one.
        samples: k.

    Raises:
        ValueError: for a negative α, whose estimate is not a bound, for α = 1, or for fewer than one sample.

    Source: Li & Turner (2016), equations 10 and 14.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import Renyi, RowJoint
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(-2.0))
        >>> round(float(Renyi(0.5, 5).of_row(jax.random.key(0), joint, prior)), 5)
        -2.0
    """

    alpha: float = static()
    samples: int = static()

    def __post_init__(self) -> None:
        if not self.alpha >= 0:
            raise ValueError(f"alpha={self.alpha!r} is negative, and its estimate is not a bound; give alpha from 0")
        if self.alpha == 1:
            raise ValueError("alpha=1 is the evidence lower bound; use ELBO(samples)")

    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        r"""Returns the log of the mean of \(w^{1 - \alpha}\), over 1 − α."""
        power = 1.0 - self.alpha
        return log_mean(over_samples(key, self.samples, lambda k: power * log_weight(k, joint, belief, weight))) / power


@record
@sized
class StickingTheLanding(Bound):
    r"""The evidence lower bound without the score of q in its gradient.

    \[ \nabla_\phi \mathcal L = E\Big[ \nabla_z \big( \log p(y, z) - \log q(z \mid y) \big)\, \nabla_\phi z \Big] \]

    The score \(\nabla_\phi \log q\) at fixed z has mean zero; without it the gradient of every single sample is zero
    if q is the exact posterior. The value is that of `ELBO` with a sampled divergence.

    Attributes:
        samples: number of samples of z a row.

    Raises:
        ValueError: for fewer than one sample.

    Source: Roeder, Wu & Duvenaud (2017), equation 8.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds import RowJoint, StickingTheLanding
        >>> from lamu.operators import Diagonal
        >>> prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(0.0))  # says nothing: the prior is the posterior
        >>> gradient = jax.grad(lambda q: StickingTheLanding().of_row(jax.random.key(0), joint, q))(prior)
        >>> float(gradient.mean[0]), float(gradient.precision.values[0])
        (0.0, 0.0)
    """

    samples: int = static(default=1)

    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        """Returns the average of log p(y | z) + β (log p(z) − log q(z)), with q's parameters constant in log q."""
        fixed = jax.lax.stop_gradient(belief)

        def of_draw(k: RandomKey) -> Array:
            of_draw, of_rest = jax.random.split(k)
            z = belief.sample(of_draw)
            return joint.log_likelihood(z, of_rest) + weight * (joint.log_prior(z) - fixed.log_prob(z))

        return jnp.mean(over_samples(key, self.samples, of_draw))


@record
@sized
class WarmUp(Bound):
    r"""A bound whose weight β on the divergence rises from zero to one over the first training steps.

    \[ \beta_t = \min(1, t / \mathrm{steps}) \]

    For β below one it is not a bound on \(\log p(y)\); evaluation always uses β = 1. As the bound of an `Amortised`
    local it follows the algorithm's training steps, which a graph counts in its state (`posterior.network_state`).

    Attributes:
        bound: the bound.
        steps: number of steps until β is one.

    Raises:
        ValueError: for fewer than one step.
        TypeError: if `bound` is not a bound.

    Source: Sønderby, Raiko, Maaløe, Sønderby & Winther (2016), section 2.3.

    Examples:
        >>> from lamu.latent.bounds import ELBO, WarmUp
        >>> [float(WarmUp(ELBO(), steps=4).weight(t)) for t in (0, 1, 4, 9)]
        [0.0, 0.25, 1.0, 1.0]
    """

    bound: Bound | Any
    steps: int = static()

    def __post_init__(self) -> None:
        if not isinstance(self.bound, Bound):
            raise TypeError(f"the bound is {self.bound!r}; give one of lamu.latent, for instance ELBO()")

    def of_row(self, key: RandomKey, joint: Joint, belief: Belief, weight: Number = 1.0) -> Array:
        return self.bound.of_row(key, joint, belief, weight)

    def weight(self, step: Number) -> Array:
        return jnp.minimum(1.0, step / self.steps)
