"""Monte Carlo: averages over draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["MonteCarlo"]


@record
class MonteCarlo:
    r"""Averages over S draws, \(E_q[h(\theta)] \approx \frac1S \sum_s h(\theta_s)\): S gradients, unbiased.

    The draws are reparameterised, \(\theta = m + S^{-1/2} \epsilon\), and taken one after the other, so that memory
    does not grow with S. A network's state is averaged over the draws.

    Attributes:
        draws: S.

    Raises:
        ValueError: for fewer than one draw.

    Examples:
        >>> from lamu.expectations import MonteCarlo
        >>> MonteCarlo(draws=2).draws
        2
    """

    draws: int = static(default=1)

    def __post_init__(self) -> None:
        if not isinstance(self.draws, int) or self.draws < 1:
            raise ValueError(f"{self.draws!r} draws cannot be averaged; ask for at least one")

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        """Returns averages over the draws."""
        factored = Gaussian(belief.mean, belief.precision.factored())

        def at_draw(key: RandomKey) -> Evaluation:
            noise_key, layer_key = jax.random.split(key)
            return curvature.evaluate(loss, factored.sample(noise_key), belief, structure, layer_key)

        if self.draws == 1:
            return at_draw(key)
        evaluations = jax.lax.map(lambda i: at_draw(jax.random.fold_in(key, i)), jnp.arange(self.draws))
        return jax.tree.map(_average, evaluations)


def _average(leaf: jax.Array) -> jax.Array:
    # A network's state may hold integers (counters), which are the same at every draw.
    return jnp.mean(leaf, axis=0) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf[0]
