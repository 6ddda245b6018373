"""A network as it predicts: in evaluation mode, with its state inside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamu.networks import Network
from lamu.networks.interface import outputs
from lamu.objective import Objective
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Evaluated", "evaluated"]


@record
class Evaluated:
    r"""The network \(x \mapsto f(\theta, x)\) with batch statistics and the like held, whose rows never meet.

    Attributes:
        base: the network.
        state: its state.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.algorithms.post_hoc.evaluated import Evaluated
        >>> base = lamu.networks.MLP((4,), normalise=lamu.networks.BatchNorm())
        >>> params, state = base.init(jax.random.key(0), jnp.ones((2, 3)), outputs=1)
        >>> Evaluated(base, state).apply(params, {}, jnp.ones((2, 3)), None, True)[1]
        {}
    """

    base: Network
    state: Any

    @property
    def linear(self) -> bool:
        """Whether the base is linear in its parameters."""
        return self.base.linear

    @property
    def head(self) -> str:
        """The path pattern of the base's last layer."""
        return self.base.head

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns the base's parameters, and no state."""
        return self.base.init(key, x, outputs)[0], {}

    def apply(self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool) -> tuple[Array, Any]:
        """Returns the base's outputs in evaluation mode, whatever mode is asked for."""
        return outputs(self.base, params, self.state, x, None, False, None)[0], {}


def evaluated(objective: Objective, network_state: Any) -> Objective:
    """Returns the objective of the network in evaluation mode.

    Args:
        objective: the loss.
        network_state: the network's state.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.evaluated import evaluated
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
        >>> evaluated(lamu.objective.Objective(model, 4), {}).model.network.base
        Linear(bias=True)
    """
    network = Evaluated(objective.model.network, network_state)
    return replace(objective, model=replace(objective.model, network=network))
