"""Interfaces of the expectations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from lamu.families import Gaussian
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.operators import AnyStructure
from lamu.record import record
from lamu.typing import Array, Belief, Numeric, Params, RandomKey, Statistics

__all__ = ["Expectation", "GradientEstimator", "ValueAndGradient"]


@runtime_checkable
class Expectation(Protocol):
    r"""Estimator of \(\nabla_\mu E_q[\bar\ell]\) for the mean loss of a network.

    For a Gaussian the gradient in the expectation parameters is known from two expectations (Bonnet's and Price's
    theorems; Khan & Rue 2021, equations 10 and 11):

    \[ \nabla_{\mu_1} E_q[\bar\ell] = E_q[\nabla\bar\ell] - E_q[\nabla^2\bar\ell]\, m, \qquad
       \nabla_{\mu_2} E_q[\bar\ell] = \tfrac12 E_q[\nabla^2\bar\ell] \]

    so an expectation returns \(E_q[\bar\ell]\), \(E_q[\nabla\bar\ell]\) and \(E_q[\nabla^2\bar\ell]\).
    """

    departure: str | Any = ""  # how it differs from the rule, in words; empty for the rule itself

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: AnyStructure
    ) -> Evaluation:
        """Returns the expected value, gradient and curvature of the mean loss under the belief.

        Args:
            key: for draws and random layers.
            belief: q, a Gaussian on the loss's coordinates.
            loss: the mean loss on a batch.
            curvature: how the Hessian is taken at a point.
            structure: the operator class of the curvature.
        """
        ...


@record
class ValueAndGradient:
    r"""\(E_q[\ell]\) and \(\nabla_\mu E_q[\ell]\).

    Attributes:
        value: \(E_q[\ell]\), in the loss's unit.
        gradient: \(\nabla_\mu E_q[\ell]\), of the type of `belief.natural()`: a gradient in μ pairs with a change of μ,
            as λ pairs with μ, so that `lamu.rule.natural_step` takes it as it is.

    Examples:
        >>> from lamu.expectations import ValueAndGradient
        >>> ValueAndGradient(value=1.0, gradient={}).value
        1.0
    """

    value: Numeric | None
    gradient: Statistics


@runtime_checkable
class GradientEstimator(Protocol):
    r"""Estimator of \(\nabla_\mu E_q[\ell]\) for a loss \(\ell(\theta)\), any scalar function of θ.

    `Expectation` is its counterpart for the mean loss of a network on a batch, with curvature in an operator and the
    network's state; an estimator is independent of networks, and applies to any exponential family.

    Attributes:
        departure: how it differs from the rule, in words; empty for the rule itself.
    """

    departure: str | Any

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in the expectation parameters.

        Args:
            key: for draws; ignored by estimators without draws.
            belief: q, an exponential family.
            loss: ℓ, from a point θ to a number: a sum over the data if the rule is to weigh it against λ.
        """
        ...
