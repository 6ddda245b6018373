"""The interface of gradient estimators in μ, for any loss of θ and any exponential family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["GradientEstimator", "ValueAndGradient"]


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

    value: Any
    gradient: Any


@runtime_checkable
class GradientEstimator(Protocol):
    r"""How \(\nabla_\mu E_q[\ell]\) is taken for a loss \(\ell(\theta)\), any function of θ to a number.

    `Expectation` is the same choice for the mean loss of a network on a batch, with curvature in an operator and the
    network's state; an estimator knows nothing of networks, and is for any exponential family.

    Attributes:
        departure: what it changes about the rule, in words; empty for nothing.
    """

    departure: str | Any

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in the expectation parameters.

        Args:
            key: for draws; estimators that do not draw leave it unused.
            belief: q, an exponential family.
            loss: ℓ, from a point θ to a number. It is a sum over the data where the rule is to weigh it against λ.
        """
        ...
