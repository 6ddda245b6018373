"""Whether a network draws random numbers, which its trace says and no declaration need."""

from __future__ import annotations

from typing import Any

import jax
from jax.interpreters import partial_eval

from lamu.networks.interface import Network, outputs
from lamu.shape_cache import once_a_shape
from lamu.typing import Array, Params, RandomKey

__all__ = ["draws_noise"]


@once_a_shape
def draws_noise(network: Network, params: Params, state: Any, x: Any, train: bool = False) -> bool:
    """Returns whether the outputs of a network depend on the key that it is given. Nothing is computed.

    Args:
        network: the network.
        params: all its parameters.
        state: its state.
        x: inputs `[batch, ...]`.
        train: in training mode.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import MLP, Dropout
        >>> from lamu.networks.randomness import draws_noise
        >>> def of(network, x=jnp.ones((1, 3))):
        ...     return draws_noise(network, *network.init(jax.random.key(0), x, 1), x)
        >>> of(MLP((8,))), of(MLP((8,), dropout=Dropout(0.1)))
        (False, True)
    """

    def f(key: RandomKey, params: Params, state: Any, x: Array) -> Array:
        return outputs(network, params, state, x, key, train, None)[0]

    key = jax.eval_shape(lambda: jax.random.key(0))
    # A key may be read for draws that nobody uses: that of every row, where a module takes one and ignores it.
    program = jax.make_jaxpr(f)(key, params, state, x).jaxpr
    return partial_eval.dce_jaxpr(program, [True] * len(program.outvars))[1][0]
