"""What a network must offer: two pure functions and one fact."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lamu.typing import Array, Params, RandomKey

__all__ = ["Network"]


@runtime_checkable
class Network(Protocol):
    r"""A function \(f(\theta, x)\), with a state beside its parameters where it has one (batch statistics).

    Parameters and state are plain nested dictionaries with stable names, because priors, frozen leaves and saved files
    address leaves by path.

    Attributes:
        linear: whether f is linear (affine) in its parameters, for every x.
    """

    @property
    def linear(self) -> bool:
        """Whether f is affine in its parameters."""
        ...

    @property
    def head(self) -> str:
        """The path pattern of the last layer's weights, in which f is linear."""
        ...

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns initial parameters and state for inputs like `x` (`[batch, ...]`) and the given output width."""
        ...

    def apply(self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool) -> tuple[Array, Any]:
        """Returns the outputs `[batch, outputs]` and the new state.

        Args:
            params: the parameters.
            state: the state, `{}` where there is none.
            x: inputs `[batch, ...]`.
            key: for random layers; None where the pass is deterministic.
            train: training mode (batch statistics are computed, not used).
        """
        ...
