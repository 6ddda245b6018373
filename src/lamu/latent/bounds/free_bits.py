"""The evidence lower bound that does not reward a coordinate for knowing less than a given amount."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.latent.bounds.interface import Bound, expected_log_likelihood, require_samples
from lamu.latent.bounds.joint import Joint
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Number, RandomKey

__all__ = ["FreeBits"]


@record
@sized
class FreeBits(Bound):
    r"""The evidence lower bound in which every latent coordinate may tell λ nats for free.

    \[ \mathcal L_\lambda = E_q[\log p(y \mid z)] - \beta \sum_j \max(\lambda,\, KL_j) \le \mathcal L \]

    It keeps coordinates from collapsing to the prior early in training. The paper takes the maximum of the minibatch's
    average of a group; here it is a row's own, so that the bound of a row does not depend on the others.

    Attributes:
        nats: λ, of each independent term of the divergence.
        samples: how many draws of z a row.

    Raises:
        ValueError: for a negative λ, or fewer than one draw.
        TypeError: when it is used with a divergence that has no closed form.

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
            raise ValueError(f"nats={self.nats!r} cannot be free; give a number from 0, for instance 0.1")
        require_samples(self.samples, 1, "FreeBits")

    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        """Returns the average log likelihood, less β times the divergences of λ and more."""
        terms = joint.divergences(belief)
        if terms is None:
            raise TypeError(
                f"FreeBits needs the divergence of {type(belief).__name__} from the prior in closed form; use a "
                "Gaussian belief with a Gaussian prior, or WarmUp(ELBO(), steps)"
            )
        value = expected_log_likelihood(key, joint, belief, self.samples)
        return value - weight * jnp.sum(jnp.maximum(terms, self.nats))
