r"""The features below a network's last layer, in which its outputs are linear: \(f(x) = W^\top \phi(x)\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.target import Target
from lamu.typing import Array, Params

__all__ = ["head_features", "head_size", "require_head"]


def head_features(model: Target, head: Params, network_state: Any, x: Array) -> tuple[Array, Array]:
    r"""Returns outputs and features of some rows, differentiable in frozen weights that are traced.

    \(\phi(x) = \partial f_1 / \partial W_{\cdot 1}\): a backward pass through the last layer alone.

    Args:
        model: the model, with every other weight frozen.
        head: the last layer's weights, leaves with the outputs for their last axis.
        network_state: the network's state.
        x: inputs `[rows, ...]`.

    Returns:
        f `[rows, outputs]`, and φ `[rows, in]`, in the order of `tree.ravel`: the one of the bias first.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.predictives.head import head_features
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
        >>> params, state = model.init(jax.random.key(0), lamu.data.Batch.of(jnp.ones((1, 2)), jnp.zeros(1)))
        >>> head_features(model, params["network"], state, jnp.array([[3.0, 5.0]]))[1].tolist()
        [[1.0, 3.0, 5.0]]
    """

    def outputs(head: Params, row: Array) -> tuple[Array, Array]:
        f = model.outputs({"network": head, "likelihood": {}}, network_state, row[None])[0][0]
        return f[0], f

    slopes, f = jax.vmap(jax.grad(outputs, has_aux=True), in_axes=(None, 0))(head, x)
    columns = [jnp.reshape(leaf[..., 0], (x.shape[0], -1)) for leaf in jax.tree.leaves(slopes)]
    return f, jnp.concatenate(columns, axis=1)


def head_size(head: Params) -> tuple[int, int]:
    """Returns how many inputs, the bias's among them, and outputs a layer has.

    Args:
        head: its weights.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives.head import head_size
        >>> head_size({"bias": jnp.zeros(2), "kernel": jnp.zeros((3, 2))})
        (4, 2)
    """
    outputs = jax.tree.leaves(head)[0].shape[-1]
    return tree.dimension(head) // outputs, outputs


def require_head(head: Params, outputs: int, name: str) -> None:
    """Raises a TypeError unless every leaf has the outputs for its last axis.

    Args:
        head: the weights.
        outputs: the width of f.
        name: of what asks.
    """
    for path, leaf in zip(tree.paths(head), jax.tree.leaves(head), strict=True):
        if leaf.ndim < 1 or leaf.shape[-1] != outputs:
            raise TypeError(
                f"{name} needs a last layer of kernel and bias, and the leaf {path!r} of the head has the shape "
                f"{leaf.shape} for {outputs} outputs; use last_layer(), or a network whose head is one dense layer"
            )
