r"""A sum over many rows, some of them at a time: \(\sum_i m_i w_i \log p(y_i \mid \theta)\), and its gradient.

What a gradient of all the data holds grows with the rows, and a processor that must fetch it from beyond its caches
waits. Taken in parts, each with its own gradient, the sum holds what one part does and costs no operation more: nothing
is computed twice, as it would be where parts are only recomputed for a gradient that comes later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu import memory, tree
from lamu.data.batch import Batch
from lamu.model import Model
from lamu.shapes import once_a_shape
from lamu.typing import Array, Params

__all__ = ["in_parts", "parts_of"]

# By the trace, which sees about half of what a compiled gradient holds. Two chains of a small ConvNet on 2,000 images
# took 316 ms a gradient in one part and 136 in parts of this size, those of a ResNet-8 on 200 images 561 and 300; a
# perceptron's differ little in any. An accelerator wants wide work, and has other memory.
_HELD = {"cpu": 2**24}
_HELD_ELSEWHERE = 2**29


def parts_of(model: Model, batch: Batch, network_state: Any, params: Params, runs: int) -> int:
    """Returns in how many parts to take the rows of a batch that is all the data, so that each fits a cache.

    A linear network is one part: it holds little beside the rows themselves. Only shapes are traced.

    Args:
        model: the model.
        batch: the rows.
        network_state: the network's state.
        params: all free parameters, of one run.
        runs: how many gradients are taken side by side.

    Examples:
        >>> import jax.numpy as jnp, jax, lamu
        >>> from lamu.objective.parts import parts_of
        >>> model = lamu.Model(lamu.networks.MLP((100,)), lamu.likelihoods.Gaussian(1.0))
        >>> few, many = (lamu.data.Batch.of(jnp.ones((n, 3)), jnp.zeros(n)) for n in (100, 100_000))
        >>> params, state = model.init(jax.random.key(0), few)
        >>> parts_of(model, few, state, params, 4), parts_of(model, many, state, params, 4) > 1
        (1, True)
    """
    if model.network.linear:
        return 1
    held = runs * _bytes(model, batch, network_state, params)
    parts = math.ceil(held / _HELD.get(jax.default_backend(), _HELD_ELSEWHERE))
    return min(batch.mask.shape[0], max(1, parts))


def in_parts(function: Callable[[Params, Batch], Array], params: Params, batch: Batch, parts: int) -> Array:
    """Returns the sum over the parts of a batch of a function of the parameters; its gradient is taken part by part.

    Rows of one part are `parts` apart, so that each of many devices has its share of every part. The last ones are
    padded and masked.

    Args:
        function: a sum over the rows that it is given, each by itself, of which masked ones count nothing.
        params: the parameters, floating.
        batch: the rows.
        parts: in how many to take them.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.objective.parts import in_parts
        >>> batch = lamu.data.Batch.of(jnp.arange(5.0)[:, None], jnp.zeros(5))
        >>> total = lambda w: in_parts(lambda w, some: some.total(w**2 * some.x[:, 0]), w, batch, parts=2)
        >>> float(total(3.0)), float(jax.grad(total)(3.0))
        (90.0, 60.0)
    """
    if parts == 1:
        return function(params, batch)
    size = math.ceil(batch.mask.shape[0] / parts)
    dealt = lambda leaf: jnp.moveaxis(leaf.reshape(size, parts, *leaf.shape[1:]), 1, 0)
    return _summed(function, params, jax.tree.map(dealt, batch.padded(size * parts)))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _summed(function: Callable[[Params, Batch], Array], params: Params, dealt: Batch) -> Array:
    shape = jax.eval_shape(function, params, jax.tree.map(lambda leaf: leaf[0], dealt))
    add = lambda total, some: (total + function(params, some), None)
    return jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), dealt)[0]


@_summed.defjvp
def _summed_and_slope(function: Callable[[Params, Batch], Array], primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The derivative is linear in the parameters' tangents, so that JAX turns it into a gradient by itself."""
    (params, dealt), (direction, _) = primals, tangents
    shape = jax.eval_shape(function, params, jax.tree.map(lambda leaf: leaf[0], dealt))
    nothing = jnp.zeros(shape.shape, shape.dtype), tree.zeros_like(params)
    found = jax.value_and_grad(function)
    add = lambda total, some: (jax.tree.map(jnp.add, total, found(params, some)), None)
    (value, gradient), _ = jax.lax.scan(add, nothing, dealt)
    return value, tree.cast(tree.dot(gradient, direction), value)


@once_a_shape
def _bytes(model: Model, batch: Batch, network_state: Any, params: Params) -> int:
    """Returns what the rows after the first add to what a gradient holds."""

    def held(rows: int) -> int:
        some = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype), batch)
        total = lambda params, state, batch: batch.total(model.log_likelihood(params, state, batch)[0])
        return memory.peak(jax.make_jaxpr(jax.value_and_grad(total))(params, network_state, some))

    return held(batch.mask.shape[0]) - held(1)
