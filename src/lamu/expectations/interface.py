"""What a choice of expectation computes."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lamu.families import Gaussian
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.typing import RandomKey

__all__ = ["Expectation"]


@runtime_checkable
class Expectation(Protocol):
    r"""How \(\nabla_\mu E_q[\bar\ell]\) is taken.

    For a Gaussian the gradient in the expectation parameters is known from two expectations (Bonnet's and Price's
    theorems; Khan & Rue 2021, equations 10 and 11):

    \[ \nabla_{\mu_1} E_q[\bar\ell] = E_q[\nabla\bar\ell] - E_q[\nabla^2\bar\ell]\, m, \qquad
       \nabla_{\mu_2} E_q[\bar\ell] = \tfrac12 E_q[\nabla^2\bar\ell] \]

    so an expectation returns \(E_q[\bar\ell]\), \(E_q[\nabla\bar\ell]\) and \(E_q[\nabla^2\bar\ell]\).
    """

    departure: str | Any = ""  # what it changes about the rule, in words; empty for nothing

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        """Returns the expected value, gradient and curvature of the mean loss under the belief.

        Args:
            key: for draws and random layers.
            belief: q, a Gaussian on the loss's coordinates.
            loss: the mean loss on a batch.
            curvature: how the Hessian is taken at a point.
            structure: the operator class that holds it.
        """
        ...
