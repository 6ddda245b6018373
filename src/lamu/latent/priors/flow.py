"""A Gaussian that flows have moved as the prior of a latent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.graphs.expressions import Environment
from lamu.graphs.learned_prior import LearnedPrior
from lamu.latent.flows import Flow
from lamu.operators import Diagonal
from lamu.record import record
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["FlowPrior"]


@record
@sized
class FlowPrior(LearnedPrior):
    r"""The density of a z that flows take to noise, \(g_K \circ \dots \circ g_1(z) \sim N(0, I)\).

    \[ \log p(z) = \log N(z_K; 0, I) + \sum_k \log \Big| \det \frac{\partial g_k}{\partial z_{k-1}} \Big|,
       \qquad z_0 = z \]

    A density takes one pass through the flows, and a draw their inverses.

    Attributes:
        latents: D.
        flows: the flows, the first to be applied to z first.

    Raises:
        ValueError: for no latent or no flow.

    Source: Chen, Kingma, Salimans, Duan, Dhariwal, Schulman, Sutskever & Abbeel (2017), section 3.2.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> prior = lamu.latent.FlowPrior(2, (lamu.latent.Coupling((8,)), lamu.latent.Coupling((8,))))
        >>> model = lamu.latent.models.VAE(2, 5, prior=prior)
        >>> fit = lamu.fit(model, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=3)
        >>> sorted(fit.posterior.mean["network"]["z.prior"])
        [0, 1]
    """

    flows: tuple[Flow, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.flows:
            raise ValueError("FlowPrior without flows is N(0, I); give at least one flow, or graphs.Normal")

    def first(self, key: RandomKey, dtype: Any) -> Params:
        """Returns first parameters of every flow by its number."""
        return {
            number: flow.init(jax.random.fold_in(key, number), self.latents, 0, dtype)
            for number, flow in enumerate(self.flows)
        }

    def log_prob(self, weights: Params, z: Array, at: Environment) -> Array:
        """Returns the log density of the noise and the log determinants."""
        nothing, total = jnp.zeros(0, z.dtype), jnp.zeros((), z.dtype)
        for number, flow in enumerate(self.flows):
            z, log_det = flow.forward(weights[number], z, nothing)
            total = total + log_det
        return self._noise(z.dtype).log_prob(z) + total

    def draw(self, key: RandomKey, weights: Params, at: Environment) -> Array:
        """Returns what noise comes from."""
        dtype = jax.tree.leaves(weights)[0].dtype
        z = self._noise(dtype).sample(key)
        for number in reversed(range(len(self.flows))):
            z = self.flows[number].inverse(weights[number], z, jnp.zeros(0, dtype))
        return z

    def _noise(self, dtype: Any) -> Gaussian:
        return Gaussian(jnp.zeros(self.latents, dtype), Diagonal(jnp.ones(self.latents, dtype)))
