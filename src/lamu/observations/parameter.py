"""The network of a model without inputs: nothing but θ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Parameter"]


@record
class Parameter:
    r"""\(f(\theta, x) = \theta\), the same for every row.

    Attributes:
        start: the first θ, a tree.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.observations import Parameter
        >>> network = Parameter(jnp.array(0.5))
        >>> theta, state = network.init(jax.random.key(0), jnp.zeros((2, 0)), outputs=1)
        >>> network.apply(theta, state, jnp.zeros((2, 0)), None, False)[0].tolist()
        [[0.5], [0.5]]
    """

    start: Params

    linear = True
    head = "*"

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns θ at its start, in the dtype of the data, and the empty state."""
        dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float)
        return jax.tree.map(lambda leaf: jnp.array(leaf, dtype, copy=True), self.start), {}

    def apply(self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool) -> tuple[Array, Any]:
        """Returns θ for every row, `[batch, outputs]`, and the state unchanged."""
        flat = tree.ravel(params)[0]
        return jnp.broadcast_to(flat[None], (x.shape[0], flat.size)), state
