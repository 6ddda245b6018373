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
    """The network's weights whose path matches a pattern. All others are the rest, and so are dispersions.

    Attributes:
        patterns: path patterns below `network`.

    Examples:
        >>> from lamu.natural_rule import ParameterSubset
        >>> ParameterSubset(("*kernel",)).split({"network": {"bias": 1.0, "kernel": 2.0}, "likelihood": {}})[0]
        {'bias': None, 'kernel': 2.0}
    """

    patterns: tuple[str, ...] = static(default=("*",))

    def split(self, params: Params) -> tuple[Params, Params]:
        """Returns the selected weights and the rest, with None where a leaf is in the other one."""

        def chosen(path: str) -> bool:
            return any(tree.matches(path, pattern) for pattern in self.patterns)

        weights = params["network"]
        ours = tree.map_with_path(lambda path, leaf: leaf if chosen(path) else None, weights)
        others = tree.map_with_path(lambda path, leaf: None if chosen(path) else leaf, weights)
        return ours, {"network": others, "likelihood": params["likelihood"]}

    def join(self, coordinates: Params, rest: Params) -> Params:
        """Returns the parameters again."""
        return {"network": tree.merged(coordinates, rest["network"]), "likelihood": rest["likelihood"]}


@record
class SubsetLoss(BatchLoss):
    """The mean negative log likelihood in the selected weights; the prior is that of the rest, and enters as loss.

    Examples:
        >>> import jax, lamu
        >>> from lamu.natural_rule import ParameterSubset, SubsetLoss
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> space = ParameterSubset(("*kernel",))
        >>> ours, rest = space.split(params)
        >>> loss = SubsetLoss(lamu.objective.Objective(model, 4), batch, state, space, rest)
        >>> loss.gradient(ours, None).value.shape
        ()
    """

    def value(self, coordinates: Params, rest: Params, key: RandomKey | None) -> tuple[Array, Any]:
        """Returns the mean loss in nats a row and the network's new state."""
        params = self.space.join(coordinates, rest)
        value, state = self.objective.negative_log_likelihood(params, self.batch, self.network_state, key, train=True)
        model = self.objective.model
        log_prior = model.dispersion_log_prior(params["likelihood"])
        if jax.tree.leaves(rest["network"]):
            # That of the selected weights is a constant of their support, or enters the belief exactly.
            log_prior = log_prior + model.free_prior.log_prob(rest["network"])
        return value - (log_prior / self.objective.data_size).astype(value.dtype), state
