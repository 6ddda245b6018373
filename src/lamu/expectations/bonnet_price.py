r"""Bonnet's and Price's theorems: a Gaussian's gradient in μ, from \(E_q[\nabla\ell]\) and \(E_q[\nabla^2\ell]\)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from lamu import tree
from lamu.expectations.estimate import Estimate
from lamu.families import Gaussian, NaturalParameters
from lamu.typing import Params

__all__ = ["at_point", "in_expectation"]


def at_point(belief: Gaussian, loss: Callable[[Params], Any], theta: Params) -> tuple[Any, Params, Any]:
    """Returns ℓ, ∇ℓ and ∇²ℓ at θ, the last in the structure of the belief's precision."""
    slope = jax.grad(loss)
    product = lambda v: jax.jvp(slope, (theta,), (v,))[1]
    value, gradient = jax.value_and_grad(loss)(theta)
    return value, gradient, type(belief.precision).from_hessian(product, theta)  # pyright: ignore[reportAttributeAccessIssue]


def in_expectation(belief: Gaussian, value: Any, gradient: Params, hessian: Any) -> Estimate:
    r"""Returns \(\nabla_{\mu_1} = E[\nabla\ell] - E[\nabla^2\ell] m\), \(\nabla_{\mu_2} = \tfrac12 E[\nabla^2\ell]\).

    Source: Khan & Rue (2021), equations 10 and 11. In every structure: the scalar statistic's is half the mean of the
    Hessian's diagonal, which is what its operator holds.
    """
    values = (tree.add(gradient, hessian.matvec(belief.mean), -1.0), hessian.scale(0.5))
    return Estimate(value, NaturalParameters(values, belief.given, type(belief)))
