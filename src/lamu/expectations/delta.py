"""The delta method: everything at the mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lamu.expectations import bonnet_price
from lamu.expectations.estimate import ValueAndGradient
from lamu.expectations.fisher import inverse_fisher, require_exponential
from lamu.expectations.interface import Expectation
from lamu.families import Gaussian, MultivariateNormal, NaturalParameters
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["Delta"]


@record
class Delta(Expectation):
    r"""\(E_q[h(\theta)] \approx h(m)\), the zeroth-order delta method: one gradient.

    Gradient and curvature are exact where the loss is quadratic; the value is then low by
    \(\tfrac12 \mathrm{tr}(H\Sigma)\).

    Without a network, `gradient` is the same for any function of θ. Beliefs other than Gaussians have no Hessian in μ:
    there it is the exact gradient of \(\ell(E_q\theta)\), for instance \(\ell'(\mu)\) for a Bernoulli, whose loss is
    asked between zero and one.

    Source: Khan & Rue (2021), section 1.3.1.

    Examples:
        >>> from lamu.expectations import Delta
        >>> Delta()
        Delta()
    """

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        return curvature.evaluate(loss, belief.mean, belief, structure, key)

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns the loss at the mean and its gradient in μ; the key is not used."""
        if isinstance(belief, Gaussian | MultivariateNormal):
            return bonnet_price.in_expectation(belief, *bonnet_price.at_point(belief, loss, belief.mean))
        require_exponential(belief, "Delta()")
        natural = belief.natural()
        at_mean = lambda values: loss(natural.of.from_natural(values, natural.given).mean)
        value, in_natural = jax.value_and_grad(at_mean)(natural.values)
        return ValueAndGradient(value, NaturalParameters(inverse_fisher(belief)(in_natural), natural.given, natural.of))
