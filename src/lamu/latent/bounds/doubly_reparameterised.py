"""The importance-weighted bound with the gradient in q reparameterised twice."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.latent.bounds.importance import log_mean
from lamu.latent.bounds.interface import Bound, over_samples, require_samples
from lamu.latent.bounds.joint import Joint
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Number, RandomKey

__all__ = ["DoublyReparameterised"]


@record
@sized
class DoublyReparameterised(Bound):
    r"""The importance-weighted bound of k draws with a gradient in q of lower variance.

    \[ \nabla_\phi \mathcal L_k = E \sum_{i=1}^k \tilde w_i^2\, \frac{\partial \log w_i}{\partial z_i}\,
       \frac{\partial z_i}{\partial \phi}, \qquad
       \nabla_\theta \mathcal L_k = E \sum_{i=1}^k \tilde w_i\, \nabla_\theta \log p(y, z_i), \qquad
       \tilde w_i = \frac{w_i}{\sum_j w_j} \]

    The value is that of `Importance`. A path through z is weighed twice and one through the model's parameters once:
    one backward pass of \(\sum_i \tilde w_i \log w_i\) in which the gradient that reaches \(z_i\) is scaled by
    \(\tilde w_i\).

    Attributes:
        samples: k.

    Raises:
        ValueError: for fewer than one draw.

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

    def __post_init__(self) -> None:
        require_samples(self.samples, 1, "DoublyReparameterised")

    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        """Returns the log of the mean weight, with the gradient above."""
        held = jax.lax.stop_gradient(belief)
        of_draws, of_rest = jax.random.split(key)
        draws = over_samples(of_draws, self.samples, belief.sample)
        keys = jax.random.split(of_rest, self.samples)

        def log_weight(z: Any, k: RandomKey) -> Array:
            return joint.log_likelihood(z, k) + weight * (joint.log_prior(z) - held.log_prob(z))

        # The same keys twice, since both are the same weights.
        shares = jax.nn.softmax(jax.lax.stop_gradient(jax.vmap(log_weight)(draws, jax.random.clone(keys))))
        log_weights = jax.vmap(log_weight)(_scaled_gradient(draws, shares), keys)
        surrogate = jnp.sum(shares * log_weights)
        return jax.lax.stop_gradient(log_mean(log_weights) - surrogate) + surrogate


def _scaled_gradient(draws: Any, shares: Array) -> Any:
    """Returns the draws themselves, whose gradients are multiplied by their shares."""

    def of_leaf(leaf: Array) -> Array:
        held = jax.lax.stop_gradient(leaf)
        return held + jnp.reshape(shares, (-1,) + (1,) * (leaf.ndim - 1)) * (leaf - held)

    return jax.tree.map(of_leaf, draws)
