"""A loss of the network as it predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamu.model import Model
from lamu.networks import Evaluated
from lamu.objective import Objective

__all__ = ["evaluated"]


def evaluated(objective: Objective, network_state: Any) -> Objective:
    """Returns the objective of the network in evaluation mode.

    Args:
        objective: the loss.
        network_state: the network's state.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.eval_mode import evaluated
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
        >>> evaluated(lamu.objective.Objective(model, 4), {}).model.network.base
        Linear(bias=True)
    """
    if not isinstance(objective.model, Model):
        return objective
    network = Evaluated(objective.model.network, network_state)
    return replace(objective, model=replace(objective.model, network=network))
