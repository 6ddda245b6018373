"""A predictive rule: how a belief becomes a predictive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import predictive
from lamu.target import Target
from lamu.typing import Belief, RandomKey, Rows, State

__all__ = ["PredictiveRule"]


class PredictiveRule(ABC):
    """How a belief becomes a predictive: a rule says what can be done before the inputs are known, and no more."""

    @abstractmethod
    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns what can be done before the inputs are known (draws of the parameters, a factored precision).

        Args:
            model: network, likelihood and prior.
            belief: q on all parameters.
            network_state: the network's state.
            samples: how many draws, where the rule needs draws.
            key: for the draws; draw i depends on the key and i alone, never on a row or a chunk.
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
        """Returns the predictive at the inputs, in memory or some rows at a time.

        Args:
            model: network, likelihood and prior.
            belief: q on all parameters.
            network_state: the network's state.
            x: new inputs `[N, ...]`.
            samples: how many draws, where the rule needs draws.
            key: for the draws.
            offset: what is added to f, `[N]` or `[N, outputs]`.
        """
        return predictive(self.prepare(model, belief, network_state, samples, key), x, offset)
