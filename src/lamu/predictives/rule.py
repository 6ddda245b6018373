"""Base class of predictive rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import predictive
from lamu.target import Target
from lamu.typing import Belief, RandomKey, Rows, State

__all__ = ["PredictiveRule"]


class PredictiveRule(ABC):
    """Base class of predictive rules, which compute a predictive from a belief; a rule defines `prepare` alone."""

    @abstractmethod
    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the preparation that does not depend on inputs (draws of the parameters, a factored precision).

        Args:
            model: network, likelihood and prior.
            belief: q on all parameters.
            network_state: the network's state.
            samples: the number of draws, where the rule needs draws.
            key: for the draws; draw i depends on the key and i alone, not on rows or chunks.
        """

    def predict(
        self,
        model: Any,
        belief: Belief,
        network_state: State,
        x: Rows,
        samples: int,
        key: RandomKey,
        offset: Rows | None = None,
    ) -> Predictive:
        """Returns the predictive at the inputs, in memory or in chunks of rows.

        Args:
            model: network, likelihood and prior.
            belief: q on all parameters.
            network_state: the network's state.
            x: new inputs `[N, ...]`.
            samples: the number of draws, where the rule needs draws.
            key: for the draws.
            offset: the offset added to f, `[N]` or `[N, outputs]`.
        """
        return predictive(self.prepare(model, belief, network_state, samples, key), x, offset)
