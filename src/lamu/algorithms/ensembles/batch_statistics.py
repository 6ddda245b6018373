"""Which statistics a network with a state predicts by, where its weights are an average that no step has met."""

from __future__ import annotations

import math
from typing import Any

import jax

from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.record import record
from lamu.typing import Params

__all__ = ["OfTheMean", "OfTheRun"]

_ROWS, _UPDATES = 256, 50


@record
class OfTheRun:
    """The state as the run left it: statistics of the optimiser's last weights.

    Examples:
        >>> from lamu.algorithms.ensembles.batch_statistics import OfTheRun
        >>> OfTheRun().state(None, {}, {"mean": 1.0}, None)
        {'mean': 1.0}
    """

    def state(self, objective: Any, params: Params, network_state: Any, data: Any) -> Any:
        """Returns the state that is given."""
        return network_state


@record
class OfTheMean:
    """The state at the averaged weights, by passes over the data in training mode; a network without one needs none.

    Batches of 256 rows, one pass or more until there were 50 of them: a running average with the momentum 0.9 then
    remembers half a per cent of the run's statistics. Without data (a preview) the state stays as it is.

    Source: Izmailov, Podoprikhin, Garipov, Vetrov & Wilson (2018), section 3.2; Maddox et al. (2019), algorithm 1.

    Examples:
        >>> from lamu.algorithms.ensembles.batch_statistics import OfTheMean
        >>> OfTheMean().state(None, {}, {}, None)
        {}
    """

    def state(self, objective: Any, params: Params, network_state: Any, data: Any) -> Any:
        """Returns the state at the parameters.

        Args:
            objective: the loss.
            params: the parameters.
            network_state: the state to begin with.
            data: the data, re-iterable batches, or None.
        """
        if data is None or not jax.tree.leaves(network_state):
            return network_state
        batches = list(data.batches(_ROWS))
        for _ in range(math.ceil(_UPDATES / max(len(batches), 1))):
            for batch in batches:
                network_state = _after(objective, params, network_state, batch)
        return network_state


@jax.jit
def _after(objective: Objective, params: Params, network_state: Any, batch: Batch) -> Any:
    return objective.model.outputs(params, network_state, batch.x, None, True, batch.mask)[1]
