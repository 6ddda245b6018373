"""A series of latents that a network moves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.graphs.expressions import Environment
from lamu.graphs.learned_prior import LearnedPrior
from lamu.latent.log_scale import soft_clipped
from lamu.networks import MLP
from lamu.networks.adapted import adapted
from lamu.networks.interface import outputs
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["TransitionPrior"]

_NETWORK = MLP((50,))


@record
@sized
class TransitionPrior(LearnedPrior):
    r"""A series of latents, each around what a network makes of the one before.

    \[ z_1 \sim N(0, I), \qquad z_{t+1} \mid z_t \sim N\big(m(z_t), \mathrm{diag}(s(z_t)^2)\big) \]

    Attributes:
        latents: D, numbers of z at one time.
        steps: T.
        network: of m and log s, which is softly clipped beyond ±15 as that of `MeanField` is.

    Raises:
        ValueError: for no latent, or fewer than two steps.

    Source: Krishnan, Shalit & Sontag (2015), equation 4.

    Examples:
        >>> from lamu.latent import TransitionPrior
        >>> TransitionPrior(2, steps=5).shape
        (5, 2)
    """

    steps: int = static()
    network: Any = _NETWORK

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "network", adapted(self.network))
        if not isinstance(self.steps, int) or self.steps < 2:
            raise ValueError(f"steps={self.steps!r} are no series; give a whole number from 2")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.steps, self.latents)

    def first(self, key: RandomKey, dtype: Any) -> Params:
        """Returns fresh weights of the network."""
        return self.network.init(key, jnp.zeros((1, self.latents), dtype), 2 * self.latents)[0]

    def moved(self, weights: Params, z: Array) -> Gaussian:
        r"""Returns \(p(z_{t+1} \mid z_t)\).

        Args:
            weights: the weights.
            z: \(z_t\), `[D]`.
        """
        mean, log_scale = jnp.split(outputs(self.network, weights, {}, z[None], None, False, None)[0][0], 2)
        return Gaussian(mean, Diagonal(jnp.exp(-2 * soft_clipped(log_scale))))

    def log_prob(self, weights: Params, z: Array, at: Environment) -> Array:
        """Returns the sum of the log densities of all steps."""
        steps = jax.vmap(lambda before, after: self.moved(weights, before).log_prob(after))(z[:-1], z[1:])
        return self._start(z).log_prob(z[0]) + jnp.sum(steps)

    def draw(self, key: RandomKey, weights: Params, at: Environment) -> Array:
        """Returns a draw of the series, `[T, D]`."""
        of_first, *keys = jax.random.split(key, self.steps)
        zeros = jnp.zeros((1, self.latents), jax.tree.leaves(weights)[0].dtype)
        series = [self._start(zeros).sample(of_first)]
        for of_step in keys:
            series.append(self.moved(weights, series[-1]).sample(of_step))
        return jnp.stack(series)

    @staticmethod
    def _start(z: Array) -> Gaussian:
        return Gaussian(jnp.zeros_like(z[0]), Diagonal(jnp.ones_like(z[0])))
