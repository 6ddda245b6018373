"""A network that reads codes as one-hot vectors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.networks.interface import Network, outputs
from lamu.networks.multilayer import floating
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["OneHot"]


@record
@sized
class OneHot(NetworkWrapper):
    r"""The network \(x \mapsto f(e_x)\): every code 0 to K − 1 becomes a vector of zeros with a one at its place.

    Codes `[batch, ...]` become `[batch, ..., K]`, so that the first dense layer of a network of sequences is a table of
    embeddings, with a row a code. What is no such code becomes a vector of zeros. Codes come as floating numbers or as
    integers, also from `Tokens`; `Model.standardised` leaves them as they are.

    Attributes:
        base: f.
        size: K, how many codes there are.

    Raises:
        ValueError: for a size that is not an integer from 2.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import LSTM, OneHot
        >>> network, words = OneHot(LSTM((8,)), size=50), jnp.array([[3.0, 49.0, 7.0]])
        >>> params, state = network.init(jax.random.key(0), words, outputs=2)
        >>> params["cells"][0]["input"]["kernel"].shape, network.apply(params, state, words, None, False)[0].shape
        ((50, 32), (1, 2))
    """

    base: Network | Any
    size: int = static()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 2:
            raise ValueError(f"a size of {self.size!r} codes makes no vectors; give an integer from 2")

    @property
    def codes(self) -> Any:
        return ...

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        return self.base.init(key, self._vectors(x), outputs)

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        return outputs(self.base, params, state, self._vectors(x), key, train, mask)

    def _vectors(self, x: Array) -> Array:
        places = jnp.arange(self.size, dtype=x.dtype).reshape(*[1] * x.ndim, -1)
        return (x[..., None] == places).astype(floating(x))
