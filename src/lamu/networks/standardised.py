"""A network that receives its inputs standardised."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.networks.interface import Network, outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Standardised"]


@record
class Standardised(NetworkWrapper):
    r"""The network \(x \mapsto f((x - \mathrm{shift}) / \mathrm{scale})\): scaling is part of the model.

    Attributes:
        base: f.
        shift: subtracted from the inputs, shape of one input. A constant, never a parameter.
        scale: divides them, shape of one input. A constant, never a parameter.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import Linear, Standardised
        >>> network = Standardised(Linear(), shift=jnp.ones(2), scale=jnp.ones(2))
        >>> params, state = network.init(jax.random.key(0), jnp.zeros((1, 2)), outputs=1)
        >>> float(network.apply(params, state, jnp.ones((1, 2)), None, False)[0][0, 0])
        0.0
    """

    base: Network | Any
    shift: Any
    scale: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("shift", self.shift), ("scale", self.scale)):
            if isinstance(value, Tracer) or not isinstance(value, np.ndarray | jax.Array):
                continue
            if not (np.isfinite(value).all() and (name == "shift" or np.all(value))):
                raise ValueError(f"the {name} {value} is not finite, or zero; give 1 where inputs do not vary")

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        return self.base.init(key, self._standardise(x), outputs)

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        return outputs(self.base, params, state, self._standardise(x), key, train, mask)

    def _standardise(self, x: Array) -> Array:
        if x.shape[1:] != jnp.shape(self.shift):
            raise ValueError(
                f"inputs have the shape {x.shape[1:]} a row, the network was standardised for {jnp.shape(self.shift)}"
            )
        shift, scale = (jax.lax.stop_gradient(jnp.asarray(part, x.dtype))[None] for part in (self.shift, self.scale))
        return (x - shift) / scale
