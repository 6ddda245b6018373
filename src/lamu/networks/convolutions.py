"""Whether a network holds convolutions, which decides how it is run on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from lamu.networks.interface import Network
from lamu.networks.interface import outputs as outputs_of
from lamu.shape_cache import once_a_shape
from lamu.typing import Array, Params

__all__ = ["holds_convolutions", "loops_well"]


@once_a_shape
def holds_convolutions(network: Network, x: Any, outputs: int) -> bool:
    """Whether a network convolves by the compiler's own operation, `jax.lax.conv_general_dilated`.

    Its gradient is many times slower inside a compiled loop on a CPU, and it has no fast form under `vmap` there. The
    built-in `ConvNet` is made of products, and does not hold any. Only shapes are traced: nothing is computed.

    Args:
        network: the network.
        x: inputs `[batch, ...]`, or their `jax.ShapeDtypeStruct`.
        outputs: the output width.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import ConvNet, holds_convolutions
        >>> holds_convolutions(ConvNet(), jnp.zeros((1, 8, 8)), outputs=10)
        False
    """
    x = jax.ShapeDtypeStruct(x.shape, x.dtype)
    key = jax.eval_shape(lambda: jax.random.key(0))
    mask = jax.ShapeDtypeStruct(x.shape[:1], x.dtype)
    params, state = jax.eval_shape(lambda key, x: network.init(key, x, outputs), key, x)

    def train(params: Params, state: Any, x: Array, key: Any, mask: Array) -> tuple[Array, Any]:
        return outputs_of(network, params, state, x, key, True, mask)

    jaxpr = jax.make_jaxpr(train)(params, state, x, key, mask)
    return any(name == "conv_general_dilated" for name in _primitives(jaxpr))


def loops_well(network: Network, x: Any, outputs: int) -> bool:
    """Whether a gradient of the network is fast inside a compiled loop, and under `vmap` over parameters.

    It is not where a CPU meets a convolution (8 to 25 times slower, as measured): such networks are run step by step,
    and the members of an ensemble one after the other.

    Args:
        network: the network.
        x: inputs `[batch, ...]`, or their `jax.ShapeDtypeStruct`.
        outputs: the output width.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import MLP, loops_well
        >>> loops_well(MLP((8,)), jnp.zeros((1, 3)), outputs=1)
        True
    """
    return jax.default_backend() != "cpu" or not holds_convolutions(network, x, outputs)


def _primitives(jaxpr: Any) -> Iterator[str]:
    """Yields the names of all operations, also of those inside loops, branches and functions with own derivatives."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from _primitives(inner)
