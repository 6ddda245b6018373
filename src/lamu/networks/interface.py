"""What a network must offer: two pure functions and one fact; and what a normaliser inside one must."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lamu.typing import Array, Params, RandomKey

__all__ = ["Network", "Normaliser", "outputs"]


@runtime_checkable
class Network(Protocol):
    r"""A function \(f(\theta, x)\), with a state beside its parameters where it has one (batch statistics).

    Parameters and state are plain nested dictionaries with stable names, because priors, frozen leaves and saved files
    address leaves by path.

    Outside of training no row may see another, nor how many there are: predictions and sums over many rows take some of
    them at a time.

    Two more facts are optional. A network whose rows meet (batch statistics) declares `masked = True`; its `apply` then
    takes a last argument `mask`, one for a real row and zero for a padded one, shape `[batch]`, or None where every row
    is real. A network that reads some columns of x as codes of categories names them in `codes`, a tuple of column
    indices, or `...` for all of them: `Model.standardised` leaves those as they are.

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


@runtime_checkable
class Normaliser(Protocol):
    """What stands between a layer and its activation, as `MLP(normalise=...)` and `ConvNet(normalise=...)` take it.

    One that looks at every row by itself says `masked = False`; rows are else taken to meet.
    """

    def init(self, features: int, dtype: Any) -> tuple[Params, Any]:
        """Returns parameters and state for that many features, two plain dictionaries."""
        ...

    def apply(self, params: Params, state: Any, x: Array, train: bool, mask: Array | None) -> tuple[Array, Any]:
        """Returns `x`, `[batch, ..., features]`, normalised, and the new state.

        Args:
            params: the parameters.
            state: the state.
            x: what the layer gave.
            train: training mode.
            mask: one for a real row and zero for a padded one, `[batch]`; None where every row is real.
        """
        ...


def outputs(
    network: Network, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None
) -> tuple[Array, Any]:
    """Returns a network's outputs and new state; the mask goes to those that declare `masked`."""
    if getattr(network, "masked", False):
        masked: Any = network
        return masked.apply(params, state, x, key, train, mask)
    return network.apply(params, state, x, key, train)
