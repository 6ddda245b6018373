"""Some of the weights, selected by path, and the loss as their function."""

from __future__ import annotations

from typing import Any

import jax

from lamu import tree
from lamu.objective import BatchLoss, NetworkParameters
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["ParameterSubset", "SubsetLoss"]


@record
class ParameterSubset(NetworkParameters):
    """The network's weights whose path matches a pattern. All others are the rest, and so are dispersions."""

    patterns: tuple[str, ...] = static(default=("*",))  # path patterns below `network`

    def split(self, params: Params) -> tuple[Params, Params]:
        # Returns the selected weights and the rest, with None where a leaf is in the other one.

        def chosen(path: str) -> bool:
            return any(tree.matches(path, pattern) for pattern in self.patterns)

        weights = params["network"]
        ours = tree.map_with_path(lambda path, leaf: leaf if chosen(path) else None, weights)
        others = tree.map_with_path(lambda path, leaf: None if chosen(path) else leaf, weights)
        return ours, {"network": others, "likelihood": params["likelihood"]}

    def join(self, coordinates: Params, rest: Params) -> Params:
        return {"network": tree.merged(coordinates, rest["network"]), "likelihood": rest["likelihood"]}


@record
class SubsetLoss(BatchLoss):
    """The mean negative log likelihood in the selected weights; the prior is that of the rest, and enters as loss."""

    def value(self, coordinates: Params, rest: Params, key: RandomKey | None) -> tuple[Array, Any]:
        params = self.space.join(coordinates, rest)
        value, state = self.objective.negative_log_likelihood(params, self.batch, self.network_state, key, train=True)
        model = self.objective.model
        log_prior = model.dispersion_log_prior(params["likelihood"])
        if jax.tree.leaves(rest["network"]):
            # That of the selected weights is a constant of their support, or enters the belief exactly.
            log_prior = log_prior + model.free_prior.log_prob(rest["network"])
        return value - (log_prior / self.objective.data_size).astype(value.dtype), state
