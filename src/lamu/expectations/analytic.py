"""The expected loss written in μ, and differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lamu.expectations.estimate import ValueAndGradient
from lamu.expectations.fisher import require_exponential
from lamu.families import Product
from lamu.families.exponential import symmetric, values_of, with_values
from lamu.operators import Dense
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["Analytic"]


@record
class Analytic:
    r"""\(\nabla_\mu\) of an expected loss that is known in μ, by automatic differentiation: exact.

    The loss is here a function of the expectation parameters, \(\mu \mapsto E_q[\ell]\), in place of one of θ; with
    `mu.family()` it can be written in the textbook ones. Where it is linear in μ, as in every conjugate model, the
    gradient is the data's natural parameter with a minus sign.

    Raises:
        TypeError: for a belief that is neither of an exponential family nor a product of such.

    Source: Khan & Lin (2017), section 3; Khan & Rue (2021), section 5.1.

    Examples:
        >>> import jax
        >>> from lamu.expectations import Analytic
        >>> from lamu.families import Exponential
        >>> found = Analytic().gradient(jax.random.key(0), Exponential(4.0), lambda mu: 3.0 * mu.values)
        >>> float(found.value), float(found.gradient.values)
        (0.75, 3.0)
    """

    departure = ""

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in μ; the key is not used.

        Args:
            key: not used.
            belief: q.
            loss: the expected loss, from `belief.expectation()` to a number.
        """
        if not isinstance(belief, Product):
            require_exponential(belief, "Analytic()")
        mu = belief.expectation()
        value, gradient = jax.value_and_grad(lambda values: loss(with_values(mu, values)))(values_of(mu))
        # What is written in one half of a symmetric matrix belongs to both.
        halves = lambda node: Dense(symmetric(node.matrix)) if isinstance(node, Dense) else node
        gradient = jax.tree.map(halves, gradient, is_leaf=lambda node: isinstance(node, Dense))
        return ValueAndGradient(value, with_values(belief.natural(), gradient))
