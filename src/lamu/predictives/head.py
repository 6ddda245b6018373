r"""The features of a network's last layer, \(f(x) = W^\top \phi(x)\)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.compile_once import is_traced
from lamu.networks.interface import NetworkWrapper
from lamu.target import Target
from lamu.typing import Array, Params, State

__all__ = ["head_features", "head_size", "require_head"]


def head_features(model: Target, head: Params, network_state: State, x: Array) -> tuple[Array, Array]:
    """Returns outputs and features of some rows, differentiable in frozen weights that are traced."""
    # \(\phi(x) = \partial f_1 / \partial W_{\cdot 1}\): a backward pass through the last layer alone.

    def outputs(head: Params, row: Array) -> tuple[Array, Array]:
        f = model.outputs({"network": head, "likelihood": {}}, network_state, row[None])[0][0]
        return f[0], f

    slopes, f = jax.vmap(jax.grad(outputs, has_aux=True), in_axes=(None, 0))(head, x)
    columns = [jnp.reshape(leaf[..., 0], (x.shape[0], -1)) for leaf in jax.tree.leaves(slopes)]
    return f, jnp.concatenate(columns, axis=1)


def head_size(head: Params) -> tuple[int, int]:
    """Returns the numbers of inputs, including the bias's, and of outputs of a layer."""
    outputs = jax.tree.leaves(head)[0].shape[-1]
    return tree.dimension(head) // outputs, outputs


def require_head(model: Target, head: Params, network_state: State, x: Array, outputs: int, name: str) -> None:
    """Raises a TypeError unless the last axis of every leaf is that of the outputs."""
    network = model.network
    while isinstance(network, NetworkWrapper):
        network = network.base
    turned = getattr(network, "outputs_first", False)
    for path, leaf in zip(tree.paths(head), jax.tree.leaves(head), strict=True):
        if turned or leaf.ndim < 1 or leaf.shape[-1] != outputs:
            raise _not_last(name, f"the leaf {path!r} of the head has the shape {leaf.shape} for {outputs} outputs")
    if is_traced() or isinstance(x, Tracer):
        return
    # A square kernel has the right shape in both orders: only the first column affects the first output.
    first = lambda head: jnp.sum(model.outputs({"network": head, "likelihood": {}}, network_state, x)[0][:, 0])
    for path, slope in tree.by_path(jax.grad(first)(head)).items():
        if bool(jnp.any(slope[..., 1:] != 0)):
            raise _not_last(name, f"output 0 depends on more of the head's leaf {path!r} than its first column")


def _not_last(name: str, what: str) -> TypeError:
    return TypeError(
        f"{name} needs a last layer of kernel and bias with the outputs last, [features, outputs], and {what} (PyTorch "
        "and Equinox have the outputs first); use last_layer(), or lamu.networks.Trained with a head laid out so"
    )
