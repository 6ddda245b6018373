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
    """Raises a ValueError for a number of samples of which there is no bound."""
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < least:
        raise ValueError(f"{name}({samples!r}) averages over no samples; give a whole number from {least}")


def draw(key: RandomKey, belief: Any) -> tuple[Params, Array]:
    """Returns one draw z and log q(z) in nats."""
    if isinstance(belief, Flowed):
        return belief.draw(key)
    z = belief.sample(key)
    return z, belief.log_prob(z)


def log_weight(key: RandomKey, joint: Joint, belief: Any, weight: Number) -> Array:
    r"""Returns \(\log p(y \mid z) + \beta\,(\log p(z) - \log q(z))\) at one draw z of q, in nats."""
    of_draw, of_rest = jax.random.split(key)
    z, log_q = draw(of_draw, belief)
    return joint.log_likelihood(z, of_rest) + weight * (joint.log_prior(z) - log_q)


def expected_log_likelihood(key: RandomKey, joint: Joint, belief: Any, samples: int) -> Array:
    r"""Returns the average of \(\log p(y \mid z)\) over draws of q, in nats."""

    def of_draw(key: RandomKey) -> Array:
        of_draw, of_rest = jax.random.split(key)
        return joint.log_likelihood(belief.sample(of_draw), of_rest)

    return jnp.mean(over_samples(key, samples, of_draw))


def over_samples(key: RandomKey, samples: int, of_key: Callable[[RandomKey], Array]) -> Array:
    """Returns a function of a key at several independent keys, stacked along a leading axis."""
    if samples == 1:  # the key itself: one derivation of keys a row less
        return jax.tree.map(lambda leaf: leaf[None], of_key(key))
    return jax.vmap(of_key)(jax.random.split(key, samples))
