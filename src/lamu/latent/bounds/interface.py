"""What a bound on the log density of a row must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.latent.bounds.joint import Joint
from lamu.latent.flows import Flowed
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Bound", "draw", "expected_log_likelihood", "log_weight", "over_samples", "require_samples"]


class Bound(ABC):
    r"""An estimate of a lower bound on \(\log p(y)\) of one row, from draws of a belief \(q(z \mid y)\).

    Its expectation over the key is at most \(\log p(y)\) at weight one. Its gradient, in whatever the joint density
    and the belief depend on, is the estimator that the class states. The number of rows and
    the temperature are the objective's business.
    """

    @abstractmethod
    def of_row(self, key: RandomKey, joint: Joint, belief: Any, weight: Number = 1.0) -> Array:
        r"""Returns the estimate in nats, a scalar.

        Args:
            key: a random key, of this row alone.
            joint: p(y, z) of the row.
            belief: q(z | y), with `sample` and `log_prob`.
            weight: β, which multiplies the divergence (\(\log q - \log p(z)\)); one for a bound.
        """

    def weight(self, step: Number) -> Array:
        """Returns β at a training step; one, unless a warm-up says otherwise.

        Args:
            step: how many training steps there have been.
        """
        del step
        return jnp.ones(())


def require_samples(samples: Any, least: int, name: str) -> None:
    """Raises a ValueError for a number of samples of which there is no bound.

    Args:
        samples: the number.
        least: the fewest.
        name: what the bound is called, for instance "Importance".

    Examples:
        >>> from lamu.latent.bounds.interface import require_samples
        >>> require_samples(5, 1, "Importance")
    """
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < least:
        raise ValueError(f"{name}({samples!r}) averages over no samples; give a whole number from {least}")


def draw(key: RandomKey, belief: Any) -> tuple[Params, Array]:
    """Returns one draw z and log q(z) in nats.

    Args:
        key: a random key.
        belief: q.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent.bounds.interface import draw
        >>> from lamu.operators import Scalar
        >>> z, log_q = draw(jax.random.key(0), Gaussian(jnp.zeros(2), Scalar(1.0)))
        >>> z.shape, log_q.shape
        ((2,), ())
    """
    if isinstance(belief, Flowed):
        return belief.draw(key)
    z = belief.sample(key)
    return z, belief.log_prob(z)


def log_weight(key: RandomKey, joint: Joint, belief: Any, weight: Number) -> Array:
    r"""Returns \(\log p(y \mid z) + \beta\,(\log p(z) - \log q(z))\) at one draw z of q, in nats.

    Args:
        key: a random key.
        joint: p(y, z).
        belief: q.
        weight: β.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent import RowJoint
        >>> from lamu.latent.bounds.interface import log_weight
        >>> from lamu.operators import Scalar
        >>> prior = Gaussian(jnp.zeros(2), Scalar(1.0))
        >>> float(log_weight(jax.random.key(0), RowJoint(prior, lambda z: jnp.asarray(-2.0)), prior, 1.0))
        -2.0
    """
    of_draw, of_rest = jax.random.split(key)
    z, log_q = draw(of_draw, belief)
    return joint.log_likelihood(z, of_rest) + weight * (joint.log_prior(z) - log_q)


def expected_log_likelihood(key: RandomKey, joint: Joint, belief: Any, samples: int) -> Array:
    r"""Returns the average of \(\log p(y \mid z)\) over draws of q, in nats.

    Args:
        key: a random key.
        joint: p(y, z).
        belief: q.
        samples: how many draws.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent import RowJoint
        >>> from lamu.latent.bounds.interface import expected_log_likelihood
        >>> from lamu.operators import Scalar
        >>> prior = Gaussian(jnp.zeros(2), Scalar(1.0))
        >>> joint = RowJoint(prior, lambda z: jnp.asarray(-2.0))
        >>> float(expected_log_likelihood(jax.random.key(0), joint, prior, 4))
        -2.0
    """

    def of_draw(key: RandomKey) -> Array:
        of_draw, of_rest = jax.random.split(key)
        return joint.log_likelihood(belief.sample(of_draw), of_rest)

    return jnp.mean(over_samples(key, samples, of_draw))


def over_samples(key: RandomKey, samples: int, of_key: Callable[[RandomKey], Array]) -> Array:
    """Returns a function of a key at several independent keys, stacked along a leading axis.

    Args:
        key: a random key.
        samples: how many.
        of_key: the function.

    Examples:
        >>> import jax
        >>> from lamu.latent.bounds.interface import over_samples
        >>> over_samples(jax.random.key(0), 3, jax.random.normal).shape
        (3,)
    """
    if samples == 1:  # the key itself: one derivation of keys a row less
        return jax.tree.map(lambda leaf: leaf[None], of_key(key))
    return jax.vmap(of_key)(jax.random.split(key, samples))
