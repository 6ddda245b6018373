r"""A second-order step that keeps a precision positive, whatever its direction and its rate are."""

from __future__ import annotations

from typing import Any

import jax

from lamu import tree

__all__ = ["retracted"]


def retracted(precision: Any, delta: Any, rate: Any) -> Any:
    r"""Returns \(S + \rho\Delta + \tfrac12 \rho^2 \Delta S^{-1} \Delta\)."""
    # It is \(\tfrac12 S + \tfrac12 (S + \rho\Delta) S^{-1} (S + \rho\Delta)\), and so at least half of S.
    #
    # Source: Lin, Schmidt & Khan (2020), "Handling the positive-definite constraint in the Bayesian learning rule".

    def moved(s: Any, d: Any, b: Any) -> Any:
        rho = tree.cast(rate, s)
        return s + rho * d + rho**2 / 2 * b

    return jax.tree.map(moved, precision, delta, precision.sandwich(delta))
