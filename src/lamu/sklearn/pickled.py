"""How pickle and joblib write an estimator: its posterior as plain arrays, in the precision that it has."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamu.record import decode, encode, modules_of

__all__ = ["Pickled"]


class Pickled:
    """A mixin before `BaseEstimator`: pickle writes the posterior as `posterior_.save` does."""

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state that pickle writes."""
        state: Any = super().__getstate__()
        if "posterior_" in state:
            arrays: dict[str, np.ndarray] = {}
            state = {**state, "posterior_": (encode(state["posterior_"], arrays, "posterior"), arrays)}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes on the state that pickle read."""
        if "posterior_" in state:
            with jax.enable_x64(state["dtype_"] == np.float64):  # else JAX rounds what it is given to 32 bits
                data, arrays = state["posterior_"]
                # Who unpickles has trusted the file already: pickle itself imports what it names.
                state = {**state, "posterior_": decode(data, arrays, trust=modules_of(data))}
        onward: Any = super()
        onward.__setstate__(state)
