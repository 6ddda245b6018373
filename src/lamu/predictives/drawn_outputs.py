"""Predictions from draws of the parameters, with the network states and dispersions drawn with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lamu.predictives.chunking import in_room
from lamu.predictives.mixture import MixturePredictive
from lamu.record import record, static
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Params, Rows

__all__ = ["DrawnOutputs"]


@record
class DrawnOutputs:
    """The average of the likelihood over the outputs of draws."""

    model: Target  # what is predicted with
    draws: tuple[Any, ...]  # what the outputs are made of, in the order in which the function takes it
    dispersion: Params  # the likelihood's parameters, `[S, ...]`
    # A compiled function of model, draws, x and offset that returns f, `[S, N, K]`.
    outputs: Callable[..., Any] = static()
    # Whether the draws are random, and not a point or points that stand for themselves.
    random: bool = static(default=True)
    log_weights: Any = None  # log w of each draw, `[S]`, normalised; None for equal weights

    @property
    def support(self) -> Support:
        """The likelihood's support."""
        return self.model.likelihood.support

    def at(self, x: Rows, offset: Rows | None) -> MixturePredictive:
        """Returns the predictive of these rows."""
        f = in_room(self.outputs, (self.model, *self.draws), (x, offset), axis=1)
        if self.log_weights is None:
            return MixturePredictive.equal(self.model.likelihood, self.dispersion, f, self.random)
        return MixturePredictive(self.model.likelihood, self.dispersion, f, self.log_weights, self.random)
