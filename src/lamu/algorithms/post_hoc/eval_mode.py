"""A loss of the network as it predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamu.model import Model
from lamu.networks import Evaluated
from lamu.objective import Objective

__all__ = ["evaluated"]


def evaluated(objective: Objective, network_state: Any) -> Objective:
    """Returns the objective of the network in evaluation mode."""
    if not isinstance(objective.model, Model):
        return objective
    network = Evaluated(objective.model.network, network_state)
    return replace(objective, model=replace(objective.model, network=network))
