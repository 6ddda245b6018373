"""A network that somebody has trained elsewhere, as a plain function of its parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.networks.interface import Network
from lamu.record import given, record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Trained"]


@record
class Trained(Network):
    r"""A function \(f(\theta, x)\) with the parameters that it was trained to, from any library that JAX can call.

    `init` returns the parameters, so that `lamu.fit(model, data, algorithm, epochs=0)` goes straight to the posterior,
    and more epochs go on from there. A posterior of it can be saved; who loads it gives the function again,
    `lamu.load(path, network=...)`.

    Attributes:
        function: maps parameters and inputs `[batch, ...]` to outputs `[batch, outputs]`; pure, and without a state:
            give batch statistics as constants of the function.
        params: the parameters, nested dictionaries of arrays.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.

    Raises:
        TypeError: for a function that cannot be called, or parameters that are no dictionary.
        ValueError: for a head that matches no parameter.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> found = {"slope": jnp.ones((10, 1), x.dtype), "level": jnp.full(1, 150.0, x.dtype)}
        >>> network = lamu.networks.Trained(lambda theta, x: x @ theta["slope"] + theta["level"][None], found)
        >>> model = lamu.Model(network, lamu.likelihoods.Gaussian(scale=60.0))
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=0).posterior
        >>> float(posterior.mean["network"]["level"][0])
        150.0
    """

    function: Any = given()
    params: Any
    head: str = static(default="*")
    linear: bool = static(default=False)

    trained = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function={self.function!r} cannot be called; give one of parameters and inputs")
        if not isinstance(self.params, dict):
            raise TypeError(
                f"the parameters are a {type(self.params).__name__}; give nested dictionaries of arrays, whose paths "
                "name them"
            )
        tree.require_matches((self.head,), self.params)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns the trained parameters, and the empty state."""
        return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), self.params), {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the function's outputs, and the empty state."""
        return self.function(params, x), state
