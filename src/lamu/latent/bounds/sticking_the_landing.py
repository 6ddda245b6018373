"""The evidence lower bound whose gradient vanishes at the exact posterior."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.latent.bounds.interface import Bound, over_samples, require_samples
from lamu.latent.bounds.joint import Joint
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Number, RandomKey

__all__ = ["StickingTheLanding"]


@record
@sized
class StickingTheLanding(Bound):
    r"""The evidence lower bound without the score of q in its gradient.

    \[ \nabla_\phi \mathcal L = E\Big[ \nabla_z \big( \log p(y, z) - \log q(z \mid y) \big)\, \nabla_\phi z \Big] \]

    The score \(\nabla_\phi \log q\) at fixed z has mean zero; without it the gradient of every single draw is zero
    where q is the exact posterior. The value is that of `ELBO` with a sampled divergence.

    Attributes:
        samples: how many draws of z a row.

    Raises:
        ValueError: for fewer than one draw.

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

    def __post_init__(self) -> None:
        require_samples(self.samples, 1, "StickingTheLanding")

    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        """Returns the average of log p(y | z) + β (log p(z) − log q(z)), q's own parameters held in log q."""
        held = jax.lax.stop_gradient(belief)

        def of_draw(k: RandomKey) -> Array:
            of_draw, of_rest = jax.random.split(k)
            z = belief.sample(of_draw)
            return joint.log_likelihood(z, of_rest) + weight * (joint.log_prior(z) - held.log_prob(z))

        return jnp.mean(over_samples(key, self.samples, of_draw))
