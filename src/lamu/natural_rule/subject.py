"""What a belief of the rule in λ is about."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.predictives import PredictiveRule
from lamu.typing import Params, RandomKey

__all__ = ["Subject"]


@runtime_checkable
class Subject(Protocol):
    """The parameters of a target that a belief is about: where it starts, its prior, and the loss."""

    # `predictive`: how the posterior predicts.

    family: str | Any  # the belief in words, for tables
    # Whether the belief has a fixed point over all rows, from which a run is measured, and a bound of the log evidence;
    # there must be no rest.
    settles: ClassVar[bool] = False

    @property
    def predictive(self) -> PredictiveRule:
        """How the posterior predicts."""
        ...

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Any, Params, Any]:
        """Returns the first belief, the rest of the parameters (a point), and the network's state."""
        # The belief is of an exponential family, or a product of such families.
        ...

    def prior(self, objective: Objective, belief: Any) -> Any:
        """Returns λ₀/T, the natural parameters of the tempered prior, a tree like `belief.to_natural()`."""
        ...

    def loss(self, objective: Objective, batch: Batch, network_state: Any, rest: Params) -> Any:
        """Returns the mean negative log likelihood on a batch, in nats a row, with the prior of the rest."""
        # An object with `value(theta, rest, key)`, `rest` and `network_state`, as `lamu.objective.BatchLoss`; of μ in
        # the place of θ where the expectation is `lamu.expectations.Analytic`.
        ...

    def expected_log_prior(self, objective: Objective, belief: Any) -> Any:
        r"""Returns \(E_q[\log p(\theta)]\) in nats of a prior that enters λ exactly; zero where it is in the loss."""
        del objective, belief
        return 0.0

    def residual(self, belief: Any, direction: Any) -> Any:
        """Returns how far the step is from a fixed point of the rule in nats, for `lamu.protocol.Info`."""
        ...
