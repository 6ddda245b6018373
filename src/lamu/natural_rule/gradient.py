"""The gradient in μ of the mean loss on a batch, by any expectation."""

from __future__ import annotations

from typing import Any

import jax

from lamu import tree
from lamu.families.exponential import values_of
from lamu.natural_rule.discrete_expectations import Flips, Points
from lamu.objective.curvature import Evaluation
from lamu.typing import Array, Params, RandomKey

__all__ = ["natural_gradient"]


def natural_gradient(expectation: Any, key: RandomKey, belief: Any, loss: Any) -> Evaluation:
    r"""Returns \(E_q[\bar\ell]\), its gradient in μ and in the rest, and the network's state; no curvature."""
    if isinstance(expectation, Flips):
        return expectation.evaluate(key, belief, loss)
    if not isinstance(expectation, Points):
        return _estimated(expectation, key, belief, loss)

    def at_draw(key: RandomKey) -> Evaluation:
        draw_key, layer_key = jax.random.split(key)
        theta, pull = expectation.point(draw_key, belief)
        at = loss.gradient(theta, layer_key)
        return Evaluation(at.value, values_of(pull(at.coordinates)), at.rest, None, at.network_state)

    return tree.average_over(at_draw, key, expectation.samples)


def _estimated(estimator: Any, key: RandomKey, belief: Any, loss: Any) -> Evaluation:
    draw_key, layer_key = jax.random.split(key)

    def value(rest: Params) -> tuple[Array, Any]:
        estimate = estimator.gradient(draw_key, belief, lambda theta: loss.value(theta, rest, layer_key)[0])
        return estimate.value, estimate.gradient

    # The rest follows the gradient of the estimated value.
    (found, gradient), rest = jax.value_and_grad(value, has_aux=True)(loss.rest)
    return Evaluation(found, values_of(gradient), rest, None, loss.network_state)
