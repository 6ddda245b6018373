"""The evidence lower bound."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.latent.bounds.interface import Bound, expected_log_likelihood, log_weight, over_samples, require_samples
from lamu.latent.bounds.joint import Joint
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Number, RandomKey

__all__ = ["ELBO"]


@record
@sized
class ELBO(Bound):
    r"""The evidence lower bound, with reparameterised draws.

    \[ \mathcal L = E_q[\log p(y \mid z)] - \beta\, KL(q(z \mid y) \,\|\, p(z)) = \log p(y) - KL(q \,\|\, p(z \mid y))
       \quad (\beta = 1) \]

    The divergence is in closed form where both families are known, else the average of \(\log q - \log p\) over the
    draws.

    Attributes:
        samples: how many draws of z a row.

    Raises:
        ValueError: for fewer than one draw.

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

    def __post_init__(self) -> None:
        require_samples(self.samples, 1, "ELBO")

    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        """Returns the average log likelihood of the draws, less β times the divergence."""
        divergence = joint.divergence(belief)
        if divergence is not None:
            return expected_log_likelihood(key, joint, belief, self.samples) - weight * divergence
        return jnp.mean(over_samples(key, self.samples, lambda k: log_weight(k, joint, belief, weight)))
