"""A network that reads whole numbers: tokens, categories, indices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.networks.interface import Network, outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Tokens"]


@record
class Tokens(NetworkWrapper):
    r"""The network \(x \mapsto f(\theta, \lfloor x \rceil)\), whose base looks its inputs up in tables.

    Data are floating numbers everywhere else; here they become 32-bit integers again, exactly up to \(2^{24}\) in
    single precision. `Model.standardised` leaves them as they are.

    Attributes:
        base: a network that takes integers `[batch, ...]`.

    Examples:
        >>> import flax.linen as nn, jax.numpy as jnp, lamu
        >>> bag = nn.Sequential([nn.Embed(100, 8), lambda words: words.mean(axis=1), nn.Dense(2)])
        >>> model = lamu.Model(lamu.networks.Tokens(lamu.networks.Linen(bag)), lamu.likelihoods.Categorical(2))
        >>> x, y = jnp.arange(60).reshape(20, 3), jnp.arange(20) % 2
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=2).posterior
        >>> posterior.predict(x).mean.shape
        (20, 2)
    """

    base: Network | Any

    @property
    def codes(self) -> Any:
        return ...

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        return self.base.init(key, _whole(x), outputs)

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the base's outputs at whole numbers, and its new state."""
        return outputs(self.base, params, state, _whole(x), key, train, mask)


def _whole(x: Array) -> Array:
    return jnp.round(x).astype(jnp.int32)
