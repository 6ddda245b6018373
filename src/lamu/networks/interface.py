"""What a network must offer, two pure functions and facts that have defaults; and a normaliser inside one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp

from lamu.dtype_policy import network_products
from lamu.typing import Array, DTypeLike, Params, RandomKey, State

__all__ = ["Network", "Normaliser", "outputs"]


class Network(ABC):
    r"""A function \(f(\theta, x)\), with a state beside its parameters where it has one (batch statistics).

    Parameters and state are plain nested dictionaries with stable names, because priors, frozen leaves and saved files
    address leaves by path.

    Outside of training no row may see another, nor how many there are: predictions and sums over many rows take some of
    them at a time.

    A network of one's own needs `init` and `apply` alone. It need not even inherit from this class: `lamu.Model` takes
    any object with the two, and asks it for the facts below where it has them (`lamu.networks.adapted`).

    Attributes:
        linear: whether f is linear (affine) in its parameters, for every x.
        head: the path pattern of the last layer's weights, in which f is linear, for methods of the last layer.
        masked: whether rows meet in training (batch statistics). `apply` then takes a last argument `mask`, one for a
            real row and zero for a padded one, shape `[batch]`, or None where every row is real.
        codes: the indices of the columns of x that are codes of categories, or `...` for all of them;
            `Model.standardised` leaves those as they are.
        trained: whether `init` returns weights that somebody has trained.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> class Line(lamu.networks.Network):
        ...     def init(self, key, x, outputs):
        ...         return {"slope": jnp.zeros((x.shape[1], outputs), x.dtype)}, {}
        ...
        ...     def apply(self, params, state, x, key, train):
        ...         return x @ params["slope"], state
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(Line(), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> lamu.fit(model, (x, y), lamu.algorithms.adam(), epochs=2).posterior.predict(x).mean.shape
        (442,)
    """

    linear: bool | Any = False
    head: str | Any = "*"
    masked: bool | Any = False
    codes: Any = ()
    trained: bool | Any = False

    @property
    def name(self) -> str:
        """What the network is called in messages."""
        return type(self).__name__

    @abstractmethod
    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters and state for inputs like `x` (`[batch, ...]`) and the given output width."""

    @abstractmethod
    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the outputs `[batch, outputs]` and the new state.

        Args:
            params: the parameters.
            state: the state, `{}` where there is none.
            x: inputs `[batch, ...]`.
            key: for random layers; None where the pass is deterministic.
            train: training mode (batch statistics are computed, not used).
            mask: given to `masked` networks alone, which rows are real.
        """

    def partially_applied(self, params: Params, first: Array) -> Params | None:
        r"""Returns parameters at which this network is \(b \mapsto f(\theta, (a, b))\), for fixed first inputs a.

        None, the default, where it has none. Who evaluates f for many b at one a asks for them, so that what reads a
        alone is evaluated once.

        Args:
            params: θ.
            first: a, a vector.
        """
        del params, first


class Normaliser:
    """What stands between a layer and its activation, as `MLP(normalise=...)` and `ConvNet(normalise=...)` take it.

    The base class scales and shifts each feature, and normalises nothing.

    Attributes:
        masked: whether rows meet in training; False for one that looks at every row by itself.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import Normaliser
        >>> class Centred(Normaliser):
        ...     masked = False
        ...
        ...     def apply(self, params, state, x, train, mask):
        ...         return super().apply(params, state, x - x.mean(axis=-1, keepdims=True), train, mask)
        >>> params, state = Centred().init(2, jnp.float32)
        >>> Centred().apply(params, state, jnp.array([[1.0, 3.0]], jnp.float32), False, None)[0].tolist()
        [[-1.0, 1.0]]
    """

    masked: bool = True

    def init(self, features: int, dtype: DTypeLike) -> tuple[Params, State]:
        """Returns parameters and state for that many features, two plain dictionaries: scale and bias, and no state."""
        return {"scale": jnp.ones(features, dtype), "bias": jnp.zeros(features, dtype)}, {}

    def apply(self, params: Params, state: State, x: Array, train: bool, mask: Array | None) -> tuple[Array, State]:
        """Returns `x`, `[batch, ..., features]`, normalised, and the new state.

        Args:
            params: the parameters.
            state: the state.
            x: what the layer gave.
            train: training mode.
            mask: one for a real row and zero for a padded one, `[batch]`; None where every row is real.
        """
        along = lambda feature: feature.reshape(*[1] * (x.ndim - 1), -1)
        return x * along(params["scale"]) + along(params["bias"]), state


def outputs(
    network: Network, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None
) -> tuple[Array, State]:
    """Returns a network's outputs and new state; the mask goes to those that declare `masked`."""
    # A network's products have the device's own precision, a linear map's all their digits.
    given = (mask,) if network.masked else ()
    if network.linear:
        return network.apply(params, state, x, key, train, *given)
    with network_products():
        return network.apply(params, state, x, key, train, *given)
