"""The belief about constrained parameters that a belief about their unconstrained coordinates implies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lamu.constraints import Constraints, TransformedBelief
from lamu.families.draws import Draws
from lamu.families.product import Product
from lamu.typing import Params

__all__ = ["transformed"]


def transformed(belief: Any, constraints: Constraints) -> Any:
    """Returns the belief about θ = g(u) of one about u, which stands at `network`; draws become draws."""
    if isinstance(belief, Draws):
        return replace(belief, samples=_constrained(constraints, belief.samples))
    if isinstance(belief, Product):
        return Product({**belief.factors, "network": TransformedBelief(belief.factors["network"], constraints)})
    return TransformedBelief(belief, constraints, part="network")


@jax.jit
def _constrained(constraints: Constraints, samples: Params) -> Params:
    return {**samples, "network": constraints.constrain(samples["network"])[0]}
