r"""How far a belief in λ is from the fixed point of the rule: the natural norm of \(\lambda - \lambda^*\)."""

from __future__ import annotations

from typing import Any, ClassVar

from lamu import tree
from lamu.data.batch import Batch
from lamu.expectations import Analytic
from lamu.natural_rule import NaturalRule
from lamu.objective import Objective
from lamu.record import record
from lamu.typing import Params, RandomKey

__all__ = ["AtNatural"]


@record
class AtNatural:
    r"""Estimates \(d = \lambda - \lambda_0/T + \kappa\nabla_\mu E_q[\bar\ell]\), of norm \(\sqrt{d^\top F d}\)."""

    algorithm: NaturalRule  # what made the belief, for its expectation
    objective: Objective  # the loss
    belief: Any  # q
    dispersions: Params | None = None  # those that are learned beside it; none where None

    network_state: ClassVar[Any] = {}

    @property
    def deterministic(self) -> bool:
        """Whether the expectation is known in μ."""
        return isinstance(self.algorithm.expectation, Analytic)

    @property
    def dimension(self) -> int:
        """The number of coordinates of θ."""
        return max(tree.dimension(self.belief.mean), 1)

    @property
    def metric(self) -> AtNatural:
        """F."""
        return self

    def solve(self, direction: Params) -> Params:
        r"""Returns \(F d\), which is to λ what the inverse of a precision is to a gradient."""
        return self.belief.fisher_product(direction)

    def averaged(self, draws: int) -> AtNatural:
        """Returns itself: its expectation has as many draws as it has."""
        return self

    def estimate(self, batch: Batch, key: RandomKey) -> tuple[Params, Params]:
        """Returns d as these rows tell it, and no curvature."""
        return self.algorithm.direction(key, self.belief, batch, self.objective, self.dispersions), {}

    def whole(self, gradient: Params, curvature: Params) -> tuple[Params, Params]:
        """Returns both as they are: d is of the scale of the target."""
        return gradient, curvature

    def in_metric(self, curvature: Params) -> AtNatural:
        """Returns itself: the belief is its own metric."""
        return self

    def distances(self, mean: Params, error: Params) -> dict[str, float]:
        """Returns nothing more: d is of all natural parameters."""
        return {}
