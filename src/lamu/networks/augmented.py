"""Networks whose inputs are changed at random in training: noise is added, images are moved or turned."""

# A Bayesian reads it as a likelihood of the unchanged row under an average over changes. The loss then is an average of
# log likelihoods, a lower bound to the log of that average (Jensen's inequality): augmented rows are no further data,
# and count as often as the rows that they come from.

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu.networks.interface import Network, outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import given, record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Augmented", "InputNoise"]


class _Changed(NetworkWrapper):
    """A network whose inputs change in training passes that are given a key, and in no other."""

    base: Network | Any

    @abstractmethod
    def changed(self, key: RandomKey, x: Array) -> Array:
        """Returns the inputs that the base sees in training."""

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        return self.base.init(key, x, outputs)

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        if train and key is not None:
            key, own = jax.random.split(key)
            x = self.changed(own, x)
        return outputs(self.base, params, state, x, key, train, mask)


@record
class InputNoise(_Changed):
    r"""The network \(x \mapsto f(x + s \epsilon)\) in training, \(\epsilon \sim N(0, I)\); f itself in prediction.

    Every row has noise of its own, which depends on the key and the row's number alone. To first order it adds the
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

    base: Network | Any
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
    r"""The network \(x \mapsto f(t(x))\) in training, with a random change t; f itself in prediction.

    Attributes:
        base: f.
        augment: a function of a key and inputs `[batch, ...]` that returns inputs of the same shape and dtype; for
            instance a `jax.vmap` of a change of one row. It is code: a saved posterior has its name.

    Raises:
        TypeError: for an `augment` that cannot be called.
        ValueError: when it returns another shape or dtype.

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

    base: Network | Any
    augment: Callable[[RandomKey, Array], Array] | Any = given()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.augment):
            raise TypeError(f"augment={self.augment!r} cannot be called; give a function of a key and inputs")

    def changed(self, key: RandomKey, x: Array) -> Array:
        """Returns what `augment` makes of the inputs."""
        new = self.augment(key, x)
        if new.shape != x.shape or new.dtype != x.dtype:
            raise ValueError(
                f"augment returned {new.dtype} of the shape {new.shape} for inputs of {x.dtype} and {x.shape}; keep "
                "both"
            )
        return new
