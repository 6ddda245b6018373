"""Wrappers of networks for noisy, augmented or standardised inputs and fixed statistics, and of trained functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.networks.interface import Network, NetworkWrapper
from lamu.record import given, record, static
from lamu.typing import Array, Number, Params, RandomKey, Rows, State

__all__ = ["Augmented", "InputNoise", "NetworkWrapper", "Standardised", "Trained"]


# The Bayesian interpretation is a likelihood of the unchanged row that averages over changes. The loss, an average of
# log likelihoods, is then a lower bound of the log of that average (Jensen's inequality): augmented rows are not
# additional data, and have the weight of their original rows.


class _Changed(NetworkWrapper):
    """Base class of networks that change their inputs in training passes with a key, and only there."""

    def changed(self, key: RandomKey, x: Array) -> Array:
        """Returns the inputs of the base in training."""
        raise NotImplementedError

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        if train and key is not None:
            key, subkey = jax.random.split(key)
            x = self.changed(subkey, x)
        return super().apply(params, state, x, key, train, mask)


@record
class InputNoise(_Changed):
    r"""The network \(x \mapsto f(x + s \epsilon)\) in training, \(\epsilon \sim N(0, I)\); f itself in prediction.

    Every row has independent noise, which depends on the key and the row's number alone. To first order it adds the
    penalty \(\tfrac{s^2}{2} \lVert \partial f / \partial x \rVert^2\), weighted by the curvature of the loss (Bishop
    1995). Inside of `Model.standardised`, s is in standard deviations of each input.

    Attributes:
        base: f.
        scale: s, the standard deviation: a number, or an array of the shape of one input.

    Raises:
        ValueError: for a scale that is negative or not finite.

    Source: Bishop (1995).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import InputNoise, Linear
        >>> network, x = InputNoise(Linear(), 0.1), jnp.ones((2, 3))
        >>> params, state = network.init(jax.random.key(0), x, outputs=1)
        >>> f = lambda train: network.apply(params, state, x, jax.random.key(1), train)[0]
        >>> bool(f(False)[0] == f(False)[1]), bool(f(True)[0, 0] == f(True)[1, 0])
        (True, False)
    """

    scale: Number | Any = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.scale, Tracer):
            return
        if not bool(jnp.all(jnp.isfinite(jnp.asarray(self.scale)) & (jnp.asarray(self.scale) >= 0))):
            raise ValueError(f"the noise scale {self.scale} is negative or not finite; give a standard deviation")

    def changed(self, key: RandomKey, x: Array) -> Array:
        rows = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(x.shape[0]))
        noise = jax.vmap(lambda row: jax.random.normal(row, x.shape[1:], x.dtype))(rows)
        scale = jnp.broadcast_to(jnp.asarray(self.scale, x.dtype), x.shape[1:])
        return x + jax.lax.stop_gradient(scale)[None] * noise


@record
class Augmented(_Changed):
    r"""The network \(x \mapsto f(t(x))\) in training, with a random transformation t; f itself in prediction.

    Attributes:
        base: f.
        augment: a function of a key and inputs `[batch, ...]` that returns inputs of the same shape and dtype; for
            instance a `jax.vmap` of a transformation of one row. It is code: a saved posterior contains its name.

    Raises:
        TypeError: for an `augment` that cannot be called.
        ValueError: if it returns another shape or dtype.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import Augmented, ConvNet
        >>> def mirrored(key, images):
        ...     sides = jax.random.bernoulli(key, 0.5, (len(images), 1, 1))
        ...     return jnp.where(sides, images[:, :, ::-1], images)
        >>> network, images = Augmented(ConvNet((4,)), mirrored), jnp.zeros((2, 8, 8))
        >>> params, state = network.init(jax.random.key(0), images, outputs=10)
        >>> network.apply(params, state, images, jax.random.key(1), True)[0].shape
        (2, 10)
    """

    augment: Callable[[RandomKey, Array], Array] | Any = given()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.augment):
            raise TypeError(f"augment={self.augment!r} cannot be called; give a function of a key and inputs")

    def changed(self, key: RandomKey, x: Array) -> Array:
        """Returns the augmented inputs."""
        new = self.augment(key, x)
        if new.shape != x.shape or new.dtype != x.dtype:
            raise ValueError(
                f"augment returned {new.dtype} of the shape {new.shape} for inputs of {x.dtype} and {x.shape}; keep "
                "both"
            )
        return new


@record
class Standardised(NetworkWrapper):
    r"""The network \(x \mapsto \mathrm{level} + \mathrm{unit} \cdot f((x - \mathrm{shift}) / \mathrm{scale})\).

    The four are constants of the data, never parameters.

    Attributes:
        base: f.
        shift: subtracted from the inputs, shape of one input.
        scale: divides them, shape of one input.
        level: added to the outputs, shape of one row's outputs; None for nothing.
        unit: multiplies the outputs of f, in that shape; None for one.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import Linear, Standardised
        >>> network = Standardised(Linear(), shift=jnp.ones(2), scale=jnp.ones(2))
        >>> params, state = network.init(jax.random.key(0), jnp.zeros((1, 2)), outputs=1)
        >>> float(network.apply(params, state, jnp.ones((1, 2)), None, False)[0][0, 0])
        0.0
    """

    shift: Rows
    scale: Rows
    level: Rows | None = field(default=None, metadata={"added": True})
    unit: Rows | None = field(default=None, metadata={"added": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("shift", self.shift), ("scale", self.scale)):
            if isinstance(value, Tracer) or not isinstance(value, np.ndarray | jax.Array):
                continue
            if not (np.isfinite(value).all() and (name == "shift" or np.all(value))):
                raise ValueError(f"the {name} {value} is not finite, or zero; give 1 where inputs do not vary")

    @property
    def constants(self) -> tuple[Rows | float, Rows | float]:
        """The level and the unit, zero and one where there are none."""
        return 0.0 if self.level is None else self.level, 1.0 if self.unit is None else self.unit

    def inputs(self, x: Array) -> Array:
        if x.shape[1:] != jnp.shape(self.shift):
            raise ValueError(
                f"inputs have the shape {x.shape[1:]} a row, the network was standardised for {jnp.shape(self.shift)}"
            )
        shift, scale = (jax.lax.stop_gradient(jnp.asarray(part, x.dtype))[None] for part in (self.shift, self.scale))
        return (x - shift) / scale

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        f, state = super().apply(params, state, x, key, train, mask)
        for part, combine in ((self.unit, jnp.multiply), (self.level, jnp.add)):
            if part is not None:
                f = combine(f, jax.lax.stop_gradient(jnp.asarray(part, f.dtype))[None])
        return f, state


@record
class Trained(Network):
    r"""A function \(f(\theta, x)\) with its trained parameters, from any library that JAX can call.

    `init` returns the parameters, so that `lamu.fit(model, data, algorithm, epochs=0)` computes the posterior without
    training, and more epochs continue from there. A posterior of it can be saved; loading it needs the function again,
    `lamu.load(path, network=...)`.

    Attributes:
        function: a pure function of parameters and inputs `[batch, ...]` that returns outputs `[batch, outputs]`,
            without a state: batch statistics must be constants of the function.
        params: the parameters, nested dictionaries of arrays.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.

    Raises:
        TypeError: for a function that cannot be called, or parameters that are not a dictionary.
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
    params: Params
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

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the trained parameters, and the empty state."""
        return tree.copied(self.params), {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the function's outputs, and the empty state."""
        return self.function(params, x), state
